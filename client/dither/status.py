"""The state of telemetry that an app can see, for a settings page or a bug report. Nothing here is sent."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from enum import Enum
from types import MappingProxyType

from dither.device import Device, Sending, SkipReason
from dither.device.recording import EPOCH, HIDDEN, MEANINGS, NEXT_STEPS, UNRECORDED, UNUSED, Silence
from dither_shared.errors import DitherError
from dither_shared.exact import from_micro
from dither_shared.frozen import frozen


class Mode(Enum):
    """Whether telemetry records and sends, or what keeps it from both."""

    SPEAKS = "speaks"
    NOT_ASKED = "not asked"
    REFUSED = "refused"
    CLOSED = "closed"
    FAULT = "fault"
    """The file cannot be used now; it is tried again."""
    OFF = "off"
    """The environment, or what `start()` was given, allows nothing, or the file is not this app's to use."""


NAMED_MAX = 3
"""So many metrics of one reason are named."""
NOT_ASKED = "the person was not asked yet: set_consent(True) when they agree"
REFUSED = "the person refused"
CLOSED = "closed"
_SILENT = {Mode.SPEAKS: "", Mode.NOT_ASKED: NOT_ASKED, Mode.REFUSED: REFUSED, Mode.CLOSED: CLOSED}


@frozen
class Standing:
    """The mode of telemetry, with the fault where it has one."""

    mode: Mode
    fault: str = ""

    @property
    def silent(self) -> str:
        """Why nothing is recorded or sent at all, in words; "" while something is."""
        return _SILENT.get(self.mode, self.fault)


@frozen
class MetricStatus:
    """Whether a metric takes an answer now."""

    silent: str = ""
    """Why it does not, in a word of `client/device.md`, such as "answered" or "expired"; "" if it does."""
    until: date | None = None
    """The first UTC day on which that may be over; None if it is not over by itself."""


@frozen
class Status:
    """The counts of a device, and why it is silent."""

    silent: str
    """Why nothing is recorded or sent at all; "" while something is."""
    waiting: int = 0
    """Reports that wait to be sent."""
    spent: Mapping[str, float] = MappingProxyType({})
    """Epsilon charged so far, by metric."""
    counts: Mapping[str, int] = MappingProxyType({})
    """Reports accepted; answers and reports not sent, by reason; "unlisted" answers, which were sent as "other"."""
    asks: Mapping[str, list[str]] = MappingProxyType({})
    """Terms beyond what the person agreed to, by metric, and by "" for all: silent until `set_consent(True)`."""
    refused: Sequence[str] = ()
    """Metrics that the person refuses."""
    metrics: Mapping[str, MetricStatus] = MappingProxyType({})
    """Why each metric is silent and until when; of a hidden one, whether its present period was answered, too."""
    sending: Sending = Sending()
    """The outcome of the last attempt to send, and the moment of the next one."""
    erasing: bool = False
    """Whether what was forgotten is still to be erased, because another process reads the file."""
    development: bool = False
    """Whether telemetry was started with `development`: nothing reaches an aggregator beyond this machine."""
    ask: bool = False
    """Whether to ask the person: they have not chosen yet, or not agreed to all that the registry asks."""


@frozen
class Preview:
    """The upload that is sent next."""

    body: bytes
    """Its bytes, but for the id if it is not built yet; b"" if nothing is due, or another process writes."""
    cost: dict[str, float]
    """The epsilon that it costs, by metric."""


def status_of(
    device: Device | None,
    metrics: Collection[str],
    standing: Standing,
    failures: Mapping[str, int],
    *,
    development: bool,
) -> Status:
    """Return the status of a device, or of none where nothing is recorded."""
    word = {Mode.NOT_ASKED: "not-agreed", Mode.REFUSED: "refused"}.get(standing.mode, "off")
    all_silent = dict.fromkeys(metrics, MetricStatus(word))
    if device is None:
        return Status(
            standing.silent,
            counts=dict(failures),
            metrics=all_silent,
            development=development,
            ask=standing.mode is Mode.NOT_ASKED,
        )
    speaks = standing.mode is Mode.SPEAKS
    if speaks and device.choice() is False:  # said in another process
        standing = Standing(Mode.REFUSED)
    asks = device.asks()
    return Status(
        standing.silent,
        device.waiting(),
        {metric: from_micro(micro) for metric, micro in device.spent().items()},
        dict(Counter(device.counters()) + Counter(failures)),
        asks,
        tuple(device.refused()),
        {name: _metric_status(skip) for name, skip in device.skip_reasons().items()} if speaks else all_silent,
        device.sending(),
        device.erasing(),
        development,
        ask=standing.mode is Mode.NOT_ASKED or (bool(asks) and standing.mode is not Mode.REFUSED),
    )


def nothing_sent(skips: Mapping[str, SkipReason], hidden: Collection[str], own: Collection[str]) -> str:
    """Return why nothing leaves, and the next step, by metric; `own` are those that the device answers itself.

    An app may log it, so the words for a hidden metric are the same whether there is an answer or not.
    """
    named: dict[tuple[str, date | None], list[str]] = {}
    for name, skip in skips.items():
        word, until = skip.reason or (UNUSED if name in own else UNRECORDED), skip.until
        if name in hidden and word in (UNRECORDED, Silence.ANSWERED, Silence.UNOPENED, Silence.WAITING):
            word, until = HIDDEN, None
        named.setdefault((word, day_of(until)), []).append(name)
    parts = [
        f"{_few(names)}: {word}{f' until {until}' if until else ''} ({MEANINGS[word]}): {NEXT_STEPS[word]}"
        for (word, until), names in named.items()
    ]
    return f"nothing to send: {'; '.join(parts)}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _metric_status(skip: SkipReason) -> MetricStatus:
    return MetricStatus(skip.reason.value if skip.reason else "", day_of(skip.until))


def day_of(number: int | None) -> date | None:
    """Return the date of a day that is counted from 1 January 1970."""
    return None if number is None else EPOCH + timedelta(days=number)


def describe_error(error: Exception) -> str:
    """Return what may be said of an error: its own words where they are ours, or SQLite's, which quote no answer."""
    if isinstance(error, sqlite3.Error):
        return f"the device file cannot be used now: {error}"
    return str(error) if isinstance(error, DitherError) else f"failed ({type(error).__name__})"
