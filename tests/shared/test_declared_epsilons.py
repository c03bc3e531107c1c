"""Mechanisms of any size and epsilon: what they declare is just below what was wanted."""

from decimal import Decimal
from fractions import Fraction

import pytest

from dither_shared.exact import exp_below, from_micro, to_micro
from dither_shared.mechanisms import (
    GRR,
    OUE,
    PGR,
    SUE,
    PrivSet,
    PureMechanism,
    SubsetSelection,
    choose,
    serving,
)
from tests.support.soaking import thinned

EPSILONS = thinned([Decimal(text) for text in ("0.01", "0.5", "1", "2", "4", "7.123456", "20")], 0, 3, 5, 6)


def for_epsilon(name: str, d: int, epsilon: Decimal) -> PureMechanism:
    if name == "grr":
        return GRR.for_epsilon(d, epsilon)
    if name == "privset":
        return PrivSet.for_epsilon(d, epsilon, min(d, 3), bits_max=4096)
    if name == "ss":
        return SubsetSelection.for_epsilon(d, epsilon)
    return choose(d, epsilon, name=name) if name == "pgr" else {"oue": OUE, "sue": SUE}[name].for_epsilon(d, epsilon)


@pytest.mark.parametrize("d", thinned([2, 3, 16, 128, 1024, 65_536], 0, 3, 5))
@pytest.mark.parametrize("name", serving(None) | serving(2))
def test_declared_epsilon_is_just_below_the_wanted_one(name: str, d: int) -> None:
    for epsilon in EPSILONS:
        mechanism = for_epsilon(name, d, epsilon)
        wanted = exp_below(epsilon)
        assert wanted * (1 - Fraction(1, 10**8)) < mechanism.exp_epsilon <= wanted, f"epsilon {epsilon}"
        assert mechanism.charge == to_micro(epsilon)
        assert from_micro(mechanism.charge) == float(epsilon)


@pytest.mark.parametrize("ticks", thinned([2, 3, 7, 64], 0, 3))
@pytest.mark.parametrize("d", [3, 16, 128])
@pytest.mark.parametrize("name", ["oue", "sue", "privset"])
@pytest.mark.parametrize("permanent", [None, Decimal(6)])
def test_declared_epsilon_of_several_ticks_is_just_below_the_wanted_one(
    name: str, d: int, ticks: int, permanent: Decimal | None
) -> None:
    most = min(ticks, d)
    if name == "privset" and permanent is not None and d + most > 64:
        return  # not one of its reports may be memoized
    mechanism = choose(d, Decimal(2), ticks=most, permanent=permanent, name=name)
    wanted = exp_below(Decimal(2))
    assert wanted * (1 - Fraction(1, 10**8)) < mechanism.exp_epsilon <= wanted
    assert mechanism.charge == 2_000_000


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", [3, 128, 65_536])
def test_thresholds_are_the_tightest(d: int, epsilon: Decimal) -> None:
    """One step further would exceed the wanted epsilon."""
    wanted = exp_below(epsilon)
    grr, oue, sue = GRR.for_epsilon(d, epsilon), OUE.for_epsilon(d, epsilon), SUE.for_epsilon(d, epsilon)
    subset = SubsetSelection.for_epsilon(d, epsilon)
    assert GRR(d, grr.threshold + 1).exp_epsilon > wanted
    assert SubsetSelection(d, subset.weight, subset.threshold + 1).exp_epsilon > wanted
    assert OUE(d, 1, oue.threshold_p, oue.threshold_q - 1).exp_epsilon > wanted
    assert SUE(d, 1, sue.threshold_p + 1, sue.threshold_q - 1).exp_epsilon > wanted
    for one_shot in (PGR.for_design(7, 2, 3, epsilon), PGR.for_design(30, 5, 3, epsilon)):
        assert PGR(one_shot.d, one_shot.order, 3, one_shot.threshold + 1).exp_epsilon > wanted
