"""The measured pairs of columns: raw, unbiased shares, of which intervals and a synthesis are made.

A device reports one pair of columns, drawn publicly and uniformly, so each pair has its own reports and its own noise.
Its cells are read like the values of a choice (`analysis.pure`): with C(v) the support count of the cell v, of n
reports, and r = q + f (p - q) its rate

    share       m^_v = (C(v) / n - q) / (p - q)          unbiased, may be negative
    variance    r (1 - r) / (n (p - q)^2)                of a sample of the devices: other pairs have other devices

Covariances between cells are left out. For GRR of few cells they are not small.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.counting.folding import Counts
from dither_shared.mechanisms import PureMechanism


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


def pair_table(
    mechanism: PureMechanism, support: Counts, n: int, columns: tuple[int, int], shape: tuple[int, int]
) -> PairTable:
    """Remove the noise from a pair's support counts, int64[A x B] with the last column fastest, of n >= 1 reports."""
    read = estimate_shares(mechanism, support, n, error_of="population", method="wald")
    return PairTable(columns, read.estimate.reshape(shape), (read.std_error**2).reshape(shape))


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
