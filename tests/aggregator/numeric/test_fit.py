"""Fits of numbers: without bias, with the spread that they say, and by steps that never lose likelihood."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis import numeric_fit as fit_module
from dither_aggregator.analysis.channel import NumberChannel, channel_of
from dither_aggregator.analysis.numeric_fit import NumberFit, fit, fit_evenly, most_likely, most_likely_of
from dither_aggregator.store import StoredPlan
from tests.aggregator.numeric.test_channel import FORMS, FRESH, MEAN, MEMO, expected, spread
from tests.support.drawn_numbers import Floats, draw_numbers, places_of, stored_number
from tests.support.soaking import SOAK, scaled, thinned

DRAWS, HELD = scaled(150, 2_000), scaled(12, 25)
SIGMAS = 6.0
"""One of 150 means strays that far with a chance of 3e-7, or of 9e-7 by the error that 300 draws show."""
SIGMAS_OF_100 = 6.5
"""The same by the error that 100 draws show, which is 5e-7."""
MANY_DRAWS, MANY_SIGMAS = (300, SIGMAS) if SOAK else (100, SIGMAS_OF_100)
MANY_POINTS = stored_number("low = 0\nhigh = 300\nbuckets = 120", epsilon="1")
FEW_POINTS = stored_number("low = 0\nhigh = 30\nbuckets = 10", epsilon="4")


def fits(stored: StoredPlan, truth: Floats, n: int, draws: int = DRAWS) -> list[NumberFit]:
    plan, rng = stored.plan, np.random.default_rng(n)
    tallies = [draw_numbers(plan, truth, n, rng) for _ in range(draws)]
    return [fit(channel_of(plan, tally.counts, tally.n)) for tally in tallies]


def strays(found: list[NumberFit], truth: Floats) -> float:
    """How many standard errors of the mean the average fit is off, where it is most."""
    raw = np.array([each.raw for each in found])
    error = raw.std(axis=0, ddof=1) / np.sqrt(len(raw))
    return float((np.abs(raw.mean(axis=0) - truth) / np.maximum(error, 1e-12)).max())


@pytest.mark.parametrize(
    ("stored", "draws", "sigmas"),
    thinned([(MANY_POINTS, MANY_DRAWS, MANY_SIGMAS), (FEW_POINTS, 300, SIGMAS), (MEMO, 300, SIGMAS)], 0),
)
def test_least_squares_is_unbiased_where_counts_are_few(stored: StoredPlan, draws: int, sigmas: float) -> None:
    """PGR has 7 of these 3,000 reports or fewer for each point."""
    truth = spread(places_of(stored.plan))
    assert strays(fits(stored, truth, 3_000, draws), truth) < sigmas


def test_the_likeliest_shares_in_the_place_of_unbiased_ones_would_be_caught() -> None:
    truth = spread(places_of(FRESH.plan))
    found = [replace(each, raw=each.shares) for each in fits(FRESH, truth, 3_000, 300)]
    assert strays(found, truth) > SIGMAS


@pytest.mark.parametrize(
    ("buckets", "epsilon", "n", "caught"),
    thinned([(32, "2", 20_000, False), (32, "4", 20_000, False), (256, "4", 3_000, True)], 0, 2),
)
def test_means_hold_and_with_weights_made_of_the_counts_would_not(
    buckets: int, epsilon: str, n: int, caught: bool
) -> None:
    """The mean of 95 % of the fits holds: fewer than the least would with 1e-6, 6 of 12.

    The planted bug weighs each output by its own count: what came out rare counts more. It shows where outputs are
    many, 1,651 for these 3,000 reports.
    """
    stored = stored_number(f"low = 0\nhigh = {2 * buckets}\nbuckets = {buckets}", epsilon=epsilon)
    rng, places, held = np.random.default_rng(1), np.arange(buckets + 2.0), []
    falling = np.exp(-6 * places / len(places))
    truth = np.append(falling / falling.sum(), 0.0)
    mean = np.append(places - places @ truth[:-1], 0.0)
    least = binom.ppf(1e-6, HELD, 0.95)
    for _ in range(HELD):
        tally = draw_numbers(stored.plan, truth, n, rng)
        channel = channel_of(stored.plan, tally.counts, tally.n)
        fitted = fit(channel)
        held.append([holds(each, mean) for each in (fitted, by_counts(channel, fitted))])
    sound, planted = np.sum(held, axis=0).tolist()
    assert sound >= least
    assert planted < least or not caught


def holds(fitted: NumberFit, functional: Floats) -> bool:
    return bool(abs(functional @ fitted.raw) <= 1.96 * fitted.std_error(functional))


def by_counts(channel: NumberChannel, fitted: NumberFit) -> NumberFit:
    """Return the fit whose weights are those of the counts, at least one each."""
    rates = np.maximum(channel.counts, 1) / channel.n
    information: Floats = channel.n * channel.law.T @ (channel.law / rates[:, np.newaxis])
    raw: Floats = np.asarray(np.linalg.solve(information, (channel.counts / rates) @ channel.law), np.float64)
    factor: Floats = np.asarray(np.linalg.cholesky(information).T, np.float64)
    return replace(fitted, raw=raw, scale=channel.part / rates, information=information, factor=factor)


def spread_of(stored: StoredPlan, draws: int) -> tuple[Floats, Floats, NumberChannel]:
    """The standard errors that are said of shares and of shares up to each place, on average; and their spread.

    With few steps: whatever the weights are, their covariance is to be right.
    """
    truth = spread(places_of(stored.plan))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "STEPS_MAX", 30)
        found = fits(stored, truth, 20_000, draws)
    functionals = np.vstack([np.eye(len(truth)), np.tril(np.ones((len(truth), len(truth))))[:-1]])
    said = np.sqrt(np.mean([variances(each, functionals) for each in found], axis=0))
    return said, np.std([each.raw @ functionals.T for each in found], axis=0, ddof=1), found[0].channel


def variances(fitted: NumberFit, functionals: Floats) -> Floats:
    """Return those that the counts show, as if they were never few."""
    return np.asarray(((functionals @ fitted.covariance) * functionals).sum(axis=1))


@pytest.mark.parametrize("stored", [FRESH, MEMO], ids=["fresh", "memoized"])
def test_the_covariance_is_the_spread_of_fits(stored: StoredPlan) -> None:
    """A standard deviation of 2,000 draws has an error of 1.6 %: 9 % would be 5.7 sigma, 1e-8 for each of 50.

    With 150 draws the error is 5.8 %, and as many sigma are 33 %.
    """
    said, found, _ = spread_of(stored, DRAWS)
    assert said == pytest.approx(found, rel=5.7 / np.sqrt(2 * DRAWS))


def test_a_covariance_without_what_a_cells_size_explains_would_be_caught() -> None:
    """A planted bug: how large the cohorts are counts as news, which weights that fit worse than the best ones show."""
    precise = stored_number("low = 0\nhigh = 80\nbuckets = 8", epsilon="6", memo="8")
    places, rng = places_of(precise.plan), np.random.default_rng(5)
    truth, up_to = np.repeat([0.0, 0.9, 0.1, 0.0], [3, 1, 1, places - 5]), np.tril(np.ones((places, places)))[2:-3]
    tallies = [draw_numbers(precise.plan, truth, 20_000, rng) for _ in range(scaled(100, 200))]
    channels = [channel_of(precise.plan, tally.counts, tally.n) for tally in tallies]
    found = np.var([fit_evenly(each).raw @ up_to.T for each in channels], axis=0, ddof=1)
    said, blind = (
        np.mean([variances(fit_evenly(replace(each, cell=each.cell * knows)), up_to) for each in channels], axis=0)
        for knows in (1, 0)
    )
    assert said == pytest.approx(found, rel=5.7 / np.sqrt(100))
    assert blind.max() > 1.6 * found.max()


def test_the_steps_end() -> None:
    tally = draw_numbers(FRESH.plan, spread(places_of(FRESH.plan)), 100_000, np.random.default_rng(4))
    channel = channel_of(FRESH.plan, tally.counts, tally.n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "STEPS_MAX", 100_000)
        long = most_likely(channel)
    assert most_likely(channel) == pytest.approx(long, abs=1e-12)


@FORMS
@pytest.mark.parametrize("steps", [fit_module.STEPS_MAX, 20])
def test_channels_are_fitted_together_as_they_are_one_by_one(stored: StoredPlan, steps: int) -> None:
    """Reports are many and few, so that fits end after different numbers of steps; a noisy count may be below zero."""
    rng = np.random.default_rng(7)
    drawn = [
        channel_of(stored.plan, tally.counts, tally.n)
        for truth in (spread(places_of(stored.plan)), np.eye(places_of(stored.plan))[1])
        for n in (2_000, 3_000, 100_000)
        for tally in [draw_numbers(stored.plan, truth, n, rng)]
    ]
    drawn[1].counts[0] = -3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "STEPS_MAX", steps)
        assert most_likely_of(drawn) == pytest.approx(np.array([most_likely(each) for each in drawn]), abs=1e-13)


@pytest.mark.parametrize("epsilon", thinned(["0.5", "1", "2", "8"], 0, 3))
def test_long_steps_end_where_short_ones_do(epsilon: str) -> None:
    """And none loses likelihood: a long step is as sure as a short one. At epsilon 8 both are the same."""
    stored = stored_number("low = 0\nhigh = 60\nbuckets = 30", epsilon=epsilon)
    places, rng = places_of(stored.plan), np.random.default_rng(8)
    pace = 1.0
    for truth in (spread(places), np.eye(places)[2], np.linspace(1, 2, places) / np.linspace(1, 2, places).sum()):
        for n in (3_000, 1_000_000):
            tally = draw_numbers(stored.plan, truth, n, rng)
            channel = channel_of(stored.plan, tally.counts, tally.n)
            pace = fit_module.pace_of(channel.law)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(fit_module, "pace_of", lambda law: 1.0)
                patch.setattr(fit_module, "STEPS_MAX", 100_000)
                short = likelihood(channel, most_likely(channel))
            assert likelihood(channel, most_likely(channel)) == pytest.approx(short, abs=fit_module.GAIN * (pace + 1))
            path = [np.full(places, 1 / places)]
            for steps in range(1, 40):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(fit_module, "STEPS_MAX", steps)
                    patch.setattr(fit_module, "GAIN", -np.inf)
                    path.append(most_likely(channel))
            gains = np.diff([likelihood(channel, shares) for shares in path])
            assert gains.min() > -1e-12 * n
    assert pace == pytest.approx(np.tanh(float(epsilon) / 2) ** -2, rel=0.05)


def likelihood(channel: NumberChannel, shares: Floats) -> float:
    return float(channel.counts @ np.log(channel.law @ shares))


@FORMS
def test_likeliest_shares_are_shares(stored: StoredPlan) -> None:
    """Also of counts that are zero nearly everywhere: each cell sent one symbol alone."""
    channel = expected(stored, spread(places_of(stored.plan)))
    firsts = np.flatnonzero(np.diff(channel.cell, prepend=-1))
    counts = np.zeros_like(channel.counts)
    counts[firsts] = np.bincount(channel.cell, weights=channel.counts)
    shares = most_likely(replace(channel, counts=counts))
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    assert np.isfinite(fit(replace(channel, counts=counts)).raw).all()


def test_a_count_of_zero_is_not_certain() -> None:
    """Nobody is above the last step, and no report says so, which 200 reports with a share of 1 % do, too."""
    stored = stored_number("low = 0\nhigh = 80\nbuckets = 8", epsilon="8", memo="9")
    truth = np.eye(places_of(stored.plan))[0]
    tally = draw_numbers(stored.plan, truth, 1_600, np.random.default_rng(5))
    found = fit(channel_of(stored.plan, tally.counts, tally.n))
    last = np.eye(len(truth))[-1]
    assert np.sqrt(last @ found.covariance @ last) < 0.002  # as it was once said
    assert found.std_error(last) > 0.006


def test_even_weights_are_the_same_whatever_the_counts_are() -> None:
    truth = spread(places_of(MEAN.plan))
    one, other = (fit_evenly(expected(MEAN, shares, n)) for shares, n in ((truth, 1e6), (truth[::-1], 1e6)))
    symmetric = one.weights - one.weights.mean(axis=0)
    assert symmetric == pytest.approx(other.weights - other.weights.mean(axis=0), rel=1e-6, abs=1e-12)
    assert one.shares != pytest.approx(other.shares, abs=0.01)
