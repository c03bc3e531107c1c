"""Trials: who attacks whom, how they guess, and what was measured of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import inf, log
from typing import TypeVar

from dither.auditing.claims import NOTHING as SILENCE
from dither.auditing.claims import inputs_of, law_of_report
from dither.auditing.coins import Undecidable
from dither.auditing.laws import BitsLaw, Law, Paths, TableLaw, TooMany
from dither.auditing.memos import MemoLikelihood, memo_likelihood
from dither.auditing.samples import Spread, in_turn, least_share, least_share_of_paired, paired_interval, share_interval
from dither.auditing.simulated import Reported
from dither_shared.accounting import sure
from dither_shared.errors import ConfigurationError
from dither_shared.exact import exp_of_micro
from dither_shared.frozen import frozen
from dither_shared.registry import Metric, Registry
from dither_shared.rng import SYSTEM, Rng

# Guesses: how far all reports of a device speak for one answer against another.
#
# The attacker knows the code and its integers, believes 1 : 1 beforehand, and guesses the answer under which the
# reports are likelier: no other rule is right more often. Reports under fresh noise are independent, and copies of a
# memo are not (`dither/auditing/memos.py`).

Answers = tuple[object, object]


class Reader(ABC):
    """Somebody who reads a device's reports and knows the laws of two answers."""

    @abstractmethod
    def log_odds(self, reports: Sequence[Reported]) -> float:
        """Return ln P[reports | one answer] / P[reports | other answer]."""


def reader_of(metric: Metric, answers: Answers) -> Reader:
    """Return a reader of a metric's reports; raise ConfigurationError where their laws are too large to be told."""
    return reader_of_copies(metric, answers) if metric.memoized else _known(_OfFresh(metric, answers), metric)


def reader_of_copies(metric: Metric, answers: Answers) -> "OfCopies":
    """Return the same of a memoized metric."""
    return _known(OfCopies(metric, answers), metric)


def can_be_read(metric: Metric) -> bool:
    """Tell whether the laws of a metric's answers are small enough to be told."""
    one, *_ = metric.kind.examples(metric.asked)
    try:
        reader_of(metric, (one, one))
    except ConfigurationError:
        return False
    return True


R = TypeVar("R", "OfCopies", "_OfFresh")


def _known(reader: R, metric: Metric) -> R:
    try:
        for cell in range(metric.cells.count):
            reader.learn(cell)
            if len(metric.cells.parts) == 1:
                break  # all others are alike, and are learned when they are met
    except (TooMany, Undecidable) as error:
        raise ConfigurationError(
            f"the law of {metric.name} cannot be told ({error}): attack another metric by --metric"
        ) from None
    return reader


class _OfFresh(Reader):
    def __init__(self, metric: Metric, answers: Answers) -> None:
        def learn(cell: int) -> tuple[Law, Law]:
            paths = Paths()
            one, other = (law_of_report(metric, cell)(answer, paths) for answer in answers)
            return one, other

        self.learn = cache(learn)
        self._weight = cache(lambda cell, report: _log_ratio(*self.learn(cell), report))

    def log_odds(self, reports: Sequence[Reported]) -> float:
        return sum(self._weight(each.cell, each.report) for each in reports)


def _log_ratio(one: Law, other: Law, report: int) -> float:
    """Return ln of the ratio of a report's probabilities."""
    if isinstance(one, BitsLaw) and isinstance(other, BitsLaw):
        return sum(
            log(p / q) if report >> place & 1 else log((1 - p) / (1 - q))
            for place, (p, q) in enumerate(zip(one.ones, other.ones, strict=True))
            if p != q
        )
    assert isinstance(one, TableLaw)
    assert isinstance(other, TableLaw)
    p, q = (law.probabilities.get(report, 0) for law in (one, other))
    return log(p / q) if p and q else inf if p else -inf


class OfCopies(Reader):
    """A reader of copies of memos. `learn` returns their laws in a cell, one for each answer."""

    def __init__(self, metric: Metric, answers: Answers) -> None:
        def learn(cell: int) -> tuple[MemoLikelihood, MemoLikelihood]:
            paths = Paths()
            one, other = (memo_likelihood(metric, cell, answer, paths) for answer in answers)
            return one, other

        self.learn = cache(learn)

    def log_odds(self, reports: Sequence[Reported]) -> float:
        """Weigh all of them together."""
        if not reports:
            return 0.0
        one, other = self.learn(reports[0].cell)
        summary = one.summary(each.report for each in reports)
        return one.likelihood(summary) - other.likelihood(summary)


