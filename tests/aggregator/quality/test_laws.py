"""Tails of counts beside exact ones: never below the truth, also where devices repeat their noise."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest

from dither_aggregator.analysis.closed_days import bennett, binomial, mixed

ROUNDING = 1 + 1e-9
Distribution = dict[int, Fraction]


def summed(terms: Sequence[Distribution]) -> Distribution:
    """Return the law of a sum of independent terms, exactly."""
    total: Distribution = {0: Fraction(1)}
    for term in terms:
        longer: Distribution = {}
        for (one, chance), (other, further) in product(total.items(), term.items()):
            longer[one + other] = longer.get(one + other, Fraction(0)) + chance * further
        total = longer
    return total


def coin(rate: Fraction, weight: int = 1) -> Distribution:
    return {0: 1 - rate, weight: rate}


def two_sided(law: Distribution, value: int) -> float:
    above, below = (
        sum((chance for each, chance in law.items() if sign * each >= sign * value), Fraction(0)) for sign in (1, -1)
    )
    return float(min(Fraction(1), 2 * min(above, below)))


@pytest.mark.parametrize("rate", [Fraction(1, 50), Fraction(1, 3), Fraction(9, 10)])
def test_of_one_rate_the_tails_are_the_binomial_ones(rate: Fraction) -> None:
    n = 40
    law = {count: comb(n, count) * rate**count * (1 - rate) ** (n - count) for count in range(n + 1)}
    found = binomial(np.arange(n + 1), n, float(rate), float(rate))
    assert found == pytest.approx([two_sided(law, count) for count in range(n + 1)], rel=1e-9)


def test_rare_tails_are_those_of_the_counts_and_not_of_a_normal_curve() -> None:
    """9 where .5 are expected: once in 3 million times, and by a normal curve once in 10^33."""
    (found,) = binomial(np.array([9]), 10**6, 5e-7, 5e-7)
    poisson = 2 * sum(0.5**count * np.exp(-0.5) / np.prod(np.arange(1.0, count + 1)) for count in range(9, 30))
    assert found == pytest.approx(poisson, rel=1e-4)


@pytest.mark.parametrize("law", [binomial, mixed])
def test_between_the_least_and_the_greatest_rate_nothing_is_rare(law: object) -> None:
    assert callable(law)
    assert law(np.array([30, 50, 70]), 100, 0.3, 0.7).tolist() == [1.0, 1.0, 1.0]


RATES = [Fraction(1, 5)] * 6 + [Fraction(7, 10)] * 3


@pytest.mark.parametrize(
    ("rates", "weights"),
    [
        (RATES, [1] * 9),
        ([Fraction(1, 5)] * 6, [3, 3, 2, 1, 1, 2]),
        (RATES, [3, 3, 3, 3, 3, 3, 3, 1, 2]),
        ([Fraction(1, 100)] * 10, [3] * 10),
    ],
)
def test_no_tail_of_coins_that_devices_repeat_is_above_its_bound(rates: list[Fraction], weights: list[int]) -> None:
    law = summed([coin(rate, weight) for rate, weight in zip(rates, weights, strict=True)])
    n, mean = sum(weights), sum((rate * weight for rate, weight in zip(rates, weights, strict=True)), Fraction(0))
    values = np.array(sorted(law))
    bounds = mixed(values, n, float(mean / n), float(mean / n), max(weights))
    assert all(
        two_sided(law, value) <= bound * ROUNDING for value, bound in zip(values.tolist(), bounds.tolist(), strict=True)
    )
    assert bounds.min() < 0.05


def test_a_bound_that_takes_repeated_reports_for_independent_ones_would_be_caught() -> None:
    law = summed([coin(Fraction(1, 5), 3)] * 6)
    values = np.array(sorted(law))
    bounds = mixed(values, 18, 0.2, 0.2).tolist()
    assert any(two_sided(law, value) > bound for value, bound in zip(values.tolist(), bounds, strict=True))


TERM = {0: Fraction(1, 6), 1: Fraction(1, 2), 4: Fraction(1, 3)}
SURE = {1: Fraction(1, 2), 2: Fraction(1, 6), 3: Fraction(1, 3)}


@pytest.mark.parametrize("weight", [1, 3])
def test_no_tail_of_bounded_terms_is_above_bennetts(weight: int) -> None:
    """Terms of one mean and different variances, the larger of which counts, each of them repeated."""
    terms = [TERM] * 5 + [SURE] * 4
    mean = sum((value * chance for value, chance in TERM.items()), Fraction(0))
    assert mean == sum((value * chance for value, chance in SURE.items()), Fraction(0))
    variance = float(sum((value**2 * chance for value, chance in TERM.items()), Fraction(0)) - mean**2)
    law = summed([{weight * value: chance for value, chance in term.items()} for term in terms])
    n, small = 9 * weight, []
    for value in law:
        bound = bennett(float(value - n * mean), n, variance, 4 - float(mean), float(mean), weight)
        assert two_sided(law, value) <= bound * ROUNDING
        small.append(bound)
    assert min(small) < 0.2


def test_what_cannot_vary_is_off_where_it_differs() -> None:
    assert (bennett(0.0, 10, 0.0, 0.0, 0.0), bennett(1.0, 10, 0.0, 0.0, 0.0)) == (1.0, 0.0)
