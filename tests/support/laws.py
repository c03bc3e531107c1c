"""The exact law of a randomizer: its own code, run once for every sequence of decisions it can make."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from math import lcm, prod

import numpy as np
import numpy.typing as npt

from dither_aggregator.counting import Counts
from dither_shared.mechanisms import GRR, PGR, Mechanism, Memoized, PrivSet, PureMechanism, SubsetSelection
from dither_shared.mechanisms.mechanism import MemoizedPure
from dither_shared.plan import Plan
from dither_shared.rng import COIN_BITS, Rng

Law = dict[int, Fraction]
COINS = 1 << COIN_BITS

KEPT_LAWS = 4096
"""So many laws are kept: tests of one mechanism ask for the same ones."""


class BranchingRng(Rng):
    """Follows a list of decisions, then takes the first branch of each new one, noting every branch's weight."""

    def __init__(self, decisions: list[int]) -> None:
        super().__init__(randbits=self._never)
        object.__setattr__(self, "decisions", decisions)
        object.__setattr__(self, "taken", [])

    decisions: list[int]
    taken: list[tuple[int, Sequence[int], int]]
    """The branch that each decision took, the weights of all, and their sum."""

    @staticmethod
    def _never(bits: int) -> int:
        raise AssertionError("a mechanism draws coins and uniform choices, never bits")

    def _decide(self, branches: Sequence[int], whole: int) -> int:
        place = len(self.taken)
        choice = self.decisions[place] if place < len(self.decisions) else 0
        self.taken.append((choice, branches, whole))
        return choice

    def coin(self, threshold: int) -> bool:
        return bool(self._decide((COINS - threshold, threshold), COINS))

    def coins(self, threshold: int, count: int) -> int:
        return sum(self.coin(threshold) << place for place in range(count))

    def uniform(self, size: int) -> int:
        return self._decide((1,) * size, size)


def law_of(draw: Callable[[Rng], int]) -> Law:
    """Return the probability of each outcome of `draw`, exactly."""
    # Integers by the denominators that occur: a fraction would be reduced at each step.
    weights: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    pending: list[list[int]] = [[]]
    while pending:
        decisions = pending.pop()
        rng = BranchingRng(decisions)
        outcome = draw(rng)
        weight = prod(branches[choice] for choice, branches, _ in rng.taken)
        weights[outcome][prod(whole for *_, whole in rng.taken)] += weight
        for place in range(len(decisions), len(rng.taken)):
            prefix = [choice for choice, *_ in rng.taken[:place]]
            pending += [[*prefix, other] for other in range(1, len(rng.taken[place][1]))]
    return {
        outcome: sum((Fraction(weight, whole) for whole, weight in parts.items()), Fraction())
        for outcome, parts in weights.items()
    }


def law(mechanism: PureMechanism, values: Sequence[int]) -> Law:
    """Return the probability of each report for the answer that holds `values`, exactly."""
    return law_of_class(mechanism, mechanism.class_of(values))


@lru_cache(maxsize=KEPT_LAWS)
def law_of_class(mechanism: Mechanism, answer: int) -> Law:
    """Return the probability of each report for an answer of this class, exactly."""
    if isinstance(mechanism, Memoized):
        # The two stages one after the other: far fewer branches than both at once, and the same law.
        memos = law_of(lambda rng: mechanism.permanent.randomize(answer, rng))
        return {report: probability for (report,), probability in law_of_repeats(mechanism, memos, 1).items()}
    return law_of(lambda rng: mechanism.randomize(answer, rng))


@lru_cache(maxsize=KEPT_LAWS)
def repeats(mechanism: Memoized, memo: int) -> Law:
    """Return the probability of each report of a memo, exactly."""
    return law_of(lambda rng: mechanism.repeat(memo, rng))


def law_of_series(parts: Sequence[tuple[Fraction, Law]], count: int) -> dict[tuple[int, ...], Fraction]:
    """Return the probability of each series of `count` reports, all of one of some laws with these weights, exactly."""
    # Integers over one denominator multiply far more quickly than fractions.
    whole = lcm(*(weight.denominator for weight, _ in parts))
    each = lcm(*(probability.denominator for _, one in parts for probability in one.values()))
    scaled = [
        (int(weight * whole), {report: int(probability * each) for report, probability in one.items()})
        for weight, one in parts
    ]
    reports = sorted({report for _, one in parts for report in one})
    return {
        series: Fraction(
            sum(weight * prod(one.get(report, 0) for report in series) for weight, one in scaled), whole * each**count
        )
        for series in product(reports, repeat=count)
    }


