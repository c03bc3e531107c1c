"""A `tmp_path` in memory, for a conftest.py to import: a store or a device's file waits for a disk at every commit.

Tests that start programs of their directory keep pytest's own: a container's memory may hold none.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.soaking import MEMORY


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yield an empty directory, in memory where the system has some."""
    with TemporaryDirectory(dir=MEMORY) as made:
        yield Path(made)
