"""Unary encoding: a bit for each value, set for those the answer holds, and every bit sent at random on its own.

    p = T_p / 2^64      P[bit is sent as 1 | it is 1]      OUE: 1/2      SUE: 1 - q
    q = T_q / 2^64      P[bit is sent as 1 | it is 0]

Privacy. Let an answer hold at most t of the d values. On a bit that v has and w has not, a report's probabilities
differ by a factor of at most p / q, on one that w has and v has not by at most (1 - q) / (1 - p), elsewhere not at all.
With A the larger of the two factors and B the other one, two answers that share no value are the worst:

    e^eps = A^a B^b      a = min(t, d)      b = min(t, d - a)

For one value of d this is p (1 - q) / (q (1 - p)). It is t times that epsilon only while 2 t <= d, or if p = 1 - q.
Estimate. A report supports the values whose bits it has set: pure, with these p and q.
The optimised code (OUE) minimises the error of rare values, the symmetric one (SUE, basic RAPPOR) has the same error
for every share. Erlingsson, Pihur, Korolova 2014; Wang et al. 2017, section 4.2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import log, log1p

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.frozen import frozen
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import (
    Mechanism,
    MechanismRequest,
    MemoizedPure,
    PairLaw,
    PureMechanism,
    SymbolLaw,
    as_bits,
    law_of_coins,
    sent_as_one,
)
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import Bits


class UnaryCode(PureMechanism):
    """A pure mechanism that sends d bits, each with a law of its own."""

    @property
    def exp_epsilon(self) -> Fraction:
        """The largest ratio for two answers of at most `ticks` values each."""
        p, q = self.p, self.q
        unit = p.denominator * q.denominator
        return Fraction(
            *multi_hot_ratio(self.d, self.ticks, p.numerator * q.denominator, q.numerator * p.denominator, unit)
        )

    @cached_property
    def pairs(self) -> PairLaw:
        """Bits are independent."""
        return PairLaw(self.p * self.p, self.p * self.q, self.q * self.q)

    @cached_property
    def shape(self) -> Bits:
        """A report is d bits, bit v for value v."""
        return Bits(self.d)

    def class_of(self, values: Sequence[int]) -> int:
        """Return the values as bits."""
        return as_bits(values, self.ticks)


@frozen
class Unary(UnaryCode):
    """Send d bits: those of the answer set with probability threshold_p / 2^64, others with threshold_q / 2^64."""

    serves_one = True
    serves_several = True

    d: int
    ticks: int
    threshold_p: int
    threshold_q: int

    def __post_init__(self) -> None:
        if self.d < 2:
            raise InvalidParameter(f"d must be at least 2, got {self.d}")
        if not 1 <= self.ticks <= self.d:
            raise InvalidParameter(f"ticks must be from 1 to d = {self.d}, got {self.ticks}")
        if not 0 < self.threshold_q < self.threshold_p < SCALE:
            raise InvalidParameter(
                f"thresholds must satisfy 0 < threshold_q < threshold_p < 2^64, "
                f"got {self.threshold_q} and {self.threshold_p}"
            )

    @classmethod
    @abstractmethod
    def for_epsilon(cls, d: int, epsilon: Decimal, ticks: int = 1) -> Self:
        """Return the mechanism with the largest epsilon that is not above `epsilon`, for answers of up to `ticks`."""

    @classmethod
    def of_integers(cls, parameters: Mapping[str, int], memo: Mapping[str, int] | None) -> Mechanism:
        """Make the mechanism of a document's integers, in two stages where there is a memo."""
        if memo is None:
            return cls(**parameters)
        return MemoizedUnary(cls(**memo), **parameters)

    @classmethod
    def designs(cls, request: MechanismRequest) -> Iterator[UnaryCode]:
        """Return the one that there is, for memoized answers in two stages.

        For one value of d with fresh noise only if it is named: subset selection has less error in as many bits.
        """
        if request.permanent is not None:
            yield cls.for_epsilon(request.d, request.permanent, request.ticks).in_two_stages(request.epsilon)
        elif request.several or request.named:
            yield cls.for_epsilon(request.d, request.epsilon, request.ticks)

    def in_two_stages(self, epsilon: Decimal) -> UnaryCode:
        """Return the mechanism that memoizes a report of this one, with reports of `epsilon`."""
        return MemoizedUnary.for_epsilon(self, epsilon)

    @cached_property
    def p(self) -> Fraction:
        """P[a bit of the answer is sent as 1]."""
        return Fraction(self.threshold_p, SCALE)

    @cached_property
    def q(self) -> Fraction:
        """P[another bit is sent as 1]."""
        return Fraction(self.threshold_q, SCALE)

    def symbol_law(self) -> SymbolLaw:
        """Return the law of one report of an answer that holds `ticks` values.

        With p of OUE (1/2) or SUE (1 - q) a held bit is at least as random as another one. So no other answer's law is
        spread more: fewer held bits make a law that majorizes this one.
        """
        held, others = law_of_coins(self.ticks, self.threshold_p), law_of_coins(self.d - self.ticks, self.threshold_q)
        return [one * other for one in held for other in others]

    def randomize(self, answer: int, rng: Rng) -> int:
        """Return a coin for every bit."""
        return send_bits(answer, self.d, self.threshold_q, self.threshold_p, rng)


