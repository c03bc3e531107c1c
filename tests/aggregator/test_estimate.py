import random
from decimal import Decimal
from math import comb, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom, poisson

from dither_aggregator.analysis.functional import share_variance
from dither_aggregator.analysis.inference import (
    ErrorOf,
    Method,
    Z,
    bit_skewness,
    clopper_pearson,
    devices_reach,
    normal_from,
)
from dither_aggregator.analysis.pure import Estimates, estimate_shares
from dither_aggregator.counting import fold, support_counts
from dither_shared.kinds.precision import critical_share, detectable_share, noise_floor
from dither_shared.mechanisms import GRR, OUE, PGR, SUE, PrivSet, PureMechanism, SubsetSelection, choose
from dither_shared.rng import Rng
from tests.support.soaking import scaled
from tests.support.tallies import draw_tallies

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

N = 100_000
ANSWERS = scaled(10, 50)
"""How often each of six answers is given in a run of the real randomizer: what is told is in standard errors."""
NAMES = pytest.mark.parametrize("name", ["grr", "ss", "pgr", "oue", "sue"])


def truth(d: int) -> Floats:
    weights = 1 / np.arange(1, d + 1) ** 1.1
    weights[-1] = 0  # a value that nobody has
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def expected_support(mechanism: PureMechanism, n: int) -> Floats:
    p, q = float(mechanism.p), float(mechanism.q)
    return n * (truth(mechanism.d) * (p - q) + q)


@NAMES
@pytest.mark.parametrize("epsilon", ["0.5", "2", "8"])
@pytest.mark.parametrize("d", [2, 16, 300])
def test_expected_counts_give_the_truth(name: str, d: int, epsilon: str) -> None:
    mechanism = choose(d, Decimal(epsilon), name=name)
    estimates = estimate_shares(mechanism, expected_support(mechanism, N), N)  # type: ignore[arg-type]  # not whole
    assert np.allclose(estimates.estimate, truth(d), atol=1e-9)
    assert ((estimates.lower < truth(d)) & (truth(d) < estimates.upper)).all()


@pytest.mark.parametrize(
    "mechanism",
    [
        *(choose(d, Decimal(1), name=name) for d, name in ((2, "grr"), (16, "ss"), (16, "oue"), (2, "sue"))),
        PGR.for_design(30, 5, 3, Decimal(2)),
        choose(8, Decimal(1), permanent=Decimal(3)),
    ],
    ids=str,
)
def test_the_standard_error_and_the_intervals_hold(mechanism: PureMechanism) -> None:
    """2,000 seeded repetitions of 20,000 answers: bounds of 6 sigma on what they show.

    The error's spread is the stated one within 10 %, its mean is zero, and intervals hold the truth in 95 % within 3
    points. For every value, the absent one included. Over seeds some 150 values are watched: a false alarm of 1e-6.
    """
    rng = np.random.default_rng(20261120)
    counts = np.round(truth(mechanism.d) * 20_000).astype(np.int64)
    n = int(counts.sum())
    runs = _estimate(mechanism, np.tile(counts, (2_000, 1)), rng)
    errors = runs.estimate - counts / n
    stated = runs.std_error.mean(axis=0)
    assert np.abs(errors.std(axis=0) / stated - 1).max() < 0.1
    assert np.abs(errors.mean(axis=0) / stated).max() < 6 / sqrt(2_000)
    held = np.mean((runs.lower <= counts / n) & (counts / n <= runs.upper), axis=0)
    assert np.abs(held - 0.95).max() < 0.03


def _estimate(
    mechanism: PureMechanism,
    runs: Counts,
    rng: np.random.Generator,
    *,
    error_of: ErrorOf = "reports",
    method: Method | None = None,
    simultaneous: bool = False,
) -> Estimates:
    """Estimate the shares in many runs of equally many reports at once: a row for each, a column for each value."""
    n = int(runs[0].sum())
    support = [support_counts(mechanism, tally, n) for tally in draw_tallies(mechanism, runs, rng)]
    return estimate_shares(mechanism, np.array(support), n, error_of=error_of, method=method, simultaneous=simultaneous)


