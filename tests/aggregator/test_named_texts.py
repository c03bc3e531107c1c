"""Texts that are named: how many of them are false, and how many the original's two steps name beside them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dither_aggregator.analysis import decoder
from dither_aggregator.analysis.decoder import Channel, decode
from dither_aggregator.analysis.rows import benjamini_hochberg
from tests.benchmarks import missed
from tests.benchmarks.missed import POPULATIONS, Population, Run
from tests.support.decoding import Floats, drawn
from tests.support.soaking import scaled, thinned

SEEDS = scaled(8, 12)
CHOSEN = {
    each.name: each
    for each in thinned([each for each in POPULATIONS if each.n <= 1_000_000 and each.false == 20], 0, 3, 4, 6)
}


@cache
def runs_of(name: str) -> list[Run]:
    return missed.measure(CHOSEN[name], SEEDS)


@pytest.mark.parametrize("level", missed.LEVELS)
@pytest.mark.parametrize("name", CHOSEN)
def test_of_what_is_named_no_more_is_false_than_was_asked(name: str, level: float) -> None:
    """The mean over seeds: below the level and 5 of its standard errors, 3e-7."""
    false = [run.at[level].false_share for run in runs_of(name)]
    assert np.mean(false) < level + 5 * max(float(np.std(false)), 0.3 * level) / np.sqrt(SEEDS)


@pytest.mark.parametrize("level", missed.LEVELS)
def test_as_much_is_false_as_a_decoder_says_that_takes_no_risk(level: float) -> None:
    """All populations together: .6 of what is reached where strings too rare to be seen are nobody's, at least."""
    false = [run.at[level].false_share for name in CHOSEN for run in runs_of(name)]
    reachable = np.mean([level * run.reachable for name in CHOSEN for run in runs_of(name)])
    assert np.mean(false) > 0.6 * reachable
    assert np.mean(false) < level


def test_as_many_true_texts_are_named_as_by_the_originals_two_steps() -> None:
    """Means over seeds at the original's share of false ones; one in ten may be fewer, by one text in 20 at most."""
    lines = [missed.Line.of(each, runs_of(name)) for name, each in CHOSEN.items()]
    assert all(line.ours > 0.95 * line.theirs for line in lines)
    assert sum(line.ours for line in lines) > sum(line.theirs for line in lines)


def test_intervals_of_what_is_named_hold() -> None:
    """2,300 intervals or more: 94 to 98 % of them hold."""
    assert 0.94 < np.mean([run.score.shown_held for name in CHOSEN for run in runs_of(name)]) < 0.98


def test_names_without_a_count_of_nulls_would_be_seen_to_be_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "adaptive", benjamini_hochberg)
    runs = missed.measure(CHOSEN["small unif"], 4)
    few = np.mean([run.at[0.05].true for run in runs])
    assert few < 0.9 * np.mean([run.at[0.05].true for run in runs_of("small unif")])


def test_the_benchmark_tells_how_sure_a_difference_is_and_what_could_be_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_of("small unif")
    assert missed.error_of_more(runs[:1]) == 0 < missed.error_of_more(runs) < 20
    assert missed.error_of_more([runs[0]] * 3) == 0
    assert missed.could(runs, 0.01) <= missed.could(runs, 0.1)
    monkeypatch.setattr(missed, "measure", lambda population, *_, **__: runs_of(population.name))
    missed.compare([CHOSEN["small unif"]], SEEDS, truth=True, asked=True)
    line = missed.Line.of(CHOSEN["small unif"], runs)
    (told,) = (each for each in capsys.readouterr().out.splitlines() if "small unif" in each)
    assert [f"{number:.1f}" in told for number in (line.theirs, line.ours, line.asked)] == [True, True, True]


def test_no_decoder_passes_the_limit() -> None:
    """Beside 20 that nobody has lie 80 whose sum is .4 standard deviations away, in 100,000 draws of either kind.

    The decoder names five times as many where the sum is so large as in a fifth of draws in which nobody has the 80.
    Its share is that of the limit within .01, 5 standard deviations; by other sums, as rare, it is less.
    """
    limit = missed.limit(np.append(np.zeros(20), np.full(80, 0.05)))
    absent, there = np.random.default_rng(1).normal(np.array([[0.0], [0.4]]), size=(2, 100_000))
    least = np.quantile(absent, 0.8)
    assert np.mean(there > least) == pytest.approx(limit, abs=0.01)
    assert np.mean(there < np.quantile(absent, 0.2)) < limit - 0.1
    assert missed.limit(np.zeros(5)) == 1 == missed.reachable(np.zeros(5))
    assert missed.limit(np.append(np.zeros(5), np.full(15, 1e-9))) == pytest.approx(0.25)
    assert missed.limit(np.append(np.zeros(5), np.full(15, 40.0))) == pytest.approx(1)


def test_a_fit_that_knows_the_law_finds_about_as_many() -> None:
    """4 draws of 90 strings of equal shares: as many are found within a tenth.

    The planted bug knows that nobody has any, and so leaves each string to all others as noise.
    """
    population = CHOSEN["small unif"]
    runs = [missed.run_once(population, seed, by_law=True) for seed in range(4)]
    knowing, ours = missed.at_the_truth(runs, by_law=True), missed.at_the_truth(runs)
    assert 0.9 * ours < knowing < 1.1 * ours
    drawn_ = missed.draw_population(population, 0)
    of_none = missed.scores_by_the_law(replace(drawn_, truth=0 * drawn_.truth), population.channel)
    of_law = missed.scores_by_the_law(drawn_, population.channel)
    there = drawn_.truth > 0
    assert of_none[there].mean() < 0.9 * of_law[there].mean()


def test_the_original_is_least_squares_with_the_usual_errors() -> None:
    channel = Channel(16, 2, 32, 0.25, 0.75)
    tally, values, bits = drawn(channel, np.array([0.4, 0.3, 0.2, 0.1, 0.0, 0.0]), 20_000)
    decoded = decode(tally, values, bits, channel)
    ours: Floats = np.array([row.estimate / row.std_error for row in decoded.rows])
    theirs = missed.originals_scores(tally, bits, channel)
    assert theirs[:4] == pytest.approx(ours[:4], rel=0.2)
    assert np.isfinite(theirs).all()


def test_the_populations_are_twenty_of_all_sizes_and_laws() -> None:
    assert len(POPULATIONS) == len({each.name for each in POPULATIONS}) == 20
    half = Population("half missing", "exp", 100, 100_000, 0.5, 20, missed.HALF)
    assert half in POPULATIONS
    assert 0.35 < missed.draw_population(half, 1).truth.sum() <= 0.5
