"""A load of uploads on keep-alive connections, from one thread, as cheaply as Python can: it may share the machine.

Each connection sends its next upload when the last was answered. Bodies are made before; each goes out with an id of
its own, in one system call.
"""

import re
import secrets
import selectors
import socket
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

from dither_shared.wire import PATH, WireGroup, encode_upload

CONNECTIONS = 64
CONNECT_WITHIN_S = 10.0
ANSWER_WITHIN_S = 30.0
ANSWER_BYTES_MAX = 65_536
WARM_S = 0.5
WATCH_EVERY_S = 0.25
ACKNOWLEDGED = 202
_ID = "A" * 22
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")


class LoadFailed(RuntimeError):
    """A load that could not go on: an upload was not answered, or not acknowledged where each must be."""


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
    """Return a request that posts JSON to a path below an address; `fields` are further lines of its head."""
    place = urlsplit(url)
    head = (
        f"POST {place.path}{path} HTTP/1.1\r\nHost: {place.netloc}\r\n{fields}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def address_of(url: str) -> tuple[str, int]:
    """Return what a socket connects to."""
    place = urlsplit(url)
    return str(place.hostname), place.port or 80


@dataclass(frozen=True)
class Driven:
    """The outcome of a load. The figures are of the time after warming up and before the last answers."""

    acknowledged: int
    """Reports, from the first upload to the last."""
    rate: float
    """Acknowledged uploads a second."""
    latencies_s: Sequence[float]
    """The latencies of acknowledged uploads."""
    load_share: float
    """The part of one CPU that the load itself took."""
    ended: float
    """When the last upload was answered, by `time.monotonic`."""

    def percentile_s(self, percent: float) -> float:
        """Return the latency that so many of the uploads did not exceed."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Load:
    """Sends uploads made of templates, in turn, until the time is over; then waits for every answer."""

    def __init__(self, url: str, templates: Sequence[Template], connections: int = CONNECTIONS) -> None:
        self._url = url
        self._templates = templates
        self._connections = connections
        self._serials = count()
        self._prefix = secrets.token_hex(4).encode("ascii")

    def run(self, seconds: float, *, watch: Callable[[], object] = lambda: None) -> Driven:
        """Send for so long, calling `watch` every quarter of a second.

        Raises LoadFailed where an upload is not answered, or not acknowledged.
        """
        with ExitStack() as opened:
            poll = opened.enter_context(selectors.DefaultSelector())
            lines = []
            for _ in range(self._connections):
                line = _Line(opened.enter_context(closing(_connected(self._url))))
                lines.append(line)
                poll.register(line.connection, selectors.EVENT_READ, line)
            return self._run(poll, lines, seconds, watch)

    def _run(
        self, poll: selectors.BaseSelector, lines: "list[_Line]", seconds: float, watch: Callable[[], object]
    ) -> Driven:
        acknowledged, latencies = 0, array("d")
        now = time.perf_counter()
        begin, end, next_watch = now + WARM_S, now + WARM_S + seconds, now
        from_ = to = cpu_s = used_s = 0.0
        for line in lines:
            self._send(line)
        waiting = len(lines)
        while waiting:
            ready = poll.select(ANSWER_WITHIN_S)
            if not ready:
                raise LoadFailed(f"{waiting} uploads were not answered within {ANSWER_WITHIN_S:g} s")
            now = time.perf_counter()
            if not from_ and now >= begin:
                from_, cpu_s = now, time.process_time()
            for key, _ in ready:
                line = key.data
                status = line.answered()
                if not status:
                    continue
                if status != ACKNOWLEDGED:
                    raise LoadFailed(f"an upload was answered {status}")
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
                next_watch = now + WATCH_EVERY_S
        ended = time.monotonic()
        took = to - from_
        if not latencies:
            raise LoadFailed(f"no upload was answered within {seconds:g} s")
        return Driven(acknowledged, len(latencies) / took, latencies, used_s / took, ended)

    def _send(self, line: "_Line") -> None:
        serial = next(self._serials)
        one = self._templates[serial % len(self._templates)]
        line.send(one.with_id(self._prefix, serial), one.reports)


def _connected(url: str) -> socket.socket:
    connection = socket.create_connection(address_of(url), CONNECT_WITHIN_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class _Line:
    """One connection, on which at most one upload waits for its answer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = b""
        self.sent = 0.0
        self.reports = 0

    def send(self, request: bytes, reports: int) -> None:
        self.sent, self.reports = time.perf_counter(), reports
        self.connection.sendall(request)

    def answered(self) -> int:
        """Read on; return the status once the answer is whole, else 0. Raises LoadFailed for one that is cut off."""
        data = self.connection.recv(ANSWER_BYTES_MAX)
        received = self._received + data
        head, _, content = received.partition(b"\r\n\r\n")
        length, status = _LENGTH.search(head + b"\r\n"), _STATUS.match(head)
        if content and length and status and len(content) >= int(length[1]):
            self._received = b""
            return int(status[1])
        if not data or len(received) > ANSWER_BYTES_MAX:
            raise LoadFailed(f"an answer was cut off: {received[:500]!r}")
        self._received = received
        return 0
