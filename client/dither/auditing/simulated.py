"""Simulated devices: whole ones, in memory, with a clock of their own; and lives that differ in their answers alone."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from types import TracebackType
from typing import Any

from dither.auditing.claims import NOTHING, Never, inputs_of
from dither.device import DAY_S, BuiltUpload, Device
from dither.device.recording import EPOCH, day_number
from dither_shared.frozen import frozen, replaced
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng

# Simulated devices: whole ones, in memory, with a clock of their own, and all that they upload.

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


# Lives: two devices to which the same happens for 90 days or more, and which differ in their answers alone.
#
# A life is a list of what happens, drawn by lot: answers, looks, uploads that are accepted, refused for the key (401)
# or put off (503), starts of the app, kills in the middle of an upload, further processes, nights with a look and
# suspends over midnights without one, in any order. So an answer may come before the first look of its period or after
# the last one, on the last day of a metric, or when its budget is spent; one life in four begins with answers between a
# refused key and the next start, without a look. Two devices live it, with the same coins: each answers by lot at the
# same moments, or, where presence is hidden, does not. Seen are whether and when an attempt is planned, and of each
# upload when it leaves, its length, and its groups in order with how many reports each has. Nothing of that may differ,
# not by chance either: it is a function of the life.


DAYS, PERIODS = 90, 12
"""A life has so many days, and periods, or more."""
LIVES_TAKE = 20
"""Usual devices that two such lives take as long as."""
OFTEN = {
    "answer": 8, "sleep": 8, "night": 2, "send": 3, "beside": 1, "look": 1,
    "restart": 1, "refused": 1, "put off": 1, "killed": 1, "other process": 1,
}  # fmt: skip
"""How often each of these happens."""
_HAPPENS = tuple(what for what, often in OFTEN.items() for _ in range(often))
BETWEEN = ("refused", "answer", "sleep", "answer", "sleep", "answer", "restart", "send", "sleep", "send")
"""A key is refused, and no look comes before the next start, as is rarely drawn. One life in four begins so."""
DELAY_S = 600.0
SEED_BYTES = 16
SHOWS = "an answer shows in when and what a device sends"


@frozen
class Life:
    """All that happens to a device but for its answers."""

    registry: Registry
    metric: Metric
    beside: Metric | None
    day: int
    happens: tuple[tuple[str, int], ...]
    """Each with the number of days that it takes."""

    @classmethod
    def drawn(cls, registry: Registry, metric: Metric, beside: Metric | None, rng: Rng) -> "Life":
        """Draw a life. The metric may be scheduled early or by lot, end before it does, and have any budget."""
        step = metric.period_days
        days = max(DAYS, PERIODS * step)
        epsilon = (EPSILON, registry.device_epsilon)[rng.uniform(2)]
        cut = cut_down(registry, [each for each in (metric, beside) if each], epsilon)
        day = first_day(cut)
        lasts = (365, days - step, 365, 2 * step)[rng.uniform(4)]  # as long as `BETWEEN` takes to the next start
        asked = replaced(
            metric,
            schedule=("early", "early" if metric.memoized else "spread")[rng.uniform(2)],
            charges=(PERIODS, days // step, 3 * days // step)[rng.uniform(3)],
            expires=EPOCH + timedelta(days=day + lasts),
        )
        cut = replaced(cut, metrics={**cut.metrics, asked.name: asked})
        return cls(cut, asked, beside and cut.metrics[beside.name], day, tuple(_happens(days, step, rng)))

    def seen(self, answers: Sequence[Any], seed: bytes) -> list[Any]:
        """Return what is seen of a device that answers so, one answer after the other; NOTHING records nothing."""
        left = iter(answers)
        shown: list[Any] = []
        with Simulated(self.registry, keyed_rng(seed, b"a life"), day=self.day) as simulated:
            living = _Living(self, simulated)
            for what, days in self.happens:
                if what == "answer":
                    living.answer(next(left))
                elif what in ("sleep", "night"):
                    living.go(days, looks=what == "night")
                else:
                    shown.append((simulated.day, what, *living.happen(what)))
        return shown


def _happens(days: int, step: int, rng: Rng) -> Iterator[tuple[str, int]]:
    if not rng.uniform(4):
        for what in BETWEEN:
            yield what, step if what == "sleep" else 0
    while days > 0:
        what = _HAPPENS[rng.uniform(len(_HAPPENS))]
        went = (1 + rng.uniform(2 * step), step, step)[rng.uniform(3)] if what in ("sleep", "night") else 0
        days -= went
        yield what, went


class _Living:
    """A device to which things happen."""

    def __init__(self, life: Life, simulated: Simulated) -> None:
        self._life, self._simulated = life, simulated
        self._others: list[Device] = []
        self._stopped = False

    def answer(self, answer: Any) -> None:
        """Record an answer."""
        if answer is not NOTHING:
            self._simulated.device.record(self._life.metric, answer, _delay)

    def go(self, days: int, *, looks: bool) -> None:
        """Let days go by, with a look or without one."""
        self._simulated.sleep(days)
        if looks:
            self._simulated.device.look(_delay)

    def happen(self, what: str) -> Iterator[Any]:
        """Let something happen, and yield what is seen of it."""
        simulated, beside = self._simulated, self._life.beside
        if what == "beside" and beside:
            simulated.device.record(beside, beside.kind.examples(beside.asked)[0], _delay)
        elif what == "restart":
            self._start()
        elif what == "other process":
            self._others.append(simulated.device)
            if len(self._others) > 1:
                simulated.device = self._others.pop(0)
            else:
                self._start()
        elif what != "look" and not self._stopped:
            yield from self._attempts(what)
        yield self._planned()

    def _start(self) -> None:
        self._simulated.restart()  # with a key of its own
        self._stopped = False

    def _planned(self) -> float | None:
        look = self._simulated.device.look(_delay)
        return look.when if look.due else None

    def _attempts(self, what: str) -> Iterator[Any]:
        """Try to send, and yield the form of each upload that leaves."""
        simulated = self._simulated
        if what == "send":
            yield from map(form_of, simulated.send())
            return
        simulated.device.look(_delay)
        if upload := simulated.device.next_upload():
            simulated.device.charge(upload.id)
            yield form_of(upload)
            if what == "put off":
                simulated.device.put_off(upload.id, "503", simulated.clock() + DELAY_S)
        if what == "refused":
            simulated.device.stopped("401")
            self._stopped = True
        elif what == "killed":
            self._start()


def _delay() -> float:
    return DELAY_S


def form_of(upload: BuiltUpload) -> tuple[Any, ...]:
    """Return an upload's length, and its groups in order, each with the number of its reports."""
    return len(upload.body), *((group["metric"], len(group["reports"])) for group in groups_of(upload))


def life_claim(registry: Registry, metric: Metric) -> Never:
    """Return the claim that no answer shows in when and what a device sends."""
    beside = companion(registry, metric)
    inputs = [each.value for each in inputs_of(metric) if each.value is not NOTHING][:6]
    answers_of = [*inputs, *[NOTHING] * len(inputs)] if metric.hidden else inputs

    def look(rng: Rng) -> str:
        life = Life.drawn(registry, metric, beside, rng)
        times = sum(what == "answer" for what, _ in life.happens)
        seed = rng.randbits(8 * SEED_BYTES).to_bytes(SEED_BYTES, "big")
        answers = [[answers_of[rng.uniform(len(answers_of))] for _ in range(times)] for _ in range(2)]
        one, other = (life.seen(each, seed) for each in answers)
        return SHOWS if one != other else ""

    return Never(metric.name, "device, lives", look, LIVES_TAKE)
