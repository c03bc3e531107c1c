"""Composition against every outcome of randomized response, against a search by other means; bugs in the rounding."""

from collections import Counter
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import pairwise, product
from math import comb, exp, isclose, log, prod

import pytest

from dither_aggregator.accounting import rho_of
from dither_shared.accounting import composition
from dither_shared.accounting.composition import checked_delta, delta_of, of_zcdp, optimal
from dither_shared.errors import InvalidParameter
from dither_shared.exact import MICRO, exp_below, exp_of_micro
from dither_shared.mechanisms import GRR
from tests.support.laws import law
from tests.support.soaking import thinned

DELTA = Decimal("1e-6")
# k, epsilon, optimal, zCDP: three digits of each, computed elsewhere.
KNOWN = [
    (100, "0.1", 4.775, 5.222),
    (30, "0.5", 13.95, 17.16),
    (365, "0.1", 10.31, 11.07),
    (10, "1", 10.00, 20.55),
    (12, "2", 24.00, 58.83),
    (100, "1", 83.53, 100.69),
]


def micro(epsilon: str) -> int:
    return int(Decimal(epsilon) * MICRO)


def delta_by_every_outcome(epsilons: list[str], e: Fraction) -> Fraction:
    """Return the least delta at a factor `e`, over all outcomes of one randomized response for each epsilon."""
    mechanisms = [GRR.for_epsilon(2, Decimal(epsilon)) for epsilon in epsilons]
    laws = [(law(one, (0,)), law(one, (1,))) for one in mechanisms]
    total = Fraction(0)
    for outcome in product((0, 1), repeat=len(laws)):
        p = prod((laws[place][0][y] for place, y in enumerate(outcome)), start=Fraction(1))
        q = prod((laws[place][1][y] for place, y in enumerate(outcome)), start=Fraction(1))
        total += max(p - e * q, Fraction(0))
    return total


@pytest.mark.parametrize("epsilon", ["0.1", "1", "2.5"])
@pytest.mark.parametrize("times", thinned([1, 2, 3, 7], 0, 3))
def test_delta_is_that_of_every_outcome_of_randomized_response(times: int, epsilon: str) -> None:
    """The responses' own code has e^epsilon within 2^-60, and the bound is never below what it lets out."""
    for part in (Fraction(0), Fraction(1, 3), Fraction(4, 5), Fraction(99, 100)):
        at = int(part * times * micro(epsilon))
        exact = delta_by_every_outcome([epsilon] * times, exp_of_micro(at))
        bound = Fraction(delta_of(micro(epsilon), times, at))
        assert exact <= bound <= exact * (1 + Fraction(1, 10**15)) + Fraction(1, 10**40)


@pytest.mark.parametrize(("times", "epsilon"), thinned([(3, "1"), (7, "1"), (8, "0.3"), (9, "0.1")], 0, 1))
def test_the_optimal_epsilon_is_the_least_that_every_outcome_allows(times: int, epsilon: str) -> None:
    for delta in (Decimal("0.1"), Decimal("1e-3"), DELTA):
        found = optimal(micro(epsilon), times, delta)
        assert delta_by_every_outcome([epsilon] * times, exp_below(Decimal(found) / MICRO)) <= Fraction(delta)
        if found:
            less = exp_of_micro(found - 1)
            assert delta_by_every_outcome([epsilon] * times, less) > Fraction(delta) * (1 - Fraction(1, 10**15))


@pytest.mark.parametrize(("k", "epsilon", "kov", "zcdp"), KNOWN)
def test_known_figures_are_met(k: int, epsilon: str, kov: float, zcdp: float) -> None:
    assert optimal(micro(epsilon), k, DELTA) / MICRO == pytest.approx(kov, abs=0.006)
    assert of_zcdp(k * rho_of(micro(epsilon)), DELTA) / MICRO == pytest.approx(zcdp, abs=0.006)


def rational_delta(a: int, k: int, e: Fraction) -> Fraction:
    """Return the theorem's sum for e^epsilon = a, an integer, in fractions and with nothing left out."""
    sums = (comb(k, lies) * max(Fraction(a) ** (k - lies) - e * a**lies, Fraction(0)) for lies in range(k + 1))
    return sum(sums, Fraction(0)) / Fraction(1 + a) ** k


