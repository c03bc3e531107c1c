"""Tallies drawn from the exact law of a mechanism, for simulations of more devices than can be run one by one."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dither_shared.mechanisms import GRR, PGR, PrivSet, PureMechanism, SubsetSelection

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
    points = _coordinates(design)
    tally = np.zeros(design.outputs, dtype=np.int64)
    for value in np.flatnonzero(counts):
        on = points @ points[value] % design.order == 0
        for where, number in ((on, inside[value]), (~on, counts[value] - inside[value])):
            places = np.flatnonzero(where)
            tally += np.bincount(rng.choice(places, size=number), minlength=design.outputs)
    return tally


@lru_cache(maxsize=2)
def _coordinates(design: PGR) -> Counts:
    """Return the coordinates of all points: they take longer than a tally of few values."""
    return np.array([design.unrank(point) for point in range(design.outputs)])


def _subsets(design: SubsetSelection, counts: Counts, inside: Counts, rng: np.random.Generator) -> Counts:
    """Draw uniform subsets with and without each value: the values with the smallest of d random keys."""
    values = np.repeat(np.arange(design.d), counts)
    held = np.concatenate([np.arange(count) < within for count, within in zip(counts, inside, strict=True)])
    keys = rng.random((len(values), design.d), dtype=np.float32)
    keys[np.arange(len(values)), values] = np.where(held, -1.0, 2.0)
    members = np.argpartition(keys, design.weight - 1, axis=1)[:, : design.weight]
    return np.bincount(members.ravel(), minlength=design.d)
