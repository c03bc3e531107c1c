"""Shares that are possible, none negative and summing to one: a labelled extra beside the raw estimates.

A normalised share is biased: small ones upward, where the noise is above zero and is kept, the large ones downward.
Verdicts, intervals and sums are made of the raw estimates. Each method solves one equation for one number, and says how
well it did. Both are for metrics whose answers hold exactly one value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.rows import says
from dither_aggregator.counting.folding import Counts
from dither_shared.mechanisms import PureMechanism

RESIDUAL_MAX = 1e-8


class NormalisedDocument(TypedDict):
    """How shares that sum to one were found."""

    method: str
    converged: bool
    iterations: int
    residual: Annotated[float, says("how far the shares are from summing to one")]


@dataclass(frozen=True)
class Normalised:
    """Shares in [0, 1] that sum to one, with the report of how they were found."""

    method: str
    shares: Floats
    iterations: int
    residual: float
    """How far the shares are from summing to one."""

    @property
    def converged(self) -> bool:
        """Whether they do, to rounding."""
        return self.residual <= RESIDUAL_MAX

    def to_document(self) -> NormalisedDocument:
        """Return the convergence report."""
        return {
            "method": self.method,
            "converged": self.converged,
            "iterations": self.iterations,
            "residual": self.residual,
        }


def norm_sub(mechanism: PureMechanism, support: Counts, n: int) -> Normalised:
    """Subtract the same number from every estimate, cut at zero, so that they sum to one.

    This is the nearest point of the simplex (Wang et al. 2020, Norm-Sub).
    """
    p, q = float(mechanism.p), float(mechanism.q)
    estimate = (support / n - q) / (p - q)
    low = (float(estimate.sum()) - 1) / len(estimate)
    return _solve("norm_sub", lambda level: np.maximum(estimate - level, 0.0), low, high=float(estimate.max()))


def maximum_likelihood(mechanism: PureMechanism, support: Counts, n: int) -> Normalised:
    """Return the shares that make the support counts likeliest.

    Let r_v = q + f_v (p - q). If each report supports one value, this is the likelihood of the reports, sum C(v) ln
    r_v, whose maximum is also where iterative Bayesian update ends. Otherwise it is that of support counts taken as
    independent, sum C(v) ln r_v + (n - C(v)) ln(1 - r_v). For a given multiplier of the constraint each r_v follows
    alone: C(v) / level, or the smaller root of level r^2 - (1 + level) r + C(v) / n = 0, and at least q.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    rate = support / n

    def multinomial(level: float) -> Floats:
        shares: Floats = (np.maximum(rate / level, q) - q) / (p - q)
        return shares

    def binomial(level: float) -> Floats:
        slope = 1 + level
        root = np.sqrt(np.maximum(slope**2 - 4 * level * rate, 0.0))
        # The same root in two forms: each loses no digits where it is used.
        likeliest = 2 * rate / (slope + root) if slope > 0 else (slope - root) / (2 * level)
        shares: Floats = (np.maximum(likeliest, q) - q) / (p - q)
        return shares

    if mechanism.supports_one:
        return _solve("mle", multinomial, low=1.0, high=1 / q)
    return _solve("mle", binomial, low=-2 / (1 - p), high=2 / q)


METHODS: Final = {"norm_sub": norm_sub, "mle": maximum_likelihood}


def _solve(method: str, shares_at: Callable[[float], Floats], low: float, high: float) -> Normalised:
    """Find the level at which the shares sum to one: they fall as it rises, to nothing at `high`."""

    def excess(level: float) -> float:
        return float(shares_at(level).sum()) - 1

    if excess(low) <= 0:  # the bound itself, to rounding
        return Normalised(method, shares_at(low), 0, abs(excess(low)))
    from scipy.optimize import brentq  # late: a process that answers something else need not wait for it

    level, report = brentq(excess, low, high, xtol=1e-15, rtol=1e-15, full_output=True)
    return Normalised(method, shares_at(level), report.iterations, abs(excess(level)))
