"""The measured pairs of columns: raw, unbiased shares, of which a synthesis is made.

If a device reports one pair, drawn publicly and uniformly, each pair has its own reports and its own noise. If it
reports all columns at once, every pair is read from the same reports. The variance of a cell is that of the design, and
of the devices as a sample of all (`questions.CellTable`). Covariances between cells are left out. For GRR of few cells
they are not small.

All pairs with a column measure its shares. The pair v = (a, b) measures column a by its row sums. With s_b values of
b, and Var_v the mean variance of the pair's cells, a row sum has a variance of about s_b Var_v. If each pair has
reports of its own, the mean of their row sums with weights 1 / (s_b Var_v) has about the least variance. These
variances weigh pairs and bound a synthesis: no interval is made of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.questions import QuestionTally
from dither_shared.errors import DitherError

SURE = 3.0
"""Standard errors above zero that the share of devices with something to say must be."""


class TooFew(DitherError):
    """Reports that are too few to make records of."""


@dataclass(frozen=True)
class PairTable:
    """The raw shares of the cells of two columns, each with its variance."""

    columns: tuple[int, int]
    """Their places among the columns, the lower one first."""
    shares: Floats
    """float64[A, B], unbiased: they may be negative, and need not sum to one."""
    variance: Floats
    """float64[A, B], each above zero: the noise, and that the pair's devices are a sample of all."""

    def __post_init__(self) -> None:
        first, second = self.columns
        if not 0 <= first < second:
            raise ValueError(f"columns must be two different ones in order, got {self.columns}")
        if self.shares.ndim != 2 or not np.isfinite(self.shares).all():
            raise ValueError(f"shares must be finite and two-dimensional, got {self.shares.ndim} dimensions")
        if self.variance.shape != self.shares.shape:
            raise ValueError(f"variance must have the shape {self.shares.shape}, got {self.variance.shape}")
        if not ((self.variance > 0) & np.isfinite(self.variance)).all():
            raise ValueError(f"variances must be finite and above zero, got {self.variance.min()} as the least")


def pair_table(question: QuestionTally, pair: tuple[int, int]) -> PairTable:
    """Return the raw table of two of its columns, of the devices that have something to say.

    Raises TooFew where presence is hidden and their share is not SURE standard errors above zero.
    """
    table = question.table(pair)
    cells = table.size - question.hidden
    shares, variance = table.shares[:cells], table.variances[:cells]
    if question.hidden:
        spoken = 1 - float(table.shares[-1])
        if spoken <= SURE * float(np.sqrt(table.variances[-1])):
            raise TooFew("too few of these reports say anything")
        shares, variance = shares / spoken, variance / spoken**2
    return PairTable(pair, _shaped(shares, table.shape), _shaped(variance, table.shape))


def _shaped(cells: Floats, shape: tuple[int, ...]) -> Floats:
    return np.asarray(cells.reshape(shape), dtype=np.float64)


def sizes_of(pairs: tuple[PairTable, ...]) -> tuple[int, ...]:
    """Return how many values each column has; raise ValueError where pairs disagree, repeat or leave out a column."""
    sizes: dict[int, int] = {}
    for column, size in chain.from_iterable(zip(pair.columns, pair.shares.shape, strict=True) for pair in pairs):
        if sizes.setdefault(column, size) != size:
            raise ValueError(f"column {column} must have one size in all pairs, got {sizes[column]} and {size}")
    if len({pair.columns for pair in pairs}) != len(pairs):
        raise ValueError("each pair of columns must come once")
    if sorted(sizes) != list(range(len(sizes))) or not sizes:
        raise ValueError(f"pairs must hold the columns 0, 1, 2 and so on, got {sorted(sizes)}")
    return tuple(sizes[column] for column in range(len(sizes)))


def combined_margin(pairs: tuple[PairTable, ...], column: int) -> tuple[Floats, float]:
    """Return a column's raw shares, float64[A], and about the variance of one, if pairs have reports of their own."""
    held = [(pair, 1 - pair.columns.index(column)) for pair in pairs if column in pair.columns]
    variances = [pair.shares.shape[other] * float(pair.variance.mean()) for pair, other in held]
    weights = precision_weights(variances)
    shares = np.asarray(weights @ [pair.shares.sum(axis=other) for pair, other in held], dtype=np.float64)
    return shares, float(weights**2 @ variances)


def precision_weights(variances: Sequence[float]) -> Floats:
    """Return the weights of a mean of so noisy measurements, float64: the inverse variances, with sum one."""
    precisions = 1 / np.array(variances)
    return np.asarray(precisions / precisions.sum())


def norm_sub(raw: Floats) -> Floats:
    """Return the nearest shares that are not negative and sum to one: the nearest point of the simplex.

    It subtracts one number from all and cuts at zero (Wang et al. 2020).
    """
    ordered = -np.sort(-raw, axis=None)
    levels = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    shares: Floats = np.maximum(raw - levels[ordered > levels][-1], 0.0)
    return shares
