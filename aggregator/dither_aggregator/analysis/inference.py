"""Intervals that every estimand uses: how sure they are, and where a normal law is not good enough.

Intervals are Wald's, estimate +- z standard errors, from `normal_from` reports on. With fewer, those of one value are
exact, however small a count is. For a population they are Clopper and Pearson's, of the rate behind a binomial count;
for the share among these reports they invert the sum of two binomials (`two_binomials`). Intervals of other sums reach
further, as far as single reports may weigh (`reach`).
"""

from math import log, sqrt
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv, gammainccinv, gammaincinv, log_ndtr, ndtr, ndtri

from dither_aggregator.counting.folding import Counts

Floats = npt.NDArray[np.float64]
ErrorOf = Literal["population", "reports"]
Method = Literal["wald", "clopper-pearson", "exact"]

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
NORMAL_MIN, NORMAL_SKEWED = 40, 25
"""A mean of so many terms is normal, as far as intervals of 95 % show; times the squared skewness, so many more."""
HALVINGS = 40
"""Steps to a quantile: to 1e-12 of a standard error."""
LARGE_N, LARGE_COUNT = 10**7, 10**4
"""Beyond, and below: binomial counts are Poisson's, whose quantiles are computed more exactly."""


N = TypeVar("N", float, Floats)


def effective(n: N, repeats: int, *, permanent: bool) -> N:
    """Return how many devices n reports may be of, at the worst: of as few as send `repeats` each.

    Their law counts where noise repeats, `permanent`; fresh noise is another one in each report. Every floor, every
    gate of a normal law and every law of small counts asks this.
    """
    return np.maximum(n / repeats, 1.0) if permanent else n


def normal_from(skewness: N, z: float = Z) -> N:
    """Return how many reports of different devices make Wald intervals of z standard errors hold.

    It is of means of terms with such a skewness, 1 / sqrt(rate) for a rare bit. The error of such an interval grows
    with the squared skewness over n (Edgeworth); farther out it weighs more, (z / 1.96)^4 times as much.
    """
    return (NORMAL_MIN + NORMAL_SKEWED * skewness**2) * (z / Z) ** 4


def bit_skewness(p: float, q: float) -> float:
    """Return the skewness of a bit that is rarely one, or rarely zero: where nobody or everybody has a value."""
    rate = min(q, 1 - p)
    return abs(1 - 2 * rate) / sqrt(rate * (1 - rate))


def reach(variance: Floats, heaviest: Floats, n: float, z: float = Z) -> Floats:
    """Return how far an interval of z standard errors reaches from a mean of n terms, each of which moves it.

    No term moves it by more than `heaviest`: so its skewness is at most n heaviest / sqrt(n variance). If that is too
    much for a normal law, a term that was not seen yet counts, too, in the variance and beside it.
    """
    few = variance * max(n - NORMAL_MIN * (z / Z) ** 4, 0) < NORMAL_SKEWED * (z / Z) ** 4 * n * heaviest**2
    beside = max((z**2 + 2) / 3, -float(log_ndtr(-z)) - z) * heaviest
    return np.asarray(z * np.sqrt(variance + few * heaviest**2) + few * beside)


def reach_of_noise(std_error: float, alpha: float) -> float:
    """Return how far a weighted sum of Laplace noise lies from zero with probability alpha <= 0.1, nearly or at most.

    A sum of many terms is nearly normal. A single one has exp(-sqrt(2) x) beyond x standard errors: more than of any
    sum, so far out.
    """
    z = -NormalDist().inv_cdf(alpha / 2)
    return max(z, -log(alpha) / sqrt(2)) * std_error


def beyond_zero(lower: float, upper: float) -> int:
    """Return on which side of zero an interval lies: 1 above, -1 below, 0 where it holds zero. Verdicts ask this."""
    return int(lower > 0) - int(upper < 0)


def open_chance(beyond: float, open_part: float = 0.0) -> float:
    """Return the two-sided p-value of a number that its data leave open between two ends, both in standard errors.

    `beyond` is how far the nearer end lies from what is tested, `open_part` how far the ends are from each other. The
    wider, the nearer to a one-sided test (Imbens and Manski 2004).
    """
    return float(ndtr(-beyond) + ndtr(-beyond - open_part)) if beyond > 0 else 1.0


def open_z(alpha: float, open_part: float) -> float:
    """Return how many standard errors an interval of such a number reaches beyond its ends: 1.96 to 1.645 at 95 %."""
    low, high = -float(ndtri(alpha)), -float(ndtri(alpha / 2))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if open_chance(middle, open_part) > alpha else (low, middle)
    return high


def devices_reach(share: Floats, devices: float, alpha: float) -> tuple[Floats, Floats]:
    """Return how far exact intervals reach below and above the shares that so many devices have, cut to [0, 1].

    It is what answers leave open where a device gives one answer again and again: the noise of its reports adds to it,
    squared (Zou's "MOVER", 2008).
    """
    held = np.clip(share, 0.0, 1.0)
    lower, upper = clopper_pearson(devices * held, devices, alpha)
    return held - lower, upper - held


def clopper_pearson(counts: Counts | Floats, n: float, alpha: float) -> tuple[Floats, Floats]:
    """Return the ends of the exact intervals of confidence 1 - alpha for the rates behind binomial counts out of n.

    Neither need be whole: then they lie between those of whole ones.
    """
    none, all_ = counts <= 0, counts >= n
    some, less = np.where(none, 1, counts), np.where(all_, max(n - 1, 0), counts)
    lower = betaincinv(some, n - some + 1, alpha / 2)
    upper = betainccinv(less + 1, n - less, alpha / 2)
    if n >= LARGE_N:
        lower = np.where(some <= LARGE_COUNT, gammaincinv(some, alpha / 2) / n, lower)
        upper = np.where(less <= LARGE_COUNT, gammainccinv(less + 1, alpha / 2) / n, upper)
    return np.where(none, 0.0, lower), np.where(all_, 1.0, upper)
