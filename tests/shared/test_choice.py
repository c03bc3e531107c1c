"""The automatic choice, beside every mechanism that there is."""

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from math import exp
from typing import Self

import pytest

from dither_shared.accounting import linked_share
from dither_shared.errors import InvalidParameter
from dither_shared.mechanisms import (
    GRR,
    MECHANISMS,
    OUE,
    PGR,
    SUE,
    MechanismRequest,
    MemoizedTwoLevel,
    MemoizedUnary,
    OneShot,
    PrivSet,
    PureMechanism,
    SubsetSelection,
    choose,
    one_cell,
    serving,
)
from dither_shared.mechanisms.automatic_choice import INDIFFERENT, LINKED_LOSS, linked_by
from dither_shared.mechanisms.mechanism import REPORT_BITS_MAX
from dither_shared.mechanisms.pgr import spaces
from tests.support.soaking import thinned

EPSILONS = thinned([Decimal(text) for text in ("0.1", "0.5", "1", "2", "3", "4", "6")], 0, 2, 3, 6)


def everything(d: int, epsilon: Decimal) -> list[PureMechanism]:
    """Every mechanism for d values, every weight and order: no window, no rule."""
    return [
        GRR.for_epsilon(d, epsilon),
        OUE.for_epsilon(d, epsilon),
        SUE.for_epsilon(d, epsilon),
        *(SubsetSelection.for_weight(d, weight, epsilon) for weight in range(1, d)),
        *(PGR.for_design(d, order, dimension, epsilon) for order, dimension in spaces(d)),
    ]


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", thinned([2, 3, 5, 8, 16, 40, 100, 300], 0, 3, 5, 7))
def test_no_mechanism_is_noticeably_better_and_none_as_good_is_shorter(d: int, epsilon: Decimal) -> None:
    candidates = everything(d, epsilon)
    bound = min(candidate.average_variance for candidate in candidates) * INDIFFERENT
    chosen = choose(d, epsilon)
    assert chosen.average_variance <= bound
    # Subset selection stands for its best weight: a lighter one would save a byte or two.
    others = [one for one in candidates if one.name != "ss"] + [SubsetSelection.for_epsilon(d, epsilon)]
    assert chosen.shape.bits == min(one.shape.bits for one in others if one.average_variance <= bound)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", thinned([2, 3, 7, 16, 61, 130], 0, 2, 4))
def test_the_weight_of_a_subset_is_the_best_of_all(d: int, epsilon: Decimal) -> None:
    best = min(SubsetSelection.for_weight(d, weight, epsilon).average_variance for weight in range(1, d))
    assert SubsetSelection.for_epsilon(d, epsilon).average_variance == best


@pytest.mark.parametrize(
    ("epsilon", "d", "most"),
    [
        *((epsilon, 1024, "1.03") for epsilon in ("0.5", "1", "2", "4")),
        ("4", 128, "0.90"),
        ("1", 16, "0.87"),
        ("4", 65_536, "1.03"),
        ("5.18", 65_536, "1.04"),  # where the best of all would be too long
        ("8", 65_536, "1.0"),
    ],
)
def test_the_error_beside_the_bound_for_many_values(epsilon: str, d: int, most: str) -> None:
    """4 e^eps / (n (e^eps - 1)^2) bounds every mechanism from below for large d; for small d less is possible."""
    e = exp(float(epsilon))
    ratio = choose(d, Decimal(epsilon)).average_variance / Fraction(4 * e / (e - 1) ** 2)
    assert ratio <= Fraction(most)


def test_what_is_chosen() -> None:
    names = {(d, e): choose(d, Decimal(e)).name for d in (2, 16, 128, 1024) for e in ("0.5", "1", "2", "4")}
    assert names == {
        **{(2, e): "grr" for e in ("0.5", "1", "2", "4")},
        **{(16, e): "ss" for e in ("0.5", "1", "2")},
        (16, "4"): "grr",
        **{(128, e): "pgr" for e in ("0.5", "2")},
        **{(128, e): "ss" for e in ("1", "4")},
        **{(1024, e): "pgr" for e in ("0.5", "1", "2", "4")},
    }


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize(("d", "ticks"), thinned([(2, 2), (3, 2), (10, 3), (20, 15), (40, 8), (100, 2)], 0, 2, 3))
def test_for_several_ticks_no_mechanism_is_noticeably_better(d: int, ticks: int, epsilon: Decimal) -> None:
    """Against both unary codes, and PrivSet with every weight that tells values apart."""
    sets = []
    for weight in range(1, d + 1):
        with suppress(InvalidParameter):
            sets.append(PrivSet.for_weight(d, ticks, weight, epsilon))
    candidates = [*sets, *(kind.for_epsilon(d, epsilon, ticks) for kind in (OUE, SUE))]
    chosen = choose(d, epsilon, ticks=ticks)
    assert chosen.average_variance <= min(one.average_variance for one in candidates) * INDIFFERENT
    assert chosen.ticks == ticks
    best = min(one.average_variance for one in sets)
    assert PrivSet.for_epsilon(d, epsilon, ticks, REPORT_BITS_MAX).average_variance == best


