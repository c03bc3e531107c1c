"""What a host app holds: `start()`, the telemetry object, and a handle for each metric."""

import logging
import os
import secrets
import sqlite3
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from dither.device import Device, DeviceUnusable
from dither.transport import HttpTransport
from dither.uploader import FlushResult, Uploader
from dither_shared.exact import from_micro
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

IN_MEMORY = ":memory:"

_log = logging.getLogger("dither")


@dataclass(frozen=True)
class Status:
    """What a device has done and why it is silent, for a settings page or a bug report. Nothing here is sent."""

    silent: str
    """Why nothing is recorded or sent at all; "" while something is."""
    waiting: int
    """Reports that wait to be sent."""
    spent: dict[str, float]
    """Epsilon charged so far, by metric."""
    counts: dict[str, int]
    """Reports accepted, and answers and reports not sent, by reason."""


class Handle:
    """One metric of the telemetry object."""

    def __init__(self, telemetry: "Telemetry", metric: Metric) -> None:
        self._telemetry = telemetry
        self.metric = metric


class Flag(Handle):
    """A yes-or-no question.

    Use for a setting that is on or off. Do not use for events: a device answers once in a period.

        telemetry.dark_mode.record(True)
    """

    def record(self, answer: bool) -> None:
        """Randomize the answer's truth and keep the report to send. Returns quickly and never raises."""
        self._telemetry._record(self.metric, answer)


class Choice(Handle):
    """One of the listed values; whatever is not listed is "other".

    Use for a question with known answers. Do not use for free text: everything would be "other".

        telemetry.browser.record("Firefox 158")
    """

    def record(self, answer: str) -> None:
        """Randomize the answer and keep the report to send. Returns quickly and never raises."""
        self._telemetry._record(self.metric, answer)


class Choices(Handle):
    """Several of the listed values; whatever is not listed is "other".

    Use for a question with several answers at once. Do not use for more ticks than `ticks_max`: of those the first
    listed count.

        telemetry.languages.record(["Python", "Rust"])
    """

    def record(self, answer: Collection[str]) -> None:
        """Randomize the list, tuple or set of answers, and keep the report to send. Never raises."""
        self._telemetry._record(self.metric, answer)


class Text(Handle):
    """A word that nobody can list beforehand, up to 200 characters.

    Use for short texts that many devices share. Do not use for names or sentences: what is rare is not found.

        telemetry.homepage.record("example.org")
    """

    def record(self, answer: str) -> None:
        """Randomize the text's Bloom bits and keep the report to send. Returns quickly and never raises."""
        self._telemetry._record(self.metric, answer)


_HANDLES: dict[str, type[Handle]] = {"flag": Flag, "choice": Choice, "choices": Choices, "text": Text}


class Telemetry:
    """An app's telemetry: an attribute for each metric of the registry. Made by `start()`."""

    def __init__(self, registry: Registry, device: Device | None, uploader: Uploader | None, silent: str = "") -> None:
        self._device = device
        self._uploader = uploader
        self._silent = silent
        self._failures: Counter[str] = Counter()
        self._handles = {name: _HANDLES[metric.kind](self, metric) for name, metric in registry.metrics.items()}

    def __getattr__(self, name: str) -> Any:
        """Return the handle of a metric: a Flag, a Choice, Choices or a Text, as its kind says."""
        handles = self.__dict__.get("_handles", {})
        if name in handles:
            return handles[name]
        raise AttributeError(f"the registry has no metric {name!r}; it has {', '.join(handles)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._handles]

    def _record(self, metric: Metric, answer: object) -> None:
        if self._device is None or self._uploader is None:
            return
        try:
            if self._device.record(metric, answer) is None:
                self._uploader.wake()
        except Exception as error:
            # The exception's text is not logged: it may come from the answer itself.
            self._failures["failed"] += 1
            _log.debug("an answer to %s was not recorded: %s", metric.name, type(error).__name__)

    def flush(self, timeout: float = 10.0) -> FlushResult:
        """Send what waits now instead of at its random moment; wait for at most `timeout` seconds.

        For tests, trials and short-lived programs. An app need not call it: what waits is sent by the next start.
        """
        if self._uploader is None:
            return FlushResult(0, 0, self._silent)
        try:
            return self._uploader.flush(timeout)
        except Exception as error:
            _log.warning("telemetry could not be flushed: %s", type(error).__name__)
            return FlushResult(0, 0, f"failed ({type(error).__name__})")

    def status(self) -> Status:
        """Return what this device has done, and why it is silent if it is."""
        if self._device is None:
            return Status(self._silent, 0, {}, dict(self._failures))
        try:
            spent = {metric: from_micro(micro) for metric, micro in self._device.spent().items()}
            counts = Counter(self._device.counters()) + self._failures
            return Status(self._silent, self._device.waiting(), spent, dict(counts))
        except Exception as error:
            return Status(f"the device file cannot be read ({type(error).__name__})", 0, {}, dict(self._failures))

    def close(self) -> None:
        """Stop, without waiting for the network. What waits in the device's file is sent by the next start."""
        if self._uploader is not None:
            self._uploader.close()
        self._uploader = self._device = None
        self._silent = self._silent or "closed"


def start(
    registry: Registry | str | PathLike[str],
    *,
    endpoint: str,
    key: str,
    data_dir: str | PathLike[str] | None = None,
    consent: bool | None = None,
) -> Telemetry:
    """Return the app's telemetry. Starts no thread and opens no connection until there is something to send.

    `registry` is the path of `metrics.toml`, or a Registry. `endpoint` is the aggregator's https address (http only on
    loopback) and `key` the one it takes reports with. `data_dir` is the folder of the device's file, by default one for
    the app in the user's data folder; ":memory:" keeps nothing beyond this process and has no quiet days. Unless
    `consent` is True nothing is recorded, kept or sent.

    Raises RegistryError for a registry that cannot be used and ConfigurationError for an endpoint that cannot. After
    that nothing raises into the app: `status()` says why it is silent.
    """
    if not isinstance(registry, Registry):
        registry = Registry.load(registry)
    transport = HttpTransport(endpoint, key)
    if consent is not True:
        return Telemetry(registry, None, None, "no consent")
    try:
        folder = None if data_dir == IN_MEMORY else Path(data_dir) if data_dir else default_data_dir(registry.app)
        device = Device(registry, folder, Rng(secrets.randbits))
        uploader = Uploader(device, transport)
        if device.waiting():
            uploader.wake()
    except (DeviceUnusable, sqlite3.Error, RuntimeError) as error:  # RuntimeError: there is no home directory
        _log.warning("telemetry is off: %s", error)
        return Telemetry(registry, None, None, str(error))
    return Telemetry(registry, device, uploader)


def default_data_dir(app: str) -> Path:
    """Return the folder of an app's device file, where this system keeps a user's application data."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "dither" / app
