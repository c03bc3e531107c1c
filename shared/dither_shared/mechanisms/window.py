"""The window, or discrete square wave: send a symbol near the answer's place, any one of a window around it alike.

The d answers are places in a row, and the K = d + 2 r outputs a row that reaches r places further on either side. The
window of answer v is the s = 2 r + 1 outputs v .. v + 2 r. The device sends a uniform output of the window with
probability T / 2^64, else a uniform one of the K - s others:

    P[y | v] = T / (2^64 s)  in the window       (2^64 - T) / (2^64 (K - s))  outside of it

A device without a place, which has no number, sends a uniform one of all K outputs.

Privacy. Two places have only these two levels, and 1 / K lies between them, so the largest ratio of probabilities is
T (K - s) / ((2^64 - T) s) = e^eps.
Estimate. The law of reports is a linear function of the shares of places: it is inverted for all of them at once
(`analysis/numbers`). Near places look alike, which costs a single place's share much and sums of neighbours little.
With b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps)) of the row on either side, r = b d, a report tells most
of its place; for the mean of a wide grid alone a wider window has less variance.
Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import ceil

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.frozen import frozen
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import Mechanism
from dither_shared.mechanisms.two_level import threshold_for
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import Symbols

PLACES_MAX = 1_024


@frozen
class SquareWave(Mechanism):
    """Send a symbol in the window around the answer's place with probability threshold / 2^64, else one outside.

    Use for numbers, whose neighbours mean nearly the same. Do not use alone where single places matter.
    """

    name = "window"

    d: int
    """The places."""
    reach: int
    """How many outputs of the window lie on either side of its middle."""
    threshold: int

    def __post_init__(self) -> None:
        if not 2 <= self.d <= PLACES_MAX:
            raise InvalidParameter(f"d must be from 2 to {PLACES_MAX}, got {self.d}")
        if not 0 <= self.reach <= PLACES_MAX:
            raise InvalidParameter(f"reach must be from 0 to {PLACES_MAX}, got {self.reach}")
        if not SCALE * self.share < self.threshold < SCALE:
            raise InvalidParameter(f"threshold must be above 2^64 x {self.share} and below 2^64, got {self.threshold}")

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal) -> Self:
        """Return the window from which a report tells most, rounded up to whole places."""
        return cls.for_reach(d, ceil(half_width(epsilon) * d), epsilon)

    @classmethod
    def for_reach(cls, d: int, reach: int, epsilon: Decimal) -> Self:
        """Return the window of this reach with the largest epsilon that is not above `epsilon`."""
        return cls(d, reach, threshold_for(epsilon, Fraction(2 * reach + 1, d + 2 * reach)))

    @property
    def outputs(self) -> int:
        """The number of possible reports, K."""
        return self.d + 2 * self.reach

    @property
    def width(self) -> int:
        """The outputs of a window, s."""
        return 2 * self.reach + 1

    @property
    def share(self) -> Fraction:
        """The part of all outputs that is in a window, s / K."""
        return Fraction(self.width, self.outputs)

    @property
    def exp_epsilon(self) -> Fraction:
        """T (K - s) / ((2^64 - T) s)."""
        outside = self.outputs - self.width
        return Fraction(self.threshold * outside, (SCALE - self.threshold) * self.width)

    @cached_property
    def shape(self) -> Symbols:
        """A report is one of the K outputs."""
        return Symbols(self.outputs)

    def class_of(self, values: Sequence[int]) -> int:
        """Return the one place; d of what lies beyond the row."""
        (place,) = values
        return min(place, self.d)

    def window_of(self, answer: int) -> range:
        """Return the outputs of an answer's window."""
        return range(answer, answer + self.width)

    def randomize(self, answer: int, rng: Rng) -> int:
        """Return an output in the answer's window or outside; for the class d any. All draws are always made."""
        inside = rng.coin(self.threshold)
        within = rng.uniform(self.width)
        outside = rng.uniform(self.outputs - self.width)
        anywhere = rng.uniform(self.outputs)
        if answer == self.d:
            return anywhere
        return answer + within if inside else outside + self.width * (outside >= answer)


def half_width(epsilon: Decimal) -> Fraction:
    """Return b, the part of the row that a window reaches on either side: 1/2 where epsilon is 0, and ever less."""
    e, loss = exp_below(epsilon), Fraction(epsilon)
    return (loss * e - e + 1) / (2 * e * (e - 1 - loss))
