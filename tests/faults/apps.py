"""A host app in a few lines: telemetry with a transport that takes everything, and what the app sees of it."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dither.sending.transport import Answer, Outcome, Transport
from dither.session import Settings
from dither.telemetry import Telemetry
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES
from tests.support.registries import registry

ASKED = registry(reports=40, epsilon="0.5", device_epsilon="40", expires=EXPIRES)
"""The questions of such an app: here, since programs that tests start import this, and nothing that takes long."""


@dataclass
class Taker:
    """A transport that takes every upload."""

    bodies: list[bytes] = field(default_factory=list)

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        stands()
        self.bodies.append(body)
        return Answer(Outcome.ACCEPTED, "")

    def idle(self) -> None:
        pass

    def sent(self) -> Counter[str]:
        """Return how many reports of each metric were sent, each as often as it was."""
        return _metrics(self.bodies)

    def told(self) -> Counter[str]:
        """Return how many different reports of each metric were sent: the same bytes again tell nothing more."""
        return _metrics(dict.fromkeys(self.bodies))


def _metrics(bodies: Iterable[bytes]) -> Counter[str]:
    return Counter(group["metric"] for body in bodies for group in json.loads(body)["groups"])


def start(asked: Registry, directory: Path, transport: Transport, clock: Clock, *, strict: bool = False) -> Telemetry:
    """Start telemetry as an app does whose user agrees."""
    return Telemetry(Settings(asked, transport, directory, consent=True, strict=strict, clock=clock))


@dataclass
class Seen:
    """An app's view of its telemetry."""

    spent_first: Mapping[str, float]
    """The charges when it started."""
    spent: Mapping[str, float]
    silent: str
    counts: Mapping[str, int]
    sent: Counter[str]


def use_everything(asked: Registry, directory: Path, clock: Clock) -> Seen:
    """Start an app, live through two days and use all that there is; nothing may raise."""
    taker = Taker()
    telemetry = start(asked, directory, taker, clock)
    first = telemetry.status()
    for _ in range(2):
        for name in asked.metrics:
            getattr(telemetry, name).record("red")
        telemetry.flush(1)
        clock.travel(1)
    telemetry.preview()
    status = telemetry.status()
    sent = taker.sent()
    for name in asked.metrics:
        telemetry.set_consent(given=False, metric=name)
        telemetry.set_consent(given=True, metric=name)
    telemetry.set_consent(given=False)
    telemetry.set_consent(given=True)
    telemetry.forget()
    telemetry.close()
    return Seen(first.spent, status.spent, status.silent, status.counts, sent)
