"""Planning a number: the target is the width of an interval, of numbers spread evenly from low to high.

Widths are parts of the range from low to high, at the 95 % level, with as many intervals holding together as on a
metric's page. With h the width of one of the d ranges, s the standard error of a report, and z that of the level:

    mean alone, memoized mean    2 z s / sqrt(n)
    mean of ranges               2 C s / sqrt(n) + h       where in its range a number lies is left open; C is less than
                                                           z, as `inference.open_z` says
    median of ranges             2 z s / sqrt(n) + h       an interval is made of whole ranges: it reaches half a range
                                                           further at either end, on average
    memoized median              2 z s / sqrt(n) + 2 h     a device's own threshold rounds to one of a step's two ends

with s of the median that of the share up to the middle. This s is much larger for many narrow ranges than for a few,
since no unbiased estimate knows that shares are not negative. The strict bounds of a reading do: by simulation they
are about as narrow as the narrowest of those that 1, 4, 16 ... ranges taken together would have, h theirs, which is
what is planned. A median is not told where its interval would hold more than a third of the ranges.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from math import sqrt
from statistics import NormalDist

from dither_aggregator.analysis.inference import CONFIDENCE, open_z
from dither_aggregator.analysis.numbers import QUANTILES, SURE_OF_NUMBERS, WIDEST
from dither_aggregator.analysis.planning import Design, Question, Unplannable
from dither_shared.cells import DEVICE, Cells, Part
from dither_shared.domains import Buckets, NumberDomain, Range, Thresholds
from dither_shared.kinds import NumberKind
from dither_shared.kinds.number import BUCKETS_MAX, COHORTS_MAX, MEMO_ANSWERS
from dither_shared.kinds.number_precision import share_error, std_errors
from dither_shared.kinds.precision import MEANS_MIN, NUMBERS_MIN, SIDES, precision_of
from dither_shared.mechanisms import MemoizedTwoLevel

KIND = NumberKind.name
ASKS = ("everything", "mean")
LOW, HIGH = 0, 60
"""The range in the lines that are printed."""
TOGETHER = 4
"""How many ranges are taken together at a time."""
COARSEST = 4
"""Fewer ranges than this are not taken together: the middle would be all that they tell."""
TOGETHER_ON_A_PAGE = 1 + len(QUANTILES)
"""The intervals of the mean and of all quantiles hold together."""
ALIKE_STEPS_MAX = 5
"""The noise of a mean hardly depends on the number of ranges, so that two steps are usual."""


def _parts(std_error: float, left_open: float, alpha: float) -> tuple[float, float]:
    return 2 * open_z(alpha, left_open / std_error) * std_error, left_open


def page_times() -> float:
    """Return how many times as wide the noise of a number's intervals is as that of one alone."""
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / TOGETHER_ON_A_PAGE) / (SIDES / 2)


def mean_parts(domain: NumberDomain, cells: Cells, n: int) -> tuple[float, float]:
    """Return how much of the width of the mean's interval on a page is noise, and how much ranges leave open.

    It is of n reports of numbers that are spread evenly, in the domain's unit.
    """
    widths = [high - low for low, high in pairwise(domain.edges)]
    left_open = sum(width**2 for width in widths) / sum(widths) / 10**domain.decimals
    return _parts(std_errors(domain, cells, n, ("mean",))["mean"], left_open, (1 - CONFIDENCE) / TOGETHER_ON_A_PAGE)


def ranges_alike(parts: Callable[[int], tuple[float, float]], d: int) -> int:
    """Return how many ranges make both parts of the mean's interval alike, at most BUCKETS_MAX; d is tried first."""
    for _ in range(ALIKE_STEPS_MAX):
        noise, left_open = parts(d)
        better = min(max(round(d * left_open / noise), 2), BUCKETS_MAX)
        if better == d:
            break
        d = better
    return d


