"""Many connections at a time, each of which does what its attacker says, from one thread."""

import heapq
import random
import secrets
import select
import socket
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import ClassVar
from urllib.parse import urlsplit

from tests.benchmarks.load import AnswerReader, connecting
from tests.benchmarks.uploads import address_of, template

OTHER = "other_3"
"""The metric of the attackers' uploads: good ones are of another."""
READ_BYTES = 1024 * 1024


class Attacker:
    """One connection: what it sends, and when. Subclasses say what they are; this one does nothing."""

    number: ClassVar[int] = 2_100
    reads: ClassVar[bool] = True
    endless: ClassVar[bool] = False
    """Whether there is always more to send."""
    buffer_bytes: ClassVar[int] = 0
    """The size of its receive buffer; 0 leaves it as it is."""
    again_s: ClassVar[float] = 1.0
    """After so long, a connection that was closed is opened again."""
    tick_s: ClassVar[float] = 0.0
    """How often `tick` is called; 0 is never."""

    def __init__(self, place: int, url: str, key: str, plan: str) -> None:
        self.place, self.url, self.key = place, url, key
        self._upload = template(url, key, [(OTHER, plan, [1])])
        self._prefix, self._serials = secrets.token_hex(4).encode("ascii"), count()

    def begin(self) -> bytes:
        """Return what to send first on a new connection."""
        return b""

    def more(self) -> bytes:
        """Return what to send when all before was sent."""
        return b""

    def answered(self) -> bytes:
        """Return what to send after a whole answer."""
        return b""

    def tick(self) -> bytes | None:
        """Return what to send now; None to leave."""
        return b""

    def upload(self) -> bytes:
        """Return an upload that was never sent."""
        return self._upload.with_id(self._prefix, next(self._serials))

    def get(self, path: str) -> bytes:
        """Return a request for a page."""
        return f"GET {path} HTTP/1.1\r\nHost: {urlsplit(self.url).netloc}\r\n\r\n".encode("ascii")


class _Line:
    """A connection of an attacker, while there is one."""

    def __init__(self, attacker: Attacker) -> None:
        self.attacker = attacker
        self.connection: socket.socket | None = None
        self.life = 0
        """How often it was opened: a tick of an earlier life is nobody's."""
        self.left = memoryview(b"")
        """Still to be sent."""
        self.reader = AnswerReader()


class Swarm:
    """Keeps all connections of an attack open, and does on each what its attacker says."""

    def __init__(self, url: str, attackers: Sequence[Attacker]) -> None:
        self._address = address_of(url)
        self._lines = [_Line(attacker) for attacker in attackers]
        self._by_number: dict[int, _Line] = {}
        self._poll = select.epoll()
        self._times: list[tuple[float, int, int]] = []
        """When which line, in which of its lives, is to be opened again, or has its tick."""
        self.done: Counter[str] = Counter()

    def begin(self) -> None:
        """Open every connection."""
        for line in self._lines:
            self._open(line)

    def run(self, end: int) -> None:
        """Attack until a file, given by its number, ends."""
        self._poll.register(end, select.EPOLLIN)
        while True:
            within_s = max(self._times[0][0] - time.monotonic(), 0.0) if self._times else 1.0
            for number, event in self._poll.poll(min(within_s, 1.0)):
                if number == end:
                    return
                if line := self._by_number.get(number):
                    self._look_at(line, event)
            self._do_due(time.monotonic())

    def _do_due(self, now: float) -> None:
        while self._times and self._times[0][0] <= now:
            _, place, life = heapq.heappop(self._times)
            line = self._lines[place]
            if line.life != life:
                continue
            if line.connection is None:
                self._open(line)
            else:
                self._tick(line)

    def _tick(self, line: _Line) -> None:
        said = line.attacker.tick()
        if said is None:
            self.done["left"] += 1
            self._close(line)
        else:
            self._plan(line, line.attacker.tick_s)
            self._send(line, said)

    def _plan(self, line: _Line, in_s: float) -> None:
        heapq.heappush(self._times, (time.monotonic() + in_s, line.attacker.place, line.life))

    def _open(self, line: _Line) -> None:
        line.life += 1
        self.done["opened"] += 1
        try:
            connection = line.connection = connecting(self._address, line.attacker.buffer_bytes)
        except OSError:
            self._lose(line)
            return
        self._by_number[connection.fileno()] = line
        self._poll.register(connection, select.EPOLLOUT | select.EPOLLRDHUP)
        line.left, line.reader = memoryview(line.attacker.begin()), AnswerReader()
        if line.attacker.tick_s:
            self._plan(line, line.attacker.tick_s * random.uniform(0.5, 1.5))  # so that not all come at once

    def _look_at(self, line: _Line, event: int) -> None:
        if event & select.EPOLLIN and line.attacker.reads:
            self._read(line)
        elif event & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
            self._lose(line)
        if event & select.EPOLLOUT and line.connection:
            self._write(line)

    def _send(self, line: _Line, data: bytes) -> None:
        if data:
            line.left = memoryview(bytes(line.left) + data)
            self._write(line)

    def _write(self, line: _Line) -> None:
        """Send as much as the socket takes, and say whether more is to come."""
        assert line.connection
        try:
            line.left = line.left or memoryview(line.attacker.more())
            if line.left:
                sent = line.connection.send(line.left)
                self.done["bytes sent"] += sent
                line.left = line.left[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._lose(line)
            return
        wanted = select.EPOLLRDHUP | (select.EPOLLIN if line.attacker.reads else 0)
        more = line.left or line.attacker.endless
        self._poll.modify(line.connection, wanted | (select.EPOLLOUT if more else 0))

    def _read(self, line: _Line) -> None:
        assert line.connection
        try:
            data = line.connection.recv(READ_BYTES)
            status = line.reader.feed(data)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            data, status = b"", 0
        self.done["bytes read"] += len(data)
        if status:
            self.done[str(status)] += 1
        if not data or (status and line.reader.closes):
            self._lose(line)
        elif status:
            self._send(line, line.attacker.answered())

    def _lose(self, line: _Line) -> None:
        """Note that the server closed or refused a connection."""
        self.done["closed"] += 1
        self._close(line)

    def _close(self, line: _Line) -> None:
        if line.connection:
            del self._by_number[line.connection.fileno()]
            line.connection.close()
            line.connection = None
        line.life += 1
        self._plan(line, line.attacker.again_s)
