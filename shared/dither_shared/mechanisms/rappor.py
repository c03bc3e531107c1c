"""RAPPOR: a text's bits in a Bloom filter, sent through a permanent and an instantaneous randomized response.

A device belongs to one of m cohorts for good: they are the cells of its plan. In cohort c, h hash functions give a text
at most h of k bits (hashing.py).

    permanent        every Bloom bit is flipped with probability f / 2                 F = f / 2
    instantaneous    a bit of the memo is sent as 1 with probability q if it is 1, with p if it is 0

    p* = P[bit sent as 1 | Bloom bit 0] = F q + (1 - F) p        q* = P[.. | Bloom bit 1] = (1 - F) q + F p

Privacy. Both stages are unary codes of k bits of which at most h are set (unary.py), so with two texts whose bits are
disjoint as the worst case (it needs k >= 2 h, and is a bound where no two texts have disjoint bits)

    e^eps_permanent = ((1 - F) / F)^(2 h)        e^eps = (q* (1 - p*) / (p* (1 - q*)))^h

A memo belongs to a Bloom pattern: texts with the same bits in a device's cohort share it, and cost once.
Estimate. The counts of each cohort's bits are linear in the shares of all texts; given a list of candidates, they are
found by regression. A text that nobody thought of cannot be found, but the mass that the list misses is estimated.
Erlingsson, Pihur, Korolova 2014. f, p and q are theirs: this q is above this p.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property

from dither_shared.errors import InvalidParameter
from dither_shared.exact import divided, exp_below
from dither_shared.frozen import frozen
from dither_shared.hashing import BITS_MAX, HASHES_MAX, bloom_bits
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import Memoized, SymbolLaw, law_of_coins, sent_as_one
from dither_shared.mechanisms.unary import SUE, least_private, multi_hot_ratio, send_bits
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import Bits


@frozen
class RAPPOR(Memoized):
    """Send a text's Bloom bits in two stages.

    Use for texts whose list nobody knows beforehand. Do not use for listed values: other mechanisms have less error.
    """

    name = "rappor"

    k: int
    h: int
    threshold_prr: int
    """F = f / 2, out of 2^64."""
    threshold_irr_0: int
    """p: a bit of the memo that is 0 is sent as 1."""
    threshold_irr_1: int
    """q: a bit of the memo that is 1 is sent as 1."""

    def __post_init__(self) -> None:
        if not 1 <= self.k <= BITS_MAX or self.k.bit_count() > 1:
            raise InvalidParameter(f"k must be a power of two up to {BITS_MAX}, got {self.k}")
        if not 1 <= self.h <= min(HASHES_MAX, self.k):
            raise InvalidParameter(f"h must be from 1 to {min(HASHES_MAX, self.k)}, got {self.h}")
        if not 0 < self.threshold_prr < SCALE // 2:
            raise InvalidParameter(f"threshold_prr must be above 0 and below 2^63, got {self.threshold_prr}")
        # Without noise in the second stage a memo would be a fingerprint, seen again with every report.
        if not 0 < self.threshold_irr_0 < self.threshold_irr_1 < SCALE:
            raise InvalidParameter(
                f"thresholds must satisfy 0 < threshold_irr_0 < threshold_irr_1 < 2^64, "
                f"got {self.threshold_irr_0} and {self.threshold_irr_1}"
            )

    @classmethod
    def of_probabilities(cls, k: int, h: int, f: Fraction, p: Fraction, q: Fraction) -> Self:
        """Return the mechanism of the paper's parameters, each rounded toward less privacy loss."""
        return cls(k, h, _up(f / 2), _up(p), int(q * SCALE))

    @classmethod
    def for_epsilon(cls, k: int, h: int, epsilon: Decimal, permanent: Decimal) -> Self:
        """Return the mechanism of least noise whose two epsilons are not above the stated ones.

        F follows from `permanent`. One choice is left, q*: each has one p*, from the odds that `epsilon` allows, and
        the noise p* (1 - p*) / (q* - p*)^2 of a bit that is rarely set. It falls toward q* = 1/2, but a q* that is far
        from 1 - F cannot be made out of the memo's bits: p or q would not be a probability.
        """
        if permanent <= epsilon:
            raise InvalidParameter(f"epsilon_permanent must be above epsilon, got {permanent} and {epsilon}")
        flip = least_private(SCALE // 2, permanent, lambda flip: multi_hot_ratio(k, h, SCALE - flip, flip, SCALE))
        odds = exp_below(divided(epsilon, h))
        f_half = Fraction(flip, SCALE)

        @cache
        def irr_of(q_star: Fraction) -> tuple[Fraction, Fraction]:
            p_star = q_star / (q_star + (1 - q_star) * odds)
            spread = (q_star - p_star) / (1 - 2 * f_half)
            return (p_star + q_star - spread) / 2, (p_star + q_star + spread) / 2

        def possible(q_star: Fraction) -> bool:
            p, q = irr_of(q_star)
            return p >= 0 and q <= 1

        low, high = Fraction(1, 2), 1 - f_half
        if possible(low):
            high = low
        while high - low > Fraction(1, 1 << 40):
            middle = (low + high) / 2
            low, high = (low, middle) if possible(middle) else (middle, high)
        irr_1 = min(int(irr_of(high)[1] * SCALE), SCALE - 1)

        def ratio(irr_0: int) -> tuple[int, int]:
            q_star, p_star = (sent_as_one(one, irr_0, irr_1) for one in (SCALE - flip, flip))
            return multi_hot_ratio(k, h, q_star, p_star, SCALE**2)

        return cls(k, h, flip, least_private(irr_1, epsilon, ratio), irr_1)

    @cached_property
    def permanent(self) -> SUE:  # type: ignore[override]  # read-only, like every field
        """The first stage: every bit is flipped with probability F, and at most h of k are set."""
        return SUE(self.k, self.h, SCALE - self.threshold_prr, self.threshold_prr)

    def memo_law(self) -> SymbolLaw:
        """Return the law of k bits that are each flipped with probability F: by their number, whatever the pattern."""
        return law_of_coins(self.k, self.threshold_prr)

    def memo_parameters(self) -> dict[str, int]:
        """Return all but the instantaneous part."""
        return {"k": self.k, "h": self.h, "threshold_prr": self.threshold_prr}

    @classmethod
    def of_integers(cls, parameters: Mapping[str, int], memo: Mapping[str, int] | None) -> Self:
        """Make the mechanism of a document's integers, both stages."""
        return cls(**(memo or {}), **parameters)

    @property
    def p_star(self) -> Fraction:
        """P[a bit is sent as 1 | the Bloom bit is 0]."""
        return Fraction(self._sent_as_one(self.threshold_prr), SCALE**2)

    @property
    def q_star(self) -> Fraction:
        """P[a bit is sent as 1 | the Bloom bit is 1]."""
        return Fraction(self._sent_as_one(SCALE - self.threshold_prr), SCALE**2)

    def _sent_as_one(self, threshold: int) -> int:
        return sent_as_one(threshold, self.threshold_irr_0, self.threshold_irr_1)

    @cached_property
    def exp_epsilon(self) -> Fraction:
        """The largest ratio for two texts with disjoint bits."""
        q_star, p_star = (self._sent_as_one(one) for one in (SCALE - self.threshold_prr, self.threshold_prr))
        return Fraction(*multi_hot_ratio(self.k, self.h, q_star, p_star, SCALE**2))

    @cached_property
    def noise_variance(self) -> Fraction:
        """p* (1 - p*) / (h (q* - p*)^2): of a text whose h bits it shares with no other."""
        p_star, q_star = (self._sent_as_one(one) for one in (self.threshold_prr, SCALE - self.threshold_prr))
        return Fraction(p_star * (SCALE**2 - p_star), self.h * (q_star - p_star) ** 2)

    @property
    def pushes(self) -> tuple[Fraction, Fraction]:
        """How many honest reports of a text a chosen one looks like at most, and how many fewer it does at least.

        With all bits of the text set, or none, and every other bit set with probability p*, the expected counts are
        those of reports that hold it (1 - p*) / (q* - p*) times, or - p* / (q* - p*) times.
        """
        spread = self.q_star - self.p_star
        return (1 - self.p_star) / spread, self.p_star / spread

    @cached_property
    def shape(self) -> Bits:
        """A report is k bits."""
        return Bits(self.k)

    def class_of(self, text: str, cohort: int) -> int:
        """Return the Bloom bits of a text in a cohort."""
        return sum(1 << bit for bit in set(bloom_bits(text, cohort, self.k, self.h)))

    def repeat(self, memo: int, rng: Rng) -> int:
        """Return a coin for every bit of the memo."""
        return send_bits(memo, self.k, self.threshold_irr_0, self.threshold_irr_1, rng)


def _up(probability: Fraction) -> int:
    return -int(-probability * SCALE // 1)
