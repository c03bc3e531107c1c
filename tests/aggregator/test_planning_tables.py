"""Planning an experiment: a planned effect is told as often as verdicts on drawn reports say, and lines compile."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from html import unescape
from itertools import combinations, pairwise, product
from math import comb
from re import findall
from statistics import NormalDist
from unittest.mock import PropertyMock, patch

import numpy as np
import pytest
from flask.testing import FlaskClient
from scipy.stats import binom

from dither_aggregator.analysis import planning_tables
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.planning import Planned, Unplannable, plan, registry_lines
from dither_aggregator.analysis.planning_tables import TableQuestion, share_variance
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.arms import ArmStatistics, together
from dither_aggregator.analysis.tables.questions import QuestionTally
from dither_aggregator.analysis.tables.reading import arms_of
from dither_shared.mechanisms import PureMechanism, SubsetSelection, choose
from dither_shared.precision import POWER
from dither_shared.registry import Metric, Registry, utc_today
from tests.support.aggregators import operators_app, sqlite_store
from tests.support.drawn_tables import alone, draw_table, stored_table
from tests.support.registries import registry
from tests.support.soaking import scaled, thinned
from tests.support.tables import domain_of

EXPERIMENTS = scaled(70, 150)
TOLD_MIN, TOLD_MAX = (int(end(5e-7, EXPERIMENTS, POWER)) / EXPERIMENTS for end in (binom.ppf, binom.isf))
"""Fewer or more are told in one of a million samples."""
FLAGS = TableQuestion("table", 2)
THREE = TableQuestion("table", 3, arms=3)
QUESTIONS = {
    "all columns at once": (FLAGS, 30_000, "1"),
    "little noise": (FLAGS, 2_500, "6"),
    "pairs, three arms": (THREE, 20_000, "3"),
    "five arms": (TableQuestion("table", 3, columns=2, arms=5), 40_000, "2"),
    "points of a geometry": (TableQuestion("table", 16, columns=2), 100_000, "3"),
}


def metric_of(planned: Planned[TableQuestion]) -> Metric:
    parsed = Registry.parse(registry_lines(planned, "example", utc_today() + timedelta(days=180)))
    parsed.check_dates(utc_today())
    (metric,) = parsed.metrics.values()
    return metric


def population(question: TableQuestion, share: float) -> Floats:
    """Return the shares of all cells, where so many have the first value of the first column, the others any."""
    others = question.d - 1
    first = [share, *np.full(others, (1 - share) / others)]
    return alone(first, *[np.full(question.d, 1 / question.d)] * (question.columns - 1))


def is_told(question: TableQuestion, drawn: Sequence[Sequence[QuestionTally]], metric: Metric) -> bool:
    """Return whether the first arm's share of the first value of the first column gets its verdict."""
    rows = ArmStatistics(domain_of(metric), together(drawn), View(), False, drawn).of_arms()
    place = ("difference", "column_1", "value 1", "arm 1")
    (verdict,) = (row.verdict for row in rows if (row.statistic, row.column, row.label, row.group) == place)
    return verdict == "higher"


def told(planned: Planned[TableQuestion]) -> float:
    """Return how often a difference of the planned effect is told, where half of all have the value."""
    question, metric, rng = planned.question, metric_of(planned), np.random.default_rng(23)
    assert planned.target is not None
    others = 0.5 - planned.target / question.arms
    arms = [population(question, share) for share in (others + planned.target, *[others] * (question.arms - 1))]
    sizes = [planned.n // question.arms] * question.arms
    drawn = (draw_table(metric.plan, arms, sizes, rng) for _ in range(EXPERIMENTS))
    stored = stored_table(metric)
    return float(np.mean([is_told(question, arms_of(stored, tally, View()), metric) for tally in drawn]))


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned([*QUESTIONS], 0, 2, 4))
def test_a_planned_effect_is_told_four_times_in_five(name: str) -> None:
    """Experiments, seeded, by the arms' own verdicts."""
    question, n, epsilon = QUESTIONS[name]
    assert TOLD_MIN <= told(plan(question, n, Decimal(epsilon), None)) <= TOLD_MAX


@pytest.mark.slow
def test_a_plan_without_all_tests_would_be_seen() -> None:
    """Planted: the level of one test, 1.96 standard errors in place of 3.11."""
    question, n, epsilon = QUESTIONS["pairs, three arms"]
    with patch.object(TableQuestion, "tests", PropertyMock(return_value=1)):
        planned = plan(question, n, Decimal(epsilon), None)
    assert told(planned) < TOLD_MIN


@pytest.mark.slow
def test_a_plan_without_sampling_would_be_seen() -> None:
    """Planted: the noise of the mechanism alone."""
    question, n, epsilon = QUESTIONS["little noise"]

    def noise(mechanism: PureMechanism, shape: tuple[int, ...]) -> float:
        return share_variance(mechanism, shape) - 0.25

    with patch.object(planning_tables, "share_variance", noise):
        planned = plan(replace(question), n, Decimal(epsilon), None)
    assert told(planned) < TOLD_MIN


