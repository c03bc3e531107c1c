"""The shares of one column's symbols, from all questions that ask for it.

Each question has its own reports, so their noise is independent. They are added with weights that are the inverse of a
question's mean variance, as it is planned: weights made of the counts would know which of them came out low.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.ratios import Ratios
from dither_aggregator.analysis.tables.pairs import precision_weights
from dither_aggregator.analysis.tables.questions import CellTable


@dataclass(frozen=True)
class Margin:
    """Raw shares of a column's B symbols, and the share of all who are asked about: those with something to say."""

    shares: Floats
    """float64[B]."""
    variances: Floats
    whole: float
    whole_variance: float
    covariances: Floats
    """The covariance of each share with the whole."""
    steepness: float
    third: Floats
    """The third cumulant of each share where nobody has it, float64[B]: that of as many rare counts."""
    third_slope: float
    """How much it grows with the share."""
    planned: float
    """The mean variance of shares, by the plan and the number of reports alone."""

    @property
    def ratios(self) -> Ratios:
        """The symbols' shares of the whole."""
        whole, spread = np.full_like(self.shares, self.whole), np.full_like(self.shares, self.whole_variance)
        return Ratios(self.shares, whole, self.variances, self.covariances, spread, self.steepness)


def margin(table: CellTable, among: npt.NDArray[np.bool_] | None = None) -> Margin:
    """Return what one question says of a column, which `table` is of; the whole may be some symbols, bool[B]."""
    (size,), shares = table.shape, table.shares
    whole, constant = table.everybody
    if among is not None:
        whole, constant = np.append(among.astype(np.float64), np.zeros(table.size - size)), 0.0
    (along,) = table.covariances(whole[np.newaxis]) if whole.any() else np.zeros((1, table.size))
    of_whole, spread = float(constant + whole @ shares), float(along @ whole)
    p, q, n = float(table.question.mechanism.p), float(table.question.mechanism.q), table.question.n
    sizes = np.bincount(table.cells, minlength=table.size)[:size].astype(np.float64)
    third = np.asarray(sizes * (q / (n**2 * (p - q) ** 3)), dtype=np.float64)
    return Margin(
        shares[:size],
        table.variances[:size],
        of_whole,
        spread,
        along[:size],
        table.steepness,
        third,
        1 / (n * (p - q)) ** 2,
        table.law.planned / n,
    )


def pooled(margins: Sequence[Margin]) -> Margin | None:
    """Return what questions say together of a column; None where there is no question."""
    if not margins:
        return None
    weights = precision_weights([each.planned for each in margins])

    def added(parts: Sequence[Floats | float], by: Floats) -> Floats:
        return np.asarray(by @ np.array(parts))

    return Margin(
        added([each.shares for each in margins], weights),
        added([each.variances for each in margins], weights**2),
        float(added([each.whole for each in margins], weights)),
        float(added([each.whole_variance for each in margins], weights**2)),
        added([each.covariances for each in margins], weights**2),
        float(added([each.steepness for each in margins], weights**2)),
        added([each.third for each in margins], weights**3),
        float(added([each.third_slope for each in margins], weights**3)),
        float(added([each.planned for each in margins], weights**2)),
    )
