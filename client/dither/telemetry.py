"""The telemetry object that a host app holds. It lets nothing that goes wrong here reach the app."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from weakref import WeakSet

from dither.device import FILE_NAME, Device, DeviceUnusable
from dither.handles import HANDLES
from dither.randomness import SYSTEM
from dither.say import say
from dither.sending.transport import Transport
from dither.sending.uploader import FlushResult, Uploader
from dither_shared.errors import InvalidAnswer
from dither_shared.exact import from_micro
from dither_shared.frozen import frozen
from dither_shared.registry import Metric, Registry

NOT_ASKED = "the person was not asked yet: set_consent(True) when they agree"
REFUSED = "the person refused"
CLOSED = "closed"

T = TypeVar("T")

_made: "WeakSet[Telemetry]" = WeakSet()
"""Those that there are: a test's own stands in for them."""


@frozen
class Status:
    """What a device has done and why it is silent, for a settings page or a bug report. Nothing here is sent."""

    silent: str
    """Why nothing is recorded or sent at all; "" while something is."""
    waiting: int
    """Reports that wait to be sent."""
    spent: dict[str, float]
    """Epsilon charged so far, by metric."""
    counts: dict[str, int]
    """Reports accepted; answers and reports not sent, by reason; "unlisted" answers, which were sent as "other"."""
    asks: Mapping[str, list[str]] = MappingProxyType({})
    """What goes beyond what the person agreed to, by metric, and by "" for all: silent until `set_consent(True)`."""
    refused: Sequence[str] = ()
    """Metrics that the person refuses."""

    @property
    def ask(self) -> bool:
        """Whether to ask the person: they have not chosen yet, or not agreed to all that the registry asks."""
        return self.silent == NOT_ASKED or bool(self.asks)


@frozen
class Preview:
    """The upload that is sent next."""

    body: bytes
    """Its bytes, but for the id if it is not built yet; b"" if nothing is due."""
    cost: dict[str, float]
    """The epsilon that it costs, by metric."""


@frozen
class Settings:
    """What `start()` was given, after the environment had its say."""

    registry: Registry
    transport: Transport
    folder: Path | None
    """Where the device's file is, or None for a device in memory."""
    consent: bool | None
    silent: str = ""
    """Why nothing may be recorded, kept or sent, whatever the person chose."""
    strict: bool = False
    clock: Callable[[], float] = time.time


