"""Servers of bare sockets on loopback: they show what has arrived, connection by connection, and when."""

import queue
import re
import select
import socket
import ssl
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, TypeVar

HANG_S = 60.0
"""A test that waits for so long has failed."""


class _Server(ThreadingTCPServer):
    """A thread a connection, with TLS where there is a context; leaving `running` waits for all of them."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)
        self.port = self.server_address[1]
        self._context = context

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(HANG_S)
        with suppress(OSError), self._wrap(request) as sock:  # the other side may leave, or want no TLS of ours
            self.serve(sock)

    def _wrap(self, sock: socket.socket) -> socket.socket:
        return self._context.wrap_socket(sock, server_side=True) if self._context else sock

    @abstractmethod
    def serve(self, sock: socket.socket) -> None:
        """Speak with one peer."""

    def leave(self) -> None:
        """Read what waits to be read."""


S = TypeVar("S", bound=_Server)


@contextmanager
def running(server: S) -> Iterator[S]:
    """Serve within the context; it ends when every connection has."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.leave()
            server.shutdown()
            thread.join(HANG_S)


class Aggregator(_Server):
    """Answers each request with what `answer` makes of its body. Reads none before `expect_nothing` or `hang_up`."""

    def __init__(
        self, events: list[str], answer: Callable[[bytes], bytes], context: ssl.SSLContext | None = None, keep: int = 99
    ) -> None:
        super().__init__(context)
        self.connections: list[list[bytes]] = []
        """The requests of each connection; beside whole ones whatever arrived of one."""
        self.left = threading.Semaphore(0)
        """Released for each connection that has ended: by the client, or after `keep` requests."""
        self._events, self._answer, self._keep = events, answer, keep
        self._standing: queue.Queue[socket.socket] = queue.Queue()
        self._read = threading.Semaphore(0)

    def serve(self, sock: socket.socket) -> None:
        try:
            with sock:
                self._serve(sock)
        finally:
            self.left.release()

    def _serve(self, sock: socket.socket) -> None:
        requests: list[bytes] = []
        self.connections.append(requests)
        for _ in range(self._keep):
            self._standing.put(sock)
            self._read.acquire()
            request = _read_request(sock)
            if not request:
                return
            self._events.append("request")
            requests.append(request)
            content = self._answer(request.partition(b"\r\n\r\n")[2])
            sock.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))

    def expect_nothing(self) -> None:
        """Assert that a connection stands on which nothing has arrived yet. Then let it be read."""
        sock = self._standing.get(timeout=HANG_S)
        sock.setblocking(False)
        try:
            early = sock.recv(1)  # on loopback what was sent has arrived
        except (BlockingIOError, ssl.SSLWantReadError):
            sock.settimeout(HANG_S)
        else:
            raise AssertionError(f"{early!r} arrived too early")
        finally:
            self._read.release()

    def hang_up(self) -> None:
        """Close the connection that stands."""
        self._standing.get(timeout=HANG_S).close()
        self._read.release()

    def leave(self) -> None:
        for _ in range(99):
            self._read.release()


class Proxy(_Server):
    """Answers each CONNECT with `reply`, and where that is a 200 relays to a port, whatever name it was asked for."""

    def __init__(
        self,
        events: list[str],
        port: int,
        reply: str = "200 Connection established",
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(context)
        self._events, self._target, self._reply = events, port, reply

    def serve(self, sock: socket.socket) -> None:
        self._events.append(_read_request(sock).split(b" ")[0].decode("ascii"))
        sock.sendall(f"HTTP/1.1 {self._reply}\r\n\r\n".encode("ascii") if self._reply else b"")
        if self._reply.startswith("200"):
            with socket.create_connection(("127.0.0.1", self._target)) as beyond:
                _relay(sock, beyond)


class Relay(_Server):
    """Passes everything on to a port: with a context, the TLS end in front of a server without TLS."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        super().__init__(context)
        self._target = port

    def serve(self, sock: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._target)) as beyond:
            _relay(sock, beyond)


class Speaker(_Server):
    """Says its words to everybody, and nothing else whatever it is told; hangs up at once where there are none."""

    def __init__(self, words: bytes | None) -> None:
        super().__init__()
        self._words = words

    def serve(self, sock: socket.socket) -> None:
        if self._words is not None:
            sock.sendall(self._words)
            while sock.recv(65_536):
                pass


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Pass on what either says until one ends. On one thread: two must not use a TLS socket at once."""
    while True:
        decrypted = isinstance(one, ssl.SSLSocket) and one.pending()
        for source in [one] if decrypted else select.select([one, other], [], [], HANG_S)[0]:
            piece = source.recv(65_536)
            if not piece:
                return
            (other if source is one else one).sendall(piece)


def _read_request(sock: socket.socket) -> bytes:
    """Return one request, or what arrived of it until the end."""
    request = b""
    with suppress(OSError):
        while piece := sock.recv(65_536):
            request += piece
            head, end, body = request.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            if end and len(body) >= (int(length[1]) if length else 0):
                break
    return request
