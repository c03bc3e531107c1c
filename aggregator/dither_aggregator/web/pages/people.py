"""People: how many devices are used at least, how often, and how many of those of a month still are, months later."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil, floor

from flask import render_template

from dither_aggregator.analysis.functional import IntervalEstimate
from dither_aggregator.analysis.people import (
    Active,
    Month,
    People,
    Retained,
    Stickiness,
    late_of,
    pairs,
    people,
    periods,
    stickiness,
)
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.charts import end, percent, precise
from dither_aggregator.web.pages.presentation import lagging
from dither_aggregator.web.query_parameters import Parameters, query_parameters

BAR_TOP, BAR_HEIGHT = 30, 120
WIDTH_OF_BAR = 0.7
"""The part of its place across that a bar takes."""
INTERVAL_WIDTH = 200
"""How wide an interval's picture is, in its own units: from 0 % to the most that is drawn."""


@dataclass(frozen=True)
class PeriodBar:
    """The reports of one period, with the line of how many devices there were at least. Across in percent."""

    x: float
    width: float
    y: float
    height: float
    least_y: float | None
    middle: float
    label: str
    says: str


@dataclass(frozen=True)
class CohortLine:
    """A cohort's interval, for the picture of the latest month."""

    label: str
    low: float
    high: float
    at: float | None
    number: str


@dataclass(frozen=True)
class Section:
    """The part of the page that is of one metric."""

    people: People
    often: Sequence[tuple[StoredPlan, Sequence[Stickiness]]]
    """By metric that counts devices by a part of this one's period: the periods of which it is told, latest first."""
    headline: str
    bars: Sequence[PeriodBar]
    lines: Sequence[CohortLine]
    most: float
    """The part at which the picture of these ends."""
    whole: float
    """The place of 100 % in it."""
    since: Sequence[int]
    """The columns of the triangle: months since a cohort's first whole month."""
    triangle: Sequence[tuple[str, Sequence[Retained | None]]]
    """By cohort, the latest first: its name, and what is known of each of these months."""


def show(store: Store) -> str:
    """Return the page that a request asks for."""
    query_parameters(Parameters)
    sections = [_section(people(store, stored), _often(store, stored)) for stored in store.measuring_people()]
    headline = (
        sections[0].headline if sections else "No metric of this registry counts devices by the month of first use."
    )
    return render_template(
        "people.html",
        sections=sections,
        headline=headline,
        state=lagging(store),
        late=late_in_words,
        percent=percent,
        height=BAR_TOP + BAR_HEIGHT,
        months=months_in_words,
        called=called,
        new=new_in_words,
        ends=ends_in_words,
        span=span_in_words,
    )


def _often(store: Store, stored: StoredPlan) -> list[tuple[StoredPlan, Sequence[Stickiness]]]:
    told = periods(store, stored)
    return [
        (short, stickiness(store, short, long, told)[::-1])
        for short, long in pairs(store.measuring_people())
        if long.plan.metric == stored.plan.metric
    ]


def _section(found: People, often: Sequence[tuple[StoredPlan, Sequence[Stickiness]]]) -> Section:
    # A cohort that was over before the metric began has no cell that can be told.
    cohorts = list(dict.fromkeys(row.cohort for row in found.retained if row.share))
    since = sorted({row.since for row in found.retained if row.cohort in cohorts})
    cells = {(row.cohort, row.since): row for row in found.retained}
    named = {row.cohort: months_in_words(row.cohort, row.cohort_last) for row in found.retained}
    triangle = [(named[cohort], [cells.get((cohort, each)) for each in since]) for cohort in cohorts]
    latest = _latest(found)
    most = max([1.0, *(ceil(10 * share.upper) / 10 for _, share in latest)])
    lines = _lines(latest, named, most)
    return Section(found, often, _headline(found), _bars(found.active), lines, most, _place(1.0, most), since, triangle)


