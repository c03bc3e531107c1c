"""From a privacy loss to odds: how sure somebody can become of one device's answer.

Let somebody believe with probability a that a device's answer is among some that they name, and see an output y. All
probabilities of y differ between two answers by a factor of at most e^epsilon, and so do their averages over the named
answers and over the others. By Bayes the odds of the named answers, a : (1 - a) before, are afterwards at most

    e^epsilon a : (1 - a)        which is a probability of        e^epsilon a / (e^epsilon a + 1 - a)

whatever else they know, and at least what e^-epsilon gives in its place. Between the two, a guess moves most from
a = 1 / (1 + e^{epsilon / 2}) upward, or from 1 - a downward:

    by (e^{epsilon / 2} - 1) / (e^{epsilon / 2} + 1) = tanh(epsilon / 4)

With randomized response of two values all of these are reached. Several outputs about one device compose by adding
their epsilons; any number of reports of one memoized answer together enter with epsilon_permanent (the aggregator's
`accounting/scenarios.py`). Kasiviswanathan, Smith 2014.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, isqrt

EVEN = Fraction(1, 2)
"""A guess of 1 : 1."""
ONE_IN_TEN = Fraction(1, 10)
NEARLY_CERTAIN = Fraction(99, 100)
SURE_OF_REPORT_MAX = Fraction(95, 100)
"""How sure an even guess may become by one report without a note of `dither metrics check`; by all, NEARLY_CERTAIN."""
_ROOT = 1 << 128
"""Square roots are rounded up to a multiple of one over this."""


def sure(exp_epsilon: Fraction, prior: Fraction = EVEN) -> Fraction:
    """Return the largest probability after outputs of this e^epsilon, for one of `prior`, in (0, 1), before."""
    return exp_epsilon * prior / (exp_epsilon * prior + 1 - prior)


def unsure(exp_epsilon: Fraction, prior: Fraction = EVEN) -> Fraction:
    """Return the smallest probability after such outputs: how far somebody can be talked out of a guess."""
    return 1 - sure(exp_epsilon, 1 - prior)


def moves(exp_epsilon: Fraction) -> Fraction:
    """Return tanh(epsilon / 4), the most by which any guess can move, rounded up by less than 1e-38."""
    root = Fraction(isqrt(exp_epsilon.numerator * _ROOT * _ROOT // exp_epsilon.denominator) + 1, _ROOT)
    return (root - 1) / (root + 1)


def percent_above(probability: Fraction) -> str:
    """Return a probability in percent, without the sign: rounded up to a tenth, or "above 99" where it is that.

    Never below the truth, because it is read as a promise; so never "100" for what is less.
    """
    if probability > NEARLY_CERTAIN:
        return "above 99"
    return f"{ceil(1000 * probability) / 10:.1f}"


def percent_exactly(probability: Fraction) -> str:
    """Return a probability in percent, without the sign: rounded up to one digit more than its nines."""
    for digits in range(1, 10):
        shown = Decimal(ceil(probability * 10 ** (digits + 2))).scaleb(-digits)
        if shown < 100:
            return f"{shown}"
    return "all but 100"


def percent_below(probability: Fraction) -> str:
    """Return a probability in percent, without the sign: rounded down to a tenth, or "below 1" where it is that.

    Never above the truth, and never "0" for what is more.
    """
    if probability < 1 - NEARLY_CERTAIN:
        return "below 1"
    return f"{floor(1000 * probability) / 10:.1f}"


def millionths_above(probability: Fraction) -> float:
    """Return a probability to six digits, never below it: JSON's 1.0 is above .999999."""
    return ceil(probability * 10**6) / 10**6


def millionths_below(probability: Fraction) -> float:
    """Return a probability to six digits, never above it: JSON's 0.0 is below .000001."""
    return floor(probability * 10**6) / 10**6
