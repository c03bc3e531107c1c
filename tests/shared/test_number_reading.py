"""A host app may record anything where a number is asked for: its range is exact, and nothing raises."""

import datetime
import decimal
import enum
import math
from bisect import bisect_right
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_shared import domains
from dither_shared.domains import Buckets, Domain, Range, Thresholds
from dither_shared.errors import InvalidParameter
from dither_shared.rng import SCALE
from tests.support.numbers import MEMO, number
from tests.support.soaking import scaled

TENTHS = number(edges=[-10, 0, 1, 2, 3, 10**16], decimals=1, unit="s")
"""Edges at -1, 0, .1, .2, .3 and 10^15 seconds."""
OTHER = 7


def bucket(answer: object) -> int:
    read = TENTHS.read(answer)
    assert isinstance(read, tuple)
    (place,) = read
    return place


class Whole(enum.IntEnum):
    THREE = 3


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        # Half-open: an edge belongs to the range above it.
        (-2, 0), (-1, 1), (Fraction(-1, 10**40), 1), (0, 2), (Decimal("0.1"), 3), (Decimal("0.0999999999999"), 2),
        (Decimal("0.2"), 4), (Decimal("0.3"), 5), (Fraction(3, 10), 5), (Fraction(3, 10) - Fraction(1, 10**60), 4),
        (10**15, 6), (Fraction(10**15) - Fraction(1, 10**60), 5), (10**15 - 1, 5),
        # A float is the binary fraction that it is: .1 is a little more than a tenth, .3 a little less than three.
        (0.1, 3), (0.2, 4), (0.3, 4), (0.1 + 0.2, 5), (math.nextafter(0.1, 0), 2), (-0.0, 2), (5e-324, 2),
        (-5e-324, 1), (1e15, 6), (math.nextafter(1e15, 0), 5), (1e308, 6), (-1e308, 0),
        # Without end.
        (math.inf, 6), (-math.inf, 0), (Decimal("Infinity"), 6), (Decimal("-Infinity"), 0), (10**400, 6),
        (-(10**400), 0), (Fraction(10**400, 3), 6), (Fraction(1, 10**400), 2), (Fraction(-1, 10**400), 1),
        # Decimals of any exponent, of which no integer is made.
        (Decimal("1e999999999"), 6), (Decimal("-1e999999999"), 0), (Decimal("1e-999999999"), 2),
        (Decimal("-1e-999999999"), 1), (Decimal("-0"), 2), (Decimal("0e999999999"), 2), (Decimal("-0e70"), 2),
        (Decimal("0e-999999999"), 2), (Decimal("1e61"), 6), (Decimal("-1e-61"), 1),
        # numpy's and others' own numbers.
        (np.float32(0.3), 5), (np.float64(0.3), 4), (np.float16("inf"), 6), (np.float64("-inf"), 0),
        (np.longdouble("1e4000"), 6), (np.int64(3), 5), (np.uint8(0), 2), (np.int8(-1), 1), (Whole.THREE, 5),
        (np.array(3), 5),
    ],
)  # fmt: skip
def test_a_number_is_in_the_range_that_holds_it_exactly(answer: object, place: int) -> None:
    assert TENTHS.takes(answer)
    assert bucket(answer) == place


def _raise(*_: object) -> NoReturn:
    raise RuntimeError("secret")


class RaisingInt(int):
    """An int whose methods raise."""

    as_integer_ratio = __index__ = __int__ = __repr__ = __bool__ = __eq__ = __hash__ = _raise


class RaisingFloat(float):
    """A float whose methods raise."""

    as_integer_ratio = __float__ = __repr__ = __bool__ = __eq__ = __hash__ = __gt__ = _raise


class RaisingDecimal(Decimal):
    """A decimal whose methods raise."""

    as_integer_ratio = is_nan = is_signed = adjusted = __repr__ = __hash__ = _raise


class Overflowing(float):
    """A float that says that it is infinite, and does not say which way."""

    __gt__ = _raise

    def as_integer_ratio(self) -> tuple[int, int]:
        raise OverflowError


class Lying:
    """Something that says that it is no pair of integers."""

    def __init__(self, ratio: object) -> None:
        self.ratio = ratio

    def as_integer_ratio(self) -> object:
        return self.ratio


