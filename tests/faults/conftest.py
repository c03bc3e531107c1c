"""A place for the files of devices."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.soaking import MEMORY


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield an empty directory, in memory where the system has some: many small files are synced in it."""
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)
