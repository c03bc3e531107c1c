"""A tree of ranges: each device reports its node of one level, drawn uniformly.

Consistency is the least-squares tree in which every node is the sum of its children, with the root known to be one
(Hay, Rastogi, Miklau, Suciu 2010, theorem 3). Cormode, Kulkarni, Srivastava 2019, section 4: branching four, OUE.
"""

from collections.abc import Sequence
from math import exp

import numpy as np

from tests.benchmarks.numbers.channels import draw, likeliest, points_channel, points_mechanism
from tests.benchmarks.numbers.shapes import Counts, Floats

BRANCHING = 4
GAIN_MIN = 1e-3


def levels_of(buckets: int) -> int:
    """Return how many levels below the root give every bucket a leaf."""
    levels = 1
    while BRANCHING**levels < buckets:
        levels += 1
    return levels


def consistent(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the leaves of the consistent tree: unbiased, so some are negative."""
    raw = [_oue_levels(row, epsilon, rng) for row, rng in zip(devices, rngs, strict=True)]
    tree = [np.stack(level) for level in zip(*raw, strict=True)]
    return constrained(tree)[:, : devices.shape[1]]


def _oue_levels(row: Counts, epsilon: float, rng: np.random.Generator) -> list[Floats]:
    """Return the raw estimates of each level's nodes, from the root down."""
    levels, p, q = levels_of(len(row)), 1 / 2, 1 / (exp(epsilon) + 1)
    padded = np.pad(row, (0, BRANCHING**levels - len(row)))
    estimates = []
    for level, own in enumerate(rng.multinomial(padded, [1 / levels] * levels).T, 1):
        nodes, n = own.reshape(BRANCHING**level, -1).sum(axis=1), own.sum()
        support = rng.binomial(nodes, p) + rng.binomial(n - nodes, q)
        estimates.append((support / n - q) / (p - q))
    return estimates


def constrained(tree: Sequence[Floats]) -> Floats:
    """Return the leaves of the nearest consistent tree: levels float64[S, 4^l] in, of equal variance; the last out."""
    k, weighted = BRANCHING, list(tree)
    for place in range(len(tree) - 2, -1, -1):
        height = len(tree) - place  # of a node; a leaf has 1
        below = weighted[place + 1].reshape(*weighted[place].shape, k).sum(axis=2)
        own, others = k**height - k ** (height - 1), k ** (height - 1) - 1
        weighted[place] = (own * weighted[place] + others * below) / (k**height - 1)
    parents = np.ones((len(tree[0]), 1))
    for level in weighted:
        children = level.reshape(*parents.shape, k)
        excess = (parents - children.sum(axis=2))[:, :, np.newaxis] / k
        parents = (children + excess).reshape(level.shape)
    return parents


def em(devices: Counts, epsilon: float, rngs: Sequence[np.random.Generator]) -> Floats:
    """Return the likeliest shares when each level has the better of GRR and PGR: stronger than any published tree."""
    channel = _channel(devices.shape[1], epsilon)
    return likeliest(channel, draw(channel, devices, rngs), GAIN_MIN * exp(epsilon))


def _channel(buckets: int, epsilon: float) -> Floats:
    levels, parts = levels_of(buckets), []
    for level in range(1, levels + 1):
        nodes = np.arange(buckets) // BRANCHING ** (levels - level)
        used = int(nodes[-1]) + 1
        parts.append(points_channel(points_mechanism(used, epsilon))[:, nodes] / levels)
    return np.vstack(parts)
