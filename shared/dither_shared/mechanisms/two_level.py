"""What two-level mechanisms have in common: a report lies in the answer's set or outside of it, uniform within each.

Each value v has a set S_v of s of the K possible reports, and any two of these sets share l of them. The device sends
a uniform report of S_v with probability i, else a uniform one of the K - s others:

    P[y | v] = i / s  for y in S_v       (1 - i) / (K - s)  for every other y

Privacy. Only these two levels occur, so P[y | v] / P[y | w] <= i (K - s) / ((1 - i) s) = e^eps.
Estimate. A report supports the values in whose sets it lies: pure, with p = i, and for the answer v and another value
w a report of S_v lies in S_w with probability l / s, another one with probability (s - l) / (K - s):

    q = i l / s + (1 - i) (s - l) / (K - s)

Only two ratios matter: the share s / K, and the overlap l / s. GRR, subset selection and projective geometry response
are such mechanisms, and so are their memoized forms. PrivSet is one, too, whose answers hold several values: there a
report of the answer's set supports a value of it not always, but with a probability `held`.
Ye, Barg 2018, section II; Feldman, Nelson, Nguyen, Talwar 2022.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.mechanisms.mechanism import Mechanism
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.rng import SCALE, Rng


class TwoLevel(PureMechanism):
    """A pure mechanism whose reports have one of two probabilities. What it says of values holds for answers of one."""

    @property
    @abstractmethod
    def inside(self) -> Fraction:
        """P[the report lies in the answer's set]."""

    @property
    @abstractmethod
    def share(self) -> Fraction:
        """The part of all reports that is in a value's set, s / K."""

    @property
    @abstractmethod
    def overlap(self) -> Fraction:
        """The part of the answer's set that supports another value, l / s."""

    @property
    def held(self) -> Fraction:
        """The part of the answer's set that supports a value of the answer: all of it."""
        return Fraction(1)

    @property
    def overlap_outside(self) -> Fraction:
        """The part of all other reports that supports another value, (s - l) / (K - s)."""
        return (1 - self.overlap) * self.share / (1 - self.share)

    @property
    def p(self) -> Fraction:
        """P[the report supports a value of the answer]: those outside its set never do."""
        return self.inside * self.held

    @cached_property
    def q(self) -> Fraction:
        """P[the report supports another value]."""
        return self.inside * self.overlap + (1 - self.inside) * self.overlap_outside

    @property
    def exp_epsilon(self) -> Fraction:
        """The ratio of the two levels."""
        return self.inside * (1 - self.share) / ((1 - self.inside) * self.share)

    def class_of(self, values: Sequence[int]) -> int:
        """Return the one value."""
        (value,) = values
        return value


class OneShot(TwoLevel):
    """A two-level mechanism that draws fresh noise each time: one coin, out of 2^64, decides between the levels."""

    threshold: int

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of possible reports, K."""

    @abstractmethod
    def uniform_report(self, rng: Rng) -> int:
        """Return each of the possible reports with the same probability."""

    @classmethod
    def of_integers(cls, parameters: Mapping[str, int], memo: Mapping[str, int] | None) -> Mechanism:
        """Make the mechanism of a document's integers, in two stages where there is a memo."""
        if memo is None:
            return cls(**parameters)
        from dither_shared.mechanisms.memoized import MemoizedTwoLevel  # which imports this

        return MemoizedTwoLevel(cls(**memo), **parameters)

    @property
    def inside(self) -> Fraction:
        """threshold / 2^64."""
        return Fraction(self.threshold, SCALE)

    def check_threshold(self) -> None:
        """Refuse a coin that would make the answer's set no likelier than any other, or certain."""
        if not SCALE * self.share < self.threshold < SCALE:
            least = f"2^64 x {self.share}"
            raise InvalidParameter(f"threshold must be above {least} and below 2^64, got {self.threshold}")


def inside_for(epsilon: Decimal, share: Fraction) -> Fraction:
    """Return the i that `epsilon` allows, for sets of this share of all reports.

    From e^eps = i (1 - share) / ((1 - i) share).
    """
    e = exp_below(epsilon)
    return e * share / (e * share + 1 - share)


def threshold_for(epsilon: Decimal, share: Fraction) -> int:
    """Return i out of 2^64, rounded down: a smaller threshold is a smaller epsilon."""
    e = exp_below(epsilon)
    # As in `inside_for`, in integers: reducing its fractions would take most of the time of compiling a metric.
    inside, outside = e.numerator * share.numerator, e.denominator * (share.denominator - share.numerator)
    return SCALE * inside // (inside + outside)
