"""The telemetry object of a test: a device in memory, a clock that the test moves, nothing that leaves by itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from os import PathLike

from dither.development import without_waiting
from dither.device import DAY_S, Device
from dither.sending.transport import Answer, Outcome, Transport
from dither.sending.upload_thread import State, Uploader
from dither.session import Session, Settings
from dither.telemetry import Telemetry
from dither_shared.frozen import replaced
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng


@dataclass(frozen=True)
class Recorded:
    """One answer that the app recorded."""

    metric: str
    answer: object
    silence: str = ""
    """Why it is not reported, such as "answered": not in this period again; "" if it is."""


def _noon() -> float:
    return datetime.combine(datetime.now(UTC), time(12), UTC).timestamp()


@dataclass
class Clock:
    """Seconds since 1970, as time.time: noon of today, standing still until moved, so that a day is whole."""

    now: float = field(default_factory=_noon)

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class NoNetwork:
    """A transport that sends nothing, and ends a flush with the way out."""

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        """Refuse."""
        detail = "the network is refused in tests: in one that takes fake_aggregator, too, a flush delivers there"
        return Answer(Outcome.STOPPED, detail, connected=False)

    def idle(self) -> None:
        """Do nothing."""


class TelemetryForTests(Telemetry):
    """A telemetry object that refuses what is not listed, and shows what the app recorded.

    Its device is in memory and outlives `close()`, as its file would. A metric that a device answers in periods drawn
    from the year (`schedule = "spread"`) is answered from the first one here: a test must not depend on the draw.
    `consent` counts where the app says nothing else.
    """

    _session: _InMemory

    def __init__(
        self,
        registry: Registry | str | PathLike[str],
        transport: Transport | None = None,
        clock: Clock | None = None,
        consent: bool | None = True,
    ) -> None:
        registry = registry if isinstance(registry, Registry) else Registry.load(registry)
        self._clock = clock or Clock()
        self._consent = consent
        self._recorded: list[Recorded] = []
        super().__init__(
            Settings(without_waiting(registry), transport or NoNetwork(), None, consent, strict=True, clock=self._clock)
        )

    def _new_session(self, settings: Settings) -> _InMemory:
        return _InMemory(settings, self._note)

    def recorded(self) -> list[Recorded]:
        """Return what the app recorded so far, in order."""
        return list(self._recorded)

    def travel(self, days: float = 1) -> None:
        """Move the clock, to the next UTC day or by a period's days to the next period; past `expires`, if far enough.

        As for a device that was off meanwhile: travel day by day for one that is on.
        """
        self._clock.now += days * DAY_S
        if self._session.uploader is not None:
            self._session.uploader.start()

    # Starting again, as an app does that closes its telemetry or that runs twice in a test.

    def _start_again(self, settings: Settings) -> TelemetryForTests:
        """Return this object for what the app asks of `start`: open, and silent if it says that nobody agreed."""
        consent = self._consent if settings.consent is None else settings.consent
        self._session.reopen(replaced(self._settings, consent=consent, public=settings.public))
        return self

    def _end_test(self) -> None:
        self.close()
        self._session.end_test()

    # The differences from an app's.

    def _record(self, metric: Metric, answer: object) -> None:
        super()._record(metric, answer)
        if self._session.device is None or not self._session.speaks:
            self._note(metric, answer, self._session.standing.silent)

    def _note(self, metric: Metric, answer: object, silence: str) -> None:
        # A copy: the app may go on to change what it gave.
        kept = answer.copy() if isinstance(answer, list | set | dict) else answer
        self._recorded.append(Recorded(metric.name, kept, silence))


class _InMemory(Session):
    """The session of a test's telemetry: its device stays when it is closed."""

    def __init__(self, settings: Settings, note: Callable[[Metric, object, str], None]) -> None:
        self._note = note
        self._memory: _Memory | None = None
        super().__init__(settings)

    def file_exists(self) -> bool:
        return self._memory is not None

    def open_device(self) -> Device:
        if self._memory is None:
            self._memory = _Memory(self.settings.registry, self.settings.clock, self._note)
        return self._memory

    def make_uploader(self, device: Device) -> Uploader:
        return _InFlushes(device, self.settings.transport, self.begin_device, self.settings.clock)

    def end_test(self) -> None:
        if self._memory is not None:
            self._memory.end()


class _Memory(Device):
    """A device in memory that stays when it is closed, and shows what it was told."""

    def __init__(
        self, registry: Registry, clock: Callable[[], float], note: Callable[[Metric, object, str], None]
    ) -> None:
        super().__init__(registry, None, Rng(secrets.randbits), clock)
        self._metrics = registry.metrics
        self._note = note

    def record(self, metric: Metric, answer: object, delay: Callable[[], float] = lambda: 0.0) -> str:
        # By name: a handle that the app kept from before the test has the metric of its own registry.
        silence = super().record(self._metrics[metric.name], answer, delay)
        self._note(metric, answer, silence)
        return silence

    def close(self) -> None:
        """Stay, as a file would."""

    def end(self) -> None:
        super().close()


class _InFlushes(Uploader):
    """An uploader whose thread lives only as long as a flush: nothing leaves by itself."""

    def recorded(self) -> None:
        """Leave what waits to the next flush."""

    def wake(self) -> None:
        """Leave what waits to the next flush."""

    def decide(self) -> tuple[State, float]:
        """Do what is due within a flush, and nothing else."""
        state, wait_s = super().decide()
        return (state, wait_s) if self._flushing() else (State.DONE, 0.0)
