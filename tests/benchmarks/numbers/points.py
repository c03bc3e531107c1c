"""Buckets as values without order: PGR, or GRR where that has less error, with Norm-Sub."""

from collections.abc import Sequence

import numpy as np

from tests.benchmarks.numbers.channels import draw, norm_sub, points_channel, points_mechanism, supports
from tests.benchmarks.numbers.shapes import Counts, Floats


def estimate(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the raw estimates, moved to the nearest shares that are possible."""
    mechanism = points_mechanism(devices.shape[1], epsilon)
    tallies = draw(points_channel(mechanism), devices, rngs)
    support = tallies @ supports(mechanism) / tallies.sum(axis=1, keepdims=True)
    return norm_sub((support - float(mechanism.q)) / float(mechanism.p - mechanism.q))
