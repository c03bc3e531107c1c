"""Planning: of reports, epsilon and detectable share give two, get the third.

Forward it is what a metric's page does: the registry's choice of a mechanism, then the detectable share by the law of
its counts (`pure.standing_shares`), at the 95 % level. The other two are searched for: an n, or an epsilon, from which
the forward answer is small enough.

Neither search is of a monotone function. A count that must be passed jumps by one as n grows, which matters while few
are expected, and the mechanism changes with epsilon. So the number that is found passes, and the one before it does
not. From the n that is found on larger ones pass too, tried in steps of a twentieth up to twice as many; beyond a jump
a smaller epsilon may pass again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

import numpy as np

from dither_aggregator.analysis.pure import standing_shares, variance
from dither_aggregator.analysis.windows import OVER_THE_EDGES, periods_touched
from dither_shared.errors import DitherError, InvalidParameter
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN
from dither_shared.kinds.choices import TICKS_MAX
from dither_shared.kinds.listed import VALUES_MAX
from dither_shared.mechanisms import PureMechanism, choose
from dither_shared.precision import detectable_share

KINDS = ("choice", "choices", "flag")
"""Those whose detectable share follows from n alone: what a text's is depends on what else was said."""
D_MAX = VALUES_MAX + 1
"""The listed values, and "other"."""
N_MAX = 10**12
EPSILON_STEPS = 100
"""In one epsilon: what is searched for is a multiple of 0.01."""
LASTING_STEPS = 14
"""How many larger n are tried, up to twice the one that is found: each a twentieth above the one before."""
VALUES_SHOWN_MAX = 12
"""Longer lists of values are in a file."""

_STEP = 2 ** (1 / LASTING_STEPS)


PERIOD_DAYS = 7
"""How often a device is asked, in the lines that are printed."""


class Unplannable(DitherError):
    """What is asked for cannot be had, or makes no metric. The message says what to change."""


@dataclass(frozen=True)
class Question:
    """What decides the noise of a metric, besides epsilon and n."""

    kind: str
    d: int
    """All values of an answer: the listed ones and "other", or the two of a flag."""
    ticks: int | None = None
    """Of choices: the most values of one answer."""
    epsilon_permanent: Decimal | None = None
    """Of memoized answers; None for fresh noise each time."""
    days: int = 1
    """Of the window that is read. It matters where answers are memoized: on each day their noise comes again."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Unplannable(f"the kind must be one of {', '.join(KINDS)}, got {self.kind}")
        if not 2 <= self.d <= D_MAX or (self.kind == "flag" and self.d != 2):
            raise Unplannable(f"d must be from 2 to {D_MAX:,}, and 2 of a flag, got {self.d:,}")
        if (self.ticks is not None) != (self.kind == "choices"):
            raise Unplannable("ticks are of choices, and choices need them")
        if self.ticks is not None and not 2 <= self.ticks <= min(self.d, TICKS_MAX):
            raise Unplannable(f"ticks must be from 2 to {min(self.d, TICKS_MAX)}, got {self.ticks}")
        if self.epsilon_permanent is not None and not EPSILON_MIN < self.epsilon_permanent <= EPSILON_MAX:
            raise Unplannable(
                f"epsilon_permanent must be above {EPSILON_MIN} and at most {EPSILON_MAX}, got {self.epsilon_permanent}"
            )

    @property
    def repeats(self) -> int:
        """How often a device's noise may come again in the window, as a reading counts it (`windows.reports_max`)."""
        if self.epsilon_permanent is None or self.days == 1:
            return 1
        return periods_touched(self.days, PERIOD_DAYS) + OVER_THE_EDGES

    def mechanism(self, epsilon: Decimal) -> PureMechanism:
        """Return the registry's choice for reports of this epsilon; raise Unplannable."""
        if not EPSILON_MIN <= epsilon <= EPSILON_MAX:
            raise Unplannable(f"epsilon must be from {EPSILON_MIN} to {EPSILON_MAX}, got {epsilon:f}")
        if self.epsilon_permanent is not None and self.epsilon_permanent <= epsilon:
            raise Unplannable(f"epsilon_permanent must be above epsilon, {epsilon:f}, got {self.epsilon_permanent:f}")
        try:
            return choose(self.d, epsilon, ticks=self.ticks, permanent=self.epsilon_permanent)
        except InvalidParameter as error:
            raise Unplannable(
                f"{error}; ask fewer values{', or fresh answers' * bool(self.epsilon_permanent)}"
            ) from None


@dataclass(frozen=True)
class Planned:
    """A metric as the registry would compile it, and what n reports show. Shares are of the reports, not percent."""

    question: Question
    n: int
    epsilon: Decimal
    computed: Literal["n", "epsilon", "share"]
    """Which of the three was not given."""
    mechanism: PureMechanism
    critical_share: float | None
    """The least estimate that stands out; None where none does."""
    detectable_share: float | None
    """A true share of this stands out four times in five; None where none does."""
    share: float | None
    """The share that was asked for, which is at least the detectable one; else the detectable one."""

    @property
    def noise_floor(self) -> float:
        """The standard error of a value that nobody has."""
        return float(np.sqrt(variance(self.mechanism, np.zeros(1), self.n, "reports", self.question.repeats))[0])

    @property
    def odds(self) -> float:
        """e^epsilon of one report: the most by which it multiplies the odds of an answer against another."""
        return float(self.mechanism.exp_epsilon)


