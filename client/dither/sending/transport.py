"""One HTTP request of an upload, and what its answer means."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from math import inf
from os import PathLike

from dither.app_process import IMPORTING, INFO, say
from dither.sending.route import find_route
from dither_shared.errors import ConfigurationError
from dither_shared.frozen import frozen, replaced
from dither_shared.light_typing import TYPE_CHECKING, Protocol
from dither_shared.wire import GROUPS_MAX, PROBLEM_PREFIX, REASONS

if TYPE_CHECKING:
    from dither.sending.connection import Connection

_DROP = frozenset({400, 409, 410, 411, 414, 415, 422, 431})
_ALL_RETIRED = "410 retired"
_ALL_REFUSED = "422 refused"
_EVERY_GROUP = tuple(range(GROUPS_MAX))
_TOO_LARGE = 413
_STOP = frozenset({401, 403})
_RETRY_AFTER_STEPS_S = (60.0, 600.0, 3_600.0, 21_600.0, 86_400.0)


class Outcome(Enum):
    """The device's next step with the upload after an attempt."""

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
    """False if there was no connection for certain, so that `stands` was not called and nothing can have arrived.

    A proxy that refused its tunnel, TLS that failed and a certificate that is not trusted count as no connection.
    """
    retired: tuple[int, ...] = ()
    """The places of the upload's groups whose plans are retired."""
    dry: bool = False
    """Whether the upload was shown and taken as sent, and nothing has left: flushes say so."""
    date: float | None = None
    """The Date of a receipt, in seconds since 1970; None where it has none."""


def check_key(key: str) -> str:
    """Return the key; raise ConfigurationError unless it can be sent in a header."""
    if not isinstance(key, str) or not (key.isascii() and key.isprintable() and key.split() == [key]):
        empty = ", got an empty one: is there a key where it is read from?" * (isinstance(key, str) and not key.strip())
        raise ConfigurationError(f"key must be the one that the aggregator printed: ASCII, without spaces{empty}")
    return key


class Transport(Protocol):
    """Sends an upload: over HTTP, or otherwise in a test."""

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        """Send one upload and say what to do with it. Never raises for what the network or the server does.

        Calls `stands` on this thread once a connection stands (TCP, a proxy's tunnel and TLS are done) and before the
        first byte of the request: once, or never where there was no connection for certain. `post` raises again what it
        raises; then nothing is sent, and the connection is closed.
        """

    def idle(self) -> None:
        """Let go of what is only needed while there is something to send."""


HEADERS = {
    "User-Agent": "dither",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}
"""The same for every device and upload; beside them go the key and the length."""


NOT_OURS = "without an answer of ours"
HAS_PATH = "; the endpoint has a path: leave it out, unless the aggregator has that --base-path"


class HttpTransport:
    """Posts uploads to one aggregator: constant headers, no cookies, no redirects."""

    def __init__(
        self, endpoint: str, key: str, proxy: str | None = None, ca_file: str | PathLike[str] | None = None
    ) -> None:
        self._route = find_route(endpoint, proxy, ca_file)
        self._key = check_key(key)
        self._connection: Connection | None = None
        self._made_in: tuple[int, object] = (0, None)

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        """Send one upload and say what to do with it, as Transport has it: at most one request is made."""
        moment = _Moment(stands)
        try:
            with IMPORTING.lock:
                from dither.sending.connection import Connection  # imports requests

            if self._connection is None or self._made_in != _here():
                # One that came with a fork belongs to the other process: both would talk over one another.
                self._made_in = _here()
                self._connection = Connection(self._route, HEADERS, self._key)
            answer = read_answer(*self._connection.post(body, moment), upload_id)
            elsewhere = answer.detail.startswith(("404 ", "405 ")) or answer.detail.endswith(NOT_OURS)
            return replaced(answer, detail=answer.detail + HAS_PATH) if elsewhere and self._route.has_path else answer
        except Exception as error:
            if error is moment.error:
                raise
            # Not only what requests documents: a captive portal's headers raise whatever they like within it.
            reason = str(error) if isinstance(error, ConfigurationError) else type(error).__name__
            return Answer(Outcome.KEPT, f"no answer ({reason})", connected=moment.came)

    def idle(self) -> None:
        """Close the connection: it may be a day until there is something to send again."""
        if self._connection is not None and self._made_in == _here():
            self._connection.close()
        self._connection = None


def _here() -> tuple[int, object]:
    """Return what a connection is good for: this process, with the sockets that it has by now, gevent's perhaps."""
    import socket  # not for a start

    return os.getpid(), socket.socket


class _Moment:
    """The moment when a connection stands: whether it came, and what the caller's `stands` raised then."""

    def __init__(self, stands: Callable[[], None]) -> None:
        self._stands = stands
        self.came = False
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.came = True
        try:
            self._stands()
        except Exception as error:
            self.error = error
            raise


class DryRun:
    """A transport that shows what would be sent, and takes it as sent."""

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        """Log the upload's bytes, which tell as little here as to an aggregator."""
        stands()
        say(INFO, "would send %s", body.decode("ascii").rstrip())
        return Answer(Outcome.ACCEPTED, "not sent: a dry run", dry=True)

    def idle(self) -> None:
        """Do nothing."""


