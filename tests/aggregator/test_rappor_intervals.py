"""Decoding reports of Bloom filters: how often intervals hold, and which errors of theirs would be seen."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import inf, sqrt

import numpy as np
import pytest
from scipy.stats import t

from dither_aggregator.analysis import decoder
from dither_aggregator.analysis import decoder_equations as equations_module
from dither_aggregator.analysis.decoder import Channel, decode, least_squares
from dither_aggregator.analysis.decoder_equations import (
    FOLDS,
    PARTS,
    Equations,
    Passed,
    gains_of,
    make_equations,
    merge,
    pass_messages,
    weights_of,
)
from dither_aggregator.analysis.inference import Z
from tests.benchmarks import rappor
from tests.benchmarks.rappor import CASES, HALF_MISSING, Case, Draw, draw, draw_case, map_of
from tests.support.decoding import LOOSE, SHARES, TENFOLD, TYPICAL, Floats, column, drawn, expected_tally, names
from tests.support.soaking import SOAK, scaled, thinned

SEEDS = 10


@cache
def score_of(case: Case, seed: int) -> rappor.Score:
    """Return what the unchanged decoder makes of a seed: tests of one case share it."""
    drawn_ = draw_case(case, seed)
    return rappor.score(decode(drawn_.tally, drawn_.candidates, drawn_.bits, case.channel), drawn_)


def scores_of(case: Case, seeds: int = SEEDS) -> list[rappor.Score]:
    return [score_of(case, seed) for seed in range(seeds)]


def hold(scores: Sequence[rappor.Score]) -> float:
    """The share of all candidates' intervals that hold, over the seeds."""
    return float(np.mean([score.held for score in scores]))


FEW_OF_LOOSE = replace(LOOSE, channel=rappor.channel_of(32, 2, 128, f=0, p=0.225, q=0.775))
FEW_OF_HALF = replace(HALF_MISSING, channel=rappor.channel_of(16, 2, 128, f=0.5, p=0.25, q=0.75))
"""With so many more equations their candidates are fitted at once."""


@pytest.mark.parametrize(
    "case",
    thinned([TYPICAL, LOOSE, HALF_MISSING, FEW_OF_LOOSE, FEW_OF_HALF, replace(LOOSE, n=2_000)], 0, 3, 4),
    ids=lambda case: str(case.name),
)
def test_intervals_hold(case: Case) -> None:
    """10 seeds of about 100 candidates: 95 % within 3 points, 4 standard deviations of as many independent ones."""
    assert abs(hold(scores_of(case)) - 0.95) < 0.03


def test_a_decoder_without_the_unlisted_column_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "unlisted", 0.0)
    assert hold(rappor.measure(FEW_OF_HALF, 5)) < 0.92


def test_errors_of_the_noise_alone_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither_aggregator.analysis.decoder._scale", lambda *_: 1.0)
    assert hold(rappor.measure(FEW_OF_LOOSE, 5)) < 0.9


def test_errors_allow_for_what_a_missing_string_takes_from_the_other_bits() -> None:
    """100 hashes, six strings, of which two with half of the mass are missing: the spread of the estimates' errors, in
    standard errors, is 1 within 12 %, 5 sigma; the chi-square of all bits would leave it at 1.15."""
    channel, shares = Channel(4, 1, 64, 0.1, 0.9), np.array([0.125, 0.125, 0.125, 0.125, 0.3, 0.2])
    ratios, ratios_of_all = [], []
    for seed in range(100):
        tally, values, bits = drawn(channel, shares, 100_000, seed)
        decoded = decode(tally, values[:4], bits[:4], channel)
        ratios.append((column(decoded, "estimate") - 0.125) / column(decoded, "std_error"))
        equations = make_equations(tally, merge(bits[:4])[0], channel)
        fit = least_squares(equations, np.arange(4))
        ratios_of_all.append(ratios[-1] * fit.scale / sqrt(decoded.chi_square / decoded.degrees_of_freedom))
    assert abs(np.std(ratios) - 1) < 0.12
    assert np.std(ratios_of_all) == pytest.approx(1.15, abs=0.12)
    assert np.std(ratios_of_all) > 1.1 * np.std(ratios)


def test_intervals_hold_with_more_candidates_than_equations() -> None:
    """3 seeds of 1,090 candidates: 95 % within 2 points, 5 standard deviations; and of false ones Holm calls none."""
    scores = scores_of(TENFOLD, scaled(3, 6))
    assert abs(np.mean([score.held for score in scores]) - 0.95) < 0.02
    assert sum(score.false_holm for score in scores) <= 1
    assert all(score.missing_held for score in scores[:3])


