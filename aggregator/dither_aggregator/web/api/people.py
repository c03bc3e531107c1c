"""People as rows: devices that were used, how many of a cohort stay, and how many are new."""

from datetime import date
from typing import Annotated, TypedDict

import msgspec

from dither_aggregator.analysis.people import LATE, LATE_DAILY, measured, pairs, people, periods
from dither_aggregator.analysis.people import stickiness as stickiness_of
from dither_aggregator.analysis.rows import says
from dither_aggregator.store import Store
from dither_aggregator.web.api.rowsets import RowSet
from dither_aggregator.web.query_parameters import QueryParameters


class ActiveMeta(TypedDict):
    """The grounds of lower bounds of devices."""

    app: str
    level: Annotated[int, says("the confidence of each bound, in percent")]
    late: Annotated[
        float,
        says("at most this part of a period's reports comes in the two after it, or never, about as much of each"),
    ]
    late_daily: Annotated[float, says("the same of a metric whose period is a day")]


class ActiveRow(msgspec.Struct, frozen=True):
    """One period of a metric that every device answers which is used in it."""

    metric: str
    rev: int
    first: Annotated[date, says("the first day of the period (UTC)")]
    last: Annotated[date, says("its last day")]
    n: Annotated[int, says("the reports that came in it")]
    least: Annotated[
        int | None,
        says("so many devices were used in it at least; null after a period whose reports are missing"),
    ]


class RetentionMeta(TypedDict):
    """The confidence of the intervals."""

    app: str
    level: Annotated[int, says("the confidence of all intervals of a metric together, in percent")]


class RetentionRow(msgspec.Struct, frozen=True):
    """How many of a cohort's devices are used in a month, as a part of those of its first whole month."""

    metric: str
    rev: int
    cohort_first: Annotated[date, says("the first day of the cohort's first month")]
    cohort_last: Annotated[date, says("the first day of its last month")]
    month: Annotated[date, says("the first day of the month: the periods that begin in it")]
    months_since: Annotated[int, says("months since the cohort's first whole month")]
    n: Annotated[int, says("the reports of the month's periods, of all cohorts")]
    estimate: Annotated[float | None, says("the part that is used; null where too few reports tell it")]
    std_error: float | None
    lower: float | None
    upper: float | None


class NewcomersMeta(TypedDict):
    """The confidence of the intervals."""

    app: str
    level: Annotated[int, says("the confidence of each interval, in percent")]


class NewcomersRow(msgspec.Struct, frozen=True):
    """The share of a month's reports by devices that are new."""

    metric: str
    rev: int
    month: Annotated[date, says("the first day of the month: the periods that begin in it")]
    cohort_first: Annotated[date, says("new devices were first used from this month on, or two years before")]
    cohort_last: Annotated[date, says("and up to the end of this one; only its row tells the share")]
    periods: Annotated[int, says("how many periods begin in it")]
    n: Annotated[int, says("their reports")]
    estimate: Annotated[
        float | None,
        says("the share by new devices, which noise can take below 0 or above 1; null where it is not told"),
    ]
    std_error: float | None
    lower: float | None
    upper: float | None


class StickinessMeta(TypedDict):
    """The grounds of the intervals."""

    app: str
    level: Annotated[int, says("the confidence of each interval, in percent")]
    late: Annotated[
        float,
        says("at most this part of a period's reports comes in the two after it, or never, about as much of each"),
    ]
    late_daily: Annotated[float, says("the same of a metric whose period is a day")]


class StickinessRow(msgspec.Struct, frozen=True):
    """One long period, of the devices that report in it and in its short ones."""

    metric: Annotated[str, says("the metric that counts devices by the long period")]
    rev: int
    part_metric: Annotated[str, says("the metric that counts devices by the short period")]
    part_rev: int
    part_days: Annotated[int, says("how many days a short period has")]
    first: Annotated[date, says("the first day of the long period (UTC)")]
    last: Annotated[date, says("its last day")]
    n: Annotated[int, says("the long period's reports")]
    estimate: Annotated[float, says("reports of a mean short period, over those of the long one")]
    lower: Annotated[float, says("of its devices, at least this part is used in a mean short period")]
    upper: Annotated[float, says("and at most this part")]


LEVEL = 95


def active(store: Store, asked: QueryParameters) -> RowSet[ActiveMeta, ActiveRow]:
    """Return the last periods of each metric that counts devices, the earliest first."""
    rows = [
        ActiveRow(stored.plan.metric, stored.plan.rev, one.window.first, one.window.last, one.n, one.least)
        for stored in measured(store)
        for one in people(store, stored).active
    ]
    return RowSet(
        {"app": store.app, "level": LEVEL, "late": LATE, "late_daily": LATE_DAILY},
        ActiveRow,
        rows,
        f"{store.app}-active",
    )


def retention(store: Store, asked: QueryParameters) -> RowSet[RetentionMeta, RetentionRow]:
    """Return the triangle of each metric that counts devices: the latest cohort first, then by month."""
    rows = [
        RetentionRow(
            *(stored.plan.metric, stored.plan.rev, row.cohort, row.cohort_last, row.month, row.since, row.n),
            *((row.share.estimate, row.share.std_error, row.share.lower, row.share.upper) if row.share else _UNTOLD),
        )
        for stored in measured(store)
        for row in people(store, stored).retained
    ]
    return RowSet({"app": store.app, "level": LEVEL}, RetentionRow, rows, f"{store.app}-retention")


def newcomers(store: Store, asked: QueryParameters) -> RowSet[NewcomersMeta, NewcomersRow]:
    """Return the share of new devices by month, the earliest first."""
    rows = [
        NewcomersRow(
            *(stored.plan.metric, stored.plan.rev, one.first, one.cohort, one.cohort_last, one.periods, one.n),
            *((one.new.estimate, one.new.std_error, one.new.lower, one.new.upper) if one.new else _UNTOLD),
        )
        for stored in measured(store)
        for one in people(store, stored).months
    ]
    return RowSet({"app": store.app, "level": LEVEL}, NewcomersRow, rows, f"{store.app}-newcomers")


def stickiness(store: Store, asked: QueryParameters) -> RowSet[StickinessMeta, StickinessRow]:
    """Return how often devices are used, of each two metrics of which one counts them by a part of the other's period.

    The earliest first; of the last periods, those of which it is known.
    """
    rows = [
        StickinessRow(
            metric=long.plan.metric,
            rev=long.plan.rev,
            part_metric=short.plan.metric,
            part_rev=short.plan.rev,
            part_days=short.period_days,
            first=one.window.first,
            last=one.window.last,
            n=one.n,
            estimate=one.reported,
            lower=one.lower,
            upper=one.upper,
        )
        for short, long in pairs(measured(store))
        for one in stickiness_of(store, short, long, periods(store, long))
    ]
    return RowSet(
        {"app": store.app, "level": LEVEL, "late": LATE, "late_daily": LATE_DAILY},
        StickinessRow,
        rows,
        f"{store.app}-stickiness",
    )


_UNTOLD = (None, None, None, None)
