"""Generalised randomised response: tell the truth with probability p, else any other value.

    p = T / 2^64                ideally e^eps / (e^eps + d - 1)
    q = (1 - p) / (d - 1)       each of the other values

Privacy. A report y has probability p under the answer y and q under every other answer, so
P[y | v] / P[y | w] <= p / q = T (d - 1) / (2^64 - T) = e^eps.
Estimate. A report supports the value it names: pure, with these p and q.
d = 2 is Warner's randomized response. Warner 1965; Kairouz, Oh, Viswanath 2014; Wang et al. 2017, section 4.1.
"""

from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.reports import Symbols
from dither_shared.rng import SCALE, Rng


@dataclass(frozen=True)
class GRR(PureMechanism):
    """Keep the answer with probability threshold / 2^64, else send one of the other d - 1 values.

    Use for few values (d below about 3 e^epsilon + 2). Do not use for many: its error grows with d.
    """

    name: ClassVar[str] = "grr"

    d: int
    threshold: int

    def __post_init__(self) -> None:
        if self.d < 2:
            raise InvalidParameter(f"d must be at least 2, got {self.d}")
        if not SCALE < self.threshold * self.d < SCALE * self.d:
            raise InvalidParameter(f"threshold must be above 2^64 / d and below 2^64, got {self.threshold}")

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal) -> Self:
        """Round the threshold down: a smaller p is a smaller epsilon."""
        e = exp_below(epsilon)
        return cls(d, int(SCALE * e / (e + d - 1)))

    def parameters(self) -> dict[str, int]:
        """Return d and threshold."""
        return asdict(self)

    @property
    def p(self) -> Fraction:
        """P[the report is the answer]."""
        return Fraction(self.threshold, SCALE)

    @property
    def q(self) -> Fraction:
        """P[the report is one given other value]."""
        return (1 - self.p) / (self.d - 1)

    @property
    def exp_epsilon(self) -> Fraction:
        """p / q."""
        return Fraction(self.threshold * (self.d - 1), SCALE - self.threshold)

    @property
    def shape(self) -> Symbols:
        """A report is one of the d values."""
        return Symbols(self.d)

    def randomize(self, value: int, rng: Rng) -> int:
        """Return `value`, or any other one. Both draws are always made, so that time tells nothing."""
        keep = rng.coin(self.threshold)
        other = rng.uniform(self.d - 1)
        if keep:
            return value
        return other + (other >= value)