@dataclass(frozen=True)
class _Numbers(Design["NumberQuestion"]):
    """Errors are those of one report, in parts of the range from low to high. A search needs few of them."""

    ranges: Sequence[tuple[NumberDomain, Cells]]
    """The even ranges, and fewer of them taken together."""

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the widths, in parts of the range; None for what is not told or not asked."""
        median = None if self.question.mean_alone else self._median_width(n)
        return {"mean_width": self._mean_width(n), "median_width": median}

    def target(self, n: int) -> float | None:
        """Return the width that is planned."""
        return self._mean_width(n) if self.question.mean_alone else self._median_width(n)

    def _mean_width(self, n: int) -> float | None:
        return min(sum(self.mean_parts(n)), 1.0) if self._tells(n) else None

    def mean_parts(self, n: int) -> tuple[float, float]:
        """Return how much of the width of the mean's interval is noise, and how much ranges leave open."""
        return _parts(self._mean / sqrt(n), self.question.left_open, self.question.alpha)

    def _median_width(self, n: int) -> float | None:
        question = self.question
        width = min(2 * question.z * error / sqrt(n) + 1 / ranges for ranges, error in self._medians)
        if not self._tells(n) or width * question.d > question.places_max + 0.5:
            return None
        return min(width, question.places_max / question.d) + question.rounding

    def n_about(self, wanted: float) -> float:
        """Return it by the error that is largest where reports are few."""
        error = self._mean if self.question.mean_alone else self._medians[0][1]
        return max((2 * self.question.z * error / wanted) ** 2, self.question.n_min)

    @cached_property
    def _mean(self) -> float:
        return self.question.error("mean", *self.ranges[0])

    @cached_property
    def _medians(self) -> Sequence[tuple[int, float]]:
        """The errors of the share up to the middle, by the number of ranges."""
        return [(each[0].edges[-1], self.question.error("median", *each)) for each in self.ranges]

    def _tells(self, n: int) -> bool:
        return n >= self.question.n_min and n > self._unsure_n

    @cached_property
    def _unsure_n(self) -> float:
        """The most reports with which the share of those with a number is unsure; about, where fewer tell nothing."""
        if self.question.all_numbers:
            return 0.0
        by_points = float(SURE_OF_NUMBERS**2 * precision_of(NumberKind()).noise_variance(self.cells))
        return by_points if by_points < self.question.n_min else (SURE_OF_NUMBERS * share_error(*self.ranges[0])) ** 2


