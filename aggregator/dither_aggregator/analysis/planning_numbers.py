"""Planning a number: the target is the width of an interval, of numbers spread evenly from low to high.

Widths are parts of the range from low to high, at the 95 % level, with as many intervals holding together as on a
metric's page. With h the width of one of the d ranges, s the standard error of a report, and z that of the level:

    mean alone, memoized mean    2 z s / sqrt(n)
    mean of ranges               2 z s / sqrt(n) + h       where in its range a number lies is left open
    median of ranges             2 z s / sqrt(n) + h       an interval is made of whole ranges: it reaches half a range
                                                           further at either end, on average
    memoized median              2 z s / sqrt(n) + 2 h     a device's own threshold rounds to one of a step's two ends

with s of the median that of the share up to the middle. This s is much larger for many narrow ranges than for a few,
since no unbiased estimate knows that shares are not negative. The strict bounds of a reading do: by simulation they
are about as narrow as the narrowest of those that 1, 4, 16 ... ranges taken together would have, h theirs, which is
what is planned. A median is not told where its interval would hold more than a third of the ranges.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import sqrt
from statistics import NormalDist
from tomllib import loads

from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.numbers import MEAN_REPORTS_MIN, QUANTILES, REPORTS_MIN, SURE_OF_NUMBERS, WIDEST
from dither_aggregator.analysis.numeric.precision import Errors, errors_of_ranges
from dither_aggregator.analysis.planning import Computed, Design, Planned, Question, Unplannable
from dither_shared.cells import DEVICE, Cells, Part
from dither_shared.domains.numbers import NumberDomain
from dither_shared.kinds import KINDS
from dither_shared.kinds.edges import BUCKETS_MAX
from dither_shared.kinds.kind import Asked
from dither_shared.kinds.number import COHORTS_MAX, MEMO_ANSWERS
from dither_shared.kinds.number_precision import std_errors
from dither_shared.mechanisms import MemoizedTwoLevel
from dither_shared.toml_tables import TomlTable

KIND = "number"
ASKS = ("everything", "mean")
LOW, HIGH = 0, 60
"""The range in the lines that are printed."""
TOGETHER = 4
"""How many ranges are taken together at a time."""
COARSEST = 4
"""Fewer ranges than this are not taken together: the middle would be all that they tell."""


@dataclass(frozen=True)
class PlannedNumber(Planned):
    """The precision of a number from n reports. Widths are parts of the range from low to high."""

    question: "NumberQuestion"
    cells: Cells
    mean_width: float | None
    """The width of the mean's interval; None where nothing is told."""
    median_width: float | None
    """The width of the median's interval; None where it is not told, or not asked."""

    @property
    def target(self) -> float | None:
        """The width that is planned: the median's, or the mean's where it is all that is asked."""
        return self.mean_width if self.question.mean_alone else self.median_width

    @property
    def odds(self) -> float:
        """e^epsilon of one report."""
        return float(self.cells.exp_epsilon)

    def to_document(self) -> Mapping[str, object]:
        """Return the mechanisms, and widths in percent."""
        return {
            "d": None if self.question.mean_alone else self.question.d,
            "asks": ASKS[self.question.mean_alone],
            "mechanism": self.cells.name,
            "bits": self.cells.report_bits,
            "mean_width_percent": _percent(self.mean_width),
            "median_width_percent": _percent(self.median_width),
        }

    def in_meta(self) -> Mapping[str, object]:
        """Return the width, in percent."""
        return {"width_percent": _percent(self.wanted or self.target)}


def _percent(part: float | None) -> float | None:
    return None if part is None else 100 * part


@dataclass(frozen=True)
class _Numbers(Design[PlannedNumber]):
    question: "NumberQuestion"
    epsilon: Decimal
    cells: Cells
    errors: Errors
    coarser: Sequence[tuple[int, Errors]]
    """The errors of ranges taken together, by their number, and of the ranges themselves."""

    def target(self, n: int) -> float | None:
        """Return the width that is planned."""
        return self.mean_width(n) if self.question.mean_alone else self.median_width(n)

    def _tells(self, n: int) -> bool:
        return n >= self.question.n_min and SURE_OF_NUMBERS * self.errors.is_number < sqrt(n)

    def mean_width(self, n: int) -> float | None:
        """Return that of the mean; None where nothing is told."""
        if not self._tells(n):
            return None
        return min(2 * self.question.z * self.errors.mean / sqrt(n) + self.question.left_open, 1.0)

    def median_width(self, n: int) -> float | None:
        """Return that of the median; None where it is not told."""
        question = self.question
        if question.mean_alone or not self._tells(n):
            return None
        width = min(2 * question.z * each.median / sqrt(n) + 1 / ranges for ranges, each in self.coarser)
        if width * question.d > question.places_max + 0.5:
            return None
        return min(width, question.places_max / question.d) + question.rounding

    def n_about(self, wanted: float) -> float:
        """Return it by the error that is largest where reports are few."""
        error = self.errors.mean if self.question.mean_alone else self.errors.median
        return max((2 * self.question.z * error / wanted) ** 2, self.question.n_min)

    def planned(self, n: int, computed: Computed, wanted: float | None) -> PlannedNumber:
        """Return the widths that n reports have."""
        widths = self.mean_width(n), self.median_width(n)
        return PlannedNumber(self.question, n, self.epsilon, computed, wanted, self.cells, *widths)


