"""Weights over all cells of a table that agree with its measured pairs to within their noise, and records from them.

Private multiplicative weights. Let m^_v be the raw table of the pair v, Var_v the variances of its cells, and w_v the
same margin of weights w over all D cells. The weights start as the product of the one-way tables (`margins`), each
share at least half its standard error. A step

    w  <-  w exp( eta sum over v of (m^_v - w_v) / Var_v )      each term at the cell of v that the cell lies in

and then divides by the sum. It is mirror descent with the entropy on half of

    chi2(w) = sum over v of |m^_v - w_v|^2 / Var_v

eta begins at 1 / sum(1 / mean Var_v). It grows by a factor of 1.15 when chi2 fell; otherwise the step is taken back
and eta is halved. The true table has a chi2 of about the number of measured cells, less one for each pair, whose sum
is known. The fit stops at the first w with

    chi2(w) <= .9 sum over v of (cells_v - 1)

since further steps fit noise. At every step w is the start times a factor for each pair's cells. So of all tables with
the same two-way margins as w, it is the closest to the start in relative entropy (Csiszar 1975): it has no interaction
of three columns that the start has not, which has none.

Hardt and Rothblum 2010 (multiplicative weights); Hardt, Ligett, McSherry 2012 (MWEM), which picks queries by an
exponential mechanism on the data. Here nothing is picked and no data are seen: all pairs are measured, and what is made
of their randomized reports costs no privacy.

May be claimed: the weights agree with the measured pairs to within their noise. May not: an interval. Pair cells have
theirs in the raw tables; entries of three columns or more are model, and no report says whether they hold.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from hashlib import sha256
from itertools import combinations
from math import prod, sqrt

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.pairs import (
    PairTable,
    QuestionTally,
    TooFew,
    combined_margin,
    norm_sub,
    pair_table,
    sizes_of,
)
from dither_aggregator.analysis.tables.reading import REPORTS_MIN, arms_of, columns_of, together
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.plan import Plan

# All two-way margins of a table of weights, and their transpose, in a few passes over its cells.
#
# The columns are cut into two halves, and the weights are a matrix W[L, R] over the cells of each. Let I_L[L, S] have a
# row for each cell of the left half, and in it a one for each of the values that the cell holds, and I_R likewise. Then
#
#     I_L' W I_R      holds the margin of every pair with a column of each half
#     W 1, W' 1       are the weights of the halves, whose own pairs are found in the same way
#
# The indicators are sparse: k columns and D cells take about k D / 2 additions, where a pass for each pair would take
# k^2 D / 2. They are added in a fixed order on one thread, so that equal weights give equal bits.


Pair = tuple[int, int]
"""The places of two columns, the lower one first."""


class ColumnRun:
    """A run of columns that stand side by side, and the cells of all of them, the last column fastest."""

    def __init__(self, sizes: tuple[int, ...], first: int = 0) -> None:
        """Take the number of values of each, and the place of the first."""
        self.sizes, self.cells = sizes, prod(sizes)
        ends = np.cumsum((0, *sizes)).tolist()
        self.places = {first + at: slice(ends[at], ends[at + 1]) for at in range(len(sizes))}
        self._halves: tuple[ColumnRun, ColumnRun] | None = None
        if len(sizes) > 1:
            cut = min(range(1, len(sizes)), key=lambda at: max(prod(sizes[:at]), prod(sizes[at:])))
            self._halves = ColumnRun(sizes[:cut], first), ColumnRun(sizes[cut:], first + cut)

    @cached_property
    def indicators(self) -> csr_array:
        """I, float64[cells, sum of sizes]. Only halves need theirs: those of all cells would be larger than weights."""
        starts = np.cumsum((0, *self.sizes[:-1]))
        held = np.stack(np.unravel_index(np.arange(self.cells), self.sizes), axis=1) + starts
        ends = np.arange(0, held.size + 1, len(self.sizes))
        return csr_array((np.ones(held.size), held.ravel(), ends), shape=(self.cells, sum(self.sizes)))

    @cached_property
    def transposed(self) -> csc_array:
        """I', kept since a fit asks for it at each step."""
        return self.indicators.T

    def margins(self, weights: Floats) -> dict[Pair, Floats]:
        """Return the two-way margins of weights, float64[cells]: float64[A, B] for each pair."""
        if self._halves is None:
            return {}
        left, right = self._halves
        matrix = weights.reshape(left.cells, right.cells)
        sums = left.transposed @ matrix
        cross = (right.transposed @ sums.T).T
        own = {pair: cross[places] for pair, places in _across(left, right)}
        return own | left.margins(matrix.sum(axis=1)) | right.margins(matrix.sum(axis=0))

    def spread(self, tables: Mapping[Pair, Floats]) -> Floats:
        """Return, for each cell, the sum of the entries of the pairs' tables that it falls in: float64[cells]."""
        if self._halves is None:
            return np.zeros(self.cells)
        left, right = self._halves
        cross = np.zeros((sum(left.sizes), sum(right.sizes)))
        for pair, places in _across(left, right):
            if pair in tables:
                cross[places] = tables[pair]
        sums: Floats = left.indicators @ (right.indicators @ cross.T).T
        sums += left.spread(tables)[:, np.newaxis]
        sums += right.spread(tables)
        return sums.ravel()


