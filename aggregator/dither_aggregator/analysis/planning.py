"""Planning: given two of reports, epsilon and a target, compute the third.

The target is how much the reports show, and the smaller the better: of listed values the detectable share, of
numbers the width of an interval, of a table with an experiment the difference between arms. Forward it is what a
metric's page does: the registry's choice of a mechanism, then the figure at the 95 % level. The other two are searched
for: an n, or an epsilon, from which the forward answer is small enough.

Neither search is of a monotone function. A count that must be passed jumps by one as n grows, which matters while few
are expected, and the mechanism changes with epsilon. So the number that is found passes, and the one before it does
not. From the n that is found on larger ones pass too, tried in steps of a twentieth up to twice as many; beyond a jump
a smaller epsilon may pass again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from math import ceil, isqrt, prod, sqrt
from statistics import NormalDist
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import share_variance, variance_at
from dither_aggregator.analysis.installs import PlannedLife
from dither_aggregator.analysis.pure import significance_shares
from dither_aggregator.analysis.reading import reports_possible
from dither_aggregator.analysis.tables.reading import REPORTS_MIN
from dither_aggregator.analysis.tables.statistics import ALPHA, CELLS_MAX
from dither_aggregator.counting import hyperplane_sums
from dither_shared.domains import OTHER, Columns, Values
from dither_shared.domains.columns import COLUMNS_MAX, COLUMNS_MIN, symbols_of
from dither_shared.errors import DitherError, InvalidParameter
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN
from dither_shared.kinds import KINDS, PublicColumn, TableKind, TextKind
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.kinds.listed import TICKS_MAX, VALUES_MAX
from dither_shared.kinds.precision import (
    POWER,
    critical_share,
    detectable_share,
    judged_part,
    precision_of,
    signal_needed,
    verdict_line,
)
from dither_shared.kinds.table import FRESH
from dither_shared.kinds.words import EPSILON_WORDS_MAX, WordsKind
from dither_shared.mechanisms import PUBLIC_MAX, Cells, PureMechanism, choose, one_cell
from dither_shared.mechanisms.two_level import TwoLevel
from dither_shared.words.alphabets import ALPHABETS, load
from dither_shared.words.code import LAYOUTS, Layout

N_MAX = 10**12
EPSILON_STEPS = 100
"""Steps in one epsilon: the search tries multiples of 0.01."""
LASTING_STEPS = 14
"""How many larger n are tried, up to twice the one that is found: each a twentieth above the one before."""
PERIOD_DAYS = 7
"""How often a device is asked, in the lines that are printed."""

STEP = Decimal("0.000001")
"""The registry takes epsilons in steps of this size."""
_TWENTIETH = 2 ** (1 / LASTING_STEPS)

Target = Literal["share", "width", "effect"]
Computed = Literal["n", "epsilon", "share", "width", "effect"]


class Unplannable(DitherError):
    """The request cannot be met, or makes no metric. The message says what to change."""


Q = TypeVar("Q", bound="Question")


@dataclass(frozen=True)
class Design(ABC, Generic[Q]):
    """A question's metric at one epsilon, as the registry would compile it."""

    question: Q
    cells: Cells

    @abstractmethod
    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return all that n reports show, in parts of 1, by name; None for what they do not show."""

    def target(self, n: int) -> float | None:
        """Return the target of these."""
        return self.figures(n)[self.question.target_figure]

    @abstractmethod
    def n_about(self, wanted: float) -> float:
        """Return about how many reports reach a target: near enough to begin a search with."""


@dataclass(frozen=True)
class Question(ABC):
    """All that decides the noise of a metric, besides epsilon and n."""

    kind: str
    d: int
    epsilon_permanent: Decimal | None = None
    """The epsilon of memoized answers; None for fresh noise each time."""
    days: int = 1
    """The days of the window that is read. They matter for memoized answers: their noise comes again on each day."""

    memo_answers = 1
    """How many memoized answers a device's life has."""

    def __post_init__(self) -> None:
        if self.epsilon_permanent is not None and not EPSILON_MIN < self.epsilon_permanent <= EPSILON_MAX:
            raise Unplannable(
                f"epsilon_permanent must be above {EPSILON_MIN} and at most {EPSILON_MAX}, got {self.epsilon_permanent}"
            )

    @property
    @abstractmethod
    def target_name(self) -> Target:
        """The name of the target."""

    @property
    @abstractmethod
    def target_figure(self) -> str:
        """Which of a design's figures the target is."""

    @property
    @abstractmethod
    def too_small(self) -> str:
        """A target that cannot be reached, in words that follow "show"."""

    @property
    def repeats(self) -> int:
        """How often a device's noise may come again in the window, as a reading counts it (`reading.reports_max`)."""
        if self.epsilon_permanent is None:
            return 1
        return reports_possible(self.days, PERIOD_DAYS, once_a_day=True)

    @property
    def epsilon_max(self) -> Decimal:
        """The most that a report may have."""
        return EPSILON_MAX

    def design(self, epsilon: Decimal) -> Design[Self]:
        """Return the registry's choice for reports of this epsilon; raise Unplannable."""
        if not EPSILON_MIN <= epsilon <= self.epsilon_max:
            raise Unplannable(f"epsilon must be from {EPSILON_MIN} to {self.epsilon_max}, got {epsilon:f}")
        if self.epsilon_permanent is not None and self.epsilon_permanent <= epsilon:
            raise Unplannable(f"epsilon_permanent must be above epsilon, {epsilon:f}, got {self.epsilon_permanent:f}")
        if epsilon not in self._designs:
            self._designs[epsilon] = self._compiled(epsilon)
        return self._designs[epsilon]

    @cached_property
    def _designs(self) -> dict[Decimal, Design[Self]]:
        """Designs by epsilon: a search and the neighbours of what it finds come back to some."""
        return {}

    @abstractmethod
    def _compiled(self, epsilon: Decimal) -> Design[Self]:
        """Return the design for an epsilon that the registry takes."""

    def check(self, n: int | None, wanted: float) -> None:
        """Raise Unplannable for a target that cannot be reached, whatever the noise."""
        if not 0 < wanted <= 1:
            raise Unplannable(f"the {self.target_name} must be above 0 % and at most 100 %, got {100 * wanted:g} %")

    def to_document(self) -> dict[str, object]:
        """Return what was asked, by the names of the API's columns."""
        permanent = self.epsilon_permanent
        return {**asdict(self), "epsilon_permanent": None if permanent is None else float(permanent)}

    # The registry's lines.

    def beside(self) -> Sequence[str]:
        """Return the lines that the registry's first table has for this metric: by default none."""
        return []

    @abstractmethod
    def answers(self) -> Sequence[str]:
        """Return the registry's lines that say what can be answered."""

    def memo(self) -> str:
        """Return what follows `epsilon_permanent` on memoized answers."""
        return ""

    def life(self, expires: date, reports: int = 1, schedule: str = "spread") -> PlannedLife:
        """Return how often a device reports: so often, or, memoized, in every period."""
        if self.epsilon_permanent is None:
            return PlannedLife(reports, schedule, PERIOD_DAYS, memoized=False, expires=expires)
        return PlannedLife(self.memo_answers, "early", PERIOD_DAYS, memoized=True, expires=expires)

    def lines(self, life: PlannedLife) -> Sequence[str]:
        """Return the registry's lines for the reports, or for the memoized answers, of a device."""
        if self.epsilon_permanent is None:
            reports = f"reports = {life.charges}  # in a device's life; each further one costs epsilon again"
            return [reports, f'schedule = "{life.schedule}"']
        return ["memoize = true", f"epsilon_permanent = {self.epsilon_permanent:f}{self.memo()}"]

    def reserved(self, epsilon: Decimal, life: PlannedLife) -> Decimal:
        """Return what those lines reserve of a device's epsilon."""
        return life.charges * (epsilon if self.epsilon_permanent is None else self.epsilon_permanent)


