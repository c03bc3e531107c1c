"""The connection that uploads go over: `requests`, bounded in time and size. Imported when the first one is sent.

These are all the names here that their libraries do not document: a pool's `ConnectionCls`, a connection's `sock` and
`socket_options`, each of which urllib3 reads anew for every address, and the file of that socket, from which
`http.client` reads an answer. Tried with requests 2.32.2 and 2.34.2, urllib3 1.26.17 and 2.8.0.
"""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from http.cookiejar import DefaultCookiePolicy

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from dither.sending.route import Route, check_authorities
from dither_shared.light_typing import Any

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
EXCHANGE_TIMEOUT_S = 60.0
"""For all of an exchange, from the first address that is tried to the answer's last trailer: the other two are for one
step each, and an answer that comes drop by drop never meets them. Above three times CONNECT_TIMEOUT_S."""
ANSWER_BYTES_MAX = 64 * 1024
"""For all of an answer: head, body and trailers with their framing. For a proxy's answer to CONNECT, too."""


class Connection:
    """A session with everything that is the same for every upload worked out once.

    Raises ConfigurationError for a file of authorities that holds none: `requests` would not say whose word it was.
    """

    def __init__(self, route: Route, headers: dict[str, str], key: str) -> None:
        self._session = requests.Session()
        self._session.headers.clear()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._adapter = _Adapter()

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {key}"
            return request

        # Given as `auth`, the key also wins over a .netrc entry for the host.
        self._request = self._session.prepare_request(requests.Request("POST", route.url, headers, auth=authorize))
        # The environment's proxies and certificates, as requests reads them; then what the app said.
        settings = self._session.merge_environment_settings(route.url, {}, True, route.ca_file or True, None)
        self._settings: dict[str, Any] = dict(settings)
        verify = self._settings["verify"]
        if isinstance(verify, str) and route.url.startswith("https:") and not os.path.isdir(verify):
            check_authorities(verify, "ca_file" if route.ca_file else _variable())
        if route.proxy:
            self._settings["proxies"] = {"https": route.proxy}
        elif route.here:
            self._settings["proxies"] = {}  # a proxy of the environment is for what is beyond this machine

    def post(self, body: bytes, stands: Callable[[], None]) -> tuple[int, Mapping[str, str], bytes]:
        """Send a body; return the answer's status, its headers, and its content.

        Calls `stands` once, after TCP, a proxy's tunnel and TLS, and before the request's first byte; never where one
        of them failed. Raises what `stands` raises, as it is and with nothing sent, else whatever happens: a server may
        say what it likes for ANSWER_BYTES_MAX and EXCHANGE_TIMEOUT_S, and no longer.
        """
        request = self._request.copy()
        request.prepare_body(body, None)
        with _Exchange(stands, EXCHANGE_TIMEOUT_S), self._send(request) as response:
            # As it came: what was to be sent as it is, and is compressed, is none of ours, and may become gigabytes.
            content: bytes = response.raw.read(ANSWER_BYTES_MAX, decode_content=False)
            return response.status_code, response.headers, content

    def _send(self, request: requests.PreparedRequest) -> requests.Response:
        try:
            # By the adapter: a session would read a redirect's whole body, however long, to follow or not to follow it.
            return self._adapter.send(request, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S), **self._settings)
        except _Refused as refused:
            error = refused.error
        raise error  # outside the handler, which would become its context

    def close(self) -> None:
        """Close it."""
        self._adapter.close()


def get(url: str, within_s: float) -> bytes:
    """Return what a server answers without a key, proxy or redirect, on the same terms. Raises whatever happens."""
    return _exchanged(requests.Request("GET", url, {"Accept-Encoding": "identity"}), within_s)[1]


def post(url: str, body: bytes, headers: Mapping[str, str], within_s: float) -> int:
    """Send a body likewise; return the answer's status."""
    return _exchanged(requests.Request("POST", url, dict(headers), data=body), within_s)[0]


def _exchanged(asked: requests.Request, within_s: float) -> tuple[int, bytes]:
    adapter = _Adapter()
    try:
        with _Exchange(lambda: None, within_s), adapter.send(asked.prepare(), timeout=within_s) as response:
            return response.status_code, response.raw.read(ANSWER_BYTES_MAX, decode_content=False)
    finally:
        adapter.close()


def _variable() -> str:
    """Return which variable of the environment names the authorities, in the order of `requests`."""
    return "REQUESTS_CA_BUNDLE" if os.environ.get("REQUESTS_CA_BUNDLE") else "CURL_CA_BUNDLE"


