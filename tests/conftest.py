"""For all tests: this is a developer's machine, but not a person's."""

import os
from collections.abc import Iterator

import pytest

from tests.support.devices import close_all

# Telemetry is silent in tests; these are its own.
os.environ["DITHER_TELEMETRY"] = "1"
for variable in (
    "DO_NOT_TRACK",
    "DITHER_BROKER",
    "DITHER_DATA",
    "DITHER_DATA_DIR",
    "DITHER_DEBUG",
    "DITHER_DRY_RUN",
    "DITHER_ENDPOINT",
):
    os.environ.pop(variable, None)


@pytest.fixture(autouse=True)
def _close_devices() -> Iterator[None]:
    yield
    close_all()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that no core has one to itself at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
