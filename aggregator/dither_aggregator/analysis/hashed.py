"""Fresh texts: shares of any candidates among reports of hashed buckets, and of all that is not in the list.

Each report names its row r of R, drawn publicly, and holds a noisy point for the bucket that the row's hash gives its
text, one of B. The support counts C(r, b) of a row's buckets come out of one transform. A candidate v is looked up in
every row:

    C = sum of C(r, h_r(v)) over its rows      n = sum of their reports
    share  f^ = (C / n - q) / (p - q) - mean

unbiased over the hash, with the mean that all others add to a bucket. C is binomial as for a listed value, so intervals
and chances are those of `pure`; what others add differs from bucket to bucket with

    variance  sum of f_w^2 over all others w / (R B)

Both are measured, over all buckets: the mean, and the variance less that of the noise. A text that many have breaks
this for the few that share a bucket with it. So the HEAVIEST candidates are found first, and each other one is read
without the rows in which it meets one of them. Others, in no list, show where a row lies FAR above all other rows of a
candidate: that row is left out. Noise alone does that to one candidate in a million. Buckets that are FAR above zero do
not count among all, then.

Whether anybody has a text is tested by the law of strangers: a text that nobody has lies in a uniformly random bucket
of each row. Many of these are read as candidates are, with all that others add to them. A candidate's chance is the
part of them that get as much.

The listed texts together hold the mass M_r of the buckets D_r that they occupy, but for the part c_r = |D_r| / B that
all others have there:

    L = (M_r - c_r) / (1 - c_r)      unlisted mass = 1 - L

M_r is a sum of buckets: its variance is that of the number of them that one report supports, over the row's reports.
Each unlisted w adds variance f_w^2 c_r / (1 - c_r).

Count sketches of public hashes: Charikar, Chen, Farach-Colton 2002; in the local model Bassily, Nissim, Stemmer,
Thakurta 2017.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import answers_variance, points_sum, rate_variance, share_variance
from dither_aggregator.analysis.inference import Floats, Method, Z
from dither_aggregator.analysis.pure import estimate_shares, population_ends
from dither_aggregator.counting.folding import Counts
from dither_aggregator.counting.supports import support_counts
from dither_shared.domains import Hashed
from dither_shared.mechanisms import PGR

HEAVIEST = 30
"""Candidates whose buckets are left out for all others."""
SURE = 3.0
"""Standard errors above which a candidate may be one of them."""
FAR = 5.0
"""Standard errors that one row in 3 million passes by noise alone."""
STRANGERS_MIN, STRANGERS_EACH, STRANGERS_AT_ONCE = 100_000, 100, 1 << 18
"""Texts that nobody has: at least so many, so many for each candidate, and so many in memory."""
_HALF = np.uint64(32)


@dataclass(frozen=True)
class HashedShares:
    """The shares of candidates, arrays of length S in their order."""

    names: tuple[str, ...]
    mechanism: PGR
    support: Counts
    """How many of the reports of its rows support each candidate's buckets."""
    n: Counts
    """How many reports these rows have."""
    others: float
    """The mean that other texts add to a bucket."""
    collisions: Floats
    """The variance of that."""
    chances: Floats
    """How often a text that nobody has gets as much, at least 1 / STRANGERS_MIN: float64[S]."""
    repeats: int
    """How many reports one device may have sent."""

    @cached_property
    def estimate(self) -> Floats:
        """Raw and unbiased over the hash, float64[S]."""
        return self._mass - self.others

    @cached_property
    def _mass(self) -> Floats:
        """The share of all that are in a candidate's buckets."""
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        return np.asarray((self.support / self.n - q) / (p - q))

    @cached_property
    def std_error(self) -> Floats:
        """The standard error of the share in the population, float64[S]."""
        return np.asarray(np.sqrt(self._noise(self.estimate) + self.collisions))

    def _noise(self, share: Floats) -> Floats:
        """Return the variance of estimates of such shares, without what others add."""
        return share_variance(self.mechanism, np.clip(share, 0.0, 1.0), self.n, "population", self.repeats)

    @property
    def noise_floor(self) -> float:
        """The standard error of a text that nobody has, without what others add to its buckets."""
        nobody, n = np.zeros(1), int(self.n.max())
        return float(np.sqrt(share_variance(self.mechanism, nobody, n, "reports", self.repeats)[0]))

    @property
    def method(self) -> Method:
        """The kind of most of the intervals."""
        support, n = self.support[:1], int(self.n.max())
        return estimate_shares(self.mechanism, support, n, error_of="population", repeats=self.repeats).method

    def ends(self, alpha: float) -> tuple[Floats, Floats]:
        """Return the ends of each candidate's interval of confidence 1 - alpha."""
        lower, upper = population_ends(self.mechanism, self.support, self.n, alpha, self.repeats)
        wider = np.sqrt(1 + self.collisions / self._noise(self._mass))
        return self.estimate + (lower - self._mass) * wider, self.estimate + (upper - self._mass) * wider


