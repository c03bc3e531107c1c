"""Forks, other processes, event loops, other systems: whatever the host does, each report is counted once.

A `host` in a test is a program: its source is run in a process of its own, with what stands under "In a host" and a
started `telemetry` before it.
"""

import asyncio
import ctypes
import inspect
import linecache
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
import requests

import dither
import dither.device.file
import dither.sending.courier
from dither.device import FILE_NAME
from dither.sending.transport import HttpTransport
from dither.settings import Settings
from dither.starting import default_data_dir
from dither.telemetry import Telemetry
from dither_aggregator.service import Service, WholeService
from dither_aggregator.web.answers import Receive, Scope, Send
from dither_shared.registry import Registry
from tests.support.aggregators import http_server, sqlite_store, web_app
from tests.support.keys import write_key
from tests.support.registries import registry, registry_text
from tests.support.servers import Reply, accepted, scripted

ROOT = Path(__file__).parents[2]
PATHS = [str(ROOT / "client"), str(ROOT / "shared"), str(Path(requests.__file__).parents[1])]
OTHER_PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"))

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
UNTOLD_FORK = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="since 3.13 Python ends a child whose fork it was not told of beforehand"
)
QUIET = ("-W", "ignore:This process:DeprecationWarning")
"""Since 3.12 Python warns of a fork beside threads, and some hosts have their own. Later options go before this one."""
has_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


# In a host.

telemetry = cast(Telemetry, None)
"""The host's, started before it runs."""


def start(data_dir: str = "") -> Telemetry:
    url, key, directory, metrics = sys.argv[1:5]
    return dither.start(metrics, endpoint=url, key=key, data_dir=data_dir or directory, consent=True)


def fork(child: Callable[[], object]) -> int:
    """Fork a process that does something and ends at once: with 0, or with 1 and a traceback."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        code = 1
        try:
            child()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def ended(*pids: int) -> list[int]:
    """Wait for processes; return their exit codes. Each has an alarm of its own."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def flag(number: int) -> None:
    """Record one metric."""
    getattr(telemetry, f"m{number}").record(True)


def until(condition: Callable[[], object], within_s: float = 20) -> bool:
    """Wait until something is so, and tell whether it came to be."""
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dither-uploader"]


def request_came() -> bool:
    """Tell whether the aggregator was asked anything."""
    return Path(sys.argv[5]).exists()