@dataclass(frozen=True)
class Planned(Generic[Q]):
    """A metric as the registry would compile it, and what n reports show."""

    design: Design[Q]
    n: int
    epsilon: Decimal
    figures: Mapping[str, float | None]
    """All that n reports show, in parts of 1, by name; None for what they do not show."""
    computed: Computed
    """The one of the three that was not given."""
    wanted: float | None = None
    """The target that was asked for; None where it is computed."""

    @property
    def question(self) -> Q:
        """The question."""
        return self.design.question

    @property
    def cells(self) -> Cells:
        """The cells of its reports."""
        return self.design.cells

    @property
    def target(self) -> float | None:
        """The target that is reached; None where none is."""
        return self.figures[self.question.target_figure]

    @property
    def told(self) -> float | None:
        """The target that was asked for, which is at least the one reached; else that one."""
        return self.wanted or self.target

    @property
    def odds(self) -> float:
        """e^epsilon of one report: the most by which it multiplies the odds of an answer against another."""
        return float(self.cells.exp_epsilon)

    def to_document(self) -> Mapping[str, object]:
        """Return the question, the mechanism and the figures by the names of the API's columns."""
        cells = self.cells
        known = {"n": self.n, "epsilon": float(self.epsilon), "mechanism": cells.name, "bits": cells.report_bits}
        percents = {f"{name}_percent": percent(part) for name, part in self.figures.items()}
        return {**self.question.to_document(), **known, **self.figures, **percents}

    def in_meta(self) -> Mapping[str, object]:
        """Return the target by its name in the API: the one that was asked for, or else the one reached."""
        name = self.question.target_name
        return {name: self.told} if name == "share" else {f"{name}_percent": percent(self.told)}