def test_the_population_variance_is_that_of_a_binomial_count() -> None:
    """r (1 - r) / (n (p - q)^2) = the fixed one + f (1 - f) / n, whatever f is."""
    for mechanism in (GRR.for_epsilon(9, Decimal(1)), OUE.for_epsilon(9, Decimal(2)), SUE.for_epsilon(9, Decimal(3))):
        p, q, share = float(mechanism.p), float(mechanism.q), np.linspace(0, 1, 11)
        rate = q + share * (p - q)
        binomial = rate * (1 - rate) / (50 * (p - q) ** 2)
        assert np.allclose(share_variance(mechanism, share, 50, "population"), binomial, rtol=1e-12)


def test_exact_intervals_are_taken_where_counts_are_small() -> None:
    large, small = OUE.for_epsilon(16, Decimal(1)), GRR.for_epsilon(1000, Decimal(4))
    assert estimate_shares(large, np.full(16, 300), 1_000).method == "wald"
    for mechanism, counts, n in (
        (large, np.full(16, 3), 10),
        (small, np.full(1000, 10), 10_000),
        (GRR.for_epsilon(2, Decimal(6)), np.array([1, 999]), 1_000),
    ):
        assert estimate_shares(mechanism, counts, n, error_of="reports").method == "exact"
        assert estimate_shares(mechanism, counts, n).method == "clopper-pearson"  # of the population


def test_clopper_and_pearson_s_intervals_are_taken_where_the_count_is_not_of_two_binomials() -> None:
    small, counts = GRR.for_epsilon(1000, Decimal(4)), np.full(1000, 10)
    assert estimate_shares(small, counts, 10_000).method == "clopper-pearson"
    # Each report has noise of its own.
    assert estimate_shares(small, counts, 10_000, repeats=7, error_of="reports").method == "exact"
    memoized = choose(1000, Decimal(4), permanent=Decimal(6))
    assert estimate_shares(memoized, counts, 500, error_of="reports").method == "exact"
    assert estimate_shares(memoized, counts, 1_000, repeats=7, error_of="reports").method == "clopper-pearson"


@pytest.mark.parametrize("z", [Z, 3.0, 4.0])
def test_from_as_many_reports_as_the_rule_says_wald_s_intervals_hold(z: float) -> None:
    """Exactly, for a value that nobody has: they miss at most 1.35 times as often as they say."""
    alpha = 2 * NormalDist().cdf(-z)
    for p, q in ((0.5, 0.45), (0.5, 0.12), (0.9, 0.01), (0.999, 0.0001)):
        least = normal_from(bit_skewness(p, q), z)
        assert max(missed(round(more * least), p, q, z) for more in (1, 1.1, 1.2, 1.5, 2)) <= 1.35 * alpha


def missed(n: int, p: float, q: float, z: float) -> float:
    """Return how often Wald's interval of a value that nobody has misses zero."""
    counts = np.arange(int(binom.ppf(1e-12, n, q)), int(binom.isf(1e-12, n, q)) + 1)
    estimate = (counts / n - q) / (p - q)
    share = np.clip(estimate, 0.0, 1.0)
    error = np.sqrt((share * p * (1 - p) + (1 - share) * q * (1 - q)) / n) / (p - q)
    return float(binom.pmf(counts, n, q)[np.abs(estimate) > z * error].sum())


