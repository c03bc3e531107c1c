"""A real aggregator, and the directory of one device that a host's processes share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import World, a_world, flags


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path, flags(14)) as made:
        yield made
