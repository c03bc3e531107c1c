"""From a wanted epsilon to rationals and back, rounding toward less privacy loss.

Only `decimal` and `fractions`: its results are the same on every machine, which libm's are not. `Decimal.exp` and
`Decimal.ln` are correctly rounded, so the neighbour of a result bounds the true number.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from functools import lru_cache

MICRO = 1_000_000
"""Micro-epsilons in one epsilon: the unit of every charge."""

EPSILON_MIN = Decimal("0.01")
EPSILON_MAX = Decimal(20)
EXPONENT_MAX = 999_999


def digits(precision: int, rounding: str = ROUND_HALF_EVEN) -> Context:
    """Return a context of which nothing comes from `decimal.DefaultContext`, which is the host's to set."""
    traps = [InvalidOperation, DivisionByZero, Overflow]
    return Context(precision, rounding, -EXPONENT_MAX, EXPONENT_MAX, capitals=1, clamp=0, flags=[], traps=traps)


_CONTEXT = digits(80)
_CEILING = digits(80, ROUND_CEILING)
_SHORT = digits(24)
_SHORT_ERROR = Decimal("2e-23")
"""The most that the logarithm of a quotient is off, as a part of it or of 1."""


@lru_cache(maxsize=64)
def exp_below(epsilon: Decimal) -> Fraction:
    """Return a rational below e^epsilon and within 1e-78 of it, relatively."""
    return Fraction(epsilon.exp(_CONTEXT).next_minus(_CONTEXT))


def exp_of_micro(micro: int) -> Fraction:
    """Return a rational above e^epsilon, for an epsilon of so many micro-epsilon, and within 1e-78 of it relatively."""
    return Fraction(divided(Decimal(micro), MICRO).exp(_CONTEXT).next_plus(_CONTEXT))


def divided(epsilon: Decimal, parts: int) -> Decimal:
    """Return a part of an epsilon to 80 digits, whatever the host has set for decimals."""
    return _CONTEXT.divide(epsilon, parts)


def micro_epsilon(exp_epsilon: Fraction) -> int:
    """Return the charge for a probability ratio of `exp_epsilon` >= 1: ceil(1e6 ln(exp_epsilon)) micro-epsilon."""
    numerator, denominator = Decimal(exp_epsilon.numerator), Decimal(exp_epsilon.denominator)
    # A few digits, which take a third of the time, nearly always say between which integers it is.
    about = _SHORT.divide(numerator, denominator).ln(_SHORT)
    off = _SHORT.multiply(_SHORT_ERROR, max(about, Decimal(1)))
    least, most = (_ceil_micro(bound) for bound in (_CEILING.subtract(about, off), _CEILING.add(about, off)))
    if about > off and least == most:
        return most
    ratio = _CEILING.divide(numerator, denominator)
    return _ceil_micro(ratio.ln(_CONTEXT).next_plus(_CONTEXT)) if ratio > 1 else 0


def _ceil_micro(epsilon: Decimal) -> int:
    return int(_CEILING.multiply(epsilon, Decimal(MICRO)).to_integral_value(rounding=ROUND_CEILING))


def to_micro(epsilon: Decimal) -> int:
    """Return a stated epsilon, a multiple of 1e-6, as micro-epsilon."""
    numerator, denominator = epsilon.as_integer_ratio()
    return numerator * MICRO // denominator


def from_micro(micro: int) -> float:
    """Return micro-epsilon as an epsilon for people and JSON."""
    return micro / MICRO
