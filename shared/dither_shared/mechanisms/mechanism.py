"""The interface of a mechanism, and what two sorts have in common: pure protocols, and memoized ones in two stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import exp, lgamma, log

from dither_shared.errors import InvalidParameter
from dither_shared.exact import micro_epsilon
from dither_shared.frozen import as_dict, derived, frozen
from dither_shared.light_typing import Self
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import ReportShape

# The law of a memo: the permanent symbols of one answer, in groups of equally likely ones.
#
# A unary code of 500 bits has 2^500 symbols, but only as many groups as numbers of flipped bits. A group's mass is an
# ordinary float even where the probability of each of its symbols is below the least float, so that one is a logarithm.

DEVICES = 200
"""The n of R(n), the figure that is compared, and that pages and commands show."""


@frozen
class Equiprobable:
    """Symbols that are equally likely."""

    mass: float
    """Their probability together, in [0, 1]."""
    log_probability: float
    """The natural logarithm of the probability of each."""

    def __mul__(self, other: Equiprobable) -> Equiprobable:
        """Return the pairs of these symbols with independent others."""
        return Equiprobable(self.mass * other.mass, self.log_probability + other.log_probability)


SymbolLaw = Sequence[Equiprobable]
"""Groups whose masses sum to one."""


def law_of_coins(size: int, threshold: int) -> SymbolLaw:
    """Return the law of `size` independent bits that are each 1 with probability threshold / 2^64, by number of ones.

    C(size, j) strings have j ones. Within 1e-10, relatively, for up to 4,096 bits.
    """
    one, zero = log(threshold) - log(SCALE), log(SCALE - threshold) - log(SCALE)
    factorials = [lgamma(ones + 1) for ones in range(size + 1)]
    groups = []
    for ones in range(size + 1):
        each = ones * one + (size - ones) * zero
        strings = factorials[size] - factorials[ones] - factorials[size - ones]
        groups.append(Equiprobable(exp(strings + each), each))
    return groups


class Mechanism(ABC):
    """A randomizer, fixed by integers, with its exact epsilon. Subclasses are frozen."""

    name: str
    memoized = False
    """Whether the first stage draws the noise of one answer once, and each report repeats it with noise of its own."""

    @classmethod
    def of(cls, mechanism: Mechanism) -> Self:
        """Return a mechanism that is one of this class; raise TypeError for any other."""
        if not isinstance(mechanism, cls):
            raise TypeError(f"the mechanism must be a {cls.__name__}, got {mechanism.name}")
        return mechanism

    def parameters(self) -> dict[str, int]:
        """Return all the integers that fix the mechanism: by default its fields."""
        return as_dict(self)

    def to_document(self) -> dict[str, object]:
        """Return the name and the integers. The integers that a memo depends on stand apart."""
        memo = self.memo_parameters()
        rest = {name: integer for name, integer in self.parameters().items() if name not in memo}
        return {"mechanism": self.name, "parameters": rest, **({"memo": memo} if self.memoized else {})}

    @classmethod
    def of_integers(cls, parameters: Mapping[str, int], memo: Mapping[str, int] | None) -> Mechanism:
        """Make the mechanism of a document's integers; `memo` is None for fresh noise."""
        if memo is not None:
            raise InvalidParameter(f"{cls.name} is not memoized")
        return cls(**parameters)

    @property
    @abstractmethod
    def exp_epsilon(self) -> Fraction:
        """e^epsilon: the largest ratio of the probabilities of one report under two answers, exactly."""

    @property
    def first_stage(self) -> Mechanism:
        """The part that sees the answer: the whole mechanism, or the permanent part of a memoized one."""
        return self

    def memo_parameters(self) -> dict[str, int]:
        """Return the integers that a memo depends on; none where nothing is memoized."""
        return {}

    def memo_law(self) -> SymbolLaw:
        """Return the law of the permanent symbol of one answer; nothing where nothing is memoized.

        If answers have different laws, it is that of an answer whose memo tells a device most from others.
        """
        return ()

    @property
    @abstractmethod
    def shape(self) -> ReportShape:
        """The set of possible reports."""

    @abstractmethod
    def randomize(self, answer: int, rng: Rng) -> int:
        """Return a report for an answer, given by its class."""

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return a report out of what the first stage drew: that itself, unless it is memoized."""
        return memo

    @cached_property
    def charge(self) -> int:
        """The cost of one report, in micro-epsilon: epsilon rounded up."""
        return micro_epsilon(self.exp_epsilon)


# All pure protocols have this in common: two support probabilities, and all that follows from them.
#
# A mechanism is pure when each report supports some of the d values, and
#
#     p = P[report supports v | answer holds v]      q = P[report supports v | answer does not]      p > q
#
# for every v. With C(v) the number of the n reports that support v, and f_v the share of answers that hold v,
#
#     estimate    f^_v = (C(v) / n - q) / (p - q)
#     variance    [ f_v p (1 - p) + (1 - f_v) q (1 - q) ] / (n (p - q)^2)          of these n answers
#
# E[C(v)] = n f_v p + n (1 - f_v) q, so the estimate is unbiased; C(v) is a sum of independent coins, hence the
# variance. Wang, Blocki, Li, Jha 2017, section 3. If each answer holds t values, the shares sum to t, so the variance
# averaged over the values needs no f:
#
#     average     [ t p (1 - p) + (d - t) q (1 - q) ] / (d n (p - q)^2)

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

    def __init_subclass__(cls) -> None:
        """Refuse a mechanism for several values that has no class of them: each such answer would fail silently."""
        if cls.serves_several and cls.class_of is PureMechanism.class_of:
            raise TypeError(f"{cls.__name__} serves several values and has no class_of")

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
        return (1, 1) if self.supports_one else (0, self.d)

    def class_of(self, values: Sequence[int]) -> int:
        """Return the class of the answer that holds these values, each in [0, d): all that `randomize` sees of it.

        An answer of exactly one value has that as its class.
        """
        (value,) = values
        return value

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


# Memoized answers: noise that is drawn once for each answer and kept, and fresh noise on it for every report.
#
# Repeating an answer with fresh noise lets an observer average the noise away: r reports cost r epsilon. Here the
# device draws a permanent report u of the answer once, at epsilon_permanent, and sends noisy copies of u. Any number of
# copies tells no more than u, so all of them together cost at most epsilon_permanent. The first stage is a mechanism of
# this package; the second is
#
#     two levels    send u with probability T / 2^64 (`threshold_keep`), else any of the K reports, u included
#     unary         flip every bit of u with probability T / 2^64 (`threshold_flip`)
#
# Privacy of one report. Two levels: u lies in the answer's set with probability i, a uniform report with probability
# s / K, so a report lies in it with probability k i + (1 - k) s / K (k = T / 2^64), uniform within and without: again a
# two-level mechanism, with its ratio and its estimate. Unary: the bits stay independent, with
#
#     p = p_u (1 - x) + (1 - p_u) x      q = q_u (1 - x) + (1 - q_u) x      x = T / 2^64
#
# So the law of one report is exactly that of the one-shot mechanism with the same epsilon (up to the rounding of T),
# and memoizing costs no accuracy. (The odds published for L-GRR and LOLOHA leave out a term and give more noise than
# that for more than two values.) OUE stays OUE, p = 1/2. The permanent part is computed from the device's secret
# instead of stored; that is exact over ideal coins and computational over the keyed function. The promise is between
# histories with the same pattern of change: when an answer changed is not hidden. Erlingsson, Pihur, Korolova 2014;
# Arcolezi et al. 2022 and 2023 for the two stages; the odds are derived above.


class Memoized(Mechanism):
    """A mechanism in two stages: `permanent` draws the memo, `repeat` adds fresh noise to it."""

    permanent: Mechanism
    memoized = True

    @property
    def first_stage(self) -> Mechanism:
        """The permanent part."""
        return self.permanent

    @abstractmethod
    def repeat(self, memo: int, rng: Rng) -> int:
        """Return a report of a memo."""

    @abstractmethod
    def memo_law(self) -> SymbolLaw:
        """Return the law of the permanent symbol of one answer."""

    def memo_parameters(self) -> dict[str, int]:
        """Return the integers that a memo depends on: those of the permanent part, and of what it sees."""
        return self.permanent.parameters()

    def randomize(self, answer: int, rng: Rng) -> int:
        """Return the first report of an answer, with a memo out of the same coins."""
        return self.repeat(self.permanent.randomize(answer, rng), rng)


@frozen
class MemoizedPure(Memoized, PureMechanism):
    """A pure mechanism in two stages, with the name and the values of its permanent part."""

    permanent: PureMechanism
    name: str = derived()
    d: int = derived()
    ticks: int = derived()

    def __post_init__(self) -> None:
        for name in ("name", "d", "ticks"):
            object.__setattr__(self, name, getattr(self.permanent, name))

    @property
    def supports_one(self) -> bool:  # type: ignore[override]  # read-only, like every field
        """As without a memo."""
        return self.permanent.supports_one

    @property
    def supported(self) -> tuple[int, int]:
        """As without a memo."""
        return self.permanent.supported

    @property
    def geometry(self) -> tuple[int, int, int] | None:
        """As without a memo."""
        return self.permanent.geometry


def sent_as_one(threshold: int, threshold_0: int, threshold_1: int) -> int:
    """Return P[a bit is sent as 1] after both stages, out of 2^128.

    The first makes it 1 with probability threshold / 2^64; the second sends a 1 as 1 with probability
    threshold_1 / 2^64, a 0 with threshold_0 / 2^64.
    """
    return threshold * threshold_1 + (SCALE - threshold) * threshold_0
