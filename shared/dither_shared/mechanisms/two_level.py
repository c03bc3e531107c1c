"""Two-level mechanisms: a report lies in the answer's set or outside of it, uniform within each.

Each value v has a set S_v of s of the K possible reports, and any two of these sets share l of them. The device sends
a uniform report of S_v with probability i, else a uniform one of the K - s others:

    P[y | v] = i / s  for y in S_v       (1 - i) / (K - s)  for every other y

Privacy. Only these two levels occur, so P[y | v] / P[y | w] <= i (K - s) / ((1 - i) s) = e^eps.
Estimate. A report supports the values in whose sets it lies: pure, with p = i, and for the answer v and another value
w a report of S_v lies in S_w with probability l / s, another one with probability (s - l) / (K - s):

    q = i l / s + (1 - i) (s - l) / (K - s)

Only two ratios matter: the share s / K, and the overlap l / s. GRR, subset selection and projective geometry response
are such mechanisms, and so are their memoized forms, in which i alone is another one. PrivSet is one, too, whose
answers hold several values: there a report of the answer's set supports a value of it not always, but with a
probability `held`.
Ye, Barg 2018, section II; Feldman, Nelson, Nguyen, Talwar 2022.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import log

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.frozen import frozen, replaced
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import (
    Equiprobable,
    Mechanism,
    MechanismRequest,
    MemoizedPure,
    PairLaw,
    PureMechanism,
    SymbolLaw,
)
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import ReportShape


@frozen
class TwoLevelLaw:
    """The probability of the answer's set, and how many of the reports in it and outside of it support a value."""

    inside: Fraction
    """P[the report lies in the answer's set], i."""
    share: Fraction
    """The part of all reports that is in an answer's set, s / K."""
    overlap: Fraction
    """The part of the answer's set that supports another value, l / s."""
    overlap_outside: Fraction
    """The part of all other reports that supports another value."""
    held: Fraction = Fraction(1)
    """The part of the answer's set that supports a value of the answer: all of it where that is the one value."""

    @classmethod
    def of_one_value(cls, inside: Fraction, share: Fraction, overlap: Fraction) -> Self:
        """Return the law of answers of one value, where (s - l) / (K - s) of the reports outside support another."""
        (a, b), (c, d) = share.as_integer_ratio(), overlap.as_integer_ratio()
        return cls(inside, share, overlap, Fraction((d - c) * a, d * (b - a)))

    @property
    def p(self) -> Fraction:
        """P[the report supports a value of the answer]: those outside its set never do."""
        return self.inside * self.held

    @property
    def q(self) -> Fraction:
        """P[the report supports another value]."""
        return mixed(self.inside, self.overlap, self.overlap_outside)

    @property
    def exp_epsilon(self) -> Fraction:
        """The ratio of the two levels."""
        (a, b), (c, d) = self.inside.as_integer_ratio(), self.share.as_integer_ratio()
        return Fraction(a * (d - c), (b - a) * c)

    @property
    def information(self) -> tuple[float, float]:
        """K times the sums over all K reports of P[y | v]^2, and of P[y | v] P[y | w] for two values v and w.

        With equally likely reports they are the entries of the Fisher information of the shares.
        """
        inside, share, overlap = float(self.inside), float(self.share), float(self.overlap)
        outside = (1 - inside) / (1 - share)
        same = inside**2 / share + (1 - inside) * outside
        both = overlap * inside**2 / share + 2 * (1 - overlap) * inside * outside
        return same, both + (1 - 2 * share + overlap * share) * outside**2


class TwoLevel(PureMechanism):
    """A pure mechanism whose reports have one of two probabilities, for answers of one value."""

    @property
    @abstractmethod
    def law(self) -> TwoLevelLaw:
        """The law of one report."""

    @cached_property
    def p(self) -> Fraction:
        """P[the report supports a value of the answer]."""
        return self.law.p

    @cached_property
    def q(self) -> Fraction:
        """P[the report supports another value]."""
        return self.law.q

    @property
    def exp_epsilon(self) -> Fraction:
        """The ratio of the two levels."""
        return self.law.exp_epsilon