def _across(left: ColumnRun, right: ColumnRun) -> Iterator[tuple[Pair, tuple[slice, slice]]]:
    """Yield each pair with a column of both, and where it lies in the matrix of all of them."""
    for a, rows in left.places.items():
        for b, columns in right.places.items():
            yield (a, b), (rows, columns)


CELLS_MAX = 1_000_000
STEPS_MAX = 400
STOP = 0.9
"""The part of noise's own chi2 at which the fit stops. From .88 to .94 the error on census records changes by at most
3 %. At .85 it is 4 % larger at epsilon 1, where more of what is left to fit is noise (`make bench ARGS=tables`).
"""
FLOOR = 0.5
"""The least share of a one-way table, in its standard errors: noise may have put a value at zero that some have.

From .25 to 1 the error on census records changes by at most 2 %. With a floor of 1e-4 it is 5 % larger at epsilon 1.
"""
SHARE_MIN = 1e-9
"""The same where there is hardly any noise: a weight of zero could not come back."""
GROWTH, RETREAT = 1.15, 0.5
WEIGHT_MIN = 1e-300
"""The least exponent: below it a weight would become zero, and could not come back."""
PARTS = 1 << 53
"""Weights are rounded to integers out of about so many when records are drawn: no coarser than their sum is rounded."""

Progress = Callable[[int, float], None]
"""Told after each step: how many were taken, and chi2 as a multiple of that at which the fit stops."""


@dataclass(frozen=True)
class Synthesis:
    """Weights over all cells, and how they came about."""

    weights: Floats
    """float64[the sizes of the columns], positive, with sum one."""
    chi2: float
    target: float
    """The chi2 at which a fit stops."""
    steps: int

    @property
    def agrees(self) -> bool:
        """Whether the weights agree with the measured pairs to within their noise."""
        return self.chi2 <= self.target


def synthesise(pairs: tuple[PairTable, ...], progress: Progress = lambda steps, ratio: None) -> Synthesis:
    """Fit weights to the pair tables of columns 0, 1, 2 and so on; stop at the noise, or after STEPS_MAX steps.

    `progress` may raise, which ends the fit. Raises ValueError for pairs that do not fit together, and for more than
    CELLS_MAX cells. Equal pairs give equal bits on one machine with one version of numpy and scipy.
    """
    sizes = sizes_of(pairs)
    if (cells := prod(sizes)) > CELLS_MAX:
        raise ValueError(f"a synthesis must have at most {CELLS_MAX} cells, got {cells}")
    columns, target = ColumnRun(sizes), STOP * sum(pair.shares.size - 1 for pair in pairs)
    weights = start(pairs, sizes)
    chi2, pull = _distance(pairs, columns.margins(weights))
    eta, steps = 1 / sum(1 / float(pair.variance.mean()) for pair in pairs), 0
    while chi2 > target and steps < STEPS_MAX:
        further = _stepped(weights, columns.spread(pull), eta)
        closer, further_pull = _distance(pairs, columns.margins(further))
        if closer < chi2:
            weights, chi2, pull, eta = further, closer, further_pull, eta * GROWTH
        else:
            eta *= RETREAT
        steps += 1
        progress(steps, chi2 / target)
    return Synthesis(weights.reshape(sizes), chi2, target, steps)


def start(pairs: tuple[PairTable, ...], sizes: tuple[int, ...]) -> Floats:
    """Return the product of the one-way tables, float64[cells], with sum one."""
    margins = [combined_margin(pairs, column) for column in range(len(sizes))]
    tables = [np.maximum(norm_sub(raw), max(FLOOR * sqrt(variance), SHARE_MIN)) for raw, variance in margins]
    product: Floats = reduce(np.multiply.outer, tables).ravel()
    product /= product.sum()
    return product


