"""A load of uploads on keep-alive connections, from one thread, as cheaply as Python can: it shares the machine.

Each connection sends its next upload when the last was answered. Bodies are made before; each goes out with an id of
its own, in one system call.
"""

import re
import secrets
import select
import socket
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

from dither_shared.wire import PATH
from dither_shared.wire.writing import WireGroup, encode_upload

CONNECTIONS = 64
ANSWER_WITHIN_S = 30.0
ANSWER_BYTES_MAX = 65_536
WARM_S = 0.5
_ID = "A" * 22
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


class LoadFailed(RuntimeError):
    """An upload was not acknowledged."""


@dataclass(frozen=True)
class Template:
    """An upload but for its id: what stands before it, head included, and after it."""

    before: bytes
    after: bytes
    reports: int

    def with_id(self, prefix: bytes, serial: int) -> bytes:
        """Return the request with an id of its own: of eight characters, and a number."""
        return b"%b%b%013dA%b" % (self.before, prefix, serial, self.after)


def template(url: str, key: str, groups: Sequence[WireGroup]) -> Template:
    """Return what to send for an upload of these groups."""
    request = post(url, PATH, encode_upload(_ID, groups), f"Authorization: Bearer {key}\r\n")
    before, _, after = request.partition(_ID.encode("ascii"))
    return Template(before, after, sum(len(group[2]) for group in groups))


def post(url: str, path: str, body: bytes, fields: str = "") -> bytes:
    """Return a request that posts JSON; `fields` are further lines of its head."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n{fields}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def address_of(url: str) -> tuple[str, int]:
    """Return what a socket connects to."""
    place = urlsplit(url)
    return str(place.hostname), int(place.port or 80)


def connecting(address: tuple[str, int], receive_bytes: int = 0) -> socket.socket:
    """Return a socket that never blocks and is being connected, with a receive buffer of its own size if one is given.

    Raises OSError when that fails at once.
    """
    connection = socket.socket()
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        with suppress(BlockingIOError):
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


class AnswerReader:
    """Tells when the answer on a connection is whole, and keeps nothing of its content."""

    def __init__(self) -> None:
        self.closes = False
        """Whether the server said that it closes the connection."""
        self._head = b""
        self._status = 0
        self._left: int | None = None
        self._end = b""

    def feed(self, data: bytes) -> int:
        """Return the status of the answer that `data` ends; 0 while more is to come. Raises ValueError: no HTTP."""
        if not self._status:
            self._head += data
            head, blank_line, data = self._head.partition(b"\r\n\r\n")
            if not blank_line:
                return 0
            self._begin(head.lower() + b"\r\n")
        if not self._is_end(data):
            return 0
        status, self._status, self._head = self._status, 0, b""
        return status

    def _begin(self, head: bytes) -> None:
        self._status, self._end = int(head[9:12]), b""
        self.closes = b"\r\nconnection: close\r\n" in head
        length = _LENGTH.search(head)
        chunked = b"\r\ntransfer-encoding: chunked\r\n" in head
        self._left = int(length[1]) if length else None if chunked else 0

    def _is_end(self, data: bytes) -> bool:
        if self._left is None:
            self._end = (self._end + data)[-len(_LAST_CHUNK) :]
            return self._end == _LAST_CHUNK
        self._left -= len(data)
        return self._left <= 0


@dataclass(frozen=True)
class Driven:
    """What became of a load. The figures are of the time after warming up and before the last answers."""

    acknowledged: int
    """Reports, from the first upload to the last."""
    rate: float
    """Uploads a second."""
    latencies_s: Sequence[float]
    load_share: float
    """The part of one CPU that the load itself took."""
    ended: float
    """When the last upload was acknowledged, by `time.monotonic`."""

    def percentile_s(self, percent: float) -> float:
        """Return the latency that so many of the uploads did not exceed."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Load:
    """Sends uploads made of templates, in turn, until told to stop; then waits for every answer."""

    def __init__(self, url: str, templates: Sequence[Template], connections: int = CONNECTIONS) -> None:
        self._url = url
        self._templates = templates
        self._connections = connections
        self._serials = count()
        self._prefix = secrets.token_hex(4).encode("ascii")

    def run(self, seconds: float, *, warm_s: float = WARM_S, watch: Callable[[], object] = lambda: None) -> Driven:
        """Send for so long, calling `watch` every quarter of a second. Raises LoadFailed for all but a 202."""
        with ExitStack() as opened:
            poll = opened.enter_context(closing(select.epoll()))
            lines = {}
            for _ in range(self._connections):
                line = _Line(opened.enter_context(closing(socket.create_connection(address_of(self._url)))))
                lines[line.number] = line
                poll.register(line.number, select.EPOLLIN)
            return self._run(poll, lines, seconds, warm_s, watch)

    def _run(
        self, poll: select.epoll, lines: "dict[int, _Line]", seconds: float, warm_s: float, watch: Callable[[], object]
    ) -> Driven:
        acknowledged, latencies = 0, array("d")
        now = time.perf_counter()
        begin, end, next_watch = now + warm_s, now + warm_s + seconds, now
        from_ = to = cpu_s = used_s = 0.0
        for line in lines.values():
            self._send(line)
        waiting = len(lines)
        while waiting:
            ready = poll.poll(ANSWER_WITHIN_S)
            if not ready:
                raise LoadFailed(f"{waiting} uploads were not answered within {ANSWER_WITHIN_S:g} s")
            now = time.perf_counter()
            if not from_ and now >= begin:
                from_, cpu_s = now, time.process_time()
            for number, _ in ready:
                line = lines[number]
                if not line.acknowledged():
                    continue
                acknowledged += line.reports
                if from_ and now < end:
                    latencies.append(now - line.sent)
                if now < end:
                    self._send(line)
                else:
                    waiting -= 1
            if from_ and now < end:
                to, used_s = now, time.process_time() - cpu_s
            if now >= next_watch and now < end:
                watch()
                next_watch = now + 0.25
        ended = time.monotonic()
        if not latencies:
            raise LoadFailed(f"no upload was answered within {seconds:g} s")
        return Driven(acknowledged, len(latencies) / (to - from_), latencies, used_s / (to - from_), ended)

    def _send(self, line: "_Line") -> None:
        serial = next(self._serials)
        one = self._templates[serial % len(self._templates)]
        line.send(one.with_id(self._prefix, serial), one.reports)


class _Line:
    """One connection, on which at most one upload waits for its answer."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = connection.fileno()
        self._connection = connection
        self._received = b""
        self.sent = 0.0
        self.reports = 0

    def send(self, request: bytes, reports: int) -> None:
        self.sent, self.reports = time.perf_counter(), reports
        self._connection.sendall(request)

    def acknowledged(self) -> bool:
        """Read on; return whether the answer is whole. Raises LoadFailed unless it is a 202."""
        data = self._connection.recv(ANSWER_BYTES_MAX)
        received = self._received + data
        head, _, content = received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if content and length and len(content) >= int(length[1]):
            if not received.startswith(b"HTTP/1.1 202 "):
                raise LoadFailed(f"an upload was answered {received[:500]!r}")
            self._received = b""
            return True
        if not data or len(received) > ANSWER_BYTES_MAX:
            raise LoadFailed(f"an answer was cut off: {received[:500]!r}")
        self._received = received
        return False
