"""Differences of two windows of a metric: what moved, by a test of each value that counts how many were tested.

The windows share no day, so the noise of fresh reports is independent in them. The noise of memos is the same in both:
a difference has less of it than the sum of both variances, which is what is used. Errors are those of the population:
that other devices reported is no news of what people do. Devices in both windows may answer alike or alternate, which
is told by no count: the worst of it is in every error (`functional.apart`). Intervals hold all together (Bonferroni). A
verdict needs both: a test that tells it (Holm), and an interval that does not hold zero.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from math import comb, nan, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from dither_aggregator.analysis.estimands import estimand_of, made_once, read
from dither_aggregator.analysis.inference import CONFIDENCE, beyond_zero
from dither_aggregator.analysis.reading import (
    BadView,
    Reading,
    View,
    Window,
    days_to_choose,
    is_offered,
    may_return,
)
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import MadeRow, Row
from dither_aggregator.analysis.significance import benjamini_hochberg, holm
from dither_aggregator.counting.folding import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_shared.kinds.precision import POWER

Verdict = Literal["rose", "fell"]
ROUNDS = 30
"""Rounds to the least difference that is found, whose error grows with itself."""


@dataclass(frozen=True)
class Difference(MadeRow):
    """How the share of one value changed from one window to another: the estimate is after less before."""

    before: float
    after: float
    p_value: float
    """How often noise and sampling alone make at least such a difference, of this value."""
    verdict: Verdict | None = None
    """None where it cannot be told to have moved."""


@dataclass(frozen=True)
class Comparison:
    """Two windows of a plan, and how each value's share differs."""

    before: Reading
    after: Reading
    rows: Sequence[Difference]
    """In the plan's order; empty where one of the windows has no report, or is not over."""
    alpha: float
    untold: Sequence[Difference] = ()
    """Values that one of the windows does not tell, with the interval that both leave."""

    @property
    def moved(self) -> list[Difference]:
        """The rows that can be told to have moved, the largest difference first."""
        return sorted((row for row in self.rows if row.verdict), key=lambda row: -abs(row.estimate))

    @property
    def p_value(self) -> float:
        """How often noise and sampling alone make any value differ as much: d times the smallest of theirs."""
        return min([1.0, *(len(self.rows) * row.p_value for row in self.rows)])

    @property
    def detectable(self) -> float | None:
        """A rare value's share must change by this much to be told four times in five; None where nothing is told.

        None, too, where a reading has no floor of changes.
        """
        before, after = self.before.change_floor, self.after.change_floor
        if not self.rows or before is None or after is None:
            return None
        normal = NormalDist()
        z, reach = normal.inv_cdf(POWER) - normal.inv_cdf(self.alpha / len(self.rows) / 2), 0.0
        for _ in range(ROUNDS):  # tests reckon with the share of both windows together
            held = reach * (1 - reach / 2) / 2
            old, new = (sqrt(each.repeats * held / each.n) for each in (self.before, self.after))
            opposed = may_return(self.after.stored) * old * new
            reach = min(1.0, z * sqrt(before**2 + after**2 + old**2 + new**2 + 2 * opposed))
        return reach


def compare(
    store: Store, stored: StoredPlan, before: Window, after: Window, alpha: float = 1 - CONFIDENCE, together: int = 1
) -> Comparison:
    """Compare two windows of a plan; all holds at once for so many pairs of windows `together`.

    Raises TallyGone, and BadView where they share days.
    """
    if before.first <= after.last and after.first <= before.last:
        raise BadView("the two windows share days, which tell nothing of a change")
    views = [(window.last, replace(view_of(window.days, alpha), together=together)) for window in (before, after)]
    old, new = (read(store, stored, last, view) for last, view in views)
    if names := estimand_of(stored.plan).compared(old, new):
        old, new = (read(store, stored, last, replace(view, values=names)) for last, view in views)
    return Comparison(old, new, differences(old, new), alpha / together, untold(old, new))


def view_of(days: int, alpha: float) -> View:
    """Return how the windows are read whose differences are told at alpha."""
    return View(error_of="population", simultaneous=True, days=days, confidence=1 - alpha)


def differences(before: Reading, after: Reading) -> tuple[Difference, ...]:
    """Return the differences of all values that both readings tell apart, in the plan's order, with verdicts.

    There is none if one of them has no report, or is not over. Both are read by `view_of`.
    """
    then = {row.value: row for row in before.distinct}
    pairs = [(then[row.value], row) for row in after.distinct if row.value in then]
    if not pairs or before.provisional or after.provisional:
        return ()
    p_values = after.change_chances(before, [row.value for _, row in pairs])
    sure = holm(p_values, (1 - after.view.confidence) / after.view.together)
    return tuple(
        _difference(before, after, old, new, p_value, moves)
        for (old, new), p_value, moves in zip(pairs, p_values.tolist(), sure.tolist(), strict=True)
    )


def untold(before: Reading, after: Reading) -> tuple[Difference, ...]:
    """Return the values that both readings have, and that one of them does not tell."""
    then, now = ({row.value: row for row in (*reading.distinct, *reading.untold)} for reading in (before, after))
    return tuple(
        Difference(
            *(name, nan, nan, new.lower - old.upper, new.upper - old.lower, False, old.estimate, new.estimate, 1.0)
        )
        for name, old, new in ((name, then[name], now[name]) for name in now if name in then)
        if old.untold or new.untold
    )


