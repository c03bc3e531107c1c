"""A server with an application that says what came, and clients that say it byte by byte."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dither_aggregator.web.endpoints import in_words
from dither_aggregator.web.http_messages import HttpAnswer, Scope
from dither_aggregator.web.http_server import HttpServer
from dither_aggregator.web.listeners import HEALTH, Admitting
from dither_shared.wire import PATH, PROBLEM_PREFIX
from tests.support.aggregators import http_server
from tests.support.waiting import wait_until

HEAD = b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\n"


class Echo:
    """An application that says what came, when it may."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what came."""
        self.waits = False
        self.came: list[tuple[str, bytes]] = []
        self.cancelled = self.left = 0
        self.answer = b"{}"

    async def __call__(self, scope: Scope, body: bytes) -> HttpAnswer:
        path = scope["path"]
        self.came.append((path, body))
        if body == b"bug":
            raise RuntimeError("secret words")
        try:
            while self.waits and not scope["over"].is_set():
                await asyncio.sleep(0.01)
            self.left += scope["over"].is_set()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        hosts = [name for name, _ in scope["headers"]].count(b"host")
        said = {"body": body.decode(), "health": HEALTH in scope["state"], "big": path == "/big", "hosts": hosts}
        content = self.answer if path == "/big" else json.dumps(said).encode()
        return HttpAnswer(200, [], content)


class Connection:
    """One connection, byte by byte if need be."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
        self._rest = b""
        self.fields: dict[bytes, bytes] = {}
        """The headers of the last answer."""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Read one answer, a document."""
        status, content = self.content()
        return status, json.loads(content)

    def content(self, *, bare: bool = False) -> tuple[int, bytes]:
        """Read one answer; a `bare` one, as to HEAD, is without the content whose length it says."""
        data = self._rest
        while b"\r\n\r\n" not in data:
            chunk = self.socket.recv(65536)
            assert chunk, f"closed after {data!r}"
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        self.fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = 0 if bare else int(self.fields[b"content-length"])
        while len(body) < length:
            body += self.socket.recv(65536)
        self._rest = body[length:]
        return int(head.split()[1]), body[:length]

    def closed(self) -> bool:
        """Wait for the server to close the connection without another word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Served:
    """A running server and its application."""

    def __init__(self, echo: Echo, http: HttpServer, opened: ExitStack) -> None:
        self.echo, self.opened, self._http = echo, opened, http
        assert http.health
        self.port, self.health = (int(url.rsplit(":", 1)[1]) for url in (http.url, http.health))

    def anew(self, opened: ExitStack) -> "Served":
        """Return the same server for another test, whose connections end with this stack."""
        self.echo.begin_anew()
        return Served(self.echo, self._http, opened)

    def connections(self) -> int:
        """Return how many the server has."""
        return len(self._http._serving.connections)

    def connect(self, data: bytes = b"", port: int = 0, source: str = "127.0.0.1") -> Connection:
        made = Connection(port or self.port, source)
        self.opened.callback(made.socket.close)
        made.send(data)
        return made

    def ask(self, path: str = "/") -> tuple[int, dict[str, Any]]:
        return self.connect(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).answer()

    def ask_health(self) -> tuple[int, dict[str, Any]]:
        return self.connect(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", self.health).answer()


@contextmanager
def running(admission: Admitting | None = None) -> Iterator[Served]:
    echo = Echo()
    http = http_server(in_words(echo), admission=admission)
    with http.in_background(), ExitStack() as opened:
        yield Served(echo, http, opened)


def upload(length: int) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % length


def slug(document: dict[str, Any]) -> str:
    return str(document["type"]).removeprefix(PROBLEM_PREFIX)


def until(holds: Callable[[], object], within_s: float = 20) -> None:
    wait_until(holds, within_s)


def passes(served: Served) -> bool:
    """Whether a new client is answered."""
    try:
        return served.ask()[0] == 200
    except (AssertionError, OSError):
        return False


def listens(port: int) -> bool:
    """Tell whether a process of this machine listens on a port of IPv4: one that does not refuses who comes."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return any(local[-4:] == f"{port:04X}" and state == "0A" for _, local, _, state, *_ in map(str.split, lines))


def was_read(connection: socket.socket) -> bool:
    """Tell whether a server on this machine has taken a connection, and read all that was sent on it."""
    ours, theirs = (place[1] for place in (connection.getsockname(), connection.getpeername()))
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, remote, _, queues, *_, inode = line.split()[:10]
        if (local[-4:], remote[-4:]) == (f"{theirs:04X}", f"{ours:04X}"):
            return inode != "0" and queues.endswith(":00000000")  # no process has one that is not accepted yet
    return False


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
