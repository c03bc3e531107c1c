"""Differences of two windows of a metric: what moved, by a test of each value that counts how many were tested.

The windows share no day, so the noise of fresh reports is independent in them. The noise of memos is the same in both:
a difference has less of it than the sum of both variances, which is what is used. Errors are those of the population:
that other devices reported is no news of what people do. Devices in both windows may answer alike or alternate, which
is told by no count: the worst of it is in every error (`functional.apart`). Intervals hold all together (Bonferroni). A
verdict needs both: a test that tells it (Holm), and an interval that does not hold zero.

**Groups.** The share of some values or ranges together, under a name that the operator's dashboard gives them.

**Their intervals.** A group belongs to the family of its metric's values. With d values, or ranges, two cases differ:

    named    a group that was written before the metric had a report: nobody can have made it because of what reports
             showed. Each such group, those that were taken away counted, has as much of the risk as each value:
             alpha / (d + groups)
    free     any other one. It may be the sum that looked best, out of all: Scheffe's interval holds for every sum of
             the metric's values at once, z^2 = the 1 - alpha quantile of chi^2 with d degrees of freedom

The variance is that of the whole sum (`functional.py`): values that one report supports together are no surprise to it.

Day by day each of m days has alpha / m. A difference of two windows has an interval from the ends of both, squared and
added, as values' differences have (`differences.py`), and it moved where that does not hold zero: so all verdicts of
the family hold at once, without a further test.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from math import comb, nan, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
from scipy.special import chdtri, ndtr

from dither_aggregator.analysis.estimands import Point, days_shown, estimand_of, made_once, read, tally_of
from dither_aggregator.analysis.functional import apart
from dither_aggregator.analysis.inference import CONFIDENCE, beyond_zero
from dither_aggregator.analysis.reading import (
    BadView,
    Reading,
    View,
    WantedSum,
    Window,
    days_to_choose,
    is_offered,
    may_return,
)
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import MadeRow, Row, benjamini_hochberg, holm
from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.document_kinds import Dashboard, ValueGroup
from dither_shared.domains import Buckets
from dither_shared.errors import ConfigurationError
from dither_shared.kinds.precision import POWER
from dither_shared.plan import Plan

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
# Hochberg, and within each of them values are called moved by Holm at alpha R / M (`rows`).


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


# Groups of values or ranges.


Family = Literal["named", "free"]
ALPHA_MIN = 1e-290
"""Floats have no smaller chances that are exact: those of about 1,100 values by Scheffe's method."""


@dataclass(frozen=True)
class GroupReading:
    """The share of a group in a window."""

    group: ValueGroup
    members: Sequence[str]
    """The names of its values or ranges."""
    family: Family
    z: float
    """In how many standard errors a normal interval of its level reaches."""
    n: int
    row: Row | None
    """None where it cannot be told."""
    left_out: int | None = 0
    """Reports of these days that are not among the n."""


def dashboard_of(store: Store) -> Dashboard:
    """Return the operator's dashboard."""
    return next(iter(store.documents(Dashboard)), Dashboard())


def read_groups(
    store: Store, stored: StoredPlan, window: Window, confidence: float, names: Sequence[str] = ()
) -> list[GroupReading]:
    """Read the groups of a plan, or those of some names, in a window. Raises TallyGone.

    A group that has nothing of this plan, such as one of a later rev's values, is left out.
    """
    dashboard, plan = dashboard_of(store), stored.plan
    listed = _names(plan)
    found = [
        (group, places)
        for group in dashboard.groups_of(plan.metric)
        if (not names or group.name in names) and (places := _places(group, plan))
    ]
    if not found:
        return []
    tally, view = tally_of(store, stored, window), View(days=window.days, confidence=confidence)
    early, alpha = dashboard.written.get(plan.metric, 0), 1 - confidence
    z = [_z(group, len(listed), early, alpha) for group, _ in found]
    sums = [
        WantedSum(group.name, places, 2 * float(ndtr(-each)))  # Python's own law says 0 from 8.3 errors on
        for (group, places), each in zip(found, z, strict=True)
    ]
    told = iter(estimand_of(plan).sums(stored, tally, view, [each for each in sums if each.alpha >= ALPHA_MIN]))
    return [
        GroupReading(
            group,
            [listed[place] for place in places],
            "free" if group.late else "named",
            each,
            tally.n,
            next(told) if wanted.alpha >= ALPHA_MIN else None,
            tally.left_out,
        )
        for (group, places), each, wanted in zip(found, z, sums, strict=True)
    ]


