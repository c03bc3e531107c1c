"""Reports of projective geometry response in bulk, for simulations of a million devices with a huge domain.

With P[u] = a for points on the answer's hyperplane and b for all others, a > b, a report is any point with probability
K b, and else a point of the hyperplane: the same law as the mechanism's own two coins, drawn with fewer of them.
"""

import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dither_aggregator.counting import places_of_points
from dither_aggregator.store import Tally
from dither_shared.mechanisms import PGR
from dither_shared.mechanisms.pgr import points
from dither_shared.registry import Metric
from dither_shared.rng import Rng

Counts = npt.NDArray[np.int64]

BLOCK = 1 << 18
"""Reports drawn at once: it bounds the memory."""


def draw_points(design: PGR, counts: Counts, rng: np.random.Generator) -> Counts:
    """Draw the tally of devices of which counts[v] have the value v, int64[K]."""
    tally = np.zeros(design.outputs, dtype=np.int64)
    outside = (1 - design.inside) / (1 - design.law.share)
    hidden = rng.binomial(counts, float(min(outside, Fraction(1))))
    for size in _blocks(int(hidden.sum())):
        tally += np.bincount(rng.integers(design.outputs, size=size), minlength=design.outputs)
    values = np.repeat(np.arange(len(counts)), counts - hidden)
    for start in range(0, len(values), BLOCK):
        on = points_on(design, values[start : start + BLOCK], rng)
        tally += np.bincount(on, minlength=design.outputs)
    return tally


def draw_texts(metric: Metric, said: Sequence[str], seed: int) -> Tally:
    """Draw the tally of devices that say these texts, whose reports are points."""
    rng, coins = np.random.default_rng(seed), Rng(random.Random(seed).getrandbits)
    seen: list[list[int]] = [[] for _ in range(metric.cells.count)]
    for answer in said:
        cell = metric.cells.draw(coins)
        seen[cell].append(metric.class_of(metric.read(answer), cell, coins))
    counts = []
    for cell, classes in enumerate(seen):
        design = metric.cells.mechanism_of(cell)
        assert isinstance(design, PGR)
        counts += [np.array([len(classes)]), draw_points(design, np.bincount(classes, minlength=design.d), rng)]
    return Tally(len(said), np.concatenate(counts))


def points_on(design: PGR, values: Counts, rng: np.random.Generator) -> Counts:
    """Draw a uniform point on the hyperplane of each value."""
    order, t, prime = design.geometry
    normal = _coordinates(design, values)
    pivot = (normal != 0).argmax(axis=1)
    vectors = _digits(rng.integers(1, order ** (t - 1), size=len(values)), order, t - 1)
    # The others' coordinates stand left and right of the pivot's.
    places = np.arange(t) - (np.arange(t) > pivot[:, np.newaxis])
    vectors = np.take_along_axis(np.pad(vectors, ((0, 0), (0, 1))), places, axis=1)
    rows = np.arange(len(values))
    vectors[rows, pivot] = 0
    vectors[rows, pivot] = -(vectors * normal).sum(axis=1) % order
    first = (vectors != 0).argmax(axis=1)
    inverse = np.array([0, *(pow(each, -1, order) for each in range(1, order))])
    vectors = vectors * inverse[vectors[rows, first]][:, np.newaxis] % order
    starts = np.array([points(order, t - 1 - each) for each in range(t)])
    places = starts[first] + vectors @ _powers(order, t) - _powers(order, t)[first]
    numbers = np.empty(design.outputs, dtype=np.int64)
    numbers[places_of_points(design.outputs, prime)] = np.arange(design.outputs)
    return np.asarray(numbers[places], dtype=np.int64)


def _coordinates(design: PGR, values: Counts) -> Counts:
    """Return the points that stand for values, int64[values, t]."""
    order, t, prime = design.geometry
    values = places_of_points(design.outputs, prime)[values]
    starts = np.array([points(order, t - 1 - first) for first in range(t)])
    first = (values[:, np.newaxis] < starts).sum(axis=1)
    return _digits(values - starts[first] + _powers(order, t)[first], order, t)


def _powers(order: int, t: int) -> Counts:
    return order ** np.arange(t - 1, -1, -1)


def _digits(numbers: Counts, order: int, count: int) -> Counts:
    return numbers[:, np.newaxis] // _powers(order, count) % order


def _blocks(total: int) -> list[int]:
    return [BLOCK] * (total // BLOCK) + [total % BLOCK]
