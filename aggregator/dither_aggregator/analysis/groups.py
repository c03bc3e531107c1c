"""Groups: the share of some values or ranges together, under a name that the operator's dashboard gives them.

**Their intervals.** A group belongs to the family of its metric's values. With d values, or ranges, two cases differ:

    named    a group that was written before the metric had a report: nobody can have made it because of what reports
             showed. Each such group, those that were taken away counted, has as much of the risk as each value:
             alpha / (d + groups)
    free     any other one. It may be the sum that looked best, out of all: Scheffe's interval holds for every sum of
             the metric's values at once, z^2 = the 1 - alpha quantile of chi^2 with d degrees of freedom

The variance is that of the whole sum (`functional.py`): values that one report supports together are no surprise to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Literal

from scipy.special import chdtri, ndtr

from dither_aggregator.analysis.estimands import estimand_of, tally_of
from dither_aggregator.analysis.reading import View, WantedSum
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.dashboard import Dashboard, ValueGroup
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
        )
        for (group, places), each, wanted in zip(found, z, sums, strict=True)
    ]


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
