"""One-way tables, combined from every pair that holds the column.

The pair v = (a, b) measures column a by its row sums. With s_b values of b, and Var_v the mean variance of the pair's
cells, a row sum has a variance of about s_b Var_v. All pairs with a measure the same shares. If each pair has reports
of its own, the mean of their row sums with weights 1 / (s_b Var_v) has about the least variance. It is as good as
unbiased, since the weights hardly depend on what single cells came to.

Norm-Sub makes of it shares that are possible: the nearest point of the simplex (Wang et al. 2020), which subtracts one
number from all and cuts at zero.
"""

from collections.abc import Sequence

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.pairs import PairTable


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
    """Return the nearest shares that are not negative and sum to one."""
    ordered = -np.sort(-raw, axis=None)
    levels = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    shares: Floats = np.maximum(raw - levels[ordered > levels][-1], 0.0)
    return shares