LONG = Channel(8, 2, 64, 0.35, 0.65)
LONG_SHARES = np.append(1 / np.arange(1, 101), np.zeros(500)) / sum(1 / np.arange(1, 101))
LISTED = np.arange(600) % 10 >= 3
"""Three tenths of 600 strings, for 512 equations, are not in the list, the most frequent one among them."""


def off_of_a_long_list(seed: int) -> tuple[Floats, bool]:
    """The candidates' errors in standard errors, and whether the interval of unlisted strings holds."""
    tally, values, bits = drawn(LONG, LONG_SHARES, 1_000_000, seed)
    decoded = decode(tally, [value for value, listed in zip(values, LISTED, strict=True) if listed], bits[LISTED], LONG)
    off = (column(decoded, "estimate") - LONG_SHARES[LISTED]) / column(decoded, "std_error")
    return off, decoded.unexplained_lower < 1 - LONG_SHARES[LISTED].sum() < decoded.unexplained_upper


def test_intervals_hold_where_much_is_unlisted_and_candidates_outnumber_equations() -> None:
    """6 seeds of 420 candidates: 95 % within 2.2 points, 5 standard deviations, false alarms 6e-7."""
    off, held = zip(*map(off_of_a_long_list, range(6)), strict=True)
    assert abs(np.mean(np.abs(off) < Z) - 0.95) < 0.022
    assert sum(held) >= 2, "of six, each with 95 %, fewer hold in 2e-6 cases"


def test_a_fit_that_went_astray_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit is noise; 2 seeds of 420 candidates: 95 % within 3.8 points, 5 standard deviations, false alarms 6e-7."""

    def astray(equations: Equations, training: Floats, start: Passed | None = None, rounds_min: int = 0) -> Passed:
        passed = pass_messages(equations, training, start, rounds_min)
        return replace(passed, shares=np.random.default_rng(1).random(passed.shares.shape))

    monkeypatch.setattr(decoder, "pass_messages", astray)
    assert abs(np.mean(np.abs([off_of_a_long_list(seed)[0] for seed in range(2)]) < Z) - 0.95) < 0.038


def test_with_nothing_fitted_each_estimate_is_the_regression_on_one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mean of all bits: with one of each cohort, which leaves the cohorts' sums out, it would be another one."""
    tally, values, bits = drawn(LONG, LONG_SHARES, 1_000_000, 1)
    equations = make_equations(tally, merge(bits)[0], LONG)

    def nothing(equations: Equations, training: Floats, start: Passed | None = None, rounds_min: int = 0) -> Passed:
        passed = pass_messages(equations, training, start, rounds_min)
        return replace(passed, shares=np.zeros_like(passed.shares), own=np.zeros_like(passed.own))

    monkeypatch.setattr(decoder, "pass_messages", nothing)
    estimate = column(decode(tally, values, bits, LONG), "estimate")
    # Nothing fitted, all bits have the rate of unlisted strings: a weight is the number of the cohort's reports.
    weight, columns = equations.reports.astype(np.float64), equations.patterns.toarray().T
    of_all = columns - weight @ columns / weight.sum()
    within = equations.within_cohorts(columns)
    slopes, slopes_within = ((weight * equations.share) @ each / (weight @ each**2) for each in (of_all, within))
    assert np.abs(estimate - slopes).max() < 1e-9
    assert np.abs(estimate - slopes_within).max() > 1e-3


def test_what_is_added_to_all_bits_alike_changes_no_estimate() -> None:
    """As reports add to them that send every bit, or a channel that is a little off."""
    tally, _, bits = drawn(LONG, LONG_SHARES, 1_000_000, 1)
    equations = make_equations(tally, merge(bits)[0], LONG)
    found, same = (decoder.infer_by_folds(replace(equations, share=equations.share + added)) for added in (0.0, 0.05))
    assert np.allclose(found.estimate, same.estimate, rtol=0, atol=1e-9)
    assert np.allclose(found.strangers, same.strangers, rtol=0, atol=1e-9)


def with_their_own(equations: Equations, norm: Floats) -> tuple[Floats, Floats, float]:
    """Plant a bug: a candidate's own share of its residual stays in."""
    passed = pass_messages(equations, np.ones((len(equations.weight), 1)))
    residual = replace(passed, own=np.zeros_like(passed.own)).residual(equations)[:, 0]
    gains = gains_of(equations.weight, residual)
    return norm * passed.shares[:, 0] + equations.patterns @ gains, gains, float(gains @ residual)


def held_of_those_there() -> float:
    """How often the intervals of strings that somebody has hold, of 360 in long lists."""
    held = []
    for seed in range(4):
        draw_ = drawn_once(TENFOLD, seed)
        decoded = decode(draw_.tally, draw_.candidates, draw_.bits, TENFOLD.channel)
        off = (column(decoded, "estimate") - draw_.truth) / column(decoded, "std_error")
        held.append(np.abs(off[draw_.truth > 0]) < Z)
    return float(np.mean(held))


