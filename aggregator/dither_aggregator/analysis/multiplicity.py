"""Many tests at once: which of some p-values are called true, so that as few are called so wrongly as is said.

Benjamini and Hochberg (1995): of those called true a share of alpha is wrong on average. Holm (1979): with 1 - alpha
none is. Over families of tests both are combined (Benjamini and Bogomolov 2014): a family has one p-value, R of M
families are chosen by Benjamini and Hochberg, and within each of these tests are made at alpha R / M.
"""

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.inference import Floats

Mask = npt.NDArray[np.bool_]


def benjamini_hochberg(p_values: Floats, alpha: float) -> Mask:
    """Call the i smallest true, for the largest i whose p-value is at most i alpha / G."""
    ordered = np.sort(p_values)
    below = np.flatnonzero(ordered <= alpha * np.arange(1, len(ordered) + 1) / max(len(ordered), 1))
    return p_values <= (ordered[below[-1]] if len(below) else -1.0)


def holm(p_values: Floats, alpha: float) -> Mask:
    """Call the smallest true, one after the other, while the i-th is at most alpha / (G + 1 - i)."""
    ordered = np.sort(p_values)
    above = np.flatnonzero(ordered > alpha / np.arange(len(ordered), 0, -1))
    return p_values < (ordered[above[0]] if len(above) else 2.0)


def simes(p_values: Floats) -> float:
    """Return the p-value of a family: at most alpha just where Benjamini and Hochberg call any of it true."""
    ordered = np.sort(p_values)
    return min(1.0, float((ordered * len(ordered) / np.arange(1, len(ordered) + 1)).min(initial=1.0)))
