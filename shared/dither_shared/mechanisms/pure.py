"""All pure protocols have this in common: two support probabilities, and all that follows from them.

A mechanism is pure when each report supports some of the d values, and

    p = P[report supports v | answer holds v]      q = P[report supports v | answer does not]      p > q

for every v. With C(v) the number of the n reports that support v, and f_v the share of answers that hold v,

    estimate    f^_v = (C(v) / n - q) / (p - q)
    variance    [ f_v p (1 - p) + (1 - f_v) q (1 - q) ] / (n (p - q)^2)          of these n answers

E[C(v)] = n f_v p + n (1 - f_v) q, so the estimate is unbiased; C(v) is a sum of independent coins, hence the variance.
Wang, Blocki, Li, Jha 2017, section 3. If each answer holds t values, the shares sum to t, so the variance averaged over
the values needs no f:

    average     [ t p (1 - p) + (d - t) q (1 - q) ] / (d n (p - q)^2)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from dither_shared.frozen import frozen
from dither_shared.mechanisms.mechanism import Mechanism

REPORT_BITS_MAX = 4_096
"""Longer reports are refused: they cost more to send and store than they are worth."""
OUTPUTS_MAX = 1 << 21
"""Reports of a symbol each: a tally has an entry for every one, 16 MiB of them. A memo needs no more."""


@frozen
class MechanismRequest:
    """The answers that a metric wants a mechanism for, and their privacy. Each mechanism offers its designs for it."""

    d: int
    epsilon: Decimal
    """The privacy loss of one report."""
    several: bool
    """Whether an answer may hold several of the d values, or holds exactly one."""
    ticks: int
    """The most values that one answer holds: 1 unless it may hold several."""
    permanent: Decimal | None
    """The privacy loss of one memoized answer, None for fresh noise each time."""
    named: bool
    """Whether the metric names the mechanism, which then offers even designs that never win the choice."""


@frozen
class PairLaw:
    """P[a report supports both of two given values], by how many of the two the answer holds.

    The variance of a sum of estimates needs it, since one report's supports are not independent.
    """

    both: Fraction
    """Zero where no answer holds two values."""
    one: Fraction
    neither: Fraction


class PureMechanism(Mechanism):
    """A randomizer of answers that hold some of d values."""

    d: int
    ticks: int
    """The most values that one answer holds: 1 unless several may be ticked."""
    supports_one = False
    """Whether each report supports exactly one value, so that the support counts are those of the reports."""
    serves_one = False
    """Whether it has designs for answers of exactly one value."""
    serves_several = False
    """Whether it has designs for answers that may hold several values."""

    @classmethod
    def designs(cls, request: MechanismRequest) -> Iterable[PureMechanism]:
        """Return what this class offers for a request that it serves: by default nothing.

        The choice compares the designs of all mechanisms, and leaves out those with too long reports. Among equally
        good ones the first wins.
        """
        return ()

    @property
    def geometry(self) -> tuple[int, int, int] | None:
        """(q, t, P) where reports are points of PG(t-1, q), and support the values on whose hyperplanes they lie.

        The prime P scatters their numbers; 0 where these are in order.
        """
        return None

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """P[report supports v | answer holds v]."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """P[report supports v | answer does not hold v]."""

    @property
    def pairs(self) -> PairLaw | None:
        """The law of two values; None where it depends on which values they are, or is not known."""
        return None

    @property
    def supported(self) -> tuple[int, int]:
        """How many of the d values one report supports, at least and at most; a bound of both."""
        return 0, self.d

    @abstractmethod
    def class_of(self, values: Sequence[int]) -> int:
        """Return the class of the answer that holds these values, each in [0, d): all that `randomize` sees of it."""

    def supported_by(self, report: int) -> list[int]:
        """Return the values that a report supports: those that it names, without dummies."""
        return [value for value in self.shape.members(report) if value < self.d]

    @cached_property
    def noise_variance(self) -> Fraction:
        """q (1 - q) / (p - q)^2."""
        (a, b), (c, d) = self.p.as_integer_ratio(), self.q.as_integer_ratio()
        return Fraction(c * (d - c) * b * b, (a * d - c * b) ** 2)

    @cached_property
    def average_variance(self) -> Fraction:
        """The variance of an estimated share, averaged over the values, times n; every answer holds `ticks` values."""
        p, q = self.p, self.q
        # Over a common denominator, which cancels: one reduction instead of eight.
        unit = p.denominator * q.denominator
        a, b = p.numerator * q.denominator, q.numerator * p.denominator
        spread = self.ticks * a * (unit - a) + (self.d - self.ticks) * b * (unit - b)
        return Fraction(spread, self.d * (a - b) ** 2)


def as_bits(values: Sequence[int], ticks: int) -> int:
    """Return values as the bits of a class. If there are more than `ticks` values, the first count, in the metric's
    order."""
    return sum(1 << value for value in sorted(set(values))[:ticks])
