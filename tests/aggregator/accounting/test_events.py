"""Trees of events against every outcome of what they stand for, and the ways to get them wrong."""

import re
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, prod
from pathlib import Path

import pytest

from dither_aggregator.accounting.scenarios import (
    BASIC,
    OPTIMAL,
    PARALLEL,
    ZCDP,
    AllOf,
    Event,
    Filter,
    OneOf,
    Outputs,
    group,
    outputs_of,
    outputs_of_all,
    rho_of,
)
from dither_shared.accounting.composition import optimal
from dither_shared.accounting.odds import moves, percent_above, sure
from dither_shared.errors import InvalidParameter
from dither_shared.exact import MICRO, exp_below, exp_of_micro, micro_epsilon
from dither_shared.mechanisms import GRR, MemoizedTwoLevel, PureMechanism
from dither_shared.rng import SCALE
from dither_shared.terms import periods_touched
from tests.support.laws import Law, law
from tests.support.numbers import MEMO, number, numbers

DELTA = Decimal("1e-3")
E1, E2 = Decimal(1), Decimal(2)
RANGE: dict[str, object] = {"low": 0, "high": 8, "buckets": 4}


def ratio(*of_answers: Law) -> Fraction:
    """Return the largest ratio between the probabilities of one outcome."""
    return max(one[y] / other[y] for one in of_answers for other in of_answers for y in one)


def together(*laws: Law) -> Law:
    """Return the law of independent outputs below 100; an outcome is a number for each combination."""
    return {
        sum(y * 100**place for place, (y, _) in enumerate(outcome)): prod(
            (one for _, one in outcome), start=Fraction(1)
        )
        for outcome in product(*(one.items() for one in laws))
    }


def repeated(mechanism: MemoizedTwoLevel, answer: int, times: int) -> Law:
    """Return the law of so many reports of one memoized answer."""
    keep = Fraction(mechanism.threshold_keep, SCALE)
    symbols = mechanism.permanent.shape.size
    memos = law(mechanism.permanent, (answer,))
    second = {u: {y: (1 - keep) / symbols + keep * (y == u) for y in range(symbols)} for u in memos}
    return {
        place: sum((one * prod(second[u][y] for y in ys) for u, one in memos.items()), Fraction(0))
        for place, ys in enumerate(product(range(symbols), repeat=times))
    }


def memoized(d: int, permanent: int, epsilon: Decimal) -> MemoizedTwoLevel:
    found = MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(d, Decimal(permanent)), epsilon)
    assert isinstance(found, MemoizedTwoLevel)
    return found


# Basic and parallel.


def test_losses_of_one_device_add_whatever_it_answers() -> None:
    """Three metrics that ask for the same: the sum is reached. Independent answers would show less."""
    mechanisms: list[PureMechanism] = [GRR.for_epsilon(2, E1), GRR.for_epsilon(3, E2), GRR.for_epsilon(2, E1)]
    event = AllOf(tuple(Outputs(one.charge, 1) for one in mechanisms))
    seen = [together(*(law(one, (answer,)) for one in mechanisms)) for answer in (0, 1)]
    assert event.micro - 3 <= micro_epsilon(ratio(*seen)) <= event.micro == 4 * MICRO


def test_of_disjoint_devices_the_largest_loss_counts() -> None:
    """A device is in a part by a coin that looks at no answer, as in a mixture: the part is seen, too."""
    mechanisms = [GRR.for_epsilon(2, E1), GRR.for_epsilon(2, E2)]
    event = OneOf(tuple(Outputs(one.charge, 1) for one in mechanisms))
    seen = [
        {10 * part + y: one / 2 for part, each in enumerate(mechanisms) for y, one in law(each, (answer,)).items()}
        for answer in (0, 1)
    ]
    assert micro_epsilon(ratio(*seen)) == event.micro == 2 * MICRO


def test_basic_composition_in_place_of_parallel_would_be_caught() -> None:
    """It is a bound still, but not the least one; and parallel in place of basic is none."""
    parts = (Outputs(MICRO, 1), Outputs(2 * MICRO, 1))
    assert (OneOf(parts).micro, AllOf(parts).micro) == (2 * MICRO, 3 * MICRO)
    mechanisms = [GRR.for_epsilon(2, E1), GRR.for_epsilon(2, E2)]
    seen = [together(*(law(one, (answer,)) for one in mechanisms)) for answer in (0, 1)]
    assert micro_epsilon(ratio(*seen)) > OneOf(parts).micro


def test_a_part_that_depends_on_the_answer_would_be_caught() -> None:
    mechanisms = [GRR.for_epsilon(2, E1), GRR.for_epsilon(2, E2)]
    seen = [{10 * answer + y: one for y, one in law(mechanisms[answer], (answer,)).items()} for answer in (0, 1)]
    assert not seen[0].keys() & seen[1].keys()  # its loss has no end


