"""The shares of numbers that are read, by domain: of each range, and above each edge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numeric.channel import Places
from dither_shared.domains import Buckets, Thresholds
from dither_shared.plan import Plan

Range = tuple[str, float | None, float | None]
"""A name, and two ends in the unit, None where it is open."""
Statistic = Literal["mean", "quantile", "share", "share_above", "share_of_reports"]


@dataclass(frozen=True)
class SharesOfRanges:
    """Shares of one sort."""

    statistic: Statistic
    ranges: Sequence[Range]
    functionals: Floats
    """float64[ranges, places]: the sum of shares of places that each is."""


def share_functionals(plan: Plan, places: Places) -> Sequence[SharesOfRanges]:
    """Return what shares are read of a plan's numbers; none where only the mean is asked."""
    return _SHARES[plan.domain.name](plan, places)


def _of_buckets(plan: Plan, places: Places) -> Sequence[SharesOfRanges]:
    domain = Buckets.of(plan.domain)
    units = [edge / 10**domain.decimals for edge in domain.edges]
    ends = [None, *units, None]
    each = np.eye(places.numbers, len(places.is_number))
    above = np.triu(np.ones((places.numbers, places.numbers)), 1)[:-1]
    ranges = [(domain.name_of(at), low, high) for at, (low, high) in enumerate(pairwise(ends))]
    up = [
        (f"at least {domain.with_unit(domain.in_unit(edge))}", units[at], None) for at, edge in enumerate(domain.edges)
    ]
    others = np.zeros((len(above), len(places.others)))
    return SharesOfRanges("share", ranges, each), SharesOfRanges("share_above", up, np.hstack([above, others]))


def _of_thresholds(plan: Plan, places: Places) -> Sequence[SharesOfRanges]:
    """Return, for each step, the share above a point drawn from it: all that its cohort can tell."""
    domain = Thresholds.of(plan.domain)
    ranges: list[Range] = [
        (f"above a point of {domain.between(low, high)}", low / 10**domain.decimals, high / 10**domain.decimals)
        for low, high in pairwise(domain.edges)
    ]
    return (SharesOfRanges("share_above", ranges, np.triu(np.ones((places.numbers, places.numbers)), 1)[:-1]),)


_SHARES: dict[str, Callable[[Plan, Places], Sequence[SharesOfRanges]]] = {
    Buckets.name: _of_buckets,
    Thresholds.name: _of_thresholds,
    "range": lambda plan, places: (),
}
