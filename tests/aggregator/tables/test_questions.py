"""Questions and their tables: expected counts give the truth, and covariances are those of what is drawn."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.analysis.tables.statistics import TableStatistics, margin, pooled
from dither_shared.mechanisms import GRR, SubsetSelection, choose
from tests.benchmarks.tables.coverage import Case
from tests.support.questions import PRODUCT, draw_questions, in_symbols
from tests.support.soaking import thinned

SHARES = np.random.default_rng(5).dirichlet(np.ones(13))
"""The shares of 2 x 3 x 2 cells, and of devices with nothing to say."""
N = 50_000


def question(*, repeats: int = 1, n: int = N) -> QuestionTally:
    """Return what is expected to be reported, to a whole number of reports."""
    mechanism = choose(13, Decimal(2))
    p, q = float(mechanism.p), float(mechanism.q)
    counts = np.rint(n * (q + in_symbols(SHARES[:12], SHARES[12:]) * (p - q))).astype(np.int64)
    assert isinstance(mechanism, SubsetSelection)
    counts[0] += n * mechanism.weight - counts.sum()
    return QuestionTally((1, 3, 4), (2, 3, 2), True, mechanism, counts, n, repeats)


def test_expected_reports_give_back_the_shares_of_any_columns() -> None:
    cells = SHARES[:12].reshape(2, 3, 2)
    asked = question(n=10**12)
    for columns, truth in {
        (1, 3, 4): cells,
        (4, 1): cells.sum(axis=1).T,
        (3,): cells.sum(axis=(0, 2)),
    }.items():
        table = asked.table(columns)
        assert table.shape == truth.shape
        assert np.allclose(table.shares, [*truth.ravel(), SHARES[12]], atol=1e-9)
    everybody, constant = table.everybody
    assert constant + everybody @ table.shares == pytest.approx(1 - SHARES[12])


def test_covariances_add_up_from_the_finest_table() -> None:
    asked = question()
    finest = asked.table((1, 3, 4))
    fold = np.zeros((7, 13))
    fold[np.append(np.repeat(np.arange(6), 2), 6), np.arange(13)] = 1
    coarse = asked.table((1, 3))
    assert np.allclose(coarse.covariances(np.eye(7)), fold @ finest.covariances(np.eye(13)) @ fold.T, atol=1e-15)
    assert np.allclose(coarse.variances, np.diag(coarse.covariances(np.eye(7))), atol=1e-15)
    assert np.allclose(coarse.covariance(coarse.shares), coarse.covariances(np.eye(7)), atol=1e-15)


def test_devices_that_report_again_add_the_covariance_of_their_answers() -> None:
    once, often = (question(repeats=repeats).table((1, 3, 4)) for repeats in (1, 8))
    added = 7 / N * (np.diag(once.shares) - np.outer(once.shares, once.shares))
    assert np.allclose(often.covariances(np.eye(13)) - once.covariances(np.eye(13)), added, atol=1e-15)
    assert np.allclose(often.variances - once.variances, np.diag(added), atol=1e-15)


@pytest.mark.parametrize("epsilon", thinned(["1", "4"], 0))
def test_drawn_shares_vary_as_they_say(epsilon: str) -> None:
    """Over 400 seeds a variance is off by 5 sigma of 7 % for one in a million of its six tests, the mean likewise."""
    truth = SHARES[:12].reshape(2, 3, 2) / SHARES[:12].sum()
    drawn, claimed = [], []
    for seed in range(400):
        (asked,) = draw_questions(truth, 600, epsilon, np.random.default_rng([seed, 1]), design=PRODUCT)
        table = asked.table((0, 1))
        drawn.append(table.shares)
        claimed.append(table.variances)
    seen, said = np.var(drawn, axis=0, ddof=1), np.mean(claimed, axis=0)
    assert np.abs(seen / said - 1).max() < 5 * np.sqrt(2 / 400)
    assert (np.abs(np.mean(drawn, axis=0) - truth.sum(axis=2).ravel()) < 5 * np.sqrt(said / 400)).all()


def margins(seed: int) -> tuple[Floats, Floats]:
    """Return a column's pooled shares, of three questions, in standard errors from the truth; and of one alone."""
    truth = np.random.default_rng(6).dirichlet(np.ones(81)).reshape(3, 3, 3, 3)
    asked = draw_questions(truth, 6_000, "2", np.random.default_rng([seed, 2]), silent=0.3)
    found = [margin(each.table((0,))) for each in asked if 0 in each.columns]
    every = pooled(found)
    assert every is not None
    ours, alone = every.ratios, found[0].ratios
    return (ours.estimate - truth.sum(axis=(1, 2, 3))) / ours.std_error, alone.std_error / ours.std_error


def test_how_questions_are_pooled_does_not_depend_on_what_they_say() -> None:
    """Shares by two tallies add up to those by their sum.

    Weights made of the counts were off by a tenth of a standard error where nearly all give one answer.
    """
    rng, n = np.random.default_rng(4), 1_000
    sizes, symbols = (3, 5), np.arange(20)

    def drawn(share: float) -> list[QuestionTally]:
        """Return questions to devices of which such a share gives one answer, and all others any."""
        return [
            QuestionTally((0, at + 1), (4, size), False, GRR.for_epsilon(4 * size, Decimal(4)), counts, n)
            for at, size in enumerate(sizes)
            for counts in [rng.multinomial(n, share * (symbols[: 4 * size] == 7) + (1 - share) / (4 * size))]
        ]

    tallies = drawn(0.95), drawn(0.0)
    both = [replace(one, n=2 * n, counts=one.counts + other.counts) for one, other in zip(*tallies, strict=True)]
    told = [pooled([margin(each.table((0,))) for each in some]) for some in (*tallies, both)]
    one, other, together = (each.shares for each in told if each is not None)
    assert one + other == pytest.approx(2 * together, abs=1e-12)


def test_pooled_shares_have_the_error_that_they_say_and_less_than_one_question() -> None:
    """600 scores of three shares that sum to one: their mean square strays 30 % from one for one seed in a million."""
    scores, gains = zip(*(margins(seed) for seed in range(200)), strict=True)
    assert abs(np.mean(np.square(scores)) - 1) < 0.3
    assert np.mean(gains) == pytest.approx(np.sqrt(3), rel=0.05)


def test_other_questions_are_all_but_the_one_itself() -> None:
    """Its own reports, counted a second time, would make an interval too narrow."""
    truth = np.full((2, 2, 2), 1 / 8)
    asked = draw_questions(truth, 9_000, "1", np.random.default_rng(3))

    def statistics(*of: QuestionTally) -> TableStatistics:
        return TableStatistics(Case("", truth, 9_000, "1").domain, of, View(), provisional=False)

    every = statistics(*asked)
    for one in asked:
        for column in one.columns:
            ((_, said),) = statistics(*(other for other in asked if other is not one))._margins[column]
            elsewhere = every._elsewhere[column, one.columns]
            assert elsewhere is not None
            assert np.allclose(elsewhere.shares, said.shares, rtol=1e-12)
        alone = statistics(one)
        assert [alone._elsewhere[column, one.columns] for column in one.columns] == [None, None]
