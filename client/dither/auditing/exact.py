"""The exact law of a randomizer: its own code, run once for every sequence of decisions that it can make.

A law is a table of all outcomes with their probabilities, or the probability of each of many independent bits. Both are
rational numbers, over ideal coins. An exception is an outcome like any other.
"""

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

from dither.auditing.coins import BranchingRng
from dither.auditing.laws import BitsLaw, Law, Outcome, TableLaw, check_countable
from dither.auditing.symbolic_rng import SymbolicBits, Undecidable, plain
from dither_shared.rng import Rng

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
    """Follow every sequence. Those with the same weights are counted, and their probability computed once."""
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