def _headline(found: People) -> str:
    if not found.active:
        return "No whole period is closed yet, or the counts before it are not kept."
    last = found.active[-1]
    if not last.n:
        return f"No report came {called(found, last)}."
    if last.least is None:
        return (
            f"How many devices were used {called(found, last)} is not told: reports of a period before it are missing, "
            f"and come late. {last.n:,} reports came in it."
        )
    return (
        f"At least {last.least:,} devices were used {called(found, last)}, "
        f"if at most {late_in_words(found.stored)} of the reports of each period come late or never, "
        "and about as many of each."
    )


def called(found: People, one: Active) -> str:
    """Return a period's name, in words that follow "were used"."""
    if found.stored.period_days == 1:
        return f"on {one.window.last}"
    return f"in the {span_in_words(found.stored)} to {one.window.last}"


def late_in_words(stored: StoredPlan) -> str:
    """Return which part of a period's reports may come late or never."""
    return percent(late_of(stored.period_days), 0)


def span_in_words(stored: StoredPlan) -> str:
    """Return how long a metric's period is."""
    return {1: "day", 7: "week"}.get(stored.period_days, f"{stored.period_days} days")


def least_in_words(one: Active) -> str:
    """Return how many devices were used in a period at least."""
    return "devices not told" if one.least is None else f"at least {one.least:,} devices"


def months_in_words(first: date, last: date) -> str:
    """Return a cohort's months."""
    return f"{first:%Y-%m}" if first == last else f"{first:%Y-%m} to {last:%Y-%m}"


def new_in_words(month: Month) -> str:
    """Return the share of a month's reports by devices of its own cohort, with its interval."""
    if month.first != month.cohort_last:
        return f"with {month.cohort_last:%Y-%m}"
    if month.new is None:
        return "not told"
    error = month.new.std_error
    return f"{precise(month.new.estimate, error)} ({end(month.new.lower, error)} to {end(month.new.upper, error)})"


def ends_in_words(share: IntervalEstimate | Stickiness) -> str:
    """Return an interval in whole percent, none of which is cut off."""
    return f"{floor(100 * share.lower)} to {ceil(100 * share.upper)}"


def _bars(periods: Sequence[Active]) -> list[PeriodBar]:
    most = max((one.n for one in periods), default=0) or 1
    step = 100 / max(len(periods), 1)

    def y(number: int) -> float:
        return round(BAR_TOP + BAR_HEIGHT * (1 - number / most), 2)

    return [
        PeriodBar(
            x=round(step * (place + (1 - WIDTH_OF_BAR) / 2), 3),
            width=round(step * WIDTH_OF_BAR, 3),
            y=y(one.n),
            height=round(BAR_TOP + BAR_HEIGHT - y(one.n), 2),
            least_y=None if one.least is None else y(one.least),
            middle=round(step * (place + 0.5), 3),
            label=f"{one.window.last:%m-%d}" if (len(periods) - 1 - place) % 3 == 0 else "",
            says=f"to {one.window.last}: {one.n:,} reports, {least_in_words(one)}",
        )
        for place, one in enumerate(periods)
    ]


def _latest(found: People) -> list[tuple[date, IntervalEstimate]]:
    """Return each cohort's part that is used in the latest month, where it is told."""
    if not found.months:
        return []
    return [(row.cohort, row.share) for row in found.retained if row.month == found.months[-1].first and row.share]


def _lines(shares: Sequence[tuple[date, IntervalEstimate]], named: dict[date, str], most: float) -> list[CohortLine]:
    def place(part: float) -> float:
        return _place(part, most)

    return [
        CohortLine(
            named[cohort],
            place(share.lower),
            place(share.upper),
            place(share.estimate),
            precise(share.estimate, share.std_error),
        )
        for cohort, share in shares
    ]


def _place(part: float, most: float) -> float:
    return round(INTERVAL_WIDTH * min(max(part, 0.0), most) / most, 1)