def test_several_ticks_are_sent_as_sets_or_bits() -> None:
    names = {(d, t, e): choose(d, Decimal(e), ticks=t).name for d, t in ((20, 4), (10, 9)) for e in (1, 4)}
    assert names == {(20, 4, 1): "privset", (20, 4, 4): "privset", (10, 9, 1): "privset", (10, 9, 4): "sue"}
    ratio = OUE.for_epsilon(20, Decimal(2), 4).average_variance / choose(20, Decimal(2), ticks=4).average_variance
    assert ratio > 6
    assert choose(5_000, Decimal(1), ticks=3).shape.bits <= REPORT_BITS_MAX
    assert choose(20, Decimal(1), ticks=4, permanent=Decimal(3)).name == "privset"
    assert choose(10, Decimal(4), ticks=9, permanent=Decimal(8)).name == "sue"


def every_memo(d: int, epsilon: Decimal, permanent: Decimal) -> list[MemoizedTwoLevel]:
    """Every memo of one symbol for d values, of every weight and order: no window, no limit of symbols."""
    permanents: list[OneShot] = [GRR.for_epsilon(d, permanent)]
    permanents += [SubsetSelection.for_weight(d, weight, permanent) for weight in range(1, d)]
    permanents += [PGR.for_design(d, order, dimension, permanent) for order, dimension in spaces(d)]
    return [MemoizedTwoLevel.for_epsilon(one, epsilon) for one in permanents]


MEMOS = thinned(
    [
        (Decimal(one), Decimal(permanent))
        for one, permanent in (("0.1", 1), (1, 2), (1, 4), (1.5, 3), (2, 8), (4, 8), (6, 7))
    ],
    *(0, 1, 4, 6),
)


@pytest.mark.parametrize(("epsilon", "permanent"), MEMOS, ids=str)
@pytest.mark.parametrize("d", thinned([2, 5, 7, 8, 13, 16, 20, 50, 64, 120, 300, 345, 391], 0, 5, 9, 12))
def test_of_memos_about_as_good_none_links_fewer_devices(d: int, epsilon: Decimal, permanent: Decimal) -> None:
    everything = every_memo(d, epsilon, permanent)
    bound = min(memo.average_variance for memo in everything) * LINKED_LOSS
    chosen = choose(d, epsilon, permanent=permanent)
    assert isinstance(chosen, MemoizedTwoLevel)
    assert chosen.average_variance <= bound
    assert linked_by(chosen) == min(linked_by(memo) for memo in everything if memo.average_variance <= bound)


@pytest.mark.parametrize(("epsilon", "permanent"), MEMOS, ids=str)
def test_a_memoized_list_is_never_a_unary_code(epsilon: Decimal, permanent: Decimal) -> None:
    for d in thinned((2, 3, 4, 6, 9, 11, 30, 90, 700, 2_000, 5_000, 65_536), 0, 2, 5, 7, 9, 11):
        chosen, fresh = choose(d, epsilon, permanent=permanent), choose(d, epsilon)
        assert isinstance(chosen, MemoizedTwoLevel), f"{d} values"
        most = fresh.average_variance * LINKED_LOSS * (1 + Fraction(1, 10**9))
        assert chosen.average_variance <= most, f"{d} values"


@pytest.mark.parametrize(("epsilon", "permanent"), MEMOS, ids=str)
@pytest.mark.parametrize(("d", "ticks"), thinned([(3, 2), (10, 3), (10, 9), (20, 4), (40, 30), (90, 4)], 0, 2, 3))
def test_a_memo_of_several_values_is_a_unary_code_only_where_no_set_is_near(
    d: int, ticks: int, epsilon: Decimal, permanent: Decimal
) -> None:
    sets = []
    for weight in range(1, d + 1):
        with suppress(InvalidParameter):
            sets.append(MemoizedTwoLevel.for_epsilon(PrivSet.for_weight(d, ticks, weight, permanent), epsilon))
    codes = [kind.for_epsilon(d, epsilon, ticks) for kind in (OUE, SUE)]
    bound = min(one.average_variance for one in (*sets, *codes)) * LINKED_LOSS
    near = [memo for memo in sets if memo.average_variance <= bound]
    chosen = choose(d, epsilon, ticks=ticks, permanent=permanent)
    if near:
        assert isinstance(chosen, MemoizedTwoLevel)
        # Weights of more than 2^21 subsets are left out but for the best: each of them links all but three in 10,000.
        assert linked_by(chosen) <= min(map(linked_by, near)) + Decimal("3e-4")
    else:
        assert isinstance(chosen, MemoizedUnary)