@frozen
class OUE(Unary):
    """Optimised unary encoding: p is one half.

    Use for up to some hundred values where a bit for each is wanted. Do not use for more: a report is d bits long.
    """

    name = "oue"

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal, ticks: int = 1) -> Self:
        """Keep p at one half exactly and take the least q: a larger q is a smaller epsilon."""
        half = SCALE // 2
        threshold = least_private(half, epsilon, lambda threshold: multi_hot_ratio(d, ticks, half, threshold, SCALE))
        return cls(d, ticks, half, threshold)


@frozen
class SUE(Unary):
    """Symmetric unary encoding: every bit is flipped with the same probability.

    Use where devices hold many of the values. Do not use for one value of many: OUE has less error.
    """

    name = "sue"

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal, ticks: int = 1) -> Self:
        """Take the least probability of a flip: a larger one is a smaller epsilon."""
        threshold = least_private(
            SCALE // 2, epsilon, lambda threshold: multi_hot_ratio(d, ticks, SCALE - threshold, threshold, SCALE)
        )
        return cls(d, ticks, SCALE - threshold, threshold)


@frozen
class MemoizedUnary(MemoizedPure, UnaryCode):
    """A unary code in two stages.

    Use for states that are asked again and again. Do not use where the change is the secret.
    """

    permanent: Unary
    threshold_flip: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold_flip < SCALE // 2:
            raise InvalidParameter(f"threshold_flip must be above 0 and below 2^63, got {self.threshold_flip}")

    @classmethod
    def for_epsilon(cls, permanent: Unary, epsilon: Decimal) -> Self:
        """Return the least threshold_flip whose first report's epsilon is not above `epsilon`."""

        def ratio(flip: int) -> tuple[int, int]:
            p, q = (sent_as_one(one, flip, SCALE - flip) for one in (permanent.threshold_p, permanent.threshold_q))
            return multi_hot_ratio(permanent.d, permanent.ticks, p, q, SCALE**2)

        return cls(permanent, least_private(SCALE // 2, epsilon, ratio))

    def parameters(self) -> dict[str, int]:
        """Return those of the permanent part, and threshold_flip."""
        return {**self.permanent.parameters(), "threshold_flip": self.threshold_flip}

    @cached_property
    def p(self) -> Fraction:
        """P[a bit of the answer is sent as 1]."""
        return self._sent_as_one(self.permanent.threshold_p)

    @cached_property
    def q(self) -> Fraction:
        """P[another bit is sent as 1]."""
        return self._sent_as_one(self.permanent.threshold_q)

    def _sent_as_one(self, threshold: int) -> Fraction:
        flip = self.threshold_flip
        return Fraction(sent_as_one(threshold, flip, SCALE - flip), SCALE**2)

    def memo_law(self) -> SymbolLaw:
        """Return that of the permanent part, for an answer that holds `ticks` values."""
        return self.permanent.symbol_law()

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return the memo with a coin's flip for every bit."""
        return send_bits(memo, self.d, self.threshold_flip, SCALE - self.threshold_flip, rng)


def send_bits(bits: int, size: int, threshold_0: int, threshold_1: int, rng: Rng) -> int:
    """Return `size` coins: 1 with probability threshold_1 / 2^64 where the bit is 1, threshold_0 / 2^64 where it is 0.

    Both laws are drawn for each, so that time tells nothing; where they are each other's mirror, one is enough.
    """
    zeros = rng.coins(threshold_0, size)
    if threshold_0 + threshold_1 == SCALE:
        return bits ^ zeros
    ones = rng.coins(threshold_1, size)
    return zeros ^ (zeros ^ ones) & bits


def multi_hot_ratio(d: int, ticks: int, p: int, q: int, unit: int) -> tuple[int, int]:
    """Return e^epsilon of a unary code of d bits with at most `ticks` set, as numerator and denominator.

    p and q are integers out of `unit`. Nothing is reduced: a search compares hundreds of these.
    """
    held, missing = (p, q), (unit - q, unit - p)
    larger, smaller = (held, missing) if p * (unit - p) >= q * (unit - q) else (missing, held)
    most = min(ticks, d)
    rest = min(ticks, d - most)
    return larger[0] ** most * smaller[0] ** rest, larger[1] ** most * smaller[1] ** rest


def least_private(above: int, epsilon: Decimal, ratio: Callable[[int], tuple[int, int]]) -> int:
    """Return the least threshold in [1, above) with ln(ratio) <= epsilon, for a ratio that falls as it grows.

    Exact signs decide. Most steps go where the line between both ends meets epsilon: a dozen in place of 64 halvings.
    """
    e = exp_below(epsilon)
    low, high = 0, above - 1
    excess, lack = 0.0, 0.0  # ln(ratio) - epsilon at the low end, and the opposite at the high one; 0 if not known
    steps, falls = 0, 0  # how often the high end came down; each time in a row the low one counts for half (Illinois)
    while high - low > 1:
        steps += 1
        middle = (low + high) // 2
        if steps % 4 and excess and lack:
            middle = low + min(max(int((high - low) * (excess / (excess + lack))), 1), high - low - 1)
        numerator, denominator = ratio(middle)
        found, allowed = numerator * e.denominator, denominator * e.numerator
        if found <= allowed:
            high, lack, excess = middle, _log(allowed, found), excess / (2 if falls > 0 else 1)
            falls = max(falls, 0) + 1
        else:
            low, excess, lack = middle, _log(found, allowed), lack / (2 if falls < 0 else 1)
            falls = min(falls, 0) - 1
    return high


def _log(larger: int, smaller: int) -> float:
    """Return ln(larger / smaller), of whatever size."""
    return log1p((larger - smaller) / smaller) if larger < 2 * smaller else log(larger) - log(smaller)