def _difference(before: Reading, after: Reading, old: Row, new: Row, p_value: float, moves: bool) -> Difference:
    moved = new.estimate - old.estimate
    lower, upper = after.move_ends(old, new, before)
    error = after.move_error(old, new, before)
    way = beyond_zero(lower, upper) if moves else 0
    verdict: Verdict | None = "rose" if way > 0 else "fell" if way < 0 else None
    has_error = old.told_error is not None and new.told_error is not None
    return Difference(new.value, moved, error, lower, upper, has_error, old.estimate, new.estimate, p_value, verdict)


# Changes: every metric's last days beside the days before, with a false discovery rate over the metrics.
#
# A metric is one test: so many values times the smallest of their p-values. R of M metrics are chosen by Benjamini and
# Hochberg, and within each of them values are called moved by Holm at alpha R / M (`significance`).


DAYS = 7


@dataclass(frozen=True)
class Changes:
    """The changes between two windows, metric by metric."""

    before: Window
    after: Window
    moved: Sequence[Comparison]
    """Metrics in which something moved, the surest first, each with its verdicts."""
    still: Sequence[StoredPlan]
    """Metrics in which nothing can be told to have moved."""
    untold: Sequence[StoredPlan]
    """Metrics that have no reports, or no counts any more, in one of the windows."""
    damaged: Sequence[StoredPlan]
    """Metrics whose counts cannot be those of any reports."""
    open: Sequence[tuple[StoredPlan, NotReady]] = ()
    """Metrics that are not computed yet. With them, others may be told to have moved."""


def side_by_side(epochs: Collection[date], sealed: date, kept_from: date) -> tuple[Window, Window]:
    """Return the last sealed days, and as many before them: a week each or, of a younger store, half of its days."""
    there = [epoch for epoch in epochs if kept_from <= epoch <= sealed]
    age = (sealed - min(there, default=sealed)).days + 1
    days = min(DAYS, max(age // 2, 1))
    after = Window.ending(sealed, days)
    return Window.ending(after.first - timedelta(days=1), days), after


def pairs_together(store: Store, stored: StoredPlan, before: Window, after: Window) -> int:
    """Return for how many pairs of windows a comparison holds at once: 1 where pages offer the later one, and the other
    has as many days before it; else all pairs that can be chosen."""
    _, usual = side_by_side(store.epochs(stored.plan), store.sealed(), store.tallies_from())
    if (after == usual or is_offered(store, stored, after)) and before == before_of(after):
        return 1
    return comb(days_to_choose(store, stored) + 2, 4)


def before_of(after: Window) -> Window:
    """Return as many days before a window."""
    first = after.first
    return Window.ending(first - timedelta(days=1) if first > date.min else first, after.days)


def windows_beside(store: Store, plans: Sequence[StoredPlan]) -> tuple[Window, Window]:
    """Return the two windows that changes of some plans are told of."""
    epochs = store.all_epochs()
    days = {day for stored in plans for day in epochs.get(stored.id, [])}
    return side_by_side(days, store.sealed(), store.tallies_from())


def changes(
    store: Store, plans: Sequence[StoredPlan], before: Window, after: Window, alpha: float = 1 - CONFIDENCE
) -> Changes:
    """Compare two windows of some plans, and tell in which metrics something moved."""
    compared: list[tuple[StoredPlan, float]] = []
    untold: list[StoredPlan] = []
    damaged: list[StoredPlan] = []
    missing: list[tuple[StoredPlan, NotReady]] = []
    for stored in plans:
        try:
            p_value = _surest(store, stored, before, after)
        except TallyGone:
            untold.append(stored)
        except BadTally:
            damaged.append(stored)
        except NotReady as error:
            missing.append((stored, error))
        else:
            (untold.append(stored) if p_value is None else compared.append((stored, p_value)))
    chosen_by_test, within = tell([p_value for _, p_value in compared], alpha)
    moved: list[Comparison] = []
    still: list[StoredPlan] = []
    for (stored, _), chosen in zip(compared, chosen_by_test, strict=True):
        try:
            told = compare(store, stored, before, after, within) if chosen else None
        except NotReady as error:
            missing.append((stored, error))
        else:
            (moved.append(told) if told and told.moved else still.append(stored))
    return Changes(
        before,
        after,
        sorted(moved, key=lambda one: one.p_value),
        still,
        untold,
        damaged,
        missing,
    )


def _surest(store: Store, stored: StoredPlan, before: Window, after: Window) -> float | None:
    """Return the p-value of a metric's change, which is kept; None where no value is told in both windows."""

    def compared() -> float | None:
        one = compare(store, stored, before, after)
        return one.p_value if one.rows else None

    return made_once(store, stored, Window(before.first, after.last), "change", (before, after), compared)


def tell(p_values: Sequence[float], alpha: float = 1 - CONFIDENCE) -> tuple[Sequence[bool], float]:
    """Return in which metrics something moved, and the alpha at which their values are then told."""
    rejected = benjamini_hochberg(np.array(p_values), alpha)
    return rejected.tolist(), alpha * float(rejected.sum()) / max(len(p_values), 1)
