"""The keys of a number: every wrong combination is told what was needed and what came; edges are exact."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest

from dither_shared.domains import Buckets, Range, Thresholds
from dither_shared.errors import RegistryError
from dither_shared.kinds.number import BUCKETS_MAX
from dither_shared.registry import Metric, Registry
from tests.support.numbers import FRESH, MEMO, number, numbers_text
from tests.support.soaking import thinned

EVEN: dict[str, object] = {"low": 0, "high": 10, "buckets": 4}
MEAN: dict[str, object] = {"low": 0, "high": 10, "asks": ["mean"]}
LISTED: dict[str, object] = {"edges": [0, 1, 5]}
ALL = "['mean', 'quantiles', 'shape']"


def refused(**keys: object) -> str:
    life = {} if keys.get("memoize") else FRESH
    with pytest.raises(RegistryError) as caught:
        Registry.parse(numbers_text(asked={**life, **keys}), "m.toml")
    message = str(caught.value)
    assert message.startswith("m.toml: metric.asked: ")
    return message.removeprefix("m.toml: metric.asked: ")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({**EVEN, "unit": None}, "unit is missing: what the number counts or is measured in"),
        ({**EVEN, "unit": ""}, "unit must be text of 1 to 20 characters"),
        ({**EVEN, "unit": "x" * 21}, "unit must be text of 1 to 20 characters"),
        ({**EVEN, "unit": 3}, "unit must be text of 1 to 20 characters with no space around it, got 3"),
        ({**EVEN, "buckets": None}, "buckets is missing: how many ranges there are from low to high"),
        ({**EVEN, "low": None}, "low is missing: the least number that is told apart"),
        ({**EVEN, "high": None}, "high is missing: the largest number that is told apart"),
        ({}, "buckets is missing"),
        # Edges in two ways.
        ({**LISTED, "low": 0}, "low must be left out where edges are listed"),
        ({**LISTED, "high": 0}, "high must be left out where edges are listed"),
        ({**LISTED, "buckets": 3}, "buckets must be left out where edges are listed"),
        ({**LISTED, "scale": "log"}, "scale must be left out where edges are listed"),
        # Listed.
        ({"edges": [1]}, "edges must be a list of 2 to 255 integers of at most 18 digits, got a list of 1"),
        ({"edges": list(range(256))}, "edges must be a list of 2 to 255 integers of at most 18 digits, got a list of"),
        ({"edges": 5}, "edges must be a list of 2 to 255 integers of at most 18 digits, got 5"),
        ({"edges": [0, 0.5]}, "edges must be a list of 2 to 255 integers of at most 18 digits, got 0.5"),
        ({"edges": [0, True]}, "edges must be a list of 2 to 255 integers of at most 18 digits, got True"),
        ({"edges": [0, "1"]}, 'edges must be a list of 2 to 255 integers of at most 18 digits, got "1"'),
        ({"edges": [0, 10**18 + 1]}, "edges must be a list of 2 to 255 integers of at most 18 digits, got 1000"),
        ({"edges": [0, 10**100]}, "got a number of too many digits"),
        ({"edges": [0, 2, 2]}, "edges must strictly increase"),
        ({"edges": [2, 0]}, "edges must strictly increase"),
        ({"edges": "= [0, nan]"}, "edges must be a list of 2 to 255 integers of at most 18 digits, got NaN"),
        ({**LISTED, "decimals": 10}, "decimals must be an integer from 0 to 9, got 10"),
        ({**LISTED, "decimals": -1}, "decimals must be an integer from 0 to 9, got -1"),
        ({**LISTED, "decimals": True}, "decimals must be an integer from 0 to 9, got True"),
        # Made of two ends.
        ({**EVEN, "low": "0"}, 'low must be a number with at most 9 decimals, got "0"'),
        ({**EVEN, "low": False}, "low must be a number with at most 9 decimals, got False"),
        *(
            ({**EVEN, key: f"= {text}"}, f"{key} must be a number with at most 9 decimals, got")
            for key in ("low", "high")
            for text in ("nan", "-nan", "inf", "-inf", "1e400", "-1e400", "1e-400", "0.0000000001", "1e19", "[1]")
        ),
        ({**EVEN, "high": 10**18 + 1}, "high must be a number with at most 9 decimals, got 1000000000000000001"),
        ({**EVEN, "high": 0}, "high must be above low, 0, got 0"),
        ({**EVEN, "high": -1}, "high must be above low, 0, got -1"),
        ({**EVEN, "buckets": 1}, "buckets must be an integer from 2 to 256, got 1"),
        ({**EVEN, "buckets": 257}, "buckets must be an integer from 2 to 256, got 257"),
        ({**EVEN, "buckets": 4.0}, "buckets must be an integer from 2 to 256, got 4.0"),
        ({**EVEN, "scale": "ln"}, 'scale must be "linear" or "log", got "ln"'),
        ({**EVEN, "scale": "log"}, "low must be above 0 on a logarithmic scale, got 0"),
        ({**EVEN, "low": -1, "scale": "log"}, "low must be above 0 on a logarithmic scale, got -1"),
        ({**EVEN, "buckets": 11, "decimals": 0}, "decimals must be enough to make 11 ranges of 0 to 10, got 0"),
        ({**EVEN, "low": Decimal("0.5"), "decimals": 0}, "decimals must be enough to make 4 ranges of 0.5 to 10"),
        (
            {**EVEN, "high": Decimal("0.000000003")},
            "low and high must leave room for 4 ranges with at most 9 decimals and 18 digits, got 0 and 3E-9",
        ),
        ({**EVEN, "low": Decimal("0.5"), "high": 10**18}, "low and high must leave room for 4 ranges with"),
        # The mean alone.
        ({**MEAN, "edges": [0, 1]}, "edges must be left out where only the mean is asked: low and high are all"),
        ({**MEAN, "buckets": 4}, "buckets must be left out where only the mean is asked"),
        ({**MEAN, "scale": "log"}, "scale must be left out where only the mean is asked"),
        ({**MEAN, "low": Decimal("0.5"), "decimals": 0}, "decimals must be enough to make a range of 0.5 to 10, got 0"),
        ({**MEAN, "presence": "hidden"}, 'presence must be "public" for a number that is asked for its mean alone'),
        *(
            ({**EVEN, "asks": asks}, f"asks must be {ALL}, which is the default, or ['mean'], got {asks!r}")
            for asks in (["shape"], ["mean", "quantiles"], ["mean", "mode"])
        ),
        ({**EVEN, "asks": "mean"}, 'asks must be a list of 1 to 3 texts, got "mean"'),
        ({**EVEN, "asks": []}, "asks must be a list of 1 to 3 texts, got a list of 0"),
        # Fresh and memoized.
        ({**EVEN, "epsilon_permanent": 2}, "epsilon_permanent is for memoized answers: add memoize = true"),
        ({**EVEN, "answers": 2}, "answers is for memoized answers: add memoize = true"),
        ({**EVEN, "reports": None}, "reports is missing"),
        ({**EVEN, **MEMO, "reports": 3}, "reports must be left out where answers are memoized"),
        ({**EVEN, **MEMO, "epsilon_permanent": None}, "epsilon_permanent is missing"),
        ({**EVEN, **MEMO, "epsilon_permanent": 1}, "epsilon_permanent must be above epsilon, 1, got 1"),
        ({**EVEN, **MEMO, "answers": 3}, "answers must be an integer from 2 to 2, got 3"),
        ({**EVEN, **MEMO, "answers": 1}, "answers must be an integer from 2 to 2, got 1"),
        ({**EVEN, **MEMO, "presence": "hidden"}, 'presence must be "public" for a number that is memoized'),
        ({**EVEN, **MEMO, "schedule": "spread"}, 'schedule must not be "spread" where answers are memoized'),
        ({**MEAN, **MEMO}, "asks must be left out where a number is memoized: its one bit shows all there is"),
        ({**EVEN, **MEMO, "buckets": 3}, "buckets must make 2, 4, 8 or 16 ranges, a cohort each, got 3"),
        ({**EVEN, **MEMO, "buckets": 32}, "buckets must make 2, 4, 8 or 16 ranges, a cohort each, got 32"),
        ({**LISTED, **MEMO, "edges": [0, 1, 2, 3]}, "edges must make 2, 4, 8 or 16 ranges, a cohort each, got 3"),
        ({**LISTED, **MEMO, "edges": [0, 1]}, "edges must make 2, 4, 8 or 16 ranges, a cohort each, got 1"),
        # Keys of other kinds.
        ({**EVEN, "values": ["a"]}, "values is not a key of this table"),
        ({**EVEN, "mechanism": "grr"}, "mechanism is not a key of this table"),
        ({**EVEN, "bucket": 4}, "bucket is not a key of this table; did you mean buckets?"),
        ({**EVEN, "kind": "choice", "values": ["a"]}, "is not a key of this table"),
    ],
    ids=str,
)
def test_a_mistake_names_the_key_what_was_needed_and_what_came(keys: dict[str, object], message: str) -> None:
    assert message in refused(**keys)


def test_what_toml_itself_cannot_hold_is_refused_in_words() -> None:
    for text in ("1e99999999999999999999", "1_", "0x"):
        with pytest.raises(RegistryError, match="must be"):
            Registry.parse(numbers_text(asked={**FRESH, **EVEN, "high": f"= {text}"}))


def test_all_three_that_may_be_asked_are_the_default_in_any_order() -> None:
    wanted = number(**EVEN).plan
    assert number(**EVEN, asks=["shape", "mean", "quantiles"]).plan == wanted
    assert isinstance(wanted.domain, Buckets)
    assert isinstance(number(**MEAN).plan.domain, Range)
    memoized = number(**MEMO, **EVEN)
    assert isinstance(memoized.plan.domain, Thresholds)
    assert number(**MEMO, **{**EVEN, "buckets": None}).cells.count == 16
    assert number(**MEMO, **EVEN, answers=2).plan == memoized.plan


# Edges.


def edges(**keys: object) -> tuple[tuple[int, ...], int]:
    domain = number(**keys).asked.domain
    assert isinstance(domain, Buckets)
    return domain.edges, domain.decimals


def test_even_edges_are_whole_steps_rounded_up() -> None:
    assert edges(low=0, high=10, buckets=4, decimals=0) == ((0, 3, 5, 8, 10), 0)
    assert edges(low=0, high=10, buckets=4) == ((0, 25, 50, 75, 100), 1)
    assert edges(low=-10, high=10, buckets=8, decimals=0) == ((-10, -7, -5, -2, 0, 3, 5, 8, 10), 0)
    assert edges(low=0, high=1, buckets=10) == (tuple(range(11)), 1)
    assert edges(low=Decimal("0.25"), high=1, buckets=3) == ((25, 50, 75, 100), 2)
    thirds = (333_333_333_333_333_334, 666_666_666_666_666_667)
    assert edges(low=0, high=10**18, buckets=3) == ((0, *thirds, 10**18), 0)


def test_even_edges_by_floats_would_be_caught() -> None:
    """A planted bug: a float has 53 bits of the 60 of an edge."""
    exact, _ = edges(low=0, high=10**18, buckets=3)
    assert exact[1] == -(-(10**18) // 3) != math.ceil(10**18 * 1 / 3)


@pytest.mark.parametrize("base", thinned([2, 3, 5, 7, 10, 12], 1, 4))
def test_whole_powers_are_exact(base: int) -> None:
    for count in range(2, int(math.log(10**18, base)) + 1):
        assert edges(low=1, high=base**count, buckets=count, scale="log")[0] == tuple(
            base**power for power in range(count + 1)
        )


def test_logarithmic_edges_by_floats_would_be_caught() -> None:
    """A planted bug: by libm 243^(2/5) is above 9, and with it the edge; another libm may say otherwise."""
    by_libm = (1, *(math.ceil(math.pow(243, place / 5)) for place in range(1, 5)), 243)
    assert edges(low=1, high=243, buckets=5, scale="log") == ((1, 3, 9, 27, 81, 243), 0)
    assert by_libm == (1, 3, 10, 27, 82, 243)


RANGES = [(low, high) for low in ("0.001", "0.5", "1", "7") for high in ("8", "99.9", "3600", "123456.789", "1e12")]


@pytest.mark.parametrize("buckets", [2, 7, 64, BUCKETS_MAX])
def test_logarithmic_edges_increase_from_low_to_high_each_the_power_rounded_up(buckets: int) -> None:
    for low, high in thinned(RANGES, 0, 9, 19) if buckets == BUCKETS_MAX else RANGES:
        made, decimals = edges(low=Decimal(low), high=Decimal(high), buckets=buckets, scale="log")
        assert len(made) == buckets + 1, f"from {low} to {high}"
        assert all(lower < upper for lower, upper in pairwise(made)), f"from {low} to {high}"
        ends = [Fraction(Decimal(end)) * 10**decimals for end in (low, high)]
        assert [made[0], made[-1]] == ends
        for place, edge in enumerate(made):
            # (edge / low)^buckets >= (high / low)^place, and one step less is below: in integers, no logarithm.
            wanted, where = made[-1] ** place * made[0] ** (buckets - place), f"from {low} to {high}, edge {place}"
            assert edge**buckets >= wanted, where
            assert (edge - 1) ** buckets < wanted, where


def test_every_decimal_context_makes_the_same_plan() -> None:
    def plans() -> list[str]:
        made: list[Metric] = [
            number(low=Decimal("0.01"), high=60, buckets=64, scale="log"),
            number(low=Decimal("-1.25"), high=Decimal("99.999999999"), buckets=7),
            number(low=1, high=1024, buckets=10, scale="log", epsilon=Decimal("1.234567")),
            number(**MEAN, epsilon=Decimal("1.9")),
            number(**MEMO, low=1, high=10**9, scale="log"),
        ]
        return [metric.plan.digest for metric in made]

    before = plans()
    for context in (
        decimal.Context(prec=5),
        decimal.Context(prec=1, rounding=decimal.ROUND_UP, Emax=3, Emin=-3),
        decimal.Context(prec=3, traps=[decimal.Inexact, decimal.Rounded, decimal.Subnormal]),
    ):
        with decimal.localcontext(context):
            assert plans() == before


def test_decimals_are_the_fewest_that_place_the_edges_well() -> None:
    """Exactly, or with eight steps in the narrowest range."""
    assert edges(low=0, high=1, buckets=10)[1] == 1
    assert edges(low=0, high=1, buckets=11) == ((0, 10, 19, 28, 37, 46, 55, 64, 73, 82, 91, 100), 2)
    assert edges(low=0, high=1, buckets=64)[1] == 3
    assert edges(low=1, high=1024, buckets=10, scale="log")[1] == 0
    assert edges(low=1, high=2, buckets=10, scale="log")[1] == 3
    assert edges(low=1, high=2, buckets=11, scale="log", decimals=2)[1] == 2