def law_of_repeats(mechanism: Memoized, memos: Law, count: int) -> dict[tuple[int, ...], Fraction]:
    """Return the probability of each series of reports of one memo, which is drawn by the law `memos`, exactly."""
    return law_of_series([(weight, repeats(mechanism, memo)) for memo, weight in memos.items()], count)


def answers(mechanism: PureMechanism) -> list[tuple[int, ...]]:
    """Return every answer: one value, or up to `ticks` of them where several may be ticked, none included."""
    if mechanism.ticks == 1:
        return [(value,) for value in range(mechanism.d)]
    sizes = range(mechanism.ticks + 1)
    return [chosen for size in sizes for chosen in combinations(range(mechanism.d), size)]


def draw_reports(
    mechanism: PureMechanism, answered: Sequence[tuple[int, ...]], people: Counts, times: int, rng: np.random.Generator
) -> Counts:
    """Draw the tallies of many runs in which devices report `times` times: int64[runs, size].

    `people`, int64[runs, answers], says how many devices give each answer. Each has one memo, or fresh noise each time.
    """
    drawn = np.zeros((len(people), mechanism.shape.size), dtype=np.int64)
    for place, answer in enumerate(answered):
        if not isinstance(mechanism, MemoizedPure):
            drawn += _drawn(mechanism, law(mechanism, answer), times * people[:, place], rng)
            continue
        memos = law(mechanism.permanent, answer)
        held = rng.multinomial(people[:, place], _chances(memos))
        for memo, number in zip(memos, held.T, strict=True):
            drawn += _drawn(mechanism, repeats(mechanism, memo), times * number, rng)
    return drawn


def _drawn(mechanism: PureMechanism, reports: Law, number: Counts, rng: np.random.Generator) -> Counts:
    return np.asarray(rng.multinomial(number, _chances(reports)) @ _counted(mechanism, tuple(reports)))


def _chances(of: Law) -> npt.NDArray[np.float64]:
    chances = np.array([float(chance) for chance in of.values()])
    return np.asarray(chances / chances.sum())


@lru_cache(maxsize=KEPT_LAWS)
def _counted(mechanism: PureMechanism, reports: tuple[int, ...]) -> Counts:
    """Return what each report adds to a tally: its point, or the values that it supports and perhaps a dummy."""
    size, rows = mechanism.shape.size, np.zeros((len(reports), mechanism.shape.size), dtype=np.int64)
    for row, report in zip(rows, reports, strict=True):
        if mechanism.geometry:
            row[report] = 1
        else:
            row[: mechanism.d] = [supports(mechanism, report, value) for value in range(mechanism.d)]
    if mechanism.shape.raises is not None and not mechanism.geometry and size > mechanism.d:
        rows[:, -1] += mechanism.shape.raises - rows.sum(axis=1)
    return rows


def largest_ratio(laws: Sequence[Law]) -> Fraction:
    """Return the largest ratio of one outcome's probabilities under two of the laws."""
    assert len({frozenset(one) for one in laws}) == 1, "an outcome that only some answers have: e^epsilon is infinite"
    return max(max(one[y] for one in laws) / min(one[y] for one in laws) for y in laws[0])


def supports(mechanism: PureMechanism, report: int, value: int) -> bool:
    """The definition of support: the value named, a point on its hyperplane, a subset with it, its bit set."""
    design = mechanism.first_stage
    if isinstance(design, GRR):
        return report == value
    if isinstance(design, PGR):
        pairs = zip(design.unrank(report), design.unrank(value), strict=True)
        return sum(one * other for one, other in pairs) % design.order == 0
    if isinstance(design, SubsetSelection | PrivSet):
        return value in design.shape.members(report)
    return bool(report >> value & 1)


def pure(plan: Plan) -> PureMechanism:
    """Return the mechanism of a metric whose values are listed."""
    mechanism = plan.mechanism
    assert isinstance(mechanism, PureMechanism)
    return mechanism


def _never(bits: int) -> int:
    raise AssertionError("no coin is needed here")


NO_COINS = Rng(_never)
