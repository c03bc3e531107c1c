"""Linking, measured: who can be recognised among devices with the same answer, by whoever keeps every report.

`POPULATION` devices answer the same in 14 periods and in 14 more. Their uploads of before and of after are shuffled,
and each device of before is paired with the one of after that is likeliest the same: by what lasts in the clear, cohort
and public column, which must agree, and by the likelihood of both sets of reports as copies of one memo against that of
two. R of `dither_shared/accounting/linking.py` is what many reports come to. So many tell nearly that
of most memos, and less where epsilon is small beside `epsilon_permanent`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from dither.auditing.claims import Repetition
from dither.auditing.memo_likelihood import MemoLikelihood, memo_likelihood
from dither.auditing.simulated import Reported, Simulated, cut_down, reports_of
from dither_shared.accounting.linking import linked_share
from dither_shared.frozen import frozen, replaced
from dither_shared.mechanisms import DEVICES
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

POPULATION = DEVICES
LINKED = f"device, linked of {POPULATION}"
BEFORE = 14
"""Periods until the reports of a device are to be recognised, and as many after it."""
TOGETHER = "(all)"
"""The name of all metrics together."""
SAME = 1e-9
"""Gains that differ by less are the same."""


def linking_claims(registry: Registry, metrics: Sequence[Metric]) -> Iterator[Repetition]:
    """Yield the claims that no more devices can be linked than R says: by each metric, and by all together."""
    for subject, together in linkable(metrics):
        crowd = Crowd(registry, together)
        yield Repetition(
            subject,
            LINKED,
            Fraction(crowd.expected),
            crowd.joined,
            POPULATION,
            "more devices can be linked",
        )


def linkable(metrics: Sequence[Metric]) -> list[tuple[str, tuple[Metric, ...]]]:
    """Return what devices can be linked by, with its name: each metric with something that lasts, and all of them."""
    lasting = [metric for metric in metrics if linked_share((metric.cells,)) is not None]
    found: list[tuple[str, tuple[Metric, ...]]] = [(metric.name, (metric,)) for metric in lasting]
    if len(lasting) > 1:
        found.append((TOGETHER, tuple(lasting)))
    return found


@frozen
class Copied:
    """The reports of one memo: their law, their summary, and ln P of them alone."""

    copies: MemoLikelihood
    summary: Any
    alone: float

    def gain(self, other: "Copied") -> float:
        """Return how far it speaks for one memo that others are copies of it, too."""
        return self.copies.together(self.summary, other.summary) - self.alone - other.alone


@frozen
class Imprint:
    """The marks of one metric in some uploads of a device: those sent in the clear for good, and copies of a memo."""

    clear: tuple[int, ...]
    memo: Copied | None


Trace = tuple[Imprint, ...]
"""A mark for each metric."""


def paired(before: Sequence[Trace], after: Sequence[Trace], rng: Rng) -> int:
    """Return how many of `before` are paired with the trace at their own place: each with the likeliest one.

    Ties are drawn by lot.
    """
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = defaultdict(list)
    for place, trace in enumerate(after):
        alike[_clear(trace)].append(place)
    right = 0
    for own, trace in enumerate(before):
        gains = {place: _gain(trace, after[place]) for place in alike.get(_clear(trace), ())}
        best = max(gains.values(), default=0.0)
        likeliest = [place for place, gain in gains.items() if gain >= best - SAME]
        right += bool(likeliest) and likeliest[rng.uniform(len(likeliest))] == own
    return right


def _clear(trace: Trace) -> tuple[tuple[int, ...], ...]:
    return tuple(mark.clear for mark in trace)


def _gain(one: Trace, other: Trace) -> float:
    return sum(a.memo.gain(b.memo) for a, b in zip(one, other, strict=True) if a.memo and b.memo)


class Crowd:
    """Devices that answer the same about some metrics, period after period."""

    def __init__(self, registry: Registry, metrics: Sequence[Metric]) -> None:
        # A fresh report shows the public column: as many as there are periods, or there would be none after.
        self._registry = cut_down(
            registry, [each if each.memoized else replaced(each, charges=2 * BEFORE) for each in metrics]
        )
        self._metrics = list(self._registry.metrics.values())
        self._answers = {metric.name: metric.kind.examples(metric.asked)[0] for metric in metrics}
        self._publics = max(metric.cells.public for metric in metrics)
        self._copies = cache(self._copies_of)
        self.expected = linked_share(tuple(metric.cells for metric in metrics), POPULATION) or 0.0
        """R, by the formula."""

    def joined(self, rng: Rng) -> int:
        """Return how many devices of a new crowd are paired rightly."""
        before, after = self.lives(rng)
        return paired(before, after, rng)

    def lives(self, rng: Rng) -> tuple[list[Trace], list[Trace]]:
        """Return the traces of a new crowd before, and after, in the same order, with a mark for each metric."""
        lives = [self._live(rng) for _ in range(POPULATION)]
        return [before for before, _ in lives], [after for _, after in lives]

    def _live(self, rng: Rng) -> tuple[Trace, Trace]:
        """Return what a new device shows before and after."""
        reports: dict[str, list[Reported]] = {name: [] for name in self._answers}
        step = max(metric.period_days for metric in self._metrics)
        with Simulated(self._registry, rng, rng.uniform(self._publics)) as simulated:
            for period in range(2 * BEFORE + 1):
                for metric in self._metrics:
                    if period < 2 * BEFORE:  # what is hidden leaves in the period after
                        simulated.device.record(metric, self._answers[metric.name])
                for upload in simulated.send():
                    for metric in self._metrics:
                        reports[metric.name] += reports_of(upload, metric)
                simulated.travel(step)
        return self._trace(reports, 0), self._trace(reports, BEFORE)

    def _trace(self, reports: Mapping[str, Sequence[Reported]], since: int) -> Trace:
        return tuple(self._mark(each, reports[each.name][since : since + BEFORE]) for each in self._metrics)

    def _mark(self, metric: Metric, kept: Sequence[Reported]) -> Imprint:
        cells, cell = metric.cells, kept[0].cell
        clear = (cell,) if cells.lasting else (cell // cells.each,) if cells.public > 1 else ()
        if not cells.memoized:
            return Imprint(clear, None)
        copies = self._copies(metric, cell)
        summary = copies.summary(each.report for each in kept)
        return Imprint(clear, Copied(copies, summary, copies.likelihood(summary)))

    def _copies_of(self, metric: Metric, cell: int) -> MemoLikelihood:
        return memo_likelihood(metric, cell, self._answers[metric.name])
