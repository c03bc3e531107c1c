"""Simulated devices: whole ones, in memory, with a clock of their own, and all that they upload."""

import json
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from types import TracebackType
from typing import Any

from dither.device import DAY_S, BuiltUpload, Device
from dither.device.recording import day_number
from dither_shared.frozen import frozen, replaced
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

FAR = timedelta(days=10_000)
EPSILON = Decimal(10**6)
"""The epsilon of the whole device: it never falls silent for what it was charged."""


@frozen
class Reported:
    """One report, and the cell that it names."""

    cell: int
    report: int


def cut_down(registry: Registry, metrics: Iterable[Metric], epsilon: Decimal = EPSILON) -> Registry:
    """Return a registry of these metrics alone, with room for all that they say.

    Each answers in each of its periods, whatever its schedule: on other days it would say nothing, for any answer.
    """
    speaking = {each.name: replaced(each, schedule="early", expires=each.expires + FAR) for each in metrics}
    return replaced(registry, metrics=speaking, device_epsilon=epsilon)


def first_day(registry: Registry) -> int:
    """Return the day on which a simulated device is new: of each metric a period begins."""
    metrics = list(registry.metrics.values())
    return max(day_number(each.expires - FAR) // each.period_days * each.period_days for each in metrics)


def companion(registry: Registry, metric: Metric) -> Metric | None:
    """Return the metric to answer beside one: noise is the likeliest to be shared by metrics that are alike."""
    others = [each for each in registry.metrics.values() if each.name != metric.name]
    return min(others, key=lambda each: (each.cells != metric.cells, each.memoized != metric.memoized), default=None)


class Simulated:
    """A new device whose person agrees to everything. It ends with its `with` block."""

    def __init__(self, registry: Registry, rng: Rng, public: int = 0, day: int | None = None) -> None:
        self._rng = rng
        self._public = public
        self._day = first_day(registry) if day is None else day
        self._start(registry, follows=_ended())

    def _start(self, registry: Registry, **before: Device | None) -> None:
        self._registry = registry
        self.device = Device(registry, None, self._rng, self.clock, **before)
        self.device.set_public(self._public)
        self.device.open()
        self.device.agree()
        self.device.begin()
        self.device.look()

    def clock(self) -> float:
        """Return noon: far from the midnights around which a device is not sure of the aggregator's day."""
        return (self._day + 0.5) * DAY_S

    @property
    def day(self) -> int:
        """The day, since 1970."""
        return self._day

    def upgrade(self, registry: Registry) -> None:
        """Start the app again with another registry, to which the person agrees."""
        self._start(registry, goes_on=self.device)

    def restart(self) -> None:
        """Start the app again, as after a kill: of what is written nothing is lost."""
        self._start(self._registry, goes_on=self.device)

    def travel(self, days: int) -> None:
        """Let so many days go by; the device looks on the last one."""
        self.sleep(days)
        self.device.look()

    def sleep(self, days: int) -> None:
        """Let so many days go by without a look."""
        self._day += days

    def send(self) -> Iterator[BuiltUpload]:
        """Yield the uploads that are due: an aggregator accepts everything."""
        self.device.look()
        while upload := self.device.next_upload():
            self.device.charge(upload.id)
            self.device.settle(upload.id, "accepted")
            yield upload
            if not self.device.waiting():  # a quicker look than for another upload, and as a rule there is none
                break

    def __enter__(self) -> "Simulated":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None and not _spare:
            _spare.append((os.getpid(), self.device))
        else:
            self.device.close()


_spare: list[tuple[int, Device]] = []
"""The device that ended last, with its process: the next one takes its connection over, and nothing else."""


def _ended() -> Device | None:
    while _spare:
        process, device = _spare.pop()
        if process == os.getpid():  # one that was forked cannot use its parent's
            return device
    return None


def groups_of(upload: BuiltUpload) -> list[dict[str, Any]]:
    """Return the groups of an upload, in order, to be read only."""
    return _groups(upload.body)


@lru_cache(1)  # of one upload they are asked for by each metric
def _groups(body: bytes) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = json.loads(body)["groups"]
    return groups


def reports_of(upload: BuiltUpload, metric: Metric) -> Iterator[Reported]:
    """Yield what an upload says of a metric."""
    for group in groups_of(upload):
        if group["metric"] == metric.name:
            cell = group.get("cell", 0)
            for report in group["reports"]:
                yield Reported(cell, metric.cells.mechanism_of(cell).shape.from_wire(report))
