import math
from decimal import Decimal
from fractions import Fraction

import pytest

from dither_shared.exact import exp_below, exp_of_micro, micro_epsilon


@pytest.mark.parametrize("text", ["0.01", "1", "2.5", "20"])
def test_exp_below_is_below_and_close(text: str) -> None:
    epsilon = Decimal(text)
    below = exp_below(epsilon)
    assert math.isclose(float(below), math.exp(float(text)), rel_tol=1e-14)
    # An independent bound: the series of e^x to 200 terms is below e^x, and within 1e-76 of it here.
    series = sum(Fraction(epsilon) ** k / math.factorial(k) for k in range(200))
    assert below < series < below * (1 + Fraction(1, 10**76))


def test_a_charge_is_rounded_up() -> None:
    assert micro_epsilon(Fraction(1)) == 0
    assert micro_epsilon(Fraction(2)) == 693_148  # 1e6 ln 2 = 693147.18...
    assert micro_epsilon(exp_below(Decimal(2)) * (1 - Fraction(1, 10**30))) == 2_000_000
    assert micro_epsilon(exp_below(Decimal(2)) * (1 + Fraction(1, 10**30))) == 2_000_001


@pytest.mark.parametrize("text", ["0.01", "1", "2.5", "20", "1000"])
def test_what_a_charge_can_tell_is_above_and_close(text: str) -> None:
    above = exp_of_micro(int(Decimal(text) * 1_000_000))
    assert exp_below(Decimal(text)) < above < exp_below(Decimal(text)) * (1 + Fraction(1, 10**77))
