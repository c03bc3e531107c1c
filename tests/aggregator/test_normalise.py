"""Normalised shares: possible, labelled, and what their definitions say."""

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pytest

from dither_aggregator.analysis.shares import METHODS, Normalised, maximum_likelihood, norm_sub
from dither_aggregator.counting import support_counts
from dither_shared.mechanisms import GRR, OUE, PureMechanism, choose
from tests.support.tallies import draw_tally

Floats = npt.NDArray[np.float64]

MECHANISMS = [choose(20, Decimal(1), name=name) for name in ("grr", "ss", "pgr", "oue", "sue")]


def drawn(mechanism: PureMechanism, n: int = 3_000, seed: int = 1) -> npt.NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, rng.dirichlet(np.full(mechanism.d, 0.3)))
    return support_counts(mechanism, draw_tally(mechanism, counts, rng), n)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("n", [1, 30, 3_000, 10**6])
def test_shares_are_possible_and_the_report_says_so(method: str, mechanism: PureMechanism, n: int) -> None:
    result = METHODS[method](mechanism, drawn(mechanism, n), n)
    assert result.shares.min() >= 0
    assert abs(result.shares.sum() - 1) <= result.residual + 1e-15
    assert result.converged
    assert result.to_document() == {
        "method": method,
        "converged": True,
        "iterations": result.iterations,
        "residual": result.residual,
    }


def test_shares_that_do_not_sum_to_one_are_said_not_to_have_converged() -> None:
    assert not Normalised("mle", np.array([0.5, 0.4]), 100, 0.1).converged


def test_norm_sub_is_the_nearest_point_of_the_simplex() -> None:
    """By its optimality conditions: every kept share is moved by the same amount, every other by more."""
    mechanism = MECHANISMS[3]
    support = drawn(mechanism)
    p, q = float(mechanism.p), float(mechanism.q)
    estimate = (support / 3_000 - q) / (p - q)
    shares = norm_sub(mechanism, support, 3_000).shares
    moved = estimate - shares
    kept = shares > 0
    assert 0 < kept.sum() < mechanism.d
    assert np.ptp(moved[kept]) < 1e-12
    assert (moved[~kept] <= moved[kept].min() + 1e-12).all()


def iterative_bayesian_update(channel: Floats, tally: npt.NDArray[np.int64], rounds: int) -> Floats:
    """The reference: f <- f A'(c / (A f)) / n, from the uniform start."""
    share = np.full(channel.shape[1], 1 / channel.shape[1])
    for _ in range(rounds):
        share = share * (channel.T @ (tally / (channel @ share))) / tally.sum()
    return share


@pytest.mark.parametrize("n", [200, 3_000])
def test_the_likeliest_shares_of_grr_are_where_iterative_bayesian_update_ends(n: int) -> None:
    mechanism = GRR.for_epsilon(8, Decimal(2))
    p, q = float(mechanism.p), float(mechanism.q)
    tally = drawn(mechanism, n)
    slowly = iterative_bayesian_update(np.full((8, 8), q) + (p - q) * np.eye(8), tally, 20_000)
    assert np.abs(maximum_likelihood(mechanism, tally, n).shares - slowly).max() < 1e-3


@pytest.mark.parametrize("mechanism", MECHANISMS[1:], ids=lambda mechanism: mechanism.name)
def test_the_likeliest_shares_cannot_be_improved(mechanism: PureMechanism) -> None:
    """Moving share from any value to any other lowers the likelihood."""
    n, p, q = 3_000, float(mechanism.p), float(mechanism.q)
    support = drawn(mechanism, n)
    shares = maximum_likelihood(mechanism, support, n).shares

    def likelihood(share: Floats) -> float:
        rate = q + share * (p - q)
        return float((support * np.log(rate) + (n - support) * np.log1p(-rate)).sum())

    best = likelihood(shares)
    for giver in np.flatnonzero(shares > 1e-4):
        for taker in range(mechanism.d):
            if taker != giver:
                moved = shares.copy()
                moved[giver] -= 1e-4
                moved[taker] += 1e-4
                assert likelihood(moved) < best


def test_normalised_shares_are_biased_and_the_raw_ones_are_not() -> None:
    """Why they are an extra: where most values are absent, the largest share is far too small on average.

    300 seeded repetitions; the raw mean is within 6 sigma of the truth.
    """
    mechanism, n, rng = OUE.for_epsilon(200, Decimal(1)), 2_000, np.random.default_rng(5)
    counts = np.array([n // 2, n - n // 2, *[0] * 198])
    p, q = float(mechanism.p), float(mechanism.q)
    supports = [draw_tally(mechanism, counts, rng) for _ in range(300)]
    raw = np.array([(support[0] / n - q) / (p - q) for support in supports])
    shifted = np.array([norm_sub(mechanism, support, n).shares[0] for support in supports])
    assert abs(raw.mean() - 0.5) < 6 * raw.std() / 300**0.5
    assert shifted.mean() < 0.45
