"""The demo's populations: what they ask, and that their answers are those of the data."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from statistics import median

import pytest

from dither_aggregator.simulate.fleet import Answers
from dither_aggregator.simulate.populations import EARNINGS, Population, browsers
from dither_aggregator.simulate.populations import census as read_census
from dither_shared.domains import Coded, Columns
from dither_shared.registry import Registry, utc_today
from dither_shared.words.code import prefix_of
from dither_shared.words.prefixes import read_prefix

PEOPLE = 48_842
census = cache(read_census)


@cache
def everybody() -> Answers:
    return census().draw(PEOPLE, seed=1)


def registry_of(population: Population) -> Registry:
    return Registry.parse(population.registry(utc_today()))


def test_browsers_are_the_worlds() -> None:
    population = browsers()
    assert len(population.labels) == len(set(population.labels)) == 263
    assert sum(population.shares) == pytest.approx(1)
    mobile = sum(share for share, is_mobile in zip(population.shares, population.mobile, strict=True) if is_mobile)
    assert mobile == pytest.approx(0.62859, abs=0.00001)
    assert population.devices_max is None


def column(name: str) -> list[str]:
    return [each[name] for each in census().people]


def test_the_census_has_the_people_of_the_data() -> None:
    assert census().devices_max == len(census().people) == PEOPLE
    age, hours = list(map(int, column("age"))), list(map(int, column("hours_per_week")))
    assert (min(age), max(age)) == (17, 90)
    assert (min(hours), max(hours)) == (1, 99)
    assert sum(age) / PEOPLE == pytest.approx(38.64359, abs=0.00001)
    assert sum(hours) / PEOPLE == pytest.approx(40.42238, abs=0.00001)
    assert (median(age), median(hours)) == (37, 40)
    assert hours.count(40) == 22_803
    assert Counter(column("education")).most_common(1) == [("HS-grad", 15_784)]
    assert Counter(column("occupation")).most_common(1) == [("Prof-specialty", 6_172)]
    assert Counter(column("native_country")).most_common(1) == [("United-States", 43_832)]
    assert Counter(column("income")) == {"<=50K": 37_155, ">50K": 11_687}
    bachelors = [each for each in census().people if each["education"] == "Bachelors"]
    assert sum(each["income"] == ">50K" for each in bachelors) / len(bachelors) == pytest.approx(0.4128, abs=0.0001)
    assert len({tuple(each[name] for name in EARNINGS) for each in census().people}) == 1_404


def together() -> Counter[tuple[object, ...]]:
    """Return how many people gave each combination of all answers."""
    return Counter(
        (
            int(each["age"]),
            int(each["hours_per_week"]),
            each["education"],
            each["occupation"],
            None if each["native_country"] == "?" else each["native_country"],
            None if each["occupation"] == "?" else each["occupation"],
            *(each[name] for name in EARNINGS),
        )
        for each in census().people
    )


def drawn_together(answers: Answers) -> Counter[tuple[object, ...]]:
    *others, earnings = answers.values()
    assert list(answers)[-1] == "earnings"
    rows = zip(*others, earnings, strict=True)
    return Counter((*rest, *(table[name] for name in EARNINGS)) for *rest, table in rows)


def test_answers_of_a_person_stay_together() -> None:
    drawn = census().draw(PEOPLE, seed=4)
    assert drawn_together(drawn) == together()
    assert drawn["age"] != list(map(int, column("age")))


@pytest.mark.parametrize("made", [browsers, census], ids=["browsers", "census"])
def test_a_seed_draws_the_same_answers_again(made: Callable[[], Population]) -> None:
    population = made()
    assert population.draw(50, seed=3) == population.draw(50, seed=3)
    assert population.draw(50, seed=3) != population.draw(50, seed=4)


@pytest.mark.parametrize("made", [browsers, census], ids=["browsers", "census"])
def test_a_device_can_answer_all_metrics_once(made: Callable[[], Population]) -> None:
    population = made()
    registry = registry_of(population)
    assert list(registry.metrics) == list(population.draw(1, seed=1))
    assert {str(metric.epsilon) for metric in registry.metrics.values()} == {"2.0"}
    assert registry.device_epsilon == 2 * len(registry.metrics)


def test_a_table_asks_five_columns_in_pairs_and_an_unknown_class_of_work_is_other() -> None:
    population = census()
    metric = registry_of(population).metrics["earnings"]
    domain = metric.asked.domain
    assert isinstance(domain, Columns)
    assert domain.names == EARNINGS
    assert domain.labels(0) == (">50K", "<=50K", "other")
    assert (domain.size, len(domain.questions)) == (3 * 3 * 17 * 8 * 9, 10)
    answers = everybody()["earnings"]
    unknown = [each for each in answers if not metric.takes(each)]
    assert len(unknown) == 2_799
    assert all(metric.names(each)[-1] == "workclass = other" for each in unknown)


def test_an_unknown_occupation_is_other() -> None:
    population = census()
    metrics, answers = registry_of(population).metrics, everybody()
    occupations = metrics["occupation"]
    counts = Counter(name for answer in answers["occupation"] for name in occupations.names(answer))
    assert counts["other"] == 2_809
    assert counts.keys() == set(occupations.values)
    assert "?" not in occupations.values
    assert all(metrics["education"].takes(answer) for answer in answers["education"])


def test_a_country_is_a_text_with_candidates_and_an_unknown_one_is_no_text() -> None:
    metric = registry_of(census()).metrics["country"]
    answers = everybody()["country"]
    assert len(metric.asked.candidates) == 41
    assert {each for each in answers if each is not None} == set(metric.asked.candidates)
    assert sum(not metric.takes(each) for each in answers) == 857


def test_work_is_asked_in_words_that_all_fit_into_the_levels() -> None:
    metric = registry_of(census()).metrics["work"]
    domain = metric.asked.domain
    assert isinstance(domain, Coded)
    answers = {each for each in everybody()["work"] if isinstance(each, str)}
    assert len(answers) == 14
    assert all(read_prefix(prefix_of(each.encode(), domain.levels[-1]), domain.levels[-1]).ended for each in answers)


def test_each_file_of_data_is_shipped_with_its_source_and_licence() -> None:
    data = files("dither_aggregator.simulate").joinpath("data")
    described = {
        row.split("`")[1]: row
        for row in data.joinpath("README.md").read_text(encoding="utf-8").splitlines()
        if row.startswith("| `")
    }
    assert {file.name for file in data.iterdir()} == {"README.md", *described}
    assert all("https://creativecommons.org/licenses/by/4.0/" in row for row in described.values())
    for said in ("Becker", "Kohavi", "https://doi.org/10.24432/C5XW20", "changed: "):
        assert said in described["adult.csv.gz"]
