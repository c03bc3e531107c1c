"""The reading of a release: everything is computed from its noisy counts and its plan, and from nothing else.

n is the sum of the noisy counts, over w where a report names w values. What noisy counts tell is the estimand's to say
(`Estimand.released`); errors have the variance of the noise as well. Intervals say which values stand out, how they
rank and whether the reports are too few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.released import ReleasedRow, ReleasedTally
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.analysis.significance import Ranked, rank
from dither_aggregator.store.release_ledger import Release
from dither_shared.mechanisms import PureMechanism


@dataclass(frozen=True)
class PublishedReading:
    """All that is shown of a release."""

    release: Release
    n: int
    """The sum of the noisy counts: about so many reports. It may be negative."""
    n_error: float
    """The standard error of that, by the noise."""
    rows: Sequence[ReleasedRow]
    """One for each value, in the plan's order, or for each statistic; empty where the reports are too few."""
    noise_floor: float = 0.0
    """The standard error of a value that nobody has, or the usual one of shares of ranges and columns."""

    @property
    def too_few(self) -> bool:
        """Whether nothing can be told: n is not sure, or every interval is wider than all that a share may be."""
        return not self.rows

    @property
    def shares(self) -> Sequence[ReleasedRow]:
        """The rows that are parts of the reports."""
        return [row for row in self.rows if row.is_share]

    @property
    def significant(self) -> Sequence[Ranked]:
        """The listed values whose interval lies above zero, the largest first."""
        listed = [row for row in self.shares if row.value not in UNLISTED]
        return rank([row for row in listed if row.lower > 0], [row for row in listed if row.lower <= 0])

    @property
    def leading(self) -> ReleasedRow | None:
        """The row to begin with: the mean of numbers, or the largest share that stands out; None where none does."""
        numbers = [row for row in self.rows if not row.is_share]
        if numbers:
            return numbers[0]
        first = [each.row for each in self.significant[:1]]
        return next((row for row in first if isinstance(row, ReleasedRow)), None)

    @property
    def finding(self) -> str:
        """The leading row in words."""
        row = self.leading
        if row is None:
            return "no answer can be told from zero."
        words = f"{row.in_words(row.estimate)} ({row.in_words(row.lower)} to {row.in_words(row.upper)})"
        return f"{row.value} has {words} of the reports." if row.is_share else f"the {row.value} is {words}."


def read(release: Release) -> PublishedReading:
    """Return what a release tells. A release has counts."""
    assert release.counts is not None
    plan, noise = release.plan, release.noise
    tally = ReleasedTally.of(plan, release.counts, noise, release.repeats)
    rows = estimand_of(plan).released(tally)
    if not rows:
        return PublishedReading(release, tally.n, tally.n_error, ())
    if plan.cells.several:
        floor = median([row.std_error for row in rows if row.is_share] or [0.0])
    else:
        mechanism = PureMechanism.of(plan.mechanism)
        floor = sqrt(float(mechanism.noise_variance) / tally.n + noise.of_rare(mechanism, tally.n))
    return PublishedReading(release, tally.n, tally.n_error, rows, floor)