class Indexed:
    """Something that has no integer for its index."""

    def __index__(self) -> Any:
        return "3"


class Classless:
    """Something that does not even say what it is."""

    __hash__ = __repr__ = __bool__ = _raise

    @property
    def __class__(self) -> type:
        return _raise()

    @__class__.setter
    def __class__(self, value: type) -> None:
        _raise()


NO_NUMBERS: list[Callable[[], object]] = [
    *(
        lambda answer=answer: answer
        for answer in (
            *(None, True, False, "3", "0.25 s", b"3", "", "nan", [3], (3, 1), {}, object(), type),
            *(math.nan, -math.nan, 3 + 0j, complex(0.1, 1), np.complex64(3)),
            *(Decimal("NaN"), Decimal("sNaN"), Decimal("-sNaN123"), Decimal("-NaN")),
            *(np.nan, np.float32("nan"), np.bool_(True), np.bool_(False)),
            *(np.array([3]), np.array(2.5), np.array([]), np.str_("3")),
            *(np.datetime64("2026-01-01"), np.timedelta64(3, "s")),
            *(datetime.timedelta(seconds=3), datetime.date(2026, 1, 1)),
        )
    ),
    *(lambda ratio=ratio: Lying(ratio) for ratio in (None, 3, (1,), (1, 2, 3), ("a", 1), (None, 1), (math.nan, 1))),
    lambda: RaisingInt(3),
    lambda: RaisingFloat(3),
    lambda: RaisingDecimal(3),
    lambda: Overflowing(3),
    lambda: Indexed(),
    lambda: Classless(),
]


@pytest.mark.parametrize("make", NO_NUMBERS)
def test_what_is_no_number_is_other_and_nothing_raises(make: Callable[[], object]) -> None:
    assert not TENTHS.takes(make())
    assert TENTHS.read(make()) == (OTHER,)
    assert TENTHS.names(make()) == ("other",)
    for metric in (number(low=1, high=3, asks=["mean"]), number(**MEMO, low=1, high=3)):
        assert not metric.takes(make())
        assert metric.read(make()) == metric.read(1) == metric.read(-math.inf)


@pytest.mark.parametrize("ratio", [(1, -2), (0, 0), (3, 0), (-3, 0), (2.0, 4), (np.int64(6), np.int64(2))])
def test_a_ratio_of_somebodys_own_has_a_place_whatever_it_is(ratio: object) -> None:
    assert 0 <= bucket(Lying(ratio)) <= OTHER


@settings(max_examples=scaled(40, 200))
@given(st.fractions(min_value=-3, max_value=5))
def test_a_place_in_a_range_and_in_steps_is_the_exact_part_rounded_down(answer: Fraction) -> None:
    low, high = Fraction(-1), Fraction(3)
    within, steps = Range((-10, 30), 1, "s"), Thresholds((-10, 0, 5, 20, 30), 1, "s")
    ratio = answer.numerator, answer.denominator
    cut = min(max(answer, low), high)
    assert within.place(*ratio) == (math.floor((cut - low) / (high - low) * SCALE),)
    step, part = steps.place(*ratio)
    ends = [Fraction(edge, 10) for edge in steps.edges[step : step + 2]]
    assert ends[0] <= cut <= ends[1]
    assert part == math.floor((cut - ends[0]) / (ends[1] - ends[0]) * SCALE)


def test_edges_by_floats_would_be_caught() -> None:
    """A planted bug: multiplied as a float, .3 seconds are three tenths, though they are less."""
    assert bucket(0.3) == 4
    assert bisect_right([-10, 0, 1, 2, 3], math.floor(0.3 * 10)) == 5


# Hosts that have changed what decimals do.


