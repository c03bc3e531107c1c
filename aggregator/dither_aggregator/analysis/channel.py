"""The channel: what the shares of places make of the counts of reports, whatever cells they came from.

    E[counts of cell c] = n_c A_c f

with f the shares of the places, which sum to one, A_c the law of the cell's mechanism, and n_c the reports of the cell.
How many these were tells nothing, so all is conditional on them. Places are, by domain:

    buckets       the buckets, the two open ones included, then "other" and, where presence is hidden, "none"
    range         the points of the grid, to one of which coins rounded the number
    thresholds    the edges: a device's own threshold within a step rounds a number to one of the step's ends,
                  upward with a chance as large as the part of the step below it

Rounding by coins keeps the mean, and moves a number by less than a step. A bucket leaves open where in it a number is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, singledispatch
from itertools import pairwise
from math import floor, log, sqrt
from threading import Condition
from typing import Literal

import numpy as np
from cachetools import LRUCache, cached

from dither_aggregator.analysis.inference import Floats, Z
from dither_aggregator.counting import Counts, hyperplane, tables
from dither_shared.domains import Buckets, Domain, Range, Thresholds
from dither_shared.kinds.number_precision import even_information
from dither_shared.mechanisms import GRR, PGR, Cells, Mechanism, MemoizedTwoLevel, SquareWave
from dither_shared.plan import Plan
from dither_shared.rng import SCALE


@lru_cache(maxsize=32)
def law_matrix(mechanism: Mechanism) -> Floats:
    """Return P[y | v], float64[K, d], by output and answer; raise TypeError for reports that are no symbols.

    A window has one more column, the last: answers without a place.
    """
    return _law(mechanism)


@singledispatch
def _law(mechanism: Mechanism) -> Floats:
    raise TypeError(f"the reports of {mechanism.name} are no symbols")


@_law.register
def _(mechanism: GRR) -> Floats:
    law = np.full((mechanism.d, mechanism.d), float(mechanism.q))
    np.fill_diagonal(law, float(mechanism.p))
    return law


@_law.register
def _(mechanism: PGR) -> Floats:
    on = np.stack([hyperplane(*mechanism.geometry, value) for value in range(mechanism.d)], axis=1)
    inside, held = float(mechanism.inside), int(on[:, 0].sum())
    return np.where(on, inside / held, (1 - inside) / (mechanism.outputs - held))


@_law.register
def _(mechanism: MemoizedTwoLevel) -> Floats:
    law = np.full((mechanism.d, mechanism.d), float(mechanism.q))
    np.fill_diagonal(law, float(mechanism.p))
    if not mechanism.supports_one:
        raise TypeError(f"the reports of a memoized {mechanism.name} are not read as numbers")
    return law


@_law.register
def _(mechanism: SquareWave) -> Floats:
    outputs, width = mechanism.outputs, mechanism.width
    inside = mechanism.threshold / SCALE
    law = np.full((outputs, mechanism.d + 1), (1 - inside) / (outputs - width))
    for place in range(mechanism.d):
        law[place : place + width, place] = inside / width
    law[:, -1] = 1 / outputs
    return law


# The channel of a plan.


MERGED_DIGITS = 12
"""Outputs whose laws agree to so many digits are one: all that they tell is how many reports they have together."""
KEPT_BYTES_MAX = 1 << 25
"""The most bytes that are kept of the laws of plans: the largest of 256 ranges take 4 MiB."""


@dataclass(frozen=True)
class Places:
    """The places where numbers may lie, lowest first, in units. Places of no numbers follow, and have no ends."""

    lower: Floats
    """The least number that may be counted at each place; minus infinity where it is open."""
    upper: Floats
    mean_lower: Floats
    """The least value that a number counted there adds to the mean, of numbers cut to the outermost edges."""
    mean_upper: Floats
    others: tuple[str, ...] = ()
    """The places that are no numbers."""

    @property
    def numbers(self) -> int:
        """How many places are of numbers."""
        return len(self.lower)

    def cut(self, *numbers: float) -> Floats:
        """Return numbers cut to the outermost edges."""
        return np.clip(numbers, self.mean_lower[0], self.mean_upper[-1])

    @cached_property
    def is_number(self) -> Floats:
        """1 for each place of numbers, then 0 for each other one."""
        return np.repeat([1.0, 0.0], [self.numbers, len(self.others)])

    @cached_property
    def up_to(self) -> Floats:
        """For each place of numbers, the functional of the share up to there, float64[numbers, places]."""
        return np.tril(np.ones((self.numbers, len(self.is_number))))

    def beyond(self, probability: float) -> Floats:
        """Return `up_to` less this part of all numbers: at least zero where the quantile is not higher."""
        if probability not in self._beyond:
            self._beyond[probability] = self.up_to - probability * self.is_number
        return self._beyond[probability]

    @cached_property
    def _beyond(self) -> dict[float, Floats]:
        return {}


@dataclass(frozen=True)
class CellLaws:
    """The different rows of the laws of some cells, one cell after the other: the same in all tallies of a plan."""

    law: Floats
    """float64[rows, places]: of a report of the row's cell."""
    cell: Counts
    """The cell of each row, counted from 0: int64[rows]."""
    outputs: Counts
    """How many outputs, whose laws are alike, each row has: int64[rows]."""
    entries: Counts
    """The place of each output's count in the tally: int64[outputs]."""
    rows: Counts
    """The row of each output: int64[outputs]."""

    def counts_of(self, counts: Counts) -> Counts:
        """Return how many reports of a tally each row has: int64[rows]."""
        return np.bincount(self.rows, weights=counts[self.entries], minlength=len(self.law)).astype(np.int64)


