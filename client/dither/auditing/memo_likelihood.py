"""The likelihood of reports that are copies of one memo, whose law is known, and of two such sets together.

Let P[u] be the law of the memo and r(y | u) that of a report of it, so that reports y of one memo have the probability

    sum over u of P[u] r(y1 | u) r(y2 | u) ...

A symbol is kept with a probability that is the same for all, else any other one is sent. Then r(y | u) has two values,
and a report of u weighs for it by the logarithm of their ratio. Bits are independent, each a memo of its own.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import exp, log, log1p
from operator import add, getitem
from typing import Any

from dither.auditing.exact import Paths, law_of
from dither.auditing.laws import BitsLaw, Law, TableLaw
from dither.auditing.memos import sent_as_one
from dither.auditing.plans import law_of_permanent
from dither_shared.mechanisms import Mechanism
from dither_shared.registry import Metric

Counted = tuple[tuple[int, int], ...]
"""Symbols, each with how often it came."""
TOGETHER_MAX = 1 << 16
"""Pairs of summaries whose likelihood is kept."""


class MemoLikelihood(ABC):
    """The law of one answer's memo, and of its reports. A summary of some reports is kept in their place."""

    @abstractmethod
    def summary(self, reports: Iterable[int]) -> Any:
        """Return all that counts of some reports."""

    @abstractmethod
    def both(self, one: Any, other: Any) -> Any:
        """Return the summary of two sets of reports together."""

    @abstractmethod
    def likelihood(self, summary: Any) -> float:
        """Return ln P[reports], but for a term that depends on how many there are alone."""

    def together(self, one: Any, other: Any) -> float:
        """Return it of two sets of reports together."""
        return self.likelihood(self.both(one, other))


def memo_likelihood(metric: Metric, cell: int, answer: Any, paths: Paths | None = None) -> MemoLikelihood:
    """Return the law of an answer's reports in a cell. Raises TooMany or Undecidable where it cannot be told."""
    mechanism = metric.cells.mechanism_of(cell)
    law = law_of_permanent(metric, cell)(answer, paths or Paths())
    return _Bits(law, mechanism) if isinstance(law, BitsLaw) else _Symbols(law, mechanism)


class _Symbols(MemoLikelihood):
    def __init__(self, law: Law, mechanism: Mechanism) -> None:
        assert isinstance(law, TableLaw)
        self._p = {memo: float(p) for memo, p in law.probabilities.items()}
        memo: Any = next(iter(self._p))
        sent = law_of(lambda rng: mechanism.repeat(memo, rng))
        assert isinstance(sent, TableLaw)
        other = next(report for report in sent.probabilities if report != memo)
        self._weight = log(sent.probabilities[memo] / sent.probabilities[other])
        # A crowd asks of each pair of devices, and few symbols make few summaries.
        self._together = lru_cache(TOGETHER_MAX)(super().together)

    def summary(self, reports: Iterable[int]) -> Counted:
        return tuple(sorted(Counter(reports).items()))

    def both(self, one: Counted, other: Counted) -> Counted:
        counts = dict(one)
        for memo, count in other:
            counts[memo] = counts.get(memo, 0) + count
        return tuple(counts.items())

    def together(self, one: Counted, other: Counted) -> float:
        return self._together(one, other)

    def likelihood(self, summary: Counted) -> float:
        terms, unseen = [], 1.0
        for memo, count in summary:
            p = self._p[memo]
            unseen -= p
            terms.append(log(p) + count * self._weight)
        if unseen > 0:
            terms.append(log(unseen))
        return log_sum(terms)


class _Bits(MemoLikelihood):
    """A summary is how many reports there are, and how often each bit is 1 in them."""

    def __init__(self, law: BitsLaw, mechanism: Mechanism) -> None:
        self._ones = [float(one) for one in law.ones]
        of_0, of_1 = (sent_as_one(mechanism, memo) for memo in (0, (1 << len(law.ones)) - 1))
        self._sent = [(float(a), float(b)) for a, b in zip(of_0, of_1, strict=True)]
        self._tables: dict[int, list[list[float]]] = {}

    def summary(self, reports: Iterable[int]) -> tuple[int, list[int]]:
        kept = list(reports)
        return len(kept), [sum(report >> place & 1 for report in kept) for place in range(len(self._ones))]

    def both(self, one: tuple[int, list[int]], other: tuple[int, list[int]]) -> tuple[int, list[int]]:
        return one[0] + other[0], list(map(add, one[1], other[1]))

    def likelihood(self, summary: tuple[int, list[int]]) -> float:
        count, ones = summary
        if count not in self._tables:
            self._tables[count] = self._table(count)
        return sum(map(getitem, self._tables[count], ones))

    def _table(self, count: int) -> list[list[float]]:
        """Return ln P of each bit, by how many of so many reports have it. Most bits have the same law."""
        laws: dict[tuple[float, tuple[float, float]], list[float]] = {}
        for key in zip(self._ones, self._sent, strict=True):
            if key not in laws:
                one, (of_0, of_1) = key
                laws[key] = [
                    log_sum(
                        [
                            log(share) + k * log(p) + (count - k) * log1p(-p)
                            for share, p in ((1 - one, of_0), (one, of_1))
                            if share
                        ]
                    )
                    for k in range(count + 1)
                ]
        return [laws[key] for key in zip(self._ones, self._sent, strict=True)]


def log_sum(terms: list[float]) -> float:
    """Return the logarithm of a sum, given those of its terms."""
    most = max(terms)
    return most + log(sum(exp(term - most) for term in terms))
