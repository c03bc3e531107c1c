"""Plans of numbers, and advice on any plan.

**Planning a number.** The target is the width of an interval, of numbers spread evenly from low to high.

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

**Advice.** Where other questions, or another schedule, show more for the same price, one line each with its figures.

    spread or early     all installs answer an early metric in the first days after a release, a spread one in a year
    more ranges         where in its range a number lies is left open, which makes the interval of a mean wider
    a table or flags    a share of one half has the variance V by a flag, and another one by a column of a table

        V = 1/4 coth(epsilon / 2)^2     a flag by GRR: s (1 - s) / (p - q)^2 with s = 1/2

Flags of each arm are compared by `dither ask --file`, which adds their errors as if they were opposed: with z for all
columns' questions, and N = n / arms reports of each, a difference of

    (2 z + sqrt(2) z(80 %)) sqrt(V / N)

is told four times in five. A table's is that of `planning`. Flags in place of k columns have a k-th each of the
table's loss for a life, epsilon times reports, in reports of at most its epsilon.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_DOWN, Decimal
from functools import cached_property
from itertools import pairwise
from math import ceil, sqrt, tanh
from statistics import NormalDist

from dither_aggregator.analysis.inference import CONFIDENCE, open_z
from dither_aggregator.analysis.installs import (
    HALF_LOST,
    YEAR_DAYS,
    Outlook,
    PlannedLife,
    Reread,
    outlook_of,
    plain,
    reports_of,
)
from dither_aggregator.analysis.numbers import QUANTILES, SURE_OF_NUMBERS, WIDEST
from dither_aggregator.analysis.planning import Design, Question, Unplannable, column_variance, effect_of_one, tests_of
from dither_shared.accounting import NEARLY_CERTAIN, sure
from dither_shared.domains import OTHER, Buckets, Columns, NumberDomain, Range, Thresholds, Values
from dither_shared.domains.columns import COLUMNS_MAX, COLUMNS_MIN, symbols_of
from dither_shared.errors import DitherError
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN, exp_of_micro, from_micro
from dither_shared.frozen import replaced
from dither_shared.kinds import NumberKind, TableKind
from dither_shared.kinds.number import BUCKETS_MAX, COHORTS_MAX, MEMO_ANSWERS
from dither_shared.kinds.number_precision import share_error, std_errors
from dither_shared.kinds.precision import ALPHA, MEANS_MIN, NUMBERS_MIN, POWER, SIDES, precision_of
from dither_shared.mechanisms import DEVICE, Cells, MemoizedTwoLevel, Part
from dither_shared.registry import LINKED_MAX, Metric

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


# Advice: where other questions, or another schedule, show more for the same price.


WORTH_A_LINE = 0.95
"""Other questions are named if their error is at most this part of the present one."""
_POWER = NormalDist().inv_cdf(POWER)
_CENT = Decimal("0.01")
ARM_CHARACTERS_MAX = 20


def advice(now: Outlook, quiet_days: int, reread: Reread, today: date | None = None) -> Iterator[str]:
    """Yield a line for each thing that the metric's owner may want to decide otherwise."""
    if not now.metric.memoized:
        if now.metric.schedule == "spread":
            yield from _of_spread(now, quiet_days, reread, today)
        elif now.installs.stay is not None:
            yield from _of_study(now, quiet_days, today)
        yield from _of_state(now, quiet_days, reread, today)
    if isinstance(now.metric.asked.domain, Columns):
        yield from _of_table(now, now.metric.asked.domain, quiet_days)
    if isinstance(now.metric.asked.domain, Buckets):
        yield from _of_ranges(now, now.metric.asked.domain, reread)


