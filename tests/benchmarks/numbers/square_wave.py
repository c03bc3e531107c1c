"""Square wave: report a bucket near the own one with probability e^epsilon times that of any other.

A value in bucket v has the window {v, .., v + 2 r} among the B + 2 r outputs; r is the reach. With s = 2 r + 1

    P[y | v] = e^eps / (s e^eps + B - 1)  in the window        1 / (s e^eps + B - 1)  elsewhere

Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020, sections 5.2 to 5.5: EM stops at a gain of e^eps / 1000, EMS at 1 / 1000.
"""

from collections.abc import Sequence
from math import exp, floor

import numpy as np

from tests.benchmarks.numbers.channels import draw, likeliest
from tests.benchmarks.numbers.shapes import Counts, Floats

GAIN_MIN = 1e-3


def half_width(epsilon: float) -> float:
    """Return b, half the window's width as a part of the axis, which maximises mutual information."""
    e = exp(epsilon)
    return (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))


def window(buckets: int, epsilon: float, reach: int) -> Floats:
    """Return the matrix of a window that reaches so many buckets to each side, float64[B + 2 reach, B]."""
    e, values, outputs = exp(epsilon), np.arange(buckets), np.arange(buckets + 2 * reach)[:, np.newaxis]
    inside = (outputs >= values) & (outputs <= values + 2 * reach)
    return np.where(inside, e, 1.0) / ((2 * reach + 1) * e + buckets - 1)


def em(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the likeliest shares."""
    channel = _channel(devices.shape[1], epsilon)
    return likeliest(channel, draw(channel, devices, rngs), GAIN_MIN * exp(epsilon))


def ems(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return shares that are smoothed in every step."""
    channel = _channel(devices.shape[1], epsilon)
    return likeliest(channel, draw(channel, devices, rngs), GAIN_MIN, smooth=True)


def _channel(buckets: int, epsilon: float) -> Floats:
    return window(buckets, epsilon, max(1, floor(half_width(epsilon) * buckets)))
