"""Bounds that samples prove, beside scipy's, and how often they are wrong."""

from collections.abc import Callable
from math import exp, log

import numpy as np
import pytest
from scipy import stats

from dither.auditing.samples import (
    expected_bound,
    expected_share,
    least_share,
    least_share_of_paired,
    loss_bound,
    loss_p_value,
    most_share,
    never_bound,
    never_p_value,
    share_interval,
)
from tests.support.soaking import scaled

COUNTS = [
    (n, count)
    for n in (1, 10, 1_000, 10**4, 10**6)
    for count in sorted({1, 2, n // 3, n // 2, n - 1, n} - {0})
    if count <= n
]


@pytest.mark.parametrize("alpha", [0.005, 1e-3, 1e-8])
def test_bounds_are_those_of_clopper_and_pearson(alpha: float) -> None:
    for n, count in COUNTS:
        least = stats.beta.ppf(alpha, count, n - count + 1)
        assert least_share(count, n, alpha) == pytest.approx(least, rel=1e-6), f"{count} of {n}"
        most = 1.0 if count == n else stats.beta.isf(alpha, count + 1, n - count)
        assert most_share(count, n, alpha) == pytest.approx(most, rel=1e-6), f"{count} of {n}"


def test_nothing_proves_nothing() -> None:
    assert least_share(0, 10, 0.01) == 0
    assert most_share(10, 10, 0.01) == 1
    assert loss_bound(0, 10, 10, 0.01) == 0
    assert loss_bound(5, 9, 10, 0.01) == 0


@pytest.mark.parametrize(
    ("epsilon", "n", "bound"),
    [(1, 10**4, 0.941), (1, 10**5, 0.982), (1, 10**6, 0.994), (4, 10**4, 3.81), (4, 10**6, 3.98)],
)
def test_randomized_response_can_be_expected_to_show_so_much(epsilon: float, n: int, bound: float) -> None:
    p = exp(epsilon) / (1 + exp(epsilon))
    assert expected_bound(p, 1 - p, n, 0.01).mean == pytest.approx(bound, abs=0.006)


@pytest.mark.parametrize(
    ("p", "q", "n"), [(0.73, 0.27, 10**4), (0.02, 0.003, 1_000), (0.001, 0.0, 10**5), (1.0, 0.4, 500)]
)
def test_the_expected_bound_is_the_mean_of_bounds(p: float, q: float, n: int) -> None:
    rng = np.random.default_rng(4)
    found = [
        loss_bound(int(hits), int(others), n, 0.01)
        for hits, others in zip(rng.binomial(n, p, 2_000), rng.binomial(n, q, 2_000), strict=True)
    ]
    expected = expected_bound(p, q, n, 0.01)
    assert np.mean(found) == pytest.approx(expected.mean, abs=5 * expected.deviation / 2_000**0.5 + 0.002)
    assert np.std(found) == pytest.approx(expected.deviation, rel=0.15)


def test_a_bound_is_above_the_loss_no_more_often_than_it_says() -> None:
    """1,000 pairs of counts at alpha .05: at most 50 are expected, and 80 are 4 sigma."""
    rng = np.random.default_rng(5)
    counts = zip(rng.binomial(300, 0.6, 1_000), rng.binomial(300, 0.3, 1_000), strict=True)
    wrong = sum(loss_bound(int(hits), int(others), 300, 0.05) > log(2) for hits, others in counts)
    assert wrong <= 50
    counts = zip(rng.binomial(300, 0.6, 1_000), rng.binomial(300, 0.3, 1_000), strict=True)
    at_half = sum(log(hits / max(others, 1)) > log(2) for hits, others in counts)
    assert at_half > 300  # as a bound without its error would be


def test_the_bound_of_a_share_to_be_expected_is_the_mean_over_all_counts() -> None:
    n, p, alpha = 60, 0.3, 0.01
    weights = [float(stats.binom.pmf(hits, n, p)) for hits in range(n + 1)]
    mean = sum(weight * least_share(hits, n, alpha) for hits, weight in enumerate(weights))
    expected = expected_share(p, n, alpha)
    assert expected is not None
    assert expected.mean == pytest.approx(mean, abs=1e-6)
    assert expected_share(1e-20, n, alpha) is None


def test_an_interval_of_a_share_is_that_of_scipy() -> None:
    for hits, n in ((0, 20), (7, 20), (20, 20)):
        ours, theirs = share_interval(hits, n), stats.binomtest(hits, n).proportion_ci(0.95, "exact")
        assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_devices_that_are_paired_are_above_their_bound_no_more_often_than_it_says() -> None:
    """500 pairs of devices, each in one of two states: 3/4 are right. As if independent, too many runs alarm."""
    rng, pairs, runs, alpha = np.random.default_rng(6), 500, 200_000, 1e-3
    together = rng.binomial(pairs, 0.5, runs)
    right = 2 * (pairs - together) + rng.binomial(2 * together, 0.5)

    def wrong(least: Callable[[int, int, float], float]) -> int:
        found, runs_of = np.unique(right, return_counts=True)
        above = (least(int(hits), 2 * pairs, alpha) > 0.75 for hits in found)
        return int(sum(count for count, is_above in zip(runs_of, above, strict=True) if is_above))

    assert wrong(least_share_of_paired) <= alpha * runs
    assert wrong(least_share) > 2 * alpha * runs


# An event that the other side never has.


def exact_alarms(p: float, q: float, n: int, epsilon: float, alpha: float) -> float:
    """Return how often such an event proves more than epsilon, by the binomial laws."""
    least = next((hits for hits in range(n + 1) if never_p_value(hits, n, epsilon) <= alpha), n + 1)
    return float(stats.binom.sf(least - 1, n, p) * (1 - q) ** n)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_an_event_that_one_side_never_has_proves_too_much_no_more_often_than_it_says(epsilon: float) -> None:
    """At every probability of it; where it is most often, nearly as often."""
    for n, alpha in ((200, 0.01), (1_000, 1e-4)):
        rates = [
            exact_alarms(min(1.0, exp(epsilon) * q), q, n, epsilon, alpha)
            for q in np.geomspace(1e-6, exp(-epsilon), scaled(100, 400))
        ]
        assert alpha / 20 < max(rates) <= alpha


def test_it_proves_more_than_two_bounds_do() -> None:
    for hits in (30, 50, 500):
        assert never_bound(hits, 1_000, 1e-6) > loss_bound(hits, 0, 1_000, 1e-6) + 0.2
    assert never_bound(0, 1_000, 0.01) == never_bound(3, 1_000, 0.01) == 0.0
    assert never_bound(50, 1_000, 1e-6) > 0.5 > never_bound(50, 1_000, 1e-12)


def test_the_p_value_is_the_error_at_which_the_bound_is_the_loss() -> None:
    for hits, others in ((80, 20), (60, 30)):
        p = loss_p_value(hits, others, 100, 0.5)
        assert loss_bound(hits, others, 100, p * 1.001) > 0.5 >= loss_bound(hits, others, 100, p * 0.999)
    assert loss_p_value(50, 50, 100, 0.5) == 1.0
    for hits in (20, 60):
        assert never_bound(hits, 100, never_p_value(hits, 100, 1.0)) == pytest.approx(1.0, abs=1e-6)
