"""Released tallies: the noisy counts of a plan in one window, and the rows that an estimand makes of them.

No number of reports is released with the counts of all symbols: that of a cell is the sum of its noisy counts, over the
counts to which one report adds. Beside counts of named texts it is, with noise like theirs. So everything that a
reading says comes from noisy counts and the plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import NormalDist, median

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import rate_variance, raw_shares, share_variance
from dither_aggregator.analysis.inference import CONFIDENCE, Floats, reach_of_noise
from dither_aggregator.analysis.pure import FAR, population_ends
from dither_aggregator.analysis.rows import Row
from dither_aggregator.counting import Counts, support_counts, tables
from dither_shared.domains import TypedTexts
from dither_shared.mechanisms import PGR
from dither_shared.plan import Plan
from dither_shared.releases import ReleaseNoise, has_supports
from dither_shared.shapes import ReportShape

SURE_OF_N = 10
"""With fewer times its error n is too uncertain to divide by: errors are those of small changes of n."""


@dataclass(frozen=True)
class ReleasedRow(Row):
    """A share, or a number in a unit, with an interval of its own and one of those that hold all together."""

    own_lower: float = nan
    """The ends of its own interval; `lower` and `upper` are of those that hold together."""
    own_upper: float = nan
    unit: str | None = None
    """None of a share of the reports, "" of a number without a unit."""

    @property
    def is_share(self) -> bool:
        """Whether it is a part of the reports."""
        return self.unit is None

    def in_words(self, number: float) -> str:
        """Return its estimate, or an end of an interval, as people read it."""
        if self.unit is None:
            return f"{100 * number:.1f} %".replace("-", "\N{MINUS SIGN}")
        return f"{number:,.4g} {self.unit}".rstrip().replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Released:
    """The rows that noisy counts tell; none where they are too few."""

    rows: Sequence[ReleasedRow] = ()
    noise_floor: float = 0.0
    """The standard error of a value that nobody has, or the usual one of shares of ranges and columns."""

    @classmethod
    def of(cls, rows: Sequence[ReleasedRow]) -> "Released":
        """Return rows whose shares have no common floor: that is their usual error."""
        return cls(rows, median([row.std_error for row in rows if row.is_share] or [0.0]))


def released_counts(plan: Plan, names: Sequence[str], counts: Counts) -> Counts:
    """Return what is counted of a tally's vector in a release, before its noise: one cell's after the other's.

    A cell counts how often each symbol was sent, or each member named; of named texts, its reports and those of them
    that support each.
    """
    if not has_supports(plan.cells, names):
        return np.concatenate([table[:, 1:].ravel() for _, table, _ in tables(plan.cells, counts)])
    domain = TypedTexts.of(plan.domain)
    *_, (part, table, _) = tables(plan.cells, counts)
    mechanism, rows = PGR.of(part.mechanism), []
    for row, n in enumerate(table[:, 0].tolist()):
        support = support_counts(mechanism, table[row, 1:], n)
        rows.append([n, *support[[domain.named_bucket(name, row) for name in names]].tolist()])
    return np.array(rows, dtype=np.int64).ravel()


@dataclass(frozen=True)
class ReleasedTally:
    """A tally like any other, whose counts have noise and whose numbers of reports are made of them."""

    plan: Plan
    counts: Counts
    """As `counting.tables` has them: for each cell its reports, then their counts. They may be negative.

    Counts of texts with fresh noise, and of words, are as `rows` has them.
    """
    noise: ReleaseNoise
    """The law of the noise on each count."""
    repeats: int
    """How many of the reports one device may usually have sent."""
    names: tuple[str, ...] = ()
    """The texts that are looked for."""

    @classmethod
    def of(
        cls, plan: Plan, counts: Sequence[int] | Counts, noise: ReleaseNoise, repeats: int, names: tuple[str, ...] = ()
    ) -> "ReleasedTally":
        """Return that of all cells' noisy counts, one cell after the other."""
        if has_supports(plan.cells, names):
            return cls(plan, np.array(counts, dtype=np.int64), noise, repeats, names)
        whole, start = np.zeros(plan.cells.tally_size, dtype=np.int64), 0
        for part, table, _ in tables(plan.cells, whole):
            size = table.shape[1] - 1
            table[:, 1:] = np.array(counts[start : start + table[:, 1:].size]).reshape(-1, size)
            table[:, 0] = np.rint(table[:, 1:].sum(axis=1) / _named(part.mechanism.shape.raises))
            start += table[:, 1:].size
        return cls(plan, whole, noise, repeats, names)

    @property
    def count_noise(self) -> float:
        """The variance of the noise on each count."""
        return self.noise.variance

    @property
    def n(self) -> int:
        """The sum of the numbers of reports: about so many. It may be negative."""
        if self._has_supports:
            return round(int(self.rows[:, 0].sum()) / self._part)
        return sum(int(table[:, 0].sum()) for _, table, _ in tables(self.plan.cells, self.counts))

    @property
    def n_error(self) -> float:
        """The standard error of n, by the noise, and by lot where only a part of the reports tells whole texts."""
        if self._has_supports:
            told, part = max(int(self.rows[:, 0].sum()), 0), self._part
            return sqrt(len(self.rows) * self.count_noise + told * (1 - part)) / part
        parts = self.plan.cells.parts
        squares = sum(part.cells * self.error_of(part.mechanism.shape) ** 2 for part in parts)
        return sqrt(self.plan.cells.public * squares)

    @property
    def _has_supports(self) -> bool:
        """Whether `counts` has, of each row, its reports and how many of them support each text, and nothing else."""
        return has_supports(self.plan.cells, self.names)

    @property
    def _part(self) -> float:
        """The part of the reports that the rows of named texts have: each report draws its cell."""
        *_, last = parts = self.plan.cells.parts
        return last.cells * last.weight / sum(part.cells * part.weight for part in parts)

    @property
    def rows(self) -> Counts:
        """The reports of each row, and how many of them support each named text: int64[rows, 1 + names]."""
        return self.counts.reshape(-1, 1 + len(self.names))

    def error_of(self, shape: ReportShape) -> float:
        """Return the standard error of the number of reports of one cell."""
        return sqrt(shape.size * self.count_noise) / _named(shape.raises)

    @property
    def is_sure(self) -> bool:
        """Whether each cell has surely many reports, beside the error of their number."""
        return all(
            int(table[:, 0].min()) >= max(1.0, SURE_OF_N * self.error_of(part.mechanism.shape))
            for part, table, _ in tables(self.plan.cells, self.counts)
        )

    def noise_at(self, alpha: float) -> float:
        """Return the variance of normal noise that reaches as far, in intervals of confidence 1 - alpha, as this may.

        A sum of few Laplace numbers has longer tails than a normal one.
        """
        if self.noise.rho:
            return self.count_noise
        return self.count_noise * (reach_of_noise(1.0, alpha) / -NormalDist().inv_cdf(alpha / 2)) ** 2