def percent(part: float | None) -> float | None:
    """Return a part of 1 in percent."""
    return None if part is None else 100 * part


def plan(question: Q, n: int | None, epsilon: Decimal | None, wanted: float | None) -> Planned[Q]:
    """Return the one of n, epsilon and the target that is None, with all that follows; raise Unplannable.

    n is from 1 to N_MAX, epsilon one of the registry's, the target above 0 and at most 1.
    """
    if n is not None and not 1 <= n <= N_MAX:
        raise Unplannable(f"n must be from 1 to {N_MAX:,}, got {n:,}")
    if wanted is not None:
        question.check(n, wanted)
    match n, epsilon, wanted:
        case int(), Decimal(), None:
            return _forward(question, n, epsilon, question.target_name)
        case None, Decimal(), float():
            return _forward(question, _least_n(question, epsilon, wanted), epsilon, "n", wanted)
        case int(), None, float():
            return _forward(question, n, _least_epsilon(question, n, wanted), "epsilon", wanted)
    raise Unplannable(
        f"Give two of reports, epsilon and {question.target_name}, and leave the third empty: it is computed."
    )


def _forward(question: Q, n: int, epsilon: Decimal, computed: Computed, wanted: float | None = None) -> Planned[Q]:
    design = question.design(epsilon)
    return Planned(design, n, epsilon, design.figures(n), computed, wanted)


def _least_n(question: Question, epsilon: Decimal, wanted: float) -> int:
    """Return an n that reaches a figure where n - 1 does not, and that larger ones, as tried, follow."""
    design = question.design(epsilon)

    def passes(n: int) -> bool:
        return _shows(design, n, wanted)

    first = min(max(round(design.n_about(wanted)), 1), N_MAX)
    while n := _least(passes, first, N_MAX):
        larger = [min(round(n * _TWENTIETH**step), N_MAX) for step in range(1, LASTING_STEPS + 1)]
        failing = [each for each in larger if not passes(each)]
        if not failing:
            return n
        first = failing[-1]
    raise Unplannable(f"Even {N_MAX:,} reports at epsilon {epsilon:f} do not show {question.too_small}.")