def test_a_fit_of_all_cohorts_that_went_astray_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 seeds: 95 % of 360 hold, less 5.7 points at most, 5 standard deviations; taken, the fit would be caught."""
    monkeypatch.setattr(decoder, "_of_all_cohorts", with_their_own)
    assert held_of_those_there() > 0.893
    monkeypatch.setattr(decoder, "ASTRAY", (0.0, inf))
    assert held_of_those_there() < 0.893


NEARER_SEEDS = 4


def square_off(seed: int) -> float:
    """The mean square of how far the estimates of a long list are off."""
    draw_ = drawn_once(TENFOLD, seed)
    decoded = decode(draw_.tally, draw_.candidates, draw_.bits, TENFOLD.channel)
    return float(np.mean((column(decoded, "estimate") - draw_.truth) ** 2))


def test_a_fit_of_all_cohorts_is_nearer_to_the_truth_than_fits_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 seeds of 1,090 candidates: squares are .980 of those by parts, each seed's within .005: .993 is 5 deviations.

    Were the parts' estimates always taken, the two would be equal, and that is seen.
    """
    of_all = [square_off(seed) for seed in range(NEARER_SEEDS)]
    monkeypatch.setattr(decoder, "ASTRAY", (inf, inf))
    by_parts = [square_off(seed) for seed in range(NEARER_SEEDS)]
    assert np.mean(np.divide(of_all, by_parts)) < 0.993


@pytest.mark.parametrize("cohorts", [5, 20])
def test_no_fit_has_seen_the_cohorts_that_its_residuals_are_of(monkeypatch: pytest.MonkeyPatch, cohorts: int) -> None:
    """Other reports of one part's cohorts leave that part's fits the same to the bit, and change all others.

    All fits end with the same round, which all of them say together, so that the rounds have to be a fixed number.
    """
    monkeypatch.setattr(equations_module, "GAIN_MIN", -np.inf)
    monkeypatch.setattr(equations_module, "ROUNDS_MAX", 3)
    channel = replace(LONG, m=cohorts)
    tally, _, bits = drawn(channel, LONG_SHARES, 100_000, 1)
    equations = make_equations(tally, merge(bits)[0], channel)
    coarse, fine = (decoder.held_out_of(equations, most) for most in (FOLDS, PARTS))

    def fits(equations: Equations) -> Floats:
        start = pass_messages(equations, 1 - coarse).parts(fine.shape[1])
        return pass_messages(equations, 1 - fine, start).shares

    changed = replace(equations, share=equations.share + fine[:, 3] * np.linspace(0, 1, len(equations.share)))
    same = (fits(equations) == fits(changed)).all(axis=0)
    assert same.tolist() == [part == 3 for part in range(fine.shape[1])]


@cache
def drawn_once(case: Case, seed: int) -> Draw:
    return draw_case(case, seed)


def far_off(case: Case, seeds: int, most: float = inf) -> int:
    """How many estimates are more than 3 standard errors off, over the seeds until there are `most`."""
    far = 0
    for seed in range(seeds):
        if far >= most:
            break
        draw_ = drawn_once(case, seed)
        decoded = decode(draw_.tally, draw_.candidates, draw_.bits, case.channel)
        far += int((np.abs(column(decoded, "estimate") - draw_.truth) > 3 * column(decoded, "std_error")).sum())
    return far


TOLD_WELL = replace(next(case for case in CASES if (case.name, case.law) == ("tenfold", "zipf1")), n=100_000_000)


FAR_SEEDS, FAR_MAX = (10, 60) if SOAK else (2, 22)
"""So many estimates, or more, lie beyond 3 standard errors in 3e-7 of runs: of 10,900 or 2,180, 29.4 or 5.9 do."""


@pytest.mark.slow
def test_few_estimates_are_far_off() -> None:
    assert far_off(TOLD_WELL, FAR_SEEDS) < FAR_MAX


@pytest.mark.slow
def test_fitting_and_estimating_on_the_same_cohorts_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_same(equations: Equations, training: Floats, start: Passed | None = None, rounds_min: int = 0) -> Passed:
        return pass_messages(equations, training if training.all() else 1 - training, rounds_min=rounds_min)

    monkeypatch.setattr(decoder, "pass_messages", of_the_same)
    assert far_off(TOLD_WELL, FAR_SEEDS, FAR_MAX) >= FAR_MAX


@pytest.mark.parametrize("case", thinned([TYPICAL, LOOSE], 0), ids=lambda case: str(case.name))
def test_found_intervals_hold_and_few_are_false(case: Case) -> None:
    """10 seeds of about 90 found ones, of which 5 % may be false and 5 % may miss: both stay below 9 %, 5 standard
    deviations above, false alarms 3e-7."""
    scores = scores_of(case)
    assert sum(score.false for score in scores) < 0.09 * sum(score.found for score in scores)
    assert np.mean([score.shown_held for score in scores]) > 0.91


