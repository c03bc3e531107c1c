"""Laws of outcomes, as rational numbers: events that tell two apart, and the law of a randomizer by its own code."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import islice, zip_longest
from math import isnan, prod
from typing import Any

from dither.auditing.coins import BranchingRng, SymbolicBits, Undecidable, plain
from dither_shared.errors import ConfigurationError
from dither_shared.frozen import frozen
from dither_shared.rng import Rng

# Laws of outcomes, as rational numbers, and the events that tell two of them apart.

BITS_MAX = 10
"""An event is made of so many bits on which two inputs differ; where there are more, of the first ones."""

Outcome = Hashable


@frozen
class Likelier:
    """Outcomes that are likelier under one input, where their probability is p, than under another, where it is q."""

    holds: Callable[[Any], bool]
    p: float
    q: float


class Law(ABC):
    """The probability of each outcome under one input."""

    @abstractmethod
    def probability(self, outcome: Outcome) -> Fraction:
        """Return that of one outcome, 0 where it never comes."""

    @abstractmethod
    def ratio(self, other: "Law") -> Fraction | None:
        """Return the largest ratio of an outcome's probabilities, here to there; None where it is infinite."""

    @abstractmethod
    def events(self, other: "Law") -> Iterator[Likelier]:
        """Yield the sets of outcomes whose ratio is at least some level, from the highest level down."""

    @property
    @abstractmethod
    def repeats(self) -> Fraction:
        """P[two independent outcomes are equal]."""


@frozen
class TableLaw(Law):
    """The probability of each outcome that there is."""

    probabilities: dict[Outcome, Fraction]

    def probability(self, outcome: Outcome) -> Fraction:
        """Look it up."""
        return self.probabilities.get(outcome, Fraction(0))

    def ratio(self, other: Law) -> Fraction | None:
        """Compare every outcome."""
        # Integers are hashed far more quickly than fractions.
        pairs = {
            (p.as_integer_ratio(), other.probability(outcome).as_integer_ratio())
            for outcome, p in self.probabilities.items()
        }
        return max(Fraction(*p) / Fraction(*q) for p, q in pairs) if all(q[0] for _, q in pairs) else None

    def events(self, other: Law) -> Iterator[Likelier]:
        """Group outcomes by their ratio: a mechanism of two levels has three groups."""
        groups: dict[tuple[Fraction, Fraction], list[Outcome]] = defaultdict(list)
        for outcome, p in self.probabilities.items():
            groups[p, other.probability(outcome)].append(outcome)
        held: set[Outcome] = set()
        p = q = Fraction(0)
        for levels in sorted(groups, key=_order, reverse=True):
            held = held | set(groups[levels])
            p += len(groups[levels]) * levels[0]
            q += len(groups[levels]) * levels[1]
            yield Likelier(held.__contains__, float(p), float(q))

    @property
    def repeats(self) -> Fraction:
        """Add up squares."""
        return sum((count * p * p for p, count in Counter(self.probabilities.values()).items()), Fraction(0))


@frozen
class BitsLaw(Law):
    """The probability of each of independent bits that it is 1."""

    ones: tuple[Fraction, ...]

    def _pairs(self, other: "BitsLaw") -> Iterator[tuple[int, Fraction, Fraction]]:
        """Yield each bit that differs, with its two probabilities. A shorter string has zeros in front."""
        for place, (p, q) in enumerate(zip_longest(self.ones, other.ones, fillvalue=Fraction(0))):
            if p != q:
                yield place, p, q

    def _table(self, most: int) -> TableLaw | None:
        """Return this law as a table; None where that has more outcomes."""
        if 1 << sum(0 < one < 1 for one in self.ones) > most:
            return None
        table = [(0, Fraction(1))]
        for place, one in enumerate(self.ones):
            falls = [(bit << place, p) for bit, p in ((0, 1 - one), (1, one)) if p]
            table = [(report + bit, p * share) for report, p in table for bit, share in falls]
        return TableLaw(dict(table))

    def probability(self, outcome: Outcome) -> Fraction:
        """Multiply those of all bits."""
        if not isinstance(outcome, int) or not 0 <= outcome < 1 << len(self.ones):
            return Fraction(0)
        return _of_pattern(outcome, self.ones)

    def ratio(self, other: Law) -> Fraction | None:
        """Multiply the larger ratios of all bits. A table with fewer outcomes lacks some."""
        if not isinstance(other, BitsLaw):
            assert isinstance(other, TableLaw)
            table = self._table(len(other.probabilities))
            return table.ratio(other) if table else None
        pairs = [(p, q) for _, p, q in self._pairs(other)]
        if any((q == 0 < p) or (q == 1 > p) for p, q in pairs):
            return None
        return prod(
            (max(p / q if q else Fraction(0), (1 - p) / (1 - q) if q < 1 else Fraction(0)) for p, q in pairs),
            start=Fraction(1),
        )

    def events(self, other: Law) -> Iterator[Likelier]:
        """Group what the bits that differ can be by its ratio."""
        if not isinstance(other, BitsLaw):
            yield from self._events_of_table(other)
            return
        places, ones, ones_0 = tuple(zip(*islice(self._pairs(other), BITS_MAX), strict=True)) or ((), (), ())
        groups: dict[tuple[Fraction, Fraction], list[int]] = defaultdict(list)
        for pattern in range(1 << len(places)):
            p, q = (_of_pattern(pattern, each) for each in (ones, ones_0))
            groups[p, q].append(pattern)
        held: frozenset[int] = frozenset()
        p = q = Fraction(0)
        for levels in sorted(groups, key=_order, reverse=True):
            held |= frozenset(groups[levels])
            p += len(groups[levels]) * levels[0]
            q += len(groups[levels]) * levels[1]
            yield Likelier(_HasPattern(places, held).__call__, float(p), float(q))

    def _events_of_table(self, other: Law) -> Iterator[Likelier]:
        assert isinstance(other, TableLaw)
        table = self._table(len(other.probabilities))
        if table:
            yield from table.events(other)
            return
        common = sum((self.probability(outcome) for outcome in other.probabilities), Fraction(0))
        yield Likelier(lambda report: report not in other.probabilities, float(1 - common), 0.0)

    @property
    def repeats(self) -> Fraction:
        """Multiply those of all bits."""
        return prod((p * p + (1 - p) ** 2 for p in self.ones), start=Fraction(1))