def test_intervals_of_the_surest_families_reach_as_a_normal_law_does() -> None:
    """One less a chance of 1e-17 is one, and no upper end: the other tail is asked for itself."""
    for power in range(12, 41):
        alpha = 10.0**-power
        below, above = devices_reach(np.array([0.3]), 1e6, alpha)
        normal = -NormalDist().inv_cdf(alpha / 2) * sqrt(0.3 * 0.7 / 1e6)
        assert above[0] == pytest.approx(normal, rel=0.02)
        assert below[0] == pytest.approx(normal, rel=0.02)
        rare = float(clopper_pearson(np.array([1]), 1e9, alpha)[1][0]) * 1e9
        assert poisson.cdf(1, rare) == pytest.approx(alpha / 2, rel=1e-6)


def test_clopper_pearson_is_the_inversion_of_the_binomial_tails() -> None:
    counts, n, alpha = np.array([0, 1, 5, 19, 20]), 20, 0.05
    lower, upper = clopper_pearson(counts, n, alpha)
    assert lower[0] == 0
    assert upper[-1] == 1
    for count, low, high in zip(counts[1:], lower[1:], upper[1:], strict=True):
        tail = sum(comb(n, k) * low**k * (1 - low) ** (n - k) for k in range(count, n + 1))
        assert tail == pytest.approx(alpha / 2, rel=1e-9)
        if count < n:
            tail = sum(comb(n, k) * high**k * (1 - high) ** (n - k) for k in range(count + 1))
            assert tail == pytest.approx(alpha / 2, rel=1e-9)


def test_simultaneous_intervals_hold_all_at_once() -> None:
    """1,000 seeded repetitions: all 64 truths within in at least 92.5 % (3.6 sigma below 95 %; Bonferroni has slack),
    while separate intervals nearly never hold them all."""
    mechanism, rng = OUE.for_epsilon(64, Decimal(1)), np.random.default_rng(9)
    counts = np.round(truth(64) * 10_000).astype(np.int64)
    n = int(counts.sum())
    support = draw_tallies(mechanism, np.tile(counts, (1_000, 1)), rng)

    def held(*, simultaneous: bool) -> int:
        runs = estimate_shares(mechanism, support, n, simultaneous=simultaneous)
        return int(((runs.lower <= counts / n) & (counts / n <= runs.upper)).all(axis=1).sum())

    assert held(simultaneous=True) > 925
    assert held(simultaneous=False) < 200


def test_a_wrong_p_would_be_caught() -> None:
    """The planted bug: debiasing with another mechanism's probabilities."""
    right, wrong = GRR.for_epsilon(16, Decimal(1)), GRR.for_epsilon(16, Decimal("1.1"))
    estimates = estimate_shares(wrong, expected_support(right, N), N)  # type: ignore[arg-type]  # not whole
    assert not ((estimates.lower < truth(16)) & (truth(16) < estimates.upper)).all()


def test_estimates_are_neither_clamped_nor_normalised() -> None:
    mechanism = OUE.for_epsilon(4, Decimal(1))
    estimates = estimate_shares(mechanism, np.array([0, 0, 0, 1000]), 1000)
    assert estimates.estimate.min() < 0
    assert estimates.estimate.max() > 1
    assert estimates.lower.min() < estimates.estimate.min()


def test_the_noise_floor_is_the_error_of_an_absent_value() -> None:
    mechanism = OUE.for_epsilon(264, Decimal(2))
    assert noise_floor(mechanism, 20_000) == pytest.approx(sqrt(4 * np.e**2 / (np.e**2 - 1) ** 2 / 20_000), rel=1e-6)
    absent = estimate_shares(mechanism, np.full(264, round(20_000 * float(mechanism.q))), 20_000)
    assert absent.std_error[0] == pytest.approx(absent.noise_floor, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "critical"), [("1", 0.0075), ("2", 0.0033), ("4", 0.00107)])
def test_the_critical_share_of_a_million_reports(epsilon: str, critical: float) -> None:
    mechanism = OUE.for_epsilon(1024, Decimal(epsilon))
    assert critical_share(mechanism, 1024, 1_000_000) == pytest.approx(critical, rel=0.01)
    assert detectable_share(mechanism, 1024, 1_000_000) == pytest.approx(1.216 * critical, rel=0.01)