def guess(log_odds: float, rng: Rng) -> bool:
    """Return whether to guess the one answer: the likelier one, and of two that are equally likely either."""
    tie = bool(rng.uniform(2))
    return tie if abs(log_odds) < 1e-9 else log_odds > 0


# Trials: what is simulated, and what was measured of it.

ERROR = 1e-6
"""The error of all verdicts together: attacks on sound mechanisms are above a bound in one of 1 / ERROR runs."""
_STEPS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 45, 60, 90, 120, 180, 270, 365, 540, 730)

RANDOMIZER, DEVICE, NOTHING_BETWEEN = "the randomizer alone", "whole devices", "no device"


@frozen
class Trial:
    """The target, and the effort."""

    registry: Registry
    fresh: Metric | None
    """A metric of fresh noise; None where the registry has none."""
    memoized: Metric | None
    days: int
    devices: int
    rng: Rng = SYSTEM
    spread: Spread = in_turn

    def answers(self, metric: Metric) -> tuple[object, object]:
        """Return the two answers that the attacker has to tell apart: they lie as far apart as any."""
        one, other, *_ = (each.value for each in inputs_of(metric) if each.value is not SILENCE)
        return one, other

    def steps(self, metric: Metric) -> list[int]:
        """Return the numbers of periods after which a guess is made: all of the trial's days at last."""
        last = max(1, self.days // metric.period_days)
        return [*(step for step in _STEPS if step < last), last]

    def tally(self, life: Callable[[Rng], Sequence[bool]], each: int) -> list[int]:
        """Return of how many devices each part of `life` is true, which takes as long as `each` usual samples."""

        def work(share: int) -> list[list[bool]]:
            return [list(life(self.rng)) for _ in range(share)]

        rows = [row for share in self.spread(work, self.devices, each) for row in share]
        return [sum(column) for column in zip(*rows, strict=True)]


@frozen
class Score:
    """The number of devices of which something came out after so long, and the most that it may be."""

    x: float
    right: int
    n: int
    bound: float | None = None
    """By the formula, a probability; None where nothing is promised."""
    paired: bool = False
    """Whether devices were paired with each other, so that they are no independent samples."""

    @property
    def share(self) -> float:
        """The share of the devices."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of that share, at 95 %."""
        return (paired_interval if self.paired else share_interval)(self.right, self.n)

    def above_its_bound(self, error: float) -> bool:
        """Tell whether the share is proved to be above the bound, at this error."""
        least = least_share_of_paired if self.paired else least_share
        return self.bound is not None and least(self.right, self.n, error) > self.bound


@frozen
class Way:
    """One way of doing it, and its scores over time."""

    name: str
    by: str
    """The code that ran: RANDOMIZER, DEVICE or NOTHING_BETWEEN."""
    points: tuple[Score, ...]
    computed: tuple[tuple[float, float], ...] = ()
    """Scores by an exact law, as far as it is known: x and probability."""

    by_formula: bool = False
    """Whether the bounds of its points are what is `computed`, too."""

    @property
    def last(self) -> Score:
        """The last point."""
        return self.points[-1]


@frozen
class Attack:
    """An attack: what is warned of, what was measured, what dither does about it, and what it does not prevent."""

    name: str
    title: str
    warning: str
    source: str
    measured: str
    answer: str
    left: str
    across: str
    """The words of the axis across."""
    up: str
    """The words of the axis up: what the attacker got right."""
    lines: tuple[Way, ...]
    logarithmic: bool = True
    least: float = 0.4
    """The least share on the axis up."""

    def broken(self, error: float) -> list[Way]:
        """Return the lines that are proved to be above their bound."""
        return [line for line in self.lines if any(point.above_its_bound(error) for point in line.points)]


def most_sure(micro: int) -> float:
    """Return what a guess of 1 : 1 can become at most, of outputs of so many micro-epsilon."""
    return float(sure(exp_of_micro(micro)))


def most_sure_of(exp_epsilon: Fraction) -> float:
    """Return the same, of an exact e^epsilon."""
    return float(sure(exp_epsilon))


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"
