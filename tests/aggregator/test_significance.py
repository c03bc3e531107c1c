"""Windows of several days, what stands out of them, and ranks."""

import random
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from dither_aggregator.analysis.estimands import estimate, read
from dither_aggregator.analysis.functional import share_variance
from dither_aggregator.analysis.inference import ErrorOf, Floats, Z
from dither_aggregator.analysis.pure import estimate_shares, noise_below, noise_chance, significance_shares
from dither_aggregator.analysis.reading import View, Window, reports_max
from dither_aggregator.analysis.rows import adaptive, bin_estimates, rank
from dither_aggregator.analysis.shares import ShareRow
from dither_aggregator.analysis.texts import TextRow, TextsReading
from dither_aggregator.counting import TallyGone, support_counts
from dither_aggregator.operations import maintenance
from dither_aggregator.store import StoredPlan, Tally
from dither_aggregator.store.document_kinds import Retention
from dither_shared.frozen import replaced
from dither_shared.mechanisms import GRR, OUE, PureMechanism, choose
from dither_shared.mechanisms.mechanism import MemoizedPure
from tests.support.aggregators import sqlite_store
from tests.support.clocks import Clock
from tests.support.registries import registry
from tests.support.soaking import thinned
from tests.support.stores import append, body_of, fold_all, seal_all
from tests.support.tallies import draw_tally

DAY = date(2026, 11, 22)


def stored(**asked: object) -> StoredPlan:
    metric = registry(**asked).metrics["color"]
    return StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)


# Windows.


def test_a_window_is_its_days_and_says_them() -> None:
    week = Window.ending(DAY, 7)
    assert (week.first, week.days) == (DAY - timedelta(days=6), 7)
    assert [DAY - timedelta(days=back) in week for back in (-1, 0, 6, 7)] == [False, True, True, False]
    assert week.to_document() == {"from": "2026-11-16", "to": "2026-11-22"}
    assert Window.ending(DAY, 1).to_document() == {"epoch": "2026-11-22"}


def test_a_device_reports_at_most_so_often_in_a_window() -> None:
    fresh, memoized = stored(reports=3), stored(epsilon="1.0", epsilon_permanent="2.0")
    assert [reports_max(fresh, days) for days in (1, 2, 7)] == [1, 2, 3]
    assert [reports_max(memoized, days) for days in (1, 7, 28)] == [1, 7, 28]


def test_a_device_of_before_may_have_sent_a_built_report_and_a_waiting_one_with_todays() -> None:
    fresh, memoized = (
        replace(one, plan=replaced(one.plan, once_a_day=False))
        for one in (stored(reports=2), stored(epsilon="1.0", epsilon_permanent="2.0"))
    )
    assert [reports_max(fresh, days) for days in (1, 2, 7)] == [2, 2, 2]
    assert [reports_max(memoized, days) for days in (1, 7, 28)] == [3, 9, 30]


