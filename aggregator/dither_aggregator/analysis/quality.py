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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, singledispatch
from threading import Condition
from typing import Literal, get_args

import numpy as np
from cachetools import LRUCache, cached
from scipy.special import betainc, rel_entr

from dither_aggregator.analysis.estimands import days_of, each_day, tally_of
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.reading_cache import Codec, once
from dither_aggregator.counting.folding import Counts, tables
from dither_aggregator.counting.supports import hyperplane_sums, hyperplanes_through, support_counts
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_shared.cells import Cells
from dither_shared.mechanisms import RAPPOR, Mechanism, PureMechanism, SquareWave
from dither_shared.mechanisms.pgr import points
from dither_shared.mechanisms.unary import UnaryCode
from dither_shared.plan import Plan
from dither_shared.rng import SCALE

# How rarely honest devices give a count as small or as large: exact laws, or bounds of them, never a normal curve.
#
# A count is of n trials, each with a probability from `low` to `high`, whatever the answers are. So it is
# stochastically at least a binomial count of rate `low`, and at most one of rate `high`: their tails bound it
# (`binomial`), and are its own where both rates are one.
#
# The tails are Chernoff's (`mixed`) where only the mean of the probabilities is known to be from `low` to `high`, and
# where a device may have sent r of the reports, perhaps with the same noise:
#
#     P[count >= k]  <=  exp( - (n / r) KL(k / n | high) )        and so below, with KL(a | b) that of two coins
#
# Proof. Let a device have s <= r trials of one coin, with sum X of mean s p. exp is convex, so E[e^(t X)] is at most 1
# - p + p e^(t s), whose logarithm is convex in s and zero at 0: at most s / r that of r trials. It is concave in p: of
# all devices together at most what the mean of the p gives, (1 - p + p e^(t r))^(n / r). The best t gives the bound.
# Hoeffding 1963 has it with r = 1.
#
# A sum of n bounded terms of known mean, each with a variance of at most v and at most c above its mean, has Bennett's
# tail (1962), with r reports of a device as above:
#
#     P[sum - mean >= x]  <=  exp( - (n v / (r c^2)) h(c x / (n v)) )        h(u) = (1 + u) ln(1 + u) - u


def binomial(counts: Counts, n: Counts | int, low: Floats | float, high: Floats | float) -> Floats:
    """Return two-sided p-values of counts of n >= 1 independent trials that are each from `low` to `high` likely."""
    above = np.where(counts > 0, betainc(np.maximum(counts, 1), n - np.maximum(counts, 1) + 1, high), 1.0)
    rest = n - counts
    below = np.where(rest > 0, betainc(np.maximum(rest, 1), n - np.maximum(rest, 1) + 1, 1 - np.asarray(low)), 1.0)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(above, below)))


def mixed(counts: Counts, n: Counts | int, low: Floats | float, high: Floats | float, repeats: int = 1) -> Floats:
    """Return bounds of the same where the mean of the probabilities is from `low` to `high`."""
    rates = np.asarray(counts / n)
    nearest = np.clip(rates, low, high)
    divergence = rel_entr(rates, nearest) + rel_entr(1 - rates, 1 - nearest)
    return np.asarray(np.minimum(1.0, 2 * np.exp(-n / repeats * divergence)))


def bennett(excess: float, n: int, variance: float, above: float, below: float, repeats: int = 1) -> float:
    """Return a two-sided p-value of a sum of n terms that is `excess` more than its mean.

    A term is at most `above` more than its mean, and at most `below` less.
    """
    reach = above if excess > 0 else below
    if not (variance > 0 and reach > 0):
        return 1.0 if excess == 0 else 0.0
    size = abs(excess) * reach / (n * variance)
    exponent = n * variance / (repeats * reach**2) * ((1 + size) * np.log1p(size) - size)
    return float(min(1.0, 2 * np.exp(-exponent)))


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


# The verdict on one day: whether its counts are those of devices that randomize as they should.
#
# Each of five checks (`counted`) has a p-value: the smallest of its counts', times how many there are, and times five.
# A day is implausible where one of these is at most ALPHA. So of a sound metric at most one day in a thousand is called
# so, whatever people answer (Bonferroni; each tail is exact or bounded: `laws`). This is the rate of one metric and
# day: somebody who looks at a thousand of them finds one where nothing is wrong.
#
# Days are never checked together. The cohorts of the same devices are the same every day, so that over several days
# their counts would always seem uneven; and memos repeat their noise.
#
# Only what is clumsy is found: reports that no honest device sends so often, such as those of a broken build, of a
# device that sends one report a thousand times, of all ones. Made-up reports that are drawn like honest ones pass, and
# move an estimate all the same: `dither_shared.accounting.poisoning` says how far.


