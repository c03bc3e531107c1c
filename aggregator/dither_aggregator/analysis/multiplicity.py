"""Many tests at once: which of some p-values are called true, so that as few are called so wrongly as is said.

Benjamini and Hochberg (1995): of those called true a share of alpha is wrong on average. Storey, Taylor and Siegmund
(2004) divide alpha by the share of true nulls. Holm (1979): with 1 - alpha none is. Benjamini and Yekutieli (2005): of
the intervals of R called true out of S, each of level 1 - alpha R / S, at most a share of alpha misses on average.
Over families of tests both are combined (Benjamini and Bogomolov 2014): a family has one p-value, R of M families are
chosen by Benjamini and Hochberg, and within each of these tests are made at alpha R / M.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from dither_aggregator.analysis.inference import Floats

Mask = npt.NDArray[np.bool_]


def benjamini_hochberg(p_values: Floats, alpha: float) -> Mask:
    """Call the i smallest true, for the largest i whose p-value is at most i alpha / G."""
    ordered = np.sort(p_values)
    below = np.flatnonzero(ordered <= alpha * np.arange(1, len(ordered) + 1) / max(len(ordered), 1))
    return p_values <= (ordered[below[-1]] if len(below) else -1.0)


def adaptive(p_values: Floats, alpha: float) -> Mask:
    """Call true what Benjamini and Hochberg do at alpha by the share of nulls; none where they call none at alpha.

    The share of nulls is estimated by the p-values above 1/2, which must be uniform under the null: one-sided ones are.
    """
    called = benjamini_hochberg(p_values, alpha)
    nulls = min(1.0, 2 * (1 + np.count_nonzero(p_values > 0.5)) / max(len(p_values), 1))
    return benjamini_hochberg(p_values, alpha / nulls) if called.any() else called


def selected_z(found: int, tests: int, alpha: float, freedom: float) -> float:
    """Return how many standard errors intervals of those found reach to each side, by a t law of such freedom."""
    return -float(stdtrit(freedom, alpha * max(found, 1) / max(tests, 1) / 2))


def holm(p_values: Floats, alpha: float) -> Mask:
    """Call the smallest true, one after the other, while the i-th is at most alpha / (G + 1 - i)."""
    ordered = np.sort(p_values)
    above = np.flatnonzero(ordered > alpha / np.arange(len(ordered), 0, -1))
    return p_values < (ordered[above[0]] if len(above) else 2.0)


def simes(p_values: Floats) -> float:
    """Return the p-value of a family: at most alpha just where Benjamini and Hochberg call any of it true."""
    ordered = np.sort(p_values)
    return min(1.0, float((ordered * len(ordered) / np.arange(1, len(ordered) + 1)).min(initial=1.0)))
