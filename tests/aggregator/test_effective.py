"""Reports are not devices: windows of memos that few devices sent name nobody's values, and say where they are too few.

A bound on a count of misses is that which 5 % of misses exceed with 1e-7: of ten such bounds one strays with 1e-6.
"""

from datetime import date
from decimal import Decimal
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.inference import ErrorOf, effective
from dither_aggregator.analysis.pure import change_chance, estimate_shares, noise_below, noise_chance
from dither_aggregator.analysis.reading import View, reports_max
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.mechanisms import GRR, MemoizedTwoLevel
from tests.support.drawn_numbers import draw_repeats, population, read_numbers, stored_number, tally_of
from tests.support.laws import pure
from tests.support.registries import registry
from tests.support.soaking import scaled, thinned
from tests.support.tallies import Counts

DAY = date(2026, 11, 22)
RUNS = scaled(150, 400)
MISSES_MAX = int(binom.isf(1e-7, RUNS, 0.05))


def memo_of(values: int, epsilon: str, permanent: str) -> tuple[StoredPlan, MemoizedTwoLevel]:
    """Return a memoized choice of so many values, "other" among them, that is answered by GRR."""
    named = tuple(f"v{place}" for place in range(values - 1))
    metric = registry(
        values=named, epsilon=epsilon, epsilon_permanent=permanent, color='mechanism = "grr"', device_epsilon="400"
    ).metrics["color"]
    kept = StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)
    mechanism = pure(kept.plan)
    assert isinstance(mechanism, MemoizedTwoLevel)
    assert isinstance(mechanism.permanent, GRR)
    return kept, mechanism


def window(mechanism: MemoizedTwoLevel, people: Counts, days: int, rng: np.random.Generator) -> Counts:
    """Draw the reports of devices, so many with each value, that each repeat one memo every day."""
    d, keep = mechanism.d, mechanism.threshold_keep / 2**64

    def answered(true: Counts, kept: float) -> Counts:
        """Return what comes of true symbols that are sent as they are, or else as any one."""
        as_they_are = rng.binomial(true, kept)
        return np.asarray(as_they_are + rng.multinomial(true.sum() - as_they_are.sum(), np.full(d, 1 / d)))

    return answered(answered(people, float(mechanism.permanent.p - mechanism.permanent.q)) * days, keep)


@pytest.mark.parametrize("devices", thinned([300, 1_000], 0))
def test_a_year_of_few_devices_names_no_value_that_nobody_has(devices: int) -> None:
    """In 5 % of the years one may be named. As if reports were normal .25 and .13 did, and 16.7 % of 150 fail."""
    kept, mechanism = memo_of(16, "4.0", "8.0")
    rng, people, named = np.random.default_rng(devices), np.zeros(16, dtype=np.int64), 0
    people[-1] = devices  # all say "other"
    for _ in range(RUNS):
        counts = window(mechanism, people, 366, rng)
        tally = Tally(devices * 366, np.append(devices * 366, counts))
        reading = estimate(kept, DAY, tally, View(simultaneous=True, days=366))
        named += any(row.lower > 0 for row in reading.rows[:-1])
    assert named <= MISSES_MAX


@pytest.mark.parametrize(
    ("devices", "days", "epsilon", "permanent", "error_of"),
    thinned(
        [
            (*size, *noise, error_of)
            for size in ((30, 120), (300, 31), (1_000, 7))
            for noise in (("1.0", "2.0"), ("4.0", "8.0"))
            for error_of in ("reports", "population")
        ],
        *(0, 3, 6, 9),
    ),
)
def test_intervals_of_few_devices_hold(
    devices: int, days: int, epsilon: str, permanent: str, error_of: ErrorOf
) -> None:
    _, mechanism = memo_of(4, epsilon, permanent)
    rng, shares, missed = np.random.default_rng(days), np.array([0.6, 0.37, 0.03, 0.0]), np.zeros(4, dtype=np.int64)
    for _ in range(RUNS):
        people = rng.multinomial(devices, shares)
        counts, truth = window(mechanism, people, days, rng), people / devices if error_of == "reports" else shares
        read = estimate_shares(mechanism, counts, devices * days, error_of=error_of, repeats=days)
        missed += (read.lower > truth) | (truth > read.upper)
    assert (missed <= MISSES_MAX).all()


