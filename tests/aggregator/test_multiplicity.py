"""Many tests at once: what is called true is what the definitions say."""

import numpy as np
import pytest
from scipy.special import ndtr

from dither_aggregator.analysis.rows import (
    adaptive,
    benjamini_hochberg,
    family,
    holm,
    null_share,
    selected_z,
    simes,
)
from tests.support.soaking import scaled


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
    effects = np.append(np.zeros(50), np.full(150, 2.0))
    p_values = ndtr(-np.random.default_rng(2).normal(effects))
    nulls = null_share(p_values)
    assert 0.2 < nulls < 0.45
    assert (adaptive(p_values, 0.05) == benjamini_hochberg(p_values, 0.05 / nulls)).all()
    assert adaptive(p_values, 0.05).sum() > 1.5 * benjamini_hochberg(p_values, 0.05).sum()
    assert not adaptive(np.full(8, 0.06), 0.05).any(), "none where Benjamini and Hochberg call none"


def test_many_weak_ones_are_called_where_only_their_sum_tells() -> None:
    """No single one says it of 900 strings with .85 standard errors each, beside 200 that nobody has."""
    scores = np.random.default_rng(7).normal(np.append(np.zeros(200), np.full(900, 0.85)))
    p_values = ndtr(-scores)
    assert not benjamini_hochberg(p_values, 0.05).any()
    assert 0 < family(p_values) < 1e-50 < simes(p_values)
    assert adaptive(p_values, 0.05).sum() > 100
    nulls = ndtr(-np.random.default_rng(8).normal(size=(20_000, 50)))
    assert all(family(each) == simes(each) for each in nulls)


def test_no_estimate_below_zero_is_called_true() -> None:
    scores = np.random.default_rng(4).normal(np.append(np.zeros(2), np.full(38, 2.0)))
    p_values = np.append(ndtr(-scores), [0.5, 0.6])
    assert 0.5 / null_share(p_values) > 1, "Benjamini and Hochberg alone would call all"
    assert (adaptive(p_values, 0.5) == (p_values < 0.5)).all()


def test_the_share_of_nulls_is_the_mean_over_all_worlds() -> None:
    """By brute force: densities in place of bins, a normal law of the logarithm in place of a table of effects."""
    scores = np.random.default_rng(3).normal(np.append(np.zeros(12), np.full(18, 1.5)))
    effects = np.exp(np.linspace(np.log(0.02), np.log(8.0), 600))
    density = np.exp(-((scores[:, np.newaxis] - effects) ** 2) / 2)
    weights, shares = [], (np.arange(30) + 0.5) / 30
    for median in np.geomspace(0.5, 7.4, 28):
        for spread in (0.02, 0.1, 0.25, 0.5, 1.0, 1.6):
            law = np.exp(-((np.log(effects / median) / spread) ** 2) / 2)
            law /= law.sum()
            near = law @ ndtr(5 - effects)
            mixed = shares[:, np.newaxis] * np.exp(-(scores**2) / 2) + (1 - shares[:, np.newaxis]) * (density @ law)
            weights.append(shares * (mixed / (shares + (1 - shares) * near)[:, np.newaxis]).prod(axis=1))
            weights.append(shares / (shares + (1 - shares) * near))
    weight, share = (np.array(weights[start::2]) for start in (0, 1))
    mean = (weight * share).sum() / weight.sum()
    spread = np.sqrt((weight * (share - mean) ** 2).sum() / weight.sum())
    assert null_share(ndtr(-scores)) == pytest.approx(mean + spread / 4 + 1 / 30, abs=0.01)


@pytest.mark.parametrize(("scores", "share"), [([9.0], 1.0), ([9.0] * 50, 0.02), ([-np.inf] * 50, 1.0)])
def test_scores_that_no_null_has_do_not_say_how_many_nulls_there_are(scores: list[float], share: float) -> None:
    assert null_share(ndtr(-np.array(scores))) == pytest.approx(share, abs=0.03)


WORLDS = scaled(300, 2_000)
ZIPF = 12 / np.arange(1, 81) ** 1.2
FAMILIES = {
    **{f"{nulls} of 100": np.append(np.zeros(nulls), np.full(100 - nulls, 2.5)) for nulls in (20, 60, 100)},
    "few among many weak": np.append(np.zeros(30), np.full(270, 1.5)),
    "all but a few too weak for one to tell": np.append(np.zeros(100), np.full(450, 0.9)),
    "a heavy tail": np.append(np.zeros(20), ZIPF),
    "a heavy tail that ends": np.append(np.zeros(100), ZIPF[ZIPF > 2.5]),
    "so many that the share of nulls is sure": np.append(np.zeros(3_000), np.full(27_000, 0.95)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_of_what_is_called_true_at_most_alpha_is_false(name: str) -> None:
    """Families of tests: the mean share of false ones is below .05 and 5 of its standard errors, 3e-7."""
    effects = FAMILIES[name]
    rng = np.random.default_rng(len(effects) + int(10 * effects.sum()))
    worlds = min(WORLDS, scaled(40, 200)) if len(effects) > 10_000 else WORLDS
    shares = []
    for _ in range(worlds):
        called = adaptive(ndtr(-rng.normal(effects)), 0.05)
        shares.append(called[effects == 0].sum() / max(1, called.sum()))
    assert np.mean(shares) < 0.05 + 5 * np.std(shares) / np.sqrt(worlds)


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
