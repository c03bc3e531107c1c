"""An HTTP server on this machine's loopback, for tests: a function replies to each request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

BODY_BYTES_MAX = 2 * 1024 * 1024
"""A longer body is not read."""
SILENCE_S = 60.0
"""A client that says nothing for so long is left."""


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    """b"" where no length was stated, or too long a one."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    """So many bytes of the body, at its end, are not sent, though the stated length counts them."""
    drip_s: float = 0.0
    """So long a wait before each byte of the body."""


class Loopback:
    """The server, while its context lasts. If `answer` returns None, the connection is closed without a reply."""

    def __init__(self, answer: Callable[[Request], Reply | None]) -> None:
        self._answer = answer
        self._server: ThreadingHTTPServer | None = None
        self._ended = threading.Event()

    @property
    def url(self) -> str:
        """The address, from when the context is entered."""
        if self._server is None:
            name = type(self).__name__
            raise RuntimeError(f"{name} serves within its context: with {name}(...) as server")
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answer))
        self._server.daemon_threads = True
        # Looked at so often, the end of the context does not take the half second of the default.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="loopback", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def _handler(answer: Callable[[Request], Reply | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_S

        def reply(self) -> None:
            with suppress(ConnectionError):  # the client may have left
                stated = self.headers.get("Content-Length", "")
                length = int(stated) if stated.isdecimal() and len(stated) < 10 else 0
                body = self.rfile.read(length) if length <= BODY_BYTES_MAX else b""
                reply = answer(Request(self.command, self.path, dict(self.headers), body))
                if reply is not None:
                    self.write(reply)

        do_CONNECT = do_DELETE = do_GET = do_POST = do_PUT = reply  # noqa: N815  # http.server's names

        def write(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            content = reply.body[: len(reply.body) - reply.cut]
            pieces = [content[place : place + 1] for place in range(len(content))] if reply.drip_s else [content]
            for piece in pieces:
                time.sleep(reply.drip_s)
                self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
            """Say nothing: a test looks at the requests."""

    return Handler
