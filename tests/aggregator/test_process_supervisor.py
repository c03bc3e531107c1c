"""Several processes on one address: real ones, signalled and killed."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dither_shared.wire import PATH
from tests.support import asked_who
from tests.support.aggregators import ENVIRONMENT, nursery
from tests.support.asked_who import WORKERS
from tests.support.http import listens, until, was_read
from tests.support.nursery import Piped
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow


class Api:
    """A running parent."""

    def __init__(self, process: Piped, port: int, directory: Path) -> None:
        self.process, self.port, self.directory = process, port, directory
        self.killed = 0

    def connect(self, data: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(data)
        return connection

    def ask(self) -> int:
        """Return the process that answers."""
        return answer_to(self.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))

    def workers(self) -> set[int]:
        """Return the server processes that have not ended."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        children = {int(pid) for pid in path.read_text(encoding="ascii").split()}
        return {pid for pid in children if _command(pid)}

    def kill_workers(self, most: int = WORKERS) -> set[int]:
        """Kill server processes, all unless told how many, and return them."""
        workers = {*list(self.workers())[:most]}
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        self.killed += len(workers)
        return workers

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


def start(directory: Path, slow_s: float) -> Piped:
    return nursery().piped(asked_who.__name__, [str(directory), str(slow_s)], ENVIRONMENT)


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


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A parent that outlives what tests do to its processes, and says of each that was killed that it was."""
    with running(tmp_path_factory.mktemp("lasting")) as api:
        yield api
        api.process.send_signal(signal.SIGTERM)
        said = api.process.communicate(timeout=30)[1]
        assert api.process.returncode == 0
        assert said.count("ended with -9; another one takes its place") == api.killed >= WORKERS


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
        until(lambda: was_read(half_read))
        api.process.send_signal(how)
        if how == signal.SIGKILL:
            api.process.wait(10)
        until(lambda: not listens(api.port))  # each process has heard that it ends
        half_read.sendall(b"i")
        assert {answer_to(processed), answer_to(half_read)} <= workers
        until(lambda: api.ended() == workers)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
        with pytest.raises(ConnectionRefusedError):
            api.connect(UPLOAD)


def test_workers_that_were_killed_are_replaced_and_nobody_is_refused(lasting: Api) -> None:
    for _ in range(scaled(1, 20)):  # the next tests kill those that are there then
        killed = lasting.kill_workers()
        assert lasting.ask() not in killed  # it waited for one that takes their place
        until(lambda: len(lasting.workers()) == WORKERS)


def test_sighup_ends_nothing_even_while_processes_are_started(lasting: Api) -> None:
    killed = lasting.kill_workers()
    until(lambda: len(lasting.workers() - killed) == WORKERS)
    workers = lasting.workers()
    for pid in (lasting.process.pid, *workers):
        os.kill(pid, signal.SIGHUP)
    assert {lasting.ask() for _ in range(20)} <= workers
    assert lasting.workers() == workers


def test_a_process_that_cannot_start_ends_the_parent_which_says_so(tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    process = start(tmp_path, 0)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "dither: there is no store" in said
    assert "a server process could not start" in said


def test_signals_by_which_other_servers_start_and_end_processes_do_nothing(lasting: Api) -> None:
    workers = lasting.workers()
    for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2):
        lasting.process.send_signal(number)
    killed = lasting.kill_workers(1)
    until(lambda: len(lasting.workers() - killed) >= WORKERS)  # the parent has looked since, and started this one
    assert workers - killed < lasting.workers()
    assert len(lasting.workers()) == WORKERS
    assert {lasting.ask() for _ in range(10)} <= lasting.workers()


def test_a_worker_that_cannot_start_later_is_tried_again(lasting: Api) -> None:
    (lasting.directory / "fail").touch()
    killed = lasting.kill_workers()
    waiting = lasting.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    seen: set[int] = set()

    def one_has_failed() -> bool:
        now = lasting.workers() - killed
        failed = seen - now
        seen.update(now)
        return bool(failed)

    until(one_has_failed)
    (lasting.directory / "fail").unlink()
    assert answer_to(waiting) not in killed
    until(lambda: len(lasting.workers()) == WORKERS)
