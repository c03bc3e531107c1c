"""Exact laws: those of plain enumeration, and what cannot be told."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, trunc
from typing import Any

import pytest

from dither.auditing.coins import Undecidable
from dither.auditing.laws import BitsLaw, Law, Paths, TableLaw, TooMany, law_in_stages, law_of
from dither_shared.mechanisms import OUE, RAPPOR, SUE, PureMechanism, choose
from dither_shared.mechanisms.unary import send_bits
from dither_shared.rng import SCALE, Rng
from tests.support.laws import answers, law

HALF = SCALE // 2
E = Decimal(1)
MECHANISMS = [
    choose(5, E, name="grr"),
    choose(6, E, name="ss"),
    choose(9, E, name="pgr"),
    choose(3, E, name="oue"),
    choose(4, E, ticks=2, name="privset"),
    choose(5, E, permanent=Decimal(2), name="grr"),
    choose(5, E, permanent=Decimal(2), name="ss"),
    choose(5, E, permanent=Decimal(2), name="pgr"),
    choose(3, E, permanent=Decimal(2), name="oue"),
    choose(3, E, ticks=2, permanent=Decimal(2), name="sue"),
]


def as_table(found: Law) -> dict[Any, Fraction]:
    """Return a law as a table: of bits, of all their strings."""
    if isinstance(found, TableLaw):
        return found.probabilities
    assert isinstance(found, BitsLaw)
    table = {}
    for report in range(1 << len(found.ones)):
        table[report] = Fraction(1)
        for place, one in enumerate(found.ones):
            table[report] *= one if report >> place & 1 else 1 - one
    return table


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_laws_are_those_of_plain_enumeration(mechanism: PureMechanism) -> None:
    for values in answers(mechanism)[:4]:
        answer = mechanism.class_of(values)
        found = law_in_stages(
            lambda rng, answer=answer: mechanism.first_stage.randomize(answer, rng),  # type: ignore[misc]
            mechanism.repeat,
        )
        assert as_table(found) == law(mechanism, values)


def test_bits_of_any_number_have_an_exact_law() -> None:
    rappor = RAPPOR.for_epsilon(256, 2, E, Decimal(4))
    one, other = (
        law_in_stages(lambda rng, answer=answer: rappor.permanent.randomize(answer, rng), rappor.repeat)  # type: ignore[misc]
        for answer in (0b11, 0b1100)
    )
    assert isinstance(one, BitsLaw)
    assert set(one.ones) == {rappor.q_star, rappor.p_star}
    assert one.ratio(other) == rappor.exp_epsilon


def test_events_of_laws_are_as_likely_as_they_say() -> None:
    sue = SUE.for_epsilon(4, Decimal(2), 2)
    one, other = (law_of(lambda rng, answer=answer: sue.randomize(answer, rng)) for answer in (0b0011, 0b1100))  # type: ignore[misc]
    tables = as_table(one), as_table(other)
    for event in one.events(other):
        p, q = (float(sum(weight for report, weight in table.items() if event.holds(report))) for table in tables)
        assert (p, q) == pytest.approx((event.p, event.q))
    first = next(one.events(other))
    assert first.p / first.q == pytest.approx(float(sue.exp_epsilon))


def test_two_outcomes_of_a_law_are_the_same_as_often_as_it_says() -> None:
    oue = OUE.for_epsilon(3, E)
    found = law_of(lambda rng: oue.randomize(1, rng))
    assert found.repeats == sum(p * p for p in as_table(found).values())
    grr = choose(5, E, name="grr")
    found = law_of(lambda rng: grr.randomize(1, rng))
    assert found.repeats == sum(p * p for p in as_table(found).values())


def test_an_outcome_that_one_input_alone_has_is_an_infinite_ratio() -> None:
    coin = law_of(lambda rng: rng.coin(HALF))
    certain = law_of(lambda rng: True)
    assert coin.ratio(certain) is None
    assert certain.ratio(coin) == 2


def test_bits_and_a_table_have_an_infinite_ratio_and_events() -> None:
    bits, raised = law_of(lambda rng: rng.coins(HALF, 3)), law_of(lambda rng: int("no number"))
    assert (bits.ratio(raised), raised.ratio(bits)) == (None, None)
    assert next(bits.events(raised)).holds(5)
    assert next(raised.events(bits)).holds(("raises", "ValueError"))


@pytest.mark.parametrize("number", [2, 3, 7, 12])
def test_a_uniform_number_is_one_however_it_is_looked_at(number: int) -> None:
    def looked_at(rng: Rng) -> Any:
        drawn = rng.uniform(12)
        quotient, rest = divmod(drawn, number)
        assert quotient * number + rest == drawn
        return drawn + 0

    assert law_of(looked_at) == TableLaw(dict.fromkeys(range(12), Fraction(1, 12)))


def test_coins_that_are_looked_at_as_numbers_are_still_the_same_coins() -> None:
    found = law_of(lambda rng: send_bits(0b01, 2, HALF // 2, HALF, rng) + 10)
    assert as_table(found)[10] == Fraction(1, 2) * Fraction(3, 4)


def test_coins_that_are_looked_at_in_two_ways_have_no_law_rather_than_a_wrong_one() -> None:
    def twice(rng: Rng) -> Any:
        coins = rng.coins(HALF, 2)
        turned = coins ^ 1
        return int(coins), int(turned)

    with pytest.raises(Undecidable, match="in two ways"):
        law_of(twice)


def test_a_memo_that_the_second_stage_looks_at_is_followed_memo_by_memo() -> None:
    def second(memo: int, rng: Rng) -> int:
        return memo if memo == 0 or rng.coin(HALF) else 0

    found = law_in_stages(lambda rng: rng.uniform(3), second)
    assert as_table(found) == {0: Fraction(2, 3), 1: Fraction(1, 6), 2: Fraction(1, 6)}


def test_a_memo_that_is_an_exception_stays_one() -> None:
    def first(rng: Rng) -> int:
        return [5][rng.uniform(2)]

    found = law_in_stages(first, lambda memo, rng: memo if rng.coin(HALF) else 7)
    raised = ("raises", "IndexError")
    assert as_table(found) == {5: Fraction(1, 4), 7: Fraction(1, 4), raised: Fraction(1, 2)}


def test_bits_of_ones_own_have_no_law() -> None:
    with pytest.raises(Undecidable, match="bits of its own"):
        law_of(lambda rng: rng.randbits(64))


def test_too_many_decisions_are_refused_at_once_with_their_number() -> None:
    ss = choose(120, E, name="ss")
    with pytest.raises(TooMany, match=r"about \de\+\d+ sequences"):
        law_of(lambda rng: ss.randomize(0, rng))
    with pytest.raises(TooMany):
        law_of(lambda rng: rng.uniform(200) + rng.uniform(2), Paths(300))


def in_full(draw: Callable[[Rng], Any]) -> dict[Any, Fraction]:
    return as_table(law_of(draw))


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "minus": lambda number: -number,
    "inverted": lambda number: ~number,
    "absolute": abs,
    "as a float": float,
    "rounded": lambda number: round(number / 2),
    "rounded to tens": lambda number: round(number, -1),
    "up and down": lambda number: (ceil(number), floor(number), trunc(number)),
    "as text": str,
    "shown": repr,
    "in a text": lambda number: f"{number:04}",
    "bits counted": lambda number: number.bit_count(),
    "a power": lambda number: 2**number,
    "divided by": lambda number: divmod(7, number + 1),
    "divided": lambda number: divmod(number, 3),
    "whether": bool,
    "as it is": int,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_drawn_can_be_used_as_any_integer(name: str) -> None:
    """A law in which it raises, for every input, would have no loss, whatever is told."""
    use, quarter = OPERATIONS[name], Fraction(1, 4)
    expected: dict[Any, Fraction] = {}
    for number in range(4):
        expected[use(number)] = expected.get(use(number), Fraction(0)) + quarter
    assert in_full(lambda rng: use(rng.uniform(4))) == expected
    assert in_full(lambda rng: use(rng.coins(HALF, 2))) == expected


def test_strings_of_coins_of_different_lengths_meet_as_integers_do() -> None:
    found = law_of(lambda rng: rng.coins(HALF, 3) | rng.coins(HALF, 1))
    assert found == BitsLaw((Fraction(3, 4), Fraction(1, 2), Fraction(1, 2)))


def test_bits_are_held_against_longer_ones_and_against_a_table() -> None:
    bits, longer = law_of(lambda rng: rng.coins(HALF, 2)), law_of(lambda rng: rng.coins(HALF, 3))
    table = TableLaw({report: Fraction(1 + report, 10) for report in range(4)})
    assert bits.ratio(longer) == Fraction(2)
    assert longer.ratio(bits) is None
    assert bits.ratio(table) == Fraction(10, 4)
    assert table.ratio(bits) == Fraction(16, 10)
    assert longer.ratio(table) is None
    *_, last = longer.events(table)
    assert (last.p, last.q) == (0.5, 0.0)
    assert [last.holds(report) for report in (3, 4)] == [False, True]
    for one, other in ((bits, table), (table, bits)):
        most = next(iter(one.events(other)))
        assert Fraction(most.p) / Fraction(most.q) == pytest.approx(one.ratio(other))


def test_a_randomizer_that_may_draw_without_an_end_has_no_law() -> None:
    def geometric(rng: Rng) -> int:
        number = 0
        while rng.coin(HALF):
            number += 1
        return number

    def rejecting(rng: Rng) -> int:
        while not rng.coin(HALF):
            pass
        return 1

    for draw in (geometric, rejecting, lambda rng: (int(rng.coins(HALF, 1_500)),)):
        with pytest.raises(TooMany, match="sequences"):
            law_of(draw)
