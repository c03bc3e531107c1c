"""From a privacy loss to odds: how sure somebody can become of one device's answer.

Let somebody believe with probability a that a device's answer is among some that they name, and see an output y. All
probabilities of y differ between two answers by a factor of at most e^epsilon, and so do their averages over the named
answers and over the others. By Bayes the odds of the named answers, a : (1 - a) before, are afterwards at most

    e^epsilon a : (1 - a)        which is a probability of        e^epsilon a / (e^epsilon a + 1 - a)

whatever else they know. With randomized response of two values it is reached. Several outputs about one device compose
by adding their epsilons; any number of reports of one memoized answer together enter with epsilon_permanent.
Kasiviswanathan, Smith 2014.
"""

from fractions import Fraction
from math import ceil

EVEN = Fraction(1, 2)
"""A guess of 1 : 1."""
NEARLY_CERTAIN = Fraction(99, 100)


def sure(exp_epsilon: Fraction, prior: Fraction = EVEN) -> Fraction:
    """Return the largest probability after outputs of this e^epsilon, for one of `prior`, in (0, 1), before."""
    return exp_epsilon * prior / (exp_epsilon * prior + 1 - prior)


def percent_above(probability: Fraction) -> str:
    """Return a probability in percent, without the sign: rounded up to a tenth, or "above 99" where it is that.

    Never below the truth, because it is read as a promise; so never "100" for what is less.
    """
    if probability > NEARLY_CERTAIN:
        return "above 99"
    return f"{ceil(1000 * probability) / 10:.1f}"
