"""The state of telemetry that an app can see, for a settings page or a bug report. Nothing here is sent."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from types import MappingProxyType

from dither.device import Device, Sending
from dither.device.days import EPOCH
from dither_shared.errors import DitherError
from dither_shared.exact import from_micro
from dither_shared.frozen import frozen

NOT_ASKED = "the person was not asked yet: set_consent(True) when they agree"
REFUSED = "the person refused"
CLOSED = "closed"


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

    @property
    def ask(self) -> bool:
        """Whether to ask the person: they have not chosen yet, or not agreed to all that the registry asks."""
        return self.silent == NOT_ASKED or (bool(self.asks) and self.silent != REFUSED)


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
    silent: str,
    failures: Mapping[str, int],
    *,
    development: bool,
) -> Status:
    """Return the status of a device, or of none where nothing is recorded."""
    word = {NOT_ASKED: "not-agreed", REFUSED: "refused"}.get(silent, "off")
    all_silent = dict.fromkeys(metrics, MetricStatus(word))
    if device is None:
        return Status(silent, counts=dict(failures), metrics=all_silent, development=development)
    return Status(
        silent or (REFUSED if device.choice() is False else ""),  # said in another process
        device.waiting(),
        {metric: from_micro(micro) for metric, micro in device.spent().items()},
        dict(Counter(device.counters()) + Counter(failures)),
        device.asks(),
        tuple(device.refused()),
        all_silent
        if silent
        else {
            name: MetricStatus(skip_reason.reason.value if skip_reason.reason else "", day_of(skip_reason.until))
            for name, skip_reason in device.skip_reasons().items()
        },
        device.sending(),
        device.erasing(),
        development,
    )


def day_of(number: int | None) -> date | None:
    """Return the date of a day that is counted from 1 January 1970."""
    return None if number is None else EPOCH + timedelta(days=number)


def describe_error(error: Exception) -> str:
    """Return what may be said of an error: its own words where they are ours, or SQLite's, which quote no answer."""
    if isinstance(error, sqlite3.Error):
        return f"the device file cannot be used now: {error}"
    return str(error) if isinstance(error, DitherError) else f"failed ({type(error).__name__})"
