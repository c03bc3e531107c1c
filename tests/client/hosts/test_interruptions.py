"""A fork, a kill or a close in the middle of a record, of another fork or of a request holds nobody back."""

import os
import signal
import threading
import time
from contextlib import closing

import pytest

import dither
import dither.sending.upload_thread
from tests.support.hosts import (
    World,
    at_line,
    ended,
    flag,
    fork,
    forks,
    once,
    our_threads,
    request_came,
    telemetry,
    until,
)
from tests.support.keys import write_key
from tests.support.soaking import thinned


@forks
@pytest.mark.slow
def test_a_fork_does_not_wait_for_a_request_in_flight(world: World) -> None:
    def host(delay_s: float) -> None:
        dither.sending.upload_thread.PAUSE_S = 0.02
        flag(0)
        flusher = threading.Thread(target=telemetry.flush, args=(20,))
        flusher.start()
        assert until(request_came)

        def child() -> None:
            flag(1)
            telemetry.flush(20)

        started = time.monotonic()
        pid = fork(child)
        assert time.monotonic() - started < delay_s * 0.75
        assert our_threads()  # it goes on with its request
        flag(2)
        flusher.join()
        assert ended(pid) == [0]
        telemetry.flush(20)
        assert telemetry.status().waiting == 0

    world.delay_s = 2.0
    world.run(host, world.delay_s)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2)


MOMENTS = [
    'execute("PRAGMA data_version")',
    'self._begin("BEGIN IMMEDIATE"',
    "yield",
    "self.execute(",
    'execute("COMMIT")',
    "and not committed",
]
"""Lines of the device's file, in the order in which a record comes to them."""


def thread_waits() -> bool:
    """Tell whether our thread has looked, and waits for its moment: what a look finds makes nothing known."""
    uploader = telemetry._session.uploader
    return uploader is not None and bool(uploader._changed._waiters)  # type: ignore[attr-defined]


@forks
@pytest.mark.parametrize("moment", thinned(MOMENTS, 0, 4))
def test_a_signal_handler_that_forks_in_the_middle_of_a_record_costs_the_parent_nothing(
    world: World, moment: str
) -> None:
    def host(moment: str) -> None:
        children = []
        signal.signal(signal.SIGUSR1, lambda *_: children.append(fork(lambda: flag(1))))
        flag(0)
        telemetry.set_consent(False, metric="m13")
        assert until(thread_waits)
        for _ in range(2):
            flag(13)  # refused: it is known now, and asked first whether the file has changed
        at_line(moment, lambda: signal.raise_signal(signal.SIGUSR1))
        flag(13)
        flag(2)
        assert ended(*children) == [0]
        flag(3)
        assert "failed" not in telemetry.status().counts

    world.run(host, moment, needs=[thread_waits])
    counted = world.counted_in_the_end()
    counted.pop("m1", None)  # the child has no device while the parent is in the middle of a call
    assert counted == once(0, 2, 3)


@forks
@pytest.mark.parametrize("moment", thinned(MOMENTS, 2, 5))
def test_a_child_that_returns_into_the_parents_record_undoes_nothing(world: World, moment: str) -> None:
    """It comes back from a signal handler into a transaction that is its parent's, who has gone on since."""

    def host(moment: str) -> None:
        child = -1
        told, tell = os.pipe()

        def handler(*_: object) -> None:
            nonlocal child
            child = os.fork()
            if child == 0:
                signal.alarm(40)
                os.read(told, 1)

        signal.signal(signal.SIGUSR1, handler)
        flag(0)
        telemetry.set_consent(False, metric="m13")
        assert until(thread_waits)
        for _ in range(2):
            flag(13)
        at_line(moment, lambda: signal.raise_signal(signal.SIGUSR1))
        flag(13)
        flag(1)
        if child == 0:
            telemetry.close()
            os._exit(0)
        for number in range(2, 12):
            flag(number)
        waiting = telemetry.status().waiting
        os.write(tell, b"!")
        assert ended(child) == [0]
        assert telemetry.status().waiting == waiting

    world.run(host, moment, needs=[thread_waits])
    assert {**world.counted_in_the_end(), "m1": 1} == once(*range(12))


@forks
def test_a_fork_within_a_fork_leaves_the_device_free(world: World) -> None:
    """A server that replaces a dead worker from its SIGCHLD handler, while it is forking another."""
    first = "import os\nhooks = []\nos.register_at_fork(before=lambda: [hooks.pop()() for _ in hooks[:1]])"

    def host() -> None:
        children = []
        signal.signal(signal.SIGUSR1, lambda *_: children.append(fork(lambda: flag(1))))
        flag(0)
        waits = [member._fork_locks for member in dither.app_process.files if hasattr(member, "_fork_locks")]
        assert len(waits) == 2  # the device's, and that of the first import
        for locks in waits:
            locks._wait_s = 15
        globals()["hooks"].append(lambda: signal.raise_signal(signal.SIGUSR1))
        began = time.monotonic()
        children.append(fork(lambda: flag(2)))
        assert time.monotonic() - began < 10  # it does not wait for what it has itself
        assert ended(*children) == [0, 0]
        flag(3)
        assert telemetry.flush(20).waiting == 0

    world.run(host, first=first)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2, 3)


@forks
def test_a_child_killed_in_the_middle_of_a_request_holds_nobody_back(world: World) -> None:
    def host() -> None:
        dither.sending.upload_thread.PAUSE_S = 0.02
        flag(0)
        pid = fork(lambda: telemetry.flush(30))
        assert until(request_came)
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == [-signal.SIGKILL]
        flag(1)
        began = time.monotonic()
        assert telemetry.flush(20) == dither.FlushResult(sent=2, waiting=0, detail="")
        assert time.monotonic() - began < 10

    world.delay_s = 30  # the child is killed before that, and this world does not last as long
    world.run(host)
    assert world.counted() == world.counted_in_the_end() == once(0, 1)


@forks
def test_a_process_that_closed_in_the_middle_of_a_request_holds_nobody_back(world: World) -> None:
    """A command on a slow network: it closes in time, and the next one need not wait for two minutes."""

    def host() -> None:
        flag(0)
        flusher = threading.Thread(target=telemetry.flush, args=(30,), daemon=True)
        flusher.start()
        assert until(request_came)
        telemetry.close()
        assert our_threads()  # its request is still in flight when this process ends

    world.delay_s = 30
    world.run(host)
    with closing(
        dither.start(
            world.registry,
            endpoint=world.url,
            key=write_key(world.service.store),
            data_dir=world.directory,
            consent=True,
        )
    ) as device:
        assert device.flush(5).detail == ""
    assert world.counted() == once(0)
