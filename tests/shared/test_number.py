"""Numbers: the exact law of all that a device sends of one, in each of the three forms that a metric may have."""

import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import cast

import pytest

from dither_shared.domains.number_ranges import Placed, Range, Thresholds
from dither_shared.exact import exp_below
from dither_shared.kinds import Answer
from dither_shared.kinds.number import GRID, NumberKind, choose_points
from dither_shared.mechanisms import (
    DEVICE,
    GRR,
    Cells,
    MemoizedTwoLevel,
    Part,
    PureMechanism,
    SquareWave,
    choose,
    one_cell,
)
from dither_shared.registry import Metric
from dither_shared.rng import SCALE, Rng
from tests.support.laws import Law, largest_ratio, law_of, law_of_class, law_of_series, repeats
from tests.support.numbers import MEMO, SYMBOLS_MAX, law_of_report, number, places_of
from tests.support.soaking import thinned

KIND = NumberKind()
NEAR = 1 - Fraction(1, 10**9)

# A window and points: each report draws which.

MIXTURES = [
    number(edges=edges, epsilon=epsilon, presence=presence)
    for edges in ([0, 1], [0, 1, 4])
    for epsilon in thinned((Decimal("0.5"), 1, 4), 0, 2)
    for presence in ("public", "hidden")
]


def named(metric: Metric) -> str:
    return f"{metric.d} buckets, epsilon {metric.epsilon}, {metric.presence}"


@pytest.mark.parametrize("metric", MIXTURES, ids=named)
def test_the_largest_ratio_of_a_mixture_is_the_declared_one_over_all_answers_other_and_none(metric: Metric) -> None:
    """The cell is a window twice as often as points, whatever the answer."""
    laws = [law_of_report(metric, read) for read in places_of(metric)]
    assert all(sum(one.values()) == 1 for one in laws)
    assert largest_ratio(laws) == metric.cells.exp_epsilon
    for law in laws:
        check_shares(law)


def check_shares(law: Law) -> None:
    window = sum(probability for outcome, probability in law.items() if outcome < SYMBOLS_MAX)
    assert window == Fraction(2, 3)


@pytest.mark.parametrize("metric", MIXTURES, ids=named)
def test_both_cells_have_the_full_epsilon(metric: Metric) -> None:
    check_parts(metric.cells, metric.epsilon)


def check_parts(cells: Cells, epsilon: Decimal) -> None:
    """A cell above it would break the promise, one below it would waste accuracy."""
    wanted = exp_below(Decimal(epsilon))
    for part in cells.parts:
        assert wanted * NEAR < part.mechanism.exp_epsilon <= wanted


@pytest.mark.parametrize("metric", MIXTURES, ids=named)
def test_other_and_none_are_uniform_in_the_window_and_values_of_the_points(metric: Metric) -> None:
    window, points = (part.mechanism for part in metric.cells.parts)
    assert isinstance(window, SquareWave)
    assert isinstance(points, PureMechanism)
    assert (window.d, points.d) == (metric.d, metric.d + 1 + metric.hidden)
    for place, read in enumerate(places_of(metric)):
        law = law_of_report(metric, read)
        inside = {outcome for outcome in law if outcome < SYMBOLS_MAX}
        if place >= metric.d:
            assert {law[outcome] for outcome in inside} == {Fraction(2, 3) / window.outputs}
        of_points = law_of_class(points, place)
        assert {outcome - SYMBOLS_MAX: 3 * law[outcome] for outcome in law.keys() - inside} == of_points


def test_points_are_the_better_one_of_two() -> None:
    for d, epsilon in ((3, "4"), (66, "1"), (258, "0.5"), (12, "8"), (34, "20")):
        designs = [choose(d, Decimal(epsilon), name=name) for name in ("grr", "pgr")]
        assert choose_points(d, Decimal(epsilon)).average_variance == min(each.average_variance for each in designs)


# Planted bugs of a mixture.

SMALL = number(edges=[0, 1], presence="hidden")


