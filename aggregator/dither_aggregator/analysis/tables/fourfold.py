"""For each group and outcome four shares with their covariance, of which rates, differences and tests are made.

    CELL      of those with the group and the outcome
    GROUP     of those with the group, whatever the outcome
    OUTCOME   of those with the outcome, whatever the group
    ALL       of those with something to say

All four are sums of the cells of one pair of columns. So are their covariances: exact, by the mechanism's design.
Devices that were asked other questions say the same of a group or an outcome, with independent noise. Least squares
joins all their answers. With u the four, S their covariance, and c = H u + an error of variance V the share of
the group, or of the outcome, in all other questions

    u + K (c - H u)        S - K H S        K = S H' (H S H' + V)^-1

If an outcome is one end of a range, to which coins round numbers, the group is of those with a number, and so are all:
then other questions say nothing of a group.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.ratios import Ratios
from dither_aggregator.analysis.tables.columns import Margin
from dither_aggregator.analysis.tables.questions import CellTable

CELL, GROUP, OUTCOME, ALL = range(4)


@dataclass(frozen=True)
class Fourfold:
    """The four shares of A groups and B outcomes."""

    shares: Floats
    """float64[A, B, 4], raw and unbiased."""
    covariance: Floats
    """float64[A, B, 4, 4]."""
    steepness: float

    def knowing(self, group: Margin | None, outcome: Margin | None) -> "Fourfold":
        """Return it joined with what other questions say of groups, float64[A], and of outcomes, float64[B]."""
        joined = self
        if group is not None:
            joined = joined._joined(GROUP, group.shares[:, np.newaxis], group.variances[:, np.newaxis])
        return joined._joined(OUTCOME, outcome.shares, outcome.variances) if outcome is not None else joined

    def _joined(self, at: int, shares: Floats, variances: Floats) -> "Fourfold":
        along = self.covariance[..., at]
        gain = along / (along[..., at] + variances)[..., np.newaxis]
        missed = shares - self.shares[..., at]
        return replace(
            self,
            shares=self.shares + gain * missed[..., np.newaxis],
            covariance=self.covariance - gain[..., :, np.newaxis] * along[..., np.newaxis, :],
        )

    @property
    def cells(self) -> Ratios:
        """The shares of those with both, float64[A, B]."""
        return self._ratios(np.array([1.0, 0, 0, 0]), np.array([0.0, 0, 0, 1]))

    @property
    def rates(self) -> Ratios:
        """The share of each group that has the outcome, float64[A, B]."""
        return self._ratios(np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 0, 0]))

    @property
    def others(self) -> Ratios:
        """The same of those who are not in the group."""
        return self._ratios(np.array([-1.0, 0, 1, 0]), np.array([0.0, -1, 0, 1]))

    def _ratios(self, part: Floats, whole: Floats) -> Ratios:
        return Ratios(
            self.shares @ part,
            self.shares @ whole,
            self.covariance @ part @ part,
            self.covariance @ part @ whole,
            self.covariance @ whole @ whole,
            self.steepness,
        )


def fourfold(table: CellTable) -> Fourfold:
    """Return the four shares of each group, the table's first column, and each outcome, its second."""
    return _fourfold(table, np.ones(table.shape[1]), np.arange(table.shape[1]), *table.everybody)


def fourfold_of_numbers(table: CellTable, high: int, numbers: npt.NDArray[np.bool_]) -> Fourfold:
    """Return the same of the outcome `high` alone, among those whose second column holds `numbers`, bool[B]."""
    everybody = np.zeros(table.size)
    everybody[: np.prod(table.shape)] = np.tile(numbers, table.shape[0])
    return _fourfold(table, numbers.astype(np.float64), np.array([high]), everybody, 0.0)


def _fourfold(
    table: CellTable, among: Floats, outcomes: npt.NDArray[np.intp], everybody: Floats, constant: float
) -> Fourfold:
    """Return it of groups among some symbols of the second column, float64[B], and of everybody, float64[size]."""
    (a, b), o = table.shape, len(outcomes)
    sums = np.zeros((a + o + 1, table.size))
    sums[:a, : a * b] = np.kron(np.eye(a), among)
    sums[a:-1, : a * b] = np.tile(np.eye(b)[outcomes], a)
    sums[-1] = everybody
    along = table.covariances(sums)
    own = np.arange(a)[:, np.newaxis] * b + outcomes
    at = np.stack(np.broadcast_arrays(np.arange(a)[:, np.newaxis], a + np.arange(o), a + o))  # of GROUP, OUTCOME, ALL
    shares, covariance = np.empty((4, a, o)), np.empty((4, 4, a, o))
    shares[CELL], shares[GROUP:] = table.shares[own], (sums @ table.shares)[at]
    shares[ALL] += constant
    covariance[CELL, CELL] = table.variances[own]
    covariance[CELL, GROUP:] = covariance[GROUP:, CELL] = along[at, own]
    covariance[GROUP:, GROUP:] = (along @ sums.T)[at[:, np.newaxis], at]
    return Fourfold(np.moveaxis(shares, 0, -1), np.moveaxis(covariance, (0, 1), (-2, -1)), table.steepness)
