"""Sketches: how many have a text or a prefix, asked of tallies that only know its bucket in each of a few rows.

Each row is a group of reports with a hash of its own into B buckets. With x(b) the estimated share of a bucket, the
share of a candidate c is estimated from all rows r, weighted by their reports n_r:

    f^(c) = sum over r of n_r (B x_r(h_r(c)) - 1) / (B - 1)  /  sum over r of n_r

since another text is in c's bucket with probability 1/B. Its variance is that of one row with all the reports, plus
F2 / (rows B) for collisions, F2 being the sum of the other shares' squares: nothing, but where a heavy text is in the
bucket. So the heaviest candidates are taken one after the other, and what shares a bucket with one of them is estimated
from its other rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc, bdtrik, ndtr, ndtri

from dither_aggregator.analysis.functional import share_variance
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.pure import population_ends
from dither_aggregator.counting.folding import Counts
from dither_aggregator.counting.supports import noisy_support, support_counts
from dither_shared.hashing import WORD_BITS
from dither_shared.mechanisms import PureMechanism

Numbers = npt.NDArray[np.uint64]
"""Numbers to hash: of prefixes, or of whole texts."""

HEAVY = 30
"""So many candidates at most are taken for heavy."""
SURE = 3.0
"""Standard errors below which none is."""
CHANCE_MIN, CHANCE_MAX = 1e-300, 1 - 1e-6
"""Ends of a chance whose score is told: a count of none is reached for certain, and its score would have no end."""


@dataclass(frozen=True)
class Sketched:
    """Sketched of candidates, and how many reports each is of."""

    shares: Floats
    n: Counts
    mechanism: PureMechanism
    noise: Floats | float = 0.0
    """The variance that the noise of a release adds to each share."""

    @property
    def rates(self) -> Floats:
        """The part of the reports that supports each candidate's buckets."""
        p, q, buckets = float(self.mechanism.p), float(self.mechanism.q), self.mechanism.d
        return np.asarray(q + (p - q) * (self.shares * (buckets - 1) + 1) / buckets)

    @property
    def support(self) -> Counts:
        """How many reports that is: binomial, and whole."""
        return np.rint(self.rates * self.n).astype(np.int64)

    @property
    def scores(self) -> Floats:
        """How many standard errors of a normal law are passed as rarely where nobody has the candidate."""
        if np.any(self.noise):  # it is the sum of thousands of numbers
            nobody = share_variance(self.mechanism, np.zeros(1), np.maximum(self.n, 1), "reports")
            return np.asarray(self.shares / np.sqrt(nobody + self.noise))
        chances = bdtrc(self.support - 1.0, self.n, null_rate(self.mechanism))
        return np.asarray(-ndtri(np.clip(chances, CHANCE_MIN, CHANCE_MAX)))

    def std_errors(self, repeats: int = 1) -> Floats:
        """Return those of the shares in the population; `repeats` is how many reports one device may have sent."""
        buckets = self.mechanism.d
        held = np.clip((self.shares * (buckets - 1) + 1) / buckets, 1 / buckets, 1.0)
        return np.sqrt(share_variance(self.mechanism, held, self.n, "population", repeats))

    def ends(self, alpha: float, repeats: int = 1) -> tuple[Floats, Floats]:
        """Return the ends of each candidate's interval of confidence 1 - alpha, exact where counts are few.

        `repeats` is how many of the reports one device may have sent.
        """
        lower, upper = population_ends(self.mechanism, self.support, self.n, alpha, repeats)
        return lower - 1 / self.mechanism.d, upper - 1 / self.mechanism.d


def null_rate(mechanism: PureMechanism) -> float:
    """Return the part of the reports that supports the bucket of a text which nobody has."""
    return float(mechanism.q + (mechanism.p - mechanism.q) / mechanism.d)