@dataclass(frozen=True)
class Unlisted:
    """The share of reports whose text is not in the list: raw, with its standard error."""

    estimate: float
    std_error: float

    def interval(self) -> tuple[float, float]:
        """Return the ends of its 95 % interval."""
        return self.estimate - Z * self.std_error, self.estimate + Z * self.std_error


class Rows:
    """A tally of rows, decoded: what is asked of any candidates is looked up in it."""

    def __init__(self, mechanism: PGR, domain: Hashed, table: Counts, repeats: int = 1) -> None:
        """Decode int64[R, 1 + K]: of each row the number of its reports, then their points. Raises BadTally."""
        self.mechanism, self.domain, self.repeats = mechanism, domain, repeats
        self._places = np.flatnonzero(table[:, 0])
        self._points = table[self._places, 1:]
        self._n = table[self._places, 0]
        self._support = np.array(
            [support_counts(mechanism, points, int(n)) for points, n in zip(self._points, self._n, strict=True)]
        )

    def shares(self, names: Sequence[str]) -> HashedShares:
        """Return the shares of candidates."""
        places = self._buckets(names)
        crowded = np.zeros((len(self._n), self.domain.buckets), dtype=np.int64)
        first = self._score(*self._look_up(places, crowded))
        heaviest = np.argsort(-first, kind="stable")[:HEAVIEST]
        heaviest = heaviest[first[heaviest] > SURE]
        each_row = np.arange(len(self._n))[:, np.newaxis]
        np.add.at(crowded, (each_row, places[:, heaviest]), 1)
        themselves = np.zeros(len(names), dtype=np.int64)
        themselves[heaviest] = 1
        support, n, rows = self._look_up(places, crowded, themselves)
        chances = self._chances(self._score(support, n, rows), crowded)
        mean, spread = self._light
        return HashedShares(tuple(names), self.mechanism, support, n, mean, spread / rows, chances, self.repeats)

    def _look_up(self, places: Counts, crowded: Counts, themselves: Counts | int = 0) -> tuple[Counts, Counts, Counts]:
        """Return support, reports and number of the rows of texts in these buckets, without those that mislead.

        A row misleads by a test: that its rate is the one of the other rows, by the variance that both have together.

        `crowded` is how many of the heaviest are in each bucket, int64[rows, B]; `themselves` is 1 for each of these.
        """
        counts = np.take_along_axis(self._support, places, axis=1)
        used = np.take_along_axis(crowded, places, axis=1) == themselves
        used[:, ~used.any(axis=0)] = True
        reports = self._n[:, np.newaxis] * used
        support, n, rows = (counts * used).sum(axis=0), reports.sum(axis=0), used.sum(axis=0)
        largest = np.where(used, counts / self._n[:, np.newaxis], -1.0).argmax(axis=0)
        several = np.flatnonzero(rows > 1)
        row = largest[several]
        mine, own = counts[row, several], self._n[row]
        rest = n[several] - own
        rate = (support[several] - mine) / rest
        error = np.sqrt(np.maximum(rate * (1 - rate), 1 / rest) * (1 / own + 1 / rest))
        far = mine / own - rate > FAR * error
        for total, less in ((support, mine), (n, own), (rows, 1)):
            total[several] -= np.where(far, less, 0)
        return support, n, rows

    def _score(self, support: Counts, n: Counts, rows: Counts) -> Floats:
        """Return about how many standard errors texts are above what a stranger has: a test, by the null's variance."""
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        mean, spread = self._light
        rate = q + (p - q) * min(max(mean, 0.0), 1.0)  # of very few reports it may be neither
        error = np.sqrt(rate_variance(np.array(rate), n, p - q) + spread / rows)
        return np.asarray((support / n - rate) / (p - q) / error)

    def _chances(self, scores: Floats, crowded: Counts) -> Floats:
        """Return how often a stranger's score is at least each of these; the same each time."""
        number = max(STRANGERS_MIN, STRANGERS_EACH * len(scores))
        ordered, rng = np.sort(scores), np.random.default_rng(0)
        reached = np.zeros(len(scores) + 1, dtype=np.int64)
        for start in range(0, number, STRANGERS_AT_ONCE):
            strangers = min(STRANGERS_AT_ONCE, number - start)
            places = rng.integers(0, self.domain.buckets, (len(self._n), strangers))
            theirs = self._score(*self._look_up(places, crowded))
            reached += np.bincount(np.searchsorted(ordered, theirs, side="right"), minlength=len(reached))
        passing = np.cumsum(reached[::-1])[::-1]  # of strangers above the i smallest scores and equal ones
        return np.asarray((1 + passing[np.searchsorted(ordered, scores, side="left") + 1]) / (number + 1))

    def unlisted(self, listed: HashedShares) -> Unlisted:
        """Return the mass of all texts but these."""
        squares = float((listed.estimate**2 - listed.std_error**2).sum())
        rest = max(self.domain.buckets * self._spread(self._shares, self._noise) - squares, 0.0)
        estimates, variances = [], []
        for places, points in zip(self._buckets(listed.names), self._points, strict=True):
            occupied = np.zeros(self.mechanism.d)
            occupied[places] = 1.0
            part = occupied.sum() / self.domain.buckets
            mass, variance = points_sum(self.mechanism, occupied, points)
            estimates.append(1 - (mass - part) / (1 - part))
            variances.append(variance / (1 - part) ** 2 + rest * part / (1 - part))
        weights = self._n / self._n.sum()
        estimate = float(weights @ estimates)
        again = (self.repeats - 1) * answers_variance(np.array(estimate)) / self._n.sum()
        return Unlisted(estimate, sqrt(float(weights**2 @ variances + again)))

    @cached_property
    def _light(self) -> tuple[float, float]:
        """Mean and variance of what texts add to a bucket, but for those that many have."""
        light = self._shares <= FAR * np.sqrt(self._floor)[:, np.newaxis]
        rows = [
            (shares[each], noise[each]) for shares, noise, each in zip(self._shares, self._noise, light, strict=True)
        ]
        mean = np.mean([shares.mean() for shares, _ in rows])
        return float(mean), float(np.mean([self._spread(shares, noise) for shares, noise in rows]))

    @staticmethod
    def _spread(shares: Floats, noise: Floats) -> float:
        """Return the variance of the shares of buckets, without that of their noise; 0 at least."""
        return max(float(np.mean(shares.var(axis=-1) - noise.mean(axis=-1))), 0.0)

    @cached_property
    def _shares(self) -> Floats:
        """The raw share of each bucket, float64[rows, B]."""
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        return np.asarray((self._support / self._n[:, np.newaxis] - q) / (p - q))

    @cached_property
    def _noise(self) -> Floats:
        """The variance of each."""
        rates, further = self._support / self._n[:, np.newaxis], np.maximum(self._n - 1, 1)[:, np.newaxis]
        return rate_variance(rates, further, float(self.mechanism.p - self.mechanism.q))

    @cached_property
    def _floor(self) -> Floats:
        """The variance of an empty bucket in each row."""
        return share_variance(self.mechanism, np.zeros(1), self._n, "reports")

    def _buckets(self, names: Sequence[str]) -> Counts:
        """Return the bucket of each candidate in each row that has reports: int64[rows, S]."""
        numbers = _numbers(self.domain, tuple(names))
        return np.array([_row(numbers, self.domain, row) for row in self._places.tolist()]).reshape(-1, len(names))


@lru_cache(maxsize=4)
def _numbers(domain: Hashed, names: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    return np.array([domain.number(domain.named(name)) for name in names], dtype=np.uint64)


def _row(numbers: npt.NDArray[np.uint64], domain: Hashed, row: int) -> Counts:
    """Return `Hashed.bucket` of many numbers: the product by halves, which 64 bits hold."""
    products, buckets = numbers * np.uint64(domain.multiplier(row)), np.uint64(domain.buckets)
    low = (products & np.uint64(0xFFFFFFFF)) * buckets >> _HALF
    return ((products >> _HALF) * buckets + low >> _HALF).astype(np.int64)
