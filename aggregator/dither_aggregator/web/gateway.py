"""From the event loop to WSGI: a request is read whole, within limits, before the application sees it.

So slow clients, however many, cost a connection and a little memory each, and never a thread. Nor do uploads, which
come in thousands: the application reads most of them in the loop itself, and what it then waits for is a `Later`.
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
from dither_shared.wire import PATH, WIRE_BYTES_MAX, Problem

BODY_BYTES_MAX = 2 * 1024 * 1024
"""A body up to here is read, and refused in words where it is too long; a longer one is cut off."""
BUFFERED_BYTES_MAX = 128 * 1024 * 1024
"""Of all bodies together."""
THREAD_WITHIN_S = 10.0
TURN_BYTES_MAX = 128 * 1024
"""Of uploads that are read in one turn of the loop; the others are read by threads, so that everything has its turn."""
READERS = 2
"""Threads for uploads."""
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
class Answer:
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes


class Gateway:
    """An ASGI application in front of a WSGI one, which must answer uploads without waiting, if need be by a Later."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._readers = _Threads(READERS, "reader")
        self._threads = _Threads(THREADS, "request")
        self._health = _Threads(1, "health")
        self._done: deque[asyncio.Future[None]] = deque()
        self._told = False
        self._turn_bytes = 0
        self._buffered = 0

    def close(self) -> None:
        """Let the threads end."""
        for threads in (self._readers, self._threads, self._health):
            threads.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = bytearray()
        path = scope["path"]
        try:
            await self._read(scope, receive, body)
            exchange = _Exchange(self._app, environ_of(scope, bytes(body)))
            if path == PATH:
                answer = await self._upload(exchange, len(body))
            else:
                answer = await (self._health if path in HEALTH else self._threads).run(exchange.run)
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

    async def _upload(self, exchange: "_Exchange", length: int) -> Answer:
        result = exchange.call() if self._has_time(exchange, length) else await self._readers.run(exchange.call)
        if isinstance(result, Later):
            await self._until_there(result)
            result = result.render()
        return exchange.answer(result)

    def _has_time(self, exchange: "_Exchange", length: int) -> bool:
        """Tell whether the loop may read an upload itself: not much more in this turn, and nothing compressed."""
        if "HTTP_CONTENT_ENCODING" in exchange.environ:
            return False
        if not self._turn_bytes:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._turn_bytes += length
        return self._turn_bytes <= TURN_BYTES_MAX

    def _begin_turn(self) -> None:
        self._turn_bytes = 0

    async def _until_there(self, later: Later) -> None:
        """Wait until the answer can be made, or must be."""
        loop = asyncio.get_running_loop()
        there: asyncio.Future[None] = loop.create_future()
        late = loop.call_later(later.within_s, _settle, there, None)
        later.future.add_done_callback(lambda _: self._tell(loop, there))
        try:
            await there
        finally:
            late.cancel()

    def _tell(self, loop: asyncio.AbstractEventLoop, there: "asyncio.Future[None]") -> None:
        """Wake the loop, from any thread: once for all that are there by the time it looks, as a commit's are."""
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


_Result = TypeVar("_Result")


class _Threads:
    """Threads that work for the loop. What waits for one for long is refused, so that later ones need not wait."""

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for _ in range(number):
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def close(self) -> None:
        """Let them end."""
        for _ in range(self._number):
            self._jobs.put(None)

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Return what `work` returns; raise Problem where it fails."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()
        until = time.monotonic() + THREAD_WITHIN_S

        def job() -> None:
            outcome = _outcome(work) if time.monotonic() <= until else _too_many()
            with suppress(RuntimeError):  # the loop has been closed: it did not wait for this any longer
                loop.call_soon_threadsafe(_settle, done, outcome)

        self._jobs.put(job)
        return await done

    def _work(self) -> None:
        while job := self._jobs.get():
            job()


def _too_many() -> Problem:
    return Problem("unavailable", "too many requests at a time")


def _outcome(work: Callable[[], _Result]) -> _Result | Problem:
    try:
        return work()
    except Problem as problem:
        return problem
    except Exception as error:
        return problems.failure(error)


def _settle(future: "asyncio.Future[_Result]", outcome: _Result | Problem) -> None:
    if future.done():
        return
    if isinstance(outcome, Problem):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class _Exchange:
    """A request and what a WSGI application says to it."""

    def __init__(self, app: WSGIApplication, environ: WSGIEnvironment) -> None:
        self.environ = environ
        self._app = app
        self._status = ""
        self._fields: list[tuple[str, str]] = []
        self._written: list[bytes] = []

    def run(self) -> Answer:
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

    def answer(self, result: Iterable[bytes]) -> Answer:
        """Return the answer with this content."""
        try:
            content = b"".join([*self._written, *result])
        finally:
            if hasattr(result, "close"):
                result.close()
        return _answer_of(int(self._status[:3]), self._fields, content)


def _refusal(problem: Problem) -> Answer:
    """Return the answer to a request that did not come whole, after which its connection is of no use."""
    return _answer_of(
        problem.status, [*problems.headers_of(problem), ("Connection", "close")], problems.render(problem)
    )


def _answer_of(status: int, headers: list[tuple[str, str]], content: bytes) -> Answer:
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if content and not any(name == b"content-length" for name, _ in encoded):
        encoded.append((b"content-length", b"%d" % len(content)))
    return Answer(status, encoded, content)


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