@dataclass(frozen=True)
class Sketch:
    """The rows of one group of reports."""

    shares: npt.NDArray[np.float32]
    """float32[rows, buckets], without the part that is expected of others: small, so that lookups stay in caches."""
    n: Counts
    """Reports, int64[rows]."""
    multipliers: Numbers
    """uint64[rows]."""
    mechanism: PureMechanism
    noise: float = 0.0
    """The variance that noise on each count adds to an estimate from one row, times the square of its reports."""

    @classmethod
    def of_tally(
        cls, mechanism: PureMechanism, table: Counts, multipliers: Sequence[int], noise: float = 0.0
    ) -> "Sketch":
        """Decode the rows of a tally, int64[rows, 1 + K], each n and its counts. Raises BadTally.

        With noise, counts may be negative, and n is their sum, or 0 where the row is to be left out.
        """
        p, q, buckets = float(mechanism.p), float(mechanism.q), mechanism.d
        shares = np.zeros((len(table), buckets), dtype=np.float32)
        for row, (n, *_) in enumerate(table):
            if n:
                # (K (S / n - q) / (p - q) - 1) / (K - 1), in one array: to make more of this size takes as long.
                points = table[row, 1:]
                rates = (noisy_support(mechanism, points) if noise else support_counts(mechanism, points, int(n))) / n
                rates -= q
                rates *= buckets
                rates /= p - q
                rates -= 1
                rates /= buckets - 1
                shares[row] = rates
        return cls(shares, table[:, 0], np.array(multipliers, dtype=np.uint64), mechanism, noise)

    @cached_property
    def std_error(self) -> float:
        """The standard error of an estimate from all rows, for a text that nobody has."""
        n = max(int(self.n.sum()), 1)
        of_noise = self.noise * np.count_nonzero(self.n) / n**2
        return float(np.sqrt(share_variance(self.mechanism, np.zeros(1), n, "reports") + of_noise)[0])

    def share_at(self, z: float) -> float:
        """Return the share that an estimate from all rows passes as rarely as a normal law passes z standard errors.

        The estimate is that of a text that nobody has, by the binomial law of its count. Infinite without reports.
        """
        n = int(self.n.sum())
        if not n:
            return inf
        if self.noise:
            return z * self.std_error
        p, q, null = float(self.mechanism.p), float(self.mechanism.q), null_rate(self.mechanism)
        return (float(np.ceil(bdtrik(ndtr(z), n, null))) / n - null) / (p - q)

    def buckets(self, numbers: Numbers, row: int) -> Counts:
        """Return the bucket of each number in a row. The number of buckets is a power of two."""
        hashed = numbers * self.multipliers[row]
        hashed >>= np.uint64(WORD_BITS - (self.mechanism.d.bit_length() - 1))
        return np.asarray(hashed.view(np.int64))

    def shares_of(self, numbers: Numbers) -> npt.NDArray[np.float32]:
        """Return the estimates of many candidates from all rows, whatever else is in their buckets."""
        total = np.zeros(len(numbers), dtype=np.float32)
        for row, weight in enumerate((self.n / max(int(self.n.sum()), 1)).tolist()):
            total += np.float32(weight) * self.shares[row].take(self.buckets(numbers, row))
        return total

    def apart(self, numbers: Numbers) -> Sketched:
        """Return the estimates of a few candidates, without the rows that they share with a heavier one."""
        places = np.array([self.buckets(numbers, row) for row in range(len(self.n))])
        own = np.take_along_axis(self.shares, places, axis=1).astype(np.float64)
        used = np.ones(places.shape, dtype=bool)
        shares = _means(own, self.n[:, np.newaxis] * used)
        for _ in range(min(HEAVY, len(numbers))):
            heaviest = int(shares.argmax())
            if shares[heaviest] < SURE * self.std_error:
                break
            meets = (places == places[:, [heaviest]]) & used[:, [heaviest]]
            meets[:, heaviest] = False
            used &= ~meets
            met = meets.any(axis=0)
            shares[met] = _means(own[:, met], self.n[:, np.newaxis] * used[:, met])
            shares[heaviest] = -np.inf
        weights = self.n[:, np.newaxis] * used
        n, rows = weights.sum(axis=0), np.count_nonzero(weights, axis=0)
        return Sketched(_means(own, weights), n, self.mechanism, self.noise * rows / np.maximum(n, 1) ** 2)


def _means(own: Floats, weights: Counts) -> Floats:
    """Return each column's mean; zero where nothing has a weight."""
    n = weights.sum(axis=0)
    return np.asarray(np.divide((own * weights).sum(axis=0), n, out=np.zeros(len(n)), where=n > 0))
