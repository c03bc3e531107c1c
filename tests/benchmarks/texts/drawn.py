"""Reports of a million devices, each with one text, drawn by the law of every way to send it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import exp

import numpy as np
import numpy.typing as npt

from dither_shared.domains import Hashed
from dither_shared.kinds.text import BUCKETS, ROWS
from dither_shared.mechanisms import PGR, RAPPOR, MemoizedTwoLevel
from tests.support.points import draw_points
from tests.support.tallies import draw_tally

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNLISTED = 0.3
"""The share of devices whose text is in no list."""
LAWS: dict[str, Callable[[Ints], Floats]] = {
    "zipf": lambda place: np.power(place, -1.0),
    "zipf 1.5": lambda place: np.power(place, -1.5),
    "exp": lambda place: np.exp(-5 * place / len(place)),
}
SKETCH_ROWS, SKETCH_BUCKETS = 2_048, 1_024
"""The size of Apple's sketches (Learning with privacy at scale, 2017): so many hashes, and so many buckets each."""


@dataclass(frozen=True)
class Devices:
    """Texts of which the first half is listed, by some law; the others have a part of the devices, by the same one."""

    listed: int
    n: int
    seed: int
    law: str = "zipf"
    unlisted: float = UNLISTED

    @cached_property
    def rng(self) -> np.random.Generator:
        """The source of all draws."""
        return np.random.default_rng(self.seed)

    @cached_property
    def shares(self) -> Floats:
        """The share of each text, float64[2 x listed]."""
        place = np.arange(1, self.listed + 1)
        law = LAWS[self.law](place)
        law /= law.sum()
        return np.concatenate([(1 - self.unlisted) * law, self.unlisted * law])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The texts."""
        return tuple(f"text {number} of {self.seed}" for number in range(2 * self.listed))

    @cached_property
    def texts(self) -> Ints:
        """Which text each device has."""
        return np.sort(self.rng.choice(2 * self.listed, self.n, p=self.shares))

    @property
    def held(self) -> Floats:
        """The share of the devices that have each listed text."""
        return np.asarray(np.bincount(self.texts, minlength=2 * self.listed)[: self.listed] / self.n)


def draw_rows(devices: Devices, mechanism: PGR) -> tuple[Hashed, Ints]:
    """Return a domain of this seed's own, and the tally of rows that devices send by `mechanism`."""
    domain, rng = Hashed(f"benchmark {devices.seed}", BUCKETS), devices.rng
    rows, table = rng.integers(0, ROWS, devices.n), []
    for row in range(ROWS):
        mine = devices.texts[rows == row]
        buckets = np.array([domain.bucket(name, row) for name in devices.names])[mine]
        tally = draw_points(mechanism, np.bincount(buckets, minlength=mechanism.d), rng)
        table.append(np.concatenate([[len(mine)], tally]))
    return domain, np.array(table)


def draw_bits(devices: Devices, rappor: RAPPOR, m: int, bits: Ints) -> Ints:
    """Return RAPPOR's tally, int64[m, 1 + k]; `bits` is int64[texts, m, h]."""
    rng, k = devices.rng, rappor.k
    cohorts = rng.integers(0, m, devices.n)
    tally = np.zeros((m, 1 + k), dtype=np.int64)
    for cohort in range(m):
        holders = np.bincount(devices.texts[cohorts == cohort], minlength=2 * devices.listed)
        set_ = np.zeros(k, dtype=np.int64)
        for hashed in bits[:, cohort].T:  # one hash
            set_ += np.bincount(hashed, holders, k).astype(np.int64)
        tally[cohort, 0] = n = holders.sum()
        tally[cohort, 1:] = rng.binomial(set_, float(rappor.q_star)) + rng.binomial(n - set_, float(rappor.p_star))
    return tally


def draw_buckets(devices: Devices, memo: MemoizedTwoLevel, m: int) -> tuple[Hashed, Ints]:
    """Return a domain of this seed's own, and the tally of first reports of hashed memos, int64[m, 1 + K]."""
    domain, rng = Hashed(f"benchmark {devices.seed}", memo.d), devices.rng
    cohorts, table = rng.integers(0, m, devices.n), []
    for cohort in range(m):
        mine = devices.texts[cohorts == cohort]
        buckets = np.array([domain.bucket(name, cohort) for name in devices.names])[mine]
        tally = draw_tally(memo, np.bincount(buckets, minlength=memo.d), rng)
        table.append(np.concatenate([[len(mine)], tally]))
    return domain, np.array(table)


