"""From support counts to estimates: raw, unbiased, never clamped, each with its standard error and interval.

The formulas are those of a pure protocol, `dither_shared.mechanisms.pure`. Two errors are told apart:

    reports       how far an estimate may lie from the share among the n devices that reported
                  variance [ f p (1 - p) + (1 - f) q (1 - q) ] / (n (p - q)^2)
    population    how far from the share in the population that they are a random sample of
                  variance r (1 - r) / (n (p - q)^2)  with r = q + f (p - q): the former plus f (1 - f) / n

A device may report r times in a window. Then the population's part is r f (1 - f) / n. A memo repeats its noise, so
the variance is at most [ (r - 1) V_permanent + V ] / n, with V n times the former and V_permanent that of one shot
of the permanent part. Counts are then no binomial ones: intervals are Wald's or, where counts are small, exact ones
whose ends are moved away from the estimate by as much as the standard error has grown.

The share f in them is the estimate, cut to [0, 1]. Exact intervals for the population are Clopper and Pearson's of the
rate r, whose ends become those of shares by (r - q) / (p - q). For the reports they would be wider than need be: the
count of a fixed number of holders varies less than a binomial one (Hoeffding 1956). Its law is that of two binomials
(`two_binomials`). Simultaneous intervals hold all the truths of a metric with the stated confidence
(Bonferroni).
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import bdtr, bdtrc, bdtri, bdtrik, betainc, betaincinv, ndtr

from dither_aggregator.analysis.functional import share_variance
from dither_aggregator.analysis.inference import (
    CONFIDENCE,
    COUNT_MIN,
    ErrorOf,
    Floats,
    Method,
    Z,
    clopper_pearson,
)
from dither_aggregator.analysis.two_binomials import exact_ends
from dither_aggregator.counting.folding import Counts
from dither_shared.mechanisms import PureMechanism
from dither_shared.precision import ALPHA, POWER

Counted = tuple[Counts, int, int]
"""Support counts, of how many reports, of which a device may have sent so many."""
STEPS = 32
"""Counts that are tried at a time where the least one is looked for that stands out."""


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
    confidence: float = CONFIDENCE,
    repeats: int = 1,
    together: int = 1,
) -> Estimates:
    """Remove the noise from support counts, int64[d] or of some of the values, of n >= 1 reports.

    A device may have sent `repeats` of these. Intervals are of this confidence, each on its own or, `simultaneous`, all
    of them together with those of `together` readings in all. They are of the raw estimate, so they may reach below 0
    and above 1, as the estimate itself may: cutting it there would bias every sum that is made of it. `method` forces
    one of the kinds of interval.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    estimate = (support / n - q) / (p - q)
    std_error = np.sqrt(share_variance(mechanism, np.clip(estimate, 0.0, 1.0), n, error_of, repeats))
    floor = float(np.sqrt(share_variance(mechanism, np.zeros(1), n, "reports", repeats))[0])
    alpha = (1 - confidence) / (mechanism.d * together if simultaneous else 1)
    z = -NormalDist().inv_cdf(alpha / 2)
    spread = dispersion(mechanism, np.clip(estimate, 0.0, 1.0), error_of, repeats)
    method = method or _method_of(mechanism, n, z, spread, error_of)
    if method == "wald":
        lower, upper = estimate - z * std_error, estimate + z * std_error
    elif method == "exact":
        lower, upper = exact_ends(support, n, p, q, alpha)
    else:
        exact = [(rate - q) / (p - q) for rate in clopper_pearson(support, n, alpha)]
        lower, upper = (estimate + (end - estimate) * np.sqrt(spread) for end in exact)
    return Estimates(n, estimate, std_error, lower, upper, method, floor)


def population_ends(
    mechanism: PureMechanism, support: Counts, n: Counts, alpha: float, repeats: int = 1
) -> tuple[Floats, Floats]:
    """Return the ends of intervals of confidence 1 - alpha, of shares in the population that have an n each.

    `support` and `n` are int64[S]; a device may have sent `repeats` of the reports.
    """
    lower, upper = np.empty(len(n)), np.empty(len(n))
    for reports in np.unique(n).tolist():
        here = n == reports
        read = estimate_shares(
            mechanism, support[here], reports, error_of="population", confidence=1 - alpha, repeats=repeats
        )
        lower[here], upper[here] = read.lower, read.upper
    return lower, upper


def _method_of(mechanism: PureMechanism, n: int, z: float, spread: Floats, error_of: ErrorOf) -> Method:
    """Return the kind of interval that holds as often as it says and is the narrowest that does."""
    p, q = float(mechanism.p), float(mechanism.q)
    if n * min(q, 1 - p) >= COUNT_MIN * (z / Z) ** 4 * float(spread.min()):
        return "wald"
    return "exact" if error_of == "reports" and bool((spread == 1).all()) else "clopper-pearson"


def dispersion(mechanism: PureMechanism, share: Floats, error_of: ErrorOf, repeats: int) -> Floats:
    """Return by how much the variance is larger than if every report were another device's: 1 at least."""
    if repeats == 1:
        return np.ones_like(share)
    return share_variance(mechanism, share, 1, error_of, repeats) / share_variance(mechanism, share, 1, error_of)


