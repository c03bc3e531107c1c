"""Calls are over in time, whatever SQLite waits for: `record()` in a quarter second, `flush(t)` a quarter after t."""

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import dither
from dither.device import FILE_NAME
from dither.device.file import WAIT_S
from tests.support.hosts import World, flag, forks, has_proc, once, telemetry, until
from tests.support.keys import write_key
from tests.support.soaking import scaled, thinned

T = TypeVar("T")
SLOW_S = 0.2
"""The time that a busy machine may add."""


def within(seconds: float, call: "Callable[[], T]") -> "T":
    began = time.monotonic()
    came = call()
    took = time.monotonic() - began
    assert took < seconds, took
    return came


@forks
@has_proc
@pytest.mark.parametrize("reused", thinned([False, True], 1))
def test_an_app_that_closes_all_descriptors_waits_for_nothing_and_hears_why(world: World, reused: bool) -> None:
    """As one does that becomes a daemon. SQLite would go on with numbers that may be the app's own files by now."""

    def host(reused: bool) -> None:
        flag(0)
        assert telemetry.flush(20).sent == 1
        flag(1)
        os.closerange(3, 256)
        files = [open(f"{sys.argv[5]}{number}", "w+b") for number in range(24 * reused)]  # noqa: SIM115, PTH123
        within(0.45, lambda: flag(2))
        sent = within(1.45, lambda: telemetry.flush(1))
        assert "closed its descriptors" in sent.detail, sent
        assert "closed its descriptors" in telemetry.status().silent
        within(0.45, telemetry.close)
        assert not any(os.fstat(file.fileno()).st_size for file in files)

    world.run(host, reused, needs=[within])
    assert world.counted_in_the_end() == once(0, 1)


LOCKS = {
    **{f"shm {byte}": (f"{FILE_NAME}-shm", byte, 1) for byte in range(120, 129)},
    "pending": (FILE_NAME, 0x40000000, 1),
    "reserved": (FILE_NAME, 0x40000001, 1),
    "shared": (FILE_NAME, 0x40000002, 510),
}
"""The locks that SQLite takes: of the log's index, and of the file itself."""

HOLDER = """
import fcntl, sys
files = [(open(path, "r+b"), int(start), int(length)) for path, start, length in zip(*[iter(sys.argv[1:])] * 3)]
for file, start, length in files:
    fcntl.lockf(file, fcntl.LOCK_EX, length, start)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(directory: Path, names: list[str]) -> Iterator[None]:
    """Let another process hold some of the locks, as one that was stopped in the middle does."""
    wanted = [str(part) for name in names for part in (directory / LOCKS[name][0], *LOCKS[name][1:])]
    command = [sys.executable, "-c", HOLDER, *wanted]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        yield
        process.stdin.close()


@forks
def test_locks_that_another_process_never_gives_back_hold_no_call_up(world: World) -> None:
    """Some of them SQLite retries for ten seconds, whatever its timeout. Then it goes on as if nothing had been."""
    chance = random.Random(36)
    alone = [[name] for name in LOCKS if name not in ("shm 128", "shared")]  # of these two everybody has a share
    several = [sorted(chance.sample([name for [name] in alone], chance.randint(2, 8))) for _ in range(scaled(3, 60))]
    with dither.start(
        world.registry, endpoint=world.url, key=write_key(world.service.store), data_dir=world.directory, consent=True
    ) as device:
        device.m0.record(True)
        assert device.flush(20).sent == 1
        for number, names in enumerate([["shm 124"], *several, *alone[:: scaled(3, 1)]], 1):
            with held(world.directory, names):
                within(WAIT_S + SLOW_S, lambda number=number: getattr(device, f"m{number}").record(True))  # type: ignore[misc]
                within(0.3 + WAIT_S + SLOW_S, lambda: device.flush(0.3))
                within(4 * WAIT_S + SLOW_S, device.status)
            lost = device.status().counts.get("failed", 0)
            assert until(lambda: not device._session.device._file._lent)  # type: ignore[union-attr]
            getattr(device, f"m{number}").record(True)
            assert device.flush(20).waiting == 0
            assert device.status().counts.get("failed", 0) == lost
            assert world.counted()[f"m{number}"] == 1


class SlowDisk(sqlite3.Connection):
    """A connection whose commits, or whose first look at the file, take as long as the test likes."""

    slow = ""
    done = threading.Event()

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if self.slow and sql.startswith(self.slow):
            assert self.done.wait(20)
        return super().execute(sql, *arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("slow", ["PRAGMA journal_mode", "COMMIT"])
def test_a_slow_disk_holds_no_call_up_and_its_work_is_not_lost(
    slow: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that comes late is the next call's; a commit that comes late counts once."""
    connect, opened = sqlite3.connect, list[object]()

    def counted(where: str, **rest: object) -> sqlite3.Connection:
        opened.extend([where] * (threading.current_thread().name == "dither-file"))
        return connect(where, **rest, factory=SlowDisk)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(SlowDisk, "done", threading.Event())
    settings = {"endpoint": world.url, "key": write_key(world.service.store), "data_dir": world.directory}
    with dither.start(world.registry, consent=True, **settings) as device:  # type: ignore[arg-type]
        device.m0.record(True)
        assert device.flush(20).sent == 1
        file = device._session.device._file  # type: ignore[union-attr]
        file.before_fork()  # closes it
        file.after_fork_in_parent()
        monkeypatch.setattr(sqlite3, "connect", counted)
        if slow == "COMMIT":
            device.status()
        monkeypatch.setattr(SlowDisk, "slow", slow)
        within(WAIT_S + SLOW_S, lambda: device.m1.record(True))
        assert file._lent
        within(0.3 + WAIT_S + SLOW_S, lambda: device.flush(0.3))
        within(SLOW_S, lambda: device.m2.record(True))
        monkeypatch.setattr(SlowDisk, "slow", "")
        SlowDisk.done.set()
        assert until(lambda: not file._lent)
        device.m3.record(True)
        assert device.flush(20).detail == ""
        assert len(opened) == 1
    assert world.counted() == (once(0, 1, 3) if slow == "COMMIT" else once(0, 3))
