"""A fork beside other threads, ours or the host's, loses nothing and waits for none of them."""

import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from weakref import WeakSet

import pytest

import dither
import dither.sending.upload_thread
from dither.app_process import Forking, _each
from dither.device.file import DeviceFile
from tests.support.hosts import (
    World,
    a_world,
    ended,
    flag,
    flags,
    fork,
    forks,
    once,
    our_threads,
    start,
    telemetry,
    until,
)
from tests.support.soaking import SOAK, scaled

OTHER_PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"))[0 if SOAK else -1 :]


@forks
@pytest.mark.slow
def test_a_fork_finds_no_thread_that_waits_for_its_moment(world: World) -> None:
    def host(rounds: int) -> None:
        dither.sending.upload_thread.FORK_WAIT_S = 20  # however busy the machine is

        def child() -> None:
            assert threading.enumerate() == [threading.main_thread()]
            flag(1)
            assert our_threads()

        for _ in range(rounds):
            flag(0)  # answered but for the first time; it wakes the thread that the last fork ended
            assert our_threads()
            pid = fork(child)
            assert threading.enumerate() == [threading.main_thread()]
            assert ended(pid) == [0]

    world.run(host, scaled(10, 30))
    assert world.counted_in_the_end() == once(0, 1)


@forks
@pytest.mark.slow
@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_a_later_python_sees_no_fork_among_threads_and_nothing_deprecated(world: World, python: Path) -> None:
    """It warns of a fork, with the exception of a filter that says "error" swallowed: so the text is looked for."""

    def host() -> None:
        dither.sending.upload_thread.FORK_WAIT_S = 20
        for number in range(5):
            flag(number)
            assert our_threads()
            assert ended(fork(lambda: None)) == [0]
        assert telemetry.flush(20).sent == 5
        threading.Thread(target=time.sleep, args=(0.3,)).start()
        print("now", file=sys.stderr, flush=True)
        ended(fork(lambda: None))

    seen = r"now\n.*DeprecationWarning: .*multi-threaded.*\n.*\n"
    world.run(
        host,
        python=python,
        options=["-W", "error::DeprecationWarning", "-W", "always:This process:DeprecationWarning"],
        stderr=seen,
    )
    assert world.counted_in_the_end() == once(*range(5))


@forks
@pytest.mark.slow
def test_forks_while_another_thread_records_all_the_time(tmp_path: Path) -> None:
    """An answer is lost, and counted as failed, if the device is taken for a quarter of a second; never a fork."""

    def host(forked: int) -> None:
        stop = threading.Event()

        def record() -> None:
            while not stop.is_set():
                for number in range(5):
                    flag(number)

        def child(number: int) -> None:
            flag(number)
            status = telemetry.status()
            assert "Unusable" not in status.silent, status
            print(f"{number} {status.counts.get('failed', 0)}\n", end="")

        recorder = threading.Thread(target=record)
        recorder.start()
        running: list[int] = []
        for number in range(5, 5 + forked):
            running.append(fork(partial(child, number)))
            if len(running) == 3:
                assert ended(running.pop(0)) == [0]
        assert not any(ended(*running))
        stop.set()
        recorder.join()

    forked = scaled(15, 120)
    with a_world(tmp_path, flags(5 + forked)) as world:
        printed = world.run(host, forked)
        lines = [line.split() for line in printed.splitlines()]
        recorded = [int(number) for number, failed in lines if failed == "0"]
        assert len(lines) == forked
        assert len(recorded) >= 3 / 4 * forked
        assert world.counted_in_the_end() == once(*range(5), *recorded)


@forks
@pytest.mark.slow
def test_threads_that_fork_at_the_same_time_leave_the_device_free(world: World) -> None:
    """A large process is slow to fork: here each fork takes a fifth of a second once the device is held for it."""
    first = "import os, time\nos.register_at_fork(before=lambda: time.sleep(0.2))"

    def host() -> None:
        flag(0)
        threads = [
            threading.Thread(target=lambda number: ended(fork(partial(flag, number))), args=(number,))
            for number in (1, 2, 3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flag(4)
        sent = telemetry.flush(20)
        assert sent.waiting == 0, sent
        assert "failed" not in telemetry.status().counts

    world.run(host, first=first)
    counted = world.counted_in_the_end()
    assert counted == once(0, 4) | dict.fromkeys(counted, 1)


@forks
@pytest.mark.slow
def test_forks_while_another_thread_uses_sqlite_stick_no_child(world: World) -> None:
    """SQLite's own locks, taken by whichever thread, are copied as they are: a child that waits for one waits for ever.

    The threads may be the host's, with databases of its own, or such that start and close telemetry.
    """

    def host(rounds: int) -> None:
        stop = threading.Event()

        def open_and_close() -> None:
            while not stop.is_set():
                sqlite3.connect(":memory:").close()

        def start_and_close() -> None:
            while not stop.is_set():
                start(":memory:").close()

        def child() -> None:
            signal.alarm(20)
            flag(1)
            telemetry.status()

        for target in (open_and_close, start_and_close):
            threading.Thread(target=target, daemon=True).start()
        try:
            for _ in range(rounds):
                assert ended(fork(child)) == [0]
        finally:
            stop.set()
        flag(0)

    world.run(host, scaled(5, 12))
    assert world.counted_in_the_end() in (once(0), once(0, 1))


@forks
def test_a_flush_on_another_thread_is_not_ended_by_a_fork(world: World) -> None:
    def host() -> None:
        def flush() -> None:
            for number in range(5):
                flag(number)
                sent = telemetry.flush(20)
                assert sent.waiting == 0, sent
            done.set()

        done = threading.Event()
        flusher = threading.Thread(target=flush)
        flusher.start()
        while flusher.is_alive():
            assert ended(fork(lambda: None)) == [0]
        assert done.is_set()

    world.run(host)
    assert world.counted() == world.counted_in_the_end() == once(*range(5))


@forks
def test_an_answer_recorded_while_another_thread_forks_is_sent(world: World) -> None:
    """The fork comes between the answer's commit and the wake of the thread that is to send it."""
    first = "import os\nhooks = []\nos.register_at_fork(before=lambda: [hook() for hook in hooks])"

    def host() -> None:
        dither.sending.upload_thread.SEND_WITHIN_S = 0.1
        uploader = telemetry._session.uploader
        assert uploader
        wake, committed, forking, woken = uploader.wake, threading.Event(), threading.Event(), threading.Event()

        def late_wake() -> None:
            committed.set()
            assert forking.wait(20)
            try:
                wake()
            finally:
                woken.set()

        uploader.wake = late_wake  # type: ignore[method-assign]
        recorder = threading.Thread(target=flag, args=(0,))
        recorder.start()
        assert committed.wait(20)
        globals()["hooks"].extend([forking.set, partial(woken.wait, 1)])
        assert ended(fork(lambda: None)) == [0]
        recorder.join()
        uploader.wake = wake  # type: ignore[method-assign]
        flag(0)  # answered: but a call after a fork starts the thread again if anything waits
        assert until(lambda: telemetry.status().waiting == 0)

    world.run(host, first=first)
    assert world.counted() == once(0)


def test_a_fork_reaches_all_files_while_another_thread_opens_one() -> None:
    """The set changes while it is listed, and Python raises."""

    class Changing(WeakSet[Forking]):
        listed = 0

        def __iter__(self) -> Iterator[Forking]:
            self.listed += 1
            if self.listed == 1:
                raise RuntimeError("Set changed size during iteration")
            return super().__iter__()

    file, told = DeviceFile(None), list[Forking]()
    _each(Changing([file]), told.append)
    assert told == [file]
    file.close()
