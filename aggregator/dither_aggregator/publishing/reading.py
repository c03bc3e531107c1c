"""The reading of a release: everything is computed from its noisy counts and its plan, and from nothing else.

n is the sum of the noisy counts, over w where a report names w values; of texts it is counted by itself. The estimand
says what noisy counts tell (`Estimand.released`); errors have the variance of the noise as well. Intervals say which
values stand out, how they rank and whether the reports are too few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from dither_aggregator.accounting.blanket import epsilon_of_device, law_of, rounded_down
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.released import ReleasedRow, ReleasedTally
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.analysis.significance import Ranked, rank
from dither_aggregator.store.release_ledger import Release
from dither_shared.domains import Columns, NumberDomain
from dither_shared.exact import digits
from dither_shared.mechanisms import PureMechanism

SURE = 5.0
"""So many standard errors fewer reports than the noisy counts say are surely there."""


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
    def about(self) -> str:
        """How many reports, in words: about so many, or the most where they are not twice the error."""
        wide = 2 * self.n_error
        if self.n < wide:
            return f"no more than about {max(self.n, 0) + wide:,.0f} reports"
        return f"about {self.n:,} reports, give or take {wide:,.0f}"

    @property
    def cut(self) -> Sequence[str]:
        """The ends to which numbers are cut, a sentence for each number or column of numbers."""
        domain = self.release.plan.domain
        named = domain.columns.items() if isinstance(domain, Columns) else [("", domain)]
        return [_cut(name, each) for name, each in named if isinstance(each, NumberDomain)]

    @property
    def searched(self) -> int:
        """How many texts a search proposed, of those that nobody listed; 0 where nothing is searched."""
        release = self.release
        return len(set(release.names) - set(UNLISTED)) if release.plan.kind.searched else 0

    @property
    def named(self) -> int:
        """How many rows are of listed values, or of texts that were looked up."""
        return sum(row.value not in UNLISTED for row in self.rows)

    @property
    def ticks(self) -> int | None:
        """The most values that count of an answer, those listed first; None where all do."""
        plan = self.release.plan
        ticks = PureMechanism.of(plan.cells.mechanism).ticks if plan.kind.several else None
        return ticks if ticks and ticks < len(plan.values) else None

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
    def blanket(self) -> tuple[int, Decimal] | None:
        """How many reports an answer surely hides among, rounded down, and its epsilon then, rounded up.

        None where there is no figure, or none that is below the epsilon of the reports themselves, or below what the
        noise of the release says of an answer: twice its epsilon.
        """
        release, law = self.release, law_of(self.release.plan.cells)
        n = rounded_down(self.n - SURE * self.n_error)
        if law is None or self.too_few or not n:
            return None
        epsilon = epsilon_of_device(law, n, release.reports)
        if epsilon is None or epsilon >= 2 * release.epsilon:
            return None
        return n, digits(3, ROUND_UP).create_decimal(Decimal(epsilon))


def _cut(name: str, domain: NumberDomain) -> str:
    low, high = (domain.with_unit(domain.in_unit(edge)) for edge in (domain.edges[0], domain.edges[-1]))
    return f"Numbers{f' of {name}' if name else ''} are cut to the range from {low} to {high}."


def read(release: Release) -> PublishedReading:
    """Return what a release tells. A release has counts."""
    assert release.counts is not None
    plan = release.plan
    tally = ReleasedTally.of(plan, release.counts, release.noise, release.repeats, release.names)
    told = estimand_of(plan).released(tally)
    return PublishedReading(release, tally.n, tally.n_error, told.rows, told.noise_floor)
