"""Memoized answers: noise that is drawn once for each answer and kept, and fresh noise on it for every report.

Repeating an answer with fresh noise lets an observer average the noise away: r reports cost r epsilon. Here the device
draws a permanent report u of the answer once, at epsilon_permanent, and sends noisy copies of u. Any number of copies
tells no more than u, so all of them together cost at most epsilon_permanent. The first stage is a mechanism of this
package; the second is

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

from __future__ import annotations

from abc import abstractmethod

from dither_shared.frozen import derived, frozen
from dither_shared.mechanisms.mechanism import Mechanism, SymbolLaw
from dither_shared.mechanisms.pure import PureMechanism
from dither_shared.rng import SCALE, Rng


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
