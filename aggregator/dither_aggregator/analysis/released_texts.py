"""The reading of published supports: shares of named texts, from a few noisy counts of each row of a fresh text.

A row r of R has the noisy number n of its reports and, of each text v of a public list, how many of them support the
bucket that the row's hash gives it, C. With B buckets and both added up over a text's rows

    share  f^ = (C / n - q) / (p - q) - U / B        U = 1 - sum of all f^, cut to [0, 1]: the part of all other texts

is unbiased over the hash. The hash is public, so a row in which another listed text has the same bucket is left out.
A text that many have, and that is not in the list, may have it, too: a row that lies FAR above all others of a text is
left out, as in `hashed`. The variance has three parts:

    of the reports       as of a listed value
    of other texts       what rows of a text differ more than that, a mean over all texts, and U^2 / B at most; over R
    of the noise         V R (1 + (C / n)^2) / (n (p - q))^2, with V that of one count

Intervals reach as far as the three together, the noise by its own law: few Laplace numbers have long tails.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import rate_variance, share_variance
from dither_aggregator.analysis.hashed import FAR
from dither_aggregator.analysis.inference import CONFIDENCE, Floats, reach_of_noise
from dither_aggregator.analysis.pure import population_ends
from dither_aggregator.analysis.released import SURE_OF_N, Released, ReleasedRow, ReleasedTally
from dither_aggregator.counting.folding import Counts
from dither_shared.domains import TypedTexts
from dither_shared.mechanisms import PGR


def read_supports(tally: ReleasedTally) -> Released:
    """Return the share of each named text, in the list's order; nothing where a row surely has too few reports."""
    of_rows = tally.rows[:, 0]
    if int(of_rows.min()) < max(1.0, SURE_OF_N * sqrt(tally.count_noise)):
        return Released()
    read = _Supports.of(tally)
    alpha = 1 - CONFIDENCE
    own, together = read.ends(alpha), read.ends(alpha / len(tally.names))
    if not (together[1] - together[0] < 1).any():
        return Released()
    columns = np.array([read.estimate, np.sqrt(read.variance), *together, *own]).T.tolist()
    rows = [ReleasedRow(name, *each) for name, each in zip(tally.names, columns, strict=True)]
    floor = share_variance(read.mechanism, np.zeros(1), int(of_rows.sum()), "population", tally.repeats)[0]
    return Released(rows, sqrt(float(floor) + float(np.median(read.of_noise))))


@dataclass(frozen=True)
class _Supports:
    """The counts of each of S texts, in all of its rows together: arrays of length S."""

    tally: ReleasedTally
    mechanism: PGR
    support: Counts
    n: Counts
    rows: Counts
    of_others: Floats
    """The variance of what other texts add."""

    @classmethod
    def of(cls, tally: ReleasedTally) -> "_Supports":
        domain, mechanism = TypedTexts.of(tally.plan.domain), PGR.of(tally.plan.cells.parts[-1].mechanism)
        own = np.broadcast_to(tally.rows[:, :1], tally.rows[:, 1:].shape)
        counts, p, q = tally.rows[:, 1:], float(mechanism.p), float(mechanism.q)
        used = _alone(domain, tally.names, len(counts))
        used &= ~_far(counts, own, used, tally.count_noise)
        support, n, rows = (np.where(used, each, 0).sum(axis=0) for each in (counts, own, np.ones_like(own)))
        mean = support / n
        apart = np.where(used, counts / own - mean, 0.0) ** 2
        noise = np.where(used, mean * (1 - mean) / own + tally.count_noise * (1 + mean**2) / own**2, 0.0)
        several = rows > 1
        found = apart.sum(axis=0)[several] / (rows - 1)[several] - (noise.sum(axis=0) / rows)[several]
        spread = max(float(found.mean()), 0.0) / (p - q) ** 2 if several.any() else 0.0
        rest = min(max(1 - float(((mean - q) / (p - q)).sum()), 0.0), 1.0)
        of_others = min(spread, rest**2 / mechanism.d) / rows
        return cls(tally, mechanism, support, n, rows, of_others)

    @property
    def _mass(self) -> Floats:
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        return np.asarray((self.support / self.n - q) / (p - q))

    @property
    def estimate(self) -> Floats:
        """Raw and unbiased over the hash."""
        rest = min(max(1 - float(self._mass.sum()), 0.0), 1.0)
        return np.asarray(self._mass - rest / self.mechanism.d)

    @property
    def of_noise(self) -> Floats:
        """The variance that the noise of the release adds."""
        apart = float(self.mechanism.p - self.mechanism.q)
        moved = self.rows * (1 + (self.support / self.n) ** 2)
        return np.asarray(self.tally.count_noise * moved / (self.n * apart) ** 2)

    @property
    def variance(self) -> Floats:
        """The sum of all three parts."""
        share = np.clip(self.estimate, 0.0, 1.0)
        reports = share_variance(self.mechanism, share, self.n, "population", self.tally.repeats)
        return np.asarray(reports + self.of_others + self.of_noise)

    def ends(self, alpha: float) -> tuple[Floats, Floats]:
        """Return the ends of each text's interval of confidence 1 - alpha."""
        p, q, z = float(self.mechanism.p), float(self.mechanism.q), -NormalDist().inv_cdf(alpha / 2)
        possible = np.clip(self.support, 0, self.n)
        middle = (possible / self.n - q) / (p - q)
        lower, upper = population_ends(self.mechanism, possible, self.n, alpha, self.tally.repeats)
        of_noise = z if self.tally.noise.rho else reach_of_noise(1.0, alpha)
        more = z**2 * self.of_others + of_noise**2 * self.of_noise
        return (
            np.asarray(self.estimate - np.sqrt((middle - lower) ** 2 + more)),
            np.asarray(self.estimate + np.sqrt((upper - middle) ** 2 + more)),
        )


def _alone(domain: TypedTexts, names: tuple[str, ...], rows: int) -> npt.NDArray[np.bool_]:
    """Return in which rows each name has a bucket of its own, or all where it has none: bool[rows, S]."""
    places = np.array([[domain.named_bucket(name, row) for name in names] for row in range(rows)])
    alone = np.array([np.bincount(row)[row] == 1 for row in places])
    return np.asarray(alone | ~alone.any(axis=0))


def _far(counts: Counts, n: Counts, used: npt.NDArray[np.bool_], noise: float) -> npt.NDArray[np.bool_]:
    """Return which row of each text, if any, lies far above its others: bool[rows, S].

    By a test: that its rate is the one of the others, by the variance that both have together.
    """
    rates = np.where(used, counts / n, -np.inf)
    largest = np.arange(len(counts))[:, np.newaxis] == rates.argmax(axis=0)
    rest = used & ~largest
    mine, own = np.where(largest, counts, 0).sum(axis=0), np.where(largest, n, 0).sum(axis=0)
    others = np.where(rest, n, 0).sum(axis=0)
    rate = np.where(rest, counts, 0).sum(axis=0) / np.maximum(others, 1)
    spread = rate_variance(np.clip(rate, 1 / np.maximum(others, 2), 0.5), 1, 1.0) * (
        1 / own + 1 / np.maximum(others, 1)
    )
    spread = spread + noise * (1 / own**2 + rest.sum(axis=0) / np.maximum(others, 1) ** 2) * (1 + rate**2)
    far = rest.any(axis=0) & (mine / own - rate > FAR * np.sqrt(spread))
    return np.asarray(largest & far)
