"""Tables from measured pairs: raw pairs, combined margins, weights that stop at the noise, and records from them."""

import tracemalloc
from decimal import Decimal
from itertools import combinations
from math import prod
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables import synthesis
from dither_aggregator.analysis.tables.pairs import PairTable, QuestionTally, combined_margin, norm_sub, pair_table
from dither_aggregator.analysis.tables.synthesis import ColumnRun, records, start, synthesise
from dither_aggregator.counting import Counts
from dither_shared.mechanisms import GRR, choose
from tests.support.pairs import draw_pairs
from tests.support.questions import in_symbols

SIZES = (3, 4, 2, 5)
DEVICES = 60_000
FALSE_ALARM = 1e-6
SIGMAS = 5.0
"""Two-sided, a normal law passes them with probability 6e-7."""


def joint(sizes: tuple[int, ...] = SIZES, seed: int = 1) -> Floats:
    """Return shares of all cells in which columns depend on each other: three groups, independent within each."""
    rng = np.random.default_rng(seed)
    total = np.zeros(sizes)
    for weight in rng.dirichlet(np.ones(3)):
        group: Floats = np.array(weight)
        for size in sizes:
            group = np.multiply.outer(group, rng.dirichlet(np.ones(size)))
        total += group
    return total


def two_way(table: Floats, columns: tuple[int, ...]) -> Floats:
    return np.asarray(table.sum(axis=tuple(set(range(table.ndim)) - set(columns))))


def exact_pairs(table: Floats, variance: float = 1e-6) -> tuple[PairTable, ...]:
    """Return the pairs of a table without any noise, which they claim to have."""
    margins = [(columns, two_way(table, columns)) for columns in combinations(range(table.ndim), 2)]
    return tuple(PairTable(columns, shares, np.full(shares.shape, variance)) for columns, shares in margins)


def people(seed: int) -> Counts:
    return np.random.default_rng([seed, 7]).multinomial(DEVICES, joint().ravel()).reshape(SIZES)


def drawn(epsilon: str = "1", seed: int = 0) -> tuple[PairTable, ...]:
    return draw_pairs(people(seed), epsilon, np.random.default_rng([seed, int(epsilon)]))


def miss(weights: Floats, pairs: tuple[PairTable, ...]) -> float:
    """Return the chi2 of weights beside pair tables."""
    return sum(float(((pair.shares - two_way(weights, pair.columns)) ** 2 / pair.variance).sum()) for pair in pairs)


# Pairs and margins.


@pytest.mark.parametrize("silent", [0.0, 0.4])
@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_expected_reports_of_a_pair_give_back_the_shares_of_those_who_say_something(
    epsilon: str, silent: float
) -> None:
    truth, hidden = two_way(joint(), (1, 3)), bool(silent)
    mechanism = choose(truth.size + hidden, Decimal(epsilon), name=GRR.name)
    p, q = float(mechanism.p), float(mechanism.q)
    symbols = in_symbols(truth.ravel() * (1 - silent), [silent] * hidden)
    counts = np.rint(1e12 * (q + symbols * (p - q))).astype(np.int64)
    n = int(counts.sum())
    pair = pair_table(QuestionTally((1, 3), (4, 5), hidden, mechanism, counts, n), (1, 3))
    assert np.allclose(pair.shares, truth, atol=1e-9)
    rate = q + truth * (1 - silent) * (p - q)
    assert np.allclose(pair.variance, rate * (1 - rate) / (n * (p - q) ** 2 * (1 - silent) ** 2), rtol=1e-6)


def test_pairs_without_noise_give_back_the_margins_of_every_column() -> None:
    table = joint()
    for column in range(len(SIZES)):
        raw, variance = combined_margin(exact_pairs(table), column)
        assert np.allclose(raw, two_way(table, (column,)), atol=1e-12)
        # Each of the pairs alone has a variance of 1e-6 times the values of its other column.
        others = [size for at, size in enumerate(SIZES) if at != column]
        assert variance == pytest.approx(1e-6 / sum(1 / size for size in others))


def test_a_margin_has_of_each_pair_as_much_as_it_is_precise() -> None:
    """Row sums of 2 and of 5 cells, each cell with a variance of 3 and of 1: weights of 5 to 6."""
    one = PairTable((0, 1), np.full((2, 2), 1.0), np.full((2, 2), 3.0))
    other = PairTable((0, 2), np.zeros((2, 5)), np.full((2, 5), 1.0))
    assert np.allclose(combined_margin((one, other), 0)[0], 2 * 5 / 11)
    assert np.allclose(combined_margin((one, other), 1)[0], 2)


