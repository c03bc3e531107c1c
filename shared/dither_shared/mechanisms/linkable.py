"""R(n) of one memo, for the automatic choice. `accounting.linking` has what it means, and several memos and cohorts.

Two levels make it a sum of two terms: with probability m each of c symbols has m / c, and of n devices with the same
answer the share that is alone, or is paired rightly by chance, is

    R(n) = sum over both levels of c (1 - (1 - m / c)^n) / n

It is computed in decimal numbers, which every machine rounds alike.
"""

from decimal import Decimal
from fractions import Fraction

from dither_shared.exact import digits
from dither_shared.mechanisms.equiprobable import DEVICES
from dither_shared.mechanisms.two_level import MemoizedTwoLevel

_DIGITS = digits(50)
_RARE = Fraction(1, 10**20)
"""Symbols that are rarer than this are taken as ones that no two devices share."""


def linked_by(memo: MemoizedTwoLevel) -> Decimal:
    """Return R(200) of the memo's permanent symbol, within 1e-17."""
    inside, share = memo.permanent.law.inside, memo.permanent.law.share
    levels = ((inside, share), (1 - inside, 1 - share))
    one, other = (_linked(mass, mass / (part * memo.permanent.outputs)) for mass, part in levels)
    return _DIGITS.add(one, other)


def _linked(mass: Fraction, each: Fraction) -> Decimal:
    """Return what symbols of probability `each` add, `mass` together."""
    if each < _RARE:
        return _decimal(mass)
    met = _DIGITS.subtract(Decimal(1), _DIGITS.power(_decimal(1 - each), DEVICES))
    return _DIGITS.divide(_DIGITS.multiply(_decimal(mass / each), met), Decimal(DEVICES))


def _decimal(number: Fraction) -> Decimal:
    return _DIGITS.divide(Decimal(number.numerator), Decimal(number.denominator))
