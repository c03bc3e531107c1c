"""The most that repeated reports of the same devices add to a fit's variance."""

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numeric.fit import NumberFit
from dither_shared.mechanisms.memoized import MemoizedPure
from dither_shared.plan import Plan


def repeated(plan: Plan, fit: NumberFit, repeats: int) -> Floats:
    """Return the covariance of shares, times n, that devices with `repeats` reports each add at most.

    A fresh report says the same number with new noise: (r - 1) (diag(f) - f f'). A memoized one repeats its noise, too,
    and of a cohort's share y of yes, n_c of the n reports, the permanent part alone has the variance

        rate (1 - rate) / (n_c / n (p - q)^2)      rate = q + y (p - q), with p and q those of the permanent part

    The shares of edges are the differences of the cohorts' y, from one to the next.
    """
    shares = fit.shares
    if not plan.cells.memoized:
        return np.asarray((repeats - 1) * (np.diag(shares) - np.outer(shares, shares)))
    mechanism = plan.cells.mechanism
    assert isinstance(mechanism, MemoizedPure)
    p, q = float(mechanism.permanent.p), float(mechanism.permanent.q)
    above = 1 - np.cumsum(shares)[:-1]
    rate = q + np.clip(above, 0.0, 1.0) * (p - q)
    steps = np.eye(len(shares))[:, 1:] - np.eye(len(shares))[:, :-1]
    variance = rate * (1 - rate) / (p - q) ** 2 * len(above)
    return np.asarray((repeats - 1) * (steps * variance) @ steps.T)
