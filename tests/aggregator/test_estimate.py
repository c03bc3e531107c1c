from decimal import Decimal
from math import sqrt

import numpy as np
import pytest

from dither_aggregator.estimate import estimate_shares, noise_floor
from dither_shared.mechanisms import GRR, MECHANISMS, OUE, PureMechanism

N = 100_000
KINDS = pytest.mark.parametrize("kind", MECHANISMS.values(), ids=lambda kind: kind.name)


def truth(d: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = 1 / np.arange(1, d + 1) ** 1.1
    weights[-1] = 0  # a value that nobody has
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def expected_support(mechanism: PureMechanism, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    p, q = float(mechanism.p), float(mechanism.q)
    return n * (truth(mechanism.d) * (p - q) + q)


@KINDS
@pytest.mark.parametrize("epsilon", ["0.5", "2", "8"])
@pytest.mark.parametrize("d", [2, 16, 300])
def test_expected_counts_give_the_truth(kind: type[PureMechanism], d: int, epsilon: str) -> None:
    mechanism = kind.for_epsilon(d, Decimal(epsilon))
    estimates = estimate_shares(mechanism, expected_support(mechanism, N), N)  # type: ignore[arg-type]  # not whole
    assert np.allclose(estimates.estimate, truth(d), atol=1e-9)
    assert ((estimates.lower < truth(d)) & (truth(d) < estimates.upper)).all()


def draw_tally(
    mechanism: PureMechanism, counts: np.ndarray[tuple[int], np.dtype[np.int64]], rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Draw support counts from their exact law, for devices of which counts[v] have the value v."""
    n, p, q = int(counts.sum()), float(mechanism.p), float(mechanism.q)
    if isinstance(mechanism, OUE):
        return rng.binomial(counts, p) + rng.binomial(n - counts, q)
    tally = np.zeros(mechanism.d, dtype=np.int64)
    for value, count in enumerate(counts):
        law = np.full(mechanism.d, q)
        law[value] = p
        tally += rng.multinomial(count, law / law.sum())
    return tally


@KINDS
@pytest.mark.parametrize("d", [2, 16])
def test_the_standard_error_and_the_intervals_hold(kind: type[PureMechanism], d: int) -> None:
    """2,000 seeded repetitions: the error's spread is the stated one within 8 % (5 sigma of a variance estimate), and
    intervals hold the truth in 95 % within 2.5 points (5 sigma), for every value, the absent one included."""
    mechanism = kind.for_epsilon(d, Decimal(1))
    rng = np.random.default_rng(20261120)
    counts = np.round(truth(d) * 20_000).astype(np.int64)
    n = int(counts.sum())
    runs = [estimate_shares(mechanism, draw_tally(mechanism, counts, rng), n) for _ in range(2_000)]
    errors = np.array([run.estimate for run in runs]) - counts / n
    stated = np.mean([run.std_error for run in runs], axis=0)
    assert np.abs(errors.std(axis=0) / stated - 1).max() < 0.08
    assert np.abs(errors.mean(axis=0) / stated).max() < 5 / sqrt(2_000)
    held = np.mean([(run.lower <= counts / n) & (counts / n <= run.upper) for run in runs], axis=0)
    assert np.abs(held - 0.95).max() < 0.025


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
