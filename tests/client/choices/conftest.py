"""A device that is started again and again, as its person and its app choose."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dither.sending.transport import DryRun
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.support.in_memory import tmp_path as tmp_path
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
