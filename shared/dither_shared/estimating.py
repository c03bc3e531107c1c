"""Estimates in pure Python: the share of each listed value, out of reports of one metric, a report a device.

For an app's tests, for simulations, and to be read by those who write the same in another language. With C(v) the
number of the n reports that support v, and the p and q of a pure protocol (`mechanisms/mechanism.py`),

    estimate    f = (C(v) / n - q) / (p - q)                raw: below 0 and above 1 it stays as it is
    std error   sqrt(r (1 - r) / n) / (p - q)               r = q + f (p - q), with f cut to [0, 1]
    interval    f +- 1.96 std errors                        for the population that the devices are a sample of

So few reports that no normal law holds are refused: the aggregator has exact intervals, and those of texts, numbers,
words and tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, sqrt
from statistics import NormalDist

from dither_shared.errors import InvalidParameter
from dither_shared.frozen import frozen
from dither_shared.mechanisms import PureMechanism
from dither_shared.plan import Plan

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
NORMAL_MIN, NORMAL_SKEWED = 40, 25
"""A mean of so many terms is normal; times the squared skewness, so many more."""


@frozen
class Share:
    """The estimated share of one value, with the ends of its 95 % interval, as parts of 1."""

    value: str
    estimate: float
    std_error: float
    lower: float
    upper: float


def estimate_shares(plan: Plan, reports: Iterable[int]) -> list[Share]:
    """Return the share of each value in the plan's order, of a flag that of yes alone; raise InvalidParameter."""
    mechanism = plan.cells.parts[0].mechanism
    values = plan.domain.values
    if plan.cells.several or not values or not isinstance(mechanism, PureMechanism):
        raise InvalidParameter(
            f"metric {plan.metric} must be a flag or a list, whose shares are told here, got {plan.kind.name}: that is "
            f"read by the aggregator, and `dither metrics check --installs N` says how widely"
        )
    counts, n = [0] * len(values), 0
    for report in reports:
        n += 1
        for value in mechanism.supported_by(report):
            counts[value] += 1
    p, q = float(mechanism.p), float(mechanism.q)
    rate = min(q, 1 - p)
    needed = ceil(NORMAL_MIN + NORMAL_SKEWED * (1 - 2 * rate) ** 2 / (rate * (1 - rate)))
    if n < needed:
        raise InvalidParameter(f"metric {plan.metric} must have {needed} reports for a normal law, got {n}")
    shares = []
    for name, count in zip(values, counts, strict=True):
        estimate = (count / n - q) / (p - q)
        sent = q + min(max(estimate, 0.0), 1.0) * (p - q)
        error = sqrt(sent * (1 - sent) / n) / (p - q)
        shares.append(Share(name, estimate, error, estimate - Z * error, estimate + Z * error))
    return shares[1:] if plan.kind.estimand == "one share" else shares