def of_the_file() -> list[str]:
    """Return the descriptors and maps of the device's file that this process has."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            links.append(str(descriptor.readlink()))
    links += Path("/proc/self/maps").read_text().splitlines()
    return [link for link in links if "device.sqlite3" in link]


def at_line(text: str, action: Callable[[], object]) -> None:
    """Do something once, on this thread, when the device's file is about to run a line with that text."""
    path = dither.device.file.__file__

    def see(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != path:
            return None
        if event == "line" and text in linecache.getline(path, frame.f_lineno):
            sys.settrace(None)
            action()
        return see

    sys.settrace(see)


IN_A_HOST: list[Callable[..., object]] = [
    start,
    fork,
    ended,
    flag,
    until,
    our_threads,
    request_came,
    at_line,
    of_the_file,
]
PROLOGUE = """
import ctypes, faulthandler, linecache, multiprocessing, os, signal, sqlite3, subprocess, sys, threading, time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast
import dither, dither.device.file, dither.sending.courier
Telemetry = dither.Telemetry
faulthandler.register(signal.SIGALRM, all_threads=False, chain=True)
signal.alarm(60)  # so that nothing that hangs outlives its test
"""


# The world around it.


@dataclass
class World:
    """A real aggregator, and the directory of one device that processes share."""

    url: str
    service: Service
    directory: Path
    registry: Registry
    delay_s: float = 0.0
    """How long the aggregator takes for an answer."""

    def run(
        self,
        host: Callable[..., None],
        *arguments: object,
        needs: Iterable[Callable[..., object]] = (),
        python: str | Path = sys.executable,
        options: Iterable[str] = (),
        first: str = "",
        data_dir: object = None,
        stderr: str = "",
    ) -> str:
        """Run a host; return what it printed. It must end well, with no more on stderr than `stderr` matches."""
        sources = [textwrap.dedent(inspect.getsource(function)) for function in (*IN_A_HOST, *needs, host)]
        call = f'\nif __name__ == "__main__":\n    {host.__name__}(*{arguments!r})\n'
        program = self.directory.with_name(f"{host.__name__}.py")
        program.write_text("\n".join([first, PROLOGUE, *sources, "telemetry = start()", call]), encoding="utf-8")
        done = subprocess.run(
            [python, *QUIET, *options, program, *self.settings(data_dir)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.fullmatch(stderr, done.stderr), done.stderr
        return done.stdout

    def settings(self, data_dir: object = None) -> list[str]:
        """Return what `start` and `request_came` read from the command line."""
        paths = [data_dir or self.directory, self.directory.with_name("metrics.toml"), self.directory.with_name("came")]
        return [self.url, write_key(self.service.store), *map(str, paths)]

    def counted(self) -> dict[str, int]:
        """Return how many reports of each metric the aggregator has accepted."""
        return {row.metric: row.accepted for row in self.service.store.ledger()}

    def counted_in_the_end(self) -> dict[str, int]:
        """Send what still waits, as the next start does, and return how many reports were accepted."""
        transport = HttpTransport(self.url, write_key(self.service.store))
        with closing(Telemetry(Settings(self.registry, transport, self.directory, True))) as device:
            assert device.flush(30).waiting == 0
            spent = device.status().spent
        with closing(sqlite3.connect(self.directory / FILE_NAME)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = self.counted()
        assert {name: float(self.registry.metrics[name].epsilon) * n for name, n in counted.items()} == pytest.approx(
            {name: epsilon for name, epsilon in spent.items() if epsilon}
        )
        return counted


def once(*numbers: int) -> dict[str, int]:
    """Return what is counted when each of these metrics has one report."""
    return {f"m{number}": 1 for number in numbers}


def flags(number: int, **changes: object) -> str:
    """Return a registry with so many flags, each for one report in a device's life."""
    head, _, flag = registry_text(epsilon="0.1", reports=1, **changes).partition("[metric.color]")  # type: ignore[arg-type]
    flag = flag.partition("[metric.dark]")[2]
    return head + "".join(f"[metric.m{place}]{flag}" for place in range(number))


@contextmanager
def a_world(directory: Path, text: str) -> Iterator[World]:
    (directory / "metrics.toml").write_text(text, encoding="utf-8")
    asked = Registry.parse(text)
    with sqlite_store(asked, directory / "data") as store, WholeService(store) as service:
        answer = web_app(service)

        async def slowly(scope: Scope, receive: Receive, send: Send) -> None:
            (directory / "came").touch()
            await asyncio.sleep(made.delay_s)
            await answer(scope, receive, send)

        server = http_server(slowly)
        made = World(server.url, service, directory / "device", asked)
        with server.in_background():
            yield made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path, flags(12)) as made:
        yield made


# Forks.


@forks
def test_after_an_idle_fork_parent_and_child_record_and_send(world: World) -> None:
    def host() -> None:
        flag(0)
        assert telemetry.flush(20).sent == 1

        def child() -> None:
            flag(1)
            assert telemetry.flush(20).sent == 1
            telemetry.close()

        assert ended(fork(child)) == [0]
        flag(2)
        assert telemetry.flush(20).sent == 1

    world.run(host)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2)


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
@pytest.mark.slow
def test_a_fork_finds_no_thread_that_waits_for_its_moment(world: World) -> None:
    def host() -> None:
        dither.sending.uploader.FORK_WAIT_S = 20  # however busy the machine is

        def child() -> None:
            assert threading.enumerate() == [threading.main_thread()]
            flag(1)
            assert our_threads()

        for _ in range(30):
            flag(0)  # answered but for the first time; it wakes the thread that the last fork ended
            assert our_threads()
            pid = fork(child)
            assert threading.enumerate() == [threading.main_thread()]
            assert ended(pid) == [0]

    world.run(host)
    assert world.counted_in_the_end() == once(0, 1)


@forks
@pytest.mark.slow
@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_a_later_python_sees_no_fork_among_threads(world: World, python: Path) -> None:
    """It warns of one, with the exception of a filter that says "error" swallowed: so the text is looked for."""

    def host() -> None:
        for number in range(10):
            flag(number)
            assert our_threads()
            assert ended(fork(lambda: None)) == [0]
        assert telemetry.flush(20).sent == 10
        threading.Thread(target=time.sleep, args=(0.3,)).start()
        print("now", file=sys.stderr, flush=True)
        ended(fork(lambda: None))

    seen = r"now\n.*DeprecationWarning: .*multi-threaded.*\n.*\n"
    world.run(host, python=python, options=["-W", "always:This process:DeprecationWarning"], stderr=seen)
    assert world.counted_in_the_end() == once(*range(10))


@forks
@pytest.mark.slow
@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_a_later_python_finds_nothing_deprecated(world: World, python: Path) -> None:
    def host() -> None:
        flag(0)
        sent = telemetry.flush(20)
        assert sent.sent == 1, sent
        assert ended(fork(lambda: flag(1))) == [0]
        telemetry.close()

    world.run(host, python=python, options=["-W", "error::DeprecationWarning"])
    assert world.counted_in_the_end() == once(0, 1)


@forks
@pytest.mark.slow
def test_a_fork_does_not_wait_for_a_request_in_flight(world: World) -> None:
    def host(delay_s: float) -> None:
        flag(0)
        flusher = threading.Thread(target=telemetry.flush, args=(20,))
        flusher.start()
        assert until(request_came)

        def child() -> None:
            flag(1)
            telemetry.flush(20)

        started = time.monotonic()
        pid = fork(child)
        assert time.monotonic() - started < delay_s / 2
        assert our_threads()  # it goes on with its request
        flag(2)
        flusher.join()
        assert ended(pid) == [0]
        telemetry.flush(20)
        assert telemetry.status().waiting == 0

    world.delay_s = 0.6
    world.run(host, world.delay_s)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2)


@forks
@pytest.mark.slow
def test_forks_while_another_thread_records_all_the_time(tmp_path: Path) -> None:
    """An answer is lost, and counted as failed, if the device is taken for a quarter of a second; never a fork."""

    def host() -> None:
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
        for number in range(5, 125):
            running.append(fork(partial(child, number)))
            if len(running) == 3:
                assert ended(running.pop(0)) == [0]
        assert not any(ended(*running))
        stop.set()
        recorder.join()

    with a_world(tmp_path, flags(125)) as world:
        printed = world.run(host)
        lines = [line.split() for line in printed.splitlines()]
        recorded = [int(number) for number, failed in lines if failed == "0"]
        assert len(lines) == 120
        assert len(recorded) >= 90
        assert world.counted_in_the_end() == once(*range(5), *recorded)


@forks
def test_a_fork_of_a_fork_records_too(world: World) -> None:
    def host() -> None:
        def grandchild() -> None:
            flag(2)
            assert telemetry.flush(20).detail == ""

        def child() -> None:
            flag(1)
            assert our_threads()
            assert ended(fork(grandchild)) == [0]
            flag(3)

        flag(0)
        assert ended(fork(child)) == [0]
        flag(4)

    world.run(host)
    assert world.counted_in_the_end() == once(0, 1, 2, 3, 4)


MOMENTS = [
    'execute("PRAGMA data_version")',
    "yield",
    'execute("BEGIN IMMEDIATE")',
    "self.execute(",
    'execute("COMMIT")',
    "if not committed",
]
"""Lines of the device's file, in the order in which a record comes to them."""


@forks
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_handler_that_forks_in_the_middle_of_a_record_costs_the_parent_nothing(
    world: World, moment: str
) -> None:
    def host(moment: str) -> None:
        children = []
        signal.signal(signal.SIGUSR1, lambda *_: children.append(fork(lambda: flag(1))))
        for _ in range(3):
            flag(0)  # answered: it is known now, and asked first whether the file has changed
        at_line(moment, lambda: signal.raise_signal(signal.SIGUSR1))
        flag(2)
        assert ended(*children) == [0]
        flag(3)
        assert "failed" not in telemetry.status().counts

    world.run(host, moment)
    counted = world.counted_in_the_end()
    counted.pop("m1", None)  # the child has no device while the parent is in the middle of a call
    assert counted == once(0, 2, 3)


@forks
@pytest.mark.parametrize("moment", MOMENTS)
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
        for _ in range(3):
            flag(0)
        at_line(moment, lambda: signal.raise_signal(signal.SIGUSR1))
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

    world.run(host, moment)
    assert {**world.counted_in_the_end(), "m1": 1} == once(*range(12))


@forks
def test_a_fork_within_a_fork_leaves_the_device_free(world: World) -> None:
    """A server that replaces a dead worker from its SIGCHLD handler, while it is forking another."""
    first = "import os\nhooks = []\nos.register_at_fork(before=lambda: [hooks.pop()() for _ in hooks[:1]])"

    def host() -> None:
        children = []
        signal.signal(signal.SIGUSR1, lambda *_: children.append(fork(lambda: flag(1))))
        flag(0)
        globals()["hooks"].append(lambda: signal.raise_signal(signal.SIGUSR1))
        children.append(fork(lambda: flag(2)))
        assert ended(*children) == [0, 0]
        flag(3)
        assert telemetry.flush(20).waiting == 0

    world.run(host, first=first)
    assert world.counted() == world.counted_in_the_end() == once(0, 1, 2, 3)


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

    def host() -> None:
        stop = threading.Event()

        def open_and_close() -> None:
            while not stop.is_set():
                sqlite3.connect(":memory:").close()

        def start_and_close() -> None:
            while not stop.is_set():
                start(":memory:").close()

        def child() -> None:
            signal.alarm(5)
            flag(1)
            telemetry.status()

        for target in (open_and_close, start_and_close):
            threading.Thread(target=target, daemon=True).start()
        try:
            for _ in range(12):
                assert ended(fork(child)) == [0]
        finally:
            stop.set()
        flag(0)

    world.run(host)
    assert world.counted_in_the_end() in (once(0), once(0, 1))


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
@pytest.mark.parametrize("hooks", [pytest.param(True, marks=UNTOLD_FORK), False])
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
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
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
def test_a_child_killed_in_the_middle_of_a_request_holds_nobody_back(world: World) -> None:
    def host() -> None:
        flag(0)
        pid = fork(lambda: telemetry.flush(30))
        assert until(request_came)
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == [-signal.SIGKILL]
        flag(1)
        began = time.monotonic()
        assert telemetry.flush(20) == dither.FlushResult(sent=2, waiting=0, detail="")
        assert time.monotonic() - began < 10

    world.delay_s = 0.5
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

    world.delay_s = 1.0
    world.run(host)
    world.delay_s = 0.0
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


@forks
def test_a_flush_on_another_thread_is_not_ended_by_a_fork(world: World) -> None:
    def host() -> None:
        def flush() -> None:
            for number in range(10):
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
    assert world.counted() == world.counted_in_the_end() == once(*range(10))


@forks
def test_an_answer_recorded_while_another_thread_forks_is_sent(world: World) -> None:
    """The fork comes between the answer's commit and the wake of the thread that is to send it."""
    first = "import os\nhooks = []\nos.register_at_fork(before=lambda: [hook() for hook in hooks])"

    def host() -> None:
        dither.sending.courier.SEND_WITHIN_S = 0.1
        uploader = telemetry._uploader
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
        assert until(lambda: telemetry.status().waiting == 0, 5)

    world.run(host, first=first)
    assert world.counted() == once(0)


@forks
def test_hidden_presence_goes_on_after_a_fork(tmp_path: Path) -> None:
    """A device that was there says "none" for the day, whether or not its host had anything to record after a fork."""

    def host() -> None:
        dither.sending.courier.SEND_WITHIN_S = dither.sending.courier.LOOK_AGAIN_S = 0.05
        url, key, directory, metrics = sys.argv[1:5]
        asked, later_s = dither.Registry.load(metrics), 0.0
        settings = dither.settings.Settings(
            asked,
            dither.sending.transport.HttpTransport(url, key),
            Path(directory) / "other",
            True,
            clock=lambda: time.time() + later_s,
        )
        device = dither.Telemetry(settings)
        assert ended(fork(lambda: None)) == [0]
        later_s = 86_400.0
        assert until(lambda: device.status().counts.get("accepted"), 5), device.status()

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


# Other ways to have processes.


@forks
@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_one_device(world: World, method: str) -> None:
    def host(method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        flag(0)
        process = context.Process(target=flag, args=(1,))
        process.start()
        process.join(40)
        assert process.exitcode == 0
        with context.Pool(2) as pool:
            pool.map(flag, [2, 3, 0, 1], chunksize=1)
        with ProcessPoolExecutor(2, mp_context=context) as executor:
            list(executor.map(flag, [4, 5, 2, 3]))
        flag(6)
        assert telemetry.flush(20) == dither.FlushResult(sent=7, waiting=0, detail="")
        counts = dict(telemetry.status().counts)
        # Each process counts its silent answers in memory until it writes: one that ends before that takes them along.
        assert counts.pop("answered", 0) <= 4
        assert counts == {"accepted": 7}

    world.run(host, method)
    assert world.counted() == world.counted_in_the_end() == once(*range(7))


@forks
def test_a_host_that_runs_programs_goes_on(world: World) -> None:
    def host() -> None:
        flag(0)
        assert our_threads()
        subprocess.run([sys.executable, "-c", ""], check=True, timeout=40)
        assert our_threads()  # what only starts a program does not fork Python
        subprocess.run([sys.executable, "-c", ""], check=True, timeout=40, preexec_fn=os.getpid)
        flag(1)
        assert our_threads()
        assert telemetry.flush(20).sent == 2

    world.run(host)
    assert world.counted() == once(0, 1)


@pytest.mark.slow
def test_processes_that_start_at_the_same_time_on_a_new_directory_are_one_device(world: World) -> None:
    """Workers without --preload: each makes the file if no other has."""
    code = (
        "import sys, time, dither\n"
        "url, key, directory, metrics, number = sys.argv[1:5] + sys.argv[6:]\n"
        "sys.stdin.readline()\n"
        "telemetry = dither.start(metrics, endpoint=url, key=key, data_dir=directory, consent=True, strict=True)\n"
        "telemetry.m0.record(True)\n"
        "getattr(telemetry, 'm' + number).record(True)\n"
        "assert telemetry.status().silent == ''\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *world.settings(), str(number)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
            text=True,
        )
        for number in range(1, 7)
    ]
    try:
        for process in processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait(60) for process in processes] == [0] * 6
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert world.counted_in_the_end() == once(*range(7))


