"""The laws of reports as matrices, against the randomizers' own code; and what a channel makes of counts."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest

from dither_aggregator.analysis import channel as channel_module
from dither_aggregator.analysis.channel import BARS_LEAST, NumberChannel, blocks_for, channel_of, law_matrix
from dither_aggregator.analysis.numeric_fit import fit
from dither_aggregator.store import StoredPlan
from dither_shared.domains import Buckets
from dither_shared.mechanisms import GRR, OUE, PGR, Mechanism, MemoizedTwoLevel, SquareWave
from tests.support.drawn_numbers import Floats, cell_laws, draw_numbers, places_of, stored_number, tally_of, weights_of
from tests.support.laws import law_of_class

E = Decimal("1.5")
SMALL: list[Mechanism] = [
    GRR.for_epsilon(2, E),
    GRR.for_epsilon(5, E),
    PGR.for_design(7, 2, 3, E),
    PGR.for_design(6, 3, 3, E),
    SquareWave.for_reach(4, 1, E),
    SquareWave.for_reach(3, 0, E),
    SquareWave.for_reach(2, 3, E),
    MemoizedTwoLevel.for_epsilon(GRR.for_epsilon(2, Decimal(3)), E),
]
FRESH = stored_number("low = 0\nhigh = 10\nbuckets = 10")
HIDDEN = stored_number("low = 0\nhigh = 10\nbuckets = 10", presence="hidden", epsilon="2")
MEMO = stored_number("low = 0\nhigh = 80\nbuckets = 8", memo="3")
MEAN = stored_number('low = 0\nhigh = 10\nasks = ["mean"]')
FORMS = pytest.mark.parametrize("stored", [FRESH, HIDDEN, MEMO, MEAN], ids=["fresh", "hidden", "memoized", "mean"])


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_a_law_is_that_of_the_randomizers_own_code(mechanism: Mechanism) -> None:
    """The code is run for every sequence of its decisions: the probabilities are exact, the matrix is their floats."""
    matrix = law_matrix(mechanism)
    for answer, column in enumerate(matrix.T):
        law = law_of_class(mechanism, answer)
        assert column == pytest.approx([float(law.get(report, 0)) for report in range(len(matrix))], rel=1e-12)
    assert matrix.sum(axis=0) == pytest.approx(1, abs=1e-13)


def test_reports_that_are_no_symbols_have_no_such_law() -> None:
    with pytest.raises(TypeError, match="no symbols"):
        law_matrix(OUE.for_epsilon(4, E))


def expected(stored: StoredPlan, shares: Floats, n: float = 1e14) -> NumberChannel:
    """The channel of the counts that so many reports have on average, rounded to whole ones."""
    plan = stored.plan
    sizes = n * weights_of(plan)
    means = [size * (law @ shares) for size, law in zip(sizes, cell_laws(plan), strict=True)]
    tally = tally_of(plan, [np.rint(each).astype(np.int64) for each in means])
    return channel_of(plan, tally.counts, tally.n)


def spread(places: int) -> Floats:
    """Shares of which some are zero and one is heavy."""
    shares = np.arange(places) % 4 + 4.0 * (np.arange(places) == 2)
    return np.asarray(shares / shares.sum())


@FORMS
def test_expected_counts_give_the_truth_back(stored: StoredPlan) -> None:
    """But for the rounding of counts, one of 1e14."""
    truth = spread(places_of(stored.plan))
    assert fit(expected(stored, truth)).raw == pytest.approx(truth, abs=1e-9)


def test_a_cell_without_reports_is_left_out() -> None:
    """The points alone tell of every place."""
    truth = spread(places_of(FRESH.plan))
    window, points = (np.rint(1e14 * (law @ truth)).astype(np.int64) for law in cell_laws(FRESH.plan))
    tally = tally_of(FRESH.plan, [0 * window, points])
    channel = channel_of(FRESH.plan, tally.counts, tally.n)
    assert np.bincount(channel.cell, weights=channel.counts).tolist() == [tally.n]
    assert fit(channel).raw == pytest.approx(truth, abs=1e-9)


@FORMS
def test_merging_outputs_that_are_alike_loses_nothing(stored: StoredPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = draw_numbers(stored.plan, spread(places_of(stored.plan)), 20_000, np.random.default_rng(1))
    merged = channel_of(stored.plan, tally.counts, tally.n)
    monkeypatch.setattr(channel_module, "_alike", lambda law: (law, np.arange(len(law))))
    monkeypatch.setattr(channel_module, "_laws", channel_module._laws.__wrapped__)
    whole = channel_of(stored.plan, tally.counts, tally.n)
    assert len(merged.counts) <= len(whole.counts)
    one, other = fit(merged), fit(whole)
    assert one.shares == pytest.approx(other.shares, abs=1e-9)
    assert one.raw == pytest.approx(other.raw, abs=1e-9)
    assert one.published(3.0).covariance == pytest.approx(other.published(3.0).covariance, rel=1e-6, abs=1e-12)
    assert one.covariance == pytest.approx(other.covariance, rel=1e-6, abs=1e-12)


def test_columns_in_the_wrong_order_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: cohorts ask from the highest step down."""
    truth, right = spread(places_of(MEMO.plan)), channel_module.law_by_place
    monkeypatch.setattr(channel_module, "law_by_place", lambda plan, mechanism, cell: right(plan, mechanism, 7 - cell))
    monkeypatch.setattr(channel_module, "_laws", channel_module._laws.__wrapped__)
    assert np.abs(fit(expected(MEMO, truth)).raw - truth).max() > 0.01


@pytest.mark.parametrize("ranges", [6, 7, 8, 9, 10, 16, 20, 31, 50, 62, 73, 75])
def test_bars_join_as_many_ranges_each_and_more_reports_never_join_more(ranges: int) -> None:
    """A bar that joined more ranges than its neighbour would be higher for that alone."""
    plan = stored_number(f"low = 0\nhigh = {ranges}\nbuckets = {ranges}").plan
    told = [blocks_for(Buckets.of(plan.domain), plan.cells, n) for n in (100, 1_000, 3_000, 10_000, 100_000, 10**7)]
    assert [len(cuts) for cuts in told] == sorted(len(cuts) for cuts in told)
    assert len(told[-1]) == ranges + 1
    for cuts in filter(None, told):
        *joined, last = (end - begin for begin, end in pairwise(cuts))
        assert len({*joined}) == 1
        assert joined[0] / 2 <= last <= joined[0]
        assert cuts[0] == 0
        assert cuts[-1] == ranges
        assert len(cuts) > BARS_LEAST