def read_answer(status: int, headers: Mapping[str, str], content: bytes, upload_id: str) -> Answer:
    """Decide what an answer means for the upload `upload_id`.

    Only a receipt that names the upload, or a problem document of ours, can end it: a captive portal's page, a proxy's
    error or half an answer cannot.
    """
    document = _json_object(content)
    if status == 202 and document.get("upload") == upload_id:
        counts = [group.get("count") for group in _rejected(document)]
        refused = sum(count for count in counts if type(count) is int and count > 0)
        duplicate = document.get("duplicate") is True
        detail = f"accepted{_reasons(document, ', but not all')}"
        retired, date = _retired(document), read_date(headers.get("Date", "").strip(" \t"))
        return Answer(Outcome.ACCEPTED, detail, rejected=refused, duplicate=duplicate, retired=retired, date=date)
    # A problem of ours has a word for its type: it is logged and kept, and whatever else a server says is not.
    kind = document.get("type")
    if isinstance(kind, str) and (problem := re.fullmatch(re.escape(PROBLEM_PREFIX) + "([a-z][a-z-]{0,39})", kind)):
        detail = f"{status} {problem[1]}"
        if status in _DROP:
            retired = _retired(document) or (_EVERY_GROUP if detail == _ALL_RETIRED else ())
            return Answer(Outcome.DROPPED, detail + _reasons(document) * (detail == _ALL_REFUSED), retired=retired)
        if status == _TOO_LARGE:
            return Answer(Outcome.TOO_LARGE, detail)
        if status in _STOP:
            return Answer(Outcome.STOPPED, detail)
        return Answer(Outcome.KEPT, detail, retry_after_s=_retry_after_s(headers))
    return Answer(Outcome.KEPT, f"{status} {NOT_OURS}", retry_after_s=_retry_after_s(headers))


def _json_object(content: bytes) -> dict[str, object]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _rejected(document: dict[str, object]) -> list[dict[str, object]]:
    """Return the entries for refused groups, as far as they are objects."""
    rejected = document.get("rejected")
    return [group for group in rejected if isinstance(group, dict)] if isinstance(rejected, list) else []


def _reasons(document: dict[str, object], introduction: str = "") -> str:
    """Return why groups were refused, in the words of the wire alone: the other words may be anybody's."""
    given = [group.get("reason") for group in _rejected(document)]
    reasons = ", ".join(reason for reason in REASONS if reason in given)
    return f"{introduction}: {reasons}" if reasons else ""


def _retired(document: dict[str, object]) -> tuple[int, ...]:
    """Return the places of the groups that were refused as retired; skip what is no place in an upload."""
    places = [group.get("group") for group in _rejected(document) if group.get("reason") == "retired"]
    return tuple(sorted({place for place in places if type(place) is int and 0 <= place < GROUPS_MAX}))


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the server's wish rounded up to 1 min, 10 min, 1 h, 6 h or 24 h; 0 without one (RFC 9110, section 10.2.3).

    A moment counts from the answer's own `Date`, so that the device's clock may be wrong.
    """
    fields = {name.lower(): value.strip(" \t") for name, value in headers.items()}
    value = fields.get("retry-after", "")
    if value.isascii() and value.isdigit():
        wish_s = float(value[-10:]) if not value[:-10].strip("0") else inf
    elif (moment := read_date(value)) is not None:
        now = read_date(fields.get("date", ""))
        wish_s = moment - (time.time() if now is None else now)
    else:
        return 0.0
    return next((step for step in _RETRY_AFTER_STEPS_S if wish_s <= step), _RETRY_AFTER_STEPS_S[-1])


_DAYS = "Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_CLOCK = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DATES = (
    f"(?:{_DAYS}), (?P<day>[0-9]{{2}}) (?P<month>{_MONTHS}) (?P<year>[0-9]{{4}}) {_CLOCK} GMT",
    f"(?:{_DAYS}), (?P<day>[0-9]{{2}})-(?P<month>{_MONTHS})-(?P<year>[0-9]{{2}}) {_CLOCK} GMT",
    f"(?:{_DAYS}) (?P<month>{_MONTHS}) (?P<day>[ 0-9][0-9]) {_CLOCK} (?P<year>[0-9]{{4}})",
)
"""The three forms of a moment in HTTP, today's first (RFC 9110, section 5.6.7)."""


def read_date(text: str) -> float | None:
    """Return a moment in HTTP as seconds since 1970; None for a text that is none."""
    found = next(filter(None, (re.fullmatch(form, text) for form in _DATES)), None)
    if found is None:
        return None
    year, month = int(found["year"]), _MONTHS.split("|").index(found["month"]) + 1
    if len(found["year"]) == 2:  # of the hundred years of which 50 are to come
        this = datetime.now(UTC).year
        year += (this + 50 - year) // 100 * 100
    second = min(int(found["second"]), 59)  # 60 is a leap second
    try:
        day = datetime(year, month, int(found["day"]), int(found["hour"]), int(found["minute"]), second, tzinfo=UTC)
    except ValueError:
        return None
    return day.timestamp()
