"""Decoding reports of Bloom filters: expected counts, odd channels and lists, what is said and refused."""

import json
from dataclasses import replace
from itertools import product
from math import isfinite, sqrt
from statistics import NormalDist

import numpy as np
import pytest
from scipy.special import stdtrit

from dither_aggregator.analysis.decoder import Candidate, Channel, Decoded, decode, least_squares
from dither_aggregator.analysis.decoder_equations import Prior, make_equations, merge, reweighted
from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.texts import bits_in
from dither_shared.errors import InvalidParameter
from dither_shared.hashing import bloom_bits
from tests.benchmarks.rappor import draw_case, map_of
from tests.support.decoding import (
    CHANNEL,
    SHARES,
    TYPICAL,
    Ints,
    column,
    drawn,
    expected_tally,
    names,
)
from tests.support.soaking import thinned


@pytest.mark.parametrize(("k", "h"), [(8, 2), (11, 3), (256, 16)])
def test_the_bits_of_many_cohorts_are_those_of_each(k: int, h: int) -> None:
    values, cohorts = ("", "abc", "Zürich"), range(250, 262)
    each = [[list(bloom_bits(value, cohort, k, h)) for cohort in cohorts] for value in values]
    assert bits_in(cohorts, values, k, h).tolist() == each
    assert bits_in(cohorts, (), k, h).shape == (0, 12, h)


@pytest.mark.parametrize(("false", "h"), thinned([*product((0, 50, 1_000), (1, 2, 4))], 0, 5, 7))
def test_expected_counts_give_the_truth(false: int, h: int) -> None:
    """With 50 and 1,000 false candidates for 512 equations by folds; the inverted channel reads the same."""
    for p_star, q_star in ((0.375, 0.625), (0.8, 0.2)):
        channel = Channel(16, h, 32, p_star, q_star)
        truth = np.append(SHARES, np.zeros(false))
        values = names(len(truth))
        bits = map_of(values, channel)
        decoded = decode(expected_tally(channel, bits, truth), values, bits, channel)
        assert [row.value for row in decoded.rows] == values
        assert np.allclose(column(decoded, "estimate"), truth, atol=1e-6)
        assert np.allclose(column(decoded, "proportion"), truth, atol=1e-4)
        assert abs(decoded.unexplained) < 1e-5
        assert decoded.chi_square < decoded.degrees_of_freedom


def test_standard_errors_are_those_of_the_inverse_by_brute_force() -> None:
    tally, values, bits = drawn(CHANNEL, np.append(SHARES, 0.0), 20_000)
    patterns, _ = merge(bits)
    equations = reweighted(make_equations(tally, patterns, CHANNEL))
    columns = np.column_stack([equations.patterns.toarray().T, np.full(16 * 32, 1 - (15 / 16) ** 2)])
    assert (columns[:, 0].reshape(32, 16).sum(axis=1) == [len(set(cohort)) for cohort in bits[0].tolist()]).all()
    inverse = np.linalg.inv(columns.T @ (columns * equations.weight[:, np.newaxis]))
    coefficients = inverse @ columns.T @ (equations.weight * equations.share)
    decoded = decode(tally, values, bits, CHANNEL)
    assert np.allclose(column(decoded, "estimate"), coefficients[:-1], atol=1e-12)
    assert decoded.unexplained == pytest.approx(coefficients[-1], abs=1e-12)
    residual = equations.share - columns @ coefficients
    assert decoded.chi_square == pytest.approx((equations.weight * residual**2).sum())
    assert decoded.degrees_of_freedom == 16 * 32 - 7
    scale = least_squares(equations, np.arange(6)).scale
    sampling = np.clip(coefficients, 0, 1) * (1 - np.clip(coefficients, 0, 1)) / (2 * 20_000)
    errors = np.sqrt(scale**2 * np.diag(inverse) + sampling)
    assert np.allclose(column(decoded, "std_error"), errors[:-1], rtol=1e-9)
    assert np.allclose(column(decoded, "upper") - column(decoded, "lower"), 2 * 1.959964 * errors[:-1], rtol=1e-6)
    assert decoded.unexplained_upper - decoded.unexplained == pytest.approx(1.959964 * errors[-1], rel=1e-6)


