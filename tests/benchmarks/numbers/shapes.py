"""Five distributions that numeric telemetry has: smooth, two humps, a mass at zero, ages, and a mass at 40 hours."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ADULT = Path(__file__).with_name("adult.csv")
BUCKETS = 64
LATENCY_MS = (1, 10_000)
ZEROS = 0.4


@dataclass(frozen=True)
class Shape:
    """A distribution over ordered buckets."""

    name: str
    shares: Floats
    """The share of each bucket, float64[B]."""

    @property
    def heaviest(self) -> int:
        """The bucket with the largest share."""
        return int(self.shares.argmax())

    def devices(self, n: int, seed: int) -> Counts:
        """Draw how many of n devices have their value in each bucket, int64[B]."""
        return np.random.default_rng([seed, *self.name.encode()]).multinomial(n, self.shares)


@cache
def shapes() -> tuple[Shape, ...]:
    """Return the five shapes."""
    return (
        _shape("beta", np.diff(stats.beta.cdf(np.linspace(0, 1, BUCKETS + 1), 2, 5))),
        _shape("latency", _latency()),
        _shape("zeros", _zeros()),
        _shape("age", _adult("age")),
        _shape("hours", _adult("hours_per_week")),
    )


def _shape(name: str, weights: Floats) -> Shape:
    return Shape(name, weights / weights.sum())


def _latency() -> Floats:
    """Return two log-normal humps in buckets of equal ratio: 80 % around 40 ms, 20 % around 900 ms."""
    edges = np.log(np.geomspace(*LATENCY_MS, BUCKETS + 1))
    fast, slow = (np.diff(stats.norm.cdf(edges, np.log(ms), width)) for ms, width in ((40, 0.6), (900, 0.4)))
    return np.asarray(0.8 * fast + 0.2 * slow, dtype=np.float64)


def _zeros() -> Floats:
    """Return counts of which 40 % are zero; the others are negative binomial with mean 14."""
    others = stats.nbinom.pmf(np.arange(BUCKETS), 2, 2 / (2 + 14))
    shares = (1 - ZEROS) * others / others.sum()
    shares[0] += ZEROS
    return np.asarray(shares, dtype=np.float64)


def _adult(column: str) -> Floats:
    """Return the counts of a column's values, in order."""
    with ADULT.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return np.array([float(row["count"]) for row in rows if row["column"] == column])
