"""Generalised randomised response: tell the truth with probability p, else any other value.

    p = T / 2^64                ideally e^eps / (e^eps + d - 1)
    q = (1 - p) / (d - 1)       each of the other values

Privacy. A report y has probability p under the answer y and q under every other answer, so
P[y | v] / P[y | w] <= p / q = T (d - 1) / (2^64 - T) = e^eps.
Estimate. A report supports the value it names: two levels, with sets of one report each.
d = 2 is Warner's randomized response. Warner 1965; Kairouz, Oh, Viswanath 2014; Wang et al. 2017, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from dither_shared.errors import InvalidParameter
from dither_shared.frozen import frozen
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import MechanismRequest, PairLaw
from dither_shared.mechanisms.two_level import OneShot, TwoLevelLaw, threshold_for
from dither_shared.rng import Rng
from dither_shared.shapes import Symbols


@frozen
class GRR(OneShot):
    """Keep the answer with probability threshold / 2^64, else send one of the other d - 1 values.

    Use for few values (d below about e^epsilon). Do not use for many: its error grows with d.
    """

    name = "grr"
    ticks = 1
    supports_one = True
    serves_one = True

    d: int
    threshold: int

    def __post_init__(self) -> None:
        if self.d < 2:
            raise InvalidParameter(f"d must be at least 2, got {self.d}")
        self.check_threshold()

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal) -> Self:
        """Return the mechanism with the largest epsilon that is not above `epsilon`."""
        return cls(d, threshold_for(epsilon, Fraction(1, d)))

    @classmethod
    def fresh_designs(cls, request: MechanismRequest) -> Iterator[Self]:
        """Return the one that there is."""
        yield cls.for_epsilon(request.d, request.epsilon)

    @classmethod
    def memo_designs(cls, request: MechanismRequest, permanent: Decimal) -> Iterator[Self]:
        """Return the one that there is."""
        yield cls.for_epsilon(request.d, permanent)

    @cached_property
    def law(self) -> TwoLevelLaw:
        """One of the d reports is in a value's set, and none in two of them."""
        return TwoLevelLaw.of_one_value(self.inside, share=Fraction(1, self.d), overlap=Fraction(0))

    def pair_law(self, inside: Fraction) -> PairLaw:
        """No report supports two values."""
        return PairLaw(Fraction(0), Fraction(0), Fraction(0))

    @property
    def outputs(self) -> int:
        """The number of values, d."""
        return self.d

    @cached_property
    def shape(self) -> Symbols:
        """A report is one of the d values."""
        return Symbols(self.d)

    def randomize(self, answer: int, rng: Rng) -> int:
        """Return the answer, or any other value. Both draws are always made, so that time tells nothing."""
        keep = rng.coin(self.threshold)
        other = rng.uniform(self.d - 1)
        if keep:
            return answer
        return other + (other >= answer)

    def uniform_report(self, rng: Rng) -> int:
        """Return any value."""
        return rng.uniform(self.d)
