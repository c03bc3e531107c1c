"""A device that is started again and again, as its person and its app choose."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dither.sending.transport import DryRun
from dither.settings import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.support.registries import registry

Start = Callable[..., Telemetry]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Telemetry] = []

    def begin(consent: bool | None = None, asked: Registry | None = None, silent: str = "") -> Telemetry:
        started.append(Telemetry(Settings(asked or registry(), DryRun(), tmp_path / "d", consent, silent)))
        return started[-1]

    yield begin
    for telemetry in started:
        telemetry.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a thread to do what it is about to do."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
