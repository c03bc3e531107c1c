"""The interface of a mechanism, what two sorts have in common, and the cells of a report, each with a mechanism.

The sorts are pure protocols, and memoized ones in two stages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import exp, lgamma, log

from dither_shared.errors import InvalidParameter
from dither_shared.exact import micro_epsilon
from dither_shared.frozen import as_dict, derived, frozen
from dither_shared.installed import load
from dither_shared.light_typing import Any, Self
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


# A stored document's mechanism, by its name.


_OWN = {
    "grr": "grr:GRR", "oue": "unary:OUE", "pgr": "pgr:PGR", "privset": "privset:PrivSet", "rappor": "rappor:RAPPOR",
    "ss": "subset:SubsetSelection", "sue": "unary:SUE", "window": "window:SquareWave",
}  # fmt: skip
"""The place of each name: a document needs no other, nor the choice."""


def _of_name(name: str) -> type[Mechanism]:
    """Return a mechanism, ours or one that was registered beside them; raise InvalidParameter where there is none."""
    if name in _OWN:
        own: type[Mechanism] = load(f"dither_shared.mechanisms.{_OWN[name]}")
        return own
    all_of_them: Mapping[str, type[Mechanism]] = load("dither_shared.mechanisms.automatic_choice:MECHANISMS")
    if name not in all_of_them:
        raise InvalidParameter(f"the mechanism must be one of {', '.join(all_of_them)}, got {name!r}")
    return all_of_them[name]


def from_document(document: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism of a stored document; raise InvalidParameter when it is not one of ours."""
    name = document["mechanism"]
    mechanism = _of_name(name)
    parameters, memo = document["parameters"], document.get("memo")
    if not all(type(value) is int for value in (*parameters.values(), *(memo or {}).values())):
        raise InvalidParameter(f"the parameters of {name} must be integers")
    try:
        return mechanism.of_integers(parameters, memo)
    except TypeError:
        raise InvalidParameter(f"{name} does not take these parameters: {parameters}") from None


# Cells: the public part of a report, fixed before the answer is looked at and sent in the clear.
#
# A plan with one cell says nothing of it. With several, each report names its cell: RAPPOR's cohort, the part of a
# mixture, the row of a sketch, the columns that are told. Cells may have mechanisms and reports of different shapes,
# and unequal shares of the reports. Every cell accepts every answer, and who draws it looks at none:
#
#     device    one number below 128 that a device draws once and keeps for all its metrics: it takes the low bits
#     report    each report draws its own, with a uniform integer below the sum of the weights
#
# The app may set one public value beside what is drawn, such as the arm of an experiment: then all of this comes once
# for each such value, those of the first value first.
#
# A cell tells nothing of the answer, so the privacy loss of a report is that of its cell's mechanism, and the epsilon
# of a plan is the largest of them. A tally has, cell after cell, the number of the cell's reports and then their
# counts.

DEVICE, REPORT = "device", "report"
DEVICE_CELLS_MAX = 128
"""A device draws one number below this for all of its metrics: several would be an identifier."""
CELLS_MAX = 65_536
WEIGHT_MAX = 1 << 32
PUBLIC_MAX = 16
"""Public values that an app sets: more would tell devices apart."""
TALLY_SIZE_MAX = 1 << 25
"""A tally is added up in memory: 256 MiB of it."""


