"""One connection: uvicorn's, which also keeps to the bounds, and refuses in our words.

The application sees a request when it is whole. So slow clients, however many, cost a connection and a little memory
each, and neither a task nor a thread.
"""

import asyncio
import math
import socket
import struct
import sys
from typing import Any

from httptools import HttpParserCallbackError, HttpParserError, parse_url
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from dither_aggregator.ingest import counters
from dither_aggregator.web import problems
from dither_aggregator.web.answers import RefusesUnread, refusal
from dither_aggregator.web.bounds import Peers, peers_of
from dither_aggregator.web.listener_connections import HEALTH, Door, Doors
from dither_aggregator.web.write_coalescing import CoalescingTransport
from dither_shared.wire import PATH, WIRE_BYTES_MAX
from dither_shared.wire.problems import Problem

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


class _CutOff(Exception):
    """The server refuses what was parsed; raised through the parser."""


class BoundedConnection(HttpToolsProtocol):
    """One connection. Beyond uvicorn's: deadlines, bounds, refusals as problem documents."""

    server_state: Doors
    door: Door
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
    _unstarted: tuple[RequestResponseCycle, Any] | None = None
    _current: RequestResponseCycle | None = None
    """The request that is being answered, or was last."""
    _trailer_bytes: int | None = None
    """Bytes since a chunk's head that are none of a body's."""
    _unwanted_bytes: int | None = None
    """Bytes that came of an unwanted body; None where it is wanted, or over."""
    _close_behind = False
    """Whether the client wanted the connection closed after a request whose body is not wanted."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client a time to say something, unless there are too many already."""
        super().connection_made(CoalescingTransport(transport, self.loop))  # type: ignore[arg-type]
        self.peers = peers_of(self.client[0]) if self.client else ()
        self.door, state = self.server_state.door_of(self.server)
        self.app_state = state
        self._begin()
        if not self.door.enter(self):
            self._refuse(Problem("unavailable", "too many connections at a time"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell all that answer its requests; uvicorn tells the last one alone."""
        self.door.leave(self)
        super().connection_lost(exc)
        if self._current and not self._current.response_complete:
            self._current.disconnected = True
            self._current.message_event.set()
        # A circle would keep their bodies until somebody collects circles.
        self.pipeline.clear()
        self._current = self._unstarted = self.cycle = self.scope = None  # type: ignore[assignment]

    def displace(self) -> None:
        """Close at once, and keep nothing that the client has not read."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    # Incoming data.

    def data_received(self, data: bytes) -> None:
        """Read on. Data after an answer is the head of another request, however slowly it comes."""
        between = self.cycle is None or self.cycle.response_complete
        if between and not self._in_head and self._unwanted_bytes is None:
            self._begin()  # also where no request begins: a blank line
        if self._in_head:
            self._head_bytes += len(data)
        if self._trailer_bytes is not None:
            self._trailer_bytes += len(data)
        super().data_received(data)
        if (self._in_head and self._head_bytes > HEADER_BYTES_MAX) or (self._trailer_bytes or 0) > HEADER_BYTES_MAX:
            self.send_400_response("")
        elif (self._unstarted or self.pipeline or self.buffered) and not self.door.buffer(self, self._held()):
            self._problem = Problem("unavailable", "too much is being sent at a time")
            self.send_400_response("")

    def _held(self) -> int:
        """Return how many bytes are kept of requests that are not being answered yet."""
        waiting = sum(len(cycle.body) for cycle, _ in self.pipeline)
        return waiting + (len(self._unstarted[0].body) if self._unstarted else 0)

    def on_message_begin(self) -> None:
        """Notice that a request begins, perhaps behind one that is being answered."""
        super().on_message_begin()
        if not self._in_head:
            self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. A trailer behind a chunked body is none."""
        if self._in_head:
            super().on_header(name, value)

    def on_chunk_header(self) -> None:
        """Count what comes now, unless it is a body's."""
        self._trailer_bytes = 0

    def on_headers_complete(self) -> None:
        """Take the request on, now that its head is there, if it is not too long."""
        self._head_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._head_bytes > HEADER_BYTES_MAX or len(self.pipeline) >= PIPELINED_MAX:
            raise _CutOff
        self._in_head = False
        if int(dict(self.headers).get(b"content-length", 0)) > BODY_BYTES_MAX:
            self._stop(_too_large())
        if not self.url.startswith(b"/") and not (url := parse_url(self.url)).path:  # http://host stands for its root
            self.url = b"/?" + (url.query or b"")
        super().on_headers_complete()
        if HEALTH not in self.app_state:
            self.server_state.admission.base_path.place(self.cycle.scope)
        if problem := self.server_state.admission.admit(self.cycle.scope):
            self._turn_away(problem)
        elif self.expect_100_continue and not self.pipeline and self.parser.get_http_version() != "1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.cycle.waiting_for_100_continue = False

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body, if anybody wants it."""
        self._trailer_bytes = None
        if self._unwanted_bytes is not None:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > UNWANTED_BYTES_MAX:
                raise _CutOff
        if self._unwanted_bytes is not None or self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > BODY_BYTES_MAX:
            self._stop(_too_large())

    def on_message_complete(self) -> None:
        """Let the request be answered, now that it is whole."""
        self._until, self._trailer_bytes = math.inf, None
        self.door.serve(self)
        super().on_message_complete()
        if self._unstarted:
            unstarted, self._unstarted = self._unstarted, None
            self._start_asgi_task(*unstarted)
        if self._unwanted_bytes is not None:
            self._end_unwanted()

    def _turn_away(self, problem: Problem) -> None:
        """Answer a request before its body is there, in its turn; let the body by."""
        if self.expect_100_continue:  # no body may come, or one may: nobody could tell it from the next request
            self._stop(problem)
        self._unwanted_bytes, self._close_behind = 0, not self.cycle.keep_alive
        self.cycle.keep_alive = True
        refuses = RefusesUnread(problem, 0.0 if self.cycle.scope["path"] == PATH else HELD_BACK_S)
        if self._unstarted:
            (cycle, _), self._unstarted = self._unstarted, None
            self._start_asgi_task(cycle, refuses)
        else:
            self.pipeline[0] = self.cycle, refuses

    def _end_unwanted(self) -> None:
        """Go on behind a body that was not wanted."""
        self._unwanted_bytes = None
        if not self.cycle.response_complete:
            self.cycle.keep_alive = not self._close_behind
        elif self._close_behind:
            self.transport.close()
        else:
            self._wait_for_next()
            self.door.wait(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.more_body and not isinstance(app, RefusesUnread):
            self._unstarted = cycle, app
        else:
            self._current = cycle
            super()._start_asgi_task(cycle, self.server_state.admission.origins.telling(app, cycle.scope))
            if self.buffered:
                self.door.buffer(self, self._held())

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a device that has said all and closed its half; then close the other. A reader has left."""
        self.transport.send()  # type: ignore[attr-defined]  # or it would be too late
        if not self._current or self._current.response_complete or self._current.scope["path"] != PATH:
            return False
        (self._current if self.cycle.more_body else self.cycle).keep_alive = False
        return True

    # Outgoing data.

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there."""
        if self._read_until == math.inf:
            self._answered_until = math.inf
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif not self._in_head and self._unwanted_bytes is None:
            self._wait_for_next()
        if not self._owed():
            self.door.wait(self)

    def _wait_for_next(self) -> None:
        self._until = self.loop.time() + IDLE_WITHIN_S  # in place of a timer for each answer

    def pause_writing(self) -> None:
        """Notice that the client does not read as fast as it is answered."""
        now = self.loop.time()
        self._answered_until = min(self._answered_until, now + ANSWERED_WITHIN_S)
        self._read_until = min(self._answered_until, now + STALLED_FOR_S)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Notice that the client has read on."""
        self._read_until = math.inf
        if not self._owed():
            self._answered_until = math.inf
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, unless that would pass for the answer to an earlier request."""
        error = sys.exc_info()[1]
        if isinstance(error, HttpParserCallbackError) and not isinstance(error.__context__, _CutOff | HttpParserError):
            self._problem = problems.failure(error.__context__ or error)  # ours: a device must keep its upload
        if self.pipeline or self._owed() or self._unwanted_bytes is not None:
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
        super().shutdown()
        soon = self.loop.time() + LINGER_S
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
        self._until = self.loop.time() + REQUEST_WITHIN_S

    def _owed(self) -> bool:
        """Tell whether a whole request waits for its answer."""
        return self._current is not None and not self._current.response_complete

    def _stop(self, problem: Problem) -> None:
        self._problem = problem
        raise _CutOff

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        counters.request_refused(problem.slug)
        answer = refusal(problem)
        fields = [*answer.headers, (b"content-length", b"%d" % len(answer.content)), (b"connection", b"close")]
        fields += self.server_state.admission.origins.headers(self.scope)
        head = b"".join(b"%s: %s\r\n" % field for field in fields)
        self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[problem.status], head, answer.content))
        self.transport.close()


def _too_large() -> Problem:
    return Problem("too-large", f"the body must have at most {BODY_BYTES_MAX} bytes")
