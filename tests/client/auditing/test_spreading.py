"""Processes that draw samples: none outlives the one that started it."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dither.auditing.spreading import SHARES, WORTH, over_cores
from dither_shared.errors import ConfigurationError


def _draw_for_long(name: str) -> None:
    def work(share: int) -> int:
        with Path(name).open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(60)
        return share

    over_cores(2)(work, WORTH)


def _one_idle_and_one_for_long(name: str) -> None:
    """Have all but one of the shares be done at once, so that one process has nothing left to do, and is killed."""

    def work(share: int) -> int:
        with Path(name).open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        first = Path(name).read_text("ascii").split()[0]
        if str(os.getpid()) == first:
            while len(Path(name).read_text("ascii").split()) < PARTS:
                time.sleep(0.01)
            time.sleep(0.2)  # that the other one waits for more by then
            os.kill(int(next(pid for pid in Path(name).read_text("ascii").split() if pid != first)), signal.SIGKILL)
            time.sleep(60)
        return share

    over_cores(2)(work, WORTH)


PARTS = 2 * SHARES


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws everything")
def test_processes_end_with_the_one_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    process = multiprocessing.get_context("fork").Process(target=_draw_for_long, args=(str(pids),))
    process.start()
    assert process.pid
    deadline = time.monotonic() + 30
    while len(started := pids.read_text("ascii").split()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    while any(_runs(int(pid)) for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws everything")
def test_an_idle_process_that_is_killed_is_told_and_hangs_nobody(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    started = time.monotonic()
    with pytest.raises(ConfigurationError, match="a process that drew samples ended"):
        _one_idle_and_one_for_long(str(pids))
    assert time.monotonic() < started + 50
