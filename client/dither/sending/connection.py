"""The connection that uploads go over: `requests`, bounded in time and size. Imported when the first one is sent."""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from threading import Timer
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectTimeout
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

from dither.sending.transport import NotConnected

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
ANSWER_TIMEOUT_S = 60.0
"""For all of an answer's head, and for all of its body: one that comes drop by drop never meets the read's timeout."""
ANSWER_BYTES_MAX = 16 * 1024


class Connection:
    """A session with everything that is the same for every upload worked out once."""

    def __init__(self, url: str, headers: dict[str, str], key: str, *, trust_env: bool) -> None:
        self._session = requests.Session()
        self._session.headers.clear()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.trust_env = trust_env
        self._adapter = _Adapter()

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {key}"
            return request

        # Given as `auth`, the key also wins over a .netrc entry for the host.
        self._request = self._session.prepare_request(requests.Request("POST", url, headers, auth=authorize))
        self._settings: dict[str, Any] = dict(self._session.merge_environment_settings(url, {}, True, None, None))

    def post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Send a body; return the answer's status, its headers, and its first bytes.

        Raises NotConnected where there was no connection for certain, else whatever happens.
        """
        request = self._request.copy()
        request.prepare_body(body, None)
        # By the adapter: a session would read a redirect's whole body, however long, to follow or not to follow it.
        try:
            response = self._adapter.send(request, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S), **self._settings)
        except requests.ConnectionError as error:
            # It wraps urllib3's MaxRetryError, which has the reason.
            reason = getattr(error.args[0], "reason", None) if error.args else None
            if isinstance(error, ConnectTimeout) or isinstance(reason, NewConnectionError):
                raise NotConnected from error
            raise
        with response:
            return response.status_code, response.headers, _first_bytes(response)

    def close(self) -> None:
        """Close it."""
        self._adapter.close()


def _first_bytes(response: requests.Response) -> bytes:
    content = bytearray()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    for piece in response.iter_content(1):
        content += piece
        if len(content) >= ANSWER_BYTES_MAX or time.monotonic() > deadline:
            break
    return bytes(content)


def _bounded(read_head: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `getresponse` with an end: after a time the connection is shut under it."""

    def getresponse(self: Any) -> Any:
        end = Timer(ANSWER_TIMEOUT_S, _shut, [self.sock])
        end.daemon = True
        end.start()
        try:
            return read_head(self)
        finally:
            end.cancel()

    return getresponse


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # the other side was first
        sock.shutdown(socket.SHUT_RDWR)


class _BoundedConnection(HTTPConnection):
    getresponse = _bounded(HTTPConnection.getresponse)


class _BoundedTlsConnection(HTTPSConnection):
    getresponse = _bounded(HTTPSConnection.getresponse)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _BoundedConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _BoundedTlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}


class _Adapter(HTTPAdapter):
    """The adapter of requests, whose connections are bounded, through a proxy too."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools, of our connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make a proxy's pools, of our connections."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager
