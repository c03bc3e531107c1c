"""Arms of an experiment: what each has, and which differ."""

from math import sqrt

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.inference import Ratios
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables import arms as arms_module
from dither_aggregator.analysis.tables.arms import ArmStatistics
from tests.support.arms import (
    CASES,
    EFFECT,
    VIEW,
    columns,
    coverage,
    draw,
    false_pages,
    false_pages_of_uneven_arms,
    read,
)
from tests.support.questions import PAIRS, PRODUCT
from tests.support.soaking import scaled, thinned

PAGES, UNEVEN = scaled(20, 120), scaled(70, 120)


def false_max(pages: int) -> int:
    """One in twenty pages may have a verdict: so many pages have more with a chance of less than 1e-7."""
    return int(binom.isf(1e-7, pages, 0.05))


@pytest.mark.slow
@pytest.mark.parametrize("case", thinned(range(len(CASES)), 1))
def test_intervals_of_arms_and_of_their_differences_hold(case: int) -> None:
    """Some 1,500 intervals of 95 %: rows of a seed depend on each other, and count as 500 at least: 5 sigma."""
    held = coverage(case, scaled(50, 80))
    assert 0.9 <= held <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("arms", thinned([2, 3], 1))
def test_where_arms_are_the_same_a_verdict_is_on_few_pages(arms: int) -> None:
    assert false_pages(PAGES, arms) <= false_max(PAGES) / PAGES


@pytest.mark.slow
def test_a_small_arm_with_rare_values_is_not_told_to_differ_more_often() -> None:
    assert false_pages_of_uneven_arms(UNEVEN) <= false_max(UNEVEN) / UNEVEN


def tell_by_tests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an interval that holds zero stop no verdict."""

    def told(true: bool, lower: float, upper: float) -> str:
        return ("higher" if lower + upper > 0 else "lower") if true else "cannot be told"

    monkeypatch.setattr(arms_module, "difference_verdict", told)


@pytest.mark.slow
def test_the_variance_that_a_small_arm_happens_to_have_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """If few came, few would seem to be the truth. No interval is asked."""
    tell_by_tests_alone(monkeypatch)
    monkeypatch.setattr(Ratios, "variance_at", lambda self, ratio: np.zeros(len(ratio)))
    assert false_pages_of_uneven_arms(UNEVEN) > false_max(UNEVEN) / UNEVEN


@pytest.mark.slow
def test_each_difference_tested_by_itself_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_by_tests_alone(monkeypatch)
    monkeypatch.setattr(arms_module, "holm", lambda p_values, alpha: p_values <= alpha)
    assert false_pages(PAGES, 3) > false_max(PAGES) / PAGES


def test_a_difference_that_is_there_is_told_in_both_directions() -> None:
    rows = read(draw(1, (60_000, 60_000), EFFECT[:2], "4", PRODUCT), design=PRODUCT)
    told = {(row.column, row.label, row.group): row.verdict for row in rows if row.statistic == "difference"}
    assert told["a", "yes", "arm 1"] == "higher"
    assert told["a", "yes", "arm 0"] == "lower"
    assert told["d", None, "arm 1"] == "lower"
    assert told["b", "yes", "arm 1"] == "cannot be told"


def test_of_two_arms_one_difference_is_the_other_turned_round() -> None:
    rows = [row for row in read(draw(2, (5_000, 9_000), EFFECT[:2], "2", PAIRS)) if row.statistic == "difference"]
    by_arm = {arm: {(row.column, row.label): row for row in rows if row.group == arm} for arm in ("arm 0", "arm 1")}
    assert by_arm["arm 0"].keys() == by_arm["arm 1"].keys()
    for key, row in by_arm["arm 0"].items():
        other = by_arm["arm 1"][key]
        assert (row.estimate, row.lower, row.p_value) == pytest.approx((-other.estimate, -other.upper, other.p_value))


def test_an_arm_with_few_reports_and_a_table_without_a_public_column_have_no_rows() -> None:
    few = read(draw(4, (1_000, 9_000), EFFECT[:2], "2", PAIRS))
    assert few == []
    (alone,) = draw(5, (9_000,), EFFECT[:1], "2", PAIRS)
    assert list(ArmStatistics(columns(2, PAIRS), alone, VIEW, False, [alone]).of_arms()) == []


def test_simultaneous_intervals_are_wider_by_as_many_rows_as_there_are() -> None:
    drawn = draw(6, (9_000, 9_000), EFFECT[:2], "4", PRODUCT)
    own = {row.value: row for row in read(drawn, design=PRODUCT)}
    together_ = {row.value: row for row in read(drawn, View(simultaneous=True), PRODUCT)}
    row, wide = (rows["b = yes | arm = arm 0"] for rows in (own, together_))
    assert 1.4 < (wide.upper - wide.lower) / (row.upper - row.lower) < 1.8  # z of .05 / 24 beside that of .05
    assert row.std_error == pytest.approx((row.upper - row.lower) / 2 / 1.96, rel=0.02)
    assert row.std_error > sqrt(0.39 * 0.61 / 9_000)
