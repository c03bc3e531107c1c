"""The claims of a metric about whole devices: all that leaves a device in some periods, from `record` to bytes.

Each device is new, in memory, and answers beside one other metric, so that uploads have groups to put in order. It
answers in each of its periods, whatever the metric's schedule: on other days it would say nothing, for any answer.
Seen are whether an attempt was planned when it had answered, and of each upload its length, its groups in order, the
metric's cell and reports, and those of the other metric: noise that both share would betray what the answers have in
common. A device that answers often has its key refused in the middle, and its app sleeps over midnights until it starts
again, so that the last answer comes 90 days after the first one or later.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any

from dither.auditing.claims import Categories, Claim, Foreseen, Input, Never, Repetition
from dither.auditing.exact import Paths, TooMany, law_of
from dither.auditing.laws import BitsLaw, Likelier, TableLaw
from dither.auditing.lives import DAYS, life_claim
from dither.auditing.memos import Telling, sent_as_one, telling
from dither.auditing.plans import NOTHING, STRANGE, inputs_of, law_of_permanent, law_of_report, read, stated
from dither.auditing.simulated import Reported, Simulated, companion, cut_down, groups_of, reports_of
from dither.auditing.symbolic_rng import Undecidable
from dither.auditing.traced import draws_claim
from dither.device import BuiltUpload
from dither_shared.cells import Cells
from dither_shared.frozen import frozen
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

REPEATS = 14
"""Periods in which a memoized answer is repeated."""
UNTIL = 7
"""Periods until an answer changes, and as many after it."""


@frozen
class Seen:
    """The view that somebody has of one device."""

    form: tuple[Any, ...]
    """For each period whether an attempt was planned, and of each upload its length and its groups in order."""
    reports: tuple[Reported, ...]
    """As often as the metric was told."""
    beside: tuple[Reported, ...]
    """As often as the metric beside it was told, of which the answer is always the same."""


@frozen
class Scene:
    """A registry cut down to the metric that is audited and one that is answered beside it."""

    registry: Registry
    metric: Metric
    beside: tuple[Metric, Any] | None

    @classmethod
    def of(cls, registry: Registry, metric: Metric) -> "Scene":
        """Cut a registry down."""
        other = companion(registry, metric)
        cut = cut_down(registry, [each for each in (metric, other) if each])
        beside = (cut.metrics[other.name], other.kind.examples(other.asked)[0]) if other else None
        return cls(cut, cut.metrics[metric.name], beside)

    def live(self, answers: Sequence[Any], rng: Rng) -> Seen:
        """Return what is seen of a new device that answers so, period after period; NOTHING records nothing.

        Hidden answers leave in the period after.
        """
        metric = self.metric
        form: list[Any] = []
        reports: list[Reported] = []
        reports_beside: list[Reported] = []
        with Simulated(self.registry, rng) as simulated:
            device = simulated.device
            for place, answer in enumerate((*answers, *((NOTHING,) if metric.hidden else ())), 1):
                if answer is not NOTHING:
                    device.record(metric, answer)
                planned = device.sending().next is not None
                if self.beside:
                    device.record(*self.beside)
                uploads = list(simulated.send())
                form.append((planned, *((len(upload.body), _groups(upload)) for upload in uploads)))
                reports += (each for upload in uploads for each in reports_of(upload, metric))
                if self.beside:
                    reports_beside += (each for upload in uploads for each in reports_of(upload, self.beside[0]))
                if place == UNTIL and len(answers) > UNTIL:
                    _long_sleep(simulated, metric, len(answers))
                else:
                    simulated.travel(metric.period_days)
        return Seen(tuple(form), tuple(reports), tuple(reports_beside))


def _long_sleep(simulated: Simulated, metric: Metric, periods: int) -> None:
    """Have the key refused, and let the app sleep until it starts again, so late that it answers for 90 days."""
    days = max(1, -(-DAYS // metric.period_days) - periods + 2) * metric.period_days
    simulated.device.stopped("401")
    simulated.sleep(days)
    simulated.restart()


def _groups(upload: BuiltUpload) -> tuple[str, ...]:
    return tuple(group["metric"] for group in groups_of(upload))


# Claims.


def device_claims(registry: Registry, metric: Metric) -> Iterator[Claim | Repetition | Never]:
    """Yield the claims about whole devices with a metric."""
    stage, cells = Scene.of(registry, metric), metric.cells
    one, other, *_ = inputs = inputs_of(metric)
    pair = (one, other)

    def claim(part: str, exp_epsilon: Fraction, *histories: Input, at: int = 0, foreseen: Any = None) -> Claim:
        return Claim(
            metric.name,
            part,
            exp_epsilon,
            histories,
            lambda answers, rng: stage.live(answers, rng),
            foresee=lambda n, alpha: _foreseen(metric, histories[:2], at, n, alpha),
            see=_see,
            shows_nothing=("form", "cells", "beside"),
            of_devices=True,
        )

    def once(each: Input) -> Input:
        return Input(each.label, (each.value,))

    yield draws_claim(registry, metric)
    yield life_claim(registry, metric)
    yield claim("device", stated(metric), once(one), once(other), once(STRANGE[-1]))
    if metric.hidden:
        nothing = next(each for each in inputs if each.value is NOTHING)
        yield claim("device, presence", stated(metric), once(one), once(nothing))
    if metric.memoized:
        lasting = max(part.mechanism.first_stage.exp_epsilon for part in cells.parts)
        repeated = [Input(f"{each.label} {REPEATS} times", (each.value,) * REPEATS) for each in pair]
        yield claim("device, repeated", lasting, *repeated)
        if changes := _changes(metric, inputs):
            before, *after = changes
            histories = [
                Input(f"{before.label}, then {each.label}", (before.value,) * UNTIL + (each.value,) * UNTIL)
                for each in after
            ]
            yield claim("device, changed", lasting, *histories, at=UNTIL)
    if metric.memoized or metric.charges > 1:
        probability = _repeating(metric, one)
        if probability is not None:
            answers = (one.value,) * 2
            yield Repetition(
                metric.name, "device, noise again", probability, lambda rng: _says_the_same(stage.live(answers, rng))
            )


def _says_the_same(seen: Seen) -> bool:
    return len(seen.reports) > 1 and seen.reports[0] == seen.reports[1]


def _see(outcome: Any) -> Categories:
    """See a device by the form of its uploads, by cells, by what it says, and by what it says most often."""
    if not isinstance(outcome, Seen):  # it raised
        yield "outcome", outcome
        return
    yield "form", outcome.form
    yield "cells", tuple(each.cell for each in outcome.reports)
    yield "beside", outcome.beside
    if len(outcome.reports) <= 1:
        yield "told", outcome.reports
        yield "both", (outcome.reports, outcome.beside)
        return
    yield "different", len(set(outcome.reports))
    middle = len(outcome.reports) // 2
    halves = tuple(Counter(half).most_common(1)[0][0] for half in (outcome.reports[:middle], outcome.reports[middle:]))
    yield "most often", halves
    yield "how often", (Counter(outcome.reports).most_common(1)[0][1], halves[0])
    if outcome.beside:
        beside = Counter(outcome.beside).most_common(1)[0][0]
        yield "most often beside", (halves, beside)
        yield "alike", tuple(half == beside for half in halves)


def _foreseen(metric: Metric, histories: Sequence[Input], at: int, n: int, alpha: float) -> Foreseen | None:
    """Return the event of the exact laws of each cell, as far as these can be told: what is told from `at` on."""
    one, other = histories
    reports = len(one.value) - at
    tellings: dict[int, Telling] = {}
    paths, p, q = Paths(), 0.0, 0.0
    for cell, weight in _weights(metric.cells):
        try:
            found = telling(metric, cell, (one.value[-1], other.value[-1]), reports, n, alpha, paths)
        except (TooMany, Undecidable):
            break
        if found:
            tellings[cell] = found
            p, q = p + weight * found.p, q + weight * found.q

    def holds(seen: Any) -> bool:
        last = seen.reports[at:] if isinstance(seen, Seen) else ()
        return bool(last) and last[0].cell in tellings and tellings[last[0].cell].holds([each.report for each in last])

    return Foreseen(one, other, Likelier(holds, min(p, 1.0), min(q, 1.0))) if tellings else None


def _weights(cells: Cells) -> Iterator[tuple[int, float]]:
    """Yield the cells of a device with the first public value, and how likely each is."""
    total = sum(part.cells * part.weight for part in cells.parts)
    weights = [part.weight / total for part in cells.parts for _ in range(part.cells)]
    yield from enumerate(weights)


def _changes(metric: Metric, inputs: Sequence[Input]) -> tuple[Input, Input, Input] | None:
    """Return three answers of which each is another class in every cell; None where there are none, or no two are paid.

    That an answer changes is not hidden, so histories must change alike.
    """
    if metric.charges < 2 or metric.kind.rounds:  # a number has two classes, by coins of its device
        return None
    classes = {
        each.label: [
            metric.class_of(read(metric, each.value), cell, Rng(_no_bits)) for cell in range(metric.cells.count)
        ]
        for each in inputs[:8]
    }
    for chosen in combinations(inputs[:8], 3):
        rows = zip(*(classes[each.label] for each in chosen), strict=True)
        if all(len(set(row)) == len(chosen) for row in rows):
            return chosen[0], chosen[1], chosen[2]
    return None


def _no_bits(count: int) -> int:
    raise Undecidable("a class that is kept needs no coins")


def _repeating(metric: Metric, answer: Input) -> Fraction | None:
    """Return P[two reports of a device are the same, in the same cell]; None where the laws are too large."""
    cells, paths, total = metric.cells, Paths(), Fraction(0)
    for cell, weight in _weights(cells):
        mechanism = cells.mechanism_of(cell)
        try:
            if not metric.memoized:
                same = law_of_report(metric, cell)(answer.value, paths).repeats
                total += Fraction(weight) ** 2 * same
                continue
            law = law_of_permanent(metric, cell)(answer.value, paths)
            if isinstance(law, BitsLaw):
                sent = [sent_as_one(mechanism, memo) for memo in (0, (1 << len(law.ones)) - 1)]
                alike = Counter(zip(law.ones, *sent, strict=True))  # bits have few different laws
                same = prod(
                    ((one * _twice(b) + (1 - one) * _twice(a)) ** bits for (one, a, b), bits in alike.items()),
                    start=Fraction(1),
                )
            else:
                assert isinstance(law, TableLaw)
                memo: Any = next(iter(law.probabilities))
                same = law_of(lambda rng: mechanism.repeat(memo, rng), paths).repeats  # noqa: B023
            total += Fraction(weight) * same
        except (TooMany, Undecidable):
            return None
    return total


def _twice(p: Fraction) -> Fraction:
    return p * p + (1 - p) ** 2
