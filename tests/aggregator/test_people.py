"""How many devices are used at least, and how many stay: of fleets whose truth is known, on page and in the API."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from math import ceil, floor
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.people import (
    LATE,
    LATE_DAILY,
    _active,
    gap,
    least,
    month_after,
    often,
    people,
    periods_of,
    retained,
)
from dither_aggregator.analysis.reading import Window
from dither_aggregator.ask.answering import Asking
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Metric, Registry
from tests.support.laws import pure
from tests.support.measured import measured as registry_of
from tests.support.measured import measured_text as registry_text
from tests.support.number_pages import ask, words
from tests.support.sites import Site, site_of
from tests.support.soaking import scaled
from tests.support.used_fleets import (
    FIRST,
    Fleet,
    Ints,
    World,
    counted,
    cut_off,
    live,
    memo_laws,
    people_site,
    read_months,
    true_retention,
)

COHORTS = 12
FLEETS, DRAWS = scaled(6, 200), scaled(6, 200)
MISSES_MAX = int(binom.isf(1e-6, DRAWS, 0.05))
"""Triangles that hold with .95 each: of DRAWS, more are wrong in less than 1 of 10^6 runs."""


def metric(cohorts: int = COHORTS) -> Metric:
    return registry_of("since", cohorts=cohorts).metrics["since"]


def stored_of(asked: Metric) -> StoredPlan:
    return StoredPlan(
        1,
        asked.plan,
        asked.question,
        (),
        asked.reservation,
        asked.expires,
        current=True,
        period_days=asked.period_days,
        measures=asked.measures,
    )


# The bound of devices.


@pytest.mark.parametrize("seed", range(FLEETS))
def test_no_more_devices_are_claimed_than_were_used(seed: int) -> None:
    """Fleets have churn, a season, reinstalls, clocks that are wrong, devices that stay away, and late reports.

    The bound is of 95 % for each week; 41 weeks of which at most 13 may fail hold it at 1e-6. None does.
    """
    world = World(installs=60, growth=(0.05, 0.0, -0.05)[seed % 3], season=(0.4, 0.7)[seed % 2])
    fleet = live(world, np.random.default_rng(seed))
    n = fleet.came.sum(axis=1)
    consented = fleet.truth.sum(axis=1)
    bounds = [least(int(n[week]), [int(n[week - 1]), int(n[week - 2])]) for week in range(2, world.weeks)]
    assert all(bound <= used for bound, used in zip(bounds, consented[2:], strict=True))
    # And it is of use: most of what came counts.
    assert np.mean(np.array(bounds) / n[2:]) > 0.8


def test_a_sudden_fall_is_not_hidden_by_late_reports() -> None:
    """10,000 devices a week, then 1,000: a tenth of the 10,000 report late, and more come than were used."""
    came = round(0.85 * 1_000 + 0.10 * 10_000 + 0.02 * 10_000)
    assert came > 1_000
    assert least(came, [9_700, 9_700]) <= 1_000


def test_what_came_is_what_is_claimed_where_nothing_came_before() -> None:
    assert least(500, [0, 0], late=0.0) == 500
    assert 480 <= least(500, [0, 0]) <= 500
    assert least(0, [0, 0]) == 0
    assert least(10, [5_000, 5_000]) == 0
    assert [least(1_000, [1_000, 1_000], late=late) for late in (0.0, 0.05, LATE)] == sorted(
        [least(1_000, [1_000, 1_000], late=late) for late in (0.0, 0.05, LATE)], reverse=True
    )


def office(missed: float, weekend: float, devices: int = 3_000, weeks: int = 8) -> tuple[Ints, Ints]:
    """Draw the reports of each day from a Monday on, and the devices that were used on it.

    A program runs each day, but is used less on weekends. It misses a day's connection with such a chance, and sends
    one report a day, the oldest first: one that was late once is late until a day without use.
    """
    rng = np.random.default_rng([int(100 * missed), int(100 * weekend)])
    of_day = np.where(np.arange(7 * weeks) % 7 < 5, 0.8, weekend)
    used = rng.random((7 * weeks, devices)) < of_day[:, np.newaxis]
    came, kept = np.zeros(7 * weeks, dtype=np.int64), np.zeros(devices, dtype=np.bool_)
    for day, fresh in enumerate(used):
        sent = kept | (fresh & (rng.random(devices) >= missed))
        came[day] = sent.sum()
        kept = fresh & (kept | ~sent)
    return came, used.sum(axis=1)


@pytest.mark.parametrize("weekend", [0.02, 0.2, 0.5])
@pytest.mark.parametrize("missed", [0.05, 0.1, 0.15, 0.3])
def test_no_weekend_claims_the_devices_of_a_friday(missed: float, weekend: float) -> None:
    """None of 42 bounds is false, of which 14 may be at 1e-6: with less late, all Saturdays' would be."""
    came, used = office(missed, weekend)

    def bounds(late: float) -> Ints:
        return np.array([least(int(came[day]), came[day - 2 : day].tolist(), late) for day in range(14, len(came))])

    assert (bounds(LATE_DAILY) <= used[14:]).all()
    assert np.median(bounds(LATE_DAILY) / used[14:]) > 0.4
    if missed >= 0.15:
        assert (bounds(LATE) > used[14:]).sum() >= 6


