"""Whether two columns go together at all: a test of independence, and Cramer's V as a size.

With t the share of those with something to say, all cells of two columns have a residual

    R_ab = m_ab t - m_a. m_.b                    zero but for noise where the columns are independent

The test adds up all R_ab^2 over their variances. Were the columns independent, cells would be the products of the
one-way shares (after Norm-Sub). At these the exact covariance of all cells is known, thus that of residuals, by the
delta method and with what products of two errors add: for groups a, c and outcomes b, d

    Cov[e_a e_b, e_c e_d] = Cov[e_a, e_c] Cov[e_b, e_d] + Cov[e_a, e_d] Cov[e_b, e_c]

So the sum is one of squares of normal variables with weights, the eigenvalues of S, the covariance of the residuals in
standard errors. Its cumulants are 2^(r-1) (r-1)! tr S^r, and a gamma law with the first three of them gives the p-value
(Hall 1983, Buckley and Eagleson 1988). Support counts of a mean c are Poisson's rather than normal: each adds 1 / c to
the second and 22 / c + 1 / c^2 to the third cumulant (Haldane 1937).

Cramer's V is sqrt(phi^2 / (k - 1)), with phi^2 the sum of R_ab^2 / (t^2 m_a. m_.b) and k the smaller number of symbols:
0 where one column tells nothing of the other, 1 where it tells it all. The mean that noise adds to phi^2 is taken off,
so that it does not grow with the number of cells (as Bergsma 2013 does for samples); a result below zero is zero. Its
interval is of a sum of squares with the variance 2 tr S^2 + 4 s phi^2, s the mean of S along the residuals. It is of
symbols whose one-way shares are told (`ratios.SURE`): one over a share near zero is mostly noise.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.ratios import SURE
from dither_aggregator.analysis.tables.pairs import norm_sub
from dither_aggregator.analysis.tables.questions import CellTable

Places = npt.NDArray[np.intp]
CELLS_MAX = 1_024
"""The covariance of a question with more symbols takes too long."""


@dataclass(frozen=True)
class Association:
    """The association of two columns."""

    p_value: float
    size: float
    """Cramer's V."""
    lower: float
    upper: float
    sure: bool
    """Whether the interval by which verdicts are given lies above zero."""


def association(table: CellTable, z: float, judging: float = 0.0) -> Association | None:
    """Test two columns, with the interval at z; a verdict is given by the wider one of z and `judging`.

    None where there are too many symbols, or fewer than two symbols of a column are told.
    """
    if table.question.mechanism.d > CELLS_MAX:
        return None
    own = _Residuals(table, table.shares)
    places = [_known_places(own, axis) for axis in (0, 1)]
    if min(len(each) for each in places) < 2:
        return None
    _, least, _ = _size(own, places, max(z, judging))
    return Association(_chance(table, own.unbiased), *_size(own, places, z), sure=least > 0)


def _chance(table: CellTable, residuals: Floats) -> float:
    """Return the p-value of residuals, float64[A, B]."""
    independent = _independent(table)
    law = _Residuals(table, independent)
    spread = np.maximum(np.diag(law.covariance), 1e-300)
    scaled = law.covariance / np.sqrt(np.outer(spread, spread))
    squared = scaled @ scaled
    p, q = float(table.question.mechanism.p), float(table.question.mechanism.q)
    sizes = np.bincount(table.cells, minlength=table.size)
    rare = 1 / (table.question.n * (sizes * q + independent * (p - q)))[: residuals.size]
    total = float((residuals.ravel() ** 2 / spread).sum())
    second = 2 * float(np.trace(squared)) + float(rare.sum())
    third = 8 * float((squared * scaled).sum()) + float((22 * rare + rare**2).sum())
    freedom = 8 * second**3 / third**2
    return float(gammaincc(freedom / 2, max((total - residuals.size) * sqrt(2 * freedom / second) + freedom, 0.0) / 2))


def _independent(table: CellTable) -> Floats:
    """Return the shares of cells with the table's one-way shares and no association, float64[size]."""
    cells = table.shares[: table.size - table.question.hidden].reshape(table.shape)
    rest = np.clip(table.shares[cells.size :], 0.0, 1.0)
    one, other = (norm_sub(cells.sum(axis=axis) / max(cells.sum(), 1e-12)) for axis in (1, 0))
    return np.append((1 - rest.sum()) * np.outer(one, other).ravel(), rest)


def _known_places(own: "_Residuals", axis: int) -> Places:
    """Return the places of the symbols of a column whose shares are told."""
    shares, spread = own.one_way[axis], np.diag(own.one_way_covariance[axis])
    return np.flatnonzero((shares > 0) & (shares**2 >= SURE**2 * spread))


def _size(own: "_Residuals", places: list[Places], z: float) -> tuple[float, float, float]:
    """Return Cramer's V and the ends of its interval."""
    rows, columns = places
    weights = np.zeros(own.value.shape)
    weights[np.ix_(rows, columns)] = 1 / (own.whole**2 * np.outer(own.one_way[0][rows], own.one_way[1][columns]))
    root = np.sqrt(weights.ravel())
    scaled, value = own.covariance * np.outer(root, root), own.unbiased.ravel() * root
    squares = float(value @ value)
    phi = squares - float(np.trace(scaled))
    along = max(float(value @ scaled @ value) / max(squares, 1e-300), 0.0)
    middle = phi + 2 * z**2 * along
    reach = sqrt(max(middle**2 - phi**2 + 2 * z**2 * float((scaled**2).sum()), 0.0))
    most = min(len(rows), len(columns)) - 1
    size, lower, upper = (min(sqrt(max(each, 0.0) / most), 1.0) for each in (phi, middle - reach, middle + reach))
    return size, min(lower, size), upper


class _Residuals:
    """R of a table, and its law where the true shares of cells are `shares`."""

    def __init__(self, table: CellTable, shares: Floats) -> None:
        self.shape = table.shape
        self._cells = table.size - table.question.hidden
        spread = table.covariance(shares)
        self.whole = 1 - float(shares[self._cells :].sum())
        self._table = shares[: self._cells].reshape(self.shape)
        self.one_way = self._table.sum(axis=1), self._table.sum(axis=0)
        self.value = self._table * self.whole - np.outer(*self.one_way)
        fourway = spread[: self._cells, : self._cells].reshape(*self.shape, *self.shape)
        groups, outcomes, across = (fourway.sum(axis=axes) for axes in ((1, 3), (0, 2), (1, 2)))
        self.one_way_covariance = groups, outcomes
        with_whole = -spread[: self._cells, self._cells :].sum(axis=1).reshape(self.shape)
        self.unbiased = self.value - with_whole + across
        products = np.einsum("ac,bd->abcd", groups, outcomes) + np.einsum("ad,cb->abcd", across, across)
        linear = self._moved(self._moved(spread).T)
        self.covariance = linear + products.reshape(self._cells, self._cells)

    def _moved(self, errors: Floats) -> Floats:
        """Return how residuals move with the cells, float64[size, any], to first order: float64[cells, any]."""
        by_cell = errors[: self._cells].reshape(*self.shape, -1)
        one, other = self.one_way
        moved = by_cell * self.whole
        moved = moved - other[:, np.newaxis] * by_cell.sum(axis=1, keepdims=True)
        moved = moved - one[:, np.newaxis, np.newaxis] * by_cell.sum(axis=0, keepdims=True)
        moved = moved - self._table[..., np.newaxis] * errors[self._cells :].sum(axis=0)
        return np.asarray(moved.reshape(self._cells, -1))
