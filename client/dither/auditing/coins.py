"""The law of each decision of the SDK's `Rng`: its own code, run once for every sequence of bits that it looks at."""

import operator
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import ceil, floor, gcd, lcm, prod
from typing import Any

from dither_shared.rng import COIN_BITS, SCALE, Rng

# Integers that are decided where a randomizer looks at them: what it never looks at needs no branch.
#
# A uniform number that is divided by a part of its range is two independent ones. A string of coins that only meets
# others by `&`, `|` and `^` stays one: each of its bits is a function of its own coins. So a code of a thousand bits,
# or a draw out of a billion of which one branch uses a part, has a law that is exact without a billion branches.

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


# The law of each decision of the SDK's `Rng`: its own code, run once for every sequence of bits that it looks at.
#
# The laws of randomizers are told over these. So a coin that is not the one of its threshold, by however little, has
# the law that it has, and not the one that it should have. Random bits are decided as far as its code looks at them: a
# number that is compared with an integer becomes two ranges, a string that meets a mask the bits of that mask.
#
#     coin, coins    over all 64 bits; that coins of one string and decisions in a row are independent, over fewer bits
#     uniform        over all bits of a first draw and of a second one, for a draw that is out of range begins again

RUNS_MAX = 200_000
"""The most sequences of bits that are tried for one decision: some seconds."""
EAGER_BITS = 16
"""So many bits that are looked at all at once are still tried each."""
STRINGS = ((2, 10), (3, 4))
"""Numbers of coins that are tried for independence, each with the bits of a coin. Thresholds are scaled to these."""
IN_A_ROW_BITS = 4
MIXED = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: its multiples have bits like those of lots."""
PRIMITIVES = ("coin", "coins", "uniform")
"""The decisions of an `Rng`."""


class BranchingRng(Rng):
    """Decides by `decide` whatever a randomizer draws, with the probabilities that the SDK's own code has for it."""

    decide: Decide

    def __init__(self, decide: Decide) -> None:
        # Not by `super()`, which looks at every field: each sequence of decisions has an instance of its own.
        self.__dict__.update(randbits=_no_bits, coin_bits=COIN_BITS, decide=decide)

    def coin(self, threshold: int) -> bool:
        """Branch, unless the coin is certain."""
        one = law_of_coin(Rng.coin, threshold)
        if one in (0, 1):
            return one == 1
        return bool(self.decide((one.denominator - one.numerator, one.numerator)))

    def coins(self, threshold: int, count: int) -> Any:
        """Return coins of which none is decided yet."""
        return SymbolicBits.of_coins(self.decide, law_of_coins(Rng.coins, threshold, count), count)

    def uniform(self, size: int) -> Any:
        """Return a number that is not decided yet; one that is not uniform is."""
        weights = law_of_uniform(Rng.uniform, size)
        return SymbolicNumber(self.decide, size) if weights is None else self.decide(weights)


def _no_bits(count: int) -> int:
    raise Undecidable("it draws bits of its own, not coins and uniform numbers")


# The laws.


@lru_cache(4096)
def law_of_coin(coin: Callable[[Rng, int], bool], threshold: int) -> Fraction:
    """Return the probability that this code returns True."""
    return _share(_runs(lambda rng: coin(rng, threshold)))


@lru_cache(4096)
def law_of_coins(coins: Callable[[Rng, int, int], int], threshold: int, count: int) -> int:
    """Return the threshold that each of so many coins has by this code; raise Undecidable if one depends on another.

    A few coins show whether one does. The first and the last of all `count` are followed, while the bits of the
    others are given: bit k of a number that is drawn for n coins belongs to coin k mod n.
    """
    for few, bits in STRINGS:
        scaled = max(1, threshold >> COIN_BITS - bits)
        single = _share(_runs(lambda rng: coins(rng, scaled, 1), bits))  # noqa: B023
        found = _table(_runs(lambda rng: coins(rng, scaled, few), bits))  # noqa: B023
        for pattern in range(1 << few):
            ones = pattern.bit_count()
            if found.get(pattern, 0) != single**ones * (1 - single) ** (few - ones):
                raise Undecidable("coins of one string depend on each other")
    shares = {
        _share(_runs(lambda rng: coins(rng, threshold, count) >> at & 1, followed=(at, count))) * SCALE  # noqa: B023
        for at in {0, count - 1}
    }
    one = shares.pop()
    if shares or one.denominator != 1:
        raise Undecidable("coins of one string are not alike")
    return one.numerator