def _least_epsilon(question: Question, n: int, wanted: float) -> Decimal:
    """Return an epsilon in steps of 0.01 with which n reports reach a figure, where the one before it does not."""
    most = question.epsilon_max
    if question.epsilon_permanent is not None:
        most = question.epsilon_permanent - STEP  # the last below

    def passes(step: int) -> bool:
        return _shows(question.design(Decimal(step) / EPSILON_STEPS), n, wanted)

    steps_max = int(most * EPSILON_STEPS)
    step = _least(passes, min(EPSILON_STEPS, steps_max), steps_max)
    if step is None:
        raise Unplannable(
            f"No epsilon up to {Decimal(steps_max) / EPSILON_STEPS:f} lets {n:,} reports show {question.too_small}: "
            "it takes more reports."
        )
    return Decimal(step) / EPSILON_STEPS


def _shows(design: Design[Any], n: int, wanted: float) -> bool:
    reached = design.target(n)
    return reached is not None and reached <= wanted


def _least(passes: Callable[[int], bool], first: int, most: int) -> int | None:
    """Return a number in [1, most] that passes where the one before it does not; None where neither does.

    It doubles or halves from the first one on, so it meets the change that is nearest.
    """
    low, high = 0, first
    while not passes(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while low == 0 and high > 1:
        if passes(high // 2):
            high //= 2
        else:
            low = high // 2
    return _between(passes, low, high)


def _between(passes: Callable[[int], bool], low: int, high: int) -> int:
    """Return a number in (low, high] that passes, the one before it not, as `low` does not and `high` does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def neighbours(planned: Planned[Q]) -> Sequence[Planned[Q]]:
    """Return what half and twice the reports show, and half and twice the epsilon, where these are.

    The plan itself stands among them, in the order of n and of epsilon.
    """
    n, epsilon, question = planned.n, planned.epsilon, planned.question
    most = min(question.epsilon_max, (question.epsilon_permanent or EPSILON_MAX + 1) - STEP)
    half = (epsilon / 2).quantize(Decimal("0.01"))
    around = [(max(n // 2, 1), epsilon), (n, epsilon), (min(2 * n, N_MAX), epsilon), (n, half), (n, 2 * epsilon)]
    there = [(n, epsilon) for n, epsilon in dict.fromkeys(around) if EPSILON_MIN <= epsilon <= most]
    return [_forward(question, n, epsilon, question.target_name) for n, epsilon in there]


def registry_lines(planned: Planned[Any], app: str, life: PlannedLife) -> str:
    """Return a registry with the planned metric, which `dither metrics check` takes; its words are to be replaced.

    A long list of values is in values.txt, one a line and without "other", which comes by itself.
    """
    question = planned.question
    lines = [
        "[registry]",
        f'app = "{app}"',
        f"device_epsilon = {question.reserved(planned.epsilon, life):f}  # at least what all metrics reserve together",
        *question.beside(),
        "",
        "[metric.planned]",
        "rev = 1",
        f'kind = "{question.kind}"',
        'question = "What do you want to know?"  # what people read',
        *question.answers(),
        f"epsilon = {planned.epsilon:f}",
        *question.lines(life),
        'presence = "public"',
        f'period = "{life.period_days}d"',
        'owners = ["team@example.org"]',
        'sensitivity = "low"',
        f"expires = {life.expires}",
    ]
    return "\n".join(lines) + "\n"


# Planning shares: the target is that of a value, a text or a word which stands out four times in five.
#
# listed  it stands out from the noise by the exact law of a page, which the normal one is close to where counts are
# large text    it is looked for in a list of so many candidates, and stands out where it is the only one that does.
# With V the
#         variance of one report for a text that nobody has, and S candidates
#
#             share = (z(1 - 5 % / 2 S) + z(80 %)) sqrt(V / n)
#
# words   it is found without a list, as kinds/precision.py says, if its code has about USUAL_BITS bits
#
# Texts and words are by the normal law, and without the part of the error that other texts add where they share its
# buckets: about the square root of the sum of their squared shares over 2^19.


LISTED, TEXT, WORDS = ("choice", "choices", "flag"), "text", "words"
LAYOUT = LAYOUTS["short"]
ENGLISH = "english"
"""The code of words whose registry names no alphabet."""
D_MAX = VALUES_MAX + 1
"""The listed values, and "other"."""
VALUES_SHOWN_MAX = 12
"""Longer lists of values are in a file."""


class _Shares(Design["ShareQuestion"]):
    @property
    def mechanism(self) -> PureMechanism:
        """The mechanism of the one cell that a metric with listed values has."""
        return PureMechanism.of(self.cells.mechanism)

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the shares of a page: the noise floor, the least estimate that stands out, and the share that does."""
        repeats = self.question.repeats
        floor = float(np.sqrt(share_variance(self.mechanism, np.zeros(1), n, "reports", repeats))[0])
        critical, detectable = significance_shares(self.mechanism, n, repeats=repeats)
        return {"noise_floor": floor, "critical_share": critical, "detectable_share": detectable}

    def target(self, n: int) -> float | None:
        """Return the share that stands out."""
        return significance_shares(self.mechanism, n, repeats=self.question.repeats)[1]

    def n_about(self, wanted: float) -> float:
        """Return it by the normal law of the planning figures."""
        return (detectable_share(self.mechanism, self.question.d, 1) / wanted) ** 2 * self.question.repeats


@dataclass(frozen=True)
class ShareQuestion(Question):
    """A metric with listed values: d of them, "other" included, or the two of a flag."""

    ticks: int | None = None
    """The most values of one answer, for choices."""

    target_name = "share"
    target_figure = "detectable_share"
    too_small = "so small a share"

    def __post_init__(self) -> None:
        if self.kind not in LISTED:
            raise Unplannable(f"the kind must be one of {', '.join(LISTED)}, got {self.kind}")
        if not 2 <= self.d <= D_MAX or (self.kind == "flag" and self.d != 2):
            raise Unplannable(f"d must be from 2 to {D_MAX:,}, and 2 of a flag, got {self.d:,}")
        if (self.ticks is not None) != (self.kind == "choices"):
            raise Unplannable("ticks are of choices, and choices need them")
        if self.ticks is not None and not 2 <= self.ticks <= min(self.d, TICKS_MAX):
            raise Unplannable(f"ticks must be from 2 to {min(self.d, TICKS_MAX)}, got {self.ticks}")
        super().__post_init__()

    def _compiled(self, epsilon: Decimal) -> _Shares:
        return _Shares(self, one_cell(choose(self.d, epsilon, ticks=self.ticks, permanent=self.epsilon_permanent)))

    def answers(self) -> Sequence[str]:
        """Return the lines with the values, or with the name of their file."""
        if self.kind == "flag":
            return []
        listed = self.d - 1
        lines = ['values_file = "values.txt"  # ' + f"{listed:,} lines, a value each; other comes by itself"]
        if listed <= VALUES_SHOWN_MAX:
            names = ", ".join(f'"value {number}"' for number in range(1, listed + 1))
            lines = [f"values = [{names}]  # other comes by itself"]
        return lines if self.ticks is None else [*lines, f"ticks_max = {self.ticks}"]

    def memo(self) -> str:
        """Return the line for one memoized answer."""
        return "\nanswers = 1  # different ones in a device's life; each further one costs epsilon_permanent again"


@dataclass(frozen=True)
class _Texts(Design["TextQuestion"]):
    floor: float
    """The standard error of one report, for a text that nobody has and that is looked up."""
    critical: float
    """The critical share of one report, by the normal law; that of n is sqrt(n) times smaller."""
    detectable: float
    """The detectable share of one report, likewise."""

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the shares, of which none is above 1."""
        share = self.detectable / sqrt(n)
        return {
            "noise_floor": self.floor / sqrt(n),
            "critical_share": self.critical / sqrt(n),
            "detectable_share": share if share <= 1 else None,
        }

    def n_about(self, wanted: float) -> float:
        """Return it, all but rounded."""
        return (self.detectable / wanted) ** 2


@dataclass(frozen=True)
class TextQuestion(Question):
    """A fresh text that is looked for among d candidates, or words, of which a search proposes about d."""

    alphabet: str = ENGLISH
    """The code of words, and the levels in which they are looked for."""

    target_name = "share"
    target_figure = "detectable_share"
    too_small = "so small a share"

    def __post_init__(self) -> None:
        if self.kind not in (TEXT, WORDS):
            raise Unplannable(f"the kind must be {TEXT} or {WORDS}, got {self.kind}")
        if self.epsilon_permanent is not None:
            raise Unplannable("only fresh texts are planned: leave out epsilon_permanent")
        if not 1 <= self.d <= CANDIDATES_MAX:
            raise Unplannable(f"d must be from 1 to {CANDIDATES_MAX:,}, got {self.d:,}")
        if self.alphabet not in (ENGLISH, *(ALPHABETS if self.kind == WORDS else ())):
            raise Unplannable(f"the alphabet of words must be {ENGLISH} or one of {', '.join(ALPHABETS)}")
        super().__post_init__()

    @property
    def epsilon_max(self) -> Decimal:
        """The most that a report may have."""
        return EPSILON_WORDS_MAX if self.kind == WORDS else EPSILON_MAX

    @property
    def layout(self) -> Layout:
        """The levels of short words in their alphabet."""
        if self.alphabet == ENGLISH:
            return LAYOUT
        _, levels, weights = load(self.alphabet)
        return Layout(levels, weights)

    def _compiled(self, epsilon: Decimal) -> _Texts:
        kind = KINDS[self.kind]
        assert isinstance(kind, TextKind)
        cells = kind.fresh_cells(epsilon, self.layout) if isinstance(kind, WordsKind) else kind.fresh_cells(epsilon)
        floor, points = sqrt(precision_of(kind).noise_variance(cells)), PureMechanism.of(cells.mechanism_of(0))
        if self.kind == WORDS:
            every = sqrt(points.noise_variance)
            critical = verdict_line() * every / sqrt(judged_part(self.layout))
            return _Texts(self, cells, floor, critical, signal_needed(self.layout) * every)
        ends = 2 * self.d  # of the intervals of all candidates
        return _Texts(self, cells, floor, critical_share(points, ends, 1), detectable_share(points, ends, 1))

    def answers(self) -> Sequence[str]:
        """Return the line with the name of the file of candidates; of words with their alphabet, if they name one."""
        if self.kind == WORDS:
            return [] if self.alphabet == ENGLISH else [f'alphabet = "{self.alphabet}"']
        return [
            'candidates_file = "candidates.txt"  # ' + f"{self.d:,} lines, a text each; any others can be asked later"
        ]


# Planning an experiment with a table: the target is the effect, a difference that arms of one size tell.
#
# The effect is the least difference of a value's share between one arm and all others together that gets a verdict four
# times in five. With G tests, n reports of k arms, and V the variance of the share times the reports of all questions
#
#     effect = (z(1 - 5 % / 2 G) + z(80 %)) sqrt(V k / n + V k / ((k - 1) n))        G = k times all columns' values
#
# and of two arms half as many tests, since each is the other's. Holm's first step has this level, and the later ones
# tell a little more. V is that of a value that half of all have, where sampling is worst, with the noise of the
# mechanism. For a projective geometry that depends on which symbols lie on a line, and differs by up to an eighth from
# value to value: V is the largest of all columns' values.
#
# A question that asks for the column has its part of the reports. All that do have the same mechanism here, so that
# their pooling by inverse variance adds up their reports.


KIND = TableKind.name
ARMS_MIN, ARMS_MAX = 2, PUBLIC_MAX
COLUMN_D_MAX = isqrt(CELLS_MAX)
"""A page tells no pair of two larger columns, and their exact noise would take too long to plan."""
HALF = 0.5
LOTS = 3
"""Standard deviations by which lots may leave a question of an arm fewer reports than expected."""
PUBLIC = "arm"


@dataclass(frozen=True)
class _Experiment(Design["TableQuestion"]):
    variance: float
    """V."""

    def figures(self, n: int) -> Mapping[str, float | None]:
        """Return the effect; None where reports are too few, or one arm cannot differ so much from all others."""
        effect = self._of_one / sqrt(n)
        told = n >= self._n_min and effect <= self.question.effect_max
        return {"effect": effect if told else None}

    def n_about(self, wanted: float) -> float:
        """Return it without a bound."""
        return max((self._of_one / wanted) ** 2, self._n_min)

    @property
    def _n_min(self) -> int:
        return self.question.n_min(self.cells.each)

    @property
    def _of_one(self) -> float:
        """The effect times the root of n."""
        return effect_of_one(self.variance, self.question.arms, self.question.tests)


@dataclass(frozen=True)
class TableQuestion(Question):
    """Columns of d values each, "other" included, that are compared between the arms of an experiment."""

    columns: int = 3
    arms: int = 2

    target_name = target_figure = "effect"
    too_small = "so small an effect"

    def __post_init__(self) -> None:
        if self.kind != KIND:
            raise Unplannable(f"the kind must be {KIND}, got {self.kind}")
        if not 2 <= self.d <= COLUMN_D_MAX:
            raise Unplannable(f"d must be from 2 to {COLUMN_D_MAX} for a column of a table, got {self.d:,}")
        if not COLUMNS_MIN <= self.columns <= COLUMNS_MAX:
            raise Unplannable(f"columns must be from {COLUMNS_MIN} to {COLUMNS_MAX}, got {self.columns}")
        if not ARMS_MIN <= self.arms <= ARMS_MAX:
            raise Unplannable(f"arms must be from {ARMS_MIN} to {ARMS_MAX}, got {self.arms}")
        if self.epsilon_permanent is not None:
            raise Unplannable(f"epsilon_permanent {FRESH}")
        super().__post_init__()

    @property
    def tests(self) -> int:
        """How many differences a page tests at once."""
        return self.columns * self.d * (self.arms if self.arms > 2 else 1)

    @property
    def effect_max(self) -> float:
        """The most that one arm can differ from all others in a value that half of all have."""
        return min(HALF * self.arms / (self.arms - 1), 1.0)

    def n_min(self, questions: int) -> int:
        """Return the reports of which less tell nothing: by lot one question of one arm may get too few."""
        return ceil(self.arms * questions * (REPORTS_MIN + LOTS * sqrt(REPORTS_MIN)))

    def _compiled(self, epsilon: Decimal) -> _Experiment:
        values = Values((*self._values, OTHER))
        try:
            asked = TableKind.asked_of(dict.fromkeys(self._columns, values), epsilon)
        except InvalidParameter as error:
            raise Unplannable(f"the plan: columns {error}; plan fewer columns or values") from None
        asked = TableKind().beside(asked, PublicColumn(PUBLIC, self._arms))
        return _Experiment(self, asked.cells, column_variance(Columns.of(asked.domain), asked.cells, 0))

    @property
    def _arms(self) -> tuple[str, ...]:
        return tuple(f"arm {number}" for number in range(1, self.arms + 1))

    @property
    def _columns(self) -> Sequence[str]:
        return [f"column_{number}" for number in range(1, self.columns + 1)]

    @property
    def _values(self) -> Sequence[str]:
        return [f"value {number}" for number in range(1, self.d)]

    def beside(self) -> Sequence[str]:
        """Return the line with the arms."""
        return [f"public = {{ {PUBLIC} = [{_listed(self._arms)}] }}  # the app says which is its own, in the clear"]

    def answers(self) -> Sequence[str]:
        """Return a line for each column."""
        return [f"columns.{name} = [{_listed(self._values)}]" for name in self._columns]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def effect_of_one(variance: float, arms: int, tests: int) -> float:
    """Return the effect times the root of n, where a difference must be told whatever all others are."""
    z = -NormalDist().inv_cdf(ALPHA / 2 / tests)
    return (z + NormalDist().inv_cdf(POWER)) * sqrt(variance * (arms + arms / (arms - 1)))


def tests_of(domain: Columns, arms: int) -> int:
    """Return how many differences a page of these columns tests at once."""
    return sum(map(symbols_of, domain.domains)) * (arms if arms > 2 else 1)


def column_variance(domain: Columns, cells: Cells, column: int) -> float:
    """Return V of a column, of which all questions that ask it have mechanisms alike."""
    asking = [place for place, columns in enumerate(domain.questions) if column in columns]
    mechanism, shape = PureMechanism.of(cells.mechanism_of(asking[0])), domain.shape(asking[0])
    return len(domain.questions) / len(asking) * column_share_variance(mechanism, tuple(shape))


def column_share_variance(mechanism: PureMechanism, shape: tuple[int, ...]) -> float:
    """Return n times the variance of the share of the value where it is largest, of columns with so many values each.

    Half of all have the value, spread evenly over its symbols, and the others are spread evenly over all others. If
    reports are points, it matters which symbols a value has; else one value of each column tells it.
    """
    if mechanism.geometry is not None:
        return float(_points_variances(mechanism, shape).max())
    return max(_half_variance(mechanism, symbols[0]) for symbols in _symbols(shape))


def _symbols(shape: tuple[int, ...]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the symbols of each value of a column, int64[values, symbols], column by column."""
    cells = np.arange(prod(shape)).reshape(shape)
    for column, values in enumerate(shape):
        yield np.moveaxis(cells, column, 0).reshape(values, -1)


def _half_variance(mechanism: PureMechanism, own: npt.NDArray[np.int64]) -> float:
    has = np.zeros(mechanism.d)
    has[own] = 1.0
    return variance_at(mechanism, has, HALF * has / has.sum() + (1 - HALF) * (1 - has) / (1 - has).sum())


def _points_variances(mechanism: PureMechanism, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return the same for each value of every column, if reports are points: E[w^2] - 1/4.

    A point on h of the m hyperplanes of a value and on g of all d has w = (h - q m) / (p - q), and is reported with the
    probability off + (on - off) (h / 2 m + (g - h) / 2 (d - m)).
    """
    assert mechanism.geometry is not None
    assert isinstance(mechanism, TwoLevel)
    p, q, size = float(mechanism.p), float(mechanism.q), mechanism.shape.size
    share, inside = float(mechanism.law.share), float(mechanism.law.inside)
    on, off = inside / (size * share), (1 - inside) / (size * (1 - share))
    m, (one, h, h2, h3, g, gh, gh2) = _moments(mechanism.geometry, size, shape)
    own, others, mean = HALF / m, (1 - HALF) / (mechanism.d - m), q * m
    all_of, own_of, d_of = (c - 2 * mean * b + mean**2 * a for a, b, c in ((one, h, h2), (h, h2, h3), (g, gh, gh2)))
    square = off * all_of + (on - off) * ((own - others) * own_of + others * d_of)
    return np.asarray(square / (p - q) ** 2 - HALF**2)


@lru_cache(maxsize=32)  # a plan tries one geometry at many epsilons
def _moments(
    geometry: tuple[int, int, int], size: int, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return m for each value, int64[values], and the sums over all points of 1, h, h^2, h^3, g, g h and g h^2."""

    def through(symbols: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        held = np.zeros(size, dtype=np.int64)
        held[symbols] = 1
        return hyperplane_sums(held, *geometry)

    owns = [own for symbols in _symbols(shape) for own in symbols]
    g = through(np.arange(prod(shape)))
    sums = [[each.sum() for each in (h**0, h, h**2, h**3, g, g * h, g * h**2)] for h in map(through, owns)]
    return np.array([len(own) for own in owns]), np.array(sums).T
