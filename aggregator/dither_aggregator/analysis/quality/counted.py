"""The counts that check one day: their law hardly depends on what devices answer.

    cells       how many reports each cell has: cells are drawn before the answer is looked at
    shares      how many reports support a value, set a bit, or are a symbol: as often as if nobody had it at least, as
                if everybody had it at most. An estimate may lie below zero by noise, and by no more than that
    ones        how many bits are set in all reports: with one value to a report that is known; with several, or Bloom
                bits that may fall together, it lies between the fewest and the most
    unused      projective geometry response has more points than values: how many reports support each of the others,
                which is q whatever is answered, and how many of them all reports support together

The estimates of GRR and of all points of PGR sum to one whatever was sent: that is not looked at. Subsets always have
as many members.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, singledispatch
from typing import Literal

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.quality.laws import bennett, binomial, mixed
from dither_aggregator.counting.folding import Counts, tables
from dither_aggregator.counting.supports import hyperplane_sums, hyperplanes_through, support_counts
from dither_shared.cells import Cells
from dither_shared.mechanisms import RAPPOR, Mechanism, PureMechanism, SquareWave
from dither_shared.mechanisms.pgr import points
from dither_shared.mechanisms.unary import UnaryCode
from dither_shared.rng import SCALE

Check = Literal["cells", "shares", "ones", "unused", "unused together"]
ENTRIES_MAX = 1 << 22
"""A tally with more is checked by its cells alone: the transforms of all others would take longer than the page."""
LASTING = 3
"""The most reports of one device in one day: one that was built, one that waited, and that of the day."""


@dataclass(frozen=True)
class Extremes:
    """Counts of one sort: the ones that are farthest off, and how rarely honest devices make each so, two-sided."""

    check: Check
    cell: int
    """The cell that they are of, or the first of them."""
    tests: int
    """How many counts there are."""
    places: Counts
    """The places of `counts` among all of them."""
    counts: Counts
    low: Floats
    """The least that each is expected to be, over all answers."""
    high: Floats
    chances: Floats


def count(cells: Cells, counts: Counts) -> Iterator[Extremes]:
    """Yield all that is counted in a tally of at least one report."""
    yield from _of_cells(cells, counts)
    if cells.tally_size > ENTRIES_MAX:
        return
    for part, table, first in tables(cells, counts):
        repeats = LASTING if part.mechanism.memoized else 1
        there = np.flatnonzero(table[:, 0])
        for row in there.tolist():
            yield from _each(part.mechanism, table[row, 1:], int(table[row, 0]), first + row, repeats)
        if len(there):
            yield from _all(part.mechanism, table[:, 1:].sum(axis=0), int(table[:, 0].sum()), first, repeats)


def _of_cells(cells: Cells, counts: Counts) -> Iterator[Extremes]:
    """Yield the sizes of cells, for each public value that has reports."""
    if cells.each == 1:
        return
    sizes = np.concatenate([table[:, 0] for _, table, _ in tables(cells, counts)]).reshape(cells.public, cells.each)
    weights = np.repeat([part.weight for part in cells.parts], [part.cells for part in cells.parts])
    rates, places = weights / weights.sum(), np.arange(cells.each)
    for arm, (arms, n) in enumerate(zip(sizes, sizes.sum(axis=1).tolist(), strict=True)):
        if n:
            chances = mixed(arms, n, rates, rates, LASTING) if cells.lasting else binomial(arms, n, rates, rates)
            yield Extremes("cells", arm * cells.each, cells.each, places, arms, rates * n, rates * n, chances)


def _farthest(check: Check, cell: int, counts: Counts, n: int, low: float, high: float, repeats: int) -> Extremes:
    """Return the smallest and the largest of counts that have the same law: all others are less far off."""
    places = np.array([counts.argmin(), counts.argmax()])
    chances = binomial(counts[places], n, low, high) if repeats == 1 else mixed(counts[places], n, low, high, repeats)
    ends = np.full(2, low * n), np.full(2, high * n)
    return Extremes(check, cell, len(counts), places, counts[places], *ends, chances)


def _one(check: Check, cell: int, total: int, low: float, high: float, chance: float) -> Extremes:
    """Return a count by itself."""
    return Extremes(
        check, cell, 1, np.array([0]), np.array([total]), np.array([low]), np.array([high]), np.array([chance])
    )


@singledispatch
def _each(mechanism: Mechanism, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """Yield what is counted in one cell."""
    return iter(())


@singledispatch
def _all(mechanism: Mechanism, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """Yield what is counted in all cells of a mechanism together, given the sum of their counts and the first cell."""
    return iter(())


@_each.register
def _(mechanism: PureMechanism, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    p, q = float(mechanism.p), float(mechanism.q)
    if mechanism.geometry is None:
        yield _farthest("shares", cell, support_counts(mechanism, counts, n), n, q, p, repeats)
        return
    supports = hyperplane_sums(counts, *mechanism.geometry)
    yield _farthest("shares", cell, supports[: mechanism.d], n, q, p, repeats)
    if len(supports) > mechanism.d:
        yield _farthest("unused", cell, supports[mechanism.d :], n, q, q, repeats)
        yield _together(mechanism, counts, n, cell, repeats)


def _together(mechanism: PureMechanism, counts: Counts, n: int, cell: int, repeats: int) -> Extremes:
    law = _unused_law(mechanism)
    total = int(law.supported @ counts)
    chance = bennett(total - n * law.mean, n, law.variance, law.most - law.mean, law.mean - law.least, repeats)
    return _one("unused together", cell, total, n * law.mean, n * law.mean, chance)


@dataclass(frozen=True)
class _UnusedLaw:
    """How many of the unused values one report supports."""

    supported: Counts
    """By point, int64[K]."""
    mean: float
    """The same for every answer."""
    variance: float
    """The largest over all answers."""
    least: int
    most: int


@lru_cache(maxsize=16)
def _unused_law(mechanism: PureMechanism) -> _UnusedLaw:
    assert mechanism.geometry is not None
    order, dimension, _ = mechanism.geometry
    size, s = mechanism.shape.size, points(order, dimension - 1)
    unused = np.arange(mechanism.d, size)
    supported = hyperplanes_through(*mechanism.geometry, unused)
    squares = supported**2
    on = hyperplane_sums(squares, *mechanism.geometry)[: mechanism.d]
    inside = float(mechanism.p)
    second = inside * on / s + (1 - inside) * (squares.sum() - on) / (size - s)
    mean = len(unused) * float(mechanism.q)
    return _UnusedLaw(supported, mean, float(second.max()) - mean**2, int(supported.min()), int(supported.max()))


@_each.register
def _(mechanism: SquareWave, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    inside = mechanism.threshold / SCALE
    low, high = (1 - inside) / (mechanism.outputs - mechanism.width), inside / mechanism.width
    yield _farthest("shares", cell, counts, n, low, high, repeats)


@_each.register
def _(mechanism: RAPPOR, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    yield _farthest("shares", cell, counts, n, float(mechanism.p_star), float(mechanism.q_star), repeats)


@_all.register
def _(mechanism: RAPPOR, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """A text has one bit at least and h at most."""
    rates = float(mechanism.p_star), float(mechanism.q_star)
    yield _ones(counts, n, cell, rates, (1, mechanism.h), repeats)


@_all.register
def _(mechanism: UnaryCode, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """An answer holds exactly one value, or none to `ticks` of them."""
    rates, least = (float(mechanism.q), float(mechanism.p)), 1 if mechanism.ticks == 1 else 0
    yield _ones(counts, n, cell, rates, (least, mechanism.ticks), repeats)


def _ones(
    counts: Counts, n: int, cell: int, rates: tuple[float, float], held: tuple[int, int], repeats: int
) -> Extremes:
    """Return the bits set in all reports: a bit that is 0 or 1 before the noise is set at these two rates.

    `held` is how many are 1, at least and at most.
    """
    (zero, one), trials = rates, n * len(counts)
    low, high = (zero + (one - zero) * bits / len(counts) for bits in held)
    (chance,) = mixed(counts.sum(keepdims=True), trials, low, high, repeats).tolist()
    return _one("ones", cell, int(counts.sum()), low * trials, high * trials, chance)
