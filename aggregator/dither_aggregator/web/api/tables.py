"""The results of pages as rows: days of a few values, two windows, changes, a plan of a metric, and people."""

from collections.abc import Iterable, Iterator
from datetime import date
from math import isnan
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import msgspec
from marshmallow import fields

from dither_aggregator.analysis.differences import Comparison, Difference, group_differences
from dither_aggregator.analysis.installs import described
from dither_aggregator.analysis.people import LATE, LATE_DAILY, pairs, people, periods
from dither_aggregator.analysis.people import stickiness as stickiness_of
from dither_aggregator.analysis.planning import Computed, Planned, Unplannable, neighbours
from dither_aggregator.analysis.reading import EstimateRow, Window
from dither_aggregator.analysis.rows import Days, LeftOut, Provisional, says
from dither_aggregator.store import Store
from dither_aggregator.web.api.rowsets import EpsilonOfOne, MetricMeta, RowsAsked, RowSet, StoredPlanMeta, Unit, meta_of
from dither_aggregator.web.pages.planning import EXPIRES_AFTER, PlanningAsked, of_installs
from dither_aggregator.web.queries import (
    CompareAsked,
    SeriesAsked,
    asked_comparison,
    asked_series,
    changed,
    chosen_differences,
    compared,
    days_together,
)
from dither_aggregator.web.query_parameters import QueryParameters, asked_confidence, asked_level
from dither_shared.wire.reading import Problem

BaseFirst = Annotated[date, says("the first day of the window before (UTC)")]
BaseLast = Annotated[date, says("its last day (UTC)")]


class SeriesMeta(Days, MetricMeta):
    """The days and the values that the rows are about."""

    values: list[str]
    level: Annotated[float, says("how sure the intervals are, in percent: all at once, of all days and values")]
    together: Annotated[
        int,
        says(
            "for how many days intervals hold at once, of all revs: those that are shown or, where a reader chose "
            "days, all that can be chosen of those that are kept"
        ),
    ]
    error_of: str
    unit: Unit


class SeriesRow(EstimateRow, frozen=True):
    """One value on one day: no rank, which is of windows, and no verdict but that it is untold."""


class BaseMeta(Days):
    """Two windows: the days before are those with which others are compared."""

    base_from: BaseFirst
    base_to: BaseLast


class CompareMeta(BaseMeta, StoredPlanMeta):
    """The two windows, and the metric that they are of."""

    n: Annotated[int, says("reports of the later window")]
    left_out: LeftOut
    base_n: Annotated[int, says("reports of the one before")]
    base_left_out: Annotated[int | None, says("the same of the one before")]
    provisional: Provisional
    level: Annotated[float, says("how sure the intervals are, in percent, all at once")]
    together: Annotated[
        int,
        says(
            "for how many pairs of windows intervals and verdicts hold at once: 1 where pages offer the later one and "
            "the other has as many days before it, else all pairs that can be chosen of the days that are kept"
        ),
    ]
    error_of: str
    unit: Unit
    detectable_difference: Annotated[float | None, says("a rare value that moves by this is found four times in five")]


class DifferenceRow(EstimateRow, frozen=True):
    """One value's difference: after less before, of the population; of shares, or of numbers in their unit."""

    verdict: Literal["rose", "fell", "cannot be told to have moved", "untold"]  # type: ignore[assignment]  # of its own
    base_from: BaseFirst
    base_to: BaseLast
    base_n: Annotated[int, says("reports of the window before")]
    base_left_out: Annotated[int | None, says("those of it that are left out")]
    before: Annotated[float | None, says("the estimate of the window before; null where it is untold")]
    after: Annotated[float | None, says("the estimate of the later one, likewise")]
    p_value: Annotated[
        float | None, says("how often noise and sampling alone make such a difference of this value; null if untold")
    ]
    unit: Unit


class ChangesMeta(BaseMeta):
    """The two windows, and how many metrics were looked at."""

    app: str
    metrics_moved: int
    metrics_compared: int
    metrics_without_reports: Annotated[int, says("in one of the two windows, or whose counts are no longer kept")]
    metrics_left_out: Annotated[int, says("whose candidates are too many to be looked for here")]
    metrics_damaged: Annotated[int, says("whose counts cannot be those of any reports")]
    metrics_being_computed: NotRequired[Annotated[list[str], says("metrics that are not computed yet; ask again soon")]]
    error_of: str


class ShownMeta(TypedDict):
    """The reports of so many days, read as one."""

    days: int
    reports: Annotated[float, says("on average")]
    told: Annotated[str | None, says("what they tell; null where not even one is expected")]
    part: Annotated[float | None, says("the least of it that they tell, as a part of 1")]