def test_norm_sub_returns_the_nearest_point_of_the_simplex() -> None:
    assert np.allclose(norm_sub(np.array([0.7, 0.5, -0.1])), [0.6, 0.4, 0.0])
    assert np.allclose(norm_sub(np.array([0.2, 0.8])), [0.2, 0.8])


def chi2_scores(pairs_of: dict[int, tuple[PairTable, ...]]) -> float:
    """Return how many standard errors the chi2 of the true shares is off from one for each cell, on average."""
    scores = [miss(joint(), pairs) / sum(pair.shares.size for pair in pairs) - 1 for pairs in pairs_of.values()]
    return float(np.mean(scores) / (np.std(scores, ddof=1) / np.sqrt(len(scores))))


def test_the_true_table_has_the_chi2_that_variances_promise() -> None:
    """At epsilon 4, where devices that are a sample are most of the error. Passes 5 sigma in 6e-7 of all seeds."""
    pairs_of = {seed: drawn("4", seed) for seed in range(200)}
    assert abs(chi2_scores(pairs_of)) < SIGMAS
    too_sure = {
        seed: tuple(PairTable(pair.columns, pair.shares, pair.variance * 0.8) for pair in pairs)
        for seed, pairs in pairs_of.items()
    }
    assert chi2_scores(too_sure) > SIGMAS


# All margins at once.


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2), (7, 1, 2), (3, 4, 2, 5), (2,) * 9, (30, 2, 2)])
def test_margins_are_those_of_a_pass_for_each_pair(sizes: tuple[int, ...]) -> None:
    weights = joint(sizes)
    found = ColumnRun(sizes).margins(weights.ravel())
    assert set(found) == set(combinations(range(len(sizes)), 2))
    for columns, margin in found.items():
        assert np.allclose(margin, two_way(weights, columns), atol=1e-14)


# The fit.


def test_pairs_without_noise_give_back_all_two_way_margins() -> None:
    table = joint()
    fitted = synthesise(exact_pairs(table, variance=1e-9))
    for columns in combinations(range(len(SIZES)), 2):
        assert np.abs(two_way(fitted.weights, columns) - two_way(table, columns)).max() < 4e-4


def test_independent_columns_are_there_at_the_start() -> None:
    one, two, three = (two_way(joint(), (column,)) for column in range(3))
    table = np.multiply.outer(np.multiply.outer(one, two), three)
    fitted = synthesise(exact_pairs(table))
    assert fitted.steps == 0
    assert np.allclose(fitted.weights, table, atol=1e-12)


def test_a_value_that_noise_put_at_zero_starts_with_half_a_standard_error() -> None:
    measured = PairTable((0, 1), np.array([[0.6, 0.5], [-0.05, -0.05]]), np.full((2, 2), 2e-4))
    one, other = (two_way(start((measured,), (2, 2)).reshape(2, 2), (column,)) for column in range(2))
    assert np.allclose(one, np.array([1, 0.01]) / 1.01)
    assert np.allclose(other, [0.55, 0.45])


@pytest.mark.parametrize("epsilon", ["1", "2", "4", "8"])
def test_a_fit_stops_at_the_first_step_within_the_noise(epsilon: str) -> None:
    ratios: list[float] = []
    fitted = synthesise(drawn(epsilon), lambda steps, ratio: ratios.append(ratio))
    assert len(ratios) == fitted.steps > 0
    assert all(ratio > 1 for ratio in ratios[:-1])
    assert ratios[-1] <= 1
    assert fitted.agrees
    assert fitted.target == pytest.approx(0.9 * sum(a * b - 1 for a, b in combinations(SIZES, 2)))
    assert fitted.chi2 == pytest.approx(miss(fitted.weights, drawn(epsilon)), rel=1e-9)


def off(seeds: range) -> Floats:
    """Return how far fits are from the devices in the cells of all columns, which no pair shows: float64[seeds]."""
    return np.array([np.abs(synthesise(drawn(seed=seed)).weights - people(seed) / DEVICES).sum() / 2 for seed in seeds])


def test_a_fit_that_never_stops_is_seen_to_fit_noise() -> None:
    """The planted bug. Were both as good, Student's t of 15 degrees would pass 8 for 9e-7 of all seeds."""
    stopped = off(range(16))
    with patch.object(synthesis, "STOP", 1e-9), patch.object(synthesis, "STEPS_MAX", 60):
        worse_by = off(range(16)) - stopped
        assert synthesise(drawn()).chi2 < 0.9 * sum(pair.shares.size - 1 for pair in drawn())
    assert worse_by.mean() > 8 * worse_by.std(ddof=1) / 4


def test_weights_are_positive_and_sum_to_one_even_where_nobody_is() -> None:
    devices = people(1)
    devices[1], devices[:, 2] = 0, 0
    for epsilon in ("1", "8"):
        weights = synthesise(draw_pairs(devices, epsilon, np.random.default_rng(3))).weights
        assert weights.min() > 0
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert weights[1].sum() < 0.02