@pytest.mark.parametrize("traps", [[], [decimal.Inexact, decimal.Rounded, decimal.InvalidOperation]], ids=len)
def test_a_host_that_changes_decimals_changes_nothing(traps: list[Any]) -> None:
    keys: dict[str, Any] = {"low": Decimal("0.123456789"), "high": 123456789, "scale": "log", "buckets": 20}
    before = number(**keys)
    answers = [Decimal("0.123456789"), Decimal("123456788.9999"), 0.3, Fraction(1, 3), Decimal("1e70")]
    with decimal.localcontext(decimal.Context(prec=5, traps=traps, Emax=9, Emin=-9)):
        after = number(**keys)
        assert after.plan.digest == before.plan.digest
        assert [after.read(each) for each in answers] == [before.read(each) for each in answers]
        assert [after.names(each) for each in answers] == [before.names(each) for each in answers]
        assert after.kind.offer(after.asked) == before.kind.offer(before.asked)
    assert before.names(Decimal("0.123456789")) == ("0.123456789 to 0.347948507 s",)


def test_a_host_of_few_digits_lets_no_edge_of_too_many_through() -> None:
    from tests.shared.test_number_registry import refused

    with decimal.localcontext(prec=5):
        assert "low and high must leave room" in refused(low=0, high=Decimal("999999999999999999.5"), buckets=4)
        assert "high must be a number" in refused(low=0, high=10**18 + 1, buckets=4)


# Domains.

DOMAINS = [Buckets((-1, 0, 5), 1, "s"), Range((0, 10**18), 9, "MB"), Thresholds((0, 1, 2, 10, 11), 0, "tabs")]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_documents_make_the_same_domain_again(domain: Domain) -> None:
    again = domains.from_document(domain.to_document())
    assert (again, again.digest) == (domain, domain.digest)
    assert domain.agreed(hidden=False) == domain.to_document()


def test_what_tells_one_domain_from_another_changes_its_digest() -> None:
    every = [
        *DOMAINS,
        Buckets((-1, 0, 5), 1, "min"),
        Buckets((-1, 0, 5), 2, "s"),
        Buckets((-1, 0, 6), 1, "s"),
        Thresholds((-1, 0, 5), 1, "s"),
    ]
    assert len({domain.digest for domain in every}) == len(every)


@pytest.mark.parametrize("kind", [Buckets, Range, Thresholds])
@pytest.mark.parametrize(
    ("edges", "decimals", "unit"),
    [
        ((1,), 0, "s"), ((), 0, "s"), ((1, 1), 0, "s"), ((2, 1), 0, "s"), ((0, 10**18 + 1), 0, "s"),
        ((0, 1.0), 0, "s"), ((False, True), 0, "s"), ([0, 1], 0, "s"), (tuple(range(1_024)), 0, "s"),
        ((0, 1), -1, "s"), ((0, 1), 10, "s"), ((0, 1), True, "s"), ((0, 1), 0, None),
    ],
    ids=str,
)  # fmt: skip
def test_edges_that_no_plan_may_have_are_refused(kind: Any, edges: Any, decimals: Any, unit: Any) -> None:
    with pytest.raises(InvalidParameter):
        kind(edges, decimals, unit)


def test_a_range_has_two_edges_and_only_buckets_have_room_for_none() -> None:
    with pytest.raises(InvalidParameter, match="two edges, got 3"):
        Range((0, 1, 2), 0, "s")
    for domain in DOMAINS[1:]:
        assert isinstance(domain, Range | Thresholds)
        with pytest.raises(InvalidParameter, match="no place for a device with nothing to report"):
            domain.nothing()


# In words.


def test_ranges_are_named_in_the_unit() -> None:
    tenths = TENTHS.asked.domain
    assert isinstance(tenths, Buckets)
    assert [tenths.name_of(place) for place in range(9)] == [
        "below -1 s", "-1 to 0 s", "0 to 0.1 s", "0.1 to 0.2 s", "0.2 to 0.3 s", "0.3 to 1000000000000000 s",
        "1000000000000000 s or more", "other", "none",
    ]  # fmt: skip
    assert number(low=0, high=10, asks=["mean"]).names(2.5) == ("2.5 s",)
    assert number(low=0, high=10, asks=["mean"]).names(99) == ("10 s",)
    assert number(**MEMO, low=0, high=16, decimals=0).names(Decimal("2.5")) == ("2 to 3 s",)


def test_neighbouring_names_share_an_edge() -> None:
    domain = number(low=1, high=1024, scale="log", buckets=10).asked.domain
    assert isinstance(domain, Buckets)
    assert all(low[1] == high[0] for low, high in pairwise(map(domain.ends, range(domain.size))))
