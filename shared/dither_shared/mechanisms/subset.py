"""Subset selection: send w of the d values, mostly including the answer.

    p = T / 2^64                              P[answer is in the subset]; ideally w e^eps / (w e^eps + d - w)
    q = p (w - 1) / (d - 1) + (1 - p) w / (d - 1)      P[another value is in it]

Privacy. Every subset with the answer has one probability, every other subset another. A part w / d of all subsets holds
a given value, so the ratio of the two is T (d - w) / ((2^64 - T) w) = e^eps.
Estimate. A report supports the w values it holds. Two levels (two_level.py): the set of v is the subsets that hold v,
a part w / d of all, and of these a part (w - 1) / (d - 1) holds a given other value.
With the best w, next to d / (e^eps + 1), no mechanism has less average error, whatever d and epsilon are.
Wang et al. 2016; Ye, Barg 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import takewhile
from math import comb, perm

from dither_shared.errors import InvalidParameter
from dither_shared.exact import exp_below
from dither_shared.frozen import frozen
from dither_shared.light_typing import Self
from dither_shared.mechanisms.mechanism import OUTPUTS_MAX, MechanismRequest, PairLaw
from dither_shared.mechanisms.two_level import OneShot, TwoLevelLaw, threshold_for
from dither_shared.rng import Rng
from dither_shared.shapes import Subsets


@frozen
class SubsetSelection(OneShot):
    """Send a subset of `weight` values that holds the answer with probability threshold / 2^64.

    Use where d is between e^epsilon and ten times that, or small. Do not use for more values: a point of PGR is far
    shorter than a subset, and its error at most some percent larger.
    """

    name = "ss"
    ticks = 1
    serves_one = True

    d: int
    weight: int
    threshold: int

    def __post_init__(self) -> None:
        if self.d < 2:
            raise InvalidParameter(f"d must be at least 2, got {self.d}")
        if not 1 <= self.weight < self.d:
            raise InvalidParameter(f"weight must be from 1 to {self.d - 1}, got {self.weight}")
        self.check_threshold()

    @classmethod
    def for_weight(cls, d: int, weight: int, epsilon: Decimal) -> Self:
        """Return the mechanism of this weight with the largest epsilon that is not above `epsilon`."""
        return cls(d, weight, threshold_for(epsilon, Fraction(weight, d)))

    @classmethod
    def for_epsilon(cls, d: int, epsilon: Decimal) -> Self:
        """Return the mechanism with the weight of least average variance: an integer next to d / (e^epsilon + 1)."""
        below = int(d / (exp_below(epsilon) + 1))
        weights = {max(1, below), min(d - 1, below + 1)}
        return min(
            (cls.for_weight(d, weight, epsilon) for weight in sorted(weights)), key=lambda one: one.average_variance
        )

    @classmethod
    def fresh_designs(cls, request: MechanismRequest) -> Iterator[Self]:
        """Return the one of the best weight."""
        yield cls.for_epsilon(request.d, request.epsilon)

    @classmethod
    def memo_designs(cls, request: MechanismRequest, permanent: Decimal) -> Iterator[Self]:
        """Return the one of the best weight for reports of `request.epsilon`, and lighter ones of not too many
        subsets."""
        best = cls.for_epsilon(request.d, request.epsilon).weight
        for weight in (*light_weights(request.d, best), best):
            yield cls.for_weight(request.d, weight, permanent)

    def pair_law(self, inside: Fraction) -> PairLaw:
        """The other w - 1 or w members of a subset are any of the d - 1 values that are not the answer."""
        w, others = self.weight, self.d - 1
        two_of = others * max(others - 1, 1)  # of d = 2 there is one other value, and the numerators below are 0
        neither = (inside * (w - 1) * (w - 2) + (1 - inside) * w * (w - 1)) / two_of
        return PairLaw(both=Fraction(0), one=inside * (w - 1) / others, neither=neither)

    @property
    def supported(self) -> tuple[int, int]:
        """The subset's members."""
        return self.weight, self.weight

    @property
    def outputs(self) -> int:
        """The number of subsets."""
        return comb(self.d, self.weight)

    @cached_property
    def law(self) -> TwoLevelLaw:
        """The subsets that hold a value are w / d of all, and (w - 1) / (d - 1) of them hold another given value."""
        share, overlap = Fraction(self.weight, self.d), Fraction(self.weight - 1, self.d - 1)
        return TwoLevelLaw.of_one_value(self.inside, share, overlap)

    @cached_property
    def shape(self) -> Subsets:
        """A report is a subset of `weight` of the d values."""
        return Subsets(self.d, self.weight)

    def randomize(self, answer: int, rng: Rng) -> int:
        """Return a subset. All draws are always made, so that time tells nothing."""
        inside = rng.coin(self.threshold)
        others = [other + (other >= answer) for other in draw_distinct(self.d - 1, self.weight, rng)]
        if inside:
            others[-1] = answer
        return self.shape.of(others)

    def uniform_report(self, rng: Rng) -> int:
        """Return any subset."""
        return self.shape.of(draw_distinct(self.d, self.weight, rng))


def light_weights(size: int, below: int) -> Iterator[int]:
    """Return the weights from 1 to below `below` that make at most OUTPUTS_MAX subsets of `size` values."""
    return takewhile(lambda weight: comb(size, weight) <= OUTPUTS_MAX, range(1, below))


def draw_distinct(size: int, count: int, rng: Rng) -> list[int]:
    """Return `count` different integers below `size`, in random order, every ordered choice equally likely.

    One uniform number below size (size - 1) ... names the choice: its digits to these bases are the swaps of a
    Fisher-Yates shuffle that stops after `count` places.
    """
    choice = rng.uniform(perm(size, count))
    moved: dict[int, int] = {}
    drawn = []
    for place in range(count):
        choice, swap = divmod(choice, size - place)
        swap += place
        drawn.append(moved.get(swap, swap))
        moved[swap] = moved.get(place, place)
    return drawn
