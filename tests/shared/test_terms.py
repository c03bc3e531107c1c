"""People are asked again for some changes, and not for others."""

import hashlib
import json
from datetime import date, timedelta
from typing import Any

import pytest

from dither_shared.frozen import replaced
from dither_shared.mechanisms.parameter_sets import PARAMETER_SETS
from dither_shared.registry import Metric
from dither_shared.terms import DeviceTerms, Terms
from tests.support.registries import VALUES, registry

Keys = dict[str, Any]

UNTIL = date(2027, 6, 30)
MEMO: Keys = {"epsilon": "1", "epsilon_permanent": "4"}
TEXT: Keys = {"kind": "text", **MEMO}
TICKS: Keys = {"kind": "choices", "color": "ticks_max = 2"}
SIZES = "k = 16, h = 2, f = 0.5, p = 0.5, q = 0.75"
LISTED: Keys = {"epsilon": "1", "epsilon_permanent": "2", "values": tuple(f"v{number}" for number in range(20))}
HASHED: Keys = {"kind": "text", "epsilon": "1", "epsilon_permanent": "2"}
OWN: Keys = {"kind": "text", "epsilon": "1.074286", "epsilon_permanent": "4.39445", "device_epsilon": "60"}


def cohorts(number: int) -> Keys:
    return OWN | {"color": f"parameters = {{ {SIZES}, m = {number} }}"}


def metric(name: str = "color", question: str = "What?", sensitivity: str = "low", **keys: Any) -> Metric:
    """Return a metric of the tests' registry: `color`, or the flag `dark`."""
    asked = registry(**{"expires": UNTIL, **keys}).metrics[name]
    return replaced(asked, question=question, sensitivity=sensitivity)


def asks(before: Keys, after: Keys) -> list[str]:
    """Return what is asked when a metric of the first keys is agreed to, and comes with the others."""
    return Terms.of(metric(**after)).asks(Terms.from_json(Terms.of(metric(**before)).to_json()))


ASKED: dict[str, tuple[Keys, Keys, list[str]]] = {
    "another question": ({}, {"question": "Who are you?"}, ['its question becomes "Who are you?"']),
    "another kind": ({}, TICKS, ["its kind changes from choice to choices"]),
    "a value more": ({}, {"values": (*VALUES, "plum")}, ["its possible answers change"]),
    "a value less": ({}, {"values": VALUES[:2]}, ["its possible answers change"]),
    "another value": ({}, {"values": ("red", "green", "plum")}, ["its possible answers change"]),
    "two values joined": ({"values": ("a", "b")}, {"values": ("a,b",)}, ["its possible answers change"]),
    "a higher sensitivity": ({}, {"sensitivity": "medium"}, ["its sensitivity rises from low to medium"]),
    "the highest": ({"sensitivity": "medium"}, {"sensitivity": "high"}, ["its sensitivity rises from medium to high"]),
    "presence": ({"presence": "hidden"}, {}, ["whether it answers is no longer hidden"]),
    "a higher epsilon with fewer reports": (
        {"epsilon": "2", "reports": 3},
        {"epsilon": "6", "reports": 1},
        ["its epsilon of a report rises from 2 to 6"],
    ),
    "a millionth": (
        {"epsilon": "2", "reports": 2},
        {"epsilon": "2.000001", "reports": 1},
        ["its epsilon of a report rises from 2 to 2.000001"],
    ),
    "a higher epsilon of a memoized answer's report": (
        MEMO,
        MEMO | {"epsilon": "2"},
        ["its epsilon of a report rises from 1 to 2"],
    ),
    "more reports of less each": (
        {"epsilon": "2", "reports": 3},
        {"epsilon": "1", "reports": 6},
        ["its number of reports rises from 3 to 6"],
    ),
    "more reports": (
        {},
        {"reports": 4},
        ["its epsilon for life rises from 6 to 8", "its number of reports rises from 3 to 4"],
    ),
    "more different answers": (
        MEMO,
        MEMO | {"answers": 3},
        ["its epsilon for life rises from 8 to 12", "its number of different answers rises from 2 to 3"],
    ),
    "a permanent answer of more": (
        MEMO,
        MEMO | {"epsilon_permanent": "5", "answers": 1},
        ["its epsilon of a permanent answer rises from 4 to 5"],
    ),
    "a memo become fresh": (MEMO, {"epsilon": "1", "reports": 8}, ["its memoized answers become fresh ones"]),
    "fresh become a memo": (
        {},
        MEMO | {"answers": 1},
        ["its fresh answers become memoized ones, whose noise is a lasting mark"],
    ),
    "a fresh flag become a memoized text": (
        {"name": "dark"},
        TEXT | {"answers": 1},
        [
            "its kind changes from flag to text",
            "its fresh answers become memoized ones, whose noise is a lasting mark",
            "it shows which of 128 cohorts the device is in",
            "of 200 people with the same answers about 200 could be recognised",
        ],
    ),
    "a shorter period": ({"period": "2d"}, {}, ["its period shortens from 2d to 1d"]),
    "a later expiry": (
        {},
        {"expires": UNTIL + timedelta(days=1)},
        ["its expiry is extended from 2027-06-30 to 2027-07-01"],
    ),
    "more cohorts": (cohorts(32), cohorts(64), ["the cohorts that it shows rise from 32 to 64"]),
    "a mechanism that links more": (
        LISTED | {"color": 'mechanism = "grr"'},
        LISTED | {"color": 'mechanism = "oue"'},
        ["of 200 people with the same answers about 166 could be recognised, not 21"],
    ),
    "a parameter that links more": (
        HASHED | {"color": 'mechanism = "pgr"\ncandidates_expected = 50'},
        HASHED | {"color": 'mechanism = "rappor"\ncandidates_expected = 50'},
        [
            "the cohorts that it shows rise from 8 to 128",
            "of 200 people with the same answers about 200 could be recognised, not 106",
        ],
    ),
}