class _Exchange:
    """One request and its answer on the thread that enters it; another thread shuts the connection when time is up.

    A socket's timeout is for one step alone: a proxy's head, TLS within TLS and an answer have as many as they like.
    """

    def __init__(self, stands: Callable[[], None], within_s: float) -> None:
        self._stands: Callable[[], None] | None = stands
        self._half_time = time.monotonic() + within_s / 2
        self._over = False
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._end = threading.Timer(within_s, self._shut)
        self._end.daemon = True

    def __enter__(self) -> None:
        with suppress(RuntimeError):  # no thread can be started: each step has a timeout of its own
            self._end.start()
        self._outer = _exchange.set(self)

    def __exit__(self, *_: object) -> None:
        _exchange.reset(self._outer)
        self._end.cancel()
        if self._end.ident is not None:
            self._end.join()
        for sock in self._sockets:
            sock.close()

    def may_try(self) -> None:
        """Raise TimeoutError if it is too late to try one more address: TCP and TLS take a timeout each."""
        if time.monotonic() > self._half_time:
            raise TimeoutError("no address answered in time")

    def watch(self, sock: socket.socket) -> None:
        """Shut a socket's connection when time is up."""
        # A duplicate: TLS takes over the descriptor, and hands out the socket that has it when its handshake is done.
        double = socket.fromfd(sock.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with self._lock:
            self._sockets.append(double)
            if self._over:
                raise TimeoutError("time is up")

    def _shut(self) -> None:
        with self._lock:
            self._over = True
            for sock in self._sockets:
                with suppress(OSError):  # the other side was first
                    sock.shutdown(socket.SHUT_RDWR)

    def ask(self) -> None:
        """Call `stands`, before the first byte."""
        stands, self._stands = self._stands, None
        assert stands, "an exchange sends one request"
        try:
            stands()
        except Exception as error:
            raise _Refused(error) from error


_exchange: ContextVar[_Exchange] = ContextVar("_exchange")
"""The exchange that a thread is in, gevent's too."""


class _Refused(BaseException):
    """The exception that `stands` raised. No Exception: those are taken for the network's on the way, some of them
    swallowed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Answer(io.RawIOBase):
    """The bytes of one answer, as they come from a socket's file: so many, and then an error."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._left = ANSWER_BYTES_MAX

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what there is."""
        if not self._left:
            raise OSError(f"an answer must have at most {ANSWER_BYTES_MAX} bytes")
        count: int | None = self._file.readinto(memoryview(buffer)[: self._left])
        self._left -= count or 0
        return count

    def close(self) -> None:
        """Close the socket's file."""
        self._file.close()
        super().close()


class _Socket:
    """A socket whose file holds one answer and no more."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the file that an answer is read from."""
        return io.BufferedReader(_Answer(self._sock.makefile(mode, 0)))


class _Options:
    """The options of a host's sockets: urllib3 reads them for each of its addresses, before it tries that one."""

    def __init__(self, options: Iterable[tuple[int, int, int | bytes]] | None) -> None:
        self._options = list(options or ())

    def __iter__(self) -> Iterator[tuple[int, int, int | bytes]]:
        _exchange.get().may_try()
        return iter(self._options)


class _Connection(HTTPConnection):
    """A connection that asks `stands` before it sends; its sockets are watched and their answers bounded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.socket_options: Any = _Options(self.socket_options)

    @property
    def sock(self) -> Any:
        """The socket: to a proxy, then through it, then with TLS."""
        return self._sock

    @sock.setter
    def sock(self, sock: Any) -> None:
        self._sock = None if sock is None else _Socket(sock)
        if sock is not None:
            _exchange.get().watch(sock)

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        """Send the head of a request, its first bytes. The CONNECT of a tunnel is sent in `connect`, not here."""
        if self.sock is None:
            self.connect()
        _exchange.get().watch(self.sock)  # it may have been used before
        _exchange.get().ask()
        super().endheaders(*args, **kwargs)


class _TlsConnection(_Connection, HTTPSConnection):
    """The same with TLS."""


class _Adapter(HTTPAdapter):
    """The adapter of requests, whose connections are ours, through a proxy too."""

    def __init__(self) -> None:
        super().__init__()
        self._used: set[Any] = set()

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the pool for a request, which makes connections of ours."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _TlsConnection if pool.scheme == "https" else _Connection
        self._used.add(pool)
        return pool

    def close(self) -> None:
        """Close the connections now: urllib3 waits until nothing refers to a pool, not even an error's traceback."""
        for pool in self._used:
            with suppress(OSError):  # the host app may have closed all files
                pool.close()
        super().close()