# Missing reports.


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return live(World(installs=1_000, weeks=46), np.random.default_rng(1))


GAPS = (20, 40)
"""Weeks of which no report comes before the week after."""


def test_a_gap_is_a_period_below_both_sides_and_neither_growth_nor_an_end_nor_a_weekend_is_one() -> None:
    def gaps(*counts: int, period_days: int = 7, begins: date = FIRST) -> list[int]:
        of = {FIRST + timedelta(days=period_days * place): n for place, n in enumerate(counts)}
        return [place for place, first in enumerate(of) if gap(of, first, period_days, begins)]

    assert gaps(100, 90, 0, 110, 100) == [2]
    assert gaps(100, 90, 30, 35, 30, 100) == [2, 3, 4]
    assert gaps(100, 0, 0, 0, 0, 0, 0, 0, 0, 100) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert gaps(10, 100, 1_000, 10_000) == []
    assert gaps(10_000, 1_000, 900, 950) == []
    assert gaps(100, 60, 60, 60, 60, 100) == []
    assert gaps(0, 0, 100, 100, begins=FIRST + timedelta(days=15)) == []
    week = [100, 100, 100, 100, 100, 30, 30]
    assert gaps(*week * 4, period_days=1) == []
    assert gaps(*week, *[10, *week[1:]], *week, period_days=1) == [7]


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[Site]:
    came = fleet.came.copy()
    for week in GAPS:
        came[week + 1] += came[week]
        came[week] = 0
    with people_site(tmp_path_factory.mktemp("gapped"), replace(fleet, came=came), COHORTS) as made:
        yield made


