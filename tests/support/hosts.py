"""Hosts of telemetry, each run in a process of its own, and a real aggregator around them.

A `host` in a test is a program: its source is run in a process of its own, with what stands under "In a host" and a
started `telemetry` before it.
"""

import asyncio
import inspect
import linecache
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
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
import requests

import dither
import dither.device.file
import dither.sending.upload_thread
from dither.device import FILE_NAME
from dither.sending.transport import HttpTransport
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_aggregator.ingest.service import Service, WholeService
from dither_aggregator.web.http_messages import HttpAnswer, Scope
from dither_shared.registry import Registry
from tests.support.aggregators import ENVIRONMENT, http_server, sqlite_store, web_app
from tests.support.keys import write_key
from tests.support.registries import registry_text

ROOT = Path(__file__).parents[2]
PATHS = [str(ROOT / "client"), str(ROOT / "shared"), str(Path(requests.__file__).parents[1])]

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
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
import faulthandler, linecache, os, signal, sqlite3, subprocess, sys, threading, time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast
import dither, dither.device.file, dither.sending.upload_thread
Telemetry = dither.Telemetry
faulthandler.register(signal.SIGALRM, all_threads=False, chain=True)
signal.alarm(60)  # so that nothing that hangs outlives its test
dither.sending.upload_thread.SEND_WITHIN_S = 1e9  # within an hour a random moment came while one of 5,000 hosts runs
"""
SELDOM_NEEDED = {
    "atexit": "import atexit",
    "ctypes": "import ctypes",
    "multiprocessing": "import multiprocessing",
    "ProcessPoolExecutor": "from concurrent.futures import ProcessPoolExecutor",
}
"""Imports by the name that they are for, which most hosts can do without."""


# The world around it.


@dataclass
class World:
    """A real aggregator, and the directory of one device that processes share."""

    url: str
    service: Service
    directory: Path
    registry: Registry
    delay_s: float = 0.0
    """How long the aggregator takes for its first answer, but not longer than this world lasts."""

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
        imports = [line for name, line in SELDOM_NEEDED.items() if any(name in source for source in sources)]
        lines = [first, *imports, PROLOGUE, *sources, "telemetry = start()", call]
        program.write_text("\n".join(lines), encoding="utf-8")
        done = subprocess.run(
            [python, *QUIET, *options, program, *self.settings(data_dir)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(PATHS)},
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
    over = threading.Event()
    with sqlite_store(asked, directory / "data") as store, WholeService(store) as service:
        answer = web_app(service)

        async def slowly(scope: Scope, body: bytes) -> HttpAnswer:
            if not (directory / "came").exists():
                (directory / "came").touch()
                answers_at = time.monotonic() + made.delay_s
                while time.monotonic() < answers_at and not over.is_set():
                    await asyncio.sleep(0.01)
            return await answer(scope, body)

        server = http_server(slowly)
        made = World(server.url, service, directory / "device", asked)
        with server.in_background():
            try:
                yield made
            finally:
                over.set()
