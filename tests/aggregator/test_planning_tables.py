"""Planning an experiment: a planned effect is told as often as verdicts on drawn reports say, and lines compile."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import combinations, pairwise, product
from math import comb
from statistics import NormalDist
from unittest.mock import PropertyMock, patch

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis import planning
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.planning import (
    Planned,
    TableQuestion,
    Unplannable,
    column_share_variance,
    plan,
    registry_lines,
)
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.analysis.tables.reading import ArmStatistics, arms_of, together
from dither_shared.kinds.precision import POWER
from dither_shared.mechanisms import PureMechanism, SubsetSelection, choose
from dither_shared.registry import Metric, Registry, utc_today
from tests.support.drawn_tables import alone, draw_table, stored_table
from tests.support.soaking import scaled, thinned
from tests.support.tables import domain_of

EXPERIMENTS = scaled(20, 150)
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
    parsed = Registry.parse(
        registry_lines(planned, "example", planned.question.life(utc_today() + timedelta(days=180)))
    )
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
@pytest.mark.parametrize("name", thinned([*QUESTIONS], 2, 4))
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
        return column_share_variance(mechanism, shape) - 0.25

    with patch.object(planning, "column_share_variance", noise):
        planned = plan(replace(question), n, Decimal(epsilon), None)
    assert told(planned) < TOLD_MIN


def test_a_plan_of_reports_that_all_ask_for_the_column_would_be_seen() -> None:
    """Two of three pairs ask for a column: 1.5 times the variance of all reports, at the same mechanism."""
    pairs, alone_ = (TableQuestion("table", 3, columns=columns) for columns in (3, 2))
    three, two = (plan(each, 10**6, Decimal(1), None) for each in (pairs, alone_))
    assert (three.cells.each, two.cells.each, three.cells.mechanism_of(0)) == (3, 1, two.cells.mechanism)
    assert three.target is not None
    assert two.target is not None
    of_pairs, of_alone = (
        NormalDist().inv_cdf(1 - 0.05 / 2 / each.tests) + NormalDist().inv_cdf(POWER) for each in (pairs, alone_)
    )
    factor = of_pairs / of_alone
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
    assert column_share_variance(mechanism, (16, 16)) == pytest.approx(exact.max(), rel=1e-9)
    assert (exact <= column_share_variance(mechanism, (16, 16)) * (1 + 1e-9)).all()
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
    assert column_share_variance(mechanism, (3, 2)) == pytest.approx(max(exact))


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