@pytest.mark.parametrize(("k", "m"), [(16, 1), (1, 4)])
def test_one_cohort_or_bit_tells_nothing_of_many_candidates(k: int, m: int) -> None:
    channel = Channel(k, 2, m, 0.25, 0.75)
    tally, values, bits = drawn(channel, np.full(40, 1 / 40), 10_000)
    decoded = decode(tally, values, bits, channel)
    assert {row.std_error for row in decoded.rows} == {1.0}
    assert (decoded.unexplained, decoded.unexplained_upper) == (0, Z)


@pytest.mark.parametrize(("k", "h", "m"), [(2, 1, 8), (4, 2, 2), (8, 8, 8), (32, 1, 3)])
def test_small_channels_give_numbers(k: int, h: int, m: int) -> None:
    channel = Channel(k, h, m, 0.25, 0.75)
    decoded = decode(*drawn(channel, np.full(30, 1 / 30), 10_000), channel)
    assert np.isfinite(column(decoded, "estimate")).all()
    assert ((column(decoded, "std_error") > 0) & (column(decoded, "std_error") <= 1)).all()
    assert isfinite(decoded.chi_square)


def test_intervals_of_found_candidates_allow_for_being_found() -> None:
    draw_ = draw_case(TYPICAL, 1)
    decoded = decode(draw_.tally, draw_.candidates, draw_.bits, TYPICAL.channel)
    found = sum(row.significant for row in decoded.rows)
    z = -stdtrit(decoded.error_freedom, 0.025 * found / len(decoded.rows))
    assert z > -NormalDist().inv_cdf(0.025 * found / len(decoded.rows))
    for row, shown in zip(decoded.rows, decoded.shown, strict=True):
        half = (z if row.significant else -stdtrit(decoded.error_freedom, 0.025)) * row.std_error
        assert (shown.lower, shown.upper) == pytest.approx((row.estimate - half, row.estimate + half), abs=1e-12)
    assert decoded.to_document()["rows"] == [vars(row) for row in decoded.shown]


def test_candidates_with_equal_bits_are_one_group() -> None:
    tally, values, bits = drawn(CHANNEL, SHARES, 100_000)
    twin = bits[1][:, ::-1]  # the same bits from the other hash
    decoded = decode(tally, [*values, "twin"], np.concatenate([bits, twin[np.newaxis]]), CHANNEL)
    alone = decode(tally, values, bits, CHANNEL)
    assert [row.group for row in decoded.rows] == ["", "v2", "", "", "", "v2"]
    assert replace(decoded.rows[5], value="v2") == decoded.rows[1]
    assert replace(decoded.rows[1], group="") == alone.rows[1]
    assert any("'v2'" in sentence and "together" in sentence for sentence in decoded.sentences)


def test_cohorts_without_reports_say_nothing() -> None:
    tally, values, bits = drawn(CHANNEL, SHARES, 100_000)
    empty = np.arange(32) % 3 == 1
    tally[empty] = 0
    decoded = decode(tally, values, bits, CHANNEL)
    fewer = replace(CHANNEL, m=int((~empty).sum()))
    without = decode(tally[~empty], values, bits[:, ~empty], fewer)
    assert decoded.rows == without.rows
    assert decoded.n == tally[:, 0].sum()


@pytest.mark.parametrize(("candidates", "n"), [(1, 0), (1, 2), (5, 1), (5, 100), (600, 0), (600, 7)])
def test_few_reports_give_wide_intervals_and_no_verdicts(n: int, candidates: int) -> None:
    tally, values, bits = drawn(CHANNEL, np.full(candidates, 1 / candidates), n, seed=4)
    decoded = decode(tally, values, bits, CHANNEL)
    for row in decoded.rows:
        numbers = (row.estimate, row.std_error, row.lower, row.upper, row.proportion)
        assert all(map(isfinite, numbers))
        assert 0 < row.std_error <= 1
        assert not row.significant_holm or candidates == 1  # which all of them hold