@dataclass(frozen=True)
class NumberQuestion(Question):
    """A number in d ranges from low to high, the two open ones not counted, or in d steps where it is memoized."""

    mean_alone: bool = False
    """Whether only the mean is asked: d says nothing then."""

    target_name = "width"
    memo_answers = MEMO_ANSWERS
    too_small = "so narrow an interval"

    def __post_init__(self) -> None:
        if self.kind != KIND:
            raise Unplannable(f"the kind must be {KIND}, got {self.kind}")
        if self.memoized and self.mean_alone:
            raise Unplannable("a memoized number is asked everything: its one bit shows all there is")
        if self.memoized and not (2 <= self.d <= COHORTS_MAX and self.d.bit_count() == 1):
            raise Unplannable(
                f"d must be 2, 4, 8 or {COHORTS_MAX} for a memoized number, a cohort each, got {self.d:,}"
            )
        if not (self.mean_alone or 2 <= self.d <= BUCKETS_MAX):
            raise Unplannable(f"d must be from 2 to {BUCKETS_MAX} for a number, got {self.d:,}")
        super().__post_init__()

    @property
    def target_figure(self) -> str:
        """The median's width, or the mean's where it is all that is asked."""
        return "mean_width" if self.mean_alone else "median_width"

    @property
    def memoized(self) -> bool:
        """Whether a device says only on which side of its threshold its number is."""
        return self.epsilon_permanent is not None

    @property
    def all_numbers(self) -> bool:
        """Whether what is no number counts as low."""
        return self.memoized or self.mean_alone

    @property
    def n_min(self) -> int:
        """The reports of which less tell nothing: `repeats` may be of one device."""
        return MEANS_MIN if self.mean_alone else NUMBERS_MIN * self.repeats

    @property
    def alpha(self) -> float:
        """How often an interval may miss: mean and quantiles hold together."""
        return (1 - CONFIDENCE) / (1 if self.mean_alone else TOGETHER_ON_A_PAGE)

    @property
    def z(self) -> float:
        """Half the width of an interval in standard errors."""
        return -NormalDist().inv_cdf(self.alpha / 2)

    def alike(self, n: int, epsilon: Decimal) -> int | None:
        """Return how many ranges leave as much of the mean open as noise does; None where numbers are not in ranges."""
        if self.all_numbers:
            return None
        return ranges_alike(lambda d: mean_parts(*self._of(d, epsilon), n), self.d)

    @property
    def left_open(self) -> float:
        """How much wider ranges make the interval of the mean."""
        return 0.0 if self.all_numbers else 1 / self.d

    @property
    def rounding(self) -> float:
        """How much wider a device's own threshold makes the interval of the median."""
        return 1 / self.d if self.memoized else 0.0

    @property
    def places_max(self) -> int:
        """How many places a quantile's interval has at most: ranges with the two open ones, or edges of steps."""
        return int(WIDEST * (self.d + 1 + (not self.memoized)))

    @property
    def narrowest(self) -> float:
        """The width that no interval goes below."""
        return 0.0 if self.mean_alone else 1 / self.d + self.rounding

    def check(self, n: int | None, wanted: float) -> None:
        """Refuse too few reports, and a width that is none of whole ranges."""
        super().check(n, wanted)
        if n is not None and n < self.n_min:
            raise Unplannable(f"Fewer than {self.n_min:,} reports tell nothing of a number, got {n:,}.")
        if wanted > self.narrowest:
            return
        whole = "two of the steps" if self.memoized else "one of the ranges"
        raise Unplannable(
            f"The interval of a median is never narrower than {whole}, {100 * self.narrowest:.3g} % where d is "
            f"{self.d}: ask for a wider one, or {self._finer()}."
        )

    def _finer(self) -> str:
        if self.memoized:
            more = f"more steps (up to {COHORTS_MAX}), or " * (self.d < COHORTS_MAX)
            return f"{more}fresh answers, which have up to {BUCKETS_MAX} ranges"
        return f"more ranges (up to {BUCKETS_MAX})" if self.d < BUCKETS_MAX else "a low and a high that are closer"

    def to_document(self) -> dict[str, object]:
        """Return what was asked."""
        d = None if self.mean_alone else self.d
        return {**super().to_document(), "d": d, "asks": ASKS[self.mean_alone]}

    def _compiled(self, epsilon: Decimal) -> _Numbers:
        ranges = [self._of(each, epsilon) for each in (self.d, *self._coarser())]
        return _Numbers(self, ranges[0][1], ranges)

    def _coarser(self) -> Iterator[int]:
        ranges = self.d // TOGETHER
        while ranges >= COARSEST and not self.all_numbers:
            yield ranges
            ranges //= TOGETHER

    def _of(self, ranges: int, epsilon: Decimal) -> tuple[NumberDomain, Cells]:
        """Return so many even ranges or steps, and their cells."""
        edges = tuple(range(2 if self.mean_alone else ranges + 1))
        domain = (Range if self.mean_alone else Thresholds if self.memoized else Buckets)(edges, 0, "")
        return domain, NumberKind.cells_for(domain, epsilon, self.epsilon_permanent)

    def error(self, name: str, domain: NumberDomain, cells: Cells) -> float:
        """Return a standard error of one report; the permanent part of memoized bits comes again (`repeats`).

        It is planned for even numbers, before there are counts (`kinds.number_precision`): no reading shows it.
        """
        error = std_errors(domain, cells, 1, (name,))[name]
        if self.memoized:
            permanent = Part(MemoizedTwoLevel.of(cells.mechanism).permanent, self.d)
            again = std_errors(domain, Cells((permanent,), DEVICE), 1)[name]
            error = sqrt(error**2 + (self.repeats - 1) * again**2)
        return error / domain.edges[-1]

    def answers(self) -> Sequence[str]:
        """Return the lines with the unit, the ends, and the ranges between these."""
        ends = [
            'unit = "s"',
            f"low = {LOW}  # smaller numbers are not told apart",
            f"high = {HIGH}  # nor are larger ones",
        ]
        if self.mean_alone:
            return [*ends, 'asks = ["mean"]']
        return [*ends, f"buckets = {self.d}", "decimals = 3  # of the edges between them"]

    def memo(self) -> str:
        """Return what the two memoized answers are that there are."""
        return f"  # of each of {MEMO_ANSWERS} answers, above a threshold and below: a device's life costs both"