def test_a_plan_of_reports_that_all_ask_for_the_column_would_be_seen() -> None:
    """Two of three pairs ask for a column: 1.5 times the variance of all reports, at the same mechanism."""
    pairs, alone_ = (TableQuestion("table", 3, columns=columns) for columns in (3, 2))
    three, two = (plan(each, 10**6, Decimal(1), None) for each in (pairs, alone_))
    assert (three.cells.each, two.cells.each, three.cells.mechanism_of(0)) == (3, 1, two.cells.mechanism)
    assert three.target is not None
    assert two.target is not None
    factor = (pairs.z + NormalDist().inv_cdf(POWER)) / (alone_.z + NormalDist().inv_cdf(POWER))
    assert three.target == pytest.approx(two.target * factor * 1.5**0.5)


# The variance.


def variances(mechanism: PureMechanism, d: int) -> Floats:
    """Return n times the exact variance of both columns' values that half have, by the law of pages: float64[2, d]."""
    size = mechanism.shape.size
    bare = QuestionTally((0, 1), (d, d), False, mechanism, np.ones(size, dtype=np.int64), size, 1)
    found = np.empty((2, d))
    for column, value in product(range(2), range(d)):
        shares = np.full(d, 0.5 / (d - 1))
        shares[value] = 0.5
        found[column, value] = size * bare.table((column,)).covariance(shares)[value, value]
    return found


@pytest.mark.parametrize("epsilon", ["0.3", "1", "2", "3"])
def test_the_planned_variance_of_points_is_that_of_the_value_that_has_most_on_pages(epsilon: str) -> None:
    mechanism = choose(16 * 16, Decimal(epsilon))
    assert mechanism.geometry is not None
    exact = variances(mechanism, 16)
    assert share_variance(mechanism, (16, 16)) == pytest.approx(exact.max(), rel=1e-9)
    assert (exact <= share_variance(mechanism, (16, 16)) * (1 + 1e-9)).all()
    assert exact.min() < exact.max() * (1 - 1e-3)  # which one it is matters


def test_the_variance_of_subsets_is_that_of_every_report() -> None:
    """Subset selection, by enumeration: a value's symbols are supported together; of two columns the larger counts."""
    mechanism = choose(6, Decimal("0.5"))
    assert isinstance(mechanism, SubsetSelection)
    p, q, weight = float(mechanism.p), float(mechanism.q), mechanism.weight
    exact = []
    for own in (2, 3):
        truth, mean, square = [*[0.5 / own] * own, *[0.5 / (6 - own)] * (6 - own)], 0.0, 0.0
        for answer, share in enumerate(truth):
            for subset in combinations(range(6), weight):
                holds = p / comb(5, weight - 1) if answer in subset else (1 - p) / comb(5, weight)
                supported = sum(each in subset for each in range(own))
                mean, square = mean + share * holds * supported, square + share * holds * supported**2
        assert mean == pytest.approx(own * q + 0.5 * (p - q))
        exact.append((square - mean**2) / (p - q) ** 2)
    assert share_variance(mechanism, (3, 2)) == pytest.approx(max(exact))


# Two given.


def test_more_arms_and_more_columns_take_more_reports() -> None:
    needs = [plan(TableQuestion("table", 2, arms=arms), None, Decimal(2), 0.05).n for arms in (2, 3, 16)]
    needs_of = [plan(TableQuestion("table", 3, columns=columns), None, Decimal(2), 0.05).n for columns in (2, 5, 8)]
    assert all(fewer < more for each in (needs, needs_of) for fewer, more in pairwise(each))
    assert [TableQuestion("table", 3, arms=arms).tests for arms in (2, 3)] == [9, 27]


def test_as_few_reports_as_an_arm_may_have_are_planned() -> None:
    """352 expected of each question and arm: lots leave it fewer than 300 once in 350 times."""
    planned = plan(THREE, None, Decimal(8), 0.7)
    assert planned.n == THREE.n_min(planned.cells.each) == 3_168
    less = plan(THREE, planned.n - 1, Decimal(8), None)
    assert less.target is None
    with pytest.raises(Unplannable, match="No epsilon up to 20 lets 3,167 reports show so small an effect"):
        plan(THREE, planned.n - 1, None, 0.5)


def test_an_effect_that_no_arm_can_have_is_none() -> None:
    """One alone of 16 arms is more than 53 points off only if less than half, or more, of all have the value."""
    question = TableQuestion("table", 2, arms=16)
    effects = [plan(question, n, Decimal("0.3"), None).target for n in (80_000, 1_000_000)]
    assert effects[0] is None
    assert effects[1] is not None
    assert effects[1] < 16 / 30


@pytest.mark.parametrize("arms", [2, 16])
@pytest.mark.parametrize(("d", "columns"), [(2, 2), (2, 3), (2, 4), (3, 3), (30, 3), (64, 2), (5, 8)])
def test_the_lines_compile_to_the_cells_that_are_shown(d: int, columns: int, arms: int) -> None:
    planned = plan(TableQuestion("table", d, columns=columns, arms=arms), 10**7, Decimal("1.5"), None)
    metric = metric_of(planned)
    domain = domain_of(metric)
    assert metric.plan.cells == planned.cells
    assert [each.size for each in domain.domains] == [d] * columns
    assert domain.public == ("arm", *(f"arm {number}" for number in range(1, arms + 1)))
    assert len(domain.questions) == planned.cells.each


