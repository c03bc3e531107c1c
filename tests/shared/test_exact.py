import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import pytest

from dither_shared.exact import exp_below, exp_of_micro, micro_epsilon
from tests.support.aggregators import ENVIRONMENT


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


def test_what_the_host_has_set_for_all_decimals_changes_no_epsilon_and_no_choice() -> None:
    """`decimal.DefaultContext` is where an application sets them before it starts threads, and before any import."""
    compiled = """
from decimal import Decimal
from dither_shared.kinds.number import _CONTEXT as edges
from dither_shared.mechanisms import choose
print([choose(d, Decimal(1), permanent=Decimal(2)).parameters() for d in (7, 16, 50, 301)], edges.divide(2, 3))
"""
    host = """
import decimal
decimal.DefaultContext.rounding = decimal.ROUND_UP
decimal.DefaultContext.Emax = 9
for signal in (decimal.Inexact, decimal.Rounded, decimal.Subnormal, decimal.FloatOperation):
    decimal.DefaultContext.traps[signal] = True
decimal.setcontext(decimal.Context())
"""
    alone, guest = (
        subprocess.run(
            [sys.executable, "-c", before + compiled], capture_output=True, text=True, check=False, env=ENVIRONMENT
        )
        for before in ("", host)
    )
    assert (guest.returncode, guest.stderr) == (0, "")
    assert guest.stdout == alone.stdout