def test_shares_of_few_devices_whose_noise_is_fresh_hold() -> None:
    """Each device gives the same answer again and again: 3,000 windows of each world, of a share of 1 to 30 %.

    5 % may miss, more than this bound with 1e-7 each.
    """
    rng, runs = np.random.default_rng(5), 3_000
    for epsilon, devices, days, share in product(("1", "4", "8"), (43, 100, 300, 1_000), (7, 31), (0.01, 0.05, 0.3)):
        mechanism = GRR.for_epsilon(2, Decimal(epsilon))
        holders, p, q = rng.binomial(devices, share, runs), float(mechanism.p), float(mechanism.q)
        counts = rng.binomial(holders * days, p) + rng.binomial((devices - holders) * days, q)
        read = estimate_shares(mechanism, counts, devices * days, repeats=days)
        missed = int(((read.lower > share) | (share > read.upper)).sum())
        assert missed <= binom.isf(1e-7, runs, 0.06), (epsilon, devices, days, share)


def test_numbers_of_few_devices_whose_noise_is_fresh_hold() -> None:
    """100 devices over 31 days, of which three of a hundred are at the far end, repeat what they say."""
    kept = stored_number("low = 0\nhigh = 80\nbuckets = 8", epsilon="4", reports=31)
    numbers = population(np.repeat([5.0, 15.0, 25.0, 75.0], [50, 30, 17, 3]))
    places, rng, missed, runs = numbers.places(kept.plan), np.random.default_rng(4), 0, scaled(30, 200)
    for _ in range(runs):
        reading = read_numbers(kept, draw_repeats(kept.plan, places, 100, 31, rng), View(days=31))
        row = next(row for row in reading.rows if row.statistic == "share_above" and row.low == 70)
        missed += not row.lower <= numbers.share(row.low, row.high) <= row.upper
    assert missed <= binom.isf(1e-6, runs, 0.02)  # for so few of so few it reaches further than it must


def test_laws_of_noise_are_those_of_few_memos() -> None:
    """P-values of noise are at most 5 % in 5 % of the windows, and estimates of nobody follow the law that is drawn."""
    _, mechanism = memo_of(16, "4.0", "8.0")
    rng, devices, days, people = np.random.default_rng(3), 300, 31, np.zeros(16, dtype=np.int64)
    people[-1] = devices
    p, q, n = float(mechanism.p), float(mechanism.q), devices * days
    rare, moved, runs = 0, 0, scaled(60, 400)
    estimates = []
    for _ in range(runs):
        one, other = (window(mechanism, people, days, rng) for _ in "ab")
        estimates.append((one[:-1] / n - q) / (p - q))
        rare += noise_chance(mechanism, n, float(estimates[-1].max()), days) <= 0.05
        moved += bool((15 * change_chance(mechanism, (one, n, days), (other, n, days))[:-1] <= 0.05).any())
    assert max(rare, moved) <= binom.isf(1e-7, runs, 0.05)
    below = noise_below(mechanism, n, days)
    for share in np.array([-0.002, 0.0, 0.002, 0.005]):
        chance = float(below(np.array([share]))[0])
        met = float((np.concatenate(estimates) <= share).sum())
        assert binom.ppf(1e-7, 15 * runs, chance) <= met <= binom.isf(1e-7, 15 * runs, chance)


def test_few_devices_that_report_numbers_often_are_told_to_be_too_few() -> None:
    """100 devices for 31 days pass any floor of reports: their means held .90, and those of 30 for 120 days .73."""
    kept = stored_number("low = 0\nhigh = 80\nbuckets = 8", epsilon="2", memo="8")
    for devices, days in ((100, 31), (30, 120), (2_900, 7)):
        each = devices * days // 16
        tally = tally_of(kept.plan, [np.array([each, each]) for _ in range(8)])
        assert tally.n >= 3_000
        reading = read_numbers(kept, tally, View(days=days))
        assert not reading.rows
        most = int(tally.n / reports_max(kept, days))
        said = f"may come from only {most:,} devices: numbers need 3,000 devices."
        assert said in reading.nothing_to_show
    assert read_numbers(kept, tally_of(kept.plan, [np.array([3_500, 3_500]) for _ in range(8)]), View(days=7)).rows


def test_fresh_noise_is_of_as_many_reports_and_repeated_noise_of_the_fewest_devices() -> None:
    assert effective(3_000.0, 9, permanent=False) == 3_000
    assert effective(2_700.0, 9, permanent=True) == 300
    assert effective(5.0, 9, permanent=True) == 1