TASKS = """
import sys
from celery import Celery
import dither, dither.sending.courier

dither.sending.courier.SEND_WITHIN_S = 0.5
url, key, directory, metrics, queue = {settings!r}
telemetry = dither.start(metrics, endpoint=url, key=key, data_dir=directory, consent=True)
transport = dict(data_folder_in=queue, data_folder_out=queue, control_folder=queue, polling_interval=0.1)
app = Celery("tasks", broker="filesystem://")
app.conf.update(broker_transport_options=transport, broker_connection_retry_on_startup=False)

@app.task
def flag(number):
    getattr(telemetry, f"m{{number}}").record(True)

if __name__ == "__main__":
    for number in list(range(10)) * 3:
        flag.delay(number)
"""


@pytest.mark.slow
def test_tasks_of_a_prefork_celery_worker_are_counted_once(world: World) -> None:
    home = world.directory.parent
    queue = home / "queue"
    queue.mkdir()
    settings = (*world.settings()[:4], str(queue))
    (home / "tasks.py").write_text(TASKS.format(settings=settings), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    subprocess.run([sys.executable, "tasks.py"], cwd=home, env=environment, check=True, timeout=60)
    log = home / "log"
    command = [
        "-m",
        "celery",
        "-A",
        "tasks",
        "worker",
        "-c",
        "2",
        "-P",
        "prefork",
        "--without-gossip",
        "--without-mingle",
    ]
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, *command], cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            # By themselves, from the pool's processes, while they go on.
            assert until(lambda: world.counted() == once(*range(10)), 40), log.read_text()
            worker.terminate()
            assert worker.wait(30) == 0
        finally:
            pool = _children(worker.pid)
            if worker.poll() is None:
                worker.kill()
                worker.wait()
            for pid in pool:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in log.read_text()
    assert world.counted_in_the_end() == once(*range(10))


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started, where the system tells."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


