"""The interface of a mechanism, whatever its reports mean: integers, an exact epsilon, a randomizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import exp, lgamma, log

from dither_shared.errors import InvalidParameter
from dither_shared.exact import micro_epsilon
from dither_shared.frozen import frozen
from dither_shared.light_typing import Self
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import ReportShape

# The law of a memo: the permanent symbols of one answer, in groups of equally likely ones.
#
# A unary code of 500 bits has 2^500 symbols, but only as many groups as numbers of flipped bits. A group's mass is an
# ordinary float even where the probability of each of its symbols is below the least float, so that one is a logarithm.


DEVICES = 200
"""The n of R(n), the figure that is compared, and that pages and commands show."""


@frozen
class Equiprobable:
    """Symbols that are equally likely."""

    mass: float
    """Their probability together, in [0, 1]."""
    log_probability: float
    """The natural logarithm of the probability of each."""

    def __mul__(self, other: Equiprobable) -> Equiprobable:
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


class Mechanism(ABC):
    """A randomizer, fixed by integers, with its exact epsilon. Subclasses are frozen."""

    name: str
    memoized = False
    """Whether the first stage draws the noise of one answer once, and each report repeats it with noise of its own."""

    @classmethod
    def of(cls, mechanism: Mechanism) -> Self:
        """Return a mechanism that is one of this class; raise TypeError for any other."""
        if not isinstance(mechanism, cls):
            raise TypeError(f"the mechanism must be a {cls.__name__}, got {mechanism.name}")
        return mechanism

    @abstractmethod
    def parameters(self) -> dict[str, int]:
        """Return all the integers that fix the mechanism."""

    def to_document(self) -> dict[str, object]:
        """Return the name and the integers. The integers that a memo depends on stand apart."""
        memo = self.memo_parameters()
        rest = {name: integer for name, integer in self.parameters().items() if name not in memo}
        return {"mechanism": self.name, "parameters": rest, **({"memo": memo} if self.memoized else {})}

    @classmethod
    def of_integers(cls, parameters: Mapping[str, int], memo: Mapping[str, int] | None) -> Mechanism:
        """Make the mechanism of a document's integers; `memo` is None for fresh noise."""
        if memo is not None:
            raise InvalidParameter(f"{cls.name} is not memoized")
        return cls(**parameters)

    @property
    @abstractmethod
    def exp_epsilon(self) -> Fraction:
        """e^epsilon: the largest ratio of the probabilities of one report under two answers, exactly."""

    @property
    def first_stage(self) -> Mechanism:
        """The part that sees the answer: the whole mechanism, or the permanent part of a memoized one."""
        return self

    def memo_parameters(self) -> dict[str, int]:
        """Return the integers that a memo depends on; none where nothing is memoized."""
        return {}

    def memo_law(self) -> SymbolLaw:
        """Return the law of the permanent symbol of one answer; nothing where nothing is memoized.

        If answers have different laws, it is that of an answer whose memo tells a device most from others.
        """
        return ()

    @property
    @abstractmethod
    def shape(self) -> ReportShape:
        """The set of possible reports."""

    @abstractmethod
    def randomize(self, answer: int, rng: Rng) -> int:
        """Return a report for an answer, given by its class."""

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return a report out of what the first stage drew: that itself, unless it is memoized."""
        return memo

    @cached_property
    def charge(self) -> int:
        """The cost of one report, in micro-epsilon: epsilon rounded up."""
        return micro_epsilon(self.exp_epsilon)