def spoiled_law(read: Answer, cells: Cells, draw: Callable[[Placed, Rng], int]) -> Law:
    """Return the law of reports whose cell `draw` draws, looking at the answer or not."""

    def send(rng: Rng) -> int:
        cell = draw(cast("Placed", read), rng)
        mechanism = cells.mechanism_of(cell)
        class_ = SMALL.kind.class_of(read, SMALL.asked.domain, cells, cell, rng)
        return cell * SYMBOLS_MAX + mechanism.randomize(class_, rng)

    return law_of(send)


def test_a_cell_that_is_drawn_by_the_answer_would_be_caught() -> None:
    """Zeros, say, are better told by points. Who reads the cell then reads the answer."""
    cells = SMALL.cells

    def peeking(read: Placed, rng: Rng) -> int:
        return 1 if read == (0,) else cells.draw(rng)

    laws = [spoiled_law(read, cells, peeking) for read in places_of(SMALL)]
    with pytest.raises(AssertionError, match="infinite"):
        largest_ratio(laws)

    def leaning(read: Placed, rng: Rng) -> int:
        return int(rng.uniform(3) < (2 if read == (0,) else 1))

    laws = [spoiled_law(read, cells, leaning) for read in places_of(SMALL)]
    assert largest_ratio(laws) > cells.exp_epsilon
    with pytest.raises(AssertionError):
        check_shares(laws[0])


@pytest.mark.parametrize("epsilons", [("1", "2"), ("2", "1"), ("1", "0.5"), ("0.5", "1")])
def test_parts_at_different_epsilons_would_be_caught(epsilons: tuple[str, str]) -> None:
    """Declared is the largest, so this is a broken promise to whoever asked for the smaller, or wasted accuracy."""
    one, other = map(Decimal, epsilons)
    cells = Cells((Part(SquareWave.for_epsilon(3, one), weight=2), Part(choose_points(5, other))))
    with pytest.raises(AssertionError):
        check_parts(cells, Decimal(1))
    laws = [spoiled_law(read, cells, lambda _, rng: cells.draw(rng)) for read in places_of(SMALL)]
    assert largest_ratio(laws) == max(part.mechanism.exp_epsilon for part in cells.parts) == cells.exp_epsilon


def test_an_epsilon_of_the_first_part_alone_would_be_caught() -> None:
    cells = Cells((Part(SquareWave.for_epsilon(3, Decimal(1)), weight=2), Part(choose_points(5, Decimal(2)))))
    laws = [spoiled_law(read, cells, lambda _, rng: cells.draw(rng)) for read in places_of(SMALL)]
    assert largest_ratio(laws) > cells.parts[0].mechanism.exp_epsilon


class Labelled(SquareWave):
    """A planted bug: "other" is a symbol of its own."""

    def randomize(self, answer: int, rng: Rng) -> int:
        return self.outputs if answer == self.d else super().randomize(answer, rng)


def test_other_as_a_symbol_of_its_own_would_be_caught() -> None:
    cells = Cells((Part(Labelled.for_epsilon(3, Decimal(1)), weight=2), SMALL.cells.parts[1]))
    laws = [spoiled_law(read, cells, lambda _, rng: cells.draw(rng)) for read in places_of(SMALL)]
    with pytest.raises(AssertionError, match="infinite"):
        largest_ratio(laws)


# The mean alone: coins round the number to a grid.

