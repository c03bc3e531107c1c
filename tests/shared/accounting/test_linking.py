"""R(n) against every outcome of small populations, against the figures of the design, and several memos together."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import permutations, product
from math import fsum, prod
from pathlib import Path

import pytest

from dither_shared.accounting import STEP, hundredths, linked_share
from dither_shared.mechanisms import (
    DEVICE,
    GRR,
    OUE,
    PGR,
    RAPPOR,
    SUE,
    Cells,
    Mechanism,
    MemoizedTwoLevel,
    MemoizedUnary,
    Part,
    PrivSet,
    choose,
    one_cell,
)
from dither_shared.rng import SCALE
from tests.support.laws import Law, answers, law_of_class

E1, E2, E3 = Decimal(1), Decimal(2), Decimal(3)


def cells_of(mechanism: Mechanism, lasting: int = 1) -> Cells:
    return Cells((Part(mechanism, lasting),), DEVICE) if lasting > 1 else one_cell(mechanism)


def symbols_of(mechanism: Mechanism, lasting: int = 1) -> Law:
    """Return the probability of each state of a device whose answer is the first one, by its mechanism's own code."""
    memos = law_of_class(mechanism.first_stage, 1) if mechanism.memoized else {0: Fraction(1)}
    return {memo * lasting + cell: one / lasting for memo, one in memos.items() for cell in range(lasting)}


@cache
def rightly_paired(kinds: tuple[int, ...]) -> Fraction:
    """Return the expected share of devices that are paired rightly, at random within each kind."""
    devices = range(len(kinds))
    pairings = [one for one in permutations(devices) if all(kinds[i] == kinds[one[i]] for i in devices)]
    return Fraction(sum(i == one[i] for one in pairings for i in devices), len(pairings) * len(kinds))


def by_every_outcome(states: Law, n: int) -> Fraction:
    """Return R(n): over all outcomes of n devices, and all pairings of before and after."""
    total = Fraction(0)
    for drawn in product(states, repeat=n):
        names = {state: place for place, state in enumerate(dict.fromkeys(drawn))}
        total += prod(states[state] for state in drawn) * rightly_paired(tuple(names[state] for state in drawn))
    return total


SMALL: list[tuple[Mechanism, int]] = [
    *((MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(d, E2), E1), m) for d, m in ((2, 1), (3, 1), (3, 2))),
    (MemoizedTwoLevel.for_epsilon(PGR.for_design(7, 2, 3, E2), E1), 2),
    (MemoizedTwoLevel.for_epsilon(PrivSet.for_weight(3, 2, 2, E2), E1), 1),
    (MemoizedUnary.for_epsilon(OUE.for_epsilon(3, E3), E1), 1),
    (MemoizedUnary.for_epsilon(SUE.for_epsilon(3, E3), E1), 2),
    *((RAPPOR.for_epsilon(k, 1, E1, E3), m) for k, m in ((2, 1), (2, 4), (4, 1))),
    (GRR.for_epsilon(3, E1), 8),
]


@pytest.mark.parametrize(("mechanism", "lasting"), SMALL, ids=str)
def test_r_is_what_every_outcome_says(mechanism: Mechanism, lasting: int) -> None:
    exact = by_every_outcome(symbols_of(mechanism, lasting), 3)
    assert linked_share((cells_of(mechanism, lasting),), 3) == pytest.approx(float(exact), rel=1e-7)


def test_a_cohort_that_is_left_out_would_be_caught() -> None:
    mechanism, lasting = SMALL[2]
    exact = by_every_outcome(symbols_of(mechanism, lasting), 3)
    assert linked_share((cells_of(mechanism),), 3) != pytest.approx(float(exact), rel=0.05)


@pytest.mark.parametrize("kind", [OUE, SUE])
@pytest.mark.parametrize(("d", "ticks"), [(3, 2), (4, 3)])
def test_no_answer_of_a_unary_code_is_linked_more_than_is_said(kind: type[OUE | SUE], d: int, ticks: int) -> None:
    mechanism = MemoizedUnary.for_epsilon(kind.for_epsilon(d, E3, ticks), E1)
    shown = linked_share((cells_of(mechanism),), 20)
    assert shown is not None
    of_answers = [
        sum(1 - (1 - one) ** 20 for one in law_of_class(mechanism.permanent, mechanism.class_of(values)).values()) / 20
        for values in answers(mechanism)
    ]
    assert float(max(of_answers)) == pytest.approx(shown, rel=1e-7)


def pgr(order: int, dimension: int, epsilon: int, permanent: int) -> MemoizedTwoLevel:
    d = (order**dimension - 1) // (order - 1)
    return MemoizedTwoLevel.for_epsilon(PGR.for_design(d, order, dimension, Decimal(permanent)), Decimal(epsilon))


def figure(*mechanisms: Mechanism, lasting: int = 1) -> float:
    share = linked_share(tuple(cells_of(mechanism, lasting) for mechanism in mechanisms))
    assert share is not None
    return share


