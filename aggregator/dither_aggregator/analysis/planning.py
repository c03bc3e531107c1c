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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, Literal, Self, TypeVar

from dither_aggregator.analysis.installs import PlannedLife
from dither_aggregator.analysis.windows import reports_possible
from dither_shared.cells import Cells
from dither_shared.errors import DitherError
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN

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
        """How often a device's noise may come again in the window, as a reading counts it (`windows.reports_max`)."""
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