def test_what_the_list_misses_is_measured() -> None:
    """Half of the mass is missing: of 15 intervals fewer than 8 hold it in 2e-7 of runs, of 10 fewer than 4 in 1e-7."""
    scores = scores_of(HALF_MISSING, 15) if SOAK else scores_of(FEW_OF_HALF)
    assert sum(score.missing_held for score in scores) >= scaled(4, 8)
    assert abs(np.mean([score.missing for score in scores])) < 0.06


@pytest.mark.parametrize(("k", "h", "m"), thinned([(8, 2, 32), (8, 2, 128), (128, 4, 32)], 0))
def test_the_errors_of_frequent_strings_hold_where_noise_is_weak(k: int, h: int, m: int) -> None:
    """100 seeds: the spread of what two strings have is the stated one within 25 %, 3.5 sigma, and no smaller one."""
    channel, shares = Channel(k, h, m, 0.05, 0.95), np.array([0.6, 0.4, 0.0])
    runs = [decode(*drawn(channel, shares, 50_000, seed), channel) for seed in range(100)]
    errors = np.array([column(run, "estimate") for run in runs]) - shares
    stated = np.mean([column(run, "std_error") for run in runs], axis=0)
    assert np.abs(errors[:, :2].std(axis=0) / stated[:2] - 1).max() < 0.25
    independent = stated[:2] ** 2 - (1 - 1 / h) * shares[:2] * (1 - shares[:2]) / 50_000
    assert (errors[:, :2].std(axis=0) > 1.2 * np.sqrt(independent)).all()


@pytest.mark.parametrize(
    "case", thinned([TYPICAL, TENFOLD, HALF_MISSING, LOOSE], 0, 1), ids=lambda case: str(case.name)
)
def test_the_proportion_is_nearer_to_the_truth_than_the_originals(case: Case) -> None:
    """3 seeds; the benchmark has all cases and 20."""
    assert np.mean([score.tv for score in scores_of(case, 3)]) < case.original.tv + 0.02


# The benchmark's draws.


def test_drawn_counts_follow_their_law() -> None:
    """300 seeded tallies: every count's mean within 6 sigma, and the spread of all of them within 2 %."""
    channel, rng = Channel(8, 2, 4, 0.3, 0.7), np.random.default_rng(6)
    bits = map_of(names(5), channel)
    rate = (expected_tally(channel, bits, SHARES)[:, 1:] / 10**12).ravel()
    counts = np.array([draw(channel, bits, SHARES, 4_000, rng)[0][:, 1:].ravel() for _ in range(300)])
    mean, sigma = 1_000 * rate, np.sqrt(4_000 * rate / 4 * (1 - rate / 4))
    assert np.abs((counts.mean(axis=0) - mean) / sigma).max() < 6 / sqrt(300)
    assert np.mean(counts.std(axis=0) / sigma) == pytest.approx(1, abs=0.02)


FEW = Channel(64, 1, 128, 0.027, 0.51)
"""Little noise, and so many bits that with 4,000 reports each is sent once or less."""
SEEDS_OF_FEW = scaled(30, 60)


def of_few_reports(seed: int) -> Floats:
    tally, values, bits = drawn(FEW, np.array([0.5, 0.375, 0.125, 0.0, 0.0]), 4_000, seed)
    decoded = decode(tally, values, bits, FEW)
    return np.append(column(decoded, "estimate"), decoded.unexplained)


def test_few_reports_in_a_cohort_bias_nothing() -> None:
    """No mean of five strings, two of them absent, and of what is unlisted is so far off: by the t law, 1e-6."""
    runs = np.array([of_few_reports(seed) for seed in range(SEEDS_OF_FEW)])
    truth = np.array([0.5, 0.375, 0.125, 0.0, 0.0, 0.0])
    off = np.abs(runs.mean(axis=0) - truth) / (runs.std(axis=0, ddof=1) / np.sqrt(SEEDS_OF_FEW))
    assert off.max() < t.isf(1e-6 / (2 * len(truth)), SEEDS_OF_FEW - 1)


def test_weights_made_of_the_counts_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_counts(equations: Equations) -> Equations:
        rate = FEW.p_star + (FEW.q_star - FEW.p_star) * equations.share
        return replace(equations, weight=weights_of(rate, equations.reports, FEW))

    monkeypatch.setattr(decoder, "reweighted", of_counts)
    runs = np.array([of_few_reports(seed) for seed in range(20)])
    assert runs[:, 0].mean() < 0.49
    assert runs[:, -1].mean() < -0.5