class OutlookMeta(TypedDict):
    """The windows of installs' reports, and what each shows."""

    useful: Annotated[bool, says("whether all of them show what is looked for, or a share of a quarter")]
    week: ShownMeta
    quarter: ShownMeta
    whole: Annotated[ShownMeta, says("a year, or the days until the metric expires")]


class ChangeMeta(OutlookMeta):
    """Other values of a metric's keys, and what they would do."""

    lines: Annotated[str, says("the registry's")]
    price: str


class InstallsMeta(OutlookMeta):
    """The worth of so many installs' reports of the plan, as `dither metrics check --installs --json` says it."""

    verdict: str
    installs_needed: Annotated[int | None, says("how many would make it useful")]
    changes: list[ChangeMeta]
    advice: list[str]


class PlanMeta(TypedDict):
    """The computed plan."""

    computed: Computed
    share: Annotated[
        float | None, says("the share that was asked for, or the detectable one; null for numbers and tables")
    ]
    width_percent: Annotated[
        float | None,
        says(
            "for a number: the width that was asked for, or that of the median's interval, or of the mean's where it "
            "is all that is asked"
        ),
    ]
    effect_percent: Annotated[
        float | None, says("for a table: the difference between arms that was asked for, or the least that is told")
    ]
    registry: Annotated[str, says("the lines of a registry, as TOML")]
    installs_week: Annotated[int, says("how many installs send the plan's reports in a week")]
    installs_year: Annotated[int, says("how many send as many in a year")]
    installs: Annotated[InstallsMeta | None, says("of the installs that were asked for")]


class PlanRow(msgspec.Struct, frozen=True):
    """A metric as the registry would compile it: first what was asked for, then with more and less."""

    kind: str
    d: Annotated[
        int | None,
        says(
            "values, other included; for a table those of each column; for a number its ranges or steps, null where "
            "only its mean is asked"
        ),
    ]
    ticks: Annotated[int | None, says("the most values of one answer")]
    asks: Annotated[str | None, says("for a number: everything, or mean")]
    columns: Annotated[int | None, says("for a table: the number of columns")]
    arms: Annotated[int | None, says("for a table: how many of one size are compared")]
    n: Annotated[int, says("reports")]
    epsilon: EpsilonOfOne
    epsilon_permanent: Annotated[float | None, says("the epsilon of one memoized answer")]
    days: Annotated[int, says("days of the window")]
    mechanism: str
    bits: Annotated[int, says("bits of a report")]
    noise_floor: Annotated[float | None, says("null for numbers and tables")]
    critical_share: float | None
    detectable_share: float | None
    mean_width_percent: Annotated[
        float | None,
        says(
            "the width of the mean's 95 % interval, in percent of the range from low to high; null where nothing is "
            "told"
        ),
    ]
    median_width_percent: Annotated[
        float | None,
        says(
            "the width of the median's interval, which holds together with those of the mean and of other quantiles; "
            "null where it is not told"
        ),
    ]
    effect_percent: Annotated[
        float | None,
        says(
            "for a table: the least difference of a value's share between one arm and all others that is told four "
            "times in five, in percentage points; null where none is"
        ),
    ]


class SeriesRowsAsked(SeriesAsked, RowsAsked):
    """The parameters of a metric's days."""


class CompareRowsAsked(CompareAsked, RowsAsked):
    """The parameters of two windows."""

    metric = fields.String(
        required=True,
        error_messages={"required": "is needed; GET /v1/metrics lists them"},
        metadata={"description": "the metric's name"},
    )


class PlanRowsAsked(PlanningAsked, RowsAsked):
    """The parameters of a plan."""


def series(store: Store, asked: QueryParameters, metric: str) -> RowSet[SeriesMeta, SeriesRow]:
    """Return a row for each value, day and plan, whether it is told or not."""
    stored, window, values, points = asked_series(store, metric, asked)
    rows = [
        SeriesRow(
            *(metric, point.rev, point.epoch, point.epoch, point.value, point.n),
            *(None if point.untold else point.estimate, point.told_error, point.lower, point.upper, "population"),
            *("untold" if point.untold else None, None, None),
            *(point.provisional, None, point.left_out),
        )
        for point in points
    ]
    meta: SeriesMeta = {
        "app": store.app,
        "metric": metric,
        "question": stored.question,
        **window.ends,
        "values": list(values),
        "level": asked_level(asked),
        "together": days_together(store, stored, window, asked),
        "error_of": "population",
        "unit": "" if asked.get("group") else stored.plan.domain.unit,
    }
    return RowSet(meta, SeriesRow, rows, f"{metric}-days-{window.first}-{window.last}")


