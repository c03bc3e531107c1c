"""Several processes on one address: real ones, signalled and killed."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dither_aggregator.web.answers import HttpAnswer, Receive, Scope, Send
from dither_aggregator.web.doors import AdmitAll
from dither_aggregator.web.listener import Listener
from dither_aggregator.web.processes import HttpProcesses
from dither_shared.wire import PATH
from tests.support.aggregators import ENVIRONMENT

pytestmark = pytest.mark.slow

WORKERS = 2


@dataclass
class Who(AdmitAll):
    """An application that answers which process it is; each leaves a file when it ends as it should."""

    directory: Path
    slow_s: float
    parent: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        await receive()
        if scope["path"] == PATH:
            (self.directory / "came").touch()
            await asyncio.sleep(self.slow_s)
        return await HttpAnswer(200, [], b"%d" % os.getpid()).send(send)

    async def close(self) -> None:
        (self.directory / f"closed-{os.getpid()}").touch()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        if (self.directory / "fail").exists():
            print("dither: there is no store", file=sys.stderr)
            return await send({"type": "lifespan.startup.failed"})
        await send({"type": "lifespan.startup.complete"})
        await receive()
        (self.directory / f"ended-{os.getpid()}").touch()
        return await send({"type": "lifespan.shutdown.complete"})


def main(directory: Path, slow_s: float) -> None:
    """Run processes that answer who they are."""
    logging.basicConfig(format="%(message)s")
    listener = Listener("127.0.0.1", 0)
    processes = HttpProcesses(Who(directory, slow_s, os.getpid()), listener, None, WORKERS)
    processes.serve(lambda: print(listener.url, flush=True))


class Api:
    """A running parent."""

    def __init__(self, process: subprocess.Popen[str], port: int, directory: Path) -> None:
        self.process, self.port, self.directory = process, port, directory

    def connect(self, data: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(data)
        return connection

    def ask(self) -> int:
        """Return the process that answers."""
        return answer_to(self.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))

    def workers(self) -> set[int]:
        """Return the server processes: the parent has another child, multiprocessing's resource tracker."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        children = {int(pid) for pid in path.read_text(encoding="ascii").split()}
        return {pid for pid in children if b"spawn_main" in _command(pid)}

    def ended(self) -> set[int]:
        return {int(path.name.removeprefix("ended-")) for path in self.directory.glob("ended-*")}


def _command(pid: int) -> bytes:
    """Return a process's command line; nothing once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def answer_to(connection: socket.socket) -> int:
    with connection:
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.partition(b"\r\n\r\n")[2])


def until(holds: Callable[[], bool], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start(directory: Path, slow_s: float) -> subprocess.Popen[str]:
    code = f"from pathlib import Path; from {__name__} import main; main(Path({str(directory)!r}), {slow_s})"
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


@contextmanager
def running(directory: Path, slow_s: float = 0.0) -> Iterator[Api]:
    process = start(directory, slow_s)
    workers: set[int] = set()
    try:
        assert process.stdout
        url = process.stdout.readline()
        assert url, process.communicate(timeout=30)[1]
        api = Api(process, int(url.rsplit(":", 1)[1]), directory)
        workers = api.workers()
        yield api
    finally:
        process.kill()
        process.communicate()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


UPLOAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n".encode()


def test_all_workers_answer_and_end_in_order(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        workers = api.workers()
        assert len(workers) == WORKERS
        until(lambda: {api.ask() for _ in range(20)} == workers, 60)
        api.process.send_signal(signal.SIGTERM)
        assert api.process.communicate(timeout=30) == ("", "")
        assert (api.process.returncode, api.ended()) == (0, workers)
        assert len(list(tmp_path.glob("closed-*"))) == WORKERS


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_what_has_begun_is_answered_however_the_parent_ends(how: signal.Signals, tmp_path: Path) -> None:
    with running(tmp_path, slow_s=1) as api:
        workers = api.workers()
        processed = api.connect(UPLOAD + b"hi")
        until((tmp_path / "came").exists)
        half_read = api.connect(UPLOAD + b"h")
        time.sleep(0.2)
        api.process.send_signal(how)
        if how == signal.SIGKILL:
            api.process.wait(10)
        time.sleep(0.3)
        half_read.sendall(b"i")
        assert {answer_to(processed), answer_to(half_read)} <= workers
        until(lambda: api.ended() == workers)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
        with pytest.raises(ConnectionRefusedError):
            api.connect(UPLOAD)


def test_workers_that_were_killed_are_replaced_and_nobody_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        for _ in range(3):
            before = api.workers()
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            assert api.ask() not in before  # it waited for one that takes their place
            until(lambda: len(api.workers()) == WORKERS)
        api.process.send_signal(signal.SIGTERM)
        said = api.process.communicate(timeout=30)[1]
        assert said.count("ended with -9; another one takes its place") == 3 * WORKERS


def test_sighup_ends_nothing_even_while_processes_are_started(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        before = api.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        until(lambda: len(api.workers() - before) == WORKERS)
        workers = api.workers()
        for pid in (api.process.pid, *workers):
            os.kill(pid, signal.SIGHUP)
        assert {api.ask() for _ in range(20)} <= workers
        assert api.workers() == workers


def test_a_process_that_cannot_start_ends_the_parent_which_says_so(tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    process = start(tmp_path, 0)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "dither: there is no store" in said
    assert "a server process could not start" in said


def test_a_worker_that_cannot_start_later_is_tried_again(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        (tmp_path / "fail").touch()
        before = api.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        waiting = api.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(1.5)
        (tmp_path / "fail").unlink()
        assert answer_to(waiting) not in before


def test_signals_of_uvicorn_start_and_end_no_processes(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        workers = api.workers()
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            api.process.send_signal(number)
        time.sleep(1.5)  # the parent looks twice a second
        assert api.workers() == workers
        assert {api.ask() for _ in range(10)} <= workers
