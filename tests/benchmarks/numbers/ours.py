"""Numbers as dither does them, for the comparison: the registry's plan, exact draws of its tallies, the page's fit.

A public coin sends each report through one of two cells, each at the full epsilon: the window (square wave), which sees
the shape, or the points (PGR or GRR), which see a mass on one bucket. One likelihood is fitted to both counts.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from dither_aggregator.analysis.channel import channel_of
from dither_aggregator.analysis.numeric_fit import most_likely
from dither_shared.frozen import replaced
from dither_shared.mechanisms import Cells, Part
from dither_shared.plan import Plan
from tests.benchmarks.numbers.shapes import Counts, Floats
from tests.support.drawn_numbers import cell_laws, stored_number, summed, tally_of, weights_of


def ours(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the likeliest shares for each row of devices: int64[S, B] in, float64[S, B] out.

    Row i draws from rngs[i] alone.
    """
    return estimate(plan_of(devices.shape[1], epsilon), devices, rngs)


def estimate(plan: Plan, devices: Counts, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the same under a plan of buckets. Nobody says "other", which is fitted all the same, and left out."""
    found = []
    for row, rng in zip(devices, rngs, strict=True):
        tally = tally_of(plan, _drawn(plan, row, rng))
        shares = most_likely(channel_of(plan, tally.counts, tally.n))[: len(row)]
        found.append(shares / shares.sum())
    return np.array(found)


@cache
def plan_of(buckets: int, epsilon: float) -> Plan:
    """Return the registry's plan of a number with so many buckets, the two open ones among them."""
    return stored_number(f"low = 0\nhigh = {buckets - 2}\nbuckets = {buckets - 2}", epsilon=f"{epsilon:g}").plan


def weighted(plan: Plan, window: int, points: int) -> Plan:
    """Return a plan whose reports are of the window and of the points in another ratio."""
    pairs = zip(plan.cells.parts, (window, points), strict=True)
    return replaced(plan, cells=Cells(tuple(Part(part.mechanism, weight=weight) for part, weight in pairs)))


def _drawn(plan: Plan, devices: Counts, rng: np.random.Generator) -> list[Counts]:
    """Draw the counts of each cell: every device draws its cell, whatever its number is."""
    cells = rng.multinomial(devices, weights_of(plan))
    return [
        rng.multinomial(some, np.array([summed(column) for column in law.T[: len(devices)]])).sum(axis=0)
        for some, law in zip(cells.T, cell_laws(plan), strict=True)
    ]