def compare(store: Store, asked: QueryParameters) -> RowSet[CompareMeta, DifferenceRow]:
    """Return the difference of each value between two windows, of some, or of groups of them."""
    comparison = compared(store, *asked_comparison(store, asked), asked_confidence(asked))
    before, after = comparison.before, comparison.after
    unit, rows = after.stored.plan.domain.unit, [*comparison.rows, *comparison.untold]
    if groups := asked.get("group"):
        confidence = after.view.own_confidence
        rows, unit = group_differences(store, after.stored, before.window, after.window, confidence, groups), ""
    elif values := asked.get("values"):
        rows = chosen_differences(comparison, values)
    meta: CompareMeta = {
        **meta_of(store, after.stored),
        **_windows(before.window, after.window),
        "n": after.n,
        "left_out": after.left_out,
        "base_n": before.n,
        "base_left_out": before.left_out,
        "provisional": before.provisional or after.provisional,
        "level": asked_level(asked),
        "together": after.view.together,
        "error_of": "population",
        "unit": unit,
        "detectable_difference": comparison.detectable,
    }
    name = f"{after.stored.plan.metric}-{before.window.first}-{after.window.last}-compared"
    return RowSet(meta, DifferenceRow, _differences(comparison, rows, unit), name)


def changes(store: Store, asked: QueryParameters) -> RowSet[ChangesMeta, DifferenceRow]:
    """Return what moved between the last two windows, of all metrics, the surest metric first."""
    found, left_out = changed(store)
    rows = [row for one in found.moved for row in _differences(one, one.moved, one.after.stored.plan.domain.unit)]
    meta: ChangesMeta = {
        "app": store.app,
        **_windows(found.before, found.after),
        "metrics_moved": len(found.moved),
        "metrics_compared": len(found.moved) + len(found.still),
        "metrics_without_reports": len(found.untold),
        "metrics_left_out": len(left_out),
        "metrics_damaged": len(found.damaged),
        "metrics_being_computed": [stored.plan.metric for stored, _ in found.open],
        "error_of": "population",
    }
    return RowSet(meta, DifferenceRow, rows, f"changes-{found.after.first}-{found.after.last}")


def plan(store: Store, asked: QueryParameters) -> RowSet[PlanMeta, PlanRow]:
    """Return the third of reports, epsilon and share (or its like), given two; and what would be with more and less."""
    try:
        answer, plan_ = of_installs(asked, store.app, store.today() + EXPIRES_AFTER)
        rows = [_planned(each) for each in (answer, *neighbours(answer))]
    except Unplannable as error:
        raise Problem("malformed", str(error)) from None
    targets = {"share": None, "width_percent": None, "effect_percent": None, **answer.in_meta()}
    meta = {
        "computed": answer.computed,
        **targets,
        "registry": plan_.lines,
        "installs_week": plan_.needed_week,
        "installs_year": plan_.needed_year,
        "installs": plan_.outlook and described(plan_.outlook, plan_.changes, plan_.advice),
    }
    return RowSet(cast("PlanMeta", meta), PlanRow, rows, "plan")


def _windows(before: Window, after: Window) -> BaseMeta:
    return {**after.ends, "base_from": before.first, "base_to": before.last}


def _differences(comparison: Comparison, rows: Iterable[Difference], unit: str) -> Iterator[DifferenceRow]:
    before, after = comparison.before, comparison.after
    plan = after.stored.plan
    for row in rows:
        yield DifferenceRow(
            *(plan.metric, plan.rev, after.window.first, after.window.last, row.value, after.n),
            *(None if row.untold else row.estimate, row.told_error, row.lower, row.upper, "population"),
            "untold" if row.untold else row.verdict or "cannot be told to have moved",
            *(None, None, False, None, after.left_out),  # nothing provisional is compared
            *(before.window.first, before.window.last, before.n, before.left_out),
            None if isnan(row.before) else row.before,
            None if isnan(row.after) else row.after,
            None if row.untold else row.p_value,
            unit,
        )


def _planned(each: Planned[Any]) -> PlanRow:
    known = each.to_document()
    row: dict[str, Any] = {name: known.get(name) for name in PlanRow.__struct_fields__}
    return PlanRow(**row)


# People: devices that were used, how many of a cohort stay, and how many are new.


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
        for stored in store.measuring_people()
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
        for stored in store.measuring_people()
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
        for stored in store.measuring_people()
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
        for short, long in pairs(store.measuring_people())
        for one in stickiness_of(store, short, long, periods(store, long))
    ]
    return RowSet(
        {"app": store.app, "level": LEVEL, "late": LATE, "late_daily": LATE_DAILY},
        StickinessRow,
        rows,
        f"{store.app}-stickiness",
    )


_UNTOLD = (None, None, None, None)
