"""How precisely one report tells mean and median of a number in ranges: what a plan is made of.

It is the law of `dither_shared.kinds.number_precision`, in arrays, since a search takes it a hundred times:

    [ g' M^-1 g - (g . f)^2 ] / n      M = sum over parts of  w A' diag(A f)^-1 A

Mean and the share up to the middle are ratios to those with a number, as a reading has them. "Other" is among what is
estimated, which makes up to a quarter of the errors of 4 ranges, and 3 % of those of 16 and more.
"""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numeric.laws import law_matrix
from dither_shared.cells import Cells
from dither_shared.mechanisms import PGR, Mechanism

EMPTY = 1e-3
"""Each of the two open ranges gets this part of the range: no law is without anything there."""


@dataclass(frozen=True)
class Errors:
    """Standard errors of one report, in parts of the range from low to high."""

    mean: float
    median: float
    """The variance of the share up to the middle."""
    is_number: float = 0.0
    """The variance of the share of those with a number."""


def errors_of_ranges(cells: Cells, d: int) -> Errors:
    """Return the errors of d even ranges, two open ones and "other", of numbers that are spread evenly."""
    shares = np.array([EMPTY, *np.full(d, 1 / d), EMPTY, 0.0])
    shares /= shares.sum()
    is_number = np.array([*np.ones(d + 2), 0.0])
    middles = np.array([0.0, *(np.arange(d) + 0.5) / d, 1.0, 0.0])
    up_to = np.array([*np.ones(1 + d // 2), *np.zeros(d - d // 2 + 2)])
    ratios = [functional - (functional @ shares) * is_number for functional in (middles, up_to)]
    variances = _variances(cells, shares, np.array([*ratios, is_number]))
    return Errors(*np.sqrt(np.maximum(variances, 0.0)).tolist())


def _variances(cells: Cells, shares: Floats, functionals: Floats) -> Floats:
    """Return g' M^-1 g - (g . f)^2 of each functional g, float64[count, places]."""
    weights = sum(part.cells * part.weight for part in cells.parts)
    information = sum(
        _information(part.mechanism, shares) * (part.cells * part.weight / weights) for part in cells.parts
    )
    solved = np.linalg.solve(information, functionals.T)
    return np.asarray((functionals * solved.T).sum(axis=1) - (functionals @ shares) ** 2)


@singledispatch
def _information(mechanism: Mechanism, shares: Floats) -> Floats:
    """Return A' diag(A f)^-1 A, float64[places, places]."""
    law = law_matrix(mechanism)
    return np.asarray(law.T @ (law / (law @ shares)[:, np.newaxis]))


@_information.register
def _(mechanism: PGR, shares: Floats) -> Floats:
    """Return it as if all points were equally likely, which they nearly are: the matrix of its law is slow to make."""
    same, other = mechanism.law.information
    return np.asarray(np.full((len(shares), len(shares)), other) + (same - other) * np.eye(len(shares)))