def plan(question: Question, n: int | None, epsilon: Decimal | None, share: float | None) -> Planned:
    """Return the one of n, epsilon and share that is None, with all that follows; raise Unplannable.

    n is from 1 to N_MAX, epsilon one of the registry's, share above 0 and at most 1.
    """
    if n is not None and not 1 <= n <= N_MAX:
        raise Unplannable(f"n must be from 1 to {N_MAX:,}, got {n:,}")
    if share is not None and not 0 < share <= 1:
        raise Unplannable(f"the share must be above 0 % and at most 100 %, got {100 * share:g} %")
    match n, epsilon, share:
        case int(), Decimal(), None:
            return _forward(question, n, epsilon, "share")
        case None, Decimal(), float():
            return _forward(question, _least_n(question, epsilon, share), epsilon, "n", share)
        case int(), None, float():
            return _forward(question, n, _least_epsilon(question, n, share), "epsilon", share)
    raise Unplannable("Give two of reports, epsilon and share, and leave the third empty: it is computed.")


def _forward(
    question: Question,
    n: int,
    epsilon: Decimal,
    computed: Literal["n", "epsilon", "share"],
    share: float | None = None,
) -> Planned:
    mechanism = question.mechanism(epsilon)
    critical, detectable = standing_shares(mechanism, n, repeats=question.repeats)
    return Planned(question, n, epsilon, computed, mechanism, critical, detectable, share or detectable)


def _least_n(question: Question, epsilon: Decimal, share: float) -> int:
    """Return an n that shows a share where n - 1 does not, and that larger ones, as tried, follow."""
    mechanism = question.mechanism(epsilon)

    def passes(n: int) -> bool:
        return _shows(mechanism, n, question.repeats, share)

    # By the normal law of the planning figures: near enough to begin with.
    n_about = (detectable_share(mechanism, question.d, 1) / share) ** 2 * question.repeats
    first = min(max(round(n_about), 1), N_MAX)
    while n := _least(passes, first, N_MAX):
        larger = [min(round(n * _STEP**step), N_MAX) for step in range(1, LASTING_STEPS + 1)]
        failing = [each for each in larger if not passes(each)]
        if not failing:
            return n
        first = failing[-1]
    raise Unplannable(f"Even {N_MAX:,} reports at epsilon {epsilon:f} do not show so small a share.")


def _least_epsilon(question: Question, n: int, share: float) -> Decimal:
    """Return an epsilon in steps of 0.01 with which n reports show a share, where the one before it does not."""
    most = EPSILON_MAX
    if question.epsilon_permanent is not None:
        most = question.epsilon_permanent - Decimal("0.000001")  # of the registry's steps the last below

    def passes(step: int) -> bool:
        return _shows(question.mechanism(Decimal(step) / EPSILON_STEPS), n, question.repeats, share)

    steps_max = int(most * EPSILON_STEPS)
    step = _least(passes, min(EPSILON_STEPS, steps_max), steps_max)
    if step is None:
        raise Unplannable(
            f"No epsilon up to {Decimal(steps_max) / EPSILON_STEPS:f} lets {n:,} reports show so small a share: "
            "it takes more reports."
        )
    return Decimal(step) / EPSILON_STEPS


def _shows(mechanism: PureMechanism, n: int, repeats: int, share: float) -> bool:
    detectable = standing_shares(mechanism, n, repeats=repeats)[1]
    return detectable is not None and detectable <= share


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


def neighbours(planned: Planned) -> Sequence[Planned]:
    """Return the detectable shares of half and twice the reports, and at half and twice the epsilon, where these are.

    The plan itself stands among them, in the order of n and of epsilon.
    """
    n, epsilon, question = planned.n, planned.epsilon, planned.question
    most = question.epsilon_permanent or EPSILON_MAX + 1
    half = (epsilon / 2).quantize(Decimal("0.01"))
    around = [(max(n // 2, 1), epsilon), (n, epsilon), (min(2 * n, N_MAX), epsilon), (n, half), (n, 2 * epsilon)]
    there = [(n, epsilon) for n, epsilon in dict.fromkeys(around) if EPSILON_MIN <= epsilon < most]
    return [_forward(question, n, epsilon, "share") for n, epsilon in there if epsilon <= EPSILON_MAX]


def registry_lines(planned: Planned, app: str, expires: date) -> str:
    """Return a registry with the planned metric, which `dither metrics check` takes; its words are to be replaced.

    A long list of values is in values.txt, one a line and without "other", which comes by itself.
    """
    question = planned.question
    whole = planned.question.epsilon_permanent or planned.epsilon
    lines = [
        "[registry]",
        f'app = "{app}"',
        f"device_epsilon = {whole:f}  # at least what all metrics reserve together",
        "",
        "[metric.planned]",
        "rev = 1",
        f'kind = "{question.kind}"',
        'question = "What do you want to know?"  # what people read',
        *_values(question),
        f"epsilon = {planned.epsilon:f}",
        *_life(question),
        'presence = "public"',
        f'period = "{PERIOD_DAYS}d"',
        'owners = ["team@example.org"]',
        'sensitivity = "low"',
        f"expires = {expires}",
    ]
    return "\n".join(lines) + "\n"


def _values(question: Question) -> list[str]:
    if question.kind == "flag":
        return []
    listed = question.d - 1
    lines = ['values_file = "values.txt"  # ' + f"{listed:,} lines, a value each; other comes by itself"]
    if listed <= VALUES_SHOWN_MAX:
        names = ", ".join(f'"value {number}"' for number in range(1, listed + 1))
        lines = [f"values = [{names}]  # other comes by itself"]
    return lines if question.ticks is None else [*lines, f"ticks_max = {question.ticks}"]


def _life(question: Question) -> list[str]:
    if question.epsilon_permanent is None:
        return ["reports = 1  # in a device's life; each further one costs epsilon again"]
    return [
        "memoize = true",
        f"epsilon_permanent = {question.epsilon_permanent:f}",
        "answers = 1  # different ones in a device's life; each further one costs epsilon_permanent again",
    ]
