"""The laws of memos, in groups, against every outcome of the permanent parts' own code."""

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from math import comb, exp, fsum, log

import pytest

from dither_shared.mechanisms import GRR, OUE, PGR, RAPPOR, SUE, Memoized, PrivSet, SubsetSelection
from dither_shared.mechanisms.mechanism import Equiprobable, MemoizedPure, law_of_coins
from dither_shared.rng import SCALE
from tests.support.laws import law_of_class

E1, E3 = Decimal(1), Decimal(3)
DESIGNS = [
    *(GRR.for_epsilon(d, E3) for d in (2, 3, 5)),
    *(SubsetSelection.for_weight(d, w, E3) for d, w in ((4, 1), (4, 2), (5, 2))),
    *(PGR.for_design(d, r, t, E3) for d, r, t in ((7, 2, 3), (5, 2, 3), (9, 3, 3))),
    *(PrivSet.for_weight(d, t, w, E3) for d, t, w in ((3, 2, 1), (3, 2, 2), (4, 3, 1))),
    *(kind.for_epsilon(d, E3, t) for kind in (OUE, SUE) for d, t in ((2, 1), (4, 1), (3, 2), (4, 4))),
]
MEMOIZED: list[MemoizedPure] = [design.in_two_stages(E1) for design in DESIGNS]  # type: ignore[misc]
TEXTS = [RAPPOR.for_epsilon(k, h, E1, E3) for k, h in ((2, 1), (4, 1), (4, 2))]


def answer_of(mechanism: Memoized) -> int:
    """Return the class of an answer that holds as many values as it may."""
    return mechanism.class_of(range(mechanism.ticks)) if isinstance(mechanism, MemoizedPure) else 1


def masses(groups: Iterable[tuple[float, float]]) -> dict[float, float]:
    """Return the mass of the symbols of each probability, given by its logarithm."""
    found: defaultdict[float, list[float]] = defaultdict(list)
    for mass, log_probability in groups:
        found[round(log_probability, 9)].append(mass)
    return {place: fsum(parts) for place, parts in sorted(found.items())}


@pytest.mark.parametrize("mechanism", [*MEMOIZED, *TEXTS], ids=str)
def test_the_groups_of_a_memo_are_those_of_its_own_code(mechanism: Memoized) -> None:
    symbols = law_of_class(mechanism.permanent, answer_of(mechanism)).values()
    own = masses((float(one), log(one.numerator) - log(one.denominator)) for one in symbols)
    said = masses((group.mass, group.log_probability) for group in mechanism.memo_law())
    assert list(said) == list(own)
    assert list(said.values()) == pytest.approx(list(own.values()), rel=1e-10)


def test_fresh_noise_has_no_memo() -> None:
    assert GRR.for_epsilon(3, E3).memo_law() == ()


@pytest.mark.parametrize("size", [0, 1, 7, 500, 4_096])
@pytest.mark.parametrize("threshold", [1, SCALE // 9, SCALE // 2, SCALE - 1])
def test_coins_are_a_law_whatever_their_number(size: int, threshold: int) -> None:
    law = law_of_coins(size, threshold)
    assert fsum(group.mass for group in law) == pytest.approx(1, rel=1e-9)
    p = Fraction(threshold, SCALE)
    for ones in {0, size // 3, size}:
        mass = comb(size, ones) * p**ones * (1 - p) ** (size - ones)
        assert law[ones].mass == pytest.approx(float(mass), rel=1e-9, abs=1e-300)


def test_independent_groups_multiply() -> None:
    both = Equiprobable(0.5, log(0.25)) * Equiprobable(0.25, log(0.125))
    assert both.mass == 0.125
    assert exp(both.log_probability) == pytest.approx(1 / 32)
