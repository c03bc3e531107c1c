"""Groups: the share of some values or ranges together, under a name that the operator's dashboard gives them.

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

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Literal

from scipy.special import chdtri, ndtr

from dither_aggregator.analysis.differences import Difference
from dither_aggregator.analysis.estimands import estimand_of, tally_of
from dither_aggregator.analysis.functional import apart
from dither_aggregator.analysis.inference import beyond_zero
from dither_aggregator.analysis.reading import View, WantedSum, Window, may_return
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.series import Point, days_shown
from dither_aggregator.counting.folding import TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.document_kinds import Dashboard, ValueGroup
from dither_shared.domains import Buckets
from dither_shared.errors import ConfigurationError
from dither_shared.plan import Plan

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
    return [_difference(old[name], row, opposed) for name, row in new.items() if name in old]


def _difference(old: Row, new: Row, opposed: float) -> Difference:
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
