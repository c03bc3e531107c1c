"""The privacy blanket: never below the truth, known from both sides within 1 %, and not told where it does not hold."""

from decimal import Decimal
from itertools import combinations_with_replacement
from math import exp, factorial, prod

import numpy as np
import pytest

from dither_aggregator.accounting import (
    DELTA,
    BlanketSum,
    below,
    epsilon_of,
    epsilon_of_device,
    law_of,
    rounded_down,
)
from dither_shared.mechanisms import GRR, PGR, Cells, MemoizedTwoLevel, Part, SubsetSelection, one_cell
from dither_shared.mechanisms.two_level import OneShot
from tests.support.soaking import thinned


def law_of_counts(mechanism: GRR, answers: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Return the law of how often each value is reported by devices with these answers, by adding one at a time."""
    p, q = float(mechanism.p), float(mechanism.q)
    law = {(0,) * mechanism.d: 1.0}
    for answer in answers:
        after: dict[tuple[int, ...], float] = {}
        for counts, chance in law.items():
            for value in range(mechanism.d):
                more = tuple(count + (place == value) for place, count in enumerate(counts))
                after[more] = after.get(more, 0.0) + chance * (p if value == answer else q)
        law = after
    return law


def exact_delta(mechanism: GRR, n: int, epsilon: float) -> float:
    """Return the largest delta over whatever all other devices answer, and both ways."""
    worst = 0.0
    for others in combinations_with_replacement(range(mechanism.d), n - 1):
        one, other = (law_of_counts(mechanism, (answer, *others)) for answer in (0, 1))
        worst = max(
            worst,
            sum(max(0.0, chance - exp(epsilon) * other[counts]) for counts, chance in one.items()),
            sum(max(0.0, chance - exp(epsilon) * one[counts]) for counts, chance in other.items()),
        )
    return worst


def blanket_delta(mechanism: GRR, n: int, epsilon: float) -> float:
    """Return what the blanket shows, by adding up every number of each of Z's five values."""
    total = BlanketSum(mechanism.law, n, epsilon)
    values, chances = total.values
    expected = 0.0
    for counts in combinations_with_replacement(range(5), n):
        times = np.bincount(counts, minlength=5)
        ways = factorial(n) / prod(factorial(int(each)) for each in times)
        expected += ways * float(np.prod(chances**times)) * max(0.0, float(values @ times))
    return expected / (total.blanket * n)


@pytest.mark.parametrize(
    ("d", "n", "epsilon_of_report", "epsilon"),
    [(3, 6, "1", 0.5), (3, 6, "1", 0.8), (4, 5, "1", 0.5), (4, 5, "2", 0.5), (2, 7, "1", 0.2)],
)
def test_it_is_never_below_enumeration(d: int, n: int, epsilon_of_report: str, epsilon: float) -> None:
    mechanism = GRR.for_epsilon(d, Decimal(epsilon_of_report))
    true, shown = exact_delta(mechanism, n, epsilon), blanket_delta(mechanism, n, epsilon)
    total = BlanketSum(mechanism.law, n, epsilon)
    lower, upper = total.delta(upper=False), total.delta(upper=True)
    assert true <= shown * (1 + 1e-12)
    assert lower <= shown <= upper
    assert upper <= shown * 1.01


def test_figures_that_are_too_small_would_be_caught() -> None:
    """A formula in use, the "variation ratio", says .003093 for three values and six devices at epsilon .8."""
    assert exact_delta(GRR.for_epsilon(3, Decimal(1)), 6, 0.8) == pytest.approx(0.006628, abs=1e-6)


@pytest.mark.parametrize(
    ("mechanism", "known"),
    thinned(
        [
            (GRR.for_epsilon(16, Decimal(1)), 0.0644),
            (GRR.for_epsilon(16, Decimal(2)), 0.2302),
            (GRR.for_epsilon(16, Decimal(4)), 1.379),
            (PGR.for_design(1000, 3, 7, Decimal(1)), 0.1056),
            (PGR.for_design(2000, 7, 5, Decimal(2)), 0.2815),
            (PGR.for_design(2000, 53, 3, Decimal(4)), 0.955),
        ],
        0,
        5,
    ),
)
def test_a_thousand_reports_hide_one_as_known(mechanism: OneShot, known: float) -> None:
    found, least = epsilon_of(mechanism.law, 1_000), below(mechanism.law, 1_000)
    assert found is not None
    assert least is not None
    assert found == pytest.approx(known, rel=0.005)
    assert least <= found <= 1.01 * least


def test_more_reports_hide_more_and_several_of_a_device_less() -> None:
    law = GRR.for_epsilon(16, Decimal(1)).law
    few, many = epsilon_of(law, 1_000), epsilon_of(law, 10_000)
    assert few is not None
    assert many is not None
    assert many < few / 3
    group = epsilon_of_device(law, 10_000, 3)
    assert group is not None
    each = group / 3
    assert each > many
    assert epsilon_of(law, 10_000, DELTA / Decimal(3 * exp(2 * each))) == pytest.approx(each, rel=0.05)
    assert epsilon_of(law, 50) is None


def test_there_is_none_for_memos_and_for_several_cells() -> None:
    fresh = GRR.for_epsilon(4, Decimal(2))
    memo = MemoizedTwoLevel.for_epsilon(fresh, Decimal(1))
    assert law_of(one_cell(fresh)) == fresh.law
    assert law_of(one_cell(SubsetSelection.for_epsilon(8, Decimal(1)))) is not None
    assert law_of(one_cell(memo)) is None
    assert law_of(Cells((Part(fresh, 2),))) is None


def test_numbers_of_reports_are_rounded_down() -> None:
    assert [rounded_down(n) for n in (0.5, 1, 9.9, 4_999, 5_000, 10**9)] == [0, 1, 5, 2_000, 5_000, 100_000]
