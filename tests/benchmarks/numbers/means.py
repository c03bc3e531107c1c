"""A mean of values in [-1, 1]: variance of one report, and estimates from sampled reports.

Duchi, Jordan, Wainwright 2018, section 4.2: one bit. Wang, Xiao, Yang, Zhao, Hoang, Shin, Yu 2019: piecewise (section
III.B) and hybrid (III.C), which takes piecewise with probability 1 - e^(-eps/2) above an epsilon of 0.61, else Duchi.
Ours is the registry's: a window over a grid of B points, decoded by fixed weights: no iteration, and every answer is
unbiased. With A its matrix, x the grid and R the diagonal law of the outputs for uniform answers

    w = R^-1 A (A' R^-1 A)^-1 x     so that A' w = x, with the least variance for uniform answers

A value between two points is first rounded to one of them at random, without bias. The variance then lies on a line
between theirs, less x^2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from math import exp

import numpy as np

from dither_aggregator.analysis.channel import law_matrix
from dither_shared.kinds.number import GRID, mean_window
from tests.benchmarks.numbers.shapes import Counts, Floats

HYBRID_MIN = 0.61


def duchi_variance(epsilon: float, x: Floats) -> Floats:
    """Return the variance of one report."""
    return _duchi_scale(epsilon) ** 2 - x**2


def piecewise_variance(epsilon: float, x: Floats) -> Floats:
    """Return the variance of one report."""
    h = exp(epsilon / 2)
    return x**2 / (h - 1) + (h + 3) / (3 * (h - 1) ** 2)


def hybrid_variance(epsilon: float, x: Floats) -> Floats:
    """Return the variance of one report: both parts have the mean x, so their variances are averaged."""
    share = _piecewise_share(epsilon)
    return share * piecewise_variance(epsilon, x) + (1 - share) * duchi_variance(epsilon, x)


def duchi(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the mean's estimate for each row of devices, whose buckets are even points of [-1, 1]."""
    return np.array([_duchi_sum(row, epsilon, rng) / row.sum() for row, rng in zip(devices, rngs, strict=True)])


def hybrid(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the same from reports of which a part is piecewise."""
    estimates = []
    for row, rng in zip(devices, rngs, strict=True):
        some = rng.binomial(row, _piecewise_share(epsilon))
        total = _piecewise_sum(some, epsilon, rng) + _duchi_sum(row - some, epsilon, rng)
        estimates.append(total / row.sum())
    return np.array(estimates)


def _piecewise_share(epsilon: float) -> float:
    return 1 - exp(-epsilon / 2) if epsilon > HYBRID_MIN else 0.0


def _duchi_scale(epsilon: float) -> float:
    return (exp(epsilon) + 1) / (exp(epsilon) - 1)


def _duchi_sum(row: Counts, epsilon: float, rng: np.random.Generator) -> float:
    scale = _duchi_scale(epsilon)
    ones = rng.binomial(row, 1 / 2 + points_of(len(row)) / (2 * scale))
    return float(scale * (2 * ones - row).sum())


def _piecewise_sum(row: Counts, epsilon: float, rng: np.random.Generator) -> float:
    """Draw every report: its law has no finite tally."""
    h, x = exp(epsilon / 2), np.repeat(points_of(len(row)), row)
    end = (h + 1) / (h - 1)
    left = (end + 1) / 2 * x - (end - 1) / 2
    inside = rng.random(len(x)) < h / (h + 1)
    place = rng.random(len(x)) * np.where(inside, end - 1, end + 1)
    # Outside, places beyond what lies left of the window continue right of it.
    beyond = np.where(place < left + end, place - end, place - 1)
    return float(np.where(inside, left + place, beyond).sum())


def points_of(buckets: int) -> Floats:
    """Return that many even points of [-1, 1]."""
    return np.linspace(-1, 1, buckets)


@dataclass(frozen=True)
class WindowMean:
    """A window with the fixed weights that estimate the mean."""

    reach: int
    channel: Floats
    weights: Floats

    @property
    def variance(self) -> Floats:
        """The variance of one report at each point of the grid."""
        return self._second_moment - points_of(len(self._second_moment)) ** 2

    @property
    def worst(self) -> float:
        """The largest variance for any x, which may lie between two points."""
        moment, x = self._second_moment, points_of(len(self._second_moment))
        step, slope = x[1] - x[0], np.diff(moment)
        # Between neighbours the variance is m + slope t - (x + step t)^2, whose top is at this t.
        top = np.clip((slope / step - 2 * x[:-1]) / (2 * step), 0, 1)
        return float((moment[:-1] + slope * top - (x[:-1] + step * top) ** 2).max())

    @property
    def _second_moment(self) -> Floats:
        return np.asarray(self.weights**2 @ self.channel, dtype=np.float64)


@cache
def window_mean(epsilon: float) -> WindowMean:
    """Return the window that a registry gets for the mean alone."""
    mechanism = mean_window(Decimal(str(epsilon)))
    channel = law_matrix(mechanism)[:, :GRID]
    by_law = channel / channel.mean(axis=1, keepdims=True)
    weights = by_law @ np.linalg.solve(channel.T @ by_law, points_of(GRID))
    return WindowMean(mechanism.reach, channel, weights)
