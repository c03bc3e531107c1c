"""From a tally to estimates: raw, unbiased, never clamped, each with its standard error and interval.

The formulas are those of a pure protocol, `dither_shared.mechanisms.pure`. The standard error is that of these n
reports: how far the estimate may lie from the share among the devices that reported. What those devices say about
devices that did not report is another question, whose error is larger.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dither_aggregator.fold import Counts
from dither_shared.mechanisms import PureMechanism

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Estimates:
    """The estimated share of each value, as arrays of length d in the plan's order, from n reports."""

    n: int
    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats
    noise_floor: float
    """The standard error of a value that nobody has: differences below a few of these are noise."""


def estimate_shares(mechanism: PureMechanism, support: Counts, n: int) -> Estimates:
    """Remove the noise from support counts of n >= 1 reports.

    The intervals are Wald intervals of 95 %, each on its own. They are of the raw estimate, so they may reach below 0
    and above 1, as the estimate itself may: cutting it there would bias every sum that is made of it.
    """
    p, q = float(mechanism.p), float(mechanism.q)
    estimate = (support / n - q) / (p - q)
    share = np.clip(estimate, 0.0, 1.0)
    variance = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (n * (p - q) ** 2)
    std_error = np.sqrt(variance)
    return Estimates(
        n=n,
        estimate=estimate,
        std_error=std_error,
        lower=estimate - Z * std_error,
        upper=estimate + Z * std_error,
        noise_floor=noise_floor(mechanism, n),
    )


def noise_floor(mechanism: PureMechanism, n: int) -> float:
    """Return sqrt(q (1 - q) / n) / (p - q), the standard error of a share of zero."""
    p, q = float(mechanism.p), float(mechanism.q)
    return sqrt(q * (1 - q) / n) / (p - q)
