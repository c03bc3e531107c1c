"""uvicorn, set up so that no client can wear it out, and whatever it refuses by itself is a problem document too."""

import asyncio
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from wsgiref.types import WSGIApplication

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dither_aggregator.web import problems
from dither_aggregator.web.gateway import Gateway
from dither_shared.errors import ConfigurationError
from dither_shared.wire.problems import Problem

CONNECTIONS_MAX = 2_000
BACKLOG = 1_024
HEADER_BYTES_MAX = 16 * 1024
REQUEST_WITHIN_S = 20.0
"""From a connection's or a request's begin to the end of its body."""
IDLE_WITHIN_S = 75
"""Longer than a proxy keeps a connection for later: it is the proxy that should end it."""
DRAIN_WITHIN_S = 25
"""How long a server that ends waits for what it is being asked."""
TELL_EVERY_S = 0.1

# What uvicorn has to say at lower levels is about clients that do not speak HTTP.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class _HeadTooLarge(Exception):
    pass


class _Protocol(HttpToolsProtocol):
    """One connection. Beyond uvicorn's: a deadline for each request, a limit for its head, refusals in our words."""

    _in_head = False
    _head_bytes = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client a time to say something, unless there are too many already."""
        super().connection_made(transport)
        self._begin()
        if len(self.connections) > CONNECTIONS_MAX:
            self._refuse(Problem("unavailable", "too many connections at a time"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on. What comes after an answer is the head of another request, however slowly."""
        if not self._in_head and (self.cycle is None or self.cycle.response_complete):
            self._begin()
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEADER_BYTES_MAX:
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """Let the request be answered, now that its head is there."""
        self._head_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._head_bytes > HEADER_BYTES_MAX:
            raise _HeadTooLarge  # and so to send_400_response
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Let the request take its time, now that it is whole."""
        self._end()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, unless that would pass for the answer to an earlier request."""
        if self.pipeline or self._answering():
            self.transport.close()
        elif self._in_head and self._head_bytes > HEADER_BYTES_MAX:
            self._refuse(Problem("headers-too-large", f"the headers must have at most {HEADER_BYTES_MAX} bytes"))
        else:
            self._refuse(Problem("malformed", "this is not HTTP"))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has said all and closed its half; then close the other."""
        if not self._answering():
            return False
        self.cycle.keep_alive = False
        return True

    def _answering(self) -> bool:
        """Tell whether a whole request waits for its answer."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _begin(self) -> None:
        self._end()
        self._in_head, self._head_bytes = True, 0
        self._deadline = self.loop.call_later(REQUEST_WITHIN_S, self.transport.close)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        body = problems.render(problem)
        headers = [*problems.headers_of(problem), ("Content-Length", str(len(body))), ("Connection", "close")]
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(f"HTTP/1.1 {problems.status_of(problem)}\r\n{head}\r\n".encode("ascii") + body)
        self.transport.close()


class _Server(uvicorn.Server):
    """Beyond uvicorn's: a connection that was still being made when the others were told to end is told as well."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that have begun, and end."""
        telling = asyncio.create_task(self._tell_again())
        try:
            await super().shutdown(sockets)
        finally:
            telling.cancel()

    async def _tell_again(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            for connection in list(self.server_state.connections):
                connection.shutdown()


class Listener:
    """A listening socket. Raises ConfigurationError when the address cannot be had; port 0 is any free one."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = _listen(host, port)
        host, port = self.socket.getsockname()[:2]
        self.url = _url(host, port)
        self.reachable_from_elsewhere = not ipaddress.ip_address(host).is_loopback


class ListenerServer:
    """Answers what comes to a listener, which other processes may share."""

    def __init__(self, app: WSGIApplication, listener: Listener) -> None:
        self._listener = listener
        self._gateway = Gateway(app)
        self._server = _Server(
            uvicorn.Config(
                self._gateway,
                loop="asyncio",  # uvloop was not faster here
                http=_Protocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=IDLE_WITHIN_S,
                timeout_graceful_shutdown=DRAIN_WITHIN_S,
            )
        )

    def run(self) -> None:
        """Answer requests until SIGINT, SIGTERM or `stop`; the requests that have begun are finished.

        The signal is then raised again, for whatever the caller set for it: by default KeyboardInterrupt.
        """
        try:
            with self._stopped_by_signals():
                self._server.run(sockets=[self._listener.socket])
        finally:
            self._gateway.close()

    def stop(self) -> None:
        """End `run`, from any thread or signal handler, after the requests that have begun."""
        self._server.should_exit = True

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """Hear signals before uvicorn's loop does, and after."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard: set[int] = set()

        def hear(number: int, _frame: object) -> None:
            heard.add(number)
            self.stop()

        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        for each in heard:
            signal.raise_signal(each)


class HttpServer(ListenerServer):
    """A server with an address of its own. Raises as Listener does."""

    def __init__(self, app: WSGIApplication, host: str, port: int) -> None:
        listener = Listener(host, port)
        super().__init__(app, listener)
        self.url = listener.url
        self.reachable_from_elsewhere = listener.reachable_from_elsewhere

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Answer requests on a thread of its own while the block runs."""
        thread = threading.Thread(target=self.run, name="http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(DRAIN_WITHIN_S + 5)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host's name"
        raise ConfigurationError(f"cannot listen on {host}: {reason}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror}; name another --port, or 0 for any free one"
        ) from None
    return listener


def _url(host: str, port: int) -> str:
    """Return the address that reaches a bound socket from this machine."""
    ip = ipaddress.ip_address(host)
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    return f"http://[{ip}]:{port}" if ip.version == 6 else f"http://{ip}:{port}"
