"""PrivSet: send w values, mostly with at least one of the answer's among them. For answers that hold several values.

An answer of up to t of the d values is filled up to exactly t with dummies, of which there are t: x is then a t-subset
of D = d + t. All reports y are the w-subsets of these D, and

    P[y | x] = i / N_1        where y and x meet            N_1 = C(D, w) - N_0
               (1 - i) / N_0  where they do not             N_0 = C(D - t, w)

with i = T / 2^64, ideally N_1 e^eps / (N_1 e^eps + N_0).
Privacy. Every x meets as many reports, so there are only these two levels, e^eps = T N_0 / ((2^64 - T) N_1), whatever
the two answers have in common and however many values they hold.
Estimate. A report supports the values it holds. C(D - 1, w - 1) reports hold a given value; those of a value of x all
meet x, and C(D - t - 1, w - 1) of those of another value do not. So it is pure (two_level.py), with

    p = i C(D - 1, w - 1) / N_1
    q = i (C(D - 1, w - 1) - C(D - t - 1, w - 1)) / N_1 + (1 - i) C(D - t - 1, w - 1) / N_0

An epsilon is not divided among the values of an answer, as unary codes must: the variance is several times smaller,
but for answers that hold most of the values. With t = 1 this is subset selection, with w = 1 it is GRR of one value
drawn from the answer.
Wang, Huang, Nie, Wang, Xu, Yang 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import comb

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.frozen import frozen
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import REPORT_BITS_MAX, MechanismRequest, PairLaw, as_bits
from dither_shared.mechanisms.subset import light_weights
from dither_shared.mechanisms.two_level import OneShot, TwoLevelLaw, threshold_for
from dither_shared.rng import Rng
from dither_shared.shapes import Subsets, Symbols

WEIGHTS_TRIED = 3
"""Weights on each side of the estimated best one that are compared."""


@frozen
class PrivSet(OneShot):
    """Send a subset of `weight` values that meets the answer with probability threshold / 2^64.

    Use for answers that hold several values. Do not use for one value: subset selection needs no dummies.
    """

    name = "privset"
    serves_several = True

    d: int
    ticks: int
    weight: int
    threshold: int

    def __post_init__(self) -> None:
        if self.d < 2:
            raise InvalidParameter(f"d must be at least 2, got {self.d}")
        if not 1 <= self.ticks <= self.d:
            raise InvalidParameter(f"ticks must be from 1 to d = {self.d}, got {self.ticks}")
        if not 1 <= self.weight <= self.d:
            raise InvalidParameter(f"weight must be from 1 to d = {self.d}, got {self.weight}")
        self.check_threshold()
        if self.p <= self.q:
            raise InvalidParameter(f"weight {self.weight} must let a value be told from another")

    @classmethod
    def for_weight(cls, d: int, ticks: int, weight: int, epsilon: Decimal) -> Self:
        """Return the mechanism of this weight with the largest epsilon that is not above `epsilon`."""
        outside = Fraction(comb(d, weight), comb(d + ticks, weight))
        return cls(d, ticks, weight, threshold_for(epsilon, 1 - outside))

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal, ticks: int, bits_max: int) -> Self:
        """Return the mechanism with the weight of least average variance, next to D / (t (e^epsilon + 1)).

        If its report would be longer than `bits_max`, the best of the lighter ones.
        """
        padded = d + ticks
        most = d if padded <= bits_max else bits_max // (8 * Symbols(padded).width)
        near = min(int(padded / (ticks * (exp_below(epsilon) + 1))), most)
        weights = range(max(1, near - WEIGHTS_TRIED), min(most, near + 1 + WEIGHTS_TRIED) + 1)
        tried = (cls.for_weight(d, ticks, weight, epsilon) for weight in weights)
        return min(tried, key=lambda one: one.average_variance)

    @classmethod
    def fresh_designs(cls, request: MechanismRequest) -> Iterator[Self]:
        """Return the one of the best weight whose reports are short enough."""
        yield cls.for_epsilon(request.d, request.epsilon, request.ticks, REPORT_BITS_MAX)

    @classmethod
    def memo_designs(cls, request: MechanismRequest, permanent: Decimal) -> Iterator[Self]:
        """Return the one of the best weight for reports of `request.epsilon`, and lighter ones of not too many
        subsets."""
        best = cls.for_epsilon(request.d, request.epsilon, request.ticks, REPORT_BITS_MAX).weight
        for weight in (*light_weights(request.d + request.ticks, best), best):
            yield cls.for_weight(request.d, request.ticks, weight, permanent)

    @property
    def padded(self) -> int:
        """The number of values and dummies, D."""
        return self.d + self.ticks

    @cached_property
    def outputs(self) -> int:
        """The number of subsets, C(D, w)."""
        return comb(self.padded, self.weight)

    @cached_property
    def _outside(self) -> int:
        return comb(self.d, self.weight)

    @cached_property
    def law(self) -> TwoLevelLaw:
        """N_1 of all C(D, w) reports meet an answer. The parts of them that hold a value are those of p and q above."""
        outside, inside = self._outside, self.outputs - self._outside
        holding, holding_outside = comb(self.padded - 1, self.weight - 1), comb(self.d - 1, self.weight - 1)
        return TwoLevelLaw(
            self.inside,
            share=Fraction(inside, self.outputs),
            overlap=Fraction(holding - holding_outside, inside),
            overlap_outside=Fraction(holding_outside, outside),
            held=Fraction(holding, inside),
        )

    def pair_law(self, inside: Fraction) -> PairLaw:
        """C(D - 2, w - 2) reports hold two given values, of which C(D - t - 2, w - 2) do not meet an answer of others.

        All of them meet an answer that holds one of the two.
        """
        w, missing, meeting = self.weight, self._outside, self.outputs - self._outside
        holding = self.outputs * Fraction(w * (w - 1), self.padded * (self.padded - 1))
        holding_outside = missing * Fraction(w * (w - 1), self.d * (self.d - 1))
        met = inside * holding / meeting
        missed = inside * (holding - holding_outside) / meeting + (1 - inside) * holding_outside / missing
        return PairLaw(both=met, one=met, neither=missed)

    @property
    def supported(self) -> tuple[int, int]:
        """The subset's members, some of which may be dummies."""
        return max(0, self.weight - self.ticks), self.weight

    @cached_property
    def shape(self) -> Subsets:
        """A report is a subset of `weight` of the D values and dummies."""
        return Subsets(self.padded, self.weight)

    def class_of(self, values: Sequence[int]) -> int:
        """Return the values as bits."""
        return as_bits(values, self.ticks)

    def randomize(self, answer: int, rng: Rng) -> int:
        """Return a subset. One that meets the answer and one that does not are always drawn: the draws tell nothing."""
        meets = rng.coin(self.threshold)
        inside, outside = rng.uniform(self.outputs - self._outside), rng.uniform(self._outside)
        values = [value for value in range(self.d) if answer >> value & 1]
        values += range(self.d, self.padded - len(values))
        held = set(values)
        others = [value for value in range(self.padded) if value not in held]
        if not meets:
            return self.shape.of([others[place] for place in unrank(self.d, self.weight, outside)])
        for common in range(1, min(self.ticks, self.weight) + 1):
            rest = comb(self.d, self.weight - common)
            size = comb(self.ticks, common) * rest
            if inside < size:
                break
            inside -= size
        first, second = divmod(inside, rest)
        chosen = [values[place] for place in unrank(self.ticks, common, first)]
        return self.shape.of(chosen + [others[place] for place in unrank(self.d, self.weight - common, second)])

    def uniform_report(self, rng: Rng) -> int:
        """Return any subset."""
        return self.shape.of(unrank(self.padded, self.weight, rng.uniform(self.outputs)))


def unrank(size: int, count: int, rank: int) -> list[int]:
    """Return the subset of `count` integers below `size` that is at place `rank` in lexicographic order."""
    chosen: list[int] = []
    left = comb(size - 1, count - 1) if count else 0  # subsets that begin with the next integer
    for integer in range(size):
        if not count:
            break
        remaining = size - integer - 1
        if rank < left:
            chosen.append(integer)
            count -= 1
            left = left * count // remaining if remaining else 0
        else:
            rank -= left
            left = left * (remaining - count + 1) // remaining
    return chosen