def test_no_reports_are_said_to_say_nothing() -> None:
    decoded = decode(np.zeros((32, 17), dtype=np.int64), names(3), map_of(names(3), CHANNEL), CHANNEL)
    assert decoded.sentences == ("There are no reports: nothing is known.",)
    assert decoded.rows[0] == Candidate("v1", 0.0, 1.0, -Z, Z, 0.0, significant=False, significant_holm=False, group="")


def test_a_candidate_that_sets_all_bits_cannot_be_told_from_unlisted_strings() -> None:
    channel = Channel(2, 2, 40, 0.25, 0.75)
    bits = np.concatenate([np.tile([0, 1], (1, 40, 1)), map_of(names(2), channel)])
    decoded = decode(expected_tally(channel, bits, np.array([0.2, 0.5, 0.3])), ["all", *names(2)], bits, channel)
    assert decoded.rows[0].std_error == 1
    assert np.allclose(column(decoded, "estimate")[1:], [0.5, 0.3], atol=1e-6)
    assert any("say nothing" in sentence for sentence in decoded.sentences)


def test_candidates_that_depend_on_each_other_are_not_told_apart() -> None:
    """With one hash a and b together set the same bits as c and d: of none of them anything is known, of e it is."""
    channel = Channel(8, 1, 60, 0.25, 0.75)
    bits = map_of(names(5), channel)
    bits[2, :30], bits[2, 30:], bits[3, :30], bits[3, 30:] = bits[0, :30], bits[1, 30:], bits[1, :30], bits[0, 30:]
    decoded = decode(expected_tally(channel, bits, SHARES), names(5), bits, channel)
    assert column(decoded, "std_error")[:4].tolist() == [1, 1, 1, 1]
    assert decoded.rows[4].estimate == pytest.approx(0.05, abs=1e-6)
    assert decoded.rows[4].std_error < 0.01


def test_a_channel_without_noise_is_read_exactly() -> None:
    channel = Channel(16, 2, 32, 0.0, 1.0)
    tally, values, bits = drawn(channel, SHARES, 5_000)
    decoded = decode(tally, values, bits, channel)
    assert np.abs(column(decoded, "estimate") - SHARES).max() < 6 * sqrt(0.25 / 5_000)


def test_a_list_that_explains_nothing_is_said_not_to_fit() -> None:
    tally, _, _ = drawn(CHANNEL, SHARES, 200_000)
    others = [f"w{number}" for number in range(50)]
    decoded = decode(tally, others, map_of(others, CHANNEL, CHANNEL.m), CHANNEL)
    assert decoded.unexplained_lower < 1 < decoded.unexplained_upper
    assert not any(row.significant_holm for row in decoded.rows)
    assert any("do not explain" in sentence for sentence in decoded.sentences)
    assert any("not in the list hold about" in sentence for sentence in decoded.sentences)


def test_a_list_that_fits_needs_no_words() -> None:
    assert decode(*drawn(CHANNEL, SHARES, 200_000, seed=2), CHANNEL).sentences == ()


def test_a_long_list_that_fits_is_said_to_be_long_and_no_more() -> None:
    tally, values, bits = drawn(CHANNEL, np.append(SHARES, np.zeros(600)), 200_000)
    (sentence,) = decode(tally, values, bits, CHANNEL).sentences
    assert sentence.startswith("605 candidates are many for 512 equations")


def test_the_order_of_candidates_changes_nothing() -> None:
    tally, values, bits = drawn(CHANNEL, np.append(SHARES, np.zeros(600)), 200_000)
    forward, backward = decode(tally, values, bits, CHANNEL), decode(tally, values[::-1], bits[::-1], CHANNEL)
    for name in ("estimate", "std_error", "significant"):
        assert np.allclose(column(forward, name), column(backward, name)[::-1], atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 100_000])
def test_the_document_is_json_without_gaps(n: int) -> None:
    tally, values, bits = drawn(CHANNEL, SHARES, n)
    document = decode(tally, values, bits, CHANNEL).to_document()
    read = json.loads(json.dumps(document, allow_nan=False))
    assert read["rows"][0].keys() == Candidate.__dataclass_fields__.keys()
    assert None not in read["rows"][0].values()
    assert read["summary"]["n"] == n
    assert read["summary"].keys() == Decoded.__dataclass_fields__.keys() - {"rows", "error_freedom", "strangers"}