def test_no_bound_is_claimed_while_reports_of_an_outage_come_late(gapped: Site, fleet: Fleet) -> None:
    """The week after has two reports of a device, and the one of before would say that each is a device."""
    (stored,) = gapped.store.measuring_people()
    least_of = {(one.window.first - FIRST).days // 7: one.least for one in people(gapped.store, stored).active}
    assert [week for week, bound in least_of.items() if bound is None] == [GAPS[1] + 1, GAPS[1] + 2]
    assert all(bound <= fleet.truth[week].sum() for week, bound in least_of.items() if bound is not None)
    _, rows = ask(gapped, "/v1/people/active")
    assert [row["least"] for row in rows] == list(least_of.values())
    html = gapped.client.get("/people").text
    assert html.count("<td>not told</td></tr>") >= 2
    assert html.count('<line class="interval"') == len(rows) - 2


def found_of(came: Sequence[int], began: int = 0) -> list[int | None]:
    """Return the bound of each week behind the first two, of a metric whose first report came in a week."""
    counts: dict[date, int | None] = {FIRST + timedelta(days=7 * place): n for place, n in enumerate(came)}
    windows = [Window(first, first + timedelta(days=6)) for first in counts][2:]
    begins = FIRST + timedelta(days=7 * began)
    return [one.least for one in _active(stored_of(metric()), begins, counts, windows, 0.95)]


@pytest.mark.parametrize("outage", [range(20, 34), range(15, 45), range(2, 5), range(2, 16)], ids=str)
@pytest.mark.parametrize("part", [0.5, 0.75, 1.0])
def test_no_bound_is_false_after_an_outage_of_a_fleet(outage: range, part: float) -> None:
    """It may have any length, and be at the metric's beginning, so that no week before it has more."""
    began = outage.start > 2
    for seed in range(scaled(1, 20)):
        rng = np.random.default_rng([seed, outage.start])
        whole = live(World(installs=60, weeks=50, season=(0.0, 0.4)[seed % 2]), rng)
        fleet = cut_off(whole, outage, part, rng)
        came = fleet.came.sum(axis=1)
        if not began:
            came[: outage.start] = 0
        bounds = found_of(came.tolist(), int(np.flatnonzero(came)[0]))
        truth = fleet.truth.sum(axis=1)[2:]
        assert all(bound is None or bound <= used for bound, used in zip(bounds, truth, strict=True))
        assert bounds[outage.stop - 2] is bounds[outage.stop - 1] is None
        # And it comes back: of weeks without an outage, hardly any has none.
        assert [bound is None for bound in bounds[outage.stop + 1 :]].count(True) <= 4


def test_nothing_is_claimed_of_a_metrics_first_periods() -> None:
    """Its reports may be those that devices kept while nobody took them."""
    assert found_of([0, 0, 200, 100, 100, 100])[:3] == [None, None, least(100, [100, 200])]
    day = timedelta(days=1)
    counts: dict[date, int | None] = dict.fromkeys((FIRST + place * day for place in range(-2, 0)), 0)
    counts |= {FIRST + place * day: 200 - 100 * (place > 0) for place in range(12)}
    windows = [Window(FIRST + place * day, FIRST + place * day) for place in range(12)]
    found = _active(replace(stored_of(metric()), period_days=1), FIRST, counts, windows, 0.95)
    assert [one.least is None for one in found] == [True] * 7 + [False] * 5


def test_days_are_held_against_the_same_day_of_the_week_before() -> None:
    """More than twice as many devices on a Monday as on a Sunday are no sign of an outage."""
    day, week = timedelta(days=1), [1_000, 1_000, 1_000, 1_000, 1_000, 100, 100]
    counts: dict[date, int | None] = {FIRST + place * day: n for place, n in enumerate(week * 4)}
    windows = [Window(first, first) for first in counts][14:]
    found = _active(replace(stored_of(metric()), period_days=1), FIRST, counts, windows, 0.95)
    assert not [one.window.first for one in found if one.least is None]


@pytest.mark.parametrize("weeks", [1, 3, 4, 5, 8, 11, 13, 52])
def test_no_bound_is_claimed_after_an_outage_of_many_weeks(weeks: int) -> None:
    """Each device then sends its kept report and its own: 200,000 of 100,000 devices."""
    came = [100_000] * 12 + [5_000] * weeks + [200_000, 100_000, 100_000, 100_000]
    found = found_of(came)
    after = 12 + weeks - 2
    assert found[after] is found[after + 1] is None
    assert all(bound is None or bound <= n for bound, n in zip(found, came[2:], strict=True))
    assert all(bound is None or bound <= 100_000 for bound in found)
    assert found[after + 2] is not None


def test_months_whose_reports_are_missing_are_left_out_and_named(gapped: Site, fleet: Fleet) -> None:
    """The other months stay true."""
    (stored,) = gapped.store.measuring_people()
    found = people(gapped.store, stored)
    assert found.left_out == [date(2026, 5, 1), date(2026, 10, 1)]
    assert not {month.first for month in found.months} & set(found.left_out)
    assert "are missing: 2026-05, 2026-10." in words(gapped.client.get("/people").text)
    told = [row for row in found.retained if row.share and row.cohort >= FIRST]
    assert told
    for row in told:
        truth = true_retention(fleet, (row.cohort, row.cohort_last), _base(row.cohort_last), row.month)
        assert row.share is not None
        assert row.share.lower <= truth <= row.share.upper


# How often.

MONTH = 28


def lived(seed: int, devices: int = 2_000) -> tuple[Ints, Ints, float]:
    """Draw four months of days: reports by day, reports by month, and which part of the third month's are used daily.

    As much is late as may be, of both, of days or of months. Half of it is of devices that are late, or silent, with
    all that they say.
    """
    rng = np.random.default_rng(seed)
    days = 4 * MONTH
    eager = rng.beta(0.5, 2, size=devices) * np.linspace(0.5, 1.5, days)[:: (1, -1)[seed % 2], np.newaxis]
    begins, ends = rng.integers(-days, days, size=devices), rng.integers(0, 2 * days, size=devices)
    day = np.arange(days)[:, np.newaxis]
    used = (rng.random((days, devices)) < eager) & (begins <= day) & (day < ends)
    month = np.asarray(used.reshape(4, MONTH, devices).any(axis=1))
    slow = rng.permutation(devices) < devices * LATE / 2

    def came(by: npt.NDArray[np.bool_], part: float) -> Ints:
        late = rng.choice(4, p=[1 - part / 2, part / 8, part / 8, part / 4], size=by.shape)
        if part:
            late[:, slow] = rng.integers(1, 4, size=int(slow.sum()))
        first, _ = np.nonzero(by)
        comes = first + late[by]
        return np.bincount(comes[late[by] < 3], minlength=len(by) + 2)[: len(by)]

    third = slice(2 * MONTH, 3 * MONTH)
    parts = ((LATE, LATE), (LATE, 0.0), (0.0, LATE))[seed % 3]
    return came(used, parts[0]), came(month, parts[1]), float(used[third].sum(axis=1).mean() / month[2].sum())


def test_how_often_devices_are_used_is_within_its_interval() -> None:
    """15 % of the reports of both metrics, or of one, come late or never, in fleets that grow and shrink."""
    worlds = scaled(25, 1_000)
    held, near, widths = 0, 0, []
    for seed in range(worlds):
        days, months, truth = lived(seed)
        lower, upper = often(days[2 * MONTH - 2 : 3 * MONTH].tolist(), months[:3].tolist(), 0.95)
        held += lower <= truth <= upper
        near += 0.95 < days[2 * MONTH : 3 * MONTH].mean() / months[2] / truth < 1.05
        widths.append((upper - lower) / truth)
    assert binom.sf(worlds - held - 1, worlds, 0.05) > 1e-6
    assert np.median(widths) < 0.8
    # The ratio of the reports alone is further off.
    assert near < 0.5 * worlds


def test_exact_counts_give_an_interval_around_the_truth() -> None:
    """Nothing late, a thousand million devices: what is left is what might have come late."""
    n = 10**9
    lower, upper = often([n // 5] * 30, [n] * 3, 0.95)
    assert lower == pytest.approx(0.2 * (1 - LATE) * (1 - 2 * LATE / (1 - LATE) / MONTH), rel=1e-3)
    assert upper == pytest.approx(0.2 / (1 - LATE) / ((1 - LATE / (1 - LATE)) / (1 - LATE)), rel=1e-3)
    assert often([n] * 30, [n] * 3, 0.95)[1] == 1.0
    assert often([0] * 30, [10] * 3, 0.95) == (0.0, 1.0)


@pytest.fixture(scope="module")
def sticky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """1,000 devices on each of 140 days, of 4,000 in each 28 days; nothing on one day of the third."""
    text = registry_text("since", period="1d", expires=date(2027, 3, 1))
    monthly = registry_text("since", period="28d", cohorts=4, expires=date(2027, 3, 1))
    more = monthly[monthly.index("[metric.since]") :].replace("since", "monthly")
    asked = Registry.parse(f"{text}\n{more}")
    with site_of(asked, tmp_path_factory.mktemp("sticky")) as made:
        first = made.store.today() - timedelta(days=(made.store.today() - date(1970, 1, 1)).days % MONTH + 6 * MONTH)
        for name, step, n in (("since", 1, 1_000), ("monthly", MONTH, 4_000)):
            plan = asked.metrics[name].plan
            symbols = np.arange(pure(plan).shape.size)
            for place in range(0, (made.store.today() - first).days, step):
                came = 0 if (step, place) == (1, 60) else n
                counts = np.array([came, *np.bincount(np.arange(came) % len(symbols), minlength=len(symbols))])
                made.hold(plan, Tally(came, counts), (made.store.today() - first).days - place)
        yield made


STICKY = "/v1/query?q=count(devices active in a day) / count(devices active in a month)"


def test_page_api_and_question_say_how_often(sticky: Site) -> None:
    """Not of the month with a day without reports, nor of the first ones, nor where no week is known after it."""
    _, rows = ask(sticky, "/v1/people/stickiness")
    assert [(row["first"], row["last"]) for row in rows] == [("2026-08-27", "2026-09-23"), ("2026-09-24", "2026-10-21")]
    assert {(row["metric"], row["part_metric"], row["part_days"], row["n"]) for row in rows} == {
        ("monthly", "since", 1, 4_000)
    }
    lower, upper = often([1_000] * 30, [4_000] * 3, 0.95, LATE_DAILY)
    assert all((row["estimate"], row["lower"], row["upper"]) == (0.25, lower, upper) for row in rows)
    page = words(sticky.client.get("/people").text)
    ends = f"{floor(100 * lower)} to {ceil(100 * upper)} %"
    assert f"In a mean day of the 28 days to {rows[-1]['last']}, {ends} of the devices were used" in page
    _, answers = ask(sticky, STICKY)
    assert [(row["from"], row["to"], row["n"], row["estimate"]) for row in answers] == [
        (row["first"], row["last"], row["n"], 0.25) for row in rows
    ]
    assert all(answer["lower"] < lower < upper < answer["upper"] for answer in answers)
    assert (
        "of the devices that report, if at most 60% of a day's and 15% of a month's reports come later"
        in answers[0]["note"]
    )
    shown = sticky.client.get("/ask", query_string={"q": STICKY.partition("=")[2]}).text
    assert f"in {rows[-1]['first']} to {rows[-1]['last']}" in words(shown)


def test_a_question_of_periods_that_do_not_go_into_each_other_says_so(sticky: Site, one: Site) -> None:
    asked = "/v1/query?q=count(devices active in a month) / count(devices active in a day)"
    detail = sticky.client.get(asked).get_json()["detail"]
    assert "1 days are no whole number of periods of 28: ask for a day of a week or month" in detail
    assert "no metric counts devices by month" in one.client.get(STICKY.replace("a day", "a week")).get_json()["detail"]
    assert ask(one, "/v1/people/stickiness")[1] == []


# Retention.


def test_periods_of_a_month_are_whole_and_those_that_begin_in_it() -> None:
    for month in (date(2026, 1, 1), date(2026, 2, 1), date(2026, 12, 1)):
        window = periods_of(month, 7)
        assert window.first.weekday() == 3
        assert window.days % 7 == 0
        assert window.first.month == month.month
        assert (window.last - timedelta(days=6)).month == month.month
        assert (window.last + timedelta(days=1)).month != month.month
    assert periods_of(date(2026, 2, 1), 1).days == 28
    assert month_after(date(2026, 12, 1), 1) == date(2027, 1, 1)
    assert month_after(date(2026, 1, 1), -1) == date(2025, 12, 1)


def test_retention_is_told_rightly_of_a_fleet(fleet: Fleet) -> None:
    """The whole triangle at once, drawn anew: its intervals hold together, and what is told is enough to go by."""
    asked = metric()
    mechanism, rng = pure(asked.plan), np.random.default_rng(2)
    laws, wrong, twice, widths = memo_laws(mechanism), 0, 0, []
    for _ in range(DRAWS):
        rows = retained(stored_of(asked), read_months(counted(fleet, mechanism, COHORTS, rng, laws), mechanism), FIRST)
        told = [row for row in rows if row.share and row.cohort >= FIRST]
        assert len(told) >= 10
        truths = [
            true_retention(fleet, (row.cohort, row.cohort_last), _base(row.cohort_last), row.month) for row in told
        ]
        held = [
            row.share.lower <= truth <= row.share.upper for row, truth in zip(told, truths, strict=True) if row.share
        ]
        wrong += not all(held)
        # An interval that leaves room for twice the truth would tell nothing.
        twice += any(row.share.upper < 2 * truth for row, truth in zip(told, truths, strict=True) if row.share)
        widths += [row.share.upper - row.share.lower for row in told if row.share]
    assert wrong <= MISSES_MAX
    assert twice == DRAWS
    assert np.median(widths) < 0.5


def _base(cohort_last: date) -> date:
    return month_after(cohort_last, 1)


def test_a_cohort_that_nobody_is_in_and_a_month_without_enough_devices_are_not_told() -> None:
    asked = metric()
    mechanism, rng = pure(asked.plan), np.random.default_rng(3)
    small = live(World(installs=5), rng)
    rows = retained(
        stored_of(asked), read_months(counted(small, mechanism, COHORTS, rng, memo_laws(mechanism)), mechanism), FIRST
    )
    assert rows
    assert not any(row.share for row in rows)


def test_cohorts_that_were_over_before_the_metric_began_take_no_room_of_the_others(fleet: Fleet) -> None:
    asked = metric()
    mechanism, rng = pure(asked.plan), np.random.default_rng(5)
    months = read_months(counted(fleet, mechanism, COHORTS, rng, memo_laws(mechanism)), mechanism)
    all_rows, rows = (retained(stored_of(asked), months, begins) for begins in (date(2025, 11, 1), FIRST))
    assert {row.cohort for row in all_rows} - {row.cohort for row in rows} == {date(2025, 11, 1)}
    assert min(row.cohort for row in rows) == FIRST
    widths = {(row.cohort, row.month): row.share.upper - row.share.lower for row in all_rows if row.share}
    told = [row for row in rows if row.share and (row.cohort, row.month) in widths]
    assert told
    assert all(row.share.upper - row.share.lower < widths[row.cohort, row.month] for row in told if row.share)


def test_expected_counts_give_the_truth() -> None:
    """Exactly: half of a cohort stays, and twice as many of another come."""
    asked = metric(24)
    mechanism = pure(asked.plan)
    reports = 10**9
    months = []
    for place, shares in enumerate(([0.5, 0.25], [0.5, 0.25], [0.25, 0.5])):
        counts = _expected(mechanism, [*shares, *[0.0] * 22, 1 - sum(shares)], reports)
        months.append(_month(date(2026, 2 + place, 1), counts, mechanism))
    rows = {(row.cohort, row.month): row for row in retained(stored_of(asked), months, date(2026, 1, 5))}
    january = [rows[date(2026, 1, 1), month].share for month in (date(2026, 3, 1), date(2026, 4, 1))]
    assert january[0] is not None
    assert january[1] is not None
    assert january[0].estimate == pytest.approx(1, rel=1e-6)
    assert january[1].estimate == pytest.approx(0.5, rel=1e-6)
    february = rows[date(2026, 2, 1), date(2026, 4, 1)].share
    assert february is not None
    assert february.estimate == pytest.approx(2, rel=1e-6)


def _expected(
    mechanism: PureMechanism, shares: list[float], reports: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    from dither_shared.mechanisms.mechanism import MemoizedPure

    assert isinstance(mechanism, MemoizedPure)
    memos, again = memo_laws(mechanism)
    return np.rint(reports * (np.array(shares) @ memos @ again)).astype(np.int64)


def _month(month: date, counts: np.ndarray[tuple[int], np.dtype[np.int64]], mechanism: PureMechanism):  # type: ignore[no-untyped-def]
    from dither_aggregator.analysis.functional import Functionals
    from dither_aggregator.analysis.people import Month

    n, window = int(counts.sum()), periods_of(month, 7)
    return Month(month, window, 4, n, None, month, month), Functionals(mechanism, counts, n, 8)


# Page and API.


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[Site]:
    with people_site(tmp_path_factory.mktemp("people"), fleet, COHORTS) as made:
        yield made


def test_the_page_says_what_the_api_says(one: Site, fleet: Fleet) -> None:
    html = one.client.get("/people").text
    meta, rows = ask(one, "/v1/people/active")
    assert (meta["level"], meta["late"]) == (95, LATE)
    assert len(rows) == 12
    last = rows[-1]
    assert f"At least {last['least']:,} devices were used in the week to {last['last']}, if at most" in words(html)
    for row in rows:
        assert f"<td>{row['n']:,}</td><td>{row['least']:,}</td>" in html
        week = (date.fromisoformat(row["first"]) - FIRST).days // 7
        if week < len(fleet.came):
            assert row["n"] == fleet.came[week].sum()
            assert row["least"] <= fleet.truth[week].sum()
    assert "Devices that left before it are in no number" in words(html)
    assert "as a part of those used in the cohort's first whole month" in words(html).replace("&#39;", "'")
    _, triangle = ask(one, "/v1/people/retention")
    told = [row for row in triangle if row["estimate"] is not None]
    assert told
    for row in told:
        share = html[html.index(f"<td>{100 * row['estimate']:.0f}\N{NO-BREAK SPACE}%<br>") :]
        assert f"{floor(100 * row['lower'])} to {ceil(100 * row['upper'])}" in share
    _, months = ask(one, "/v1/people/newcomers")
    assert [row["month"] for row in months] == [f"2026-{month:02}-01" for month in range(1, len(months) + 1)]
    # As new count devices of two months, so that a month in which one of these is over has no number of its own.
    assert [row["estimate"] is not None for row in months] == [place % 2 == 1 for place in range(len(months))]
    assert f"<td>{months[2]['n'] / months[2]['periods']:,.0f}</td><td>with 2026-04</td>" in html


def test_the_picture_of_the_latest_month_marks_100_percent_and_says_where_it_ends(one: Site) -> None:
    html = one.client.get("/people").text
    (stored,) = one.store.measuring_people()
    found = people(one.store, stored)
    uppers = [row.share.upper for row in found.retained if row.share and row.month == found.months[-1].first]
    most = max(1.0, ceil(10 * max(uppers)) / 10)
    assert f"Each line goes from 0 % to {100 * most:.0f} %" in words(html).replace("\N{NO-BREAK SPACE}", " ")
    assert html.count(f'<path class="mark" d="M{200 / most:.1f} 0V12"/>') == len(uppers)


def test_a_site_without_such_a_metric_says_how_to_have_one_and_has_no_such_link(tmp_path: Path) -> None:
    with site_of(registry_of("theme"), tmp_path) as made:
        html = made.client.get("/people").text
        assert "No metric of this registry counts devices" in html
        assert 'href="/people"' not in made.client.get("/").text
        assert ask(made, "/v1/people/active")[1] == []


def test_a_menu_leads_there_where_one_has(one: Site) -> None:
    assert 'href="/people"' in one.client.get("/").text


def test_months_begin_with_the_first_whole_one_and_days_of_the_future_are_not_read(one: Site) -> None:
    (stored,) = one.store.measuring_people()
    found = people(one.store, stored)
    assert found.months[0].first == FIRST
    assert found.months[-1].window.last <= one.store.sealed()
    assert all(period.window.last <= one.store.sealed() for period in found.active)


def test_what_all_periods_share_is_looked_up_once_and_sealed_counts_are_added_up_once(one: Site) -> None:
    """A daily metric has a thousand periods in three years, and looked each up by itself, on every visit."""
    (stored,) = one.store.measuring_people()
    with patch.object(one.store, "finals", Mock(wraps=one.store.finals)) as looked:
        found = people(one.store, stored)
    assert looked.call_count == 2  # of periods, and of months
    with patch.object(one.store, "tally", side_effect=AssertionError):
        assert people(one.store, stored) == found


# The question.

COUNTED = "/v1/query?q=count(devices active in a week)"


def test_a_question_counts_the_same_devices_below_the_pages_bounds(one: Site, fleet: Fleet) -> None:
    """Its intervals hold together with those of all other questions, so each is surer, and lower, than a page's."""
    _, shown = ask(one, "/v1/people/active")
    _, rows = ask(one, COUNTED)
    assert [(row["from"], row["to"], row["n"]) for row in rows] == [
        (row["first"], row["last"], row["n"]) for row in shown
    ]
    for row, page in zip(rows, shown, strict=True):
        assert (row["upper"], row["unit"], row["family"]) == (None, "devices", "single")
        assert 0.7 * page["least"] < row["estimate"] == row["lower"] == row["devices"] < page["least"]
    html = one.client.get("/ask", query_string={"q": "count(devices active in a week)"}).text
    assert f"at least {int(rows[-1]['lower']):,} devices in {rows[-1]['from']} to {rows[-1]['to']}" in words(html)
    assert "if at most 15% of a week's reports come later, or never, and about as many of each" in words(html)


def test_a_question_counts_devices_of_all_periods_in_its_days(one: Site) -> None:
    _, rows = ask(one, f"{COUNTED} in 2026-04")
    assert [row["from"] for row in rows] == ["2026-04-02", "2026-04-09", "2026-04-16", "2026-04-23"]
    assert all(row["to"] <= "2026-04-30" for row in rows)
    fixed = one.client.post("/v1/query", json={"questions": ["count(devices active in a week) in 2026-04"]})
    narrower = fixed.get_json()["rows"]
    assert {row["together"] for row in narrower} == {4}
    assert all(one["lower"] > other["lower"] for one, other in zip(narrower, rows, strict=True))


def test_no_bound_follows_an_outage_in_a_question(gapped: Site) -> None:
    _, shown = ask(gapped, "/v1/people/active")
    _, rows = ask(gapped, COUNTED)
    assert [row["lower"] is None for row in rows] == [row["least"] is None for row in shown]
    untold = next(row for row in rows if row["lower"] is None)
    assert untold["untold"] == "reports of a period before it are missing"


@pytest.mark.parametrize(("span", "line"), [("day", '"1d"'), ("month", '"28d"')])
def test_a_question_that_no_metric_answers_says_which_would(one: Site, span: str, line: str) -> None:
    answer = one.client.get("/v1/query", query_string={"q": f"count(devices active in a {span})"})
    assert answer.status_code == 400
    assert (
        f'no metric counts devices by {span}: one with measures = "first_month", period = {line} would'
        in (answer.get_json()["detail"])
    )


def test_the_fleet_of_a_count_is_the_first_that_has_a_bound(one: Site) -> None:
    html = one.client.get("/ask", query_string={"q": "count(devices active in a week)", "fleet": "true"}).text
    (needed,) = re.findall(r"It tells a bound from about ([0-9,]+) reports in a period on", html)
    n = int(needed.replace(",", ""))
    alpha = Asking(one.store).single(None).alpha
    assert least(n, [n, n], confidence=1 - alpha) > 0 == least(n - 1, [n - 1, n - 1], confidence=1 - alpha)


def test_a_count_without_a_whole_week_does_not_ask_for_more_devices(one: Site) -> None:
    (row,) = (found := one.client.get(f"{COUNTED} last 3 days").get_json())["rows"]
    assert row["untold"] == "no whole week of which reports are kept"
    assert found["meta"]["needed"] == ""