def sketch_buckets(devices: Devices) -> Ints:
    """Return a uniform hash of each text in each of a sketch's rows, int64[texts, rows]."""
    rng = np.random.default_rng([devices.seed, 1])
    return rng.integers(0, SKETCH_BUCKETS, (2 * devices.listed, SKETCH_ROWS), dtype=np.int16).astype(np.int64)


def count_mean_sketch(devices: Devices, epsilon: float, buckets: Ints) -> Floats:
    """Return the estimates of Apple's CMS: a row, and its one-hot bucket with each bit flipped by e^(eps/2)."""
    keep, rng = 1 / (1 + exp(-epsilon / 2)), devices.rng
    rows = rng.integers(0, SKETCH_ROWS, devices.n)
    cells = np.bincount(
        rows * SKETCH_BUCKETS + buckets[devices.texts, rows], minlength=SKETCH_ROWS * SKETCH_BUCKETS
    ).reshape(SKETCH_ROWS, SKETCH_BUCKETS)
    sent = np.bincount(rows, minlength=SKETCH_ROWS)[:, np.newaxis]
    ones = rng.binomial(cells, keep) + rng.binomial(sent - cells, 1 - keep)
    sketch = (ones - sent * (1 - keep)) / (2 * keep - 1)
    return _mean_of_rows(sketch, devices, buckets)


def hadamard_sketch(devices: Devices, epsilon: float, buckets: Ints) -> Floats:
    """Return those of Apple's HCMS: a row, and one bit of its bucket's Hadamard code, flipped by e^eps."""
    keep, rng = 1 / (1 + exp(-epsilon)), devices.rng
    rows, places = rng.integers(0, SKETCH_ROWS, devices.n), rng.integers(0, SKETCH_BUCKETS, devices.n)
    odd = np.bitwise_count((buckets[devices.texts, rows] & places).astype(np.uint64)) & 1
    sign = np.where((odd == 1) ^ (rng.random(devices.n) > keep), -1, 1)
    cells = np.bincount(rows * SKETCH_BUCKETS + places, sign, SKETCH_ROWS * SKETCH_BUCKETS)
    sketch = cells.reshape(SKETCH_ROWS, SKETCH_BUCKETS) / (2 * keep - 1)
    step = 1
    while step < SKETCH_BUCKETS:  # the fast Walsh-Hadamard transform of every row
        pairs = sketch.reshape(SKETCH_ROWS, -1, 2, step)
        sketch = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        step *= 2
    return _mean_of_rows(sketch.reshape(SKETCH_ROWS, SKETCH_BUCKETS), devices, buckets)


def _mean_of_rows(sketch: Floats, devices: Devices, buckets: Ints) -> Floats:
    """Return m / (m - 1) (sum over rows / n - 1 / m) of each listed text."""
    rows, sums = np.arange(SKETCH_ROWS), np.zeros(devices.listed)
    for start in range(0, devices.listed, 1_000):  # at most so many at once in memory
        some = slice(start, min(start + 1_000, devices.listed))
        sums[some] = sketch[rows, buckets[some]].sum(axis=1)
    return np.asarray(SKETCH_BUCKETS / (SKETCH_BUCKETS - 1) * (sums / devices.n - 1 / SKETCH_BUCKETS))


def local_hashing(devices: Devices, epsilon: float) -> Floats:
    """Return the estimates of OLH: each device has a hash of its own into g = e^eps + 1 values, and GRR there."""
    g, rng = round(exp(epsilon)) + 1, devices.rng
    keep = exp(epsilon) / (exp(epsilon) + g - 1)
    seeds = rng.integers(1, 2**63, devices.n).astype(np.uint64) | np.uint64(1)

    def hashed(text: npt.NDArray[np.uint64] | np.uint64) -> Ints:
        mixed = (text + np.uint64(0x9E3779B97F4A7C15)) * seeds
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray((mixed >> np.uint64(33)) % np.uint64(g), dtype=np.int64)

    own = hashed(devices.texts.astype(np.uint64))
    sent = np.where(rng.random(devices.n) < keep, own, (own + rng.integers(1, g, devices.n)) % g)
    support = np.array([np.count_nonzero(hashed(np.uint64(text)) == sent) for text in range(devices.listed)])
    return np.asarray((support / devices.n - 1 / g) / (keep - 1 / g))
