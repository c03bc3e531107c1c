"""From support counts to estimates: raw, unbiased, never clamped, each with its standard error and interval.

The formulas are those of a pure protocol, `dither_shared.mechanisms.pure`. Which error is meant is said:

    reports       how far an estimate may lie from the share among the n devices that reported
                  variance [ f p (1 - p) + (1 - f) q (1 - q) ] / (n (p - q)^2)
    population    how far from the share in the population that they are a random sample of
                  variance r (1 - r) / (n (p - q)^2)  with r = q + f (p - q): the former plus f (1 - f) / n

The share f in them is the estimate, cut to [0, 1]. Intervals of rates r become those of shares by (r - q) / (p - q).
Clopper and Pearson's are exact for the population, and wider than need be for the reports, whose count varies less than
a binomial one (Hoeffding 1956). Simultaneous intervals hold all the truths of a metric with the stated confidence
(Bonferroni).
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import bdtri, bdtrik

from dither_aggregator.analysis.inference import (
    CONFIDENCE,
    COUNT_MIN,
    ErrorOf,
    Floats,
    Method,
    Z,
    clopper_pearson,
)
from dither_aggregator.counting.folding import Counts
from dither_shared.mechanisms import PureMechanism
from dither_shared.precision import ALPHA, POWER, noise_floor


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


def exact_shares(mechanism: PureMechanism, n: int) -> tuple[float, float]:
    """Return the critical and the detectable share (`dither_shared.precision`) by the binomial law of the counts.

    The normal law of the planning figures lets noise pass too often where a bit or symbol is expected rarely.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    most = np.ceil(bdtrik(1 - ALPHA / mechanism.d, n, q))  # noise exceeds this count with at most that chance
    passing = float(bdtri(most, n, 1 - POWER)) if most < n else 1.0
    return (float(most) / n - q) / (p - q), (passing - q) / (p - q)
