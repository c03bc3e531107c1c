"""The connection that uploads go over: `requests`, bounded in time and size. Imported when the first one is sent."""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from dither.sending.route import Route, check_authorities

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
ANSWER_TIMEOUT_S = 60.0
"""For all of an answer's head, and for all of its body: one that comes drop by drop never meets the read's timeout."""
ANSWER_BYTES_MAX = 16 * 1024


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
        if isinstance(verify, str) and route.url.startswith("https:") and not Path(verify).is_dir():
            check_authorities(Path(verify), "ca_file" if route.ca_file else _variable())
        if route.proxy:
            self._settings["proxies"] = {"https": route.proxy}
        elif route.here:
            self._settings["proxies"] = {}  # a proxy of the environment is for what is beyond this machine

    def post(self, body: bytes, stands: Callable[[], None]) -> tuple[int, Mapping[str, str], bytes]:
        """Send a body; return the answer's status, its headers, and its first bytes.

        Calls `stands` once, after TCP, a proxy's tunnel and TLS, and before the request's first byte; never where one
        of them failed. Raises what `stands` raises, as it is and with nothing sent, else whatever happens.
        """
        request = self._request.copy()
        request.prepare_body(body, None)
        with self._send(request, stands) as response:
            return response.status_code, response.headers, _first_bytes(response)

    def _send(self, request: requests.PreparedRequest, stands: Callable[[], None]) -> requests.Response:
        _attempt.stands = stands
        try:
            # By the adapter: a session would read a redirect's whole body, however long, to follow or not to follow it.
            return self._adapter.send(request, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S), **self._settings)
        except _Refused as refused:
            error = refused.error
        finally:
            _attempt.stands = None
        raise error  # outside the handler, which would become its context

    def close(self) -> None:
        """Close it."""
        self._adapter.close()


def _variable() -> str:
    """Return which variable of the environment names the authorities, in the order of `requests`."""
    return "REQUESTS_CA_BUNDLE" if os.environ.get("REQUESTS_CA_BUNDLE") else "CURL_CA_BUNDLE"


def _first_bytes(response: requests.Response) -> bytes:
    content = bytearray()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    for piece in response.iter_content(1):
        content += piece
        if len(content) >= ANSWER_BYTES_MAX or time.monotonic() > deadline:
            break
    return bytes(content)


class _Attempt(threading.local):
    """The attempt that a thread makes."""

    stands: Callable[[], None] | None = None
    """The call to make before the first byte; None once it was made."""


_attempt = _Attempt()


class _Refused(BaseException):
    """The exception that `stands` raised. No Exception: those are taken for the network's on the way, some of them
    swallowed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Connection(HTTPConnection):
    """A connection that asks `stands` before it sends, and whose answer's head has an end."""

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        """Send the head of a request, its first bytes. The CONNECT of a tunnel is sent in `connect`, not here."""
        if self.sock is None:
            self.connect()
        stands, _attempt.stands = _attempt.stands, None
        assert stands, "an attempt sends one request"
        try:
            stands()
        except Exception as error:
            raise _Refused(error) from error
        super().endheaders(*args, **kwargs)

    def getresponse(self) -> Any:
        """Read the head of the answer; after a time the connection is shut under it."""
        end = threading.Timer(ANSWER_TIMEOUT_S, _shut, [self.sock])
        end.daemon = True
        end.start()
        try:
            return super().getresponse()
        finally:
            end.cancel()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # the other side was first
        sock.shutdown(socket.SHUT_RDWR)


class _TlsConnection(_Connection, HTTPSConnection):
    """The same with TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}


class _Adapter(HTTPAdapter):
    """The adapter of requests, whose connections are ours, through a proxy too."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools, of our connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make a proxy's pools, of our connections."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def close(self) -> None:
        """Close the connections now: urllib3 waits until nothing refers to a pool, not even an error's traceback."""
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118  # the pools of urllib3 are no whole mapping
                with suppress(OSError):  # the host app may have closed all files
                    manager.pools[key].close()
        super().close()
