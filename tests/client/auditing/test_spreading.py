"""Processes that draw samples: none outlives the one that started it."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dither.auditing.samples import SHARES, WORTH, over_cores
from dither_shared.errors import ConfigurationError
from tests.support.waiting import wait_until


def _note(name: str) -> None:
    """Write down that this process has a share."""
    with Path(name).open("a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def _noted(name: str) -> list[int]:
    return [int(pid) for pid in Path(name).read_text("ascii").split()]


def _draw_for_long(name: str) -> None:
    def work(share: int) -> int:
        _note(name)
        time.sleep(60)
        return share

    over_cores(2)(work, WORTH)


def _one_idle_and_one_for_long(name: str) -> None:
    """Have all but one of the shares be done at once, so that one process has nothing left to do, and is killed."""

    def work(share: int) -> int:
        _note(name)
        first = _noted(name)[0]
        if os.getpid() == first:
            wait_until(lambda: len(_noted(name)) == PARTS)
            idle = next(pid for pid in _noted(name) if pid != first)
            wait_until(lambda: _waits(idle))
            os.kill(idle, signal.SIGKILL)
            time.sleep(60)
        return share

    over_cores(2)(work, WORTH)


PARTS = 2 * SHARES


def _stat(pid: int) -> list[str]:
    """Return what Linux says of a process, from its state on; nothing once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _runs(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _waits(pid: int) -> bool:
    """Tell whether a process sleeps at two looks, and used no processor time between them."""
    before = _stat(pid)
    time.sleep(0.05)
    after = _stat(pid)
    return before[:1] == after[:1] == ["S"] and before[11:13] == after[11:13]


@pytest.mark.skipif(
    sys.platform != "linux", reason="an audit starts processes on Linux alone, and these are what is tried"
)
def test_processes_end_with_the_one_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    process = multiprocessing.get_context("fork").Process(target=_draw_for_long, args=(str(pids),))
    process.start()
    assert process.pid
    wait_until(lambda: len(_noted(str(pids))) == 2, 30)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    wait_until(lambda: not any(map(_runs, _noted(str(pids)))), 30)


@pytest.mark.skipif(
    sys.platform != "linux", reason="an audit starts processes on Linux alone, and these are what is tried"
)
def test_an_idle_process_that_is_killed_is_told_and_hangs_nobody(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    started = time.monotonic()
    with pytest.raises(ConfigurationError, match="a process that drew samples ended"):
        _one_idle_and_one_for_long(str(pids))
    assert time.monotonic() < started + 50
