"""From the event loop to WSGI: a request is read whole, within limits, before it takes a thread.

So slow clients, however many, cost a connection and a little memory each, and never a thread.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from queue import SimpleQueue
from typing import Any
from urllib.parse import unquote_to_bytes
from wsgiref.types import WSGIApplication, WSGIEnvironment

from dither_aggregator.web import problems
from dither_shared.wire import PATH, WIRE_BYTES_MAX, Problem

BODY_BYTES_MAX = 2 * 1024 * 1024
"""A body up to here is read, and refused in words where it is too long; a longer one is cut off."""
BUFFERED_BYTES_MAX = 128 * 1024 * 1024
"""Of all bodies together."""
THREAD_WITHIN_S = 10.0
OTHER_THREADS = 4
"""For what is not an upload: pages are still answered when uploads wait for a store that hangs."""
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


_Job = tuple[WSGIEnvironment, asyncio.AbstractEventLoop, "asyncio.Future[Answer]", float]


class Gateway:
    """An ASGI application in front of a WSGI one. `threads` is how many uploads it answers at a time."""

    def __init__(self, app: WSGIApplication, threads: int) -> None:
        self._uploads = _Threads(app, threads, "upload")
        self._others = _Threads(app, OTHER_THREADS, "request")
        self._health = _Threads(app, 1, "health")
        self._buffered = 0

    def close(self) -> None:
        """Let the threads end."""
        self._uploads.close()
        self._others.close()
        self._health.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = bytearray()
        try:
            await self._read(scope, receive, body)
            answer = await self._threads(scope["path"]).answer(environ_of(scope, bytes(body)))
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

    def _threads(self, path: str) -> "_Threads":
        return self._uploads if path == PATH else self._health if path in HEALTH else self._others

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
                raise Problem("unavailable", "too many requests at a time")
        if length > length_max:
            raise Problem("too-large", too_large)


class _Threads:
    """Threads that answer requests. One that has waited for long is refused, so that those after it need not wait."""

    def __init__(self, app: WSGIApplication, number: int, name: str) -> None:
        self._app = app
        self._number = number
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        for _ in range(number):
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def close(self) -> None:
        """Let them end."""
        for _ in range(self._number):
            self._jobs.put(None)

    async def answer(self, environ: WSGIEnvironment) -> Answer:
        """Return the application's answer."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        self._jobs.put((environ, loop, answered, time.monotonic() + THREAD_WITHIN_S))
        return await answered

    def _work(self) -> None:
        while job := self._jobs.get():
            environ, loop, answered, until = job
            try:
                late = time.monotonic() > until
                answer = (
                    _refusal(Problem("unavailable", "too many requests at a time"))
                    if late
                    else call(self._app, environ)
                )
            except Exception as error:
                answer = _refusal(problems.failure(error))
            with suppress(RuntimeError):  # the loop has been closed: it did not wait for this one any longer
                loop.call_soon_threadsafe(_settle, answered, answer)


def _settle(answered: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not answered.done():
        answered.set_result(answer)


def call(app: WSGIApplication, environ: WSGIEnvironment) -> Answer:
    """Return a WSGI application's whole answer."""
    status = ""
    fields: list[tuple[str, str]] = []
    written: list[bytes] = []

    def start_response(line: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], None]:
        nonlocal status, fields
        status, fields = line, headers
        return written.append

    result = app(environ, start_response)
    try:
        content = b"".join([*written, *result])
    finally:
        if hasattr(result, "close"):
            result.close()
    return _answer_of(int(status[:3]), fields, content)


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
