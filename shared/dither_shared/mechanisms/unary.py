"""Unary encoding: a bit for each value, set at the answer, and every bit flipped at random on its own.

    p = T_p / 2^64      P[bit is sent as 1 | it is 1]      optimised (OUE): 1/2
    q = T_q / 2^64      P[bit is sent as 1 | it is 0]      optimised (OUE): 1 / (e^eps + 1)

Privacy. The bits of two answers v and w differ at two places, v and w. The other bits have the same law under both, so
P[y | v] / P[y | w] is largest where y has v set and w not: p (1 - q) / (q (1 - p)) = e^eps.
Estimate. A report supports the values whose bits it has set: pure, with these p and q.
OUE minimises the variance of rare values, 4 e^eps / (n (e^eps - 1)^2), which does not depend on d.
Erlingsson, Pihur, Korolova 2014; Wang et al. 2017, section 4.2.
"""

from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.reports import Bits
from dither_shared.rng import SCALE, Rng


@dataclass(frozen=True)
class OUE(PureMechanism):
    """Send d bits: the answer's set with probability threshold_p / 2^64, every other with threshold_q / 2^64.

    Use for up to some hundred values. Do not use for more: a report is d bits long.
    """

    name: ClassVar[str] = "oue"

    d: int
    threshold_p: int
    threshold_q: int

    def __post_init__(self) -> None:
        if self.d < 2:
            raise InvalidParameter(f"d must be at least 2, got {self.d}")
        if not 0 < self.threshold_q < self.threshold_p < SCALE:
            raise InvalidParameter(
                f"thresholds must satisfy 0 < threshold_q < threshold_p < 2^64, "
                f"got {self.threshold_q} and {self.threshold_p}"
            )

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal) -> Self:
        """Keep p at one half exactly and round q up: a larger q is a smaller epsilon."""
        return cls(d, SCALE // 2, int(SCALE / (exp_below(epsilon) + 1)) + 1)

    def parameters(self) -> dict[str, int]:
        """Return d, threshold_p and threshold_q."""
        return asdict(self)

    @property
    def p(self) -> Fraction:
        """P[the answer's bit is sent as 1]."""
        return Fraction(self.threshold_p, SCALE)

    @property
    def q(self) -> Fraction:
        """P[another bit is sent as 1]."""
        return Fraction(self.threshold_q, SCALE)

    @property
    def exp_epsilon(self) -> Fraction:
        """p (1 - q) / (q (1 - p))."""
        p, q = self.threshold_p, self.threshold_q
        return Fraction(p * (SCALE - q), q * (SCALE - p))

    @property
    def shape(self) -> Bits:
        """A report is d bits, bit v for value v."""
        return Bits(self.d)

    def randomize(self, value: int, rng: Rng) -> int:
        """Return the noise of every bit, with the answer's own coin put in its place."""
        noise = rng.coins(self.threshold_q, self.d)
        return noise & ~(1 << value) | rng.coin(self.threshold_p) << value