ALPHA = 0.001
"""At most this part of a sound metric's days is called implausible."""
CHECKS: tuple[Check, ...] = get_args(Check)
SLOW_ENTRIES = 1 << 17
"""A tally with more takes tenths of a second: its checks are made beforehand, and kept."""
DAYS_MAX = 10_000
"""Verdicts that are kept, a few numbers each."""


@dataclass(frozen=True)
class Checked:
    """One check of one day, with the count that is farthest off."""

    check: Check
    tests: int
    """How many counts it looks at."""
    of: str
    """The name of the count, in words that follow a number."""
    observed: int
    low: float
    """The least that is expected, whatever is answered."""
    high: float
    p_value: float
    """The p-value of the worst count, times all counts of the check and the five checks of a day; at most 1."""

    @property
    def implausible(self) -> bool:
        """Whether honest devices hardly ever give such a count."""
        return self.p_value <= ALPHA


@dataclass(frozen=True)
class Quality:
    """One day of one plan."""

    epoch: date
    n: int
    checks: Sequence[Checked]
    """The checks that the plan has."""

    @property
    def worst(self) -> Checked | None:
        """The check that tells surest that something is wrong; None where nothing does."""
        return min((each for each in self.checks if each.implausible), key=lambda each: each.p_value, default=None)


def examine(plan: Plan, tally: Tally) -> Sequence[Checked]:
    """Return the checks of a day's tally; none of a day without reports."""
    found: dict[Check, list[Extremes]] = {}
    for each in count(plan.cells, tally.counts) if tally.n else ():
        if not (tally.left_out and each.check == "cells"):  # which are uneven then
            found.setdefault(each.check, []).append(each)
    return [_checked(plan, check, found[check]) for check in CHECKS if check in found]


def _checked(plan: Plan, check: Check, found: Sequence[Extremes]) -> Checked:
    tests = sum(each.tests for each in found)
    worst = min(found, key=lambda each: float(each.chances.min()))
    at = int(worst.chances.argmin())
    return Checked(
        check,
        tests,
        _named(plan, worst, at),
        int(worst.counts[at]),
        float(worst.low[at]),
        float(worst.high[at]),
        min(1.0, float(worst.chances[at]) * tests * len(CHECKS)),
    )


def _named(plan: Plan, counted: Extremes, at: int) -> str:
    """Return what is counted, in words that follow a number."""
    place, cell = int(counted.places[at]), "cohort" if plan.cells.lasting else "cell"
    if counted.check == "cells":
        return f"reports of {cell} {counted.cell + place}"
    if counted.check == "ones":
        return "bits that are set"
    if counted.check == "shares" and plan.values:
        return f"reports that support “{plan.values[place]}”"
    sentence = {
        "unused": f"reports that support the unused value {place}",
        "unused together": "times that reports support unused values",
    }.get(counted.check, f"reports that support place {place}")
    return f"{sentence} in {cell} {counted.cell}" if plan.cells.several else sentence


def days(store: Store, stored: StoredPlan, window: Window) -> Iterator[Quality]:
    """Yield each closed day of a window that has reports, the earliest first; those no longer kept are left out.

    Raises BadTally, and NotReady where some of them are not checked yet.
    """
    sealed, kept_from, finals = store.sealed(), store.tallies_from(), store.finals(stored.plan)
    closed = [each for each in days_of(store, stored, window, finals) if kept_from <= each[0] <= sealed]
    codec, slow = Codec((Quality, Checked), stored), stored.plan.cells.tally_size > SLOW_ENTRIES

    def check(of_day: tuple[date, str]) -> Quality:
        def made() -> Quality:
            return _once(store, stored, of_day[0])

        return once(store, stored, "quality", [of_day], [], made, codec, slow=slow, noun="checking the counts")

    yield from each_day(closed, check)


def _key(store: Store, stored: StoredPlan, day: date) -> tuple[object, ...]:
    return store.generation, stored.plan.metric, stored.plan.digest, day


@cached(LRUCache(DAYS_MAX), key=_key, condition=Condition())
def _once(store: Store, stored: StoredPlan, day: date) -> Quality:
    """Check a closed day, once: its counts do not change any more."""
    tally = tally_of(store, stored, Window.ending(day, 1))
    return Quality(day, tally.n, examine(stored.plan, tally))
