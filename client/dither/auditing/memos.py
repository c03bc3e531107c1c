"""Reports of one memo, taken together: how far they speak for an answer, and for a device."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from math import comb, exp, log, log1p
from operator import add, getitem
from typing import Any

from dither.auditing.claims import Repetition, law_of_permanent, law_of_report
from dither.auditing.laws import BitsLaw, Law, Paths, TableLaw, law_of
from dither.auditing.samples import roughly_expected
from dither.auditing.simulated import Reported, Simulated, cut_down, reports_of
from dither_shared.accounting import linked_share
from dither_shared.frozen import frozen, replaced
from dither_shared.mechanisms import DEVICES, Mechanism
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

# How far the reports of a device speak for one answer against another, and the exact law of that.
#
# The reports of one memo depend on each other, since all are copies of it. So they are added up. Let A be the memos
# that are likeliest under one answer against another, of which a report is in A with probability a if the memo is, and
# b if it is not. Then the number of r reports in A is binomial, of a or of b. Bits are added up likewise, each that
# differs.


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


# The likelihood of reports that are copies of one memo, whose law is known, and of two such sets together.
#
# Let P[u] be the law of the memo and r(y | u) that of a report of it, so that reports y of one memo have the
# probability
#
#     sum over u of P[u] r(y1 | u) r(y2 | u) ...
#
# A symbol is kept with a probability that is the same for all, else any other one is sent. Then r(y | u) has two
# values, and a report of u weighs for it by the logarithm of their ratio. Bits are independent, each a memo of its own.

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


# Linking, measured: who can be recognised among devices with the same answer, by whoever keeps every report.
#
# `POPULATION` devices answer the same in 14 periods and in 14 more. Their uploads of before and of after are shuffled,
# and each device of before is paired with the one of after that is likeliest the same: by what lasts in the clear,
# cohort and public column, which must agree, and by the likelihood of both sets of reports as copies of one memo
# against that of two. R of `dither_shared/accounting` is what many reports come to. So many tell nearly that
# of most memos, and less where epsilon is small beside `epsilon_permanent`.

POPULATION = DEVICES
LINKED = f"device, linked of {POPULATION}"
BEFORE = 14
"""Periods until the reports of a device are to be recognised, and as many after it."""
TOGETHER = "(all)"
"""The name of all metrics together."""
SAME = 1e-9
"""Gains that differ by less are the same."""


def linking_claims(registry: Registry, metrics: Sequence[Metric]) -> Iterator[Repetition]:
    """Yield the claims that no more devices can be linked than R says: by each metric, and by all together."""
    for subject, together in linkable(metrics):
        crowd = Crowd(registry, together)
        yield Repetition(
            subject,
            LINKED,
            Fraction(crowd.expected),
            crowd.joined,
            POPULATION,
            "more devices can be linked",
        )


def linkable(metrics: Sequence[Metric]) -> list[tuple[str, tuple[Metric, ...]]]:
    """Return what devices can be linked by, with its name: each metric with something that lasts, and all of them."""
    lasting = [metric for metric in metrics if linked_share((metric.cells,)) is not None]
    found: list[tuple[str, tuple[Metric, ...]]] = [(metric.name, (metric,)) for metric in lasting]
    if len(lasting) > 1:
        found.append((TOGETHER, tuple(lasting)))
    return found


@frozen
class Copied:
    """The reports of one memo: their law, their summary, and ln P of them alone."""

    copies: MemoLikelihood
    summary: Any
    alone: float

    def gain(self, other: "Copied") -> float:
        """Return how far it speaks for one memo that others are copies of it, too."""
        return self.copies.together(self.summary, other.summary) - self.alone - other.alone


@frozen
class Imprint:
    """The marks of one metric in some uploads of a device: those sent in the clear for good, and copies of a memo."""

    clear: tuple[int, ...]
    memo: Copied | None


Trace = tuple[Imprint, ...]
"""A mark for each metric."""


def paired(before: Sequence[Trace], after: Sequence[Trace], rng: Rng) -> int:
    """Return how many of `before` are paired with the trace at their own place: each with the likeliest one.

    Ties are drawn by lot.
    """
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = defaultdict(list)
    for place, trace in enumerate(after):
        alike[_clear(trace)].append(place)
    right = 0
    for own, trace in enumerate(before):
        gains = {place: _gain(trace, after[place]) for place in alike.get(_clear(trace), ())}
        best = max(gains.values(), default=0.0)
        likeliest = [place for place, gain in gains.items() if gain >= best - SAME]
        right += bool(likeliest) and likeliest[rng.uniform(len(likeliest))] == own
    return right


def _clear(trace: Trace) -> tuple[tuple[int, ...], ...]:
    return tuple(mark.clear for mark in trace)


def _gain(one: Trace, other: Trace) -> float:
    return sum(a.memo.gain(b.memo) for a, b in zip(one, other, strict=True) if a.memo and b.memo)


class Crowd:
    """Devices that answer the same about some metrics, period after period."""

    def __init__(self, registry: Registry, metrics: Sequence[Metric]) -> None:
        # A fresh report shows the public column: as many as there are periods, or there would be none after.
        self._registry = cut_down(
            registry, [each if each.memoized else replaced(each, charges=2 * BEFORE) for each in metrics]
        )
        self._metrics = list(self._registry.metrics.values())
        self._answers = {metric.name: metric.kind.examples(metric.asked)[0] for metric in metrics}
        self._publics = max(metric.cells.public for metric in metrics)
        self._copies = cache(self._copies_of)
        self.expected = linked_share(tuple(metric.cells for metric in metrics), POPULATION) or 0.0
        """R, by the formula."""

    def joined(self, rng: Rng) -> int:
        """Return how many devices of a new crowd are paired rightly."""
        before, after = self.lives(rng)
        return paired(before, after, rng)

    def lives(self, rng: Rng) -> tuple[list[Trace], list[Trace]]:
        """Return the traces of a new crowd before, and after, in the same order, with a mark for each metric."""
        lives = [self._live(rng) for _ in range(POPULATION)]
        return [before for before, _ in lives], [after for _, after in lives]

    def _live(self, rng: Rng) -> tuple[Trace, Trace]:
        """Return what a new device shows before and after."""
        reports: dict[str, list[Reported]] = {name: [] for name in self._answers}
        step = max(metric.period_days for metric in self._metrics)
        with Simulated(self._registry, rng, rng.uniform(self._publics)) as simulated:
            for period in range(2 * BEFORE + 1):
                for metric in self._metrics:
                    if period < 2 * BEFORE:  # what is hidden leaves in the period after
                        simulated.device.record(metric, self._answers[metric.name])
                for upload in simulated.send():
                    for metric in self._metrics:
                        reports[metric.name] += reports_of(upload, metric)
                simulated.travel(step)
        return self._trace(reports, 0), self._trace(reports, BEFORE)

    def _trace(self, reports: Mapping[str, Sequence[Reported]], since: int) -> Trace:
        return tuple(self._mark(each, reports[each.name][since : since + BEFORE]) for each in self._metrics)

    def _mark(self, metric: Metric, kept: Sequence[Reported]) -> Imprint:
        cells, cell = metric.cells, kept[0].cell
        clear = (cell,) if cells.lasting else (cell // cells.each,) if cells.public > 1 else ()
        if not cells.memoized:
            return Imprint(clear, None)
        copies = self._copies(metric, cell)
        summary = copies.summary(each.report for each in kept)
        return Imprint(clear, Copied(copies, summary, copies.likelihood(summary)))

    def _copies_of(self, metric: Metric, cell: int) -> MemoLikelihood:
        return memo_likelihood(metric, cell, self._answers[metric.name])
