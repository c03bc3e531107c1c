"""The demo's populations: what they ask, and that their answers are those of the data."""

from collections import Counter
from importlib.resources import files
from statistics import median

import pytest

from dither_aggregator.simulate.fleet import Answers
from dither_aggregator.simulate.populations.browsers import browsers
from dither_aggregator.simulate.populations.census import EARNINGS, Census, census
from dither_aggregator.simulate.populations.population import Population
from dither_shared.domains import Buckets, Columns
from dither_shared.registry import Registry, utc_today

PEOPLE = 48_842


def registry_of(population: Population) -> Registry:
    return Registry.parse(population.registry(utc_today()))


def test_browsers_are_the_worlds() -> None:
    population = browsers()
    assert len(population.labels) == len(set(population.labels)) == 263
    assert sum(population.shares) == pytest.approx(1)
    mobile = sum(share for share, is_mobile in zip(population.shares, population.mobile, strict=True) if is_mobile)
    assert mobile == pytest.approx(0.62859, abs=0.00001)
    assert population.devices_max is None


def test_the_census_has_the_people_of_the_data() -> None:
    people = census()
    assert people.devices_max == PEOPLE
    assert len(people.hours_per_week) == len(people.education) == len(people.occupation) == PEOPLE
    assert (min(people.age), max(people.age)) == (17, 90)
    assert (min(people.hours_per_week), max(people.hours_per_week)) == (1, 99)
    assert sum(people.age) / PEOPLE == pytest.approx(38.64359, abs=0.00001)
    assert sum(people.hours_per_week) / PEOPLE == pytest.approx(40.42238, abs=0.00001)
    assert (median(people.age), median(people.hours_per_week)) == (37, 40)
    assert people.hours_per_week.count(40) == 22_803
    assert Counter(people.education).most_common(1) == [("HS-grad", 15_784)]
    assert Counter(people.occupation).most_common(1) == [("Prof-specialty", 6_172)]


def test_those_of_the_table_are_the_same_people_counted_by_their_five_answers() -> None:
    people = census()
    assert len(people.earnings) == PEOPLE
    assert len({tuple(each.items()) for each in people.earnings}) == 1_404
    assert {tuple(each) for each in people.earnings} == {EARNINGS}
    assert Counter(each["education"] for each in people.earnings) == Counter(people.education)
    assert Counter(each["income"] for each in people.earnings) == {"<=50K": 37_155, ">50K": 11_687}
    bachelors = [each for each in people.earnings if each["education"] == "Bachelors"]
    assert sum(each["income"] == ">50K" for each in bachelors) / len(bachelors) == pytest.approx(0.4128, abs=0.0001)


def together(people: Census) -> Counter[tuple[object, ...]]:
    """Return how many people have each combination of the four answers that go together."""
    return Counter(zip(people.age, people.hours_per_week, people.education, people.occupation, strict=True))


def drawn_together(answers: Answers) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(each for name, each in answers.items() if name != "earnings"), strict=True))


def test_answers_of_a_person_stay_together() -> None:
    people = census()
    drawn = people.draw(PEOPLE, seed=4)
    assert drawn_together(drawn) == together(people)
    assert drawn["age"] != list(people.age)
    assert Counter(map(id, drawn["earnings"])) == Counter(map(id, people.earnings))
    assert drawn["earnings"] != list(people.earnings)


def test_no_person_is_two_devices() -> None:
    people = census()
    drawn = people.draw(30_000, seed=2)
    assert drawn_together(drawn) <= together(people)
    assert Counter(map(id, drawn["earnings"])) <= Counter(map(id, people.earnings))


@pytest.mark.parametrize("population", [browsers(), census()], ids=["browsers", "census"])
def test_a_seed_draws_the_same_answers_again(population: Population) -> None:
    assert population.draw(50, seed=3) == population.draw(50, seed=3)
    assert population.draw(50, seed=3) != population.draw(50, seed=4)


@pytest.mark.parametrize("population", [browsers(), census()], ids=["browsers", "census"])
def test_a_device_can_answer_all_metrics_once(population: Population) -> None:
    registry = registry_of(population)
    assert list(registry.metrics) == list(population.draw(1, seed=1))
    assert {str(metric.epsilon) for metric in registry.metrics.values()} == {"2.0"}
    assert registry.device_epsilon == 2 * len(registry.metrics)


def test_ages_and_hours_are_told_to_the_year_and_hour() -> None:
    metrics = registry_of(census()).metrics
    for name, unit, low, high in (("age", "years", 17, 90), ("hours", "hours", 1, 99)):
        domain = metrics[name].asked.domain
        assert isinstance(domain, Buckets)
        assert (domain.edges, domain.decimals, domain.unit) == (tuple(range(low, high + 1)), 0, unit)


def test_a_table_asks_five_columns_in_pairs_and_an_unknown_class_of_work_is_other() -> None:
    population = census()
    metric = registry_of(population).metrics["earnings"]
    domain = metric.asked.domain
    assert isinstance(domain, Columns)
    assert domain.names == EARNINGS
    assert domain.labels(0) == (">50K", "<=50K", "other")
    assert (domain.size, len(domain.questions)) == (3 * 3 * 17 * 8 * 9, 10)
    unknown = {id(each) for each in population.earnings if not metric.takes(each)}
    assert sum(id(each) in unknown for each in population.earnings) == 2_799
    assert all(metric.names(each)[-1] == "workclass = other" for each in population.earnings if id(each) in unknown)


def test_an_unknown_occupation_is_other() -> None:
    population = census()
    metrics, answers = registry_of(population).metrics, population.draw(PEOPLE, seed=1)
    occupations = metrics["occupation"]
    counts = Counter(name for answer in answers["occupation"] for name in occupations.names(answer))
    assert counts["other"] == 2_809
    assert counts.keys() == set(occupations.values)
    assert "?" not in occupations.values
    assert all(metrics["education"].takes(answer) for answer in answers["education"])


def test_each_file_of_data_is_shipped_with_its_source_and_licence() -> None:
    data = files("dither_aggregator.simulate").joinpath("data")
    described = {
        row.split("`")[1]: row
        for row in data.joinpath("README.md").read_text(encoding="utf-8").splitlines()
        if row.startswith("| `")
    }
    assert {file.name for file in data.iterdir()} == {"README.md", *described}
    assert all("https://creativecommons.org/licenses/by/4.0/" in row for row in described.values())
    for name in ("adult.csv.gz", "adult_counts.csv"):
        for said in ("Becker", "Kohavi", "https://doi.org/10.24432/C5XW20", "changed: "):
            assert said in described[name]