@dataclass(frozen=True)
class NumberQuestion(Question[PlannedNumber]):
    """A number in d ranges from low to high, the two open ones not counted, or in d steps where it is memoized."""

    mean_alone: bool = False
    """Whether only the mean is asked: d says nothing then."""

    target_name = "width"
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
    def memoized(self) -> bool:
        """Whether a device says only on which side of its threshold its number is."""
        return self.epsilon_permanent is not None

    @property
    def n_min(self) -> int:
        """The reports of which less tell nothing."""
        return MEAN_REPORTS_MIN if self.mean_alone else REPORTS_MIN

    @property
    def z(self) -> float:
        """Half the width of an interval in standard errors: mean and quantiles hold together."""
        together = 1 if self.mean_alone else 1 + len(QUANTILES)
        return -NormalDist().inv_cdf((1 - CONFIDENCE) / 2 / together)

    @property
    def left_open(self) -> float:
        """How much wider ranges make the interval of the mean."""
        return 0.0 if self.memoized or self.mean_alone else 1 / self.d

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

    def _compiled(self, epsilon: Decimal) -> _Numbers:
        asked = self._asked(epsilon)
        if self.memoized or self.mean_alone:
            errors = self._of_bits(asked) if self.memoized else _of_one_window(asked)
            return _Numbers(self, epsilon, asked.cells, errors, [(self.d, errors)])
        errors = errors_of_ranges(asked.cells, self.d)
        fewer = [(each.d, errors_of_ranges(each._asked(epsilon).cells, each.d)) for each in self._coarser()]
        return _Numbers(self, epsilon, asked.cells, errors, [(self.d, errors), *fewer])

    def _coarser(self) -> Iterator["NumberQuestion"]:
        ranges = self.d // TOGETHER
        while ranges >= COARSEST:
            yield replace(self, d=ranges)
            ranges //= TOGETHER

    def _asked(self, epsilon: Decimal) -> Asked:
        """Return what the registry's reader makes of the lines."""
        lines = "\n".join([*self.answers(), f"epsilon = {epsilon:f}", *self.life()])
        table = TomlTable("the plan", "", loads(lines, parse_float=Decimal))
        return KINDS[KIND].read_table(table, None, metric="plan", hidden=False)

    def _of_bits(self, asked: Asked) -> Errors:
        """Return the errors of memoized bits: the permanent part's comes again with each report (`repeats`)."""
        domain, bit = NumberDomain.of(asked.domain), MemoizedTwoLevel.of(asked.cells.mechanism)
        once = std_errors(domain, asked.cells, 1)
        permanent = std_errors(domain, Cells((Part(bit.permanent, self.d),), DEVICE), 1)
        mean, median = (
            sqrt(once[name] ** 2 + (self.repeats - 1) * permanent[name] ** 2) / (HIGH - LOW)
            for name in ("mean", "median")
        )
        return Errors(mean, median)

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

    def life(self) -> Sequence[str]:
        """Return the lines for one report, or for the two memoized answers that there are."""
        if self.epsilon_permanent is None:
            return ["reports = 1  # in a device's life; each further one costs epsilon again"]
        cost = f"# of each of {MEMO_ANSWERS} answers, above a threshold and below: a device's life costs both"
        return ["memoize = true", f"epsilon_permanent = {self.epsilon_permanent:f}  {cost}"]

    def reserved(self, epsilon: Decimal) -> Decimal:
        """Return what one report, or both memoized answers, reserve."""
        return epsilon if self.epsilon_permanent is None else MEMO_ANSWERS * self.epsilon_permanent


def _of_one_window(asked: Asked) -> Errors:
    (mean,) = std_errors(NumberDomain.of(asked.domain), asked.cells, 1).values()
    return Errors(mean / (HIGH - LOW), 0.0)
