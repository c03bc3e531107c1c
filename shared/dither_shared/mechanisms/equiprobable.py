"""The law of a memo: the permanent symbols of one answer, in groups of equally likely ones.

A unary code of 500 bits has 2^500 symbols, but only as many groups as numbers of flipped bits. A group's mass is an
ordinary float even where the probability of each of its symbols is below the least float, so that one is a logarithm.
"""

from collections.abc import Sequence
from math import exp, lgamma, log

from dither_shared.frozen import frozen
from dither_shared.rng import SCALE

DEVICES = 200
"""The n of R(n), the figure that is compared, and that pages and commands show."""


@frozen
class Equiprobable:
    """Symbols that are equally likely."""

    mass: float
    """Their probability together, in [0, 1]."""
    log_probability: float
    """The natural logarithm of the probability of each."""

    def __mul__(self, other: "Equiprobable") -> "Equiprobable":
        """Return the pairs of these symbols with independent others."""
        return Equiprobable(self.mass * other.mass, self.log_probability + other.log_probability)


SymbolLaw = Sequence[Equiprobable]
"""Groups whose masses sum to one."""


def law_of_coins(size: int, threshold: int) -> SymbolLaw:
    """Return the law of `size` independent bits that are each 1 with probability threshold / 2^64, by number of ones.

    C(size, j) strings have j ones. Within 1e-10, relatively, for up to 4,096 bits.
    """
    one, zero = log(threshold) - log(SCALE), log(SCALE - threshold) - log(SCALE)
    factorials = [lgamma(ones + 1) for ones in range(size + 1)]
    groups = []
    for ones in range(size + 1):
        each = ones * one + (size - ones) * zero
        strings = factorials[size] - factorials[ones] - factorials[size - ones]
        groups.append(Equiprobable(exp(strings + each), each))
    return groups