@pytest.mark.parametrize("d", thinned([2, 16, 31, 300, 4_096], 0, 2, 4))
@pytest.mark.parametrize("name", ["grr", "ss", "pgr"])
def test_the_r_that_is_compared_is_the_one_that_is_shown(name: str, d: int) -> None:
    for epsilon, permanent in MEMOS:
        memo = choose(d, epsilon, permanent=permanent, name=name)
        assert isinstance(memo, MemoizedTwoLevel)
        assert float(linked_by(memo)) == pytest.approx(linked_share((one_cell(memo),)), abs=2e-7)


def test_lists_of_300_and_of_16_link_fewer_devices_than_bits_and_subsets_do() -> None:
    long, short = (choose(d, Decimal(1), permanent=Decimal(2)) for d in (300, 16))
    assert round(linked_share((one_cell(long),)) or 0, 2) == 0.64
    assert round(linked_share((one_cell(short),)) or 0, 2) == 0.15
    bits = MemoizedUnary.for_epsilon(OUE.for_epsilon(300, Decimal(2)), Decimal(1))
    subsets = MemoizedTwoLevel.for_epsilon(SubsetSelection.for_weight(16, 4, Decimal(2)), Decimal(1))
    assert linked_share((one_cell(bits),)) > 0.999  # type: ignore[operator]
    assert round(linked_share((one_cell(subsets),)) or 0, 2) == 0.89
    assert long.average_variance <= 1.03 * bits.average_variance


@pytest.mark.parametrize("name", ["grr", "ss", "pgr", "oue", "sue"])
def test_a_named_mechanism_is_taken(name: str) -> None:
    assert choose(128, Decimal(1), name=name).name == name
    assert choose(11, Decimal(1), permanent=Decimal(3), name=name).name == name


def test_no_report_is_longer_than_the_limit() -> None:
    for d in (500, 2000, 65_536):
        for epsilon in (*EPSILONS, Decimal(9)):
            assert choose(d, epsilon).shape.bits <= REPORT_BITS_MAX


def test_the_mechanisms_say_whether_an_answer_may_hold_several_values() -> None:
    assert list(serving(None)) == ["grr", "ss", "pgr", "oue", "sue"]
    assert list(serving(2)) == ["privset", "oue", "sue"]


class Generous(GRR):
    """A mechanism from outside that takes twice the epsilon: nothing has less error."""

    name = "generous"

    @classmethod
    def fresh_designs(cls, request: MechanismRequest) -> Iterator[Self]:
        yield cls.for_epsilon(request.d, 2 * request.epsilon)


def test_a_mechanism_from_outside_takes_part_by_registering_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = choose(8, Decimal(1))
    monkeypatch.setitem(MECHANISMS, Generous.name, Generous)
    assert list(serving(None)) == ["grr", "ss", "pgr", "oue", "sue", "generous"]
    assert choose(8, Decimal(1)) == choose(8, Decimal(1), name="generous") == Generous.for_epsilon(8, Decimal(2))
    assert choose(8, Decimal(1), permanent=Decimal(3), name="generous").name == "generous"
    assert choose(8, Decimal(1), name=before.name) == before
    monkeypatch.delitem(MECHANISMS, Generous.name)
    assert choose(8, Decimal(1)) == before


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", thinned([2, 3, 8, 40, 300, 4096], 0, 2, 5))
def test_a_unary_code_of_one_value_would_never_win(d: int, epsilon: Decimal) -> None:
    """So it is compared only if it is named: searching its threshold would take most of the choice's time."""
    subset = SubsetSelection.for_epsilon(d, epsilon)
    for code in (OUE.for_epsilon(d, epsilon), SUE.for_epsilon(d, epsilon)):
        assert subset.shape.bits <= code.shape.bits
        assert subset.average_variance < code.average_variance


@pytest.mark.parametrize("ticks", [None, 2, 64])
@pytest.mark.parametrize("d", [2, 65, 4_096, 65_536])
def test_there_is_always_a_mechanism(d: int, ticks: int | None) -> None:
    """So plans and registries refuse no list for its length, unless they name the mechanism."""
    for epsilon in (Decimal("0.01"), Decimal(4), Decimal(20)):
        for permanent in (None, epsilon + Decimal("0.01")):
            if ticks is None or ticks <= d:
                assert choose(d, epsilon, ticks=ticks, permanent=permanent).d == d
