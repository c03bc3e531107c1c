"""Workers on one address: real processes, signalled and killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.web.processes import HttpProcesses, Worker
from dither_shared.errors import ConfigurationError
from dither_shared.wire import PATH
from tests.support.aggregators import ENVIRONMENT

pytestmark = pytest.mark.slow

WORKERS = 2


def main(directory: Path, slow_s: float) -> None:
    """Run workers that answer who they are; each leaves a file when it ends as it should."""

    @contextmanager
    def open_worker() -> Iterator[Worker]:
        if (directory / "fail").exists():
            raise ConfigurationError("there is no store")
        reloads: list[None] = []

        def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if environ["PATH_INFO"] == PATH:
                (directory / "came").touch()
                time.sleep(slow_s)
            start_response("200 OK", [])
            return [json.dumps([os.getpid(), len(reloads)]).encode()]

        yield Worker(app, lambda: reloads.append(None))
        (directory / f"ended-{os.getpid()}").touch()

    http = HttpProcesses(open_worker, "127.0.0.1", 0, WORKERS)
    http.run(lambda: print(http.url, flush=True))


class Api:
    """A running parent."""

    def __init__(self, process: subprocess.Popen[str], port: int, directory: Path) -> None:
        self.process, self.port, self.directory = process, port, directory

    def connect(self, data: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(data)
        return connection

    def ask(self) -> tuple[int, int]:
        """Return the answering worker and how often it has loaded again."""
        return answer_to(self.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))

    def workers(self) -> set[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(pid) for pid in path.read_text(encoding="ascii").split()}

    def ended(self) -> set[int]:
        return {int(path.name.removeprefix("ended-")) for path in self.directory.glob("ended-*")}


def answer_to(connection: socket.socket) -> tuple[int, int]:
    with connection:
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    worker, reloads = json.loads(answer.partition(b"\r\n\r\n")[2])
    return worker, reloads


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
        assert {api.ask()[0] for _ in range(200)} <= workers
        api.process.send_signal(signal.SIGTERM)
        assert api.process.communicate(timeout=30) == ("", "")
        assert (api.process.returncode, api.ended()) == (0, workers)


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
        assert {answer_to(processed)[0], answer_to(half_read)[0]} <= workers
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
            assert api.ask()[0] not in before  # it waited for one that takes their place
            until(lambda: len(api.workers()) == WORKERS)
        api.process.send_signal(signal.SIGTERM)
        said = api.process.communicate(timeout=30)[1]
        assert said.count("ended with -9; another one takes its place") == 3 * WORKERS


def test_sighup_loads_again_in_every_worker(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        workers = api.workers()
        api.process.send_signal(signal.SIGHUP)
        until(lambda: all(api.ask()[1] == 1 for _ in range(20)))
        assert api.workers() == workers


def test_a_worker_that_cannot_start_ends_the_parent(tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    process = start(tmp_path, 0)
    out, said = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert "dither: there is no store" in said
    assert "a worker could not start" in said


def test_a_worker_that_cannot_start_later_is_tried_again(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        (tmp_path / "fail").touch()
        before = api.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        waiting = api.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(1.5)
        (tmp_path / "fail").unlink()
        assert answer_to(waiting)[0] not in before
