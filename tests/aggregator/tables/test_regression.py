"""Regressions: coefficients of census records hold in their intervals, and what noise hides is refused in words."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.pairs import CellSums
from dither_aggregator.analysis.tables.regression import (
    NotTold,
    Regression,
    Regressor,
    linear,
    logistic,
    logistic_of_fit,
)
from dither_aggregator.analysis.tables.synthesis import pair_tables, synthesise
from tests.benchmarks.tables.census import COLUMNS, census, census_labels
from tests.support.questions import PRODUCT, draw_questions
from tests.support.soaking import SOAK, scaled, thinned

ALARM = 1e-6
PEOPLE = 48_842
COUNTS = np.pad(census(), [(0, 1)] * 5)
"""With "other" of each column, as a plan has it."""
TRUTH = COUNTS / COUNTS.sum()
LABELS = census_labels()
SEX, INCOME, EDUCATION, MARITAL, _ = range(5)
HIGHER = ("Bachelors", "Masters", "Doctorate", "Prof-school")
MARRIED = tuple(each for each in LABELS["marital_status"] if each.startswith("Married"))


def group(column: int, *labels: str) -> Regressor:
    known = LABELS[COLUMNS[column]]
    return Regressor(
        f"{COLUMNS[column]} in {labels}", column, np.array([*(each in labels for each in known), False], float)
    )


RICH = group(INCOME, ">50K")
GROUPS = (group(SEX, "Male"), group(EDUCATION, *HIGHER), group(MARITAL, *MARRIED))


def design_of(shares: Floats, groups: tuple[Regressor, ...]) -> tuple[Floats, Floats, Floats]:
    """Return z, y and the weight of each cell."""
    places = np.indices(shares.shape).reshape(shares.ndim, -1)
    z = np.column_stack([np.ones(shares.size), *(each.has[places[each.column]] for each in groups)])
    return z, RICH.has[places[INCOME]], shares.ravel()


def least_squares(groups: tuple[Regressor, ...]) -> Floats:
    z, y, weight = design_of(TRUTH, groups)
    return np.asarray(np.linalg.solve(z.T @ (z * weight[:, np.newaxis]), z.T @ (weight * y)), np.float64)


def most_likely(shares: Floats, groups: tuple[Regressor, ...]) -> Floats:
    z, y, weight = design_of(shares, groups)
    fitted = np.zeros(z.shape[1])
    for _ in range(30):
        odds = expit(z @ fitted)
        bend = z.T @ (z * (weight * odds * (1 - odds))[:, np.newaxis]) + 1e-9 * np.eye(len(fitted))
        fitted = fitted + np.linalg.solve(bend, z.T @ (weight * (y - odds)))
    return fitted


def held(sums: CellSums, found: Regression, truth: Floats) -> list[bool]:
    """Tell of each coefficient whether its interval of 95 % holds."""
    within = []
    for each, true in zip(found.coefficients, truth, strict=True):
        assert each.weights is not None
        ends, rest = sums.interval(each.weights, 0.05), each.estimate - sums.estimate(each.weights)
        assert ends is not None
        within.append(ends[0] + rest <= true <= ends[1] + rest)
    return within


def assert_holds(within: list[list[bool]]) -> None:
    """Each coefficient holds in .95 of the runs; with many runs, all together in .94 to .98 of these very ones."""
    of_each = np.sum(within, axis=0)
    runs = len(within)
    least, most = binom.isf(1 - ALARM / 4, runs, 0.94), binom.isf(ALARM / 4, runs, 0.98)
    assert least <= of_each.min(), of_each / runs
    assert of_each.max() <= most, of_each / runs
    if SOAK:
        assert 0.94 <= of_each.mean() / runs <= 0.98, of_each / runs


@pytest.mark.timeout(1_800)  # 500 runs of a million devices take longer than any other test may
@pytest.mark.parametrize(("n", "epsilon"), thinned([(PEOPLE, "2"), (PEOPLE, "4"), (10**6, "1"), (10**6, "4")], 1))
def test_coefficients_of_a_regression_hold(n: int, epsilon: str) -> None:
    """Runs that are refused do not count: most are told, also of few devices."""
    truth, within, runs = least_squares(GROUPS), list[list[bool]](), scaled(12, 500)
    for seed in range(runs):
        sums = CellSums(draw_questions(TRUTH, n, epsilon, np.random.default_rng(seed)))
        try:
            within.append(held(sums, linear(sums, RICH, GROUPS), truth))
        except NotTold:
            continue
    assert len(within) > runs / 2
    assert_holds(within)


def test_a_regression_on_all_values_of_all_columns_is_refused() -> None:
    sums = CellSums(draw_questions(TRUTH, 10**6, "4", np.random.default_rng(0)))
    every = tuple(
        group(column, label) for column in (SEX, EDUCATION, MARITAL, 4) for label in LABELS[COLUMNS[column]][1:]
    )
    assert len(every) == 30
    with pytest.raises(NotTold, match="not clearly positive"):
        linear(sums, RICH, every)


def test_a_group_that_comes_twice_is_refused_whatever_was_drawn() -> None:
    """Its noise cancels to the last digit, so that no error of the least eigenvalue is left to compare it with."""
    for seed in range(scaled(3, 20)):
        sums = CellSums(draw_questions(TRUTH, 10**6, "4", np.random.default_rng(seed)))
        with pytest.raises(NotTold, match="not clearly positive"):
            linear(sums, RICH, (*GROUPS, GROUPS[0]))


def test_each_moment_that_was_used_is_named() -> None:
    sums = CellSums(draw_questions(TRUTH, PEOPLE, "4", np.random.default_rng(0)))
    (moments,) = linear(sums, RICH, GROUPS).queries
    assert moments.sums["everybody"] == 1
    assert len(moments.sums) == 1 + 3 + 3 + 1 + 3  # itself, groups, pairs of groups, the outcome alone and with each
    assert moments.sums[f"{GROUPS[0].name} and {RICH.name}"] == pytest.approx(0.2034, abs=0.03)


THREE = TRUTH.sum(axis=(2, 4))
"""Sex, income and marital status: asked at once."""
OF_THREE = (GROUPS[0], Regressor("married", 2, GROUPS[2].has))


@pytest.mark.parametrize("epsilon", thinned(["2", "4"], 1))
def test_coefficients_of_a_logistic_regression_hold_where_all_columns_were_asked_at_once(epsilon: str) -> None:
    truth, within, runs = most_likely(THREE, OF_THREE), list[list[bool]](), scaled(16, 500)
    for seed in range(runs):
        sums = CellSums(draw_questions(THREE, PEOPLE, epsilon, np.random.default_rng(seed), design=PRODUCT))
        try:
            within.append(held(sums, logistic(sums, RICH, OF_THREE), truth))
        except NotTold:
            continue
    assert len(within) > runs / 2
    assert_holds(within)


@pytest.mark.parametrize("fit", [linear, logistic])
def test_the_error_of_a_coefficient_is_how_it_moves_with_all_shares(
    fit: Callable[[CellSums, Regressor, Sequence[Regressor]], Regression],
) -> None:
    """To first order, moments of the outcome and of the groups both counted."""
    questions = draw_questions(THREE, PEOPLE, "4", np.random.default_rng(0), design=PRODUCT)
    before, after = CellSums(questions), CellSums(questions)
    step = 1e-6 * np.random.default_rng(1).standard_normal(before.shares.shape)
    step[0] = 0.0
    after.__dict__["shares"] = before.shares + step
    for one, other in zip(*(fit(sums, RICH, OF_THREE).coefficients for sums in (before, after)), strict=True):
        assert one.weights is not None
        assert other.estimate - one.estimate == pytest.approx(float(one.weights @ step), rel=1e-3)


def test_a_logistic_regression_of_too_few_is_refused() -> None:
    refused = 0
    for seed in range(8):
        sums = CellSums(draw_questions(THREE, 600, "1", np.random.default_rng(seed), design=PRODUCT))
        try:
            logistic(sums, RICH, OF_THREE)
        except NotTold as why:
            refused += "no fit" in str(why) or "no end" in str(why)
    assert refused >= 4


def test_a_logistic_regression_of_a_fitted_table_guesses_as_well_as_one_of_the_records() -> None:
    """A million devices at epsilon 4 give an accuracy within .004 of that of a fit on their true records."""
    every = tuple(
        group(column, label) for column in (SEX, EDUCATION, MARITAL, 4) for label in LABELS[COLUMNS[column]][1:]
    )
    questions = draw_questions(TRUTH, 10**6, "4", np.random.default_rng(1))
    fit = synthesise(pair_tables(questions, range(5)))
    found = logistic_of_fit(fit.weights, range(5), RICH, every)
    assert all(each.weights is None for each in found.coefficients)
    z, y, weight = design_of(TRUTH, every)

    def accuracy(fitted: Floats) -> float:
        return float(weight @ ((z @ fitted > 0) == (y > 0)))

    best = accuracy(most_likely(TRUTH, every))
    assert best == pytest.approx(0.8246, abs=0.002)
    assert best - accuracy(np.array([each.estimate for each in found.coefficients])) < 0.004
