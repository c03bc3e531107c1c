"""The HTTP server, set up so that no client can wear it out: its connections, and two doors.

**A connection** is asyncio's, which httptools reads; it keeps to the bounds, and refuses in our words.
The application sees a request when it is whole. So slow clients, however many, cost a connection and a little memory
each, and neither a task nor a thread.

**Two doors**: one for everybody and one for health.
"""

import asyncio
import logging
import math
import re
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from dither_aggregator.ingest import process_counters
from dither_aggregator.web import http_messages, problems
from dither_aggregator.web.http_messages import ACCEPTED_AT_ONCE, BACKLOG, App, HttpAnswer, Peers, Scope, peers_of
from dither_aggregator.web.listeners import HEALTH, Admitting, Door, Listener
from dither_aggregator.web.problems import refusal
from dither_shared.wire import PATH, WIRE_BYTES_MAX
from dither_shared.wire.reading import Problem

HEADER_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 2 * 1024 * 1024
"""The most bytes of a request's body. An upload may have far fewer; one slightly over that is read, and gets a 413."""
PIPELINED_MAX = 8
"""Requests that may wait behind the one that is being answered. A client that sends more is cut off."""
REQUEST_WITHIN_S = 20.0
"""From a connection's or a request's begin to the end of its body."""
STALLED_FOR_S = 20.0
"""For how long a client may read nothing of an answer that does not fit into the system's buffers."""
ANSWERED_WITHIN_S = 120.0
"""From such an answer's begin to its end."""
IDLE_WITHIN_S = 75.0
"""From an answer to the next request. Longer than a proxy keeps a connection: it is the proxy that should end it."""
UNWANTED_BYTES_MAX = WIRE_BYTES_MAX
"""Bytes of an unwanted body that are let by: a client that is cut off while it sends may read no answer."""
HELD_BACK_S = 0.25
"""A login or a change that is not taken is refused after so long: a client that tries again at once, for ever, takes no
processor from uploads. Devices, which wait as long as they are told, hear at once."""
LINGER_S = 3.0
"""The time that a client still has when the server ends, or has closed: to send the rest, to read the rest."""

_NO_LINGER = struct.pack("ii", 1, 0)
_STATUS_LINES = {each.value: b"HTTP/1.1 %d %s\r\n" % (each, each.phrase.encode("ascii")) for each in HTTPStatus}
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class _CutOff(Exception):
    """The server refuses what was parsed; raised through the parser."""