@frozen
class Part:
    """Cells that are alike: `cells` of them, each with this mechanism and this weight."""

    mechanism: Mechanism
    cells: int = 1
    weight: int = 1
    """A cell's share of the reports is its weight over the sum of all cells' weights."""

    def __post_init__(self) -> None:
        if not (type(self.cells) is int and 1 <= self.cells <= CELLS_MAX):
            raise InvalidParameter(f"a part must have 1 to {CELLS_MAX} cells, got {self.cells}")
        if not (type(self.weight) is int and 1 <= self.weight <= WEIGHT_MAX):
            raise InvalidParameter(f"a weight must be from 1 to 2^32, got {self.weight}")

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make this again."""
        return {**self.mechanism.to_document(), "cells": self.cells, "weight": self.weight}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Part:
        """Make the part of a stored document."""
        return cls(from_document(document), document["cells"], document["weight"])


@frozen
class Cells:
    """The cells of a plan, numbered from 0, part after part."""

    parts: tuple[Part, ...]
    drawn: str = REPORT
    """By whom: DEVICE, once for good, or REPORT, anew each time."""
    public: int = 1
    """How many public values the app may set: the parts come once for each."""

    def __post_init__(self) -> None:
        if not (type(self.public) is int and 1 <= self.public <= PUBLIC_MAX):
            raise InvalidParameter(f"there must be 1 to {PUBLIC_MAX} public values, got {self.public}")
        if self.public > 1 and self.drawn == DEVICE:
            raise InvalidParameter("a public value goes beside cells that each report draws, not a device's own")
        if not 1 <= self.count <= CELLS_MAX:
            raise InvalidParameter(f"a plan must have 1 to {CELLS_MAX} cells, got {self.count}")
        if self.tally_size > TALLY_SIZE_MAX:
            raise InvalidParameter(f"a tally must have at most {TALLY_SIZE_MAX} entries, got {self.tally_size}")
        if self.drawn not in (DEVICE, REPORT):
            raise InvalidParameter(f"cells must be drawn by the {DEVICE} or the {REPORT}, got {self.drawn!r}")
        if self.drawn == DEVICE and not self._equally_likely:
            raise InvalidParameter(f"a device's cells must be alike, and 1, 2, 4 .. {DEVICE_CELLS_MAX} of them")
        if any(part.mechanism.memoized != self.memoized for part in self.parts):
            raise InvalidParameter("either all cells must be memoized or none")
        # In each of its cells an answer has a memo of its own: with a new cell it would be paid for again.
        if self.several and self.memoized and self.drawn == REPORT:
            raise InvalidParameter("memoized answers need cells of the device's own, got cells that each report draws")

    @cached_property
    def count(self) -> int:
        """How many cells there are."""
        return self.public * self.each

    @cached_property
    def each(self) -> int:
        """How many cells each public value has."""
        return sum(part.cells for part in self.parts)

    @cached_property
    def weights(self) -> int:
        """The sum of the weights of a public value's cells: a cell's share of the reports is its weight over this."""
        return sum(part.cells * part.weight for part in self.parts)

    @property
    def _equally_likely(self) -> bool:
        """Whether the low bits of a device's number name each cell equally often."""
        return len(self.parts) == 1 and self.count <= DEVICE_CELLS_MAX and self.count.bit_count() == 1

    @cached_property
    def several(self) -> bool:
        """Whether a report names its cell."""
        return self.count > 1

    @cached_property
    def lasting(self) -> int:
        """How many cells a device's lasting number tells apart in the clear; 0 where none."""
        return self.count if self.drawn == DEVICE and self.several else 0

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism of cells that all have the same one; raises TypeError for others."""
        if len(self.parts) > 1:
            raise TypeError("the cells have several mechanisms")
        return self.parts[0].mechanism

    def mechanism_of(self, cell: int) -> Mechanism:
        """Return a cell's mechanism."""
        if not 0 <= cell < self.count:
            raise IndexError("there is no such cell")
        if len(self.parts) == 1:
            return self.parts[0].mechanism
        return self._part_of(lambda part: part.cells, cell % self.each)[0].mechanism

    # Drawing.

    def of_device(self, number: int) -> int:
        """Return the cell of a device that has drawn this number, below 128."""
        return number & (self.count - 1)

    def draw(self, rng: Rng, public: int = 0) -> int:
        """Return the cell of a fresh report of a device with this public value."""
        return public * self.each + self._draw(rng)

    def _draw(self, rng: Rng) -> int:
        if self.each == 1:
            return 0
        ticket = rng.uniform(self.weights)
        part, before, rest = self._part_of(lambda part: part.cells * part.weight, ticket)
        return before + rest // part.weight

    def _part_of(self, size: Callable[[Part], int], place: int) -> tuple[Part, int, int]:
        """Return the part that holds a place, the cells before it, and the place within, where parts have a size."""
        before = 0
        for part in self.parts:
            if place < size(part):
                break
            place -= size(part)
            before += part.cells
        return part, before, place

    # All cells together.

    @property
    def name(self) -> str:
        """The mechanisms' names, each once."""
        return " and ".join(dict.fromkeys(part.mechanism.name for part in self.parts))

    def parameters(self) -> dict[str, int]:
        """Return the integers of the mechanism; where there are several, with the part's number before each.

        An integer of a mechanism whose name is one of the part's own has the mechanism's name before it.
        """
        if len(self.parts) == 1:
            return self.mechanism.parameters()
        integers: dict[str, int] = {}
        for place, part in enumerate(self.parts, 1):
            own = {"cells": part.cells, "weight": part.weight}
            integers |= {f"{place}.{name}": value for name, value in own.items()}
            for name, value in part.mechanism.parameters().items():
                integers[f"{place}.{part.mechanism.name}.{name}" if name in own else f"{place}.{name}"] = value
        return integers

    @cached_property
    def memoized(self) -> bool:
        """Whether a repeated answer repeats its noise."""
        return self.parts[0].mechanism.memoized

    @cached_property
    def exp_epsilon(self) -> Fraction:
        """e^epsilon of one report, exactly: the largest of its cells'."""
        return max(part.mechanism.exp_epsilon for part in self.parts)

    @cached_property
    def charge(self) -> int:
        """The most that one report costs, in micro-epsilon."""
        return max(part.mechanism.charge for part in self.parts)

    @cached_property
    def first_charge(self) -> int:
        """The most that an answer costs with all reports of its first stage, in micro-epsilon."""
        return max(part.mechanism.first_stage.charge for part in self.parts)

    @cached_property
    def report_bits(self) -> int:
        """The bits of the longest report, before any encoding."""
        return max(part.mechanism.shape.bits for part in self.parts)

    @cached_property
    def tally_size(self) -> int:
        """The entries of a tally: for each cell one for n, and its counts."""
        return self.public * sum(part.cells * (1 + part.mechanism.shape.size) for part in self.parts)

    def to_document(self) -> dict[str, object]:
        """Return what `from_document` needs to make these again."""
        public = {"public": self.public} if self.public > 1 else {}
        return {"drawn": self.drawn, "parts": [part.to_document() for part in self.parts], **public}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Cells:
        """Make the cells of a stored document."""
        return cls(
            tuple(Part.from_document(part) for part in document["parts"]), document["drawn"], document.get("public", 1)
        )


def one_cell(mechanism: Mechanism) -> Cells:
    """Return the cells of a plan that has only one."""
    return Cells((Part(mechanism),))
