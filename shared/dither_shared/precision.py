"""How small a share n reports can show: the noise floor, the critical share and the detectable share.

    noise floor     s0 = sqrt(q (1 - q) / n) / (p - q)      the standard error of a value that nobody has
    critical        z(1 - alpha / d) s0                     an estimate above it is not noise: with all d values
                                                            watched, noise passes it once in 1 / alpha times at most
    detectable      (z(1 - alpha / d) + z(power)) s0        a value with this share passes it with that power

A value whose true share is just critical is seen half of the time. alpha is 5 %, the power 80 %. These are planning
figures, by the normal law: it holds where a bit or symbol is expected thousands of times, n q; at a hundred times noise
passes the critical share some times as often. The aggregator computes both from the binomial law.
"""

from fractions import Fraction
from math import sqrt
from statistics import NormalDist
from typing import Protocol

from dither_shared.frozen import frozen

ALPHA = 0.05
POWER = 0.8

NUMBERS_MIN = 3_000
"""Fewer devices tell nothing of quantiles: the bounds of a shape hold less often than they say."""
MEANS_MIN = 300
"""A mean alone needs fewer: a sum of so many bounded terms is nearly normal."""
QUESTION_MIN = 300
"""The same of one question of a table: shares of its columns, and what goes with what."""

DETECTABLE = "detectable share"
"""The name of what most kinds tell."""

_NORMAL = NormalDist()
SIDES = 2 * _NORMAL.inv_cdf(1 - ALPHA / 2)
"""The width of a 95 % interval, in standard errors."""


@frozen
class Told:
    """The least that so many reports tell: what it is, and its size as a part of 1."""

    what: str
    part: float
    least: float = 0.0
    """The part that no number of reports goes below."""

    def times_as_many(self, part: float) -> float | None:
        """Return how many times as many reports tell a part so small; None where none do."""
        return ((self.part - self.least) / (part - self.least)) ** 2 if part > self.least else None

    def __str__(self) -> str:
        return "nothing" if self.part > 1 else percent(self.part)


def percent(part: float) -> str:
    """Return a part of 1 in percent, with two digits that count."""
    return "100 %" if 0.995 <= part < 1.005 else f"{100 * part:.2g} %" if part < 1 else f"{100 * part:,.0f} %"


class Noisy(Protocol):
    """A mechanism, or a metric, whose estimates of zero have this variance, times n."""

    @property
    def noise_variance(self) -> Fraction:
        """Return it."""


def noise_floor(noisy: Noisy, n: int) -> float:
    """Return the standard error of a share of zero among n >= 1 reports; for texts as if no two had a bit in common."""
    return sqrt(noisy.noise_variance / n)


def critical_share(noisy: Noisy, d: int, n: int) -> float:
    """Return about the least estimate that n >= 1 reports tell from noise, whichever of d values it is of."""
    return -_NORMAL.inv_cdf(ALPHA / d) * noise_floor(noisy, n)


def detectable_share(noisy: Noisy, d: int, n: int) -> float:
    """Return about the true share that n >= 1 reports tell from noise in 80 % of cases."""
    return critical_share(noisy, d, n) + _NORMAL.inv_cdf(POWER) * noise_floor(noisy, n)