@lru_cache(4096)
def law_of_uniform(uniform: Callable[[Rng, int], int], size: int) -> tuple[int, ...] | None:
    """Return the weights of the numbers that this code returns, each below `size`; None where they are all alike."""
    rounds: list[dict[tuple[int, int], Fraction]] = [defaultdict(Fraction), defaultdict(Fraction)]
    for number, draws, weight in _runs(lambda rng: uniform(rng, size), draws_max=len(rounds)):
        if draws:
            block = number.block() if isinstance(number, RandomBits) else (int(number), int(number) + 1)
            rounds[draws - 1][block] += weight
    laws = [_weights(blocks, size) for blocks in rounds if blocks]
    if not laws:
        raise Undecidable(f"a uniform number below {size} is never drawn")
    if len(set(laws)) > 1:
        raise Undecidable("a uniform number that is drawn again has another law")
    return laws[0]


def _weights(blocks: dict[tuple[int, int], Fraction], size: int) -> tuple[int, ...] | None:
    """Return the weights of numbers that come in ranges; None where they are all alike, and all that are below size."""
    ranges = sorted(blocks)
    tiles = [low for low, _ in ranges] + [size] == [0] + [high for _, high in ranges]
    if tiles and len({weight / (high - low) for (low, high), weight in blocks.items()}) == 1:
        return None
    if size > 1 << EAGER_BITS or ranges[0][0] < 0 or max(high for _, high in ranges) > size:
        raise Undecidable(f"a number below {size} is not uniform")
    weights = [Fraction(0)] * size
    for (low, high), weight in blocks.items():
        for number in range(low, high):
            weights[number] += weight / (high - low)
    common = lcm(*(weight.denominator for weight in weights))
    whole = tuple(int(weight * common) for weight in weights)
    return tuple(weight // gcd(*whole) for weight in whole)


@lru_cache(64)
def independent(coin: Callable[[Rng, int], bool], uniform: Callable[[Rng, int], int]) -> bool:
    """Tell whether decisions that are made one after the other are independent, at few bits."""
    half = 1 << IN_A_ROW_BITS - 1

    def draw(rng: Rng) -> tuple[bool, int, bool]:
        return coin(rng, half + 3), int(uniform(rng, 4)), coin(rng, half - 2)

    together = _table(_runs(draw, IN_A_ROW_BITS))
    alone: list[dict[Any, Fraction]] = [defaultdict(Fraction) for _ in range(3)]
    for outcome, p in together.items():
        for place, each in enumerate(outcome):
            alone[place][each] += p
    return len(together) == prod(map(len, alone)) and all(
        p == prod((alone[place][each] for place, each in enumerate(outcome)), start=Fraction(1))
        for outcome, p in together.items()
    )


# Their bits.


class _Again(Exception):
    """More random numbers are asked for than are followed."""


class _Tape:
    """The decisions of one run: those that are given, then the first branch of each new one."""

    def __init__(self, taken: list[int], followed: tuple[int, int]) -> None:
        self._taken = taken
        self._followed, self._of = followed
        self._at = self.draws = 0
        self.weight = Fraction(1)

    def bit(self, draw: int, place: int) -> int:
        """Return a bit of a number that was drawn: one that belongs to another coin is given, as if by lot."""
        if place % self._of != self._followed:
            return MIXED * (draw * SCALE + place + 1) >> COIN_BITS - 1 & 1
        return self.decide(1, 1)

    def decide(self, *weights: int) -> int:
        """Return which of two branches of these weights is followed."""
        if self._at == len(self._taken):
            self._taken.append(0)
        branch = self._taken[self._at]
        self._at += 1
        self.weight *= Fraction(weights[branch], sum(weights))
        return branch


class RandomBits(Lazy):
    """A number of so many random bits, of which no more is decided than is looked at: a range, or some of the bits."""

    def __init__(self, tape: _Tape, count: int) -> None:
        self._tape, self._count, self._draw = tape, count, tape.draws
        self._range = [0, 1 << count]
        self._known: dict[int, int] = {}
        self._shift, self._flip = 0, 0

    def _view(self, shift: int, flip: int) -> "RandomBits":
        view = RandomBits(self._tape, self._count)
        view._draw = self._draw
        view._range, view._known = self._range, self._known
        view._shift, view._flip = self._shift + shift, self._flip ^ flip
        return view

    def _bit(self, place: int) -> int:
        place += self._shift
        if place >= self._count:
            return self._flip
        if self._is_ranged:
            return (self._decided() >> place & 1) ^ self._flip
        if place not in self._known:
            self._known[place] = self._tape.bit(self._draw, place)
        return self._known[place] ^ self._flip

    @property
    def _is_ranged(self) -> bool:
        return self._range[1] - self._range[0] < 1 << self._count

    def _decided(self) -> int:
        """Decide all of it."""
        low, high = self._range
        if (high - low).bit_length() - len(self._known) > EAGER_BITS:
            raise Undecidable(f"a decision looks at {self._count} random bits in a way that is not followed")
        if self._known:
            whole = self._view(-self._shift, self._flip)
            return sum(whole._bit(place) << place for place in range(self._count))
        while (low := self._range[0]) + 1 < self._range[1]:
            self._is_below((low + self._range[1]) // 2)
        return low

    def __index__(self) -> int:
        number = self._decided() >> self._shift
        return ~number if self._flip else number

    def _is_below(self, number: int) -> bool:
        """Tell whether this is less, and know it from then on."""
        low, high = self._range
        if not low < number < high:
            return bool(number >= high)
        below = self._tape.decide(high - number, number - low) == 1
        self._range[below] = number
        return below

    def block(self) -> tuple[int, int]:
        """Return the range that this is in; raise Undecidable where it is no range."""
        if self._shift or self._flip or self._known:
            raise Undecidable("a uniform number is made of random bits in a way that is not followed")
        return self._range[0], self._range[1]

    def __invert__(self) -> "RandomBits":
        return self._view(0, 1)

    def __rshift__(self, places: Any) -> Any:
        return self._view(places, 0) if type(places) is int and places >= 0 else self.__index__() >> places

    def __and__(self, mask: Any) -> Any:
        if type(mask) is not int or mask < 0:
            return self.__index__() & mask
        return sum(self._bit(place) << place for place in range(mask.bit_length()) if mask >> place & 1)

    __rand__ = __and__

    def __lt__(self, other: Any) -> bool:
        if self._shift or self._flip or self._known:
            return bool(self.__index__() < other)
        return self._is_below(ceil(other))

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __le__(self, other: Any) -> bool:
        return bool(self < floor(other) + 1)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __eq__(self, other: Any) -> bool:
        return bool(other == ceil(other) and self <= other and not self < other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = Lazy.__hash__


def _runs(
    draw: Callable[[Rng], Any],
    coin_bits: int = COIN_BITS,
    draws_max: int | None = None,
    followed: tuple[int, int] = (0, 1),
) -> Iterator[tuple[Any, int, Fraction]]:
    """Yield each outcome, how many random numbers it took, and its probability; 0 numbers if it took too many."""
    taken: list[int] = []
    for _ in range(RUNS_MAX):
        tape = _Tape(taken, followed)

        def randbits(count: int, tape: _Tape = tape) -> Any:
            tape.draws += 1
            if draws_max is not None and tape.draws > draws_max:
                raise _Again
            return RandomBits(tape, count)

        try:
            yield draw(Rng(randbits, coin_bits)), tape.draws, tape.weight
        except _Again:
            yield None, 0, tape.weight
        while taken and taken[-1]:
            taken.pop()
        if not taken:
            return
        taken[-1] = 1
    raise Undecidable(f"a decision has more than {RUNS_MAX:,} sequences of branches")


def _table(runs: Iterator[tuple[Any, int, Fraction]]) -> dict[Any, Fraction]:
    table: dict[Any, Fraction] = defaultdict(Fraction)
    for outcome, _, weight in runs:
        table[outcome] += weight
    return table


def _share(runs: Iterator[tuple[Any, int, Fraction]]) -> Fraction:
    """Return the probability of an outcome that is true."""
    return sum((weight for outcome, _, weight in runs if outcome), Fraction(0))
