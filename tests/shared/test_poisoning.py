"""The most that made-up reports can move: the worst that there are, counted, against what is said."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import pytest

from dither_shared.kinds.precision import HONEST, Worth, of_support
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
    choose,
)
from tests.support.laws import Law, answers, law, law_of_class, supports
from tests.support.numbers import MEMO, number
from tests.support.registries import registry
from tests.support.tables import table

E2 = Decimal(2)
SMALL: list[PureMechanism] = [
    *(GRR.for_epsilon(d, E2) for d in (2, 5)),
    *(SubsetSelection.for_weight(d, w, E2) for d, w in ((4, 2), (5, 4))),
    PGR.for_design(7, 2, 3, E2),
    PGR.for_design(5, 2, 3, E2),
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


def worth_of(mechanism: PureMechanism) -> Worth:
    return of_support("a value", mechanism.p, mechanism.q)


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_the_worst_reports_move_an_estimate_as_far_as_is_said_up_and_down(mechanism: PureMechanism) -> None:
    worth, part = worth_of(mechanism), Fraction(MADE_UP, N)
    for share in (Fraction(0), Fraction(1, 3), Fraction(1)):
        found = moves(mechanism, share)
        assert max(found) == part * (worth.up - share)
        assert -min(found) == part * (worth.down + share)
    assert worth.raised(MADE_UP, N) == max(moves(mechanism, Fraction(0)))
    assert worth.lowered(MADE_UP, N) == -min(moves(mechanism, Fraction(1)))


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_no_report_supports_more_or_fewer_values_than_is_said(mechanism: PureMechanism) -> None:
    counts = [
        sum(supports(mechanism, y, value) for value in range(mechanism.d))
        for y in law(mechanism, answers(mechanism)[0])
    ]
    least, most = mechanism.supported
    assert (min(counts), max(counts)) == (least, most)


def test_lowering_may_weigh_more_than_raising() -> None:
    """Nearly every report holds a value of four of five: it weighs more to be without it."""
    worth = worth_of(SubsetSelection.for_weight(5, 4, E2))
    assert worth.lowered(MADE_UP, N) > worth.raised(MADE_UP, N)


def test_a_bound_by_p_alone_would_be_caught() -> None:
    mechanism = GRR.for_epsilon(5, E2)
    p, q = mechanism.p, mechanism.q
    assert max(moves(mechanism, Fraction(0))) > Fraction(MADE_UP, N) * p / (p - q)


def test_reports_of_one_group_weigh_as_they_do_there() -> None:
    worth = Worth("a text", Fraction(2), Fraction(1), share=Fraction(1, 4))
    assert worth.part(10, 90) == Fraction(10, 10 + 20)
    assert (worth.raised(10, 90), worth.lowered(10, 90)) == (Fraction(2, 3), Fraction(2, 3))
    assert worth.part(90, 90) == 1


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 4)])
@pytest.mark.parametrize("wanted", [Fraction(1, 1000), Fraction(1, 7), Fraction(2)])
def test_so_many_are_needed_and_one_less_is_not_enough(share: Fraction, wanted: Fraction) -> None:
    worth, n = Worth("a value", Fraction(2), Fraction(1), share), 10_000
    needed = worth.needed(wanted, n)
    assert needed is not None
    assert worth.raised(needed, n) >= wanted > worth.raised(needed - 1, n)


def test_what_all_reports_do_not_reach_needs_more_than_all() -> None:
    assert Worth("a value", Fraction(2), Fraction(1)).needed(Fraction(3), 100) is None


# By kind.


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"kind": "choices", "color": "ticks_max = 2"},
        {"color": 'mechanism = "oue"'},
        {"epsilon": "1.0", "epsilon_permanent": "2.0"},
    ],
)
def test_listed_values_have_a_bound_and_say_how_many_move_together(asked: dict[str, Any]) -> None:
    metric = registry(**asked).metrics["color"]
    (worth,) = metric.poisoning
    mechanism = metric.cells.mechanism
    assert isinstance(mechanism, PureMechanism)
    assert worth.known
    assert worth.stands_out
    assert (worth.up, worth.down) == (worth_of(mechanism).up, worth_of(mechanism).down)
    assert worth.at_once == mechanism.supported[1]


def test_a_flag_never_stands_out() -> None:
    (worth,) = registry().metrics["dark"].poisoning
    assert not worth.stands_out


def rate_of(one: Law, bit: int) -> Fraction:
    return sum((chance for report, chance in one.items() if report >> bit & 1), Fraction(0))


def rappor_moves(mechanism: RAPPOR, bit: int, sets_it: bool) -> Fraction:
    """Return of how many honest reports of a text with this bit chosen ones have the expected counts.

    All other bits must have the rate that they have in others' reports, in both.
    """
    held, without = (law_of_class(mechanism, answer) for answer in (1 << bit, 0))
    assert all(rate_of(held, other) == rate_of(without, other) for other in range(mechanism.k) if other != bit)
    return (Fraction(sets_it) - rate_of(without, bit)) / (rate_of(held, bit) - rate_of(without, bit))


def test_chosen_bits_look_like_as_many_honest_reports_as_is_said() -> None:
    mechanism = RAPPOR.for_epsilon(4, 1, Decimal(1), E2)
    up, down = mechanism.pushes
    assert (rappor_moves(mechanism, 1, True), rappor_moves(mechanism, 1, False)) == (up, -down)


@pytest.mark.parametrize("inside", [True, False])
def test_chosen_points_look_like_as_many_honest_reports_as_is_said(inside: bool) -> None:
    mechanism = MemoizedTwoLevel.for_epsilon(PGR.for_design(7, 2, 3, Decimal(3)), E2)
    honest = law(mechanism, (1,))
    own = [y for y in honest if supports(mechanism, y, 1) == inside]

    def stands_above(reports: Law) -> Fraction:
        """Return how much oftener value 1 is supported than each other one, which must be alike."""
        rates = [sum((reports[y] for y in reports if supports(mechanism, y, each)), Fraction(0)) for each in range(7)]
        (others,) = {rate for each, rate in enumerate(rates) if each != 1}
        return rates[1] - others

    times = stands_above({y: Fraction(1, len(own)) for y in own}) / stands_above(honest)
    assert times == (mechanism.pushes[0] if inside else -mechanism.pushes[1])


def test_of_memoized_texts_shapes_and_hidden_tables_no_bound_is_said() -> None:
    text = registry(kind="text", epsilon="1.0", epsilon_permanent="4.0", answers=1).metrics["color"]
    hidden = table("a = ['x'], b = ['y']", presence="hidden")
    assert not any(metric.poisoning[0].known for metric in (text, hidden))
    assert number(low=0, high=10, buckets=4).poisoning == (HONEST,)


def test_a_mean_of_equal_steps_weighs_as_if_it_were_of_all_reports() -> None:
    mean, above = number(**MEMO, edges=[0, 1, 2, 3, 4]).poisoning
    assert (mean.share, above.share) == (Fraction(1), Fraction(1, 4))


def test_a_mean_of_unequal_steps_moves_no_farther_however_the_cohorts_are_shared() -> None:
    mean, above = number(**MEMO, edges=[0, 1, 3, 10, 20]).poisoning
    widths, n, made_up = [Fraction(width, 20) for width in (1, 2, 7, 10)], 400, 40
    found = [
        sum(width * above.raised(held, held + (n - made_up) // 4 * 4) for width, held in zip(widths, each, strict=True))
        for each in product(range(0, made_up + 1, 4), repeat=4)
        if sum(each) == made_up
    ]
    assert Fraction(85, 100) * mean.raised(made_up, n) < max(found) <= mean.raised(made_up, n)


def test_the_page_says_what_one_percent_of_the_reports_move() -> None:
    """`shared/accounting.md`: percentage points up and down, rounded to two digits."""
    page = (Path(__file__).parents[2] / "shared" / "accounting.md").read_text(encoding="utf-8")
    for name in ("grr", "ss", "pgr", "oue"):
        worths = [worth_of(choose(64, Decimal(epsilon), name=name)) for epsilon in (1, 2, 4)]
        cells = [f"{100 * float(one.raised(1, 100)):.2f}, {100 * float(one.lowered(1, 100)):.2f}" for one in worths]
        assert f"| {name} | {' | '.join(cells)} |" in page