class Serving:
    """The state that all connections of a server share: what answers, the admission before it, and who is there."""

    def __init__(self, app: App, admission: Admitting) -> None:
        self.app, self.admission = app, admission
        self.connections: set[BoundedConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests that are being answered."""


class Exchange:
    """A request and its answer."""

    def __init__(self, connection: "BoundedConnection", scope: dict[str, Any], keep_alive: bool) -> None:
        self._connection, self.scope, self.keep_alive = connection, scope, keep_alive
        self.told: list[tuple[bytes, bytes]] = []
        """Headers that every answer to it has beside its own."""
        self.refuses: App | None = None
        """Answers in the application's place, before the request is whole."""
        self.body = bytearray()
        self.whole = self.answered = False
        self.over: asyncio.Event = scope["over"]

    async def run(self, app: App) -> None:
        """Have an application answer; close the connection of an answer that is not finished."""
        body, self.body = bytes(self.body), bytearray()
        try:
            answer = await app(self.scope, body)
            try:
                await self._send(answer)
            finally:
                answer.sent()
        except Exception as error:
            problems.failure(error)
        finally:
            if not self.answered:
                self._connection.transport.close()

    async def _send(self, answer: HttpAnswer) -> None:
        """Send an answer as fast as it is read: its head with the first part, to a HEAD without any."""
        length = len(answer.content) if answer.parts is None else answer.length
        said = [] if length is None else [(b"content-length", b"%d" % length)]
        data, left = _head(answer.status, [*answer.headers, *self.told, *said], close=not self.keep_alive), length or 0
        for part in () if self.scope["method"] == "HEAD" else answer.parts or (answer.content,):
            await self._connection.writable.wait()
            if self.over.is_set():
                return
            left -= len(part)
            if left < 0:
                break
            self._connection.transport.write(data + part)
            data = b""
        if left and self.scope["method"] != "HEAD":
            raise ValueError("an answer must be as long as it says")
        if not self.over.is_set():
            self._connection.transport.write(data)
            self.answered = True
            self._connection.on_answered(self)


class BoundedConnection(asyncio.Protocol):
    """One connection: deadlines, bounds, refusals as problem documents. httptools calls what begins with `on_`."""

    transport: asyncio.Transport
    peers: Peers = ()
    buffered = 0
    _in_head = False
    _head_bytes = 0
    _until = math.inf
    """When the client must have sent what it has begun to send, or let itself be closed."""
    _read_until = _answered_until = math.inf
    """When it must have read on of its answer, and all of it."""
    _closing = False
    _problem: Problem | None = None
    _last: Exchange | None = None
    """The request whose head was parsed last."""
    _current: Exchange | None = None
    """The request that is being answered, or was last."""
    _trailer_bytes: int | None = None
    """Bytes since a chunk's head that are none of a body's."""
    _unwanted_bytes: int | None = None
    """Bytes that came of an unwanted body; None where it is wanted, or over."""
    _close_behind = False
    """Whether the client wanted the connection closed after a request whose body is not wanted."""

    def __init__(self, serving: Serving, door: Door, *, health: bool) -> None:
        self.door = door
        self.writable = asyncio.Event()
        """Set unless the client does not read as fast as it is answered."""
        self.writable.set()
        self._serving, self._health = serving, health
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Exchange] = deque()
        """Requests that are not being answered yet, the last of which may not be whole."""
        self._parser = HttpRequestParser(self)
        # So that what comes behind a request that closes its connection does not keep that from being answered.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the client a time to say something, unless there are too many already."""
        self.transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self._client = address[:2] if address else None
        self.peers = peers_of(address[0]) if address else ()
        self._serving.connections.add(self)
        self._begin()
        if not self.door.enter(self):
            self._refuse(Problem("unavailable", "too many connections at a time"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell who answers its request."""
        self._serving.connections.discard(self)
        self.door.leave(self)
        if self._current:
            self._current.over.set()
        self.writable.set()
        # Circles would keep bodies until somebody collects circles.
        self._waiting.clear()
        self._current = self._last = None
        del self._parser

    def displace(self) -> None:
        """Close at once, and keep nothing that the client has not read."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    # Incoming data.

    def data_received(self, data: bytes) -> None:
        """Read on. Data after an answer is the head of another request, however slowly it comes.

        It never stops reading: clients that leave would not be seen, and the bounds hold what they send.
        """
        between = self._last is None or self._last.answered
        if between and not self._in_head and self._unwanted_bytes is None:
            self._begin()  # also where no request begins: a blank line
        if self._in_head:
            self._head_bytes += len(data)
        if self._trailer_bytes is not None:
            self._trailer_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._cut_off(error)
            return
        except HttpParserUpgrade:  # to nothing that we speak: the request is answered, and what is behind it is not
            pass
        if (self._in_head and self._head_bytes > HEADER_BYTES_MAX) or (self._trailer_bytes or 0) > HEADER_BYTES_MAX:
            self._cut_off()
        elif (self._waiting or self.buffered) and not self.door.buffer(self, self._held()):
            self._problem = Problem("unavailable", "too much is being sent at a time")
            self._cut_off()

    def _held(self) -> int:
        """Return how many bytes are kept of requests that are not being answered yet."""
        return sum(len(exchange.body) for exchange in self._waiting)

    def on_message_begin(self) -> None:
        """Notice that a request begins, perhaps behind one that is being answered."""
        self._url, self._expects = b"", False
        self._headers: list[tuple[bytes, bytes]] = []
        if not self._in_head:
            self._begin()

    def on_url(self, url: bytes) -> None:
        """Keep a part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. A trailer behind a chunked body is none."""
        if self._in_head:
            name = name.lower()
            self._expects = self._expects or (name == b"expect" and value.lower() == b"100-continue")
            self._headers.append((name, value))

    def on_chunk_header(self) -> None:
        """Count what comes now, unless it is a body's."""
        self._trailer_bytes = 0

    def on_headers_complete(self) -> None:
        """Take the request on, now that its head is there, if it is not too long."""
        self._head_bytes = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if self._head_bytes > HEADER_BYTES_MAX or len(self._waiting) >= PIPELINED_MAX:
            raise _CutOff
        self._in_head = False
        if int(dict(self._headers).get(b"content-length", 0)) > BODY_BYTES_MAX:
            self._stop(_too_large())
        url = parse_url(self._url)
        version = self._parser.get_http_version()
        path = url.path or b"/"  # http://host stands for its root
        scope = {
            "method": self._parser.get_method().decode("ascii"),
            "root_path": "",
            "path": path.decode("ascii"),
            "raw_path": path,
            "query_string": url.query or b"",
            "headers": self._headers,
            "client": self._client,
            "state": {HEALTH: True} if self._health else {},
            "over": asyncio.Event(),
        }
        keep_alive = version != "1.0" and self._parser.should_keep_alive()
        self._last = exchange = Exchange(self, scope, keep_alive)
        is_next = not self._owed() and not self._waiting
        self._waiting.append(exchange)
        if not self._health:
            self._serving.admission.base_path.place(scope)
            exchange.told = self._serving.admission.origins.headers(scope)
        if problem := self._serving.admission.admit(scope):
            self._turn_away(exchange, problem)
        elif self._expects and is_next and version != "1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body, if anybody wants it."""
        self._trailer_bytes = None
        if self._unwanted_bytes is not None:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > UNWANTED_BYTES_MAX:
                raise _CutOff
        elif self._last:
            self._last.body += body
            if len(self._last.body) > BODY_BYTES_MAX:
                self._stop(_too_large())

    def on_message_complete(self) -> None:
        """Let the request be answered, now that it is whole."""
        self._until, self._trailer_bytes = math.inf, None
        self.door.serve(self)
        assert self._last
        self._last.whole = True
        self._answer_next()
        if self._unwanted_bytes is not None:
            self._end_unwanted(self._last)

    def _turn_away(self, exchange: Exchange, problem: Problem) -> None:
        """Answer a request before its body is there, in its turn; let the body by."""
        if self._expects:  # no body may come, or one may: nobody could tell it from the next request
            self._stop(problem)
        self._unwanted_bytes, self._close_behind = 0, not exchange.keep_alive
        exchange.keep_alive = True
        exchange.refuses = partial(_refuse_unread, problem)
        self._answer_next()

    def _end_unwanted(self, exchange: Exchange) -> None:
        """Go on behind a body that was not wanted."""
        self._unwanted_bytes = None
        if not exchange.answered:
            exchange.keep_alive = not self._close_behind
        elif self._close_behind:
            self.transport.close()
        else:
            self._wait_for_next()
            self.door.wait(self)

    def _answer_next(self) -> None:
        """Begin to answer the next request, if it is whole or refused, and no other is being answered."""
        if self._owed() or not self._waiting or not (self._waiting[0].whole or self._waiting[0].refuses):
            return
        self._current = exchange = self._waiting.popleft()
        task = self._loop.create_task(exchange.run(exchange.refuses or self._serving.app))
        self._serving.tasks.add(task)
        task.add_done_callback(self._serving.tasks.discard)
        if self.buffered:
            self.door.buffer(self, self._held())

    def eof_received(self) -> bool:
        """Answer a device that has said all and closed its half; then close the other. A reader has left."""
        if not self._current or self._current.answered or self._current.scope["path"] != PATH:
            return False
        assert self._last
        (self._last if self._last.whole else self._current).keep_alive = False
        return True

    # Outgoing data.

    def on_answered(self, exchange: Exchange) -> None:
        """Go on to the next request, or wait for it."""
        if not exchange.keep_alive:
            self.transport.close()
        if self._read_until == math.inf:
            self._answered_until = math.inf
        if self.transport.is_closing():
            return
        if self._waiting:
            self._answer_next()
        elif not self._in_head and self._unwanted_bytes is None:
            self._wait_for_next()
        if not self._owed():
            self.door.wait(self)

    def _wait_for_next(self) -> None:
        self._until = self._loop.time() + IDLE_WITHIN_S  # in place of a timer for each answer

    def pause_writing(self) -> None:
        """Notice that the client does not read as fast as it is answered."""
        now = self._loop.time()
        self._answered_until = min(self._answered_until, now + ANSWERED_WITHIN_S)
        self._read_until = min(self._answered_until, now + STALLED_FOR_S)
        self.writable.clear()

    def resume_writing(self) -> None:
        """Notice that the client has read on."""
        self._read_until = math.inf
        if not self._owed():
            self._answered_until = math.inf
        self.writable.set()

    def _cut_off(self, error: HttpParserError | None = None) -> None:
        """Refuse what is not HTTP, unless that would pass for the answer to an earlier request."""
        if isinstance(error, HttpParserCallbackError) and not isinstance(error.__context__, _CutOff | HttpParserError):
            self._problem = problems.failure(error.__context__ or error)  # ours: a device must keep its upload
        if self._owed() or self._unwanted_bytes is not None:
            self.transport.close()
        elif self._problem:
            self._refuse(self._problem)
        elif self._in_head and self._head_bytes > HEADER_BYTES_MAX:
            self._refuse(Problem("headers-too-large", f"the headers must have at most {HEADER_BYTES_MAX} bytes"))
        else:
            self._refuse(Problem("malformed", "this is not HTTP"))

    # The end.

    def shutdown(self) -> None:
        """End after what is being answered; soon, where that waits for the client."""
        if self._last is None or self._last.answered:
            self.transport.close()
        else:
            self._last.keep_alive = False
        soon = self._loop.time() + LINGER_S
        if self._until < math.inf:
            self._until = min(self._until, soon)
        if self._answered_until < math.inf:
            self._answered_until = min(self._answered_until, soon)

    def look(self, now: float) -> None:
        """Cut off a client that takes too long, or has been closed and does not read the rest."""
        if now > min(self._until, self._read_until, self._answered_until):
            self.displace()
        elif self.transport.is_closing() and not self._closing:
            unread = self.transport.get_write_buffer_size()
            self._closing, self._until = True, now + (STALLED_FOR_S if unread else LINGER_S)

    def _begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._until = self._loop.time() + REQUEST_WITHIN_S

    def _owed(self) -> bool:
        """Tell whether a whole request waits for its answer."""
        return self._current is not None and not self._current.answered

    def _stop(self, problem: Problem) -> None:
        self._problem = problem
        raise _CutOff

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        process_counters.request_refused(problem.slug)
        answer = refusal(problem)
        told = self._last.told if self._last else []
        headers = [*answer.headers, *told, (b"content-length", b"%d" % len(answer.content))]
        self.transport.write(_head(problem.status, headers, close=True) + answer.content)
        self.transport.close()


async def _refuse_unread(problem: Problem, scope: Scope, _: bytes) -> HttpAnswer:
    """Refuse a request without its body: a device's at once, any other one after a while."""
    await asyncio.sleep(0.0 if scope["path"] == PATH else HELD_BACK_S)
    return refusal(problem)


def _head(status: int, headers: Iterable[tuple[bytes, bytes]], *, close: bool) -> bytes:
    """Return the head of an answer; raise ValueError for a header that would be more than one."""
    lines = [_STATUS_LINES[status], b"date: %s\r\n" % _date(int(time.time()))]
    for name, value in headers:
        if _CONTROL.search(value):
            raise ValueError(f"the header {name!r} has a control character")
        lines.append(b"%s: %s\r\n" % (name, value))
    return b"".join([*lines, b"connection: close\r\n\r\n" if close else b"\r\n"])


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode("ascii")


def _too_large() -> Problem:
    return Problem("too-large", f"the body must have at most {BODY_BYTES_MAX} bytes")


# The server.


DRAIN_WITHIN_S = 25
"""How long a server that ends waits for what it is being asked."""
LOOK_EVERY_S = 0.25
DRAINED_EVERY_S = 0.05
CLOSE_WITHIN_S = 5.0

Close = Callable[[], Awaitable[None]]

_log = logging.getLogger("dither_aggregator")


class HttpServer:
    """Answers what comes to a listener, and to health's if there is one.

    `admission` says which requests are read at all, `close` ends what may take long.
    """

    def __init__(
        self,
        app: App,
        public: Listener,
        health: Listener | None = None,
        admission: Admitting | None = None,
        close: Close | None = None,
    ) -> None:
        self._serving = Serving(app, admission or Admitting())
        self._doors = [(public, Door(http_messages.connections_max(), http_messages.BODY_BYTES_MAX), False)]
        if health:
            self._doors.append(
                (health, Door(http_messages.HEALTH_CONNECTIONS_MAX, http_messages.HEALTH_BODY_BYTES_MAX), True)
            )
        self._close = close
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._ending = self._hurried = False
        self.url = public.url
        self.health = health.url if health else None

    def run(self) -> None:
        """Answer requests until SIGINT, SIGTERM or `stop`; the requests that have begun are finished.

        The first signal is then raised again, for whatever the caller set for it: by default KeyboardInterrupt. A
        second SIGINT ends at once.
        """
        heard: list[int] = []

        def hear(number: int, _frame: object) -> None:
            self._hurried |= bool(heard) and number == signal.SIGINT
            heard.append(number)
            self.stop()

        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        self.serve()
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])

    def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Answer requests until `stop`; call `ready` once it does."""
        asyncio.run(self._serve(ready))

    def stop(self) -> None:
        """End `run` or `serve`, from any thread or signal handler, after the requests that have begun."""
        self._ending = True
        if self._loop:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Answer requests on a thread of its own while the block runs."""
        thread = threading.Thread(target=self.serve, name="http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(DRAIN_WITHIN_S + 5)

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        if self._ending:
            self._stopped.set()
        servers: list[asyncio.Server] = []
        for listener, door, health in self._doors:
            made = partial(BoundedConnection, self._serving, door, health=health)
            servers.append(await self._loop.create_server(made, sock=listener.socket, backlog=ACCEPTED_AT_ONCE))
            listener.socket.listen(BACKLOG)  # asyncio has it hold no more than it accepts at once
        looking = asyncio.create_task(self._look(self._loop))
        ready()
        await self._stopped.wait()
        if self._close:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._close(), CLOSE_WITHIN_S)
        for server in servers:
            server.close()
        self._end_connections()
        if not await self._drained(DRAIN_WITHIN_S):
            _log.error("%d requests were not answered in time, and are refused", len(self._serving.tasks))
            for task in self._serving.tasks:
                task.cancel()
            await self._drained(LINGER_S)
        looking.cancel()

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._serving.admission.look()
            for connection in list(self._serving.connections):
                connection.look(loop.time())
            if self._ending:
                self._end_connections()  # again: one may have been made after the others were told

    def _end_connections(self) -> None:
        for connection in list(self._serving.connections):
            connection.shutdown()

    async def _drained(self, within_s: float) -> bool:
        """Wait until nobody is there, or is to be waited for; return whether that came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.sleep(DRAINED_EVERY_S)  # also at first: connections that were accepted are made meanwhile
                while (self._serving.connections or self._serving.tasks) and not self._hurried:
                    await asyncio.sleep(DRAINED_EVERY_S)
                return True
        return False