def test_trees_are_computed_from_their_leaves() -> None:
    light, heavy = Outputs(MICRO, 3), Outputs(2 * MICRO, 1)
    tree = AllOf((light, OneOf((heavy, AllOf((light, light))))))
    assert tree.micro == 9 * MICRO
    assert tree.rho == 3 * rho_of(MICRO) + 6 * rho_of(MICRO)
    assert tree.equal is None
    assert AllOf((light, light, Outputs(MICRO, 1))).equal == (MICRO, 7)
    assert AllOf((light, heavy)).equal is None


def test_each_bound_says_its_proof_and_the_best_comes_first() -> None:
    few, many = Outputs(2 * MICRO, 2), Outputs(MICRO // 10, 365)
    assert [bound.proof for bound in few.bounds(DELTA)] == [OPTIMAL, BASIC, ZCDP]
    assert [bound.proof for bound in many.bounds(DELTA)] == [OPTIMAL, ZCDP, BASIC]
    assert [bound.proof for bound in AllOf((few, many)).bounds(DELTA)] == [ZCDP, BASIC]
    (parallel,) = OneOf((few, many)).bounds(DELTA)
    assert parallel.proof == f"{PARALLEL}: {OPTIMAL}"
    assert parallel.micro == max(event.bounds(DELTA)[0].micro for event in (few, many))
    for event in (few, many, AllOf((few, many)), OneOf((few, many))):
        found = event.bounds(DELTA)
        assert [bound.micro for bound in found] == sorted(bound.micro for bound in found)
        assert found[0].micro <= event.micro
        assert all(bound.delta == (0 if bound.proof == BASIC else DELTA) for bound in found)


def test_a_bound_of_everything_is_above_every_outcome() -> None:
    """Unequal outputs together, all 2^7 outcomes, at each of its bounds."""
    event = AllOf((Outputs(MICRO // 10, 4), Outputs(MICRO, 1), Outputs(MICRO // 2, 2)))
    mechanisms = [GRR.for_epsilon(2, Decimal(epsilon)) for epsilon in ("0.1", "0.1", "0.1", "0.1", "1", "0.5", "0.5")]
    truth, other = (together(*(law(one, (answer,)) for one in mechanisms)) for answer in (0, 1))
    for bound in event.bounds(Decimal("0.05")):
        e = exp_below(Decimal(bound.micro) / MICRO)
        delta = sum((max(truth[y] - e * other[y], Fraction(0)) for y in truth), Fraction(0))
        assert delta <= Fraction(bound.delta) + Fraction(1, 10**12)


def test_outputs_that_cannot_be_are_refused() -> None:
    for each, times in ((-1, 1), (MICRO, 0)):
        with pytest.raises(InvalidParameter, match="outputs must be 1 or more"):
            Outputs(each, times)


# Memos.


@pytest.mark.parametrize("d", [2, 4, 16])
def test_any_number_of_reports_of_a_memo_is_within_its_permanent_epsilon(d: int) -> None:
    """And with many reports it is reached, by several in a row of one symbol."""
    mechanism = memoized(d, 2, E1)
    for times in (1, 2, 3) if d < 16 else (1, 2):
        seen = ratio(*(repeated(mechanism, answer, times) for answer in (0, 1)))
        assert micro_epsilon(seen) <= mechanism.first_stage.charge == 2 * MICRO


def test_r_times_epsilon_for_a_memo_would_be_caught() -> None:
    """Two reports of 16 values at (4, 1) lose 2.04: above 2 x 1. And a year of them loses 4, not 365."""
    mechanism = memoized(16, 4, E1)
    two = micro_epsilon(ratio(*(repeated(mechanism, answer, 2) for answer in (0, 1))))
    assert mechanism.charge == MICRO
    assert 2.03 * MICRO < two < 2.05 * MICRO
    assert two > Outputs(mechanism.charge, 2).micro  # the mistake
    metric = number(memoize=True, epsilon_permanent=4, low=0, high=8, buckets=2)
    assert outputs_of(metric, 366) == Outputs(4 * MICRO, 2)  # its two answers, each with all its reports


def test_each_different_answer_of_a_memo_enters_once() -> None:
    """One after the other, the permanent parts are independent: three answers reach three times the epsilon."""
    mechanism = memoized(2, 2, E1)
    first = [law(mechanism.permanent, (answer,)) for answer in (0, 1)]
    seen = [together(*([one] * 3)) for one in first]
    event = Outputs(mechanism.first_stage.charge, 3)
    assert event.micro - 3 <= micro_epsilon(ratio(*seen)) <= event.micro


# Groups.


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_a_group_that_answers_alike_loses_as_many_times_as_much(devices: int) -> None:
    mechanism = GRR.for_epsilon(3, E1)
    seen = [together(*([law(mechanism, (answer,))] * devices)) for answer in (0, 1)]
    event = group(Outputs(mechanism.charge, 1), devices)
    assert event.micro - devices <= micro_epsilon(ratio(*seen)) <= event.micro == devices * MICRO


# Epsilons that are chosen as one goes.

CHOICES = (300_000, 700_000)


def worst_delta(filtered: Filter, e: Fraction, admits: bool = True) -> Fraction:
    """Return the largest delta at a factor `e` that anybody reaches who picks each next epsilon by what they have seen.

    Every outcome of at most six responses, every strategy. Without `admits` the filter is asked too late: as long as
    what was spent before is within the budget.
    """
    laws = {each: GRR.for_epsilon(2, Decimal(each) / MICRO) for each in CHOICES}

    @cache
    def best(true: Fraction, lie: Fraction, spent: tuple[int, ...]) -> Fraction:
        ends = max(true - e * lie, Fraction(0))
        goes_on = [
            best(true * p, lie * q, (*spent, each)) + best(true * q, lie * p, (*spent, each))
            for each in CHOICES
            if len(spent) < 6 and filtered.admits(spent, each if admits else 0)
            for p in [law(laws[each], (0,))[0]]
            for q in [1 - p]
        ]
        return max([ends, *goes_on])

    return best(Fraction(1), Fraction(1), ())


def test_no_strategy_spends_more_than_a_sum_that_was_fixed() -> None:
    filtered = Filter(1_400_000, rho_of(1_400_000))
    assert worst_delta(filtered, exp_of_micro(filtered.micro)) == 0
    assert worst_delta(filtered, exp_of_micro(filtered.micro - 10)) > 0  # two of 0.7, or one and two of 0.3 beside it
    assert worst_delta(filtered, exp_of_micro(filtered.micro), admits=False) > 0  # it is caught


@pytest.mark.parametrize("delta", ["0.4", "0.1"])
def test_no_strategy_passes_the_bound_of_a_zcdp_filter(delta: str) -> None:
    filtered = Filter(100 * MICRO, 2 * rho_of(700_000))
    bound = filtered.bounds(Decimal(delta))[0]
    assert bound.proof == ZCDP
    e = exp_below(Decimal(bound.micro) / MICRO)
    assert 0 < worst_delta(filtered, e) <= Fraction(delta)
    assert worst_delta(filtered, e) < worst_delta(filtered, e, admits=False)


def test_optimal_bounds_of_what_happened_to_be_spent_would_be_caught() -> None:
    """Who stops when it went well: the bound of the sequence of the outcome is passed, that of the filter is not."""
    filtered = Filter(2_100_000, rho_of(2_100_000))
    at = optimal(300_000, 1, Decimal("0.01"))
    assert worst_delta(filtered, exp_of_micro(at)) > Fraction("0.01")


def test_filters_admit_to_the_last_millionth() -> None:
    by_sum, by_squares = Filter(MICRO, rho_of(MICRO)), Filter(100 * MICRO, rho_of(5 * MICRO))
    assert by_sum.admits([400_000], 600_000)
    assert not by_sum.admits([400_000], 600_001)
    assert by_squares.admits([3 * MICRO], 4 * MICRO)
    assert not by_squares.admits([3 * MICRO], 4 * MICRO + 1)


# From metrics.


@pytest.mark.parametrize(("period", "days"), [(1, 1), (1, 366), (7, 1), (7, 8), (7, 9), (30, 31), (366, 366), (5, 366)])
def test_periods_are_counted_from_the_worst_first_day(period: int, days: int) -> None:
    worst = max(len({day // period for day in range(first, first + days)}) for first in range(period))
    assert periods_touched(period, days) == worst


def test_a_device_says_no_more_than_its_metric_reserves() -> None:
    metrics = numbers(fresh={**RANGE, "reports": 40, "period": "7d"}, memo={**RANGE, **MEMO}).metrics
    fresh, memo = metrics["fresh"], metrics["memo"]
    assert [outputs_of(fresh, days).times for days in (1, 31, 366, None)] == [1, 6, 40, 40]
    assert [outputs_of(memo, days).times for days in (1, 31, 366, None)] == [1, 2, 2, 2]
    events: list[Event] = [outputs_of(fresh), outputs_of(memo)]
    assert outputs_of_all([fresh, memo]) == AllOf(tuple(events))
    assert outputs_of_all([fresh, memo]).micro == fresh.reservation + memo.reservation


def test_the_page_shows_what_is_computed() -> None:
    """`shared/accounting.md`: bounds to two digits, rounded up; guesses as the command shows them."""
    page = (Path(__file__).parents[3] / "shared" / "accounting.md").read_text(encoding="utf-8")
    bounds = re.findall(
        r"^\| (\d+) of (?:epsilon )?([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE
    )
    assert len(bounds) == 5
    for times, each, *shown in bounds:
        found = {
            bound.proof: bound.micro
            for bound in Outputs(int(Decimal(each) * MICRO), int(times)).bounds(Decimal("1e-6"))
        }
        computed = [found[proof] for proof in (BASIC, ZCDP, OPTIMAL)]
        assert [ceil(Fraction(micro, MICRO // 100)) for micro in computed] == [int(Decimal(one) * 100) for one in shown]
    guesses = re.findall(r"^\| (\d) \| (.+) % \| (.+) % \| (.+) points \|$", page, re.MULTILINE)
    assert len(guesses) == 4
    for epsilon, *shown in guesses:
        e = exp_of_micro(int(epsilon) * MICRO)
        assert shown == [percent_above(one) for one in (sure(e, Fraction(1, 100)), sure(e), moves(e))]
