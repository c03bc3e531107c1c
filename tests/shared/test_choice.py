"""The automatic choice, beside every mechanism that there is."""

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from math import comb, exp
from typing import Self

import pytest

from dither_shared.errors import InvalidParameter
from dither_shared.mechanisms import (
    GRR,
    MECHANISMS,
    OUE,
    PGR,
    SUE,
    MemoizedUnary,
    Need,
    PrivSet,
    PureMechanism,
    SubsetSelection,
    choose,
    serving,
)
from dither_shared.mechanisms.choice import INDIFFERENT
from dither_shared.mechanisms.need import REPORT_BITS_MAX
from dither_shared.mechanisms.pgr import spaces

EPSILONS = [Decimal(text) for text in ("0.1", "0.5", "1", "2", "3", "4", "6")]


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
@pytest.mark.parametrize("d", [2, 3, 5, 8, 16, 40, 100, 300])
def test_no_mechanism_is_noticeably_better_and_none_as_good_is_shorter(d: int, epsilon: Decimal) -> None:
    candidates = everything(d, epsilon)
    bound = min(candidate.average_variance for candidate in candidates) * INDIFFERENT
    chosen = choose(d, epsilon)
    assert chosen.average_variance <= bound
    # Subset selection stands for its best weight: a lighter one would save a byte or two.
    others = [one for one in candidates if one.name != "ss"] + [SubsetSelection.for_epsilon(d, epsilon)]
    assert chosen.shape.bits == min(one.shape.bits for one in others if one.average_variance <= bound)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("d", [2, 3, 7, 16, 61, 130])
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
@pytest.mark.parametrize(("d", "ticks"), [(2, 2), (3, 2), (10, 3), (20, 15), (40, 8), (100, 2)])
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
    assert choose(90, Decimal(1), ticks=4, permanent=Decimal(3)).name == "oue"


@pytest.mark.parametrize("d", [2, 5, 8, 16, 50, 64, 200, 3000])
def test_a_memoized_symbol_is_no_fingerprint_and_no_worse(d: int) -> None:
    epsilon, permanent = Decimal(1), Decimal(4)
    chosen = choose(d, epsilon, permanent=permanent)
    if not isinstance(chosen, MemoizedUnary):
        assert chosen.permanent.outputs <= 64  # type: ignore[attr-defined]
    candidates: list[PureMechanism] = [OUE.for_epsilon(d, epsilon)]
    if d <= 64:
        candidates.append(GRR.for_epsilon(d, epsilon))
        candidates += [SubsetSelection.for_weight(d, w, epsilon) for w in range(1, d) if comb(d, w) <= 64]
    candidates += [PGR.for_design(d, *space, epsilon) for space in spaces(d, 64)]
    bound = min(candidate.average_variance for candidate in candidates) * INDIFFERENT
    assert chosen.average_variance <= bound * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize("name", ["grr", "ss", "pgr", "oue", "sue"])
def test_a_named_mechanism_is_taken(name: str) -> None:
    assert choose(128, Decimal(1), name=name).name == name
    assert choose(11, Decimal(1), permanent=Decimal(3), name=name).name == name


@pytest.mark.parametrize(
    ("d", "changes", "message"),
    [
        (5000, {"name": "oue"}, "there is no oue for 5000 values with reports of at most 4096 bits"),
        (5000, {"permanent": Decimal(3)}, "there is no memoized mechanism for 5000 values"),
        (5000, {"ticks": 3, "name": "oue"}, "there is no oue for 5000 values with reports of at most 4096 bits$"),
        (65, {"permanent": Decimal(3), "name": "grr"}, "no memoized grr for 65 values .* at most 64 symbols"),
    ],
)
def test_too_long_reports_are_refused(d: int, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        choose(d, Decimal(1), **changes)  # type: ignore[arg-type]


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
    def fresh_designs(cls, need: Need) -> Iterator[Self]:
        yield cls.for_epsilon(need.d, 2 * need.epsilon)


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
@pytest.mark.parametrize("d", [2, 3, 8, 40, 300, 4096])
def test_a_unary_code_of_one_value_would_never_win(d: int, epsilon: Decimal) -> None:
    """So it is compared only if it is named: searching its threshold would take most of the choice's time."""
    subset = SubsetSelection.for_epsilon(d, epsilon)
    for code in (OUE.for_epsilon(d, epsilon), SUE.for_epsilon(d, epsilon)):
        assert subset.shape.bits <= code.shape.bits
        assert subset.average_variance < code.average_variance
