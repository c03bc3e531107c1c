"""The shares of numbers that are read, by domain: of each range, and above each edge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import floor, log, sqrt
from typing import Literal

import numpy as np

from dither_aggregator.analysis.inference import Floats, Z
from dither_aggregator.analysis.numeric.channel import Places, places_of
from dither_shared.cells import Cells
from dither_shared.domains import Buckets, Thresholds
from dither_shared.kinds.number_precision import even_information
from dither_shared.plan import Plan

Range = tuple[str, float | None, float | None]
"""A name, and two ends in the unit, None where it is open."""
GRID = 1.5
"""Reports are rounded down to powers of this, so that bars do not change daily."""
BARS_LEAST = 4
"""Fewer bars say less than median and 90 % do."""
Statistic = Literal["mean", "quantile", "share", "share_above", "share_of_reports"]


@dataclass(frozen=True)
class SharesOfRanges:
    """Shares of one sort."""

    statistic: Statistic
    ranges: Sequence[Range]
    functionals: Floats
    """float64[ranges, places]: the sum of shares of places that each is."""


@lru_cache(16)
def share_functionals(plan: Plan) -> Sequence[SharesOfRanges]:
    """Return what shares are read of a plan's numbers; none where only the mean is asked."""
    return _SHARES[plan.domain.name](plan, places_of(plan))


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


@lru_cache(256)
def blocks_for(domain: Buckets, cells: Cells, n: int) -> Sequence[int]:
    """Return the edges, by number, between which neighbouring ranges are one bar: as many bars as n reports can tell.

    Each bar joins as many ranges: the most bars with 2 z SE <= 1 / (2 bars) for numbers that are spread evenly. It is a
    rule of the plan and of n, rounded down to a grid: bars that data chose would mislead, and so would one that is
    higher because it joins more. The last bar joins fewer, at least half as many, where no such number divides the
    ranges. The two open ranges belong to the first and the last bar. Empty where fewer than BARS_LEAST can be told.
    """
    n = int(GRID ** floor(log(max(n, 1), GRID) + 1e-9))
    ranges = len(domain.edges) - 1
    evenly, rows = even_information(domain, cells)
    shares, inverse = np.array(evenly), np.linalg.inv(np.array(rows))
    told: Sequence[int] = ()
    widths = [width for width in range(ranges // BARS_LEAST, 1, -1) if ranges % width == 0]
    if not widths or ranges // widths[0] >= 2 * BARS_LEAST:
        widths = [width for width in range(ranges // (BARS_LEAST - 1), 1, -1) if 2 * (ranges % width) >= width]
    for width in (*widths, 1):
        cuts = [*range(0, ranges, width), ranges]
        bars = len(cuts) - 1
        blocks = together(cuts, len(shares))
        ratios = blocks - (blocks @ shares)[:, np.newaxis] * together([0, ranges], len(shares))
        error = sqrt(float(((ratios @ inverse) * ratios).sum(axis=1).mean()) / n)
        if 2 * Z * error > 1 / (2 * bars):
            break
        told = cuts
    return told if len(told) > BARS_LEAST else ()


def together(cuts: Sequence[int], places: int) -> Floats:
    """Return, for each bar between edges, the sum of the shares of its places, float64[bars, places]."""
    sums = np.zeros((len(cuts) - 1, places))
    for bar, (first, last) in enumerate(pairwise(cuts)):
        sums[bar, first + (first > 0) : last + 1 + (last == cuts[-1])] = 1.0
    return sums


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
