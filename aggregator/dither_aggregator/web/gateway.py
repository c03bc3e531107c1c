"""From the event loop to WSGI: a request is read whole, within limits, before the application sees it.

So slow clients, however many, cost a connection and a little memory each, and never a thread. Nor do uploads, which
come in thousands: the application reads them in the loop itself, some in each turn, and what it then waits for is a
`Later`.
"""

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from queue import SimpleQueue
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes
from wsgiref.types import WSGIApplication, WSGIEnvironment

from dither_aggregator.web import problems
from dither_aggregator.web.later import Later
from dither_aggregator.web.turns import TURN_BYTES, Turns
from dither_shared.wire import PATH, WIRE_BYTES_MAX
from dither_shared.wire.problems import Problem

BODY_BYTES_MAX = 2 * 1024 * 1024
"""A body up to here is read, and refused in words where it is too long; a longer one is cut off."""
BUFFERED_BYTES_MAX = 128 * 1024 * 1024
"""Of all bodies together, as they came."""
THREAD_WITHIN_S = 10.0
THREADS = 4
"""For what is not an upload."""
HEALTH = {"/livez", "/readyz"}
"""Answered by a thread of their own: they say how the process is, however long pages take."""

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Any], Awaitable[None]]


class Left(Exception):
    """The client closed the connection before its request was whole."""


@dataclass(frozen=True)
class WholeAnswer:
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes


class Gateway:
    """An ASGI application in front of a WSGI one, which must answer uploads without waiting, if need be by a Later."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._threads = _Threads(THREADS, "request")
        self._health = _Threads(1, "health")
        self._turns = Turns()
        self._done: deque[asyncio.Future[None]] = deque()
        self._told = False
        self._buffered = 0

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()
        self._health.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """WholeAnswer one request."""
        body = bytearray()
        path = scope["path"]
        try:
            await self._read(scope, receive, body)
            exchange = _Exchange(self._app, environ_of(scope, bytes(body)))
            if path == PATH and scope["method"] == "POST":
                answer = await self._upload(exchange, len(body))
            else:
                answer = await (self._health if path in HEALTH else self._threads).answer(exchange)
        except Left:
            return
        except Problem as problem:
            answer = _refusal(problem)
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            answer = _refusal(Problem("unavailable", "the server is being stopped"))
        except Exception as error:
            answer = _refusal(problems.failure(error))
        finally:
            self._buffered -= len(body)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.content})

    async def _upload(self, exchange: "_Exchange", length: int) -> WholeAnswer:
        # What is compressed may be a thousand times as long.
        await self._turns.take(TURN_BYTES if "HTTP_CONTENT_ENCODING" in exchange.environ else length)
        result = exchange.call()
        while isinstance(result, Later):
            await self._until_there(result)
            result = result.render()
        return exchange.answer(result)

    async def _until_there(self, later: Later) -> None:
        """Wait until the answer can be made, or must be."""
        loop = asyncio.get_running_loop()
        there: asyncio.Future[None] = loop.create_future()
        late = loop.call_later(later.within_s, _settle, there, None)
        later.future.add_done_callback(lambda _: self._tell(loop, there))
        try:
            await there
        except asyncio.CancelledError:
            later.future.cancel()  # nobody waits for it any more
            raise
        finally:
            late.cancel()

    def _tell(self, loop: asyncio.AbstractEventLoop, there: "asyncio.Future[None]") -> None:
        """Wake the loop, from any thread, unless it is being woken: a commit is there for many at once."""
        self._done.append(there)
        if not self._told:
            self._told = True
            with suppress(RuntimeError):  # the loop has been closed: it did not wait for this one any longer
                loop.call_soon_threadsafe(self._settle_done)

    def _settle_done(self) -> None:
        self._told = False  # first: whoever comes from now on wakes the loop again
        while self._done:
            _settle(self._done.popleft(), None)

    async def _read(self, scope: Scope, receive: Receive, body: bytearray) -> None:
        """Read the body into `body`. What is too long is read to its end if that is near, to be refused in words."""
        length_max = WIRE_BYTES_MAX if scope["path"] == PATH else BODY_BYTES_MAX
        too_large = f"the body must have at most {length_max} bytes"
        if int(dict(scope["headers"]).get(b"content-length", 0)) > BODY_BYTES_MAX:
            raise Problem("too-large", too_large)
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise Left
            chunk, more = message["body"], message["more_body"]
            length += len(chunk)
            if length > BODY_BYTES_MAX:
                raise Problem("too-large", too_large)
            if length <= length_max:
                self._buffered += len(chunk)
                body += chunk
            if self._buffered > BUFFERED_BYTES_MAX:
                raise _too_many()
        if length > length_max:
            raise Problem("too-large", too_large)


class _Threads:
    """Threads that answer requests. One that has waited for long is refused, so that those after it need not wait."""

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for _ in range(number):
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def close(self) -> None:
        """Let them end."""
        for _ in range(self._number):
            self._jobs.put(None)

    async def answer(self, exchange: "_Exchange") -> WholeAnswer:
        """Return the application's answer."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[WholeAnswer] = loop.create_future()
        until = time.monotonic() + THREAD_WITHIN_S

        def job() -> None:
            try:
                answer = exchange.run() if time.monotonic() <= until else _refusal(_too_many())
            except Exception as error:
                answer = _refusal(problems.failure(error))
            with suppress(RuntimeError):  # the loop has been closed: it did not wait for this one any longer
                loop.call_soon_threadsafe(_settle, answered, answer)

        self._jobs.put(job)
        return await answered

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
            del job  # which holds the request, for as long as no other comes


