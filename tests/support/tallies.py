"""Tallies drawn from the exact law of a mechanism, for simulations of more devices than can be run one by one."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dither_shared.mechanisms import GRR, PGR, PrivSet, PureMechanism, SubsetSelection

Counts = npt.NDArray[np.int64]

PLANES_MAX = 1 << 20
"""Values times points of a design whose hyperplanes are kept, 8 MiB at most. A larger one is drawn value by value."""


def draw_tally(mechanism: PureMechanism, counts: Counts, rng: np.random.Generator) -> Counts:
    """Draw the tally of devices of which counts[v] have the value v.

    Only for mechanisms whose real randomizer has passed its law tests: nothing of it runs here.
    """
    tally: Counts = draw_tallies(mechanism, counts[np.newaxis], rng)[0]
    return tally


def draw_tallies(mechanism: PureMechanism, runs: Counts, rng: np.random.Generator) -> Counts:
    """Draw the tallies of many runs at once, which is much quicker: a row of counts and a row of the tally for each."""
    design = mechanism.first_stage
    if isinstance(design, GRR):
        true = rng.binomial(runs, float(mechanism.p) - float(mechanism.q))
        rest = (runs - true).sum(axis=1)
        by_chance = rng.multinomial(rest, np.full(design.d, 1 / design.d))  # the truth included
        return np.asarray(true + by_chance, dtype=np.int64)
    if isinstance(design, PGR):
        return np.array([_points(design, counts, float(mechanism.p), rng) for counts in runs])
    if isinstance(design, PrivSet):
        raise TypeError("answers of several values have no counts to draw from: simulate them")
    if isinstance(design, SubsetSelection):
        return _subsets(design, runs, rng.binomial(runs, float(mechanism.p)), rng)
    p, q = float(mechanism.p), float(mechanism.q)
    others = runs.sum(axis=1, keepdims=True) - runs
    return np.asarray(rng.binomial(runs, p) + rng.binomial(others, q), dtype=np.int64)


@lru_cache(maxsize=2)
def _points_of(design: PGR) -> Counts:
    """Return the coordinates of every point."""
    return np.array([design.unrank(point) for point in range(design.outputs)])


@lru_cache(maxsize=8)
def _planes(design: PGR) -> Counts:
    """Return the points on each value's hyperplane, int64[d, points]: equally many on each."""
    points = _points_of(design)
    on = points @ points[: design.d].T % design.order == 0
    return np.nonzero(on.T)[1].reshape(design.d, -1)


def _points(design: PGR, counts: Counts, p: float, rng: np.random.Generator) -> Counts:
    """Draw points: some devices' any one, the others' one on their value's hyperplane."""
    if design.d * design.outputs > PLANES_MAX:
        return _points_by_value(design, counts, rng.binomial(counts, p), rng)
    planes = _planes(design)
    share = planes.shape[1] / design.outputs
    true = rng.binomial(counts, (p - share) / (1 - share))
    by_chance = rng.multinomial(counts.sum() - true.sum(), np.full(design.outputs, 1 / design.outputs))
    if planes.size < counts.sum():  # so many devices that drawing how many have each point takes less
        tally = by_chance.copy()
        np.add.at(tally, planes, rng.multinomial(true, np.full(planes.shape[1], 1 / planes.shape[1])))
        return np.asarray(tally, dtype=np.int64)
    values = np.repeat(np.arange(design.d), true)
    on = planes[values, rng.integers(planes.shape[1], size=len(values))]
    return np.asarray(by_chance + np.bincount(on, minlength=design.outputs), dtype=np.int64)


def _points_by_value(design: PGR, counts: Counts, inside: Counts, rng: np.random.Generator) -> Counts:
    """Draw uniform points on each value's hyperplane and off it."""
    points = _points_of(design)
    tally = np.zeros(design.outputs, dtype=np.int64)
    for value in np.flatnonzero(counts):
        on = points @ points[value] % design.order == 0
        for where, number in ((on, inside[value]), (~on, counts[value] - inside[value])):
            places = np.flatnonzero(where)
            tally += np.bincount(rng.choice(places, size=number), minlength=design.outputs)
    return tally


def _subsets(design: SubsetSelection, runs: Counts, inside: Counts, rng: np.random.Generator) -> Counts:
    """Draw uniform subsets with and without each value, value after value, for many runs at once: a row each.

    A subset that lacks r more members, with c values to come, has the next one with probability r/c (Fan, Muller and
    Rezucha 1962).
    Devices of one value that lack equally many are drawn together.
    """
    held = np.flatnonzero(runs.any(axis=0))
    lacking = np.zeros((len(runs), len(held), design.weight + 1), dtype=np.int64)
    lacking[:, :, design.weight] = (runs - inside)[:, held]
    lacking[:, :, design.weight - 1] += inside[:, held]
    tally = np.zeros(runs.shape, dtype=np.int64)
    to_come = np.full((len(held), 1), design.d - 1)  # a device's own value is decided
    for value in range(design.d):
        others = (held != value)[:, np.newaxis]
        chance = np.where(others, np.arange(design.weight + 1) / np.maximum(to_come, 1), 0.0)
        taken = rng.binomial(lacking, np.minimum(chance, 1.0))
        lacking -= taken
        lacking[:, :, :-1] += taken[:, :, 1:]
        to_come = to_come - others
        tally[:, value] = taken.sum(axis=(1, 2))
    tally[:, held] += inside[:, held]
    return tally