WITHIN = Range((-1_000, 3_000), 3, "s")
PARTS = [0, 1, SCALE // 7, SCALE // 2 - 1, SCALE // 2, SCALE * 63 // 64, SCALE * 63 // 64 + 1, SCALE - 1, SCALE]
Rounding = Callable[[Placed, int, Rng], int]


def to_nearest(placed: Placed, points: int, rng: Rng) -> int:
    """Round without a coin: a planted bug."""
    return (placed[0] * (points - 1) + SCALE // 2) // SCALE


def check_mean(rounding: Rounding, points: int, part: int) -> None:
    law = law_of(lambda rng: rounding((part,), points, rng))
    assert sum(point * probability for point, probability in law.items()) == Fraction(part, SCALE) * (points - 1)
    likely = sorted(point for point, probability in law.items() if probability)
    assert 0 <= likely[0] <= likely[-1] < points
    assert likely[-1] - likely[0] <= 1


@pytest.mark.parametrize("points", [2, 5, GRID])
@pytest.mark.parametrize("part", PARTS)
def test_rounding_keeps_the_mean_exactly(part: int, points: int) -> None:
    check_mean(Range.round, points, part)


def test_rounding_to_the_nearest_point_would_be_caught() -> None:
    with pytest.raises(AssertionError):
        check_mean(to_nearest, GRID, SCALE // 7)


def test_a_number_is_its_part_of_the_range_and_is_cut_to_it() -> None:
    def part_of(number: Fraction) -> Fraction:
        (part,) = WITHIN.place(number.numerator, number.denominator)
        return Fraction(part, SCALE)

    for ratio in (Fraction(0), Fraction(1, 2), Fraction(-1), Fraction(3), Fraction(-5, 4), Fraction(10**30)):
        assert part_of(ratio) == min(max((ratio + 1) / 4, Fraction(0)), Fraction(1))
    assert part_of(Fraction(1, 3)) == Fraction((SCALE // 3), SCALE)
    assert WITHIN.place(1, 0) == (SCALE,)
    assert WITHIN.place(-1, 0) == WITHIN.unread() == (0,)


def law_of_mean(part: int, window: SquareWave) -> Law:
    """Return the law of a report after the rounding, with the kind's own code and a smaller grid."""
    cells = one_cell(window)
    mixed: Law = {}
    for point, weight in law_of(lambda rng: KIND.class_of((part,), WITHIN, cells, 0, rng)).items():
        for report, probability in law_of_class(window, point).items():
            mixed[report] = mixed.get(report, Fraction(0)) + weight * probability
    return mixed


@pytest.mark.parametrize(
    "window", [SquareWave.for_reach(5, 1, Decimal(1)), SquareWave.for_reach(3, 4, Decimal(2))], ids=str
)
def test_rounding_costs_no_epsilon(window: SquareWave) -> None:
    laws = [law_of_mean(part, window) for part in PARTS]
    assert all(sum(one.values()) == 1 for one in laws)
    assert largest_ratio(laws) == window.exp_epsilon


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "1.9", "2", "4", "8", "11.4", "20"])
def test_the_mean_alone_is_one_window_at_the_full_epsilon(epsilon: str) -> None:
    metric = number(low=0, high=10, asks=["mean"], epsilon=Decimal(epsilon))
    assert (metric.cells.count, metric.mechanism.name, metric.mechanism.parameters()["d"]) == (1, "window", GRID)
    check_parts(metric.cells, metric.epsilon)


# Memoized: whether a number is above a threshold within the cohort's step.

STEPS = Thresholds((0, 10, 30, 40, 100), 1, "s")
"""Its steps have unequal widths."""
COHORTS = range(STEPS.size)
NUMBERS = [Fraction(text) for text in ("-5", "0", "0.5", "1", "2.5", "3", "3.1", "7", "9.99", "10", "400")]


def above(number: Fraction, cohort: int) -> Fraction:
    """Return the probability that a number is above the threshold of a device of the cohort, by the code."""
    placed = STEPS.place(number.numerator, number.denominator)
    return law_of(lambda rng: int(Thresholds.passes(placed, cohort, rng))).get(1, Fraction(0))


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_steps_weighted_by_their_width_add_up_to_the_number(number: Fraction) -> None:
    """So the mean of all devices' bits is that of the numbers, cut to the edges, to 2^-64 of a step."""
    check_steps(above, number)


def check_steps(above: Callable[[Fraction, int], Fraction], number: Fraction) -> None:
    widths = [high - low for low, high in zip(STEPS.edges, STEPS.edges[1:], strict=False)]
    total = sum(width * above(number, cohort) for width, cohort in zip(widths, COHORTS, strict=True))
    cut = min(max(number * 10, Fraction(STEPS.edges[0])), Fraction(STEPS.edges[-1]))
    assert 0 <= cut - total < Fraction(max(widths), SCALE)


def test_a_threshold_at_the_edge_of_the_step_would_be_caught() -> None:
    """A planted bug: without a threshold of its own within the step a device rounds every number down to an edge."""

    def at_the_edge(number: Fraction, cohort: int) -> Fraction:
        return Fraction(STEPS.place(number.numerator, number.denominator)[0] > cohort)

    with pytest.raises(AssertionError):
        check_steps(at_the_edge, Fraction(7))


def test_a_larger_number_is_above_whatever_a_smaller_one_is() -> None:
    """The same coins, which a device always has: its threshold is one, so F is never answered in two ways."""
    for seed, cohort in product(range(40), COHORTS):
        placed = [STEPS.place(each.numerator, each.denominator) for each in NUMBERS]
        bits = [Thresholds.passes(each, cohort, Rng(random.Random(seed).getrandbits)) for each in placed]
        assert bits == sorted(bits)


def test_the_coin_is_drawn_whatever_the_number_is() -> None:
    for each, cohort in product(NUMBERS, COHORTS):
        drawn: list[int] = []

        def counting(bits: int, drawn: list[int] = drawn) -> int:
            drawn.append(bits)
            return 0

        Thresholds.passes(STEPS.place(each.numerator, each.denominator), cohort, Rng(counting))
        assert drawn == [64]


TWO_STAGES = cast("MemoizedTwoLevel", number(**MEMO, low=0, high=10, buckets=4).mechanism)


def series(chance: Fraction, count: int) -> dict[tuple[int, ...], Fraction]:
    """Return the law of reports of one device whose number is above its threshold with this probability."""
    return law_of_series(
        [
            (weight * probability, repeats(TWO_STAGES, memo))
            for bit, weight in ((1, chance), (0, 1 - chance))
            for memo, probability in law_of_class(TWO_STAGES.permanent, bit).items()
        ],
        count,
    )


def ratio_of(laws: Iterable[dict[tuple[int, ...], Fraction]]) -> Fraction:
    known = list(laws)
    return max(max(one[y] for one in known) / min(one[y] for one in known) for y in known[0])


@pytest.mark.parametrize("cohort", COHORTS)
def test_one_report_costs_epsilon_and_any_number_of_them_the_permanent_one(cohort: int) -> None:
    """Over all numbers, with the device's threshold as unknown as its memo."""
    chances = [above(each, cohort) for each in NUMBERS]
    assert {Fraction(0), Fraction(1)} < set(chances)
    ratios = [ratio_of(series(chance, count) for chance in chances) for count in (1, 2, 3, 4)]
    assert ratios[0] == TWO_STAGES.exp_epsilon
    assert ratios == sorted(ratios)
    assert exp_below(Decimal(1)) * NEAR < ratios[0] <= exp_below(Decimal(1))
    assert ratios[-1] < TWO_STAGES.permanent.exp_epsilon <= exp_below(Decimal(2))


def test_a_threshold_that_is_drawn_anew_for_each_report_would_cost_two_answers() -> None:
    """A planted bug: a number that stays gives both bits, so both memos are shown and paid for, and together tell more.

    Reports of a number in the middle of its step against those of one below: more than the permanent epsilon.
    """

    def redrawn(chance: Fraction, count: int) -> dict[tuple[int, ...], Fraction]:
        memos = [law_of_class(TWO_STAGES.permanent, bit) for bit in (0, 1)]
        parts = []
        for (low, p), (high, q) in product(memos[0].items(), memos[1].items()):
            kernels = [repeats(TWO_STAGES, memo) for memo in (low, high)]
            one = {report: (1 - chance) * kernels[0][report] + chance * kernels[1][report] for report in kernels[0]}
            parts.append((p * q, one))
        return law_of_series(parts, count)

    permanent = TWO_STAGES.permanent.exp_epsilon
    # Noise of either memo alone never has this middle rate: each report of a changing bit is a coin of its own.
    assert ratio_of(series(chance, 12) for chance in (Fraction(0), Fraction(1, 2))) < permanent
    assert ratio_of(redrawn(chance, 12) for chance in (Fraction(0), Fraction(1, 2))) > permanent


def test_a_device_has_at_most_two_answers_for_life() -> None:
    metric = number(**MEMO, low=0, high=10)
    assert (metric.charges, metric.charge, metric.reservation) == (2, 2_000_000, 4_000_000)
    assert metric.cells == Cells((Part(TWO_STAGES, 16),), DEVICE)
    assert isinstance(TWO_STAGES.permanent, GRR)
