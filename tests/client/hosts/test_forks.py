"""A fork records and sends like its parent, and each report is counted once."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import dither
import dither.sending.upload_thread
from tests.support.hosts import (
    World,
    a_world,
    ended,
    flag,
    flags,
    fork,
    forks,
    has_proc,
    of_the_file,
    once,
    our_threads,
    telemetry,
    until,
)
from tests.support.soaking import thinned

HEARD = (True, False) if sys.version_info < (3, 13) else (False,)
"""Whether a child hears of its fork: since 3.13 Python ends one that was not told of it beforehand."""


@forks
def test_after_an_idle_fork_parent_child_and_grandchild_record_and_send(world: World) -> None:
    def host() -> None:
        def grandchild() -> None:
            flag(2)
            assert telemetry.flush(20).detail == ""

        def child() -> None:
            flag(1)
            assert our_threads()
            assert telemetry.flush(20).sent == 1
            assert ended(fork(grandchild)) == [0]
            flag(3)
            telemetry.close()

        flag(0)
        assert telemetry.flush(20).sent == 1
        assert ended(fork(child)) == [0]
        flag(4)
        telemetry.flush(20)
        assert telemetry.status().waiting == 0

    world.run(host)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2, 3, 4)


@forks
def test_parent_and_child_that_send_at_the_same_time_send_each_report_once(world: World) -> None:
    def host() -> None:
        def child(number: int) -> None:
            flag(number)
            telemetry.flush(20)

        children = [fork(partial(child, number)) for number in (1, 2)]
        flag(0)
        telemetry.flush(20)
        assert ended(*children) == [0, 0]
        telemetry.flush(20)
        assert telemetry.status().waiting == 0

    world.run(host)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2)


@forks
@has_proc
def test_an_idle_fork_inherits_nothing_of_the_devices_file(world: World) -> None:
    def host() -> None:
        flag(0)

        def child() -> None:
            assert of_the_file() == []
            flag(1)
            assert of_the_file()

        assert of_the_file()
        assert ended(fork(child)) == [0]
        flag(2)
        assert of_the_file()

    world.run(host)
    assert world.counted_in_the_end() == once(0, 1, 2)


@forks
def test_a_device_in_memory_is_the_parents_alone_and_a_child_says_so(world: World) -> None:
    def host() -> None:
        flag(0)
        pid = os.fork()
        flag(1)
        if pid == 0:
            signal.alarm(40)
            status = telemetry.status()
            assert "forked" in status.silent, status
            assert "forked" in telemetry.flush(5).detail
            assert our_threads() == []
            sys.exit(3)
        assert ended(pid) == [3]
        assert telemetry.flush(20) == dither.FlushResult(sent=2, waiting=0, detail="")

    world.run(host, data_dir=":memory:")
    assert world.counted() == once(0, 1)


@forks
@pytest.mark.parametrize("hooks", thinned(HEARD, -1))
def test_a_fork_from_c_leaves_the_child_without_a_device(world: World, hooks: bool) -> None:
    """uWSGI forks so: Python hears of it afterwards, in the child, or not at all. The connection is the parent's."""

    def host(hooks: bool) -> None:
        flag(0)
        assert telemetry.flush(20).sent == 1
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            signal.alarm(40)
            if hooks:
                ctypes.pythonapi.PyOS_AfterFork_Child()
            flag(1)
            os._exit("forked" not in telemetry.status().silent)
        assert ended(pid) == [0]
        flag(2)
        assert telemetry.flush(20).sent == 1

    world.run(host, hooks)
    assert world.counted() == world.counted_in_the_end() == once(0, 2)


@forks
@pytest.mark.parametrize("end", thinned(["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"], 1, 2))
def test_however_a_child_ends_what_it_recorded_is_counted(world: World, end: str) -> None:
    def host(end: str) -> None:
        flag(0)
        pid = os.fork()
        if pid == 0:
            signal.alarm(40)
            flag(1)
            exec(end)
        assert ended(pid) in ([0], [-signal.SIGKILL])
        flag(2)
        assert telemetry.flush(20).sent == 3

    world.run(host, end)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2)


@forks
def test_hidden_presence_goes_on_after_a_fork(tmp_path: Path) -> None:
    """A device that was there says "none" for the day, whether or not its host had anything to record after a fork."""

    def host() -> None:
        dither.sending.upload_thread.SEND_WITHIN_S = dither.sending.upload_thread.LOOK_AGAIN_S = 0.05
        url, key, directory, metrics = sys.argv[1:5]
        asked, later_s = dither.Registry.load(metrics), 0.0
        settings = dither.session.Settings(
            asked,
            dither.sending.transport.HttpTransport(url, key),
            Path(directory) / "other",
            True,
            clock=lambda: time.time() + later_s,
        )
        device = dither.Telemetry(settings)
        assert ended(fork(lambda: None)) == [0]
        later_s = 86_400.0
        assert until(lambda: device.status().counts.get("accepted")), device.status()

    with a_world(tmp_path, flags(1).replace('presence = "public"', 'presence = "hidden"')) as world:
        world.run(host)
        assert world.counted() == once(0)


@forks
@has_proc
def test_a_child_that_becomes_another_program_does_nothing_by_itself(tmp_path: Path) -> None:
    """Fork hooks run in it too: presence would go on there, with a file that its program never closes."""

    def host() -> None:
        told, tell = os.pipe()

        def becoming() -> None:
            time.sleep(0.5)
            os.write(tell, "\n".join(of_the_file()).encode() or b"nothing")

        flag(0)
        subprocess.run([sys.executable, "-c", ""], check=True, timeout=40, preexec_fn=becoming)
        assert os.read(told, 10_000) == b"nothing"
        assert our_threads()

    with a_world(tmp_path, flags(1).replace('presence = "public"', 'presence = "hidden"')) as world:
        world.run(host)