@pytest.mark.parametrize("k", [1, 2, 5, 40, 365])
def test_no_delta_is_below_the_theorems_sum(k: int) -> None:
    """ln 2 lies between two whole micro-epsilons: the sums of e^epsilon = 2 do between their bounds."""
    below, above = 693_147, 693_148
    for part in (0, k // 3, k - 1):
        exact = rational_delta(2, k, Fraction(2) ** part)
        assert Fraction(delta_of(above, k, part * below)) >= exact >= Fraction(delta_of(below, k, part * above))
        assert isclose(delta_of(above, k, part * below), exact, rel_tol=2e-3)


@pytest.mark.parametrize("planted", [False, True])
def test_a_delta_that_is_rounded_down_would_be_caught(planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With only 12 digits the direction shows: as it is no delta is too small, turned round some are. So are floats."""
    up, down = Context(prec=12, rounding=ROUND_CEILING), Context(prec=12, rounding=ROUND_FLOOR)
    monkeypatch.setattr(composition, "_UP", down if planted else up)
    monkeypatch.setattr(composition, "_DOWN", up if planted else down)
    if planted:
        above, below = composition._exp_above, composition._exp_below
        monkeypatch.setattr(composition, "_exp_above", below)
        monkeypatch.setattr(composition, "_exp_below", above)
    low = floats_low = 0
    for times, place in product((2, 3, 7), range(20)):
        at = place * times * micro("0.1") // 20
        exact = delta_by_every_outcome(["0.1"] * times, exp_of_micro(at))
        low += Fraction(delta_of(micro("0.1"), times, at)) < exact
        floats_low += Fraction(float(exact)) < exact
    assert (low > 0) == planted
    assert floats_low > 0


def test_an_epsilon_that_is_rounded_to_the_nearest_would_be_caught() -> None:
    missed = 0
    for k in range(2, 40):
        delta, each = Decimal("1e-3"), micro("0.3")
        found = optimal(each, k, delta)
        assert delta_of(each, k, found) <= delta < delta_of(each, k, max(found - 1, 0))
        nearest = round(found / 1000) * 1000  # three digits, to the nearest
        missed += delta_of(each, k, nearest) > delta
    assert missed > 5


@pytest.mark.parametrize("rho", thinned(["1e-6", "0.005", "0.5", "5", "24", "50"], 0, 2, 5))
@pytest.mark.parametrize("delta", thinned(["0.5", "1e-3", "1e-6", "1e-12"], 0, 2))
def test_zcdp_is_converted_at_the_best_order(rho: str, delta: str) -> None:
    """No order of a fine grid has less, and one of them as little."""

    def at(above_one: float) -> float:
        a = 1 + above_one
        return float(rho) * a - (log(float(delta)) + log(a)) / above_one + log(above_one / a)

    least = max(min(at(exp(place / 1000)) for place in range(-8_000, 16_000)), 0.0)
    found = of_zcdp(Fraction(rho), Decimal(delta)) / MICRO
    assert least - 1e-6 - 1e-6 * least <= found <= least + 1.1e-6


@pytest.mark.parametrize("delta", ["0.1", "1e-6", "1e-12"])
def test_zcdp_and_optimal_bounds_never_cross(delta: str) -> None:
    for epsilon, times in product(("0.01", "0.1", "1", "4"), (1, 2, 12, 100)):
        each = micro(epsilon)
        best = optimal(each, times, Decimal(delta))
        assert best <= of_zcdp(times * rho_of(each), Decimal(delta))
        assert best <= times * each


def test_bounds_grow_with_the_number_and_fall_with_delta() -> None:
    deltas = [Decimal(f"1e-{digits}") for digits in (1, 3, 6, 9, 12)]
    for epsilon in ("0.1", "1"):
        by_number = [optimal(micro(epsilon), k, DELTA) for k in range(1, 60)]
        assert by_number == sorted(by_number)
        converted = [of_zcdp(k * rho_of(micro(epsilon)), DELTA) for k in range(1, 60)]
        assert converted == sorted(set(converted))
        assert all(
            one <= other
            for bounds in (
                [optimal(micro(epsilon), 30, delta) for delta in deltas],
                [of_zcdp(30 * rho_of(micro(epsilon)), delta) for delta in deltas],
            )
            for one, other in pairwise(bounds)
        )


def test_different_epsilons_are_within_zcdp_by_every_outcome() -> None:
    epsilons = ["0.1", "0.5", "0.5", "1", "0.2", "0.1", "0.7"]
    rho = sum((rho_of(micro(epsilon)) for epsilon in epsilons), Fraction(0))
    for delta in ("0.1", "1e-3", "1e-6"):
        e = exp_below(Decimal(of_zcdp(rho, Decimal(delta))) / MICRO)
        assert delta_by_every_outcome(epsilons, e) <= Fraction(delta)


def test_whatever_is_computed_from_outputs_tells_no_more() -> None:
    """All 2^16 ways to read four responses as yes or no, which is all that a set S needs: none is beyond delta(e)."""
    one = GRR.for_epsilon(2, Decimal("0.5"))
    laws = law(one, (0,)), law(one, (1,))
    p, q = (
        [prod((row[y] for y in outcome), start=Fraction(1)) for outcome in product((0, 1), repeat=4)] for row in laws
    )
    e = exp_of_micro(700_000)
    gains = Counter(one - e * other for one, other in zip(p, q, strict=True))
    worst = max(
        sum((Fraction(taken) * gain for taken, gain in zip(chosen, gains, strict=True)), Fraction(0))
        for chosen in product(*(range(count + 1) for count in gains.values()))
    )
    bound = Fraction(delta_of(500_000, 4, 700_000))
    assert worst <= bound <= worst * (1 + Fraction(1, 10**15))


def test_many_outputs_take_no_underflow() -> None:
    assert optimal(20 * MICRO, 10_000, DELTA) <= 200_000 * MICRO
    assert 0 < delta_of(20 * MICRO, 10_000, 200_000 * MICRO - 1) < Decimal("1e-6")


@pytest.mark.parametrize("delta", ["0", "1", "0.51", "-1e-6", "NaN", "Infinity", "1e-101"])
def test_a_delta_outside_the_proof_is_refused(delta: str) -> None:
    with pytest.raises(InvalidParameter, match=r"delta must be from 1e-100 to 0\.5, such as 1e-6, got"):
        checked_delta(Decimal(delta))
    assert checked_delta(DELTA) == DELTA
