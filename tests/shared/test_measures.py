"""Measures of use: the metrics that may ask for one, and the cohorts of first use."""

from datetime import date

import pytest

from dither_shared.compiled import read, to_document
from dither_shared.errors import RegistryError
from dither_shared.frozen import replaced
from dither_shared.measures import COHORTS, CYCLE_MONTHS, cohort_of, cohorts
from dither_shared.registry import Registry
from dither_shared.terms import Terms
from tests.support.measured import measured, measured_text


def mistake(text: str) -> str:
    with pytest.raises(RegistryError) as raised:
        Registry.parse(text)
    return str(raised.value)


def test_a_metric_says_what_the_device_measures() -> None:
    metrics = measured().metrics
    assert {name: metric.measures for name, metric in metrics.items()} == {
        "days": "active_days",
        "back": "returned",
        "weeks": "age",
        "since": "first_month",
        "lasts": "session_length",
        "theme": "",
    }
    assert metrics["since"].charges == 1
    assert metrics["since"].memoized


@pytest.mark.parametrize(
    ("name", "before", "after", "words"),
    [
        ("back", '"returned"', '"gone"', 'measures must be "active_days" or "returned"'),
        ("back", '"flag"', '"choice"\nvalues = ["a", "b"]', 'kind must be "flag" where measures = "returned"'),
        ("days", 'unit = "days"', 'unit = "d"', 'unit must be "days" where measures = "active_days", got "d"'),
        ("weeks", 'unit = "weeks"', 'unit = "days"', 'unit must be "weeks" where measures = "age"'),
        ("lasts", 'unit = "s"', 'unit = "clicks"', "unit must be"),
        ("since", "answers = 1", "answers = 2", "answers must be 1 where measures"),
        ("since", "cohorts = 12", "cohorts = 5", "cohorts must be the integer 4, 12 or 24, got 5"),
        ("since", "cohorts = 12", 'cohorts = "12"', 'cohorts must be the integer 4, 12 or 24, got "12"'),
        ("since", "cohorts = 12", "", "cohorts must say how many"),
        ("since", "cohorts = 12", 'cohorts = 12\nvalues = ["a"]', "values must be left out beside cohorts"),
        ("since", "cohorts = 12", 'values = ["a", "b"]', "cohorts must say how many"),
        ("back", '"returned"', '"active_days"', 'kind must be "number" where measures = "active_days", got "flag"'),
        ("days", '"active_days"', '"returned"', 'kind must be "flag" where measures = "returned", got "number"'),
        ("days", "low = 0\nhigh = 7", "low = 7\nhigh = 14", "low must begin below the 7 days of a period"),
        ("back", "reports = 100", "reports = 1", "reports must be more than 1 where measures"),
        ("theme", "values =", "cohorts = 4\nvalues =", 'cohorts is for measures = "first_month"'),
        ("since", "memoize = true\nepsilon_permanent = 2\nanswers = 1", "reports = 3", "memoize must be true"),
        ("back", 'reports = 100\nschedule = "early"', "memoize = true\nepsilon_permanent = 2\nanswers = 2", "left out"),
    ],
)
def test_what_a_measure_cannot_be_asked_with_is_refused_in_words(
    name: str, before: str, after: str, words: str
) -> None:
    text = measured_text(name)
    assert before in text
    assert words in mistake(text.replace(before, after))


@pytest.mark.parametrize("name", ["back", "since"])
def test_hidden_presence_is_refused(name: str) -> None:
    assert 'presence must be "public" where measures' in mistake(measured_text(name, presence="hidden"))


def test_a_period_that_looks_back_is_as_long_as_what_is_kept_allows() -> None:
    assert measured("back", period="31d").metrics["back"].period_days == 31
    assert 'period must be at most "31d"' in mistake(measured_text("back", period="32d"))
    assert 'period must be at least "2d"' in mistake(measured_text("back", period="1d"))
    assert measured("since", period="1d").metrics["since"].period_days == 1
    assert measured("since", period="90d").metrics["since"].period_days == 90


@pytest.mark.parametrize("number", COHORTS)
def test_cohorts_are_blocks_of_months_of_two_years(number: int) -> None:
    names = cohorts(number)
    assert len(set(names)) == number
    days = [date(2026 + month // 12, month % 12 + 1, 28) for month in range(CYCLE_MONTHS)]
    assert [cohort_of(day, number) for day in days] == sorted(list(range(number)) * (CYCLE_MONTHS // number))
    assert cohort_of(date(2028, 1, 1), number) == 0
    assert "January" in names[0]
    assert "even" in names[0]
    assert "December" in names[-1]
    assert "odd" in names[-1]


def test_the_compiled_registry_says_it_and_one_without_says_nothing() -> None:
    registry = measured()
    document = to_document(registry, [])
    listed = document["metrics"]
    assert isinstance(listed, list)
    assert [metric.get("measures") for metric in listed] == [
        *("active_days", "returned", "age", "first_month", "session_length"),
        None,
    ]
    assert "measures" not in listed[-1]["terms"]
    import json

    again = read(json.dumps(document), "metrics.json")
    assert {name: metric.measures for name, metric in again.metrics.items()} == {
        name: metric.measures for name, metric in registry.metrics.items()
    }


def test_people_are_asked_where_a_device_begins_to_measure() -> None:
    back = measured("back").metrics["back"]
    before = replaced(back, measures="")
    assert Terms.of(back).asks(Terms.of(before)) == ["the device itself now measures its answer"]
    assert Terms.of(before).asks(Terms.of(back)) == []
    assert Terms.from_json(Terms.of(back).to_json()) == Terms.of(back)
    assert "measures" not in Terms.of(before).to_json()
