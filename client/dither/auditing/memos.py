"""How far the reports of a device speak for one answer against another, and the exact law of that.

The reports of one memo depend on each other, since all are copies of it. So they are added up. Let A be the memos that
are likeliest under one answer against another, of which a report is in A with probability a if the memo is, and b if
it is not. Then the number of r reports in A is binomial, of a or of b. Bits are added up likewise, each that differs.
"""

from collections.abc import Callable, Sequence
from math import comb
from typing import Any

from dither.auditing.bounds import roughly_expected
from dither.auditing.exact import Paths, law_of
from dither.auditing.laws import BitsLaw, Law, TableLaw
from dither.auditing.plans import law_of_permanent, law_of_report
from dither_shared.frozen import frozen
from dither_shared.mechanisms import Mechanism
from dither_shared.registry import Metric


@frozen
class Telling:
    """A score of the reports of one cell, which is at least `least` more often under one answer than under another."""

    score: Callable[[int], int]
    least: int
    p: float
    q: float

    def holds(self, reports: Sequence[int]) -> bool:
        """Tell whether reports speak for the one answer."""
        return sum(map(self.score, reports)) >= self.least


def telling(
    metric: Metric, cell: int, answers: tuple[Any, Any], reports: int, n: int, alpha: float, paths: Paths
) -> Telling | None:
    """Return the best score of so many reports; None where the two answers have one law. May raise TooMany."""
    mechanism = metric.cells.mechanism_of(cell)
    if reports == 1:
        one, other = (law_of_report(metric, cell)(answer, paths) for answer in answers)
        events = [event for event in one.events(other) if event.p > event.q]
        if not events:
            return None
        best = max(events, key=lambda event: roughly_expected(event.p, event.q, n, alpha))
        return Telling(lambda report: int(best.holds(report)), 1, best.p, best.q)
    one, other = (law_of_permanent(metric, cell)(answer, paths) for answer in answers)
    if one.ratio(other) == 1:
        return None
    if isinstance(one, BitsLaw) and isinstance(other, BitsLaw):
        score, laws = _of_bits(mechanism, one, other, reports)
    else:
        score, laws = _of_symbols(mechanism, one, other, reports, paths)
    tails = [tuple(sum(law[least:]) for law in laws) for least in range(1, len(laws[0]))]
    hoped = [roughly_expected(min(p, 1.0), min(q, 1.0), n, alpha) for p, q in tails]
    place = hoped.index(max(hoped))
    return Telling(score, place + 1, *(min(tail, 1.0) for tail in tails[place]))


Laws = tuple[list[float], list[float]]
"""The law of a score under either answer."""


def _of_symbols(
    mechanism: Mechanism, one: Law, other: Law, reports: int, paths: Paths
) -> tuple[Callable[[int], int], Laws]:
    assert isinstance(one, TableLaw)
    event = next(one.events(other))
    inside = next(memo for memo in one.probabilities if event.holds(memo))
    outside = next((memo for memo in one.probabilities if not event.holds(memo)), inside)
    a, b = (_share(mechanism, memo, event.holds, paths) for memo in (inside, outside))
    laws = tuple(_mixed(share, a, b, reports) for share in (event.p, event.q))
    return lambda report: int(event.holds(report)), (laws[0], laws[1])


def _share(mechanism: Mechanism, memo: Any, holds: Callable[[Any], bool], paths: Paths) -> float:
    law = law_of(lambda rng: mechanism.repeat(memo, rng), paths)
    assert isinstance(law, TableLaw)
    return float(sum(p for report, p in law.probabilities.items() if holds(report)))


def _of_bits(mechanism: Mechanism, one: BitsLaw, other: BitsLaw, reports: int) -> tuple[Callable[[int], int], Laws]:
    sent = [sent_as_one(mechanism, memo) for memo in (0, (1 << len(one.ones)) - 1)]
    places = [place for place, pair in enumerate(zip(one.ones, other.ones, strict=True)) if pair[0] != pair[1]]
    ones = sum(1 << place for place in places if one.ones[place] > other.ones[place])
    mask = sum(1 << place for place in places)
    laws = []
    for law in (one, other):
        total = [1.0]
        for place in places:
            alike, sent_0, sent_1 = (float(each[place]) for each in (law.ones, *sent))
            if not ones >> place & 1:
                alike, sent_0, sent_1 = 1 - alike, 1 - sent_1, 1 - sent_0
            total = _sum_of(total, _mixed(alike, sent_1, sent_0, reports))
        laws.append(total)
    return lambda report: (~(report ^ ones) & mask).bit_count(), (laws[0], laws[1])


def sent_as_one(mechanism: Mechanism, memo: int) -> Sequence[Any]:
    """Return the probability of each bit of a memo's report that it is 1."""
    law = law_of(lambda rng: mechanism.repeat(memo, rng))
    assert isinstance(law, BitsLaw)
    return law.ones


def _mixed(share: float, a: float, b: float, reports: int) -> list[float]:
    """Return the law of a number that is binomial of a with probability `share`, else of b."""
    return [
        comb(reports, k) * (share * a**k * (1 - a) ** (reports - k) + (1 - share) * b**k * (1 - b) ** (reports - k))
        for k in range(reports + 1)
    ]


def _sum_of(one: list[float], other: list[float]) -> list[float]:
    total = [0.0] * (len(one) + len(other) - 1)
    for i, p in enumerate(one):
        for j, q in enumerate(other):
            total[i + j] += p * q
    return total