def test_a_device_that_is_asked_by_the_week_reports_less_often() -> None:
    weekly = replace(stored(epsilon="1.0", epsilon_permanent="2.0"), period_days=7)
    assert [reports_max(weekly, days) for days in (1, 7, 8, 28)] == [1, 4, 4, 7]
    for days in range(2, 40):
        for begins in range(7):
            touched = {(begins + day) // 7 for day in range(days)}
            assert min(len(touched) + 2, days) <= reports_max(weekly, days)


# Values that stand out.


@pytest.mark.parametrize("epsilon", thinned([1, 2, 3, 4, 5, 6], 0, 3, 5))
@pytest.mark.parametrize("d", thinned([30, 64, 300, 5_000], 0, 2, 3))
@pytest.mark.parametrize("n", [300, 3_000, 20_000])
def test_noise_stands_out_on_one_page_in_twenty_at_most(epsilon: int, d: int, n: int) -> None:
    """By the binomial law of the counts where nobody has any listed value, and the least count that stands out."""
    mechanism = choose(d, Decimal(epsilon))
    critical, detectable = significance_shares(mechanism, n)
    if critical is None:
        assert n == 300
        return
    p, q = float(mechanism.p), float(mechanism.q)
    count = round((critical * (p - q) + q) * n)
    assert (d - 1) * binom.sf(count - 1, n, q) < 0.06
    ends = estimate_shares(mechanism, np.array([count - 1, count]), n, simultaneous=True).lower
    assert ends[0] <= 0 < ends[1]
    if detectable is not None:
        assert binom.sf(count - 1, n, q + detectable * (p - q)) == pytest.approx(0.8, abs=1e-6)


def test_ranks_are_what_the_intervals_leave_open() -> None:
    rng = random.Random(1)
    for _ in range(200):
        rows = []
        for place in range(rng.randint(1, 12)):
            middle, half = rng.randint(0, 20), rng.randint(0, 5)
            rows.append(ShareRow(f"v{place}", middle, 1.0, middle - half, middle + half))
        cut = rng.randint(0, len(rows))
        ranked = rank(rows[:cut], rows[cut:])
        assert [each.row.estimate for each in ranked] == sorted((row.estimate for row in rows[:cut]), reverse=True)
        for each in ranked:
            before = sum(row.lower > each.row.upper for row in rows)
            behind = sum(row.upper < each.row.lower for row in rows)
            assert (each.rank_lower, each.rank_upper) == (1 + before, len(rows) - behind)


@pytest.mark.parametrize("mechanism", thinned([OUE.for_epsilon(200, Decimal(3)), choose(200, Decimal(3))], 1), ids=str)
def test_a_crowd_of_noise_lies_on_the_curve(mechanism: PureMechanism) -> None:
    """200 values that nobody has, 300 times: each bin within 6 standard errors, some 40 bins: 1e-7."""
    rng, n = np.random.default_rng(5), 400
    counts = np.zeros(200, dtype=np.int64)
    counts[-1] = n
    edges = ((np.arange(0, n, 4) - 0.5) / n - float(mechanism.q)) / (float(mechanism.p) - float(mechanism.q))
    number, expected = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for _ in range(300):
        support = support_counts(mechanism, draw_tally(mechanism, counts, rng), n)
        bins = bin_estimates(estimate_shares(mechanism, support, n).estimate[:-1], edges, noise_below(mechanism, n))
        number += [each.number for each in bins]
        expected += [each.expected for each in bins]
    assert expected.sum() == pytest.approx(300 * 199, rel=1e-3)
    # Counts of one run are of the same reports: how much they go together was at most 1.5 times in variance.
    assert (np.abs(number - expected) <= 6 * np.sqrt(1.5 * expected) + 3).all()


# Memos: noise that repeats.


def test_intervals_of_a_memoized_week_hold_and_are_not_much_too_wide() -> None:
    """400 weeks of 1,500 devices that report each day: 95 % of each value's intervals within 88 and 99.5 % (1e-6).

    Intervals as if reports were independent hold much more rarely: that is seen, too.
    """
    mechanism = choose(4, Decimal(1), permanent=Decimal(2), name="grr")
    assert isinstance(mechanism, MemoizedPure)
    assert isinstance(mechanism.permanent, GRR)
    rng, days, shares = np.random.default_rng(7), 7, np.array([0.5, 0.3, 0.2, 0.0])
    held, naive, estimates, widths = np.zeros(4), np.zeros(4), [], []
    for _ in range(400):
        counts = (1_500 * shares).astype(int)
        support = weeks_of(mechanism, counts, days, rng)
        run = estimate_shares(mechanism, support, 1_500 * days, repeats=days)
        held += (run.lower <= shares) & (shares <= run.upper)
        blind = estimate_shares(mechanism, support, 1_500 * days)
        naive += (blind.lower <= shares) & (shares <= blind.upper)
        estimates.append(run.estimate)
        widths.append((run.upper - run.lower) / 2)
    assert ((held / 400 > 0.88) & (held / 400 < 0.995)).all()
    assert (naive / 400 < 0.9).all()
    assert (np.mean(widths, axis=0) / (1.96 * np.std(estimates, axis=0)) < 1.3).all()


def weeks_of(
    mechanism: MemoizedPure, counts: np.ndarray[tuple[int], np.dtype[np.int64]], days: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return support counts of devices that each draw a symbol once, and send a noisy copy of it every day."""
    d, permanent = mechanism.d, float(mechanism.permanent.p)
    truth = np.repeat(np.arange(d), counts)
    kept = rng.random(len(truth)) < permanent
    memo = np.where(kept, truth, (truth + rng.integers(1, d, len(truth))) % d)
    support = np.zeros(d, dtype=np.int64)
    for _ in range(days):
        stays = rng.random(len(memo)) < _stays(mechanism)
        sent = np.where(stays, memo, (memo + rng.integers(1, d, len(memo))) % d)
        support += np.bincount(sent, minlength=d)
    return support


def _stays(mechanism: MemoizedPure) -> float:
    """Return P[a memo is sent as it is]: p = P s + (1 - P) (1 - s) / (d - 1), solved for s."""
    p, permanent, others = float(mechanism.p), float(mechanism.permanent.p), mechanism.d - 1
    return (p - (1 - permanent) / others) / (permanent - (1 - permanent) / others)


@pytest.mark.parametrize("days", [1, 3, 7])
@pytest.mark.parametrize("epsilon", [1, 2, 4])
def test_intervals_hold_for_devices_that_report_several_times(epsilon: int, days: int) -> None:
    """1,000 windows of 700 people drawn from a population, each with fresh noise a day: coverage of 95 % intervals is
    within 92.0 and 97.7 % (1e-5) of the population's share, and of the share among these reports.

    Without regard to the repetition intervals of the population hold less often: that is seen, too.
    """
    mechanism, rng, truth = GRR.for_epsilon(3, Decimal(epsilon)), np.random.default_rng(days), 0.4
    p, q = float(mechanism.p), float(mechanism.q)
    people = rng.binomial(700, truth, 1_000)
    n = 700 * days
    support = rng.binomial(people * days, p) + rng.binomial(n - people * days, q)
    shares, own = (support / n - q) / (p - q), people / 700

    def held(of: ErrorOf, repeats: int, target: Floats) -> float:
        errors = np.sqrt(share_variance(mechanism, np.clip(shares, 0, 1), n, of, repeats))
        return float(np.mean(np.abs(shares - target) <= Z * errors))

    everybody = np.full(1_000, truth)
    assert 0.92 < held("population", days, everybody) < 0.977
    assert 0.92 < held("reports", days, own) < 0.977
    if days == 7 and epsilon >= 2:
        assert held("population", 1, everybody) < 0.85


@pytest.mark.parametrize("mechanism", [OUE.for_epsilon(200, Decimal(3)), choose(64, Decimal(1))], ids=str)
@pytest.mark.parametrize("n", [300, 20_000])
def test_a_p_value_of_noise_is_as_rare_as_it_says(mechanism: PureMechanism, n: int) -> None:
    """By the binomial law: of d values that nobody has, one comes out so large with at most its p-value, two-sided."""
    p, q = float(mechanism.p), float(mechanism.q)
    for count in range(int(n * q), n, max(n // 50, 1)):
        stated = noise_chance(mechanism, n, (count / n - q) / (p - q))
        passes = mechanism.d * float(binom.sf(count - 1, n, q))
        assert stated == pytest.approx(min(1.0, 2 * passes), rel=1e-6)


# Reading windows out of a store.


def test_a_window_is_read_as_the_sum_of_its_days(tmp_path: Path) -> None:
    asked, clock = registry(), Clock()
    with sqlite_store(asked, tmp_path, clock) as store:
        plan = asked.metrics["dark"].plan
        for day in range(4):
            append(store, body_of(asked, {"dark": [0] * day + [1] * 3}))
            fold_all(store)
            clock.travel(1)
            seal_all(store)
        (kept,) = (each for each in store.plans("dark"))
        last = store.sealed()
        view = View(days=3)
        reading = read(store, kept, last, view)
        assert (reading.n, reading.provisional, reading.window.days) == (4 + 5 + 6, False, 3)
        days = [store.tally(plan, last - timedelta(days=back)) for back in range(3)]
        pooled = Tally(sum(each.n for each in days), sum((each.counts for each in days[1:]), days[0].counts))
        assert reading.rows == estimate(kept, last, pooled, view).rows
        assert read(store, kept, last + timedelta(days=1), view).provisional
        assert read(store, kept, last, replace(view, days=30)).n == 3 + 4 + 5 + 6
        assert read(store, kept, last - timedelta(days=90), view).n == 0
        maintenance.maintain(store, 0)
        maintenance.finalize(store, "dark")
        clock.travel(40)
        store.put(Retention(tallies_days=38))
        maintenance.maintain(store, 0)
        with pytest.raises(TallyGone, match="no longer kept"):
            read(store, kept, last, replace(view, days=30))


# Texts.


@cache
def stored_text() -> StoredPlan:
    return stored(kind="text", candidates=("t0",), epsilon="1.0", epsilon_permanent="2.0")


def texts(*scores: float, groups: dict[int, int] | None = None, confidence: float = 0.95) -> TextsReading:
    """Return a reading of candidates t0, t1, ... so many standard errors above zero; some have others' bits."""
    named = {**{first: first for first in (groups or {}).values()}, **(groups or {})}
    rows = tuple(
        TextRow(
            f"t{place}",
            score / 100,
            0.01,
            0.0,
            0.0,
            proportion=0.0,
            significant=None,
            significant_holm=None,
            group=f"t{named[place]}" if place in named else "",
        )
        for place, score in enumerate(scores)
    )
    strangers = {row.value: 0.0 for row in rows}
    view = View(confidence=confidence)
    return TextsReading(stored_text(), DAY, False, 1_000, view, None, 0.01, "wald", rows=rows, strangers=strangers)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_a_text_stands_out_just_where_so_many_may_be_false(confidence: float) -> None:
    """By tests of one side: the interval of one that stands out may hold zero."""
    rng = random.Random(3)
    for _ in range(100):
        reading = texts(*(rng.gauss(0, 2) for _ in range(30)), confidence=confidence)
        shown = reading.significance()
        assert shown
        chances = ndtr(np.array([-row.estimate / row.std_error for row in reading.rows])).astype(np.float64)
        called = adaptive(chances, round(1 - confidence, 12))
        out = {row.value for row, chosen in zip(reading.rows, called.tolist(), strict=True) if chosen}
        assert {each.row.value for each in shown.significant} == out
        assert shown.false_share == round(1 - confidence, 12)
        assert len(shown.significant) + len(shown.rest) == 30


def test_the_intervals_and_ranks_of_texts_hold_for_all_of_them_at_once() -> None:
    reading = texts(9.0, 5.5, 2.9, *[0.0] * 27)
    shown = reading.significance()
    assert shown
    z = -NormalDist().inv_cdf(0.05 / 30 / 2)
    assert [each.row.value for each in shown.significant] == ["t0", "t1", "t2"]
    for row in (*(each.row for each in shown.significant), *shown.rest):
        assert (row.lower, row.upper) == pytest.approx((row.estimate - z * 0.01, row.estimate + z * 0.01), abs=1e-6)
    assert shown.significant[2].row.lower < 0 < shown.significant[1].row.lower
    assert [(each.rank_lower, each.rank_upper) for each in shown.significant] == [(1, 3), (1, 30), (1, 30)]


def test_more_stands_out_the_less_sure_one_wants_to_be() -> None:
    scores = (9.0, 3.2, 2.9, 2.6, *np.linspace(-2, 1.5, 36))
    found = {level: texts(*scores, confidence=level).significance() for level in (0.8, 0.95, 0.99)}
    assert [len(each.significant) for each in found.values() if each] == [4, 4, 1]


def test_texts_that_cannot_be_told_apart_stand_out_as_one() -> None:
    shown = texts(8.0, 8.0, 0.3, groups={1: 0}).significance()
    assert shown
    assert [(each.row.value, each.rank_lower, each.rank_upper) for each in shown.significant] == [("t0", 1, 1)]
    assert [row.value for row in shown.rest] == ["t2"]
    assert [row.value for row in shown.twins] == ["t1"]


def test_few_texts_of_nobody_are_found() -> None:
    """1,000 lists of 20 candidates that nobody said: something is found in 5 % of them at most (8.6 %: 1e-6)."""
    rng = np.random.default_rng(9)
    found = sum(bool((shown := texts(*rng.normal(size=20)).significance()) and shown.significant) for _ in range(1_000))
    assert 0 < found < 86