def advice_together(outlooks: Sequence[Outlook]) -> Iterator[str]:
    """Yield a line where a table would tell which flags go together, and one of flags that may be of arms."""
    alike: dict[tuple[object, ...], list[Outlook]] = defaultdict(list)
    for now in outlooks:
        metric = now.metric
        if tuple(metric.values) == ("no", "yes") and not metric.memoized:
            alike[metric.epsilon, metric.charges, metric.schedule, metric.period_days].append(now)
    for found in alike.values():
        metric, names = found[0].metric, [each.metric.name for each in found]
        epsilon, n = metric.epsilon * len(found), found[0].week.reports
        if n >= 1 and (arms := _arms_of(names)):
            told = _difference(len(found) // arms, sqrt(_of_flag(metric.epsilon) / n))
            least = f"a difference of {_points(told)}" if told <= 1 else "no difference"
            yield (
                f"if {', '.join(names)} are of the arms of an experiment, and each is answered by its own arm alone, "
                f"dither ask tells {least} between two arms in a week; --installs are then those of one arm"
            )
        if not (COLUMNS_MIN <= len(found) <= COLUMNS_MAX and epsilon <= EPSILON_MAX and n >= 1) or _arms_of(names):
            continue
        asked = TableKind.asked_of({each.metric.name: Values(("no", "yes", OTHER)) for each in found}, epsilon)
        table, flag = column_variance(Columns.of(asked.domain), asked.cells, 0), _of_flag(metric.epsilon)
        yield (
            f"keep {', '.join(names)} as flags, unless you ask which of them go together or compare arms of an "
            f"experiment: then a table of them with epsilon = {plain(epsilon)} is as private, and a share of one half "
            f"has an interval {_points(SIDES * sqrt(table / n))} wide in it in a week, not "
            f"{_points(SIDES * sqrt(flag / n))}"
        )


def _arms_of(names: Sequence[str]) -> int:
    """Return of how many arms of an experiment flags may be, as `_of_table` names them; 0 if of none."""
    for place in (found.end() for found in re.finditer("_", names[0])):
        arms = {name[place:] for name in names if name.startswith(names[0][:place])}
        columns = {name.removesuffix(arm) for name in names for arm in arms if name.endswith(f"_{arm}")}
        if len(arms) > 1 and {f"{column}{arm}" for column in columns for arm in arms} == set(names):
            return len(arms)
    return 0


def _of_spread(now: Outlook, quiet_days: int, reread: Reread, today: date | None) -> Iterator[str]:
    try:  # of all installs, to which a release comes at once, whoever stays
        metric = reread({"schedule": "early"})
    except DitherError:
        return  # compiled
    early = outlook_of(metric, replaced(now.installs, stay=None), quiet_days, today)
    if now.whole.days < YEAR_DAYS:
        possible = early.whole.reports
        lost = now.whole.reports < HALF_LOST * possible
        yield (
            f"of {possible:,.0f} reports that the devices may send until it expires, {now.whole.reports:,.0f} arrive: "
            f'"spread" draws their days from a whole year'
            + f'; schedule = "early" has them all, and shows {early.whole}, not {now.whole}'
            * lost
        )
        if lost:
            return
    if early.week.shows(now.wanted) and not now.week.shows(now.wanted):
        *_, whole = now.windows
        first = "week after its first period" if now.metric.hidden else "first week after a release"
        yield (
            f'schedule = "early" shows {early.week} in the {first}, "spread" {now.whole} in {whole}, at the same '
            f'price: take "early" for one answer, "spread" to follow it over the year'
        )


def _of_ranges(now: Outlook, domain: Buckets, reread: Reread) -> Iterator[str]:
    n = int(now.week.reports)
    if now.week.told is None or now.week.short > 1:
        return
    whole = (domain.edges[-1] - domain.edges[0]) / 10**domain.decimals

    def parts(ranges: int) -> tuple[float, float]:
        asked = reread({"buckets": ranges})
        return mean_parts(NumberDomain.of(asked.asked.domain), asked.cells, n)

    try:
        before, ranges = mean_parts(domain, now.metric.cells, n), ranges_alike(parts, len(domain.edges) - 1)
        after = parts(ranges)
    except DitherError:
        return  # compiled, or its edges are listed
    if ranges > len(domain.edges) - 1 and sum(after) <= WORTH_A_LINE * sum(before):
        noise, left_open, wide, narrow = (_percent(each / whole) for each in (*before, sum(before), sum(after)))
        yield (
            f"of low to high, ranges leave {left_open} open in the mean and noise {noise} in a week: "
            f"buckets = {ranges} {'makes both alike' if ranges < BUCKETS_MAX else 'is the most there are'}, "
            f"with an interval {narrow} wide, not {wide}, at the same price"
        )


def _of_study(now: Outlook, quiet_days: int, today: date | None) -> Iterator[str]:
    together = outlook_of(now.metric, replaced(now.installs, stay=None), quiet_days, today)
    if now.week.reports < HALF_LOST * together.week.reports:
        yield (
            f"--stay counts installs that come as others go; in a study that all join at once, and just after a first "
            f"release, leave it out: all of them answer at once, and the first week shows {together.week}"
        )


def _of_state(now: Outlook, quiet_days: int, reread: Reread, today: date | None) -> Iterator[str]:
    """Yield a line where devices are asked again and memoized answers of a state would show more for the same loss."""
    metric = now.metric
    if metric.charges < 2 or metric.hidden:
        return
    permanent = metric.epsilon * metric.charges / MEMO_ANSWERS
    epsilon = metric.epsilon if metric.epsilon < permanent else permanent / 2
    asked = {"reports": None, "schedule": None, "memoize": True, "answers": MEMO_ANSWERS}
    try:
        memo = reread({**asked, "epsilon": epsilon, "epsilon_permanent": permanent})
    except DitherError:  # of a kind that has no memos, or compiled
        return
    if (memo.linked or 0) > LINKED_MAX:
        return
    then = outlook_of(memo, now.installs, quiet_days, today)
    if then.week.told and then.week.enough and now.week.told:
        if now.week.enough and then.week.told.part > WORTH_A_LINE * now.week.told.part:
            return
        lines = f"answers = {MEMO_ANSWERS}, epsilon = {plain(epsilon)}, epsilon_permanent = {plain(permanent)}"
        yield (
            f"where it is a state that lasts, such as a theme, memoize = true, {lines} in place of reports and "
            f"schedule show {then.week} in a week, not {now.week}, and a guess becomes no surer; that an answer "
            f"changed is not hidden then, a third different answer is not seen, so it suits no mood, and repeated "
            f"noise links a device's reports"
        )


def _of_table(now: Outlook, domain: Columns, quiet_days: int) -> Iterator[str]:
    metric, n = now.metric, now.week.reports
    flags = all(isinstance(each, Values) and len(each.values) == len(("no", "yes", OTHER)) for each in domain.domains)
    if n < 1 or domain.hidden or not (flags or domain.public):
        return
    columns, arms = len(domain.names), max(len(domain.public) - 1, 1)
    widest = max(range(columns), key=lambda column: symbols_of(domain.domains[column]))
    table = column_variance(domain, metric.cells, widest)

    def flag_error(asked: int) -> tuple[str, float]:
        """Return the keys of a flag for each of so many columns, and the standard error of an arm's share of it."""
        epsilon, life = _shared_out(metric, asked)
        reports = reports_of(life, now.installs, quiet_days, now.week.days)
        return f"epsilon = {epsilon:f}, reports = {life.charges}", sqrt(_of_flag(epsilon) * arms / max(reports, 1))

    if not domain.public:
        keys, error = flag_error(columns)
        if error <= WORTH_A_LINE * sqrt(table / n):
            yield (
                f"keep the table if you ask which answers go together; if not, a flag for each column with {keys} is "
                f"as private, and a share of one half has an interval {_points(SIDES * error)} wide in a week, not "
                f"{_points(SIDES * sqrt(table / n))}"
            )
        return
    effect, arm = effect_of_one(table, arms, tests_of(domain, arms)) / sqrt(n), domain.public[0]
    whole = effect * sqrt(n / now.whole.reports)
    in_all = f", and of {_points(whole)} in {list(now.windows)[-1]}" if whole < WORTH_A_LINE * effect else ""
    if whole > 1:
        yield f"no difference between {arm} and the others is told, however large"
        return
    least = f"a difference of {_points(effect)}" if effect <= 1 else "no difference"
    yield f"{least} between {arm} and the others is told in a week{in_all}"
    together = metric.reservation * len(domain.public[1:])  # the registry counts all arms' flags
    if sure(exp_of_micro(together)) > NEARLY_CERTAIN:
        return
    for asked, whose in ((1, "one of its columns alone"), (columns, "each of its columns")):
        keys, error = flag_error(asked)
        told = _difference(asked, error)
        if flags and told <= WORTH_A_LINE * effect:
            names = ", ".join(f"{domain.names[0]}_{value}" for value in _as_names(domain.public[1:]))
            yield (
                f"keep the table if you ask which answers go together; if not, for {whose} a flag for each {arm} "
                f"({names}, which only its {arm} answers) with {keys} costs a device the same, and dither ask tells a "
                f"difference of {_points(told)} in a week; device_epsilon then holds all arms': "
                f"{from_micro(together):g}"
            )


def _difference(columns: int, error: float) -> float:
    """Return the difference that flags of two arms tell, each with this standard error and as many columns."""
    return (-2 * NormalDist().inv_cdf(ALPHA / 2 / columns) + sqrt(2) * _POWER) * error


def _as_names(arms: Sequence[str]) -> Sequence[str]:
    """Return arms as parts of a metric's name, all different."""
    names = [re.sub("[^a-z0-9]+", "_", arm.lower()).strip("_")[:ARM_CHARACTERS_MAX] for arm in arms]
    plain_ = len(set(names)) == len(names) and all(names)
    return names if plain_ else [f"arm_{number}" for number in range(1, len(arms) + 1)]


def _shared_out(metric: Metric, columns: int) -> tuple[Decimal, PlannedLife]:
    """Return the epsilon and the life of a flag for each column, that together cost a device what the table does."""
    of_each = metric.epsilon * metric.charges / columns
    reports = ceil(of_each / metric.epsilon)
    epsilon = max((of_each / reports).quantize(_CENT, ROUND_DOWN).normalize(), EPSILON_MIN)
    life = PlannedLife(reports, metric.schedule, metric.period_days, memoized=False, expires=metric.expires)
    return epsilon, life


def _of_flag(epsilon: Decimal) -> float:
    """Return n times the variance of a flag's share of one half."""
    return 0.25 / tanh(float(epsilon) / 2) ** 2


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"


def _points(part: float) -> str:
    return f"{100 * part:.2g} points"
