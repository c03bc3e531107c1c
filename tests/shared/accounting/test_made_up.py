"""What made-up reports can move: the worst that there are, counted, against the bound."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement

import pytest

from dither_shared.accounting.made_up import moved
from dither_shared.cells import DEVICE, Cells, Part, one_cell
from dither_shared.mechanisms import (
    GRR,
    OUE,
    PGR,
    RAPPOR,
    SUE,
    MemoizedTwoLevel,
    PrivSet,
    PureMechanism,
    SubsetSelection,
)
from tests.support.laws import law, supports

E2 = Decimal(2)
SMALL: list[PureMechanism] = [
    *(GRR.for_epsilon(d, E2) for d in (2, 5)),
    *(SubsetSelection.for_weight(d, w, E2) for d, w in ((4, 2), (5, 4))),
    PGR.for_design(7, 2, 3, E2),
    PrivSet.for_weight(3, 2, 2, E2),
    OUE.for_epsilon(3, E2),
    SUE.for_epsilon(3, E2, 2),
    MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(3, Decimal(3)), E2),
]
N, MADE_UP = 40, 3


def moves(mechanism: PureMechanism, share: Fraction) -> list[Fraction]:
    """Return how far each choice of MADE_UP of N reports moves the expected estimate of value 1, of which `share` hold.

    The others' support is their expected one, by their own code's law of an answer with the value and of one without.
    """
    rates = [
        sum((one for y, one in law(mechanism, (value,)).items() if supports(mechanism, y, 1)), Fraction(0))
        for value in (1, 0)
    ]
    reports = list(law(mechanism, (0,)))
    honest = (N - MADE_UP) * (share * rates[0] + (1 - share) * rates[1])
    supported = {sum(supports(mechanism, y, 1) for y in chosen) for chosen in each_choice(reports)}
    p, q = rates
    return [((honest + support) / N - q) / (p - q) - share for support in supported]


def each_choice(reports: Sequence[int]) -> list[tuple[int, ...]]:
    return list(combinations_with_replacement(reports, MADE_UP))


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_the_worst_reports_move_an_estimate_as_far_as_is_said(mechanism: PureMechanism) -> None:
    bound = moved(one_cell(mechanism), MADE_UP, N)
    found = [abs(move) for share in (0, Fraction(1, 3), 1) for move in moves(mechanism, Fraction(share))]
    assert max(found) == bound


def test_the_weight_of_a_report_that_supports_is_not_always_the_most() -> None:
    """Nearly every report holds a value of four of five: it weighs more to be without it."""
    mechanism = SubsetSelection.for_weight(5, 4, E2)
    p, q = mechanism.p, mechanism.q
    assert max(abs(move) for move in moves(mechanism, Fraction(1))) > Fraction(MADE_UP, N) * (1 - q) / (p - q)


def test_a_bound_by_p_alone_would_be_caught() -> None:
    mechanism = GRR.for_epsilon(5, E2)
    p, q = mechanism.p, mechanism.q
    assert max(moves(mechanism, Fraction(0))) > Fraction(MADE_UP, N) * p / (p - q)


def test_no_bound_is_said_where_none_is_known() -> None:
    assert moved(one_cell(RAPPOR.for_epsilon(4, 1, Decimal(1), E2)), 1, 10) is None
    assert moved(Cells((Part(SMALL[0], 2),), DEVICE), 1, 10) is None
