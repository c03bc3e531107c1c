"""Devices that upload at a steady rate, whatever becomes of the server: how long each upload waits, and which fail.

An upload is due at its time. Its wait counts from then, however late it could be sent: a server that hangs is not
asked less often. Most go out on kept connections, every tenth on a fresh one.
"""

import secrets
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.benchmarks.load import AnswerReader, connecting
from tests.benchmarks.uploads import Template, address_of

RATE = 200
"""Uploads a second."""
FRESH_EVERY = 10
KEPT_MAX = 8
"""Connections that wait for their next upload."""
LINES_MAX = 128
"""Connections at a time. When all are in use, an upload waits for one."""
WITHIN_S = 10.0
"""An upload that has no answer by then has failed, and counts as having waited for so long."""
SETTLED_WITHIN_S = 30.0
ACKNOWLEDGED = "202"


@dataclass
class Try:
    """One attempt to upload."""

    serial: int
    due: float
    end: str = ""
    """How it ended: the answer's status, "refused", "reset" or "late". Nothing until then."""
    waited_s: float = WITHIN_S

    @property
    def acknowledged(self) -> bool:
        return self.end == ACKNOWLEDGED


@dataclass(frozen=True)
class Waits:
    """The attempts of a while, and how they ended."""

    tried: int
    failures: Counter[str]
    waits_s: Sequence[float]
    """In order. One that failed counts as WITHIN_S, so that refusing is not the way to be fast."""

    @classmethod
    def of(cls, tries: Sequence[Try]) -> "Waits":
        """Return them for the attempts, those without an answer included."""
        failures = Counter(one.end or "late" for one in tries if not one.acknowledged)
        return cls(len(tries), failures, sorted(one.waited_s if one.acknowledged else WITHIN_S for one in tries))

    @property
    def acknowledged(self) -> int:
        return self.tried - self.failures.total()

    def percentile_s(self, percent: float) -> float:
        """Return the wait that so many of the attempts did not exceed."""
        return self.waits_s[min(self.tried - 1, int(self.tried * percent / 100))]


def streak(tries: Sequence[Try], number: int, limit_s: float) -> float | None:
    """Return when the first `number` attempts in a row were due that all were acknowledged within the limit."""
    length = 0
    for place, one in enumerate(tries):
        length = length + 1 if one.acknowledged and one.waited_s <= limit_s else 0
        if length == number:
            return tries[place - number + 1].due
    return None


@dataclass
class _Line:
    """One connection, with the attempt that waits on it."""

    connection: socket.socket
    kept: bool
    current: Try | None = None
    connected: bool = False
    reader: AnswerReader = field(default_factory=AnswerReader)


class Uploader:
    """Sends uploads of one template, each with an id of its own. Use as a context manager."""

    def __init__(self, url: str, template: Template, rate: float = RATE) -> None:
        self._address = address_of(url)
        self._template = template
        self._rate = rate
        self._prefix = secrets.token_hex(4).encode("ascii")
        self._poll = select.epoll()
        self._lines: dict[int, _Line] = {}
        self._idle: deque[_Line] = deque()
        self._waiting: deque[Try] = deque()
        self._looked = 0.0
        self.tries: list[Try] = []
        """In the order in which they were due, without those of `settle`."""
        self.settled: set[int] = set()
        """Uploads that were acknowledged, by serial."""

    def __enter__(self) -> "Uploader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for line in self._lines.values():
            line.connection.close()
        self._poll.close()

    def run(self, until: Callable[[], bool]) -> list[Try]:
        """Send until something is so; return the attempts that were due meanwhile. Some may have no answer yet."""
        first, due = len(self.tries), time.perf_counter()
        while not until():
            now = time.perf_counter()
            while due <= now:
                self.tries.append(Try(len(self.tries), due))
                self._waiting.append(self.tries[-1])
                due += 1 / self._rate
            self._turn(due - now)
        return self.tries[first:]

    def run_for(self, seconds: float) -> list[Try]:
        """Send for so long."""
        end = time.perf_counter() + seconds
        return self.run(lambda: time.perf_counter() >= end)

    def settle(self) -> bool:
        """Send again, with the same bytes, what was not acknowledged; return whether all is in the end."""
        deadline = time.perf_counter() + SETTLED_WITHIN_S
        while time.perf_counter() < deadline:
            while self._busy() and time.perf_counter() < deadline:
                self._turn(0.05)
            left = [one.serial for one in self.tries if one.serial not in self.settled]
            if not left:
                return True
            now = time.perf_counter()
            self._waiting.extend(Try(serial, now) for serial in left)
            self._turn(0.05)
        return False

    def _busy(self) -> bool:
        return bool(self._waiting) or any(line.current for line in self._lines.values())

    def _turn(self, within_s: float) -> None:
        """Send what is due, and read what comes within a time."""
        self._give_up_late(time.perf_counter())
        while self._waiting and (self._idle or len(self._lines) < LINES_MAX):
            self._send(self._waiting.popleft())
        for number, event in self._poll.poll(max(within_s, 0.0)):
            if line := self._lines.get(number):
                self._look_at(line, event)

    def _give_up_late(self, now: float) -> None:
        if now < self._looked + 0.1:
            return
        self._looked = now
        while self._waiting and now > self._waiting[0].due + WITHIN_S:
            self._waiting.popleft().end = "late"
        for line in list(self._lines.values()):
            if line.current and now > line.current.due + WITHIN_S:
                self._close(line, "late")

    def _send(self, one: Try) -> None:
        fresh = one.serial % FRESH_EVERY == 0
        line = self._idle.popleft() if self._idle and not fresh else self._open(kept=not fresh)
        if line is None:
            one.end = "refused"
            return
        line.current = one
        if line.connected:
            self._write(line)

    def _open(self, *, kept: bool) -> _Line | None:
        try:
            connection = connecting(self._address)
        except OSError:
            return None
        line = self._lines[connection.fileno()] = _Line(connection, kept)
        self._poll.register(connection, select.EPOLLOUT)
        return line

    def _write(self, line: _Line) -> None:
        assert line.current
        try:
            line.connection.sendall(self._template.with_id(self._prefix, line.current.serial))
        except OSError:
            self._close(line, "reset")

    def _look_at(self, line: _Line, event: int) -> None:
        if not line.connected:
            if line.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._close(line, "refused")
                return
            line.connected = True
            self._poll.modify(line.connection, select.EPOLLIN)
            self._write(line)
        elif event & ~select.EPOLLOUT:
            self._read(line)

    def _read(self, line: _Line) -> None:
        try:
            data = line.connection.recv(65_536)
            status = line.reader.feed(data)
        except (OSError, ValueError):
            data, status = b"", 0
        if not data:
            self._close(line, "reset")
        elif status and line.current:
            self._end(line.current, str(status))
            line.current = None
            if line.kept and not line.reader.closes and len(self._idle) < KEPT_MAX:
                self._idle.append(line)
            else:
                self._close(line, "")

    def _end(self, one: Try, how: str) -> None:
        one.end, one.waited_s = how, time.perf_counter() - one.due
        if one.acknowledged:
            self.settled.add(one.serial)

    def _close(self, line: _Line, how: str) -> None:
        """Close a connection. An attempt that waits on it has failed in this way."""
        if line.current:
            self._end(line.current, how)
        with suppress(ValueError):
            self._idle.remove(line)
        del self._lines[line.connection.fileno()]
        line.connection.close()
