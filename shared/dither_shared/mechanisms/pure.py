"""What every pure protocol has in common: two support probabilities, and all that follows from them.

A mechanism is pure when each report supports some of the d values, and

    p = P[report supports v | answer is v]      q = P[report supports v | answer is another]      p > q

for every v. With C(v) the number of the n reports that support v, and f_v the share of answers that are v,

    estimate    f^_v = (C(v) / n - q) / (p - q)
    variance    [ f_v p (1 - p) + (1 - f_v) q (1 - q) ] / (n (p - q)^2)          of these n answers

E[C(v)] = n f_v p + n (1 - f_v) q, so the estimate is unbiased; C(v) is a sum of independent coins, hence the variance.
Wang, Blocki, Li, Jha 2017, section 3. The shares sum to one, so the variance averaged over the values needs no f:

    average     [ p (1 - p) + (d - 1) q (1 - q) ] / (d n (p - q)^2)
"""

from abc import ABC, abstractmethod
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from dither_shared.exact import micro_epsilon
from dither_shared.reports import ReportShape
from dither_shared.rng import Rng


class PureMechanism(ABC):
    """A randomizer over d values, fixed by integers, with its exact epsilon.

    Subclasses are frozen dataclasses whose fields are exactly the integers of the plan.
    """

    name: ClassVar[str]
    d: int

    @classmethod
    @abstractmethod
    def for_epsilon(cls, d: int, epsilon: Decimal) -> Self:
        """Return the mechanism for d values whose epsilon is the largest that is not above `epsilon`."""

    @abstractmethod
    def parameters(self) -> dict[str, int]:
        """Return the integers that fix the mechanism: what the plan's digest covers."""

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """P[report supports v | answer is v]."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """P[report supports v | answer is another value]."""

    @property
    @abstractmethod
    def exp_epsilon(self) -> Fraction:
        """e^epsilon: the largest ratio of the probabilities of one report under two answers, exactly."""

    @property
    @abstractmethod
    def shape(self) -> ReportShape:
        """The set of possible reports."""

    @abstractmethod
    def randomize(self, value: int, rng: Rng) -> int:
        """Return a report for the answer `value` in [0, d)."""

    @cached_property
    def charge(self) -> int:
        """What one report costs, in micro-epsilon: epsilon rounded up."""
        return micro_epsilon(self.exp_epsilon)

    @cached_property
    def average_variance(self) -> Fraction:
        """The variance of an estimated share, averaged over the values, times n."""
        p, q = self.p, self.q
        return (p * (1 - p) + (self.d - 1) * q * (1 - q)) / (self.d * (p - q) ** 2)