def test_noise_passes_the_critical_share_rarely_and_the_detectable_share_mostly_does() -> None:
    """400 seeded repetitions of two present values, one of the detectable share, and 62 absent ones.

    80 % within 12 points, and at most 5 % with 7 points more: 6 sigma.
    """
    mechanism, n, rng = SubsetSelection.for_weight(64, 8, Decimal(2)), 20_000, np.random.default_rng(4)
    present = round(detectable_share(mechanism, 64, n) * n)
    counts = np.array([present, n - present, *[0] * 62])
    critical = critical_share(mechanism, 64, n)
    seen = _estimate(mechanism, np.tile(counts, (400, 1)), rng).estimate > critical
    assert abs(seen[:, 0].mean() - 0.8) < 0.12
    assert seen[:, 2:].any(axis=1).mean() < 0.12


def test_simultaneous_intervals_hold_just_above_where_they_are_walds() -> None:
    """3,000 seeded repetitions of GRR with 200 values: all truths within in at least 93 % (5 sigma below 95 %)."""
    mechanism, rng = GRR.for_epsilon(200, Decimal("5.3")), np.random.default_rng(10)
    n = next(
        n
        for n in range(20_000, 400_000, 1_000)
        if estimate_shares(mechanism, np.full(200, 9), n, simultaneous=True).method == "wald"
    )
    counts = np.full(200, n // 200)
    runs = _estimate(mechanism, np.tile(counts, (3_000, 1)), rng, method="wald", simultaneous=True)
    truths = counts / counts.sum()
    assert ((runs.lower <= truths) & (truths <= runs.upper)).all(axis=1).mean() > 0.93


def test_exact_intervals_hold_their_estimate_however_many_reports_there_are() -> None:
    counts = np.array([1, 30, 999, 1000, 1001, 10_000, 10_001, 50_000])
    for n in (10**6, 10**7, 10**8, 10**9, 10**12):
        lower, upper = clopper_pearson(counts, n, 0.05)
        assert (lower < counts / n).all()
        assert (counts / n < upper).all()
        assert np.allclose((upper - lower)[2:] * n, 3.92 * np.sqrt(counts[2:]), rtol=0.05)


@pytest.mark.parametrize(
    "mechanism",
    [
        PrivSet.for_weight(6, 2, 2, Decimal(2)),
        choose(6, Decimal(2), ticks=2, permanent=Decimal(5)),
        OUE.for_epsilon(6, Decimal(2), 2),
    ],
    ids=str,
)
def test_shares_of_several_ticks_and_their_errors_hold(mechanism: PureMechanism) -> None:
    """150 seeded runs of the real randomizer and fold, each of answers of no, one or two values: within 6 sigma.

    The error's spread is the stated one within 35 %, and intervals hold the truth in 95 % within 11 points.
    """
    rng = Rng(random.Random(12).getrandbits)
    answers = [mechanism.class_of(held) for held in ((), (0,), (0, 1), (0, 2), (1, 5), (3,)) * ANSWERS]
    truth = np.array([sum(answer >> value & 1 for answer in answers) for value in range(6)]) / len(answers)
    runs = []
    for _ in range(150):
        packed = mechanism.shape.pack([mechanism.randomize(answer, rng) for answer in answers])
        support = support_counts(mechanism, fold(mechanism.shape, packed), len(answers))
        runs.append(estimate_shares(mechanism, support, len(answers)))
    errors = np.array([run.estimate for run in runs]) - truth
    stated = np.mean([run.std_error for run in runs], axis=0)
    assert np.abs(errors.mean(axis=0) / stated).max() < 6 / sqrt(150)
    assert np.abs(errors.std(axis=0) / stated - 1).max() < 0.35
    held = np.mean([(run.lower <= truth) & (truth <= run.upper) for run in runs], axis=0)
    assert np.abs(held - 0.95).max() < 0.11