def _distance(pairs: tuple[PairTable, ...], margins: Mapping[Pair, Floats]) -> tuple[float, dict[Pair, Floats]]:
    """Return chi2, and (m^_v - w_v) / Var_v for each pair."""
    misses = [(pair, pair.shares - margins[pair.columns]) for pair in pairs]
    chi2 = sum(float((miss**2 / pair.variance).sum()) for pair, miss in misses)
    return chi2, {pair.columns: miss / pair.variance for pair, miss in misses}


def _stepped(weights: Floats, exponent: Floats, eta: float) -> Floats:
    """Return w exp(eta exponent), divided by its sum; `exponent` is overwritten."""
    exponent -= exponent.max()
    exponent *= eta
    np.exp(exponent, out=exponent)
    exponent *= weights
    exponent /= exponent.sum()
    return np.maximum(exponent, WEIGHT_MIN, out=exponent)


def records(weights: Floats, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw records from weights: int64[count, columns], each row the places of a cell's values.

    The weights are rounded down to integers out of PARTS and each record is a uniform integer below their sum, so that
    no rounding of a sum decides a record. Their error adds that of a sample of `count`.
    """
    ends = np.cumsum((weights.ravel() * PARTS).astype(np.int64))
    cells = np.searchsorted(ends, rng.integers(ends[-1], size=count), side="right")
    return np.stack(np.unravel_index(cells, weights.shape), axis=1).astype(np.int64)


# Synthetic records of a table: weights over all cells that agree with every measured pair, and draws from them.
#
# All of it is made of what a reading is made of, so it costs no privacy. The weights follow from the counts, the draws
# from the counts and their number: for one version on one machine the same records come again.


@dataclass(frozen=True)
class SyntheticTable:
    """The fit of one table's counts."""

    plan: Plan
    columns: Sequence[int]
    """The places of its columns among the plan's."""
    n: int
    pairs: Sequence[PairTable]
    synthesis: Synthesis
    seed: int

    def draw(self, count: int) -> npt.NDArray[np.int64]:
        """Draw records, int64[count, columns]: the place of each column's label."""
        return records(self.synthesis.weights, count, np.random.default_rng([self.seed, count]))

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [columns_of(self.plan).names[column] for column in self.columns]

    def in_words(self, drawn: npt.NDArray[np.int64]) -> list[list[str]]:
        """Return records with the labels of their columns."""
        labels = [columns_of(self.plan).labels(column) for column in self.columns]
        return [[labels[column][place] for column, place in enumerate(row)] for row in drawn.tolist()]


def synthesise_table(
    stored: StoredPlan,
    tally: Tally,
    view: View,
    progress: Progress,
    public: str | None = None,
    names: Sequence[str] = (),
) -> SyntheticTable:
    """Fit weights to the counts of a window, of one public value or of all together, for all columns or those named.

    Raises TooFew, BadTally, and ValueError for columns with more than CELLS_MAX cells.
    """
    domain, arms = columns_of(stored.plan), arms_of(stored, tally, view)
    if public is not None:
        arms = [arms[domain.public.index(public, 1) - 1]]
    questions = together(arms)
    if len(questions) < len(domain.questions) or min(question.n for question in questions) < REPORTS_MIN:
        least = REPORTS_MIN * len(domain.questions)
        raise TooFew(
            f"{sum(question.n for question in questions):,} reports are too few: each of {len(domain.questions)} "
            f"questions needs {REPORTS_MIN}, some {least:,} in all"
        )
    columns = [column for column, name in enumerate(domain.names) if name in (names or domain.names)]
    pairs = pair_tables(questions, columns)
    seed = int.from_bytes(sha256(f"{tally.digest} {public}".encode()).digest()[:8], "big")
    n = sum(question.n for question in questions)
    return SyntheticTable(stored.plan, columns, n, pairs, synthesise(pairs, progress), seed)


def pair_tables(questions: Sequence[QuestionTally], columns: Sequence[int]) -> tuple[PairTable, ...]:
    """Return the raw tables of each two of some columns, which are numbered from 0 on. Raises TooFew."""
    return tuple(
        replace(pair_table(question, pair), columns=(columns.index(pair[0]), columns.index(pair[1])))
        for question in questions
        for pair in combinations(question.columns, 2)
        if set(pair) <= set(columns)
    )
