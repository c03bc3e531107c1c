"""Tallies drawn from the exact law of a mechanism, for simulations of more devices than can be run one by one."""

import numpy as np
import numpy.typing as npt

from dither_shared.mechanisms import GRR, PGR, PrivSet, PureMechanism, SubsetSelection
from dither_shared.mechanisms.pgr import points as points_of

Counts = npt.NDArray[np.int64]


def draw_tally(mechanism: PureMechanism, counts: Counts, rng: np.random.Generator) -> Counts:
    """Draw the tally of devices of which counts[v] have the value v.

    Only for mechanisms whose real randomizer has passed its law tests: nothing of it runs here.
    """
    design = mechanism.first_stage
    if isinstance(design, GRR):
        inside = rng.binomial(counts, float(mechanism.p))
        elsewhere = rng.multinomial(counts - inside, _all_but_one(design.d)).sum(axis=0)
        return np.asarray(inside + elsewhere, dtype=np.int64)
    if isinstance(design, PGR):
        return _points(design, counts, rng.binomial(counts, float(mechanism.p)), rng)
    if isinstance(design, PrivSet):
        raise TypeError("answers of several values have no counts to draw from: simulate them")
    if isinstance(design, SubsetSelection):
        return _subsets(design, counts, rng.binomial(counts, float(mechanism.p)), rng)
    p, q = float(mechanism.p), float(mechanism.q)
    return np.asarray(rng.binomial(counts, p) + rng.binomial(counts.sum() - counts, q), dtype=np.int64)


def _all_but_one(d: int) -> npt.NDArray[np.float64]:
    """Return a row for each value: uniform over the others."""
    return (1 - np.eye(d)) / (d - 1)


def _points(design: PGR, counts: Counts, inside: Counts, rng: np.random.Generator) -> Counts:
    """Draw uniform points on each value's hyperplane and off it."""
    points = np.array([design.unrank(point) for point in range(design.outputs)])
    tally = np.zeros(design.outputs, dtype=np.int64)
    for value in np.flatnonzero(counts):
        on = points @ points[value] % design.order == 0
        for where, number in ((on, inside[value]), (~on, counts[value] - inside[value])):
            places = np.flatnonzero(where)
            tally += np.bincount(rng.choice(places, size=number), minlength=design.outputs)
    return tally


def draw_reports(design: PGR, values: Counts, inside: npt.NDArray[np.bool_], rng: np.random.Generator) -> Counts:
    """Draw a point for each device, on its value's hyperplane or off it: quicker than `_points` for many values."""
    order, dimension = design.order, design.dimension
    size = order ** (dimension - 1)
    points = np.array([design.unrank(point) for point in range(design.d)])[values]
    digits = rng.integers(np.where(inside, 1, 0), size)
    others = np.stack([digits // order**place % order for place in range(dimension - 2, -1, -1)], axis=1)
    pivot = (points != 0).argmax(axis=1)[:, np.newaxis]
    vectors = np.insert(others, 0, 0, axis=1)
    along = np.arange(dimension)[np.newaxis]
    vectors = np.where(along <= pivot, np.roll(vectors, -1, axis=1), vectors)
    np.put_along_axis(vectors, pivot, 0, axis=1)
    product = (vectors * points).sum(axis=1)
    np.put_along_axis(vectors, pivot, ((np.where(inside, 0, 1) - product) % order)[:, np.newaxis], axis=1)
    inverses = np.array([0, *(pow(each, -1, order) for each in range(1, order))])
    first = (vectors != 0).argmax(axis=1)
    scale = inverses[np.take_along_axis(vectors, first[:, np.newaxis], axis=1)]
    scaled = np.where(along > first[:, np.newaxis], vectors * scale % order, 0)
    tail = scaled @ order ** np.arange(dimension - 1, -1, -1)
    before = np.array([points_of(order, dimension - 1 - place) for place in range(dimension)])
    return np.asarray(before[first] + tail)


def _subsets(design: SubsetSelection, counts: Counts, inside: Counts, rng: np.random.Generator) -> Counts:
    """Draw uniform subsets with and without each value: the values with the smallest of d random keys."""
    values = np.repeat(np.arange(design.d), counts)
    held = np.concatenate([np.arange(count) < within for count, within in zip(counts, inside, strict=True)])
    keys = rng.random((len(values), design.d), dtype=np.float32)
    keys[np.arange(len(values)), values] = np.where(held, -1.0, 2.0)
    members = np.argpartition(keys, design.weight - 1, axis=1)[:, : design.weight]
    return np.bincount(members.ravel(), minlength=design.d)