@pytest.mark.parametrize(
    ("asked", "detail"),
    [
        ({"kind": "choice"}, "the kind must be table, got choice"),
        ({"d": 65}, "d must be from 2 to 64 for a column of a table, got 65"),
        ({"columns": 17}, "columns must be from 2 to 16, got 17"),
        ({"arms": 17}, "arms must be from 2 to 16, got 17"),
        ({"epsilon_permanent": Decimal(2)}, "epsilon_permanent must be left out of a table"),
    ],
)
def test_what_is_no_experiment_is_refused(asked: dict[str, object], detail: str) -> None:
    with pytest.raises(Unplannable, match=detail):
        TableQuestion(**{"kind": "table", "d": 3, **asked})  # type: ignore[arg-type]


# The page and the API.


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    with sqlite_store(registry(), tmp_path_factory.mktemp("planning")) as store:
        yield operators_app(store).test_client()


def headline(html: str) -> str:
    (text,) = findall(r'<p class="headline">(.*?)</p>', html)
    return unescape(text)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("d=2&n=20000&epsilon=1.0", "With 20,000 reports at epsilon 1.0, a difference of 13 points between an arm and"),
        ("d=2&epsilon=1.0&effect_percent=5", "With 125,173 reports at epsilon 1.0, a difference of 5.0 points"),
        ("d=2&n=1000000&effect_percent=5", "With 1,000,000 reports at epsilon 0.37, a difference of 5.0 points"),
        ("d=3&arms=3&n=3000&epsilon=4", "no difference between arms is told: 3,168 reports are needed."),
        ("d=64&n=8000&epsilon=1", "even the largest difference between arms is told less than four times in five."),
        ("n=6000000&epsilon=1&share_percent=3&width_percent=9&ticks=9", "a difference of 4.5 points"),
    ],
)
def test_two_given_give_the_third(query: str, says: str, client: FlaskClient) -> None:
    answer = client.get(f"/plan?kind=table&{query}")
    assert answer.status_code == 200
    assert says in headline(answer.text)
    assert "columns.column_1 = [" in answer.text


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("n=9000", "Give two of reports, epsilon and effect, and leave the third empty"),
        ("d=2&n=9000&share_percent=9", "Give two of reports, epsilon and effect, and leave the third empty"),
        ("d=2&n=600&effect_percent=9", "No epsilon up to 20 lets 600 reports show so small an effect"),
        ("d=2&n=9000&effect_percent=1", "No epsilon up to 20 lets 9,000 reports show so small an effect"),
        (
            "d=20&columns=16&n=90000&epsilon=1",
            "20,000 in all pairs of them, got 655,360,000,000,000,000,000 and 48,000; plan fewer",
        ),
        ("d=2&n=90000&epsilon=1&epsilon_permanent=3", "epsilon_permanent must be left out of a table"),
        ("d=2&columns=17&n=90000&epsilon=1", "columns must be a number from 2 to 16"),
        ("d=2&arms=1&n=90000&epsilon=1", "arms must be a number from 2 to 16"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(query: str, detail: str, client: FlaskClient) -> None:
    answer = client.get(f"/plan?kind=table&{query}")
    assert answer.status_code == 400
    assert detail in unescape(answer.text)
    assert "[metric.planned]" not in answer.text


def test_the_page_and_the_api_have_the_same_plan(client: FlaskClient) -> None:
    query = "kind=table&d=3&columns=4&arms=3&epsilon=1.5&effect_percent=4"
    html, answer = unescape(client.get(f"/plan?{query}").text), client.get(f"/v1/plan?{query}").get_json()
    meta, (row, *others) = answer["meta"], answer["rows"]
    assert (meta["computed"], meta["share"], meta["width_percent"], meta["effect_percent"]) == ("n", None, None, 4.0)
    assert (row["kind"], row["d"], row["columns"], row["arms"], row["ticks"]) == ("table", 3, 4, 3, None)
    assert row["effect_percent"] == pytest.approx(4, rel=1e-4)
    assert f"With {row['n']:,} reports" in html
    assert meta["registry"] in html
    assert "two columns by lot" in html
    assert len(others) == 5
    assert '<input name="effect_percent" value="4"' in html


@pytest.mark.parametrize("query", ["d=64&n=1000000&effect_percent=5", "d=64&columns=2&arms=16&n=9&effect_percent=5"])
def test_a_plan_takes_few_designs_and_none_twice(query: str, client: FlaskClient) -> None:
    """About 20 ms each, of 64 values: at most 20, whatever is asked."""
    with patch.object(TableQuestion, "_compiled", autospec=True, side_effect=TableQuestion._compiled) as counted:
        client.get(f"/plan?kind=table&{query}")
    epsilons = [call.args[1] for call in counted.call_args_list]
    assert 0 < len(epsilons) == len(set(epsilons)) <= 20