def spoil(tally: Ints, place: tuple[int, int], count: int) -> Ints:
    spoiled = tally.copy()
    spoiled[place] = count
    return spoiled


def test_what_cannot_be_is_refused() -> None:
    tally, values, bits = drawn(CHANNEL, SHARES, 1_000)
    wrong = {
        "32 rows of 17": (tally[:-1], values, bits),
        r"the shape \(32, 16\)": (tally[:, :-1], values, bits),
        "at least one candidate": (tally, [], bits[:0]),
        r"\(4, 32, 2\)": (tally, values[:-1], bits),
        r"shape \(5, 32, 2\), got \(5, 32, 1\)": (tally, values, bits[:, :, :1]),
        "otherwise in cohort 3": (spoil(tally, (3, 5), int(tally[3, 0]) + 1), values, bits),
        "otherwise in cohort 4": (spoil(tally, (4, 5), -1), values, bits),
        "otherwise in cohort 5": (spoil(tally, (5, 0), -1), values, bits),
        r"0\.\.15, got -1": (tally, values, np.where(bits == bits.max(), -1, bits)),
        r"0\.\.15, got 0\.\.16": (tally, values, np.where(bits == bits.max(), 16, bits)),
        "whole numbers": (tally.astype(float), values, bits),
    }
    for message, (counts, candidates, pattern) in wrong.items():
        with pytest.raises(InvalidParameter, match=message):
            decode(counts, candidates, pattern, CHANNEL)


@pytest.mark.parametrize(
    ("k", "h", "m", "p_star", "q_star"),
    [(0, 1, 1, 0.2, 0.8), (8, 0, 1, 0.2, 0.8), (8, 1, 0, 0.2, 0.8), (8, 1, 1, 0.5, 0.5), (8, 1, 1, -0.1, 0.8),
     (8, 1, 1, 0.2, 1.1), (8, 1, 1, float("nan"), 0.8)],
)  # fmt: skip
def test_a_channel_that_carries_nothing_is_refused(k: int, h: int, m: int, p_star: float, q_star: float) -> None:
    with pytest.raises(InvalidParameter):
        Channel(k, h, m, p_star, q_star)


# The fit.


def by_brute_force(prior: Prior, estimate: float, error: float) -> float:
    """The mean of a share by its estimate, from the prior's bins cut finely."""
    inner = np.linspace(prior.edges[:-1], prior.edges[1:], 4_002, axis=1)
    middle = (inner[:, 1:] + inner[:, :-1]) / 2
    shares = np.append(0.0, middle)
    chance = np.append(prior.chance[0], np.repeat(prior.chance[1:] / middle.shape[1], middle.shape[1]))
    posterior = chance * np.exp(-(((estimate - shares) / error) ** 2) / 2)
    return float(posterior @ shares / posterior.sum())


def test_means_and_slopes_by_the_prior_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(3)
    shares = np.append(np.zeros(300), rng.exponential(0.02, 100))
    error = np.full(400, 0.004)
    estimate = shares + rng.normal(0, error)
    prior = Prior.before(estimate, error)
    for _ in range(5):
        prior, mean, slope = prior.learn(estimate, error)
    assert abs(prior.chance[0] - 0.75) < 0.2
    assert np.mean((mean - shares) ** 2) < 0.5 * np.mean((estimate - shares) ** 2)
    _, up, _ = prior.learn(estimate, error)
    for place in range(0, 400, 25):
        low, middle, high = (by_brute_force(prior, estimate[place] + step, 0.004) for step in (-1e-6, 0, 1e-6))
        assert up[place] == pytest.approx(middle, abs=3e-4), "one more step of the prior is between"
        assert slope[place] == pytest.approx((high - low) / 2e-6, abs=0.03)


def test_a_prior_of_estimates_far_below_zero_gives_numbers() -> None:
    estimate, error = np.array([-5.0, 0.0, 0.3]), np.full(3, 0.01)
    _, mean, slope = Prior.before(estimate, error).learn(estimate, error)
    assert mean[:2] == pytest.approx(0, abs=0.01)
    assert mean[2] == pytest.approx(0.3, abs=0.02)
    assert np.isfinite(slope).all()