class _HasPattern:
    """Whether the bits at some places are one of some patterns."""

    def __init__(self, places: Sequence[int], held: frozenset[int]) -> None:
        self._places, self._held = places, held

    def __call__(self, report: int) -> bool:
        return sum((report >> place & 1) << index for index, place in enumerate(self._places)) in self._held


def check_countable(outcome: Any) -> None:
    """Raise ConfigurationError for an outcome that cannot be counted: one without a hash, or a float that is no number.

    Two of the latter are not equal, so each would be an outcome of its own.
    """
    if isinstance(outcome, float) and isnan(outcome):
        raise ConfigurationError("outcomes must be equal to themselves, got a NaN: return a word instead")
    try:
        hash(outcome)
    except Exception as error:
        kind = type(outcome).__name__
        raise ConfigurationError(
            f"outcomes must be hashable, got a {kind}: return tuple(...) of it in the adapter ({error})"
        ) from error


def _of_pattern(pattern: int, ones: Sequence[Fraction]) -> Fraction:
    return prod((one if pattern >> index & 1 else 1 - one for index, one in enumerate(ones)), start=Fraction(1))


def _order(levels: tuple[Fraction, Fraction]) -> tuple[bool, Fraction]:
    p, q = levels
    return (q == 0 and p > 0), p / q if q else p


# The exact law of a randomizer: its own code, run once for every sequence of decisions that it can make.
#
# A law is a table of all outcomes with their probabilities, or the probability of each of many independent bits. Both
# are rational numbers, over ideal coins. An exception is an outcome like any other.

PATHS_MAX = 500_000
"""The most sequences of decisions that are tried for one claim: some seconds."""
DECISIONS_MAX = 300
"""The most decisions of one sequence: a randomizer may go on drawing until a coin falls."""
BRANCHES_OFF = 4
"""The first sequence tells how many there may be, to within about so much."""


class TooMany(Exception):
    """There are too many sequences of decisions to try each."""


class Paths:
    """The sequences of decisions that may still be tried."""

    def __init__(self, paths: int = PATHS_MAX) -> None:
        self.left = paths

    def needs(self, paths: int) -> None:
        """Raise TooMany where there are not so many."""
        if paths > self.left:
            raise TooMany(f"about {Decimal(paths):.0e} sequences of decisions")


def law_of(draw: Callable[[Rng], Any], paths: Paths | None = None) -> Law:
    """Return the law of what `draw` returns; raise TooMany or Undecidable where it cannot be told."""
    paths = paths or Paths()
    only = _Run([])
    first = outcome_of(draw, only.rng)
    if isinstance(first, SymbolicBits) and not only.taken:
        return BitsLaw(first.ones())
    return TableLaw(_table(draw, paths))


def repeats(draw: Callable[[Rng], Any], times: int) -> bool:
    """Tell whether `draw` returns the same each time that its first decisions are followed: a law asks for that.

    One that does not keeps something between calls, or draws elsewhere. One that does so behind other decisions alone
    is not found. Bits that cannot be followed are no difference: a law says so itself.
    """
    try:
        first, *others = (plain(outcome_of(draw, _Run([]).rng)) for _ in range(times))
    except (Undecidable, TooMany):
        return True
    return all(other == first for other in others)