def _named(raises: int | None) -> int:
    assert raises is not None  # counts of bits are not published
    return raises


# The reading of published supports: shares of named texts, from a few noisy counts of each row of a fresh text.
#
# A row r of R has the noisy number n of its reports and, of each text v of a public list, how many of them support the
# bucket that the row's hash gives it, C. With B buckets and both added up over a text's rows
#
#     share  f^ = (C / n - q) / (p - q) - U / B        U = 1 - sum of all f^, cut to [0, 1]: the part of all other texts
#
# is unbiased over the hash. The hash is public, so a row in which another listed text has the same bucket is left out.
# A text that many have, and that is not in the list, may have it, too: a row that lies FAR above all others of a text
# is left out, as in `pure`. The variance has three parts:
#
#     of the reports       as of a listed value
#     of other texts       what rows of a text differ more than that, a mean over all texts, and U^2 / B at most; over R
#     of the noise         V R (1 + (C / n)^2) / (n (p - q))^2, with V that of one count
#
# Intervals reach as far as the three together, the noise by its own law: few Laplace numbers have long tails.


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
        return raw_shares(self.mechanism, self.support, self.n)

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
        z, possible = -NormalDist().inv_cdf(alpha / 2), np.clip(self.support, 0, self.n)
        middle = raw_shares(self.mechanism, possible, self.n)
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
