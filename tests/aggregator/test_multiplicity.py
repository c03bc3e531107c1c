"""Many tests at once: what is called true is what the definitions say."""

import numpy as np
import pytest
from scipy.special import ndtr

from dither_aggregator.analysis.multiplicity import adaptive, benjamini_hochberg, holm, selected_z, simes


def test_verdicts_are_those_of_the_definitions() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        p_values = rng.random(20) ** rng.integers(1, 9)
        ordered = sorted(p_values.tolist())
        largest = max((p for i, p in enumerate(ordered, 1) if p <= 0.05 * i / 20), default=-1.0)
        assert (benjamini_hochberg(p_values, 0.05) == (p_values <= largest)).all()
        passed = [all(ordered[j] <= 0.05 / (20 - j) for j in range(i + 1)) for i in range(20)]
        assert holm(p_values, 0.05).sum() == sum(passed)
        assert not (holm(p_values, 0.05) & ~benjamini_hochberg(p_values, 0.05)).any()
        assert (simes(p_values) <= 0.05) == benjamini_hochberg(p_values, 0.05).any()


def test_alpha_is_divided_by_the_share_of_nulls() -> None:
    p_values = np.array([1e-4, 0.03, 0.06, 0.07, 0.2, 0.3, 0.6, 0.7])
    assert benjamini_hochberg(p_values, 0.05).sum() == 1
    assert adaptive(p_values, 0.05).tolist() == (p_values < 0.01).tolist(), "nulls: 2 (1 + 2) / 8"
    fewer = np.append(p_values[:6], [0.4, 0.45])
    assert adaptive(fewer, 0.05).sum() == benjamini_hochberg(fewer, 0.2).sum() == 4
    assert not adaptive(np.full(8, 0.06), 0.05).any(), "none where Benjamini and Hochberg call none"


@pytest.mark.parametrize("nulls", [20, 60, 100])
def test_of_what_is_called_true_at_most_alpha_is_false(nulls: int) -> None:
    """2,000 families of 100 tests: the mean share of false ones is below .05 and 5 of its standard errors, 3e-7."""
    rng = np.random.default_rng(nulls)
    effects = np.append(np.zeros(nulls), np.full(100 - nulls, 2.5))
    shares = []
    for _ in range(2_000):
        called = adaptive(ndtr(-rng.normal(effects)), 0.05)
        shares.append(called[:nulls].sum() / max(1, called.sum()))
    assert np.mean(shares) < 0.05 + 5 * np.std(shares) / np.sqrt(2_000)


def test_the_nulls_beside_a_share_of_half_would_be_caught() -> None:
    """Were the share of nulls said to be 0.2 where it is 0.6, more would be false than was said."""
    rng = np.random.default_rng(1)
    effects = np.append(np.zeros(60), np.full(40, 2.5))
    called = np.array([benjamini_hochberg(ndtr(-rng.normal(effects)), 0.05 / 0.2) for _ in range(500)])
    assert (called[:, :60].sum(axis=1) / np.maximum(1, called.sum(axis=1))).mean() > 0.1


def test_intervals_of_those_found_are_of_the_level_that_benjamini_and_yekutieli_give() -> None:
    assert selected_z(0, 20, 0.05, 1e6) == selected_z(1, 20, 0.05, 1e6) == pytest.approx(3.0233, abs=1e-4)
    assert selected_z(20, 20, 0.05, 1e6) == pytest.approx(1.96, abs=1e-3)
    assert selected_z(20, 20, 0.05, 7.0) == pytest.approx(2.3646, abs=1e-4)


def test_of_nothing_nothing_is_called_true() -> None:
    nothing = np.array([])
    assert (
        adaptive(nothing, 0.05).tolist()
        == benjamini_hochberg(nothing, 0.05).tolist()
        == holm(nothing, 0.05).tolist()
        == []
    )
    assert simes(nothing) == 1.0