@pytest.mark.parametrize(
    ("design", "by_lasting"),
    [
        ((3, 4, 1, 2), (0.18, 0.42, 0.60, 0.76, 0.86, 0.97)),
        ((3, 4, 1, 4), (0.09, 0.29, 0.47, 0.65, 0.80, 0.94)),
        ((7, 3, 2, 8), (0.04, 0.17, 0.31, 0.52, 0.69, 0.91)),
    ],
)
def test_r_is_what_was_measured(design: tuple[int, int, int, int], by_lasting: Sequence[float]) -> None:
    """By the likelihood of 14 daily reports before and 14 after, over 200 simulated devices: within .02."""
    for lasting, measured in zip((1, 4, 8, 16, 32, 128), by_lasting, strict=True):
        assert figure(pgr(*design), lasting=lasting) == pytest.approx(measured, abs=0.02)


def test_the_designs_figures_hold() -> None:
    """RAPPOR and unary codes link everybody; a point of 40 a sixth, two of them four fifths; cohorts alone half."""
    points = pgr(3, 4, 1, 2)
    assert figure(points) == pytest.approx(0.1736, abs=5e-5)
    assert figure(points, lasting=128) == pytest.approx(0.9633, abs=5e-5)
    assert figure(points, points) == pytest.approx(0.8089, abs=STEP)
    assert figure(points, points, points) == pytest.approx(0.9887, abs=2 * STEP)
    assert figure(RAPPOR.for_epsilon(256, 1, E1, E2), lasting=128) > 0.999
    assert figure(MemoizedUnary.for_epsilon(OUE.for_epsilon(500, E2), E1)) > 0.999
    assert figure(GRR.for_epsilon(3, E1), lasting=128) == pytest.approx(0.5067, abs=5e-5)
    assert figure(GRR.for_epsilon(3, E1), lasting=16) == pytest.approx(0.08, abs=5e-5)
    assert figure(pgr(3, 6, 1, 2)) == pytest.approx(0.6368, abs=5e-5)
    assert figure(pgr(3, 6, 1, 4)) == pytest.approx(0.5179, abs=5e-5)
    assert figure(pgr(7, 4, 2, 8)) == pytest.approx(0.2787, abs=5e-5)


@pytest.mark.parametrize("place", range(3))
def test_the_table_of_the_pages_holds(place: int) -> None:
    epsilon = Decimal((2, 4, 8)[place])
    lists = [choose(d, E1, permanent=epsilon) for d in (2, 17, 33, 101, 301)]
    bits = MemoizedUnary.for_epsilon(OUE.for_epsilon(301, epsilon), E1)
    text = RAPPOR.for_epsilon(256, 1, E1, epsilon)
    figures = [*map(figure, lists), figure(lists[2], lists[2]), figure(bits), figure(text, lasting=128)]
    page = (Path(__file__).parents[3] / "shared/mechanisms.md").read_text(encoding="utf-8")
    table = [line.split("|")[2:5] for line in page.partition("| memo |")[2].splitlines()[2:10]]
    shown = [float(row[place]) for row in table]
    assert [hundredths(each) for each in figures] == [f"{each:.2f}" for each in shown]


@pytest.mark.parametrize(("places", "n"), [((0, 1), 2), ((5, 5), 20), ((1, 8, 4, 2), 200)])
def test_several_memos_are_their_tuple(places: tuple[int, ...], n: int) -> None:
    """The memos are independent, in the largest of their nested cohorts. Rounding is upward, by less than is said."""
    chosen = [SMALL[place] for place in places]
    lasting = max(m for _, m in chosen)
    states = Counter({0: Fraction(1, lasting)})
    for mechanism, _ in chosen:
        states = Counter(dict(enumerate(a * b for a in states.values() for b in symbols_of(mechanism).values())))
    exact = lasting * fsum(1 - (1 - float(one)) ** n for one in states.values()) / n
    shown = linked_share(tuple(cells_of(*each) for each in chosen), n)
    assert shown is not None
    assert -1e-7 < shown - exact < (len(places) - 1) * STEP + 1e-7


def test_memos_that_were_averaged_instead_would_be_caught() -> None:
    points = pgr(3, 4, 1, 2)
    assert figure(points, points) > 4 * figure(points)


def test_where_nothing_lasts_there_is_no_figure() -> None:
    assert linked_share(()) is None
    assert linked_share((one_cell(GRR.for_epsilon(3, E1)),)) is None


@pytest.mark.parametrize(("public", "cohorts", "share"), [(16, 128, 0.95), (2, 1, 0.01)])
def test_a_public_value_is_a_mark_that_multiplies_with_the_cohort(public: int, cohorts: int, share: float) -> None:
    """16 values alone join .08 of 200 devices, and .95 with 128 cohorts."""
    beside = Cells((Part(GRR.for_epsilon(6, E1)),), public=public)
    cohort = (
        Cells((Part(GRR.for_epsilon(2, E1), cohorts),), DEVICE) if cohorts > 1 else one_cell(GRR.for_epsilon(2, E1))
    )
    shown = linked_share((beside, cohort))
    assert shown is not None
    assert shown == pytest.approx(share, abs=0.005)


def test_extremes_are_shares() -> None:
    sure = MemoizedTwoLevel(GRR(2, SCALE - 1), SCALE - 1)
    assert figure(sure) == pytest.approx(1 / 200)
    flags = [MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(2, Decimal(e) / 10), E1) for e in range(11, 51)]
    assert 0.5 < figure(*flags) < 1
    many = MemoizedUnary.for_epsilon(SUE.for_epsilon(4_000, E2, 8), E1)
    assert figure(many) == pytest.approx(1)
