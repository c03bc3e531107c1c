"""Some values stand out from the noise; all others are the rest.

The largest of many noisy estimates are mostly noise. A value stands out where its interval, of those that hold all
together, lies above zero. Its rank is told as far as these intervals tell it: behind every value whose interval lies
above its own, before every one whose interval lies below. All others are without an order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.rows import Row

BINS = 40

Verdict = Literal["stands out", "cannot be told from zero", "cannot be told from another one"]


class JudgedRow(NamedTuple):
    """A row with what can be told of it: a verdict, and the ends of its rank where it stands out."""

    row: Row
    verdict: str | None = None
    rank_lower: int | None = None
    rank_upper: int | None = None


@dataclass(frozen=True)
class Ranked:
    """A row that stands out, with the least and the most that its rank may be; 1 is the largest share."""

    row: Row
    rank_lower: int
    rank_upper: int


@dataclass(frozen=True)
class Bin:
    """How many of the rest's estimates lie from `lower` to below `upper`, and how many of pure noise would."""

    lower: float
    upper: float
    number: int
    expected: float


@dataclass(frozen=True)
class Significance:
    """The rows of a reading by what can be told of them."""

    significant: Sequence[Ranked] = ()
    """The rows that stand out, the largest estimate first. It is empty while more reports may come."""
    unlisted: Sequence[Row] = ()
    """Rows that a page always shows: of answers that are no listed value, or of the answer that a flag asks for."""
    rest: Sequence[Row] = ()
    """All others, in the plan's order."""
    bins: Sequence[Bin] = ()
    """The histogram of the rest's estimates."""
    critical_share: float | None = None
    """The least estimate that stands out; None where none can."""
    detectable_share: float | None = None
    """A true share of this stands out four times in five; None where none does."""
    p_value: float = 1.0
    """How often noise alone makes something stand out as far, where nobody has any of the values."""
    twins: Sequence[Row] = ()
    """Candidates with the same bits as one of the significant or of the rest."""
    scores: bool = False
    """Whether the bins are in standard errors: where each estimate has its own."""
    noun: str = "value"
    """The word for one of them."""
    false_share: float | None = None
    """At most such a share of the significant is expected to be false; None where all hold together."""

    @property
    def too_few(self) -> bool:
        """Whether the reports are too few to tell anything: not even what everybody has is found four times in five."""
        return not self.scores and self.detectable_share is None

    def tell(self, *, provisional: bool) -> list[JudgedRow]:
        """Return every row with its verdict, those that stand out first, the largest of them first.

        Unlisted rows have no verdict; no row has one while more reports may come, or where the reports are too few.
        """
        if provisional or self.too_few:
            ranked = (each.row for each in self.significant)
            return [JudgedRow(row) for row in (*ranked, *self.rest, *self.unlisted, *self.twins)]
        return [
            *(JudgedRow(each.row, "stands out", each.rank_lower, each.rank_upper) for each in self.significant),
            *(JudgedRow(row, "cannot be told from zero") for row in self.rest),
            *(JudgedRow(row) for row in self.unlisted),
            *(JudgedRow(row, "cannot be told from another one") for row in self.twins),
        ]


def rank(significant: Sequence[Row], others: Sequence[Row]) -> tuple[Ranked, ...]:
    """Return rows that stand out in the order of their estimates, ranked among themselves and others.

    With intervals that hold all together, all ranks hold together, too.
    """
    rows = (*significant, *others)
    return rank_among(significant, np.array([row.lower for row in rows]), np.array([row.upper for row in rows]))


def rank_among(significant: Sequence[Row], lower: Floats, upper: Floats) -> tuple[Ranked, ...]:
    """Return the same, given the ends of the intervals of all rows, in whatever order."""
    lower, upper = np.sort(lower), np.sort(upper)
    ordered = sorted(significant, key=lambda row: -row.estimate)
    above = len(lower) - np.searchsorted(lower, [row.upper for row in ordered], side="right")
    below = np.searchsorted(upper, [row.lower for row in ordered], side="left")
    return tuple(
        Ranked(row, 1 + before, len(lower) - behind)
        for row, before, behind in zip(ordered, above.tolist(), below.tolist(), strict=True)
    )


def bin_estimates(estimates: Floats, edges: Floats, below: Callable[[Floats], Floats]) -> tuple[Bin, ...]:
    """Count the rest's estimates between edges; `below` is the share of noise that is at most a number."""
    counted, _ = np.histogram(estimates, edges)
    expected = len(estimates) * np.diff(below(edges))
    return tuple(
        Bin(*numbers)
        for numbers in zip(edges[:-1].tolist(), edges[1:].tolist(), counted.tolist(), expected.tolist(), strict=True)
    )
