"""A start after another in one process, as when a notebook's cell runs again: one of them goes on by itself."""

import os
from pathlib import Path

from dither import forks
from dither.device import FILE_NAME
from dither.sending.transport import DryRun
from dither.sending.uploader import Uploader
from dither.settings import Settings
from dither.telemetry import Telemetry
from tests.support.clocks import Clock
from tests.support.http import until
from tests.support.registries import registry


def started(directory: Path, clock: Clock, consent: bool | None = True, **changes: object) -> Telemetry:
    return Telemetry(Settings(registry(**changes), DryRun(), directory, consent, clock=clock))


def threads(directory: Path) -> int:
    senders = [sender for sender in list(forks.senders) if isinstance(sender, Uploader)]
    return sum(sender._thread is not None for sender in senders if sender._device.directory == directory)


def open_files(directory: Path) -> int:
    found = 0
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - each may be closed meanwhile
        try:
            found += os.readlink(f"/proc/self/fd/{number}") == str(directory / FILE_NAME)  # noqa: PTH115
        except OSError:
            continue
    return found


def test_a_cell_that_runs_again_leaves_one_thread_and_few_open_files(tmp_path: Path) -> None:
    clock = Clock()
    for _ in range(10):
        telemetry = started(tmp_path, clock, reports=30, epsilon="0.5")
        telemetry.color.record("red")
        clock.travel(1)
        until(lambda: threads(tmp_path) <= 1)
        until(lambda: open_files(tmp_path) <= 3)  # SQLite closes some later, or opens them again
    assert telemetry.flush(20).sent > 0
    assert telemetry.flush(20).waiting == 0
    telemetry.close()


def test_the_one_before_goes_on_when_it_is_called_or_the_later_one_is_closed(tmp_path: Path) -> None:
    clock = Clock()
    first = started(tmp_path, clock)
    first.color.record("red")
    second = started(tmp_path, clock)
    until(lambda: threads(tmp_path) == 1)
    first.dark.record(True)
    assert threads(tmp_path) == 2
    third = started(tmp_path, clock)
    until(lambda: threads(tmp_path) == 1)
    third.close()
    until(lambda: threads(tmp_path) == 2)
    assert second.flush(20).sent == 2
    assert first.status().waiting == 0
    for telemetry in (first, second):
        telemetry.close()


def test_one_that_nobody_agreed_to_takes_over_nothing(tmp_path: Path) -> None:
    clock = Clock()
    first = started(tmp_path, clock)
    first.color.record("red")
    second = started(tmp_path, clock, consent=None)
    assert second.status().silent
    assert threads(tmp_path) == 1
    assert first._uploader
    assert first._uploader._thread
    for telemetry in (second, first):
        telemetry.close()


def test_hidden_presence_goes_on_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    first, second = (started(tmp_path, clock, presence="hidden") for _ in range(2))
    assert threads(tmp_path) == 2
    for telemetry in (first, second):
        telemetry.close()
