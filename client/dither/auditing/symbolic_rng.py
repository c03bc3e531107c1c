"""Integers that are decided where a randomizer looks at them: what it never looks at needs no branch.

A uniform number that is divided by a part of its range is two independent ones. A string of coins that only meets
others by `&`, `|` and `^` stays one: each of its bits is a function of its own coins. So a code of a thousand bits, or
a draw out of a billion of which one branch uses a part, has a law that is exact without a billion branches.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

from dither_shared.rng import COIN_BITS, SCALE

Decide = Callable[[tuple[int, ...]], int]
"""Takes the weights of the branches, or the one number of branches that are alike, and returns the branch to follow."""


class Undecidable(Exception):
    """There are too many branches to try each: a randomizer asks for bits, or uses them in a way that has no law."""


class Lazy(ABC):
    """Acts as the integer that it becomes when it is looked at."""

    @abstractmethod
    def __index__(self) -> int:
        """Become an integer."""

    def __int__(self) -> int:
        return self.__index__()

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __pow__(self, power: int, modulus: int | None = None) -> Any:
        return pow(self.__index__(), power, modulus)

    def __divmod__(self, divisor: Any) -> Any:
        return divmod(self.__index__(), divisor)

    def __bool__(self) -> bool:
        return self.__index__() != 0

    def __round__(self, digits: int | None = None) -> int:
        return round(self.__index__(), digits) if digits is not None else self.__index__()

    def __str__(self) -> str:
        return str(self.__index__())

    def __repr__(self) -> str:
        return repr(self.__index__())

    def __format__(self, form: str) -> str:
        return format(self.__index__(), form)

    def __getattr__(self, name: str) -> Any:
        """Return what integers have under this name, such as `bit_count`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.__index__(), name)


def _becomes(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(self: Lazy, other: Any) -> Any:
        return function(self.__index__(), other)

    return apply


def _becomes_right(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(self: Lazy, other: Any) -> Any:
        return function(other, self.__index__())

    return apply


def _becomes_alone(function: Callable[[Any], Any]) -> Callable[[Lazy], Any]:
    def apply(self: Lazy) -> Any:
        return function(self.__index__())

    return apply


for _name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift", "and", "or", "xor", "truediv"):
    _function = getattr(operator, f"__{_name}__")
    setattr(Lazy, f"__{_name}__", _becomes(_function))
    setattr(Lazy, f"__r{_name}__", _becomes_right(_function))
for _name, _function in (("rpow", pow), ("rdivmod", divmod)):
    setattr(Lazy, f"__{_name}__", _becomes_right(_function))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Lazy, f"__{_name}__", _becomes_alone(getattr(operator, f"__{_name}__")))
for _name, _function in (("float", float), ("complex", complex), ("trunc", int), ("floor", int), ("ceil", int)):
    setattr(Lazy, f"__{_name}__", _becomes_alone(_function))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Lazy, f"__{_name}__", _becomes(getattr(operator, _name)))


class SymbolicNumber(Lazy):
    """A uniform number below `size`."""

    def __init__(self, decide: Decide, size: int) -> None:
        self._decide, self._size = decide, size
        self._value: int | None = None
        self._parts: tuple[SymbolicNumber, SymbolicNumber, int] | None = None

    def __index__(self) -> int:
        if self._parts:
            quotient, rest, divisor = self._parts
            return int(quotient) * divisor + int(rest)
        if self._value is None:
            self._value = self._decide((self._size,)) if self._size > 1 else 0
        return self._value

    def __divmod__(self, divisor: int) -> tuple[Any, Any]:
        if self._value is not None or self._parts or self._size % divisor:
            return divmod(int(self), divisor)
        quotient, rest = SymbolicNumber(self._decide, self._size // divisor), SymbolicNumber(self._decide, divisor)
        self._parts = quotient, rest, divisor
        return quotient, rest


class Coins:
    """A string of coins that are alike and independent."""

    def __init__(self, threshold: int, count: int) -> None:
        self.threshold, self.count = threshold, count
        self.looked_at = False


class SymbolicBits(Lazy):
    """A string of independent bits, each a function of the coins at its place in some strings of coins."""

    def __init__(
        self,
        decide: Decide,
        count: int,
        coins: tuple[Coins, ...],
        evaluate: Callable[[Mapping[Coins, int]], int],
    ) -> None:
        self._decide, self._count = decide, count
        self._coins = coins
        self._evaluate = evaluate
        """Makes the bits of the strings of coins."""
        self._value: int | None = None

    @classmethod
    def of_coins(cls, decide: Decide, threshold: int, count: int) -> "SymbolicBits":
        """Return a fresh string of coins."""
        coins = Coins(threshold, count)
        return cls(decide, count, (coins,), lambda strings: strings[coins])

    def __index__(self) -> int:
        """Decide every bit on its own: of a long string these are many branches."""
        if self._value is None:
            weights = [(one.denominator - one.numerator, one.numerator) for one in self.ones()]
            self._value = sum(
                (self._decide(each) if all(each) else int(each[1] > 0)) << place for place, each in enumerate(weights)
            )
        return self._value

    def _meet(self, other: Any, function: Callable[[int, int], int]) -> Any:
        own = self._evaluate
        if self._value is None and isinstance(other, SymbolicBits) and other._value is None:
            theirs = other._evaluate
            return SymbolicBits(
                self._decide,
                max(self._count, other._count),
                tuple(dict.fromkeys(self._coins + other._coins)),
                lambda strings: function(own(strings), theirs(strings)),
            )
        if self._value is None and type(other) is int and 0 <= other < 1 << self._count:
            return SymbolicBits(self._decide, self._count, self._coins, lambda strings: function(own(strings), other))
        return function(int(self), int(other))

    def __and__(self, other: Any) -> Any:
        return self._meet(other, operator.and_)

    def __or__(self, other: Any) -> Any:
        return self._meet(other, operator.or_)

    def __xor__(self, other: Any) -> Any:
        return self._meet(other, operator.xor)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def ones(self) -> tuple[Fraction, ...]:
        """Return the probability of each bit that it is 1; once only, since what was looked at is decided."""
        if any(coins.looked_at for coins in self._coins):
            raise Undecidable("it looks at the same string of coins in two ways")
        total = 1 << COIN_BITS * len(self._coins)
        weights = [0] * self._count
        for falls in product((0, 1), repeat=len(self._coins)):
            weight = 1
            for fall, coins in zip(falls, self._coins, strict=True):
                weight *= coins.threshold if fall else SCALE - coins.threshold
            strings = zip(falls, self._coins, strict=True)
            bits = self._evaluate({coins: fall * ((1 << coins.count) - 1) for fall, coins in strings})
            for place in range(self._count):
                if bits >> place & 1:
                    weights[place] += weight
        for coins in self._coins:
            coins.looked_at = True
        shares = {weight: Fraction(weight, total) for weight in set(weights)}  # most bits have the same one
        return tuple(map(shares.__getitem__, weights))


def plain(outcome: Any) -> Any:
    """Return an outcome with all that was not decided yet decided."""
    if isinstance(outcome, Lazy):
        return int(outcome)
    return tuple(map(plain, outcome)) if type(outcome) is tuple else outcome
