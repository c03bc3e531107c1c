"""One HTTP request of an upload, and what its answer means. `requests` is imported here, when the first one is sent."""

import json
import logging
import os
import re
import time
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from dither.say import say
from dither_shared.errors import ConfigurationError
from dither_shared.frozen import frozen
from dither_shared.wire import PATH, PROBLEM_PREFIX

if TYPE_CHECKING:
    import requests

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
ANSWER_TIMEOUT_S = 60.0
"""For an answer that comes drop by drop."""
ANSWER_BYTES_MAX = 16 * 1024

_DROP = frozenset({400, 409, 410, 411, 414, 415, 422, 431})
_TOO_LARGE = 413
_STOP = frozenset({401, 403})
_RETRY_AFTER_STEPS_S = (60.0, 600.0, 3_600.0, 21_600.0, 86_400.0)


class Outcome(Enum):
    """What the device does with the upload after an attempt."""

    ACCEPTED = "accepted"
    """Durably stored, now or before: forget it."""
    DROPPED = "dropped"
    """It will never be taken: forget it and count it."""
    STOPPED = "stopped"
    """The key is wrong: keep it, and send nothing until the configuration changes."""
    KEPT = "kept"
    """Anything else: send the same bytes again later."""
    TOO_LARGE = "too-large"
    """Refused for its size: send halves under new ids, if nothing of it can have been stored."""


@frozen
class Answer:
    """The outcome of one attempt."""

    outcome: Outcome
    detail: str
    """For people: what came back, in a few words."""
    rejected: int = 0
    """Reports of an accepted upload whose groups were refused."""
    duplicate: bool = False
    """Whether an accepted upload had been counted before."""
    retry_after_s: float = 0.0
    connected: bool = True
    """False if there was no connection for certain, so that nothing can have arrived."""


def check_endpoint(endpoint: str) -> str:
    """Return the address that uploads go to; raise ConfigurationError unless it is https, or http on loopback."""
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        valid = False
    if isinstance(endpoint, str) and "@" in endpoint:
        raise ConfigurationError("endpoint must be like https://telemetry.example.org, without a user or a password")
    if not valid or any(character in endpoint for character in "?#"):
        raise ConfigurationError(f"endpoint must be like https://telemetry.example.org, got {endpoint!r}")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(f"endpoint must be https beyond this machine, got {endpoint!r}")
    return endpoint.rstrip("/") + PATH


def check_key(key: str) -> str:
    """Return the key; raise ConfigurationError unless it can be sent in a header."""
    if not isinstance(key, str) or not re.fullmatch(r"[!-~]+", key):
        raise ConfigurationError("key must be the one that the aggregator printed: ASCII, without spaces")
    return key


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine's loopback."""
    import ipaddress  # only for addresses without TLS

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Transport(Protocol):
    """What sends an upload: over HTTP, or otherwise in a test."""

    def post(self, upload_id: str, body: bytes) -> Answer:
        """Send one upload and say what to do with it. Never raises for what the network or the server does."""

    def idle(self) -> None:
        """Let go of what is only needed while there is something to send."""


HEADERS = {
    "User-Agent": "dither",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}
"""The same for every device and upload; beside them go the key and the length."""


class HttpTransport:
    """Posts uploads to one aggregator: constant headers, no cookies, no redirects."""

    def __init__(self, endpoint: str, key: str) -> None:
        self._url = check_endpoint(endpoint)
        self._key = check_key(key)
        self._connection: _Connection | None = None
        self._process = os.getpid()

    def post(self, upload_id: str, body: bytes) -> Answer:
        """Send one upload and say what to do with it. Never raises for what the network or the server does."""
        try:
            if self._connection is None or self._process != os.getpid():
                # One that came with a fork belongs to the other process: both would talk over one another.
                self._connection, self._process = _Connection(self._url, self._key), os.getpid()
            with self._connection.post(body) as response:
                return read_answer(response.status_code, response.headers, _content(response), upload_id)
        except Exception as error:
            # Not only what requests documents: a captive portal's headers raise whatever they like within it.
            return Answer(Outcome.KEPT, f"no answer ({type(error).__name__})", connected=not _unconnected(error))

    def idle(self) -> None:
        """Close the connection: it may be a day until there is something to send again."""
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None


