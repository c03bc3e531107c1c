"""From support counts to estimates: raw, unbiased, never clamped, each with its standard error and interval.

The formulas are those of a pure protocol, `dither_shared.mechanisms.pure`. Which error is meant is said:

    reports       how far an estimate may lie from the share among the n devices that reported
                  variance [ f p (1 - p) + (1 - f) q (1 - q) ] / (n (p - q)^2)
    population    how far from the share in the population that they are a random sample of
                  variance r (1 - r) / (n (p - q)^2)  with r = q + f (p - q): the former plus f (1 - f) / n

The share f in them is the estimate, cut to [0, 1]. Intervals are Wald's, estimate +- z standard errors; where a bit
or symbol is expected fewer than 30 times they are Clopper and Pearson's for C(v) / n, moved to shares by (r - q) /
(p - q): exact for the population, wider than need be for the reports, whose count varies less than a binomial one
(Hoeffding 1956). Simultaneous intervals hold all the truths of a metric with the stated confidence (Bonferroni).
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import bdtri, bdtrik, betaincinv, gammaincinv

from dither_aggregator.fold import Counts
from dither_shared.mechanisms import PureMechanism
from dither_shared.precision import ALPHA, POWER, noise_floor

Floats = npt.NDArray[np.float64]
ErrorOf = Literal["reports", "population"]
Method = Literal["wald", "clopper-pearson"]

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
COUNT_MIN = 30
"""Below so many expected counts of a bit or symbol their law is too skewed for Wald intervals of 95 %.

Farther out the skew weighs more: for z standard errors it is (z / 1.96)^4 as many.
"""
LARGE_N, LARGE_COUNT = 10**7, 10**4
"""Beyond, and below: binomial counts are Poisson's, whose quantiles are computed more exactly."""


@dataclass(frozen=True)
class Estimates:
    """The estimated share of each value, as arrays of length d in the plan's order, from n reports."""

    n: int
    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats
    method: Method
    noise_floor: float
    """The standard error of a value that nobody has: differences below a few of these are noise."""


def estimate_shares(
    mechanism: PureMechanism,
    support: Counts,
    n: int,
    *,
    error_of: ErrorOf = "reports",
    simultaneous: bool = False,
    method: Method | None = None,
) -> Estimates:
    """Remove the noise from support counts, int64[d], of n >= 1 reports.

    Intervals are of 95 %, each on its own or, `simultaneous`, all of them together. They are of the raw estimate, so
    they may reach below 0 and above 1, as the estimate itself may: cutting it there would bias every sum that is made
    of it. `method` forces one of the two kinds of interval.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    estimate = (support / n - q) / (p - q)
    std_error = np.sqrt(variance(mechanism, np.clip(estimate, 0.0, 1.0), n, error_of))
    alpha = (1 - CONFIDENCE) / (mechanism.d if simultaneous else 1)
    z = -NormalDist().inv_cdf(alpha / 2)
    method = method or ("wald" if n * min(q, 1 - p) >= COUNT_MIN * (z / Z) ** 4 else "clopper-pearson")
    if method == "wald":
        lower, upper = estimate - z * std_error, estimate + z * std_error
    else:
        lower, upper = ((rate - q) / (p - q) for rate in clopper_pearson(support, n, alpha))
    return Estimates(n, estimate, std_error, lower, upper, method, noise_floor(mechanism, n))


def variance(mechanism: PureMechanism, share: Floats, n: int, error_of: ErrorOf) -> Floats:
    """Return the variance of the estimates of true shares, each in [0, 1]."""
    p, q = float(mechanism.p), float(mechanism.q)
    of_reports: Floats = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (n * (p - q) ** 2)
    return of_reports if error_of == "reports" else of_reports + share * (1 - share) / n


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


def exact_shares(mechanism: PureMechanism, n: int) -> tuple[float, float]:
    """Return the critical and the detectable share (`dither_shared.precision`) by the binomial law of the counts.

    The normal law of the planning figures lets noise pass too often where a bit or symbol is expected rarely.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    most = np.ceil(bdtrik(1 - ALPHA / mechanism.d, n, q))  # noise exceeds this count with at most that chance
    passing = float(bdtri(most, n, 1 - POWER)) if most < n else 1.0
    return (float(most) / n - q) / (p - q), (passing - q) / (p - q)
