"""The second randomizers have exactly the laws of the first, run through every decision that they can make."""

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, cast

import pytest

from dither_shared.mechanisms import (
    DEVICE,
    GRR,
    OUE,
    PGR,
    RAPPOR,
    SUE,
    Cells,
    Mechanism,
    Memoized,
    MemoizedTwoLevel,
    MemoizedUnary,
    Part,
    PrivSet,
    SquareWave,
    SubsetSelection,
)
from tests.second import randomizers
from tests.second.coins import Coins
from tests.second.plans import Document, cells_of, draw_cell, part_of
from tests.second.randomizers import Value, randomize, repeat
from tests.second.shapes import to_wire
from tests.support.laws import law_of, law_of_class, repeats

TWO, FOUR = Decimal(2), Decimal(4)
Law = dict[int | str, Fraction]


def several(values: frozenset[int]) -> int:
    return sum(1 << value for value in values)


SETS: list[Value] = [frozenset(), frozenset({1}), frozenset({0, 2})]
FRESH: list[tuple[Mechanism, dict[Any, int]]] = [
    (GRR.for_epsilon(4, TWO), {0: 0, 2: 2, 3: 3}),
    (SubsetSelection.for_weight(5, 2, TWO), {0: 0, 3: 3, 4: 4}),
    (SubsetSelection.for_weight(17, 1, TWO), {0: 0, 16: 16}),
    (PGR.for_design(7, 2, 3, TWO), {value: value for value in range(7)}),
    (PGR.for_design(11, 3, 3, TWO), {value: value for value in range(0, 11, 5)}),
    (PGR.for_design(14, 2, 4, TWO), {0: 0, 7: 7, 13: 13}),
    (PrivSet.for_weight(4, 2, 2, TWO), {one: several(cast("frozenset[int]", one)) for one in SETS}),
    (PrivSet.for_weight(9, 3, 1, TWO), {one: several(cast("frozenset[int]", one)) for one in SETS}),
    (OUE.for_epsilon(3, TWO), {0: 1, 2: 4}),
    (SUE.for_epsilon(3, TWO, 2), {one: several(cast("frozenset[int]", one)) for one in SETS}),
    (SquareWave.for_reach(4, 1, TWO), {0: 0, 2: 2, 3: 3, None: 4}),
    (SquareWave.for_reach(3, 2, TWO), {0: 0, 1: 1, None: 3}),
]
MEMOS: list[tuple[Memoized, dict[Any, int]]] = [
    (MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(3, FOUR), TWO), {0: 0, 2: 2}),
    (MemoizedTwoLevel.for_epsilon(SubsetSelection.for_weight(4, 2, FOUR), TWO), {0: 0, 3: 3}),
    (MemoizedTwoLevel.for_epsilon(PGR.for_design(7, 2, 3, FOUR), TWO), {0: 0, 5: 5}),
    (MemoizedTwoLevel.for_epsilon(PrivSet.for_weight(4, 2, 1, FOUR), TWO), {frozenset(): 0, frozenset({0, 2}): 5}),
    (MemoizedUnary.for_epsilon(OUE.for_epsilon(3, FOUR), TWO), {1: 2}),
    (RAPPOR.for_epsilon(4, 1, TWO, FOUR), {frozenset({3}): 8}),
]


def named(mechanism: object) -> str:
    return mechanism.name if isinstance(mechanism, Mechanism) else ""


def drawn(draw: Callable[[Coins], Any]) -> dict[Any, Fraction]:
    """Return the law of what is drawn, as the second implementation has it."""
    return law_of(cast("Any", draw))


def second_law(draw: Callable[[Coins], Any], part: Document) -> Law:
    """Return the law of what is written on the wire."""
    law: Law = defaultdict(Fraction)
    for report, probability in drawn(draw).items():
        law[to_wire(part, report)] += probability
    return dict(law)


def first_law(mechanism: Mechanism, law: dict[int, Fraction]) -> Law:
    return {cast("Any", mechanism.shape).to_wire(report): probability for report, probability in law.items()}


def wrong_laws() -> list[str]:
    """Return the mechanisms of which a report has another law than the first implementation's."""
    wrong = []
    for mechanism, values in FRESH:
        part = mechanism.to_document()
        integers = cast("dict[str, int]", part["parameters"])
        for value, seen in values.items():
            came = second_law(partial(randomize, mechanism.name, integers, value), part)
            wrong += [mechanism.name] * (came != first_law(mechanism, law_of_class(mechanism, seen)))
    return wrong


def test_fresh_reports_have_the_laws_of_the_first() -> None:
    assert wrong_laws() == []


@pytest.mark.parametrize(("mechanism", "values"), MEMOS, ids=named)
def test_memos_and_their_reports_have_the_laws_of_the_first(mechanism: Memoized, values: dict[Any, int]) -> None:
    part: Document = mechanism.to_document()
    name, memo_integers, integers = part["mechanism"], part["memo"], part["parameters"]
    for value, seen in values.items():
        draw = partial(randomize, name, memo_integers, value)
        permanent = law_of(partial(mechanism.permanent.randomize, seen))
        assert second_law(draw, part) == first_law(mechanism, permanent)
        memo = next(iter(drawn(draw)))
        (first,) = (one for one in permanent if cast("Any", mechanism.shape).to_wire(one) == to_wire(part, memo))
        came = second_law(partial(repeat, name, integers, memo_integers, memo), part)
        assert came == first_law(mechanism, repeats(mechanism, first))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("count_points", lambda order, dimension: order**dimension),
        ("place_of", lambda number, size, prime: number),
        ("number_at", lambda place, size, prime: place),
        ("point_of", lambda number, order, dimension: randomizers._digits(number + 1, order, dimension)),
        ("_subset", lambda size, weight, coins: frozenset(range(weight))),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_another_order_of_points_or_sets_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, other: object) -> None:
    monkeypatch.setattr(randomizers, name, other)
    try:
        wrong = wrong_laws()
    except (ArithmeticError, ValueError, StopIteration, AssertionError):  # e.g. a vector that is no point
        wrong = ["it cannot be run"]
    assert wrong


CELLS = [
    Cells(
        (Part(GRR.for_epsilon(3, TWO), weight=2), Part(GRR.for_epsilon(3, TWO), 3, 1), Part(GRR.for_epsilon(4, TWO)))
    ),
    Cells((Part(GRR.for_epsilon(3, TWO), 2), Part(GRR.for_epsilon(5, TWO), 1, 3)), public=3),
    Cells((Part(GRR.for_epsilon(3, TWO), 8),), DEVICE),
]


@pytest.mark.parametrize("cells", CELLS, ids=lambda cells: f"{cells.count} by the {cells.drawn}")
def test_cells_are_drawn_and_have_mechanisms_as_the_firsts(cells: Cells) -> None:
    plan = {"cells": cells.to_document()}
    assert cells_of(plan) == cells.count
    for cell in range(cells.count):
        part = part_of(plan, cell)
        assert part["parameters"] == cells.mechanism_of(cell).parameters()
    if cells.drawn == DEVICE:
        assert [draw_cell(plan, Coins(), device) for device in range(128)] == [*map(cells.of_device, range(128))]
        return
    for public in range(cells.public):
        first = law_of(partial(cells.draw, public=public))
        assert drawn(partial(draw_cell, plan, public=public)) == first