_Result = TypeVar("_Result")


def _settle(future: "asyncio.Future[_Result]", result: _Result) -> None:
    if not future.done():
        future.set_result(result)


def _too_many() -> Problem:
    return Problem("unavailable", "too many requests at a time")


class _Exchange:
    """A request and what a WSGI application says to it."""

    def __init__(self, app: WSGIApplication, environ: WSGIEnvironment) -> None:
        self.environ = environ
        self._app = app
        self._status = ""
        self._fields: list[tuple[str, str]] = []
        self._written: list[bytes] = []

    def run(self) -> WholeAnswer:
        """Return the whole answer, however long that takes."""
        return self.answer(self.call())

    def call(self) -> Iterable[bytes]:
        """Call the application."""
        return self._app(self.environ, self._start_response)

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: object = None
    ) -> Callable[[bytes], object]:
        self._status, self._fields = status, headers
        return self._written.append

    def answer(self, result: Iterable[bytes]) -> WholeAnswer:
        """Return the answer with this content."""
        try:
            content = b"".join([*self._written, *result])
        finally:
            if hasattr(result, "close"):
                result.close()
        return _answer_of(int(self._status[:3]), self._fields, content)


def _refusal(problem: Problem) -> WholeAnswer:
    """Return the answer to a request after which its connection is of no use: it may not have come whole."""
    return _answer_of(
        problem.status, [*problems.headers_of(problem), ("Connection", "close")], problems.render(problem)
    )


def _answer_of(status: int, headers: list[tuple[str, str]], content: bytes) -> WholeAnswer:
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if content and not any(name == b"content-length" for name, _ in encoded):
        encoded.append((b"content-length", b"%d" % len(content)))
    return WholeAnswer(status, encoded, content)


def environ_of(scope: Scope, body: bytes) -> WSGIEnvironment:
    """Return the WSGI environment of a request that was read whole."""
    server, client = scope["server"] or ("", 0), scope["client"] or ("", 0)
    environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        if key := _key(name):
            text = value.decode("latin-1")
            environ[key] = f"{environ[key]},{text}" if key in environ else text
    if "CONTENT_LENGTH" in environ or environ.pop("HTTP_TRANSFER_ENCODING", None):
        environ["CONTENT_LENGTH"] = str(len(body))
    return environ


@lru_cache(maxsize=256)
def _key(name: bytes) -> str:
    """Return a header's key; none for one with an underscore, which could pass for one that has a hyphen."""
    if b"_" in name:
        return ""
    key = name.decode("latin-1").upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