@pytest.mark.parametrize(("before", "after", "phrases"), ASKED.values(), ids=ASKED)
def test_what_is_replaced_or_widened_asks_again(before: Keys, after: Keys, phrases: list[str]) -> None:
    assert asks(before, after) == phrases


LESS: dict[str, tuple[Keys, Keys]] = {
    "nothing": ({}, {}),
    "a rev": ({}, {"rev": 2}),
    "a schedule": ({}, {"schedule": "spread"}),
    "another mechanism of the same epsilon": ({"color": 'mechanism = "grr"'}, {"color": 'mechanism = "ss"'}),
    "another order of the values": ({}, {"values": VALUES[::-1]}),
    "a lower sensitivity": ({"sensitivity": "high"}, {"sensitivity": "medium"}),
    "hidden presence": ({}, {"presence": "hidden"}),
    "a lower epsilon": ({}, {"epsilon": "1.5"}),
    "fewer reports": ({}, {"reports": 2}),
    "fewer different answers": (MEMO, MEMO | {"answers": 1}),
    "a permanent answer of less": (MEMO, MEMO | {"epsilon_permanent": "3"}),
    "a longer period": ({}, {"period": "2d"}),
    "an earlier expiry": ({}, {"expires": UNTIL - timedelta(days=1)}),
    "fewer cohorts": (cohorts(64), cohorts(32)),
    "a mechanism that links less": (LISTED | {"color": 'mechanism = "oue"'}, LISTED | {"color": 'mechanism = "grr"'}),
    "a mechanism that links hardly more": (
        LISTED | {"color": 'mechanism = "grr"'},
        LISTED | {"color": 'mechanism = "pgr"'},
    ),
    "other candidates": (TEXT | {"candidates": ("a",)}, TEXT | {"candidates": ("b", "c")}),
}


@pytest.mark.parametrize(("before", "after"), LESS.values(), ids=LESS)
def test_less_and_what_people_never_saw_ask_nothing(before: Keys, after: Keys) -> None:
    assert asks(before, after) == []


def test_a_new_metric_asks_with_what_it_may_cost() -> None:
    assert Terms.of(metric()).asks(None) == ["it is new, and may cost 6"]


def about(people: int, before: int) -> str:
    return f"of 200 people with the same answers about {people} could be recognised, not {before}"


@pytest.mark.parametrize(
    ("terms", "phrases"),
    [
        (DeviceTerms(4_000_000, 1800), []),
        (DeviceTerms(6_500_000, 1800), ["the device's epsilon rises from 4 to 6.5"]),
        (DeviceTerms(4_000_000, 2300), []),
        (DeviceTerms(4_000_000, 2301), [f"with all metrics together, {about(47, 36)}"]),
        (DeviceTerms(4_000_000, 1900, linkable=True), [f"it is now meant that reports can be joined: {about(38, 36)}"]),
        (DeviceTerms(4_000_000, 6000, linkable=True), [f"with all metrics together, {about(120, 36)}"]),
    ],
)
def test_a_device_asks_for_a_higher_epsilon_and_for_noise_that_links_it_more(
    terms: DeviceTerms, phrases: list[str]
) -> None:
    assert terms.asks(DeviceTerms(4_000_000, 1800)) == phrases


def test_what_was_agreed_to_as_linkable_asks_nothing() -> None:
    agreed = DeviceTerms(1, 6000, linkable=True)
    assert agreed.asks(agreed) == DeviceTerms(1, 200).asks(agreed) == []


def test_terms_that_link_nothing_are_the_text_of_before_they_said_so() -> None:
    """Else every device would read its kept terms anew at each answer, and be asked where nothing has changed."""
    assert "linked" not in json.loads(Terms.of(metric()).to_json())
    assert json.loads(Terms.of(metric(**MEMO)).to_json())["linked"] == 195


@pytest.mark.parametrize("keys", [{}, {"name": "dark"}, MEMO, TEXT, TICKS, {"presence": "hidden"}])
def test_terms_are_read_as_they_were_kept(keys: Keys) -> None:
    terms = Terms.of(metric(**keys))
    assert Terms.from_json(terms.to_json()) == terms
    assert terms.to_json() == Terms.of(metric(**keys)).to_json()


def test_terms_hold_the_exact_charges() -> None:
    """One report of a memoized metric costs less than the answer that it repeats."""
    fresh, memo = Terms.of(metric()), Terms.of(metric(**MEMO))
    assert (fresh.report, fresh.permanent, fresh.charges, fresh.lifetime) == (2_000_000, 0, 3, 6_000_000)
    assert (memo.report, memo.permanent, memo.charges, memo.lifetime) == (1_000_000, 4_000_000, 2, 8_000_000)
    published = PARAMETER_SETS["chromium_string"]
    text = Terms.of(
        metric(kind="text", epsilon="2.043303", epsilon_permanent="4.39445", color='parameter_set = "chromium_string"')
    )
    assert (text.report, text.permanent) == (published.mechanism.charge, published.mechanism.permanent.charge)
    assert text.cells == published.m == 128


def test_of_the_values_a_short_digest_is_kept() -> None:
    """It is pinned: a release that computed another would ask everyone again."""
    listed = b'["blue","green","other","red"]'
    assert Terms.of(metric()).values == hashlib.sha256(listed).hexdigest()[:32]
    assert Terms.of(metric(**TEXT)).values == ""
    long = tuple(f"a value of some length, number {number}" for number in range(5_000))
    assert len(Terms.of(metric(values=long)).to_json()) < 500
