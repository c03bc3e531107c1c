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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.halves import ColumnRun, Pair
from dither_aggregator.analysis.tables.pairs import PairTable, combined_margin, norm_sub, sizes_of

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
