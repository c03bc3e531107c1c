"""dither's HTTP server beside others: the CPU time of a request, and whether slow clients stop everybody else.

Each server runs the same WSGI application in one process, on loopback.
"""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from dither_aggregator.web.http_messages import HttpAnswer, Scope
from dither_aggregator.web.http_server import HttpServer
from dither_aggregator.web.listeners import Listener
from tests.benchmarks import bare
from tests.benchmarks.peers import HERE, PeerUnavailable, environment, wsgi_app
from tests.support.aggregators import ENVIRONMENT
from tests.support.ports import free_port

THREADS = 32
"""The other servers' threads; in dither's an upload waits for its commit without a thread."""
REQUESTS = 4_000
ROUNDS = 2
"""The better one counts."""
COMMIT_S = 0.005
SLOW_CLIENTS = 100
START_WITHIN_S = 20.0
WITHIN_S = 5.0
RATIO_MIN = 1.1
"""How much more waitress, the other one that slow clients do not stop, must cost with kept connections."""
TICKS = os.sysconf("SC_CLK_TCK")

# name: clients at a time, bytes of a body, whether connections are kept, seconds that the application waits
CASES = {
    "kept": (8, 700, True, 0.0),
    "kept 8 KB": (8, 8_192, True, 0.0),
    "anew": (8, 700, False, 0.0),
    "anew 8 KB": (8, 8_192, False, 0.0),
    "commit, kept": (64, 700, True, COMMIT_S),
    "commit, anew": (64, 700, False, COMMIT_S),
}


def run() -> None:
    """Print the table; raise AssertionError when dither's is stopped, or costs nearly as much as waitress."""
    print(f"  CPU us a request of one process (others: {THREADS} threads), and by dither's; connections kept, or anew")
    print(f"  slow: whether it answers others beside {SLOW_CLIENTS} clients whose bodies do not come\n")
    print(f"  {'':14}" + "".join(f"{case:>17}" for case in CASES) + "   slow")
    ours: list[float] = []
    for name, command in _commands().items():
        try:
            costs = [_cost_us(command, *case) for case in CASES.values()]
            answers = _answers_beside_slow_clients(command)
        except (PeerUnavailable, OSError) as error:
            if not ours:
                raise
            print(f"  {name:14}{error}")
            continue
        ours = ours or costs
        cells = "".join(f"{cost:9.0f} {cost / own:6.2f}x" for cost, own in zip(costs, ours, strict=True))
        print(f"  {name:14}{cells}   {'answers' if answers else 'stops'}")
        assert name != "dither" or answers
        assert name != "waitress" or costs[0] > RATIO_MIN * ours[0]


def _commands() -> dict[str, Callable[[int], list[str]]]:
    """Return how each server is started on a port, dither's first."""
    commands: dict[str, Callable[[int], list[str]]] = {
        "dither": lambda port: [sys.executable, "-m", "tests.benchmarks.servers", str(port)]
    }
    try:
        python = str(environment("servers"))
    except PeerUnavailable as error:
        print(f"  without others: {error}")
        return commands
    options = {
        "waitress": "--listen=127.0.0.1:{port} --threads={threads} --connection-limit=1000",
        "gunicorn": "--worker-class=gthread --threads={threads} --log-level=error --bind=127.0.0.1:{port}",
        "granian": "--interface=wsgi --http=1 --log-level=error --blocking-threads={threads} --port={port}",
        "cheroot": "--bind=127.0.0.1:{port} --threads={threads}",
    }

    def peer(name: str) -> Callable[[int], list[str]]:
        words = options[name].split()
        return lambda port: [
            python, "-m", name, *(word.format(port=port, threads=THREADS) for word in words), "wsgi_app:app"
        ]  # fmt: skip

    return commands | {name: peer(name) for name in options}


@contextmanager
def _running(
    command: Callable[[int], list[str]], commit_s: float = 0.0
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    variables = {**ENVIRONMENT, "COMMIT_S": str(commit_s), "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{HERE}"}
    process = subprocess.Popen(command(port), env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_WITHIN_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise PeerUnavailable("it does not start")
            time.sleep(0.05)
        yield process, port
    finally:
        process.terminate()
        try:
            process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            for pid in _tree(process.pid):
                os.kill(pid, 9)
            process.wait()


def _cost_us(command: Callable[[int], list[str]], clients: int, size: int, keep: bool, commit_s: float) -> float:
    with _running(command, commit_s) as (process, port):
        _load(port, clients, size, keep, REQUESTS // 4)
        costs = []
        for _ in range(ROUNDS):
            before = _cpu_s(process.pid)
            _load(port, clients, size, keep, REQUESTS)
            costs.append((_cpu_s(process.pid) - before) / REQUESTS * 1e6)
        return min(costs)


def _load(port: int, clients: int, size: int, keep: bool, requests: int) -> None:
    """Make so many requests; raise PeerUnavailable if one is not answered as it should be."""
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            _make_requests(port, size, keep, requests // clients)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise PeerUnavailable(f"{len(wrong)} of {clients} clients failed: {wrong[0]!r}")


def _make_requests(port: int, size: int, keep: bool, number: int) -> None:
    head = _head(size) if keep else _head(size, "Connection: close\r\n")
    request = head + b"x" * size
    connection: socket.socket | None = None
    for _ in range(number):
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        connection.sendall(request)
        answer = b""
        while not answer.endswith(b"}\n"):
            chunk = connection.recv(65536)
            if not chunk:
                raise PeerUnavailable(f"no answer: {answer[:40]!r}")
            answer += chunk
        if not answer.startswith(b"HTTP/1.1 202 "):
            raise PeerUnavailable(f"answered {answer[:40]!r}")
        if not keep or b"connection: close" in answer.lower():
            connection.close()
            connection = None
    if connection is not None:
        connection.close()


def _head(size: int, more: str = "") -> bytes:
    fields = (
        f"Host: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {'k' * 43}\r\nContent-Length: {size}\r\n"
    )
    return f"POST /v1/reports HTTP/1.1\r\n{fields}{more}\r\n".encode("ascii")


def _answers_beside_slow_clients(command: Callable[[int], list[str]]) -> bool:
    with _running(command) as (_, port), ExitStack() as held:
        for _ in range(SLOW_CLIENTS):
            slow = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S))
            slow.sendall(_head(700) + b"x")
        time.sleep(0.5)
        return _answers(port)


def _answers(port: int) -> bool:
    with suppress(OSError, PeerUnavailable):
        _make_requests(port, 700, False, 1)
        return True
    return False


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(each for child in children for each in _tree(int(child)))]


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its children so far."""
    total = 0
    for each in _tree(pid):
        fields = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


class _Committing:
    """The application of the other servers, as dither's has it: one thread waits for all."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Future[None]] = SimpleQueue()
        threading.Thread(target=self._commit, daemon=True).start()

    async def __call__(self, scope: Scope, body: bytes) -> HttpAnswer:
        committed: Future[None] = Future()
        self._waiting.put(committed)
        await asyncio.wrap_future(committed)
        return bare.ACCEPTED

    def _commit(self) -> None:
        while True:
            first = self._waiting.get()
            time.sleep(wsgi_app.COMMIT_S)
            for each in (first, *(self._waiting.get() for _ in range(self._waiting.qsize()))):
                each.set_result(None)


if __name__ == "__main__":
    HttpServer(_Committing() if wsgi_app.COMMIT_S else bare.App(), Listener("127.0.0.1", int(sys.argv[1]))).run()