def group_series(
    store: Store,
    plans: Sequence[StoredPlan],
    window: Window,
    names: Sequence[str],
    confidence: float,
    together: int = 0,
) -> list[Point]:
    """Return the points of some groups under the plans that have them, by group, then by plan and day.

    Intervals hold together for all days of all plans, of `together` days at least. Days no longer kept are left out.
    """
    days = max(together, days_shown(store, plans, window))
    each_day = 1 - (1 - confidence) / max(days, 1)
    points: list[Point] = []
    for stored in plans:
        for epoch in reversed(store.epochs(stored.plan, window.first, window.last)):
            try:
                found = read_groups(store, stored, Window.ending(epoch, 1), each_day, names)
            except TallyGone:
                continue
            points += [
                Point(
                    *(row.value, row.estimate, row.std_error, row.lower, row.upper, row.told_error is not None),
                    *(stored.plan.digest, stored.plan.rev, epoch, each.n, epoch > store.sealed(), each.left_out),
                )
                for each in found
                if (row := each.row)
            ]
    return sorted(points, key=lambda point: names.index(point.value))


def group_differences(
    store: Store, stored: StoredPlan, before: Window, after: Window, confidence: float, names: Sequence[str] = ()
) -> list[Difference]:
    """Return how the shares of a plan's groups, or of those of some names, differ between two windows, with verdicts.

    There is none while the later window is not over, and none of a group that one of them does not tell. Raises
    TallyGone.
    """
    if max(before.last, after.last) > store.sealed():
        return []
    old, new = (
        {each.group.name: each.row for each in read_groups(store, stored, window, confidence, names) if each.row}
        for window in (before, after)
    )
    opposed = float(may_return(stored))
    return [_group_difference(old[name], row, opposed) for name, row in new.items() if name in old]


def _group_difference(old: Row, new: Row, opposed: float) -> Difference:
    moved, error = new.estimate - old.estimate, float(apart(old.std_error, new.std_error, opposed))
    lower = moved - float(apart(new.estimate - new.lower, old.upper - old.estimate, opposed))
    upper = moved + float(apart(new.upper - new.estimate, old.estimate - old.lower, opposed))
    way, has_error = beyond_zero(lower, upper), old.told_error is not None and new.told_error is not None
    verdict: Literal["rose", "fell"] | None = "rose" if way > 0 else "fell" if way < 0 else None
    p_value = 2 * float(ndtr(-abs(moved) / error)) if error else 1.0
    return Difference(new.value, moved, error, lower, upper, has_error, old.estimate, new.estimate, p_value, verdict)


def group_names(store: Store, stored: StoredPlan) -> Sequence[str]:
    """Return the names of the groups that have something of a plan, in the order of the dashboard."""
    groups = dashboard_of(store).groups_of(stored.plan.metric)
    return [group.name for group in groups if _places(group, stored.plan)]


def members_of(store: Store, stored: StoredPlan, names: Sequence[str]) -> Sequence[str]:
    """Return the values or ranges of some groups; raise KeyError for a name that is no group's."""
    groups = {each.name: each for each in dashboard_of(store).groups_of(stored.plan.metric)}
    listed, places = _names(stored.plan), {place for name in names for place in _places(groups[name], stored.plan)}
    return [listed[place] for place in sorted(places)]


def _z(group: ValueGroup, d: int, early: int, alpha: float) -> float:
    """Return in how many standard errors a normal interval reaches, for its whole family to hold as is said."""
    if not group.late:
        return -NormalDist().inv_cdf(alpha / (d + early) / 2)
    return sqrt(float(chdtri(d, alpha)))


def _names(plan: Plan) -> Sequence[str]:
    """Return the names of what is summed up: values, or ranges with the places that are no numbers."""
    if isinstance(plan.domain, Buckets):
        return [plan.domain.name_of(place) for place in range(plan.domain.size + 1 + (plan.presence == "hidden"))]
    return plan.values


def _places(group: ValueGroup, plan: Plan) -> Sequence[int]:
    try:
        return group.places(plan)
    except ConfigurationError:
        return ()