class Telemetry:
    """An app's telemetry: an attribute for each metric of the registry. Made by `start()`.

    Nothing but asking for a metric that there is not raises, unless it is strict.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._device: Device | None = None
        self._uploader: Uploader | None = None
        self._silent = settings.silent
        self._closed = False
        self._unkept_refusal = False  # one that could not be written, and is again when telemetry is closed
        _made.add(self)
        self._failures: Counter[str] = Counter()
        metrics = settings.registry.metrics
        self._handles = {name: HANDLES[metric.kind](metric, self._record) for name, metric in metrics.items()}
        if not self._silent:
            self._silent = self._guarded(self._begin, self._failed_to_begin)

    def __getattr__(self, name: str) -> Any:
        """Return the handle of a metric: a Flag, a Choice, Choices or a Text, as its kind says."""
        handles = self.__dict__.get("_handles", {})
        if name in handles:
            return handles[name]
        raise AttributeError(f"the registry has no metric {name!r}; it has {', '.join(handles)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._handles]

    # Beginning and ending.

    def _begin(self) -> str:
        """Open the device if the person's choice allows it, and return ""; else return why not.

        What they chose here goes before what the app says. Until one of both is there, nothing is made or kept.
        """
        choice = self._settings.consent
        if not self._file_exists():
            if choice is not True:
                return NOT_ASKED if choice is None else REFUSED
            self._speak()
            return ""
        with self._any_device() as device:
            kept = device.choice()
            choice = choice if kept is None else kept
            if choice is not True:
                return NOT_ASKED if choice is None else REFUSED
            self._device = device
        self._speak()
        return ""

    def _failed_to_begin(self, error: Exception) -> str:
        say(logging.WARNING, "telemetry is off: %s", error)
        return str(error)

    def _open(self) -> Device:
        return Device(self._settings.registry, self._settings.folder, SYSTEM, self._settings.clock)

    def _file_exists(self) -> bool:
        folder = self._settings.folder
        return folder is not None and (folder / FILE_NAME).exists()

    def _speak(self) -> None:
        """Record and send from now on."""
        self._device = self._device or self._open()
        self._device.agree_once()
        self._uploader = self._uploader or Uploader(self._device, self._settings.transport, self._settings.clock)
        self._uploader.begin()

    def close(self) -> None:
        """Stop, without waiting for the network. What waits in the device's file is sent by the next start."""
        self._closed = True
        self._guarded(self._end, lambda error: None)
        self._silent = self._silent or CLOSED

    def _end(self) -> None:
        if self._unkept_refusal:
            with self._any_device() as device:
                device.refuse()
            self._unkept_refusal = False
        self._stop()

    def _stop(self) -> None:
        device, uploader, self._device, self._uploader = self._device, self._uploader, None, None
        if uploader is not None:
            uploader.close()
        elif device is not None:
            device.close()

    @contextmanager
    def _any_device(self) -> Iterator[Device]:
        """Yield the device; a file that telemetry does not speak for is closed again, and what is in memory is kept."""
        if self._device is None and self._settings.folder is None:
            self._device = self._open()
        device = self._device or self._open()
        try:
            yield device
        finally:
            if device is not self._device:
                device.close()

    def _guarded(self, action: Callable[[], T], failed: Callable[[Exception], T]) -> T:
        """Return what `action` returns, or what `failed` makes of its error: the app must not notice."""
        try:
            return action()
        except Exception as error:
            if self._settings.strict:
                raise
            return failed(error)

    # Recording and sending.

    def _record(self, metric: Metric, answer: object) -> None:
        if self._settings.strict and not metric.takes(answer):
            raise InvalidAnswer(f'what came is no answer that {metric.name} asks for: it would be sent as "other"')
        device, uploader = self._device, self._uploader
        if device is None or uploader is None or self._silent:
            return
        try:
            if not metric.takes(answer):
                self._failures["unlisted"] += 1
            silence = device.record(metric, answer)
        except Exception as error:
            # The exception's text is not logged: it may come from the answer itself.
            self._failures["failed"] += 1
            say(logging.DEBUG, "an answer to %s was not recorded: %s", metric.name, type(error).__name__)
            if self._settings.strict:
                raise
            return
        say(logging.DEBUG, "%s: %s", metric.name, silence or "recorded")
        if not silence or uploader.paused:
            # What was recorded waits in the file, also if no thread can be started now.
            self._guarded(uploader.wake, lambda error: None)

    def flush(self, timeout: float = 10.0) -> FlushResult:
        """Send what waits now instead of at its random moment; wait for at most `timeout` seconds.

        For tests, trials and short-lived programs. An app need not call it: what waits is sent by the next start. In
        asyncio call it as `await asyncio.to_thread(telemetry.flush, 5)`.
        """
        uploader = self._uploader
        if uploader is None or self._silent:
            return FlushResult(0, 0, self._silent)

        def failed(error: Exception) -> FlushResult:
            say(logging.WARNING, "telemetry could not be flushed: %s", type(error).__name__)
            return FlushResult(0, 0, _said(error))

        return self._guarded(lambda: uploader.flush(timeout), failed)

    # Looking.

    def status(self) -> Status:
        """Return what this device has done, and why it is silent if it is."""
        device = self._device
        if device is None:
            return Status(self._silent, 0, {}, dict(self._failures))

        def look() -> Status:
            spent = {metric: from_micro(micro) for metric, micro in device.spent().items()}
            counts = dict(Counter(device.counters()) + self._failures)
            silent = self._silent or (REFUSED if device.choice() is False else "")  # said in another process
            return Status(silent, device.waiting(), spent, counts, device.asks(), tuple(device.refused()))

        def failed(error: Exception) -> Status:
            return Status(_said(error), 0, {}, dict(self._failures))

        return self._guarded(look, failed)

    def preview(self) -> Preview:
        """Return the upload that is sent next and what it costs, without building or charging it."""
        device = self._device
        if device is None:
            return Preview(b"", {})

        def look() -> Preview:
            body, cost = device.preview()
            return Preview(body, {metric: from_micro(micro) for metric, micro in cost.items()})

        return self._guarded(look, lambda error: Preview(b"", {}))

    # The person's choices.

    def set_consent(self, given: bool, metric: str | None = None) -> None:
        """Keep what the person chose: for the whole app, or with `metric` for one metric.

        Agreeing is to the terms of this registry, and counts until a later one asks for more (`status().asks`).
        Refusing drops what waits; what was charged stays charged. It goes before what `start()` was given.
        """
        if metric is not None:
            self.__getattr__(str(metric))
        agrees = given is True  # nothing else does: "no" is a truth, too
        self._guarded(lambda: self._agree(metric) if agrees else self._refuse(metric), self._not_kept)

    def _agree(self, metric: str | None) -> None:
        """Keep that the person agrees, unless the environment forbids it."""
        if self._settings.silent:
            return
        with self._any_device() as device:
            if metric is None:
                device.agree(chosen=True)
            else:
                device.refuse_metric(metric, refused=False)
        if metric is None and not self._closed:
            self._silent = ""
            self._unkept_refusal = False
            self._speak()
        elif self._uploader is not None:
            self._uploader.begin()

    def _refuse(self, metric: str | None) -> None:
        """Keep that the person refuses. For the whole app it holds at once, whatever becomes of the file."""
        if metric is not None:
            with self._any_device() as device:
                device.refuse_metric(metric, refused=True)
            return
        self._silent = self._settings.silent or (CLOSED if self._closed else REFUSED)
        self._unkept_refusal = True
        try:
            with self._any_device() as device:
                device.refuse()
        except Exception:
            self._stop()  # nothing of what waits is sent meanwhile
            raise
        self._unkept_refusal = False

    def forget(self) -> None:
        """Erase what this device knows of the person's answers, keep what was spent, and be silent for 30 days."""

        def erase() -> None:
            if self._device is not None or self._file_exists():
                with self._any_device() as device:
                    device.forget()

        self._guarded(erase, self._not_kept)

    def _not_kept(self, error: Exception) -> None:
        self._failures["failed"] += 1
        say(logging.WARNING, "the device file cannot be used: %s", type(error).__name__)


def _said(error: Exception) -> str:
    """Return what may be said of an error: its own words only where they are ours."""
    return str(error) if isinstance(error, DeviceUnusable) else f"failed ({type(error).__name__})"