class OneShot(TwoLevel):
    """A two-level mechanism that draws fresh noise each time: one coin, out of 2^64, decides between the levels."""

    threshold: int

    @classmethod
    def designs(cls, request: MechanismRequest) -> Iterator[TwoLevel]:
        """Return those with fresh noise, or for memoized answers those whose reports may be kept, in two stages."""
        if request.permanent is None:
            return cls.fresh_designs(request)
        return (design.in_two_stages(request.epsilon) for design in cls.memo_designs(request, request.permanent))

    @classmethod
    @abstractmethod
    def fresh_designs(cls, request: MechanismRequest) -> Iterator[Self]:
        """Return the designs that may be the best for reports of `request.epsilon`."""

    @classmethod
    @abstractmethod
    def memo_designs(cls, request: MechanismRequest, permanent: Decimal) -> Iterator[Self]:
        """Return those of epsilon `permanent` that may have the least R(200) of about the least error."""

    def in_two_stages(self, epsilon: Decimal) -> TwoLevel:
        """Return the mechanism that memoizes a report of this one, with reports of `epsilon`."""
        return MemoizedTwoLevel.for_epsilon(self, epsilon)

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of possible reports, K."""

    @abstractmethod
    def uniform_report(self, rng: Rng) -> int:
        """Return each of the possible reports with the same probability."""

    def symbol_law(self) -> SymbolLaw:
        """Return the law of one report: the answer's set and all other reports, uniform within each."""
        inside, share = self.law.inside, self.law.share
        return [
            Equiprobable(float(mass), log(each.numerator) - log(each.denominator))
            for mass, part in ((inside, share), (1 - inside, 1 - share))
            for each in [mass / (part * self.outputs)]
        ]

    @classmethod
    def of_integers(cls, parameters: Mapping[str, int], memo: Mapping[str, int] | None) -> Mechanism:
        """Make the mechanism of a document's integers, in two stages where there is a memo."""
        if memo is None:
            return cls(**parameters)
        return MemoizedTwoLevel(cls(**memo), **parameters)

    @cached_property
    def pairs(self) -> PairLaw | None:
        """The law of two values of one report."""
        return self.pair_law(self.inside)

    def pair_law(self, inside: Fraction) -> PairLaw | None:
        """Return the law of two values, were `inside` the probability of the answer's set; None where there is none."""
        return None

    @property
    def inside(self) -> Fraction:
        """threshold / 2^64."""
        return Fraction(self.threshold, SCALE)

    def check_threshold(self) -> None:
        """Refuse a coin that would make the answer's set no likelier than any other, or certain."""
        if not SCALE * self.law.share < self.threshold < SCALE:
            least = f"2^64 x {self.law.share}"
            raise InvalidParameter(f"threshold must be above {least} and below 2^64, got {self.threshold}")


@frozen
class MemoizedTwoLevel(MemoizedPure, TwoLevel):
    """A two-level mechanism in two stages.

    Use for states that are asked again and again. Do not use where the change is the secret.
    """

    permanent: OneShot
    threshold_keep: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold_keep < SCALE:
            raise InvalidParameter(f"threshold_keep must be above 0 and below 2^64, got {self.threshold_keep}")

    @classmethod
    def for_epsilon(cls, permanent: OneShot, epsilon: Decimal) -> Self:
        """Return the largest threshold_keep whose first report's epsilon is not above `epsilon`.

        From inside = k i + (1 - k) share, where `inside` is that of the one-shot mechanism; rounded down.
        """
        inside, share = inside_for(epsilon, permanent.law.share), permanent.law.share
        (a, b), (c, d), (e, f) = (each.as_integer_ratio() for each in (inside, share, permanent.law.inside))
        return cls(permanent, SCALE * (a * d - c * b) * f // (b * (e * d - c * f)))

    def parameters(self) -> dict[str, int]:
        """Return those of the permanent part, and threshold_keep."""
        return {**self.permanent.parameters(), "threshold_keep": self.threshold_keep}

    @cached_property
    def law(self) -> TwoLevelLaw:
        """The law of the permanent part, but a report lies in the answer's set less often."""
        permanent, keep = self.permanent.law, Fraction(self.threshold_keep, SCALE)
        return replaced(permanent, inside=mixed(keep, permanent.inside, permanent.share))

    @cached_property
    def pairs(self) -> PairLaw | None:
        """The law of the permanent part, but a report lies in the answer's set less often."""
        return self.permanent.pair_law(self.law.inside)

    @property
    def pushes(self) -> tuple[Fraction, Fraction]:
        """How many honest reports of a bucket a chosen one looks like at most, and how many fewer it does at least.

        A uniform report of the bucket's set, or of all others, supports it surely, or never, and every other bucket
        with a part l / s, or (s - l) / (K - s). So their expected counts differ by (p - q) times that many reports.
        """
        law = self.law
        return (1 - law.overlap) / (law.p - law.q), law.overlap_outside / (law.p - law.q)

    def memo_law(self) -> SymbolLaw:
        """Return that of the permanent part, which is the same for every answer."""
        return self.permanent.symbol_law()

    def class_of(self, values: Sequence[int]) -> int:
        """Return the class that the permanent part sees."""
        return self.permanent.class_of(values)

    def supported_by(self, report: int) -> list[int]:
        """Return those that the permanent part supports."""
        return self.permanent.supported_by(report)

    @property
    def shape(self) -> ReportShape:
        """Reports are as without a memo."""
        return self.permanent.shape

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return the memo, or any report. Both draws are always made, so that time tells nothing."""
        keep = rng.coin(self.threshold_keep)
        other = self.permanent.uniform_report(rng)
        return memo if keep else other


def mixed(part: Fraction, one: Fraction, other: Fraction) -> Fraction:
    """Return part one + (1 - part) other, reduced once: reducing each step takes most of the time of a metric."""
    (a, b), (c, d), (e, f) = (each.as_integer_ratio() for each in (part, one, other))
    return Fraction(a * c * f + (b - a) * e * d, b * d * f)


def inside_for(epsilon: Decimal, share: Fraction) -> Fraction:
    """Return the i that `epsilon` allows, for sets of this share of all reports.

    From e^eps = i (1 - share) / ((1 - i) share).
    """
    e = exp_below(epsilon)
    inside, outside = e.numerator * share.numerator, e.denominator * (share.denominator - share.numerator)
    return Fraction(inside, inside + outside)


def threshold_for(epsilon: Decimal, share: Fraction) -> int:
    """Return i out of 2^64, rounded down: a smaller threshold is a smaller epsilon."""
    e = exp_below(epsilon)
    inside, outside = e.numerator * share.numerator, e.denominator * (share.denominator - share.numerator)
    return SCALE * inside // (inside + outside)