def test_weights_have_no_interaction_of_three_columns() -> None:
    """Pairs alone have changed the start: no table with the same two-way margins is closer to it."""
    pairs = drawn("4")
    change = np.log(synthesise(pairs).weights.ravel() / start(pairs, SIZES)).reshape(SIZES)
    for columns in combinations(range(len(SIZES)), 3):
        of_three = np.moveaxis(change, columns, (0, 1, 2))
        for axis in range(3):
            of_three = np.diff(of_three, axis=axis)
        assert np.abs(of_three).max() < 1e-9


def test_pairs_that_contradict_each_other_end_without_agreement() -> None:
    pairs = exact_pairs(joint())
    other = PairTable(pairs[0].columns, pairs[0].shares[::-1].copy(), pairs[0].variance)
    with patch.object(synthesis, "STEPS_MAX", 50):
        fitted = synthesise((other, *pairs[1:]))
    assert fitted.steps == 50
    assert not fitted.agrees
    assert fitted.weights.sum() == pytest.approx(1)


def test_a_fit_ends_when_its_watcher_raises() -> None:
    def stop(steps: int, ratio: float) -> None:
        if steps == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        synthesise(drawn(), stop)


def test_a_million_cells_take_bounded_memory_and_say_how_far_they_are() -> None:
    """80 MB are ten tables of eight bytes a cell; the indicators of the halves are small."""
    pairs, seen = exact_pairs(joint((10,) * 6), variance=1e-8), []
    with patch.object(synthesis, "STEPS_MAX", 4):
        tracemalloc.start()
        try:
            synthesise(pairs, lambda steps, ratio: seen.append(steps))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert seen == [1, 2, 3, 4]
    assert peak < 80e6


# Refusals.


def pair(columns: tuple[int, int], *shape: int) -> PairTable:
    return PairTable(columns, np.full(shape, 1 / prod(shape)), np.full(shape, 1e-4))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ((), "must hold the columns"),
        ((pair((0, 2), 2, 3),), "must hold the columns"),
        ((pair((0, 1), 2, 3), pair((0, 2), 3, 3)), "column 0 must have one size"),
        ((pair((0, 1), 2, 3), pair((0, 1), 2, 3)), "must come once"),
        ((pair((0, 1), 101, 100), pair((0, 2), 101, 100)), "at most 1000000 cells, got 1010000"),
    ],
)
def test_pairs_that_are_no_table_are_refused(pairs: tuple[PairTable, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synthesise(pairs)


@pytest.mark.parametrize("columns", [(1, 0), (0, 0), (-1, 1)])
def test_columns_out_of_order_are_refused(columns: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="two different ones in order"):
        pair(columns, 2, 2)


def test_shares_and_variances_without_meaning_are_refused() -> None:
    half = np.full((2, 2), 0.5)
    for shares, variance in ((half.ravel(), half), (half * np.nan, half), (half, half[0]), (half, 0 * half)):
        with pytest.raises(ValueError, match="must"):
            PairTable((0, 1), shares, variance)


# Records.


def chance(counts: Counts, weights: Floats) -> float:
    """Return the p-value of counts of records beside weights."""
    expected = weights.ravel() * counts.sum()
    return float(stats.chi2.sf(((counts.ravel() - expected) ** 2 / expected).sum(), weights.size - 1))


def counted(drawn_records: Counts) -> Counts:
    return np.bincount(np.ravel_multi_index(tuple(drawn_records.T), SIZES), minlength=prod(SIZES))


def test_records_follow_the_weights() -> None:
    """Fails for one seed in a million; one cell's records in another place are seen."""
    weights = np.maximum(joint(), 1e-4)
    weights /= weights.sum()
    found = counted(records(weights, 200_000, np.random.default_rng(4)))
    assert chance(found, weights) > FALSE_ALARM
    assert chance(np.roll(found, 1), weights) < FALSE_ALARM


def test_records_are_rows_of_places_and_the_same_for_the_same_seed() -> None:
    weights = synthesise(drawn()).weights
    one, again, other = (records(weights, 1_000, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.shape == (1_000, len(SIZES))
    assert (one.max(axis=0) < SIZES).all()
    assert one.min() >= 0
    assert (one == again).all()
    assert (one != other).any()


def test_a_rounding_error_of_the_weights_moves_no_record() -> None:
    weights = synthesise(drawn()).weights
    nearly = weights * (1 + 2**-52 * np.random.default_rng(1).integers(-1, 2, weights.shape))
    one, other = (records(each, 10_000, np.random.default_rng(5)) for each in (weights, nearly))
    assert (one == other).all()
