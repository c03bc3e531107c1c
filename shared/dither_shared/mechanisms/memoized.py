"""Memoized answers: noise that is drawn once for each answer and kept, and fresh noise on it for every report.

Repeating an answer with fresh noise lets an observer average the noise away: r reports cost r epsilon. Here the device
draws a permanent report u of the answer once, at epsilon_permanent, and sends noisy copies of u. Whatever is learnt
from any number of copies is learnt from u, so all of them together cost at most epsilon_permanent. The first stage is
a mechanism of this package; the second is

    two levels    send u with probability T / 2^64 (`threshold_keep`), else any of the K reports, u included
    unary         flip every bit of u with probability T / 2^64 (`threshold_flip`)

Privacy of one report. Two levels: u lies in the answer's set with probability i, a uniform report with probability
s / K, so a report lies in it with probability k i + (1 - k) s / K (k = T / 2^64), uniform within and without: again a
two-level mechanism, with its ratio and its estimate. Unary: the bits stay independent, with

    p = p_u (1 - x) + (1 - p_u) x      q = q_u (1 - x) + (1 - q_u) x      x = T / 2^64

So the law of one report is exactly that of the one-shot mechanism with the same epsilon (up to the rounding of T), and
memoizing costs no accuracy. (The odds published for L-GRR and LOLOHA leave out a term and give more noise than that
for more than two values.) OUE stays OUE, p = 1/2. The permanent part is computed from the device's secret instead of
stored; that is exact over ideal coins and computational over the keyed function.
The promise is between histories with the same pattern of change: when an answer changed is not hidden.
Erlingsson, Pihur, Korolova 2014; Arcolezi et al. 2022 and 2023 for the two stages; the odds are derived above.
"""

from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Self

from dither_shared.errors import InvalidParameter
from dither_shared.frozen import derived, frozen
from dither_shared.mechanisms.mechanism import Mechanism
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.mechanisms.two_level import OneShot, TwoLevel, inside_for
from dither_shared.mechanisms.unary import Unary, UnaryCode, least_private, multi_hot_ratio, send_bits
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import ReportShape

OUTPUTS_MAX = 64
"""A permanent symbol out of more would be a fingerprint of its device, seen again whenever it is kept."""


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
    def geometry(self) -> tuple[int, int] | None:
        """As without a memo."""
        return self.permanent.geometry


@frozen
class MemoizedTwoLevel(MemoizedPure, TwoLevel):
    """A two-level mechanism in two stages.

    Use for states that are asked again and again. Do not use where the change is the secret.
    """

    permanent: OneShot
    threshold_keep: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.permanent.outputs > OUTPUTS_MAX:
            raise InvalidParameter(
                f"memoized symbols must be of at most {OUTPUTS_MAX}, got {self.permanent.outputs}: more would be a "
                f"fingerprint"
            )
        if not 0 < self.threshold_keep < SCALE:
            raise InvalidParameter(f"threshold_keep must be above 0 and below 2^64, got {self.threshold_keep}")

    @classmethod
    def for_epsilon(cls, permanent: OneShot, epsilon: Decimal) -> Self:
        """Return the largest threshold_keep whose first report's epsilon is not above `epsilon`.

        From inside = k i + (1 - k) share, where `inside` is that of the one-shot mechanism; rounded down.
        """
        share = permanent.share
        return cls(permanent, int(SCALE * (inside_for(epsilon, share) - share) / (permanent.inside - share)))

    def parameters(self) -> dict[str, int]:
        """Return those of the permanent part, and threshold_keep."""
        return {**self.permanent.parameters(), "threshold_keep": self.threshold_keep}

    @cached_property
    def inside(self) -> Fraction:
        """P[a report lies in the answer's set]."""
        keep = Fraction(self.threshold_keep, SCALE)
        return keep * self.permanent.inside + (1 - keep) * self.permanent.share

    @property
    def share(self) -> Fraction:
        """s / K, as without a memo."""
        return self.permanent.share

    @property
    def overlap(self) -> Fraction:
        """l / s, as without a memo."""
        return self.permanent.overlap

    @property
    def held(self) -> Fraction:
        """As without a memo."""
        return self.permanent.held

    @property
    def overlap_outside(self) -> Fraction:
        """As without a memo."""
        return self.permanent.overlap_outside

    def class_of(self, values: Sequence[int]) -> int:
        """Return the class that the permanent part sees."""
        return self.permanent.class_of(values)

    @property
    def shape(self) -> ReportShape:
        """Reports are as without a memo."""
        return self.permanent.shape

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return the memo, or any report. Both draws are always made, so that time tells nothing."""
        keep = rng.coin(self.threshold_keep)
        other = self.permanent.uniform_report(rng)
        return memo if keep else other


@frozen
class MemoizedUnary(MemoizedPure, UnaryCode):
    """A unary code in two stages.

    Use for states that are asked again and again. Do not use where the change is the secret.
    """

    permanent: Unary
    threshold_flip: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold_flip < SCALE // 2:
            raise InvalidParameter(f"threshold_flip must be above 0 and below 2^63, got {self.threshold_flip}")

    @classmethod
    def for_epsilon(cls, permanent: Unary, epsilon: Decimal) -> Self:
        """Return the least threshold_flip whose first report's epsilon is not above `epsilon`."""

        def ratio(flip: int) -> tuple[int, int]:
            p, q = (sent_as_one(one, flip, SCALE - flip) for one in (permanent.threshold_p, permanent.threshold_q))
            return multi_hot_ratio(permanent.d, permanent.ticks, p, q, SCALE**2)

        return cls(permanent, least_private(SCALE // 2, epsilon, ratio))

    def parameters(self) -> dict[str, int]:
        """Return those of the permanent part, and threshold_flip."""
        return {**self.permanent.parameters(), "threshold_flip": self.threshold_flip}

    @cached_property
    def p(self) -> Fraction:
        """P[a bit of the answer is sent as 1]."""
        return self._sent_as_one(self.permanent.threshold_p)

    @cached_property
    def q(self) -> Fraction:
        """P[another bit is sent as 1]."""
        return self._sent_as_one(self.permanent.threshold_q)

    def _sent_as_one(self, threshold: int) -> Fraction:
        flip = self.threshold_flip
        return Fraction(sent_as_one(threshold, flip, SCALE - flip), SCALE**2)

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return the memo with a coin's flip for every bit."""
        return send_bits(memo, self.d, self.threshold_flip, SCALE - self.threshold_flip, rng)


def sent_as_one(threshold: int, threshold_0: int, threshold_1: int) -> int:
    """Return P[a bit is sent as 1] after both stages, out of 2^128.

    The first makes it 1 with probability threshold / 2^64; the second sends a 1 as 1 with probability
    threshold_1 / 2^64, a 0 with threshold_0 / 2^64.
    """
    return threshold * threshold_1 + (SCALE - threshold) * threshold_0
