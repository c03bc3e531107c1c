"""Sums of a table's cells: unbiased, with a variance that is theirs, pooled over the questions that tell them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.pairs import CellSums, Columned
from tests.support.questions import PAIRS, PRODUCT, draw_questions
from tests.support.soaking import scaled

SEEDS = scaled(50, 2_000)
ALARM = 1e-6
TRUTH = np.random.default_rng(44).dirichlet(np.full(3 * 4 * 3, 1.5)).reshape(3, 4, 3)
SOME: Columned = {0: np.array([0.0, 1, 0]), 1: np.array([1.0, 0, 1, 0])}
ONE: Columned = {1: np.array([1.0, 0, 1, 0])}
SILENT = 0.3


def true_share(condition: Columned) -> float:
    share: Floats = TRUTH
    for column, has in condition.items():
        share = share * has.reshape([-1 if axis == column else 1 for axis in range(3)])
    return float(share.sum())


@pytest.mark.parametrize("design", [PAIRS, PRODUCT])
@pytest.mark.parametrize("condition", [SOME, ONE], ids=["two columns", "one"])
def test_sums_are_unbiased_and_vary_as_they_say(design: str, condition: Columned) -> None:
    """Over seeds, squared z are chi-squared; a mean that is off by a fifth of an error, or half a variance, is seen."""
    z = []
    for seed in range(SEEDS):
        sums = CellSums(draw_questions(TRUTH, 6_000, "2", np.random.default_rng(seed), design=design))
        weights = sums.of(condition)
        assert weights is not None
        z.append((sums.estimate(weights) - true_share(condition)) / sums.variance(weights) ** 0.5)
    assert chi2.ppf(ALARM / 2, SEEDS) < sum(np.square(z)) < chi2.isf(ALARM / 2, SEEDS)
    assert abs(np.mean(z)) * SEEDS**0.5 < 4.9


def test_a_rate_is_of_those_who_say_anything() -> None:
    held = 0
    for seed in range(SEEDS // 2):
        sums = CellSums(draw_questions(TRUTH, 20_000, "2", np.random.default_rng(seed), silent=SILENT))
        part = sums.of(ONE)
        assert part is not None
        rate = sums.ratio(part, sums.everybody)
        assert rate is not None
        held += rate.lower <= true_share(ONE) <= rate.upper
    assert binom.isf(1 - ALARM, SEEDS // 2, 0.95) <= held


def test_devices_that_report_again_and_again_make_no_interval_too_short() -> None:
    """Intervals that count each report as another device's hold too seldom."""
    held = dict.fromkeys((1, 9), 0)
    for seed in range(SEEDS // 2):
        drawn = draw_questions(TRUTH, 9 * 400, "6", np.random.default_rng(seed), repeats=9)
        for repeats in held:
            sums = CellSums([replace(question, repeats=repeats) for question in drawn])
            weights = sums.of(ONE)
            assert weights is not None
            ends = sums.interval(weights, 0.05)
            assert ends is not None
            held[repeats] += ends[0] <= true_share(ONE) <= ends[1]
    assert held[9] >= binom.isf(1 - ALARM, SEEDS // 2, 0.95)
    assert held[1] < binom.isf(1 - ALARM, SEEDS // 2, 0.95)


def test_columns_that_no_question_asks_together_have_no_sum() -> None:
    sums = CellSums(draw_questions(TRUTH, 6_000, "2", np.random.default_rng(0)))
    assert sums.of({0: np.ones(3), 1: np.ones(4), 2: np.ones(3)}) is None
    assert list(sums.asking([0, 2])) == [1]
