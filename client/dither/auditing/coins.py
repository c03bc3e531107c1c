"""The law of each decision of the SDK's `Rng`: its own code, run once for every sequence of bits that it looks at.

The laws of randomizers are told over these. So a coin that is not the one of its threshold, by however little, has the
law that it has, and not the one that it should have. Random bits are decided as far as its code looks at them: a number
that is compared with an integer becomes two ranges, a string that meets a mask the bits of that mask.

    coin, coins    over all 64 bits; that coins of one string and decisions in a row are independent, over fewer bits
    uniform        over all bits of a first draw and of a second one, for a draw that is out of range begins again
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, gcd, lcm, prod
from typing import Any

from dither.auditing.symbolic_rng import Decide, Lazy, SymbolicBits, SymbolicNumber, Undecidable
from dither_shared.rng import COIN_BITS, SCALE, Rng

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