def law_in_stages(first: Callable[[Rng], Any], second: Callable[[Any, Rng], Any], paths: Paths | None = None) -> Law:
    """Return the law of `second` on what `first` returns.

    One after the other there are far fewer sequences than at once, most of all where the second stage passes a memo on
    without a look at it: then one law of the second stage is enough.
    """
    paths = paths or Paths()
    law = law_of(first, paths)
    if isinstance(law, BitsLaw):
        return law_of(lambda rng: second(first(rng), rng), paths)
    assert isinstance(law, TableLaw)
    passed = _Passed()
    after = _table(lambda rng: second(passed, rng), paths)
    mixed: dict[Outcome, Fraction] = defaultdict(Fraction)
    if after and not any(map(raised, after)):
        kept = after.pop(passed, Fraction(0))
        came = sum((p for memo, p in law.probabilities.items() if not raised(memo)), Fraction(0))
        mixed.update((outcome, came * p) for outcome, p in after.items())
        for memo, weight in law.probabilities.items():
            mixed[memo] += weight * (1 if raised(memo) else kept)
        return TableLaw(dict(mixed))
    for memo, weight in law.probabilities.items():
        # A memo that is an exception never comes to the second stage.
        sent = {memo: Fraction(1)} if raised(memo) else _table(partial(_sent, second, memo), paths)
        for outcome, p in sent.items():
            mixed[outcome] += weight * p
    return TableLaw(dict(mixed))


class _Passed:
    """Stands for any memo. Any use of it but returning it raises TypeError."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise TypeError("a memo that is only passed on is not looked at")

    def __bool__(self) -> bool:
        raise TypeError("a memo that is only passed on is not looked at")


def _sent(second: Callable[[Any, Rng], Any], memo: Any, rng: Rng) -> Any:
    return second(memo, rng)


def outcome_of(draw: Callable[[Rng], Any], rng: Rng) -> Any:
    """Return what a randomizer returns, or ("raises", the exception's name)."""
    try:
        return draw(rng)
    except (Undecidable, TooMany):
        raise
    except (Exception, SystemExit) as error:
        return "raises", type(error).__name__


def raised(outcome: object) -> bool:
    """Tell whether an outcome is an exception."""
    return isinstance(outcome, tuple) and outcome[:1] == ("raises",)


class _Run:
    """Follows decisions, then takes the first branch of each new one."""

    def __init__(self, decisions: list[int]) -> None:
        self._decisions = decisions
        self.taken: list[tuple[int, tuple[int, ...]]] = []
        self.rng = BranchingRng(self._decide)

    def _decide(self, weights: tuple[int, ...]) -> int:
        place = len(self.taken)
        if place >= DECISIONS_MAX:
            raise TooMany(f"sequences of more than {DECISIONS_MAX:,} decisions")
        choice = self._decisions[place] if place < len(self._decisions) else 0
        self.taken.append((choice, weights))
        return choice


def branches(weights: tuple[int, ...]) -> int:
    """Return how many branches a decision has."""
    return weights[0] if len(weights) == 1 else len(weights)


def _table(draw: Callable[[Rng], Any], paths: Paths) -> dict[Outcome, Fraction]:
    """Follow every sequence. Sequences of the same weights are counted, and their probability is computed once."""
    counts: dict[tuple[Outcome, tuple[Any, ...]], int] = defaultdict(int)
    pending: list[list[int]] = [[]]
    followed = 0
    while pending:
        decisions = pending.pop()
        run = _Run(decisions)
        outcome = plain(outcome_of(draw, run.rng))
        check_countable(outcome)
        if not followed:
            paths.needs(prod(branches(weights) for _, weights in run.taken) // BRANCHES_OFF)
        followed += 1
        if followed + len(pending) > paths.left:
            raise TooMany(f"more than {followed + len(pending):,} sequences of decisions")
        key = tuple(weights if len(weights) == 1 else (weights[choice], sum(weights)) for choice, weights in run.taken)
        counts[outcome, key] += 1
        for place in range(len(decisions), len(run.taken)):
            prefix = [choice for choice, _ in run.taken[:place]]
            pending += [[*prefix, other] for other in range(1, branches(run.taken[place][1]))]
    paths.left -= followed
    probability: dict[tuple[Any, ...], Fraction] = {}
    law: dict[Outcome, Fraction] = defaultdict(Fraction)
    for (outcome, key), count in counts.items():
        if key not in probability:
            probability[key] = prod(
                (Fraction(1, each[0]) if len(each) == 1 else Fraction(*each) for each in key), start=Fraction(1)
            )
        law[outcome] += count * probability[key]
    return dict(law)
