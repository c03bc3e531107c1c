"""Differences of windows: how often a verdict is wrong, and what moved over many metrics."""

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis import differences as differences_module
from dither_aggregator.analysis.differences import Comparison, differences, side_by_side, tell, view_of
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.pure import change_chance
from dither_aggregator.analysis.reading import Reading, View
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.mechanisms import GRR
from dither_shared.mechanisms.mechanism import MemoizedPure
from tests.aggregator.test_significance import stored, weeks_of
from tests.support.laws import pure
from tests.support.soaking import scaled, thinned
from tests.support.tallies import Counts, draw_tally

DAY = date(2026, 11, 22)
ALPHA = 0.05


def counted(kept: StoredPlan, counts: Counts, rng: np.random.Generator, days: int = 7, alpha: float = ALPHA) -> Reading:
    drawn = draw_tally(pure(kept.plan), counts, rng)
    return read(kept, int(counts.sum()), drawn, days, alpha)


def read(kept: StoredPlan, n: int, support: Counts, days: int, alpha: float = ALPHA) -> Reading:
    tally = Tally(n, np.concatenate([[n], support]))
    return estimate(kept, DAY, tally, view_of(days, alpha))


def shares_of(d: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = np.append(1 / np.arange(1, d) ** 1.1, 0.0)
    shares: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return shares


def fresh(d: int, epsilon: str, mechanism: str, reports: int = 1) -> StoredPlan:
    return stored(
        values=tuple(f"v{place}" for place in range(d - 1)),
        color=f'mechanism = "{mechanism}"',
        epsilon=epsilon,
        reports=reports,
        device_epsilon="400.0",
    )


CASES = [
    (30, "1.0", "oue", 3_000, 20_000),
    (30, "4.0", "grr", 20_000, 600),
    (30, "4.0", "grr", 600, 20_000),
    (300, "4.0", "oue", 500, 500),
    (8, "2.0", "grr", 60, 40),
]
PAIRS, WEEKS, DETECTED = scaled(40, 1_000), scaled(40, 1_000), scaled(40, 400)
MONTHS, TURNS = scaled(25, 200), scaled(80, 2_000)


@pytest.mark.parametrize(("d", "epsilon", "mechanism", "before", "after"), thinned(CASES, 0, 4))
def test_of_what_did_not_move_hardly_anything_is_told_to_have_moved(
    d: int, epsilon: str, mechanism: str, before: int, after: int
) -> None:
    """Pairs of samples of one population: 5 % may have a wrong verdict; more than are allowed would be 1e-6."""
    kept, rng, shares = fresh(d, epsilon, mechanism), np.random.default_rng(d), shares_of(d)
    wrong = missed = 0
    for _ in range(PAIRS):
        rows = differences(*[counted(kept, rng.multinomial(n, shares), rng) for n in (before, after)])
        wrong += any(row.verdict for row in rows)
        missed += any(not row.lower <= 0 <= row.upper for row in rows)
    most = binom.isf(1e-6, PAIRS, 0.05)
    assert wrong <= most
    assert missed <= most


@pytest.mark.parametrize(("values", "epsilon"), [(2, "4.0"), (17, "8.0")])
def test_windows_of_other_devices_differ_by_the_errors_that_are_shown(values: int, epsilon: str) -> None:
    """A reader who subtracts rows as they come by default is wrong in 5 % of pairs at most, if nothing moved.

    By errors of the reports alone, which rows had, far more are.
    """
    kept, rng = fresh(values, epsilon, "grr"), np.random.default_rng(values)
    shares, wrong, blind = np.full(values, 1 / values), np.zeros(values), np.zeros(values)
    for _ in range(MONTHS):
        tallies = []
        for _ in "ab":
            drawn = draw_tally(pure(kept.plan), rng.multinomial(4_000, shares), rng)
            tallies.append(Tally(4_000, np.append(4_000, drawn)))
        for view, count in ((View(), wrong), (View("reports"), blind)):
            old, new = (estimate(kept, DAY, tally, view).rows for tally in tallies)
            for place, (one, other) in enumerate(zip(old, new, strict=True)):
                error = np.hypot(one.std_error, other.std_error)
                count[place] += abs(other.estimate - one.estimate) > Z * error
    assert wrong.max() <= binom.isf(1e-6 / values, MONTHS, 0.052)
    assert blind.min() > binom.isf(1e-6, MONTHS, 0.052)


def test_verdicts_of_each_value_by_itself_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: every value is tested as if there were no other, and no interval is asked."""
    monkeypatch.setattr(differences_module, "holm", lambda p_values, alpha: p_values <= alpha)
    monkeypatch.setattr(differences_module, "beyond_zero", lambda lower, upper: 1 if lower + upper > 0 else -1)
    kept, rng, shares = fresh(30, "1.0", "oue"), np.random.default_rng(1), shares_of(30)
    wrong = sum(
        any(row.verdict for row in differences(*[counted(kept, rng.multinomial(3_000, shares), rng) for _ in "ab"]))
        for _ in range(100)
    )
    assert wrong > 50


@pytest.mark.parametrize(("epsilon", "mechanism", "reports"), [("2.0", "oue", 1), ("4.0", "grr", 1), ("4.0", "grr", 3)])
def test_what_moved_by_the_detectable_difference_is_found_four_times_in_five(
    epsilon: str, mechanism: str, reports: int
) -> None:
    """A value that had nobody moves by the stated reach: pairs, 80 % at a chance of 1e-6 each way.

    If a device may send several reports it is found more often, for here each sends one.
    """
    kept, rng, n = fresh(30, epsilon, mechanism, reports), np.random.default_rng(3), 5_000
    nobody = np.zeros(30, dtype=np.int64)
    nobody[:2] = n // 2
    pair = [counted(kept, nobody, rng) for _ in "ab"]
    reach = Comparison(pair[0], pair[1], differences(pair[0], pair[1]), ALPHA).detectable
    assert reach
    found = 0
    for _ in range(DETECTED):
        moved = nobody.copy()
        moved[0] -= round(reach * n)
        moved[5] += round(reach * n)
        rows = differences(counted(kept, nobody, rng), counted(kept, moved, rng))
        found += rows[5].verdict == "rose"
    assert binom.ppf(1e-6, DETECTED, 0.8) <= found <= (binom.isf(1e-6, DETECTED, 0.8) if reports == 1 else DETECTED)


@pytest.mark.parametrize("same_devices", [True, False])
def test_a_memoized_month_beside_another_one(same_devices: bool) -> None:
    """Pairs of months of 400 devices that report each day, nobody of whom changed: 5 % wrong at most, more is 1e-6.

    With the variance of fresh reports most pairs would have a wrong verdict where the devices are others.
    """
    kept = stored(epsilon="1.0", epsilon_permanent="2.0", color='mechanism = "grr"')
    mechanism = pure(kept.plan)
    assert isinstance(mechanism, MemoizedPure)
    rng, days, shares = np.random.default_rng(5), 30, np.array([0.5, 0.3, 0.2, 0.0])
    wrong = blind = 0
    for _ in range(MONTHS):
        people = [rng.multinomial(400, shares)] * 2 if same_devices else [rng.multinomial(400, shares) for _ in "ab"]
        months = [read(kept, 400 * days, weeks_of(mechanism, counts, days, rng), days) for counts in people]
        wrong += any(row.verdict for row in differences(months[0], months[1]))
        naive = [read(kept, 400 * days, _counts(month), 1) for month in months]
        blind += any(row.verdict for row in differences(naive[0], naive[1]))
    assert wrong <= binom.isf(1e-6, MONTHS, 0.05)
    assert blind > 0.3 * MONTHS


def _counts(reading: Reading) -> Counts:
    """Return the support counts behind a reading."""
    mechanism = pure(reading.stored.plan)
    p, q = float(mechanism.p), float(mechanism.q)
    return np.rint([reading.n * (q + row.estimate * (p - q)) for row in reading.rows]).astype(np.int64)


MORNINGS, NAIVE_MIN = scaled(12, 150), scaled(3, 60)


def test_over_many_metrics_few_are_told_to_have_moved_wrongly() -> None:
    """Mornings of 20 metrics, of which 3 moved: 4.3 % are wrong on average at most, and 15 % in 150 by less than 1e-6.

    A part of what is told has no more variance than all of it being wrong or nothing. Without regard to their number
    some wrong metric would be shown on more than half of the mornings: that is seen, too.
    """
    kept, rng, shares = fresh(10, "2.0", "oue"), np.random.default_rng(8), shares_of(10)
    moving = 0.8 * shares + 0.2 * np.roll(shares, 1)
    rates, naive = [], 0
    for _ in range(MORNINGS):
        compared = []
        for metric in range(20):
            truths = shares, moving if metric < 3 else shares
            pair = [counted(kept, rng.multinomial(4_000, truth), rng) for truth in truths]
            compared.append(Comparison(pair[0], pair[1], differences(pair[0], pair[1]), ALPHA))
        told, within = tell([one.p_value for one in compared])
        assert within == pytest.approx(ALPHA * sum(told) / 20)
        rates.append(sum(told[3:]) / max(sum(told), 1))
        naive += any(one.moved for one in compared[3:])
    assert np.mean(rates) <= binom.isf(1e-6, MORNINGS, 0.043) / MORNINGS
    assert naive > NAIVE_MIN


def test_a_share_near_one_moves_as_visibly_as_one_near_none() -> None:
    """Each report of a flag supports one of two values: what is told of one is told of the other."""
    mechanism = GRR.for_epsilon(2, Decimal(6))
    for old, new, n_old, n_new in ((1_455, 1_425, 1_500, 1_500), (700, 900, 1_000, 1_200), (3, 40, 50, 60)):
        both = [(np.array([count, n - count]), n, 1) for count, n in ((old, n_old), (new, n_new))]
        yes, no = change_chance(mechanism, both[0], both[1])
        assert yes == pytest.approx(no, rel=1e-9)
    assert change_chance(mechanism, (np.array([1_455]), 1_500, 1), (np.array([1_410]), 1_500, 1))[0] < 0.01


@pytest.mark.parametrize("devices", thinned([30, 300], 0))
def test_a_memoized_week_of_nothing_hardly_ever_stands_out(devices: int) -> None:
    """Weeks in which all say "other": p-values are at most 5 % on 5 % of them, and more than allowed would be 1e-6."""
    kept = stored(
        values=tuple(f"v{place}" for place in range(5)),
        epsilon="1.0",
        epsilon_permanent="2.0",
        color='mechanism = "grr"',
    )
    mechanism = pure(kept.plan)
    assert isinstance(mechanism, MemoizedPure)
    rng, counts = np.random.default_rng(6), np.array([0, 0, 0, 0, 0, devices])
    rare = 0
    for _ in range(WEEKS):
        reading = read(kept, 7 * devices, weeks_of(mechanism, counts, 7, rng), 7)
        significance = reading.significance()
        assert significance
        rare += significance.p_value <= 0.05
    assert rare <= binom.isf(1e-6, WEEKS, 0.05)


@pytest.mark.parametrize(("age", "days"), [(400, 7), (14, 7), (13, 6), (7, 3), (2, 1), (1, 1)])
def test_the_usual_windows_are_a_week_each_or_half_of_what_there_is(age: int, days: int) -> None:
    epochs = [DAY - timedelta(days=age - 1), DAY, DAY + timedelta(days=1)]
    before, after = side_by_side(epochs, DAY, date.min)
    assert (before.days, after.days, after.last) == (days, days, DAY)
    assert after.first - before.last == timedelta(days=1)
    assert side_by_side(epochs, DAY, DAY)[1].days == 1  # the others are no longer kept
    assert side_by_side([], DAY, date.min)[1].days == 1


@pytest.mark.parametrize("reports", [1, 2])
def test_answers_that_alternate_are_told_to_have_moved_as_rarely_as_others(reports: int) -> None:
    """A flag at epsilon 6 that half of the devices answer by turns: in both windows half say yes, and nothing moved.

    It is wrong in 5 % of the pairs at most, by test and by interval. Nothing is added if a device reports once: then
    others answer in each window.
    """
    kept = stored(values=("a",), epsilon="6.0", reports=reports, device_epsilon="400.0", color='mechanism = "grr"')
    mechanism, rng, n = pure(kept.plan), np.random.default_rng(11), 3_000
    wrong = missed = 0
    for _ in range(TURNS):
        held = rng.binomial(n, 0.5)
        later = n - held if reports > 1 else rng.binomial(n, 0.5)
        counts = [np.array([yes, n - yes]) for yes in (held, later)]
        rows = differences(*[read(kept, n, draw_tally(mechanism, each, rng), 1) for each in counts])
        wrong += any(row.verdict is not None or row.p_value < ALPHA for row in rows)
        missed += any(not row.lower <= 0 <= row.upper for row in rows)
    assert max(wrong, missed) <= binom.isf(1e-6, TURNS, ALPHA)
