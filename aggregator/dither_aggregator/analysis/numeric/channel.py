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

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numeric.laws import law_matrix
from dither_aggregator.counting.folding import Counts, tables
from dither_shared.domains import Buckets, Domain, Range, Thresholds
from dither_shared.mechanisms import Mechanism
from dither_shared.plan import Plan

MERGED_DIGITS = 12
"""Outputs whose laws agree to so many digits are one: all that they tell is how many reports they have together."""
KEPT_BYTES_MAX = 1 << 20
"""Laws up to this size are kept with their different rows, 32 of them: some 64 MiB at most."""


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


@dataclass(frozen=True)
class NumberChannel:
    """A law of counts, and counts that came of it."""

    places: Places
    law: Floats
    """float64[rows, places]: the law of one report whose cell is that of a report drawn at random."""
    counts: Counts
    """int64[rows]."""
    cell: Counts
    """The cell of each row, counted from 0 among those that have reports."""
    n: int
    outputs: Counts
    """How many outputs, whose laws are alike, each row has: int64[rows]."""

    @cached_property
    def cell_sizes(self) -> Counts:
        """The reports of each cell."""
        return np.bincount(self.cell, weights=self.counts).astype(np.int64)


def channel_of(plan: Plan, counts: Counts, n: int) -> NumberChannel:
    """Return the channel of a tally of n >= 1 reports."""
    places = places_of(plan)
    laws, rows, cells, outputs, number = [], [], [], [], 0
    for part, table, first in tables(plan.cells, counts):
        for at, row in enumerate(table):
            size = int(row[0])
            if size == 0:
                continue
            merged, which = _merged(plan, part.mechanism, first + at)
            laws.append(merged * (size / n))
            rows.append(np.bincount(which, weights=row[1:], minlength=len(merged)).astype(np.int64))
            outputs.append(np.bincount(which, minlength=len(merged)))
            cells.append(np.full(len(merged), number))
            number += 1
    law, each, cell = np.concatenate(laws), np.concatenate(rows), np.concatenate(cells)
    return NumberChannel(places, law, each, cell, n, np.concatenate(outputs))


@lru_cache(16)
def places_of(plan: Plan) -> Places:
    """Return where a plan's numbers may lie."""
    return _PLACES[plan.domain.name](plan)


def _merged(plan: Plan, mechanism: Mechanism, cell: int) -> tuple[Floats, Counts]:
    """Return the different rows of a cell's law, each times how many are alike, and which one each output is like."""
    small = law_matrix(mechanism).nbytes <= KEPT_BYTES_MAX
    return _kept(plan, mechanism, cell) if small else _alike(law_by_place(plan, mechanism, cell))


@lru_cache(maxsize=32)
def _kept(plan: Plan, mechanism: Mechanism, cell: int) -> tuple[Floats, Counts]:
    """Return the same, found once."""
    return _alike(law_by_place(plan, mechanism, cell))


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