@dataclass(frozen=True)
class NumberChannel:
    """A law of counts, and counts that came of it."""

    places: Places
    of_cell: Floats
    """float64[rows, places]: the law of a report of the row's cell."""
    part: Floats
    """The part of all reports that are of the row's cell: float64[rows]."""
    counts: Counts
    """int64[rows]."""
    cell: Counts
    """The cell of each row, counted from 0 among those that have reports."""
    n: int
    outputs: Counts
    """How many outputs, whose laws are alike, each row has: int64[rows]."""

    @cached_property
    def law(self) -> Floats:
        """float64[rows, places]: the law of one report whose cell is that of a report drawn at random."""
        return self.of_cell * self.part[:, np.newaxis]


def channel_of(plan: Plan, counts: Counts, n: int) -> NumberChannel:
    """Return the channel of a tally of n >= 1 reports."""
    sizes = counts[_sizes_at(plan)]
    has_reports = sizes > 0
    laws = _laws(plan, has_reports.tobytes())
    part = (sizes[has_reports] / n)[laws.cell]
    return NumberChannel(places_of(plan), laws.law, part, laws.counts_of(counts), laws.cell, n, laws.outputs)


@lru_cache(16)
def _sizes_at(plan: Plan) -> Counts:
    """Return the places of each cell's number of reports in a tally: int64[cells]."""
    return np.concatenate([table[:, 0] for _, table, _ in tables(plan.cells, np.arange(plan.cells.tally_size))])


def _laws_key(plan: Plan, has_reports: bytes) -> tuple[Plan, bytes]:
    return plan, has_reports


def _bytes(laws: CellLaws) -> int:
    return laws.law.nbytes


@cached(LRUCache(KEPT_BYTES_MAX, getsizeof=_bytes), key=_laws_key, condition=Condition())
def _laws(plan: Plan, has_reports: bytes) -> CellLaws:
    """Return the laws of the cells that have reports, bool[cells]."""
    laws, begin = list[Floats](), 0
    cells, outputs, entries, rows = (list[Counts]() for _ in range(4))
    for part, table, first in tables(plan.cells, np.arange(plan.cells.tally_size)):
        for at, places in enumerate(table, first):
            if not has_reports[at]:
                continue
            law, which = _alike(law_by_place(plan, part.mechanism, at))
            laws.append(law)
            cells.append(np.full(len(law), len(cells)))
            outputs.append(np.bincount(which, minlength=len(law)))
            entries.append(places[1:])
            rows.append(which + begin)
            begin += len(law)
    return CellLaws(np.concatenate(laws), *map(np.concatenate, (cells, outputs, entries, rows)))


@lru_cache(16)
def places_of(plan: Plan) -> Places:
    """Return where a plan's numbers may lie."""
    return _PLACES[plan.domain.name](plan)


def _alike(law: Floats) -> tuple[Floats, Counts]:
    """Return the different rows of a law, each times how many are like it, and for each row which one it is like."""
    _, first, which = np.unique(law.round(MERGED_DIGITS), axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    return law[first] * np.bincount(which, minlength=len(first))[:, np.newaxis], which


def law_by_place(plan: Plan, mechanism: Mechanism, cell: int) -> Floats:
    """Return P[y | place], float64[symbols, places], of a cell whose mechanism may tell fewer answers apart."""
    law, columns = law_matrix(mechanism), len(places_of(plan).is_number)
    if isinstance(plan.domain, Thresholds):  # a cohort asks whether the number's edge lies above its step
        above = (np.arange(columns) > cell).astype(int)
        return law[:, above]
    if law.shape[1] < columns:  # "none" is "other" to a window
        return law[:, [*range(law.shape[1]), *[law.shape[1] - 1] * (columns - law.shape[1])]]
    return np.asarray(law[:, :columns])


def _buckets(plan: Plan) -> Places:
    edges = _edges(plan.domain)
    lower, upper = np.concatenate([[-np.inf], edges]), np.concatenate([edges, [np.inf]])
    others = ("other", "none") if plan.presence == "hidden" else ("other",)
    return Places(lower, upper, np.clip(lower, edges[0], edges[-1]), np.clip(upper, edges[0], edges[-1]), others)


def _grid(plan: Plan) -> Places:
    low, high = _edges(plan.domain)
    points = law_matrix(plan.cells.mechanism).shape[1] - 1
    return _rounded(np.linspace(low, high, points))


def _steps(plan: Plan) -> Places:
    return _rounded(_edges(plan.domain))


def _rounded(points: Floats) -> Places:
    """Return places to which numbers between their neighbours were rounded, and all beyond the ends to these."""
    return Places(np.concatenate([[-np.inf], points[:-1]]), np.concatenate([points[1:], [np.inf]]), points, points)


def _edges(domain: Domain) -> Floats:
    assert isinstance(domain, Buckets | Range | Thresholds)
    edges: Floats = np.array(domain.edges, dtype=np.float64) / 10**domain.decimals
    return edges


_PLACES: dict[str, Callable[[Plan], Places]] = {Buckets.name: _buckets, Range.name: _grid, Thresholds.name: _steps}


# The shares of numbers that are read, by domain: of each range, and above each edge.


NamedRange = tuple[str, float | None, float | None]
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
    ranges: Sequence[NamedRange]
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
    ranges: list[NamedRange] = [
        (f"above a point of {domain.between(low, high)}", low / 10**domain.decimals, high / 10**domain.decimals)
        for low, high in pairwise(domain.edges)
    ]
    return (SharesOfRanges("share_above", ranges, np.triu(np.ones((places.numbers, places.numbers)), 1)[:-1]),)


_SHARES: dict[str, Callable[[Plan, Places], Sequence[SharesOfRanges]]] = {
    Buckets.name: _of_buckets,
    Thresholds.name: _of_thresholds,
    "range": lambda plan, places: (),
}
