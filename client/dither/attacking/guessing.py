"""Guesses: how far all reports of a device speak for one answer against another.

The attacker knows the code and its integers, believes 1 : 1 beforehand, and guesses the answer under which the reports
are likelier: no other rule is right more often. Reports under fresh noise are independent, and copies of a memo are
not (`dither/auditing/memo_likelihood.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from math import inf, log
from typing import TypeVar

from dither.auditing.exact import Paths, TooMany
from dither.auditing.laws import BitsLaw, Law, TableLaw
from dither.auditing.memo_likelihood import MemoLikelihood, memo_likelihood
from dither.auditing.plans import law_of_report
from dither.auditing.simulated import Reported
from dither.auditing.symbolic_rng import Undecidable
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Metric
from dither_shared.rng import Rng

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
