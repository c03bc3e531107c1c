"""One HTTP request of an upload, and what its answer means."""

import json
import logging
import os
import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from dither.say import say
from dither_shared.errors import ConfigurationError
from dither_shared.frozen import frozen
from dither_shared.wire import PATH, PROBLEM_PREFIX

if TYPE_CHECKING:
    from dither.sending.connection import Connection

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


class NotConnected(Exception):
    """There was no connection for certain: not to the aggregator, nor to a proxy."""


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
        self._connection: Connection | None = None
        self._process = os.getpid()

    def post(self, upload_id: str, body: bytes) -> Answer:
        """Send one upload and say what to do with it. Never raises for what the network or the server does."""
        try:
            from dither.sending.connection import Connection  # imports requests

            if self._connection is None or self._process != os.getpid():
                # One that came with a fork belongs to the other process: both would talk over one another.
                self._process = os.getpid()
                beyond = not is_loopback(urlsplit(self._url).hostname or "")
                self._connection = Connection(self._url, HEADERS, self._key, trust_env=beyond)
            return read_answer(*self._connection.post(body), upload_id)
        except Exception as error:
            # Not only what requests documents: a captive portal's headers raise whatever they like within it.
            why = type(error.__cause__ or error).__name__
            return Answer(Outcome.KEPT, f"no answer ({why})", connected=not isinstance(error, NotConnected))

    def idle(self) -> None:
        """Close the connection: it may be a day until there is something to send again."""
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None


class DryRun:
    """A transport that shows what would be sent, and takes it as sent."""

    def post(self, upload_id: str, body: bytes) -> Answer:
        """Log the upload's bytes, which tell as little here as to an aggregator."""
        say(logging.INFO, "would send %s", body.decode("ascii").rstrip())
        return Answer(Outcome.ACCEPTED, "not sent: a dry run")

    def idle(self) -> None:
        """Do nothing."""


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