class _Connection:
    """A session with everything that is the same for every upload worked out once."""

    def __init__(self, url: str, key: str) -> None:
        from http.cookiejar import DefaultCookiePolicy

        import requests

        self._session = requests.Session()
        self._session.headers.clear()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.trust_env = not is_loopback(urlsplit(url).hostname or "")

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {key}"
            return request

        # Given as `auth`, the key also wins over a .netrc entry for the host.
        self._request = self._session.prepare_request(requests.Request("POST", url, HEADERS, auth=authorize))
        self._settings = self._session.merge_environment_settings(url, {}, True, None, None)

    def post(self, body: bytes) -> "requests.Response":
        request = self._request.copy()
        request.prepare_body(body, None)
        # By the adapter: the session would read a redirect's whole body, however long, to follow or not to follow it.
        adapter = self._session.get_adapter(request.url or "")
        timeout = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
        return adapter.send(request, timeout=timeout, **self._settings)  # type: ignore[arg-type]  # as requests does

    def close(self) -> None:
        self._session.close()


class DryRun:
    """A transport that shows what would be sent, and takes it as sent."""

    def post(self, upload_id: str, body: bytes) -> Answer:
        """Log the upload's bytes, which tell as little here as to an aggregator."""
        say(logging.INFO, "would send %s", body.decode("ascii").rstrip())
        return Answer(Outcome.ACCEPTED, "not sent: a dry run")

    def idle(self) -> None:
        """Do nothing."""


def _content(response: "requests.Response") -> bytes:
    """Return the first bytes of an answer, which may be all that a hostile one gives in the time that it has."""
    content = bytearray()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    for piece in response.iter_content(1):
        content += piece
        if len(content) >= ANSWER_BYTES_MAX or time.monotonic() > deadline:
            break
    return bytes(content)


def _unconnected(error: Exception) -> bool:
    """Tell whether an error says for certain that there was no connection to the aggregator or its proxy."""
    from requests.exceptions import ConnectTimeout
    from urllib3.exceptions import NewConnectionError

    # Requests wraps urllib3's MaxRetryError, which has the reason.
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, ConnectTimeout) or isinstance(reason, NewConnectionError)


def read_answer(status: int, headers: Mapping[str, str], content: bytes, upload_id: str) -> Answer:
    """Decide what an answer means for the upload `upload_id`.

    Only a receipt that names the upload, or a problem document of ours, can end it: a captive portal's page, a proxy's
    error or half an answer cannot.
    """
    document = _json_object(content)
    if status == 202 and document.get("upload") == upload_id:
        rejected = document.get("rejected")
        counts = (
            [group.get("count") for group in rejected if isinstance(group, dict)] if isinstance(rejected, list) else []
        )
        refused = sum(count for count in counts if type(count) is int and count > 0)
        return Answer(Outcome.ACCEPTED, "accepted", rejected=refused, duplicate=document.get("duplicate") is True)
    kind = document.get("type")
    if isinstance(kind, str) and kind.startswith(PROBLEM_PREFIX):
        detail = f"{status} {kind.removeprefix(PROBLEM_PREFIX)}"
        if status in _DROP:
            return Answer(Outcome.DROPPED, detail)
        if status == _TOO_LARGE:
            return Answer(Outcome.TOO_LARGE, detail)
        if status in _STOP:
            return Answer(Outcome.STOPPED, detail)
        return Answer(Outcome.KEPT, detail, retry_after_s=_retry_after_s(headers))
    return Answer(Outcome.KEPT, f"{status} without an answer of ours", retry_after_s=_retry_after_s(headers))


def _json_object(content: bytes) -> dict[str, object]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the server's wish rounded up to 1 min, 10 min, 1 h, 6 h or 24 h; 0 without one."""
    value = headers.get("Retry-After", "")
    if not (value.isascii() and value.isdigit()) or len(value) > 9:
        return 0.0
    return next((step for step in _RETRY_AFTER_STEPS_S if int(value) <= step), _RETRY_AFTER_STEPS_S[-1])