# Event loops.


@pytest.mark.slow
@pytest.mark.parametrize("in_a_thread", [True, False])
def test_an_event_loop_goes_on_while_its_reports_are_recorded_and_sent(tmp_path: Path, in_a_thread: bool) -> None:
    """And does not where flush is called on the loop: what is counted can be seen."""

    async def live(device: Telemetry) -> tuple[int, int]:
        """Return how often the loop came round while reports were recorded, and while they were sent."""
        rounds = 0

        async def go_round() -> None:
            nonlocal rounds
            while True:
                await asyncio.sleep(0)
                rounds += 1

        async def record() -> None:
            for _ in range(20):
                device.color.record("red")
                device.dark.record(True)
                await asyncio.sleep(0)

        going_round = asyncio.create_task(go_round())
        await asyncio.gather(*[record() for _ in range(10)])
        recorded = rounds
        if in_a_thread:
            assert (await asyncio.to_thread(device.flush, 20)).sent == 2
        else:
            device.flush(20)
        going_round.cancel()
        return recorded, rounds - recorded

    with scripted(Reply(body=accepted, delay_s=1.0)) as (url, requests_seen):
        with closing(dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path, consent=True)) as device:
            recorded, sent = asyncio.run(live(device))
            assert device.status().counts == {"accepted": 2, "answered": 398}
        assert len(requests_seen) == 1
    assert recorded >= 20
    assert (sent > 20) == in_a_thread


