"""Intervals that every estimand uses: how sure they are, and where a normal law is not good enough.

Intervals are Wald's, estimate +- z standard errors; where a bit or symbol is expected fewer than 30 times they are
exact, however small a count is: Clopper and Pearson's of the rate behind a binomial count for a population, and those
of the sum of two binomials (`two_binomials`) for the share among these reports.
"""

from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, gammaincinv

from dither_aggregator.counting.folding import Counts

Floats = npt.NDArray[np.float64]
ErrorOf = Literal["reports", "population"]
Method = Literal["wald", "clopper-pearson", "exact"]

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
COUNT_MIN = 30
"""Below so many expected counts of a bit or symbol their law is too skewed for Wald intervals of 95 %.

Farther out the skew weighs more: for z standard errors it is (z / 1.96)^4 as many.
"""
LARGE_N, LARGE_COUNT = 10**7, 10**4
"""Beyond, and below: binomial counts are Poisson's, whose quantiles are computed more exactly."""


def clopper_pearson(counts: Counts, n: int, alpha: float) -> tuple[Floats, Floats]:
    """Return the ends of the exact intervals of confidence 1 - alpha for the rates behind binomial counts out of n."""
    none, all_ = counts <= 0, counts >= n
    some, less = np.where(none, 1, counts), np.where(all_, n - 1, counts)
    lower = betaincinv(some, n - some + 1, alpha / 2)
    upper = betaincinv(less + 1, n - less, 1 - alpha / 2)
    if n >= LARGE_N:
        lower = np.where(some <= LARGE_COUNT, gammaincinv(some, alpha / 2) / n, lower)
        upper = np.where(less <= LARGE_COUNT, gammaincinv(less + 1, 1 - alpha / 2) / n, upper)
    return np.where(none, 0.0, lower), np.where(all_, 1.0, upper)