def change_chance(mechanism: PureMechanism, before: Counted, after: Counted) -> Floats:
    """Return two-sided p-values of a change of each value's share in the population between two windows.

    Without a change the counts of both windows have one rate. Given their sum, the later one is binomial for small
    rates, whichever they are (Przyborowski and Wilenski 1940). For larger rates and repeated reports it is binomial in
    variance once both counts are divided by their dispersion, (1 - rate) times that of repeats. If more than half of
    the reports support a value, those that do not are counted.
    """
    (old, n_old, r_old), (new, n_new, r_new) = before, after
    p, q = float(mechanism.p), float(mechanism.q)
    rate = (old + new) / (n_old + n_new)
    share = np.clip((rate - q) / (p - q), 0.0, 1.0)
    spreads = [dispersion(mechanism, share, "population", repeats) for repeats in (r_old, r_new)]
    spread = (n_new * spreads[0] + n_old * spreads[1]) / (n_old + n_new)  # each weighs as its variance, 1 / n
    many = rate > 0.5
    old, new = np.where(many, n_old - old, old), np.where(many, n_new - new, new)
    scale = 1 / (spread * np.maximum(rate, 1 - rate))
    odds = n_new / (n_old + n_new)
    fell = betainc(old * scale, new * scale + 1, 1 - odds)
    rose = betainc(new * scale, old * scale + 1, odds)
    chances: Floats = np.minimum(1.0, 2 * np.minimum(np.where(old > 0, fell, 1.0), np.where(new > 0, rose, 1.0)))
    return chances


def significance_shares(
    mechanism: PureMechanism, n: int, confidence: float = CONFIDENCE, repeats: int = 1
) -> tuple[float | None, float | None]:
    """Return the least estimate that stands out, and the true share that does four times in five; None if none does.

    An estimate stands out where its interval, one of d that hold together, lies above zero. The law is that of the
    counts, and a normal one where they are none of independent reports.
    """
    p, q = float(mechanism.p), float(mechanism.q)

    def estimated(counts: Counts, method: Method | None = None) -> Estimates:
        return estimate_shares(
            mechanism, counts, n, simultaneous=True, method=method, confidence=confidence, repeats=repeats
        )

    low, high = int(n * q), n  # the expected count of noise, which does not stand out, and the largest
    largest = estimated(np.array([high]))
    if largest.lower[0] <= 0:
        return None, None
    method: Method = "clopper-pearson" if largest.method == "exact" else largest.method  # quicker, and of the same sign
    while high - low > 1:
        between = np.unique(np.linspace(low, high, STEPS + 1).astype(np.int64))
        first = int(np.argmax(estimated(between[1:], method).lower > 0)) + 1
        low, high = int(between[first - 1]), int(between[first])
    least = estimated(np.array([high]), method)
    critical = float(least.estimate[0])
    if repeats > 1 and mechanism.memoized:
        detectable = critical + NormalDist().inv_cdf(POWER) * float(least.std_error[0])
    else:
        detectable = (float(betaincinv(high, n - high + 1, POWER)) - q) / (p - q)
    return critical, detectable if detectable <= 1 else None


def noise_below(mechanism: PureMechanism, n: int, repeats: int = 1) -> Callable[[Floats], Floats]:
    """Return the law of the estimate of a value that nobody has: its distribution function."""
    p, q = float(mechanism.p), float(mechanism.q)
    floor = np.sqrt(share_variance(mechanism, np.zeros(1), n, "reports", repeats))[0]
    if repeats > 1 and mechanism.memoized:
        return lambda shares: ndtr(shares / floor)

    def below(shares: Floats) -> Floats:
        counts = np.floor(n * (q + shares * (p - q)) + 1e-6)
        law: Floats = np.where(counts < 0, 0.0, bdtr(np.clip(counts, 0, n), n, q))
        return law

    return below


def noise_chance(mechanism: PureMechanism, n: int, largest: float, repeats: int = 1) -> float:
    """Return a p-value: how often noise alone makes the largest of d estimates that large, at most and two-sided.

    It is the least alpha at which the exact interval of the estimate lies above zero. If reports repeat noise, its
    lower end is moved away from the estimate: it passes zero where the unmoved one passes `bound`.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    spread = dispersion(mechanism, np.clip([largest], 0.0, 1.0), "reports", repeats)[0]
    bound = q + largest * (1 - 1 / np.sqrt(spread)) * (p - q)
    passing = float(bdtrc(max(round(n * (q + largest * (p - q))) - 1, 0), n, bound))
    return min(1.0, 2 * mechanism.d * passing)


def exact_shares(mechanism: PureMechanism, n: int, repeats: int = 1) -> tuple[float, float]:
    """Return the critical and the detectable share (`dither_shared.precision`) by the binomial law of the counts.

    The normal law of the planning figures lets noise pass too often where a bit or symbol is expected rarely.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    if repeats > 1 and mechanism.memoized:  # the counts are none of independent reports
        floor = float(np.sqrt(share_variance(mechanism, np.zeros(1), n, "reports", repeats))[0])
        critical = -NormalDist().inv_cdf(ALPHA / mechanism.d) * floor
        return critical, critical + NormalDist().inv_cdf(POWER) * floor
    most = np.ceil(bdtrik(1 - ALPHA / mechanism.d, n, q))  # noise exceeds this count with at most that chance
    passing = float(bdtri(most, n, 1 - POWER)) if most < n else 1.0
    return (float(most) / n - q) / (p - q), (passing - q) / (p - q)
