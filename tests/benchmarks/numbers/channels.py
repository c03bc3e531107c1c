"""Randomizers as matrices: A[y, v] is the probability of the report y for a value in bucket v."""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from dither_shared.mechanisms import GRR, PGR, choose
from tests.benchmarks.numbers.shapes import Counts, Floats

STEPS_MAX = 3000


def draw(channel: Floats, devices: Counts, rngs: Sequence[np.random.Generator]) -> Counts:
    """Draw the tally of each row of devices from the exact law: int64[S, B] in, int64[S, K] out."""
    laws = channel.T / channel.sum(axis=0)[:, np.newaxis]  # multinomial refuses sums that rounding left above one
    return np.stack([rng.multinomial(row, laws).sum(axis=0) for row, rng in zip(devices, rngs, strict=True)])


def points_mechanism(d: int, epsilon: float) -> GRR | PGR:
    """Return GRR or PGR, whichever has the least average variance: both send one symbol."""
    designs = [choose(d, Decimal(str(epsilon)), name=name) for name in ("grr", "pgr")]
    best = min(designs, key=lambda design: design.average_variance)
    assert isinstance(best, GRR | PGR)
    return best


def supports(mechanism: GRR | PGR) -> Floats:
    """Return which reports support which values, float64[K, d] of zeros and ones."""
    if isinstance(mechanism, GRR):
        return np.eye(mechanism.d)
    points = np.array([mechanism.unrank(point) for point in range(mechanism.outputs)])
    return np.asarray(points @ points[: mechanism.d].T % mechanism.order == 0, dtype=np.float64)


def points_channel(mechanism: GRR | PGR) -> Floats:
    """Return the matrix of GRR or PGR."""
    on = supports(mechanism)
    size, inside = on[:, 0].sum(), float(mechanism.law.inside)
    return np.asarray(np.where(on > 0, inside / size, (1 - inside) / (len(on) - size)), dtype=np.float64)


def likeliest(channel: Floats, tallies: Counts, gain_min: float, *, smooth: bool = False) -> Floats:
    """Return the shares of each tally by expectation maximisation from uniform, float64[S, B].

        f <- f * A'(c / (A f)) / n          and with `smooth` averaged with its neighbours, by (1/4, 1/2, 1/4)

    A row stops when its log-likelihood gains less than `gain_min` in a step, or after STEPS_MAX. EM and EMS as in Li,
    Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020, section 5.5.
    """
    going, counts = np.arange(len(tallies)), tallies.astype(np.float64)
    ends = np.empty((len(tallies), channel.shape[1]))
    shares, before = np.full(ends.shape, 1 / ends.shape[1]), np.full(len(tallies), -np.inf)
    for _ in range(STEPS_MAX):
        expected = shares @ channel.T
        now = (counts * np.log(expected)).sum(axis=1)
        done = now - before < gain_min
        ends[going[done]] = shares[done]
        going, counts, shares, expected, before = (each[~done] for each in (going, counts, shares, expected, now))
        if not len(going):
            break
        shares = shares * ((counts / expected) @ channel) / counts.sum(axis=1, keepdims=True)
        if smooth:
            shares = _smoothed(shares)
    ends[going] = shares
    return ends


def _smoothed(shares: Floats) -> Floats:
    """Average each bucket with its neighbours; the end buckets count for the neighbour that they lack."""
    wide = np.pad(shares, ((0, 0), (1, 1)), mode="edge")
    return np.asarray((wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]) / 4, dtype=np.float64)


def norm_sub(raw: Floats) -> Floats:
    """Return the nearest shares that are not negative and sum to one, row by row (Wang et al. 2020, Norm-Sub)."""
    ordered = -np.sort(-raw, axis=1)
    levels = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, raw.shape[1] + 1)
    kept = (ordered > levels).sum(axis=1) - 1
    return np.maximum(raw - np.take_along_axis(levels, kept[:, np.newaxis], axis=1), 0.0)