# Other systems.


def test_where_processes_cannot_fork_everything_else_is_there(world: World) -> None:
    """As on Windows: there is neither os.fork nor os.register_at_fork."""

    def host() -> None:
        assert not hasattr(os, "register_at_fork")
        flag(0)
        assert telemetry.flush(20).sent == 1
        process = multiprocessing.get_context("spawn").Process(target=flag, args=(1,))
        process.start()
        process.join(40)
        assert process.exitcode == 0
        assert telemetry.flush(20).sent == 1

    # Patched before multiprocessing is imported: what starts its processes does not need them.
    world.run(host, first="import os\nif __name__ == '__main__':\n    del os.register_at_fork, os.fork")
    assert world.counted() == once(0, 1)


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("darwin", {}, "/home/her/Library/Application Support/dither/app"),
        ("darwin", {"XDG_DATA_HOME": "/xdg"}, "/home/her/Library/Application Support/dither/app"),
        ("win32", {}, "/home/her/AppData/Local/dither/app"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/dither/app"),
        ("linux", {}, "/home/her/.local/share/dither/app"),
        ("linux", {"XDG_DATA_HOME": "/xdg"}, "/xdg/dither/app"),
    ],
)
def test_each_system_keeps_the_file_where_it_keeps_such_files(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], expected: str
) -> None:
    for variable in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/her"))
    monkeypatch.setattr("sys.platform", platform)
    assert default_data_dir("app").as_posix() == expected


def test_file_modes_are_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without modes everybody may read and write everything, and chmod does nothing."""
    make, open_, chmod = os.mkdir, os.open, os.chmod

    def make_for_all(path: Path, mode: int = 0o777) -> None:
        make(path)
        chmod(path, 0o777)

    def open_for_all(path: str, how: int, mode: int = 0o777) -> int:
        descriptor = open_(path, how)
        chmod(path, 0o777)
        return descriptor

    monkeypatch.setattr("os.mkdir", make_for_all)
    monkeypatch.setattr("os.open", open_for_all)
    monkeypatch.setattr("os.chmod", lambda *arguments, **rest: None)
    with scripted(Reply(body=accepted)) as (url, _):
        for day in range(2):
            with closing(
                dither.start(registry(), endpoint=url, key="k", data_dir=tmp_path / "new" / "directory", consent=True)
            ) as device:
                assert device.status().silent == ""
                (device.dark if day else device.color).record(True if day else "red")
                assert device.flush(20).sent == 1
    assert (tmp_path / "new" / "directory").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "new" / "directory" / FILE_NAME).stat().st_mode & 0o666 == 0o666
