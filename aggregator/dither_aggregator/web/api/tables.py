"""The results of pages as rows: days of a few values, two windows side by side, changes, a plan of a metric."""

from collections.abc import Iterator
from typing import Any

from marshmallow import fields

from dither_aggregator.analysis.differences import Comparison
from dither_aggregator.analysis.planning import Planned, Unplannable, neighbours, registry_lines
from dither_aggregator.analysis.reading import COLUMNS
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store
from dither_aggregator.web.api.rowsets import RowsAsked, RowSet
from dither_aggregator.web.planned import EXPIRES_AFTER, PlanningAsked, planned
from dither_aggregator.web.queries import CompareAsked, SeriesAsked, asked_comparison, asked_series, changed, compared
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.wire.problems import Problem

STILL = "cannot be told to have moved"
DIFFERENCES = (*COLUMNS, "base_from", "base_to", "base_n", "base_left_out", "before", "after", "p_value", "unit")
PLAN = (
    *(
        "kind",
        "d",
        "ticks",
        "asks",
        "columns",
        "arms",
        "n",
        "epsilon",
        "epsilon_permanent",
        "days",
        "mechanism",
        "bits",
    ),
    *("noise_floor", "critical_share", "detectable_share", "mean_width_percent", "median_width_percent"),
    "effect_percent",
)


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


def series(store: Store, asked: QueryParameters, metric: str) -> RowSet:
    """Return a row for each value, day and plan: no verdicts and no ranks, which are of windows."""
    stored, window, values, points = asked_series(store, metric, asked)
    rows = [
        [
            *(metric, point.rev, point.epoch.isoformat(), point.epoch.isoformat(), point.value, point.n),
            *(point.estimate, point.std_error, point.lower, point.upper, None, None, None, point.provisional, None),
            point.left_out,
        ]
        for point in points
    ]
    meta = {
        "app": store.app,
        "metric": metric,
        "question": stored.question,
        **_days(window),
        "values": list(values),
        "level": int(asked["level"]),
        "error_of": "population",
        "unit": stored.plan.domain.unit,
    }
    return RowSet(meta, COLUMNS, rows, f"{metric}-days-{window.first}-{window.last}")


def compare(store: Store, asked: QueryParameters) -> RowSet:
    """Return the difference of each value between two windows."""
    comparison = compared(store, *asked_comparison(store, asked), asked["level"])
    before, after = comparison.before, comparison.after
    meta = {
        "app": store.app,
        "metric": after.stored.plan.metric,
        "question": after.stored.question,
        "plan": after.stored.plan.digest,
        "rev": after.stored.plan.rev,
        **_days(after.window),
        **_days(before.window, "base_"),
        "n": after.n,
        "left_out": after.left_out,
        "base_n": before.n,
        "base_left_out": before.left_out,
        "provisional": before.provisional or after.provisional,
        "level": int(asked["level"]),
        "error_of": "population",
        "unit": after.stored.plan.domain.unit,
        "detectable_difference": comparison.detectable,
    }
    name = f"{after.stored.plan.metric}-{before.window.first}-{after.window.last}-compared"
    return RowSet(meta, DIFFERENCES, _differences(comparison, moved=False), name)


def changes(store: Store, asked: QueryParameters) -> RowSet:
    """Return what moved between the last two windows, of all metrics, the surest metric first."""
    found, left_out = changed(store)
    rows = [row for one in found.moved for row in _differences(one, moved=True)]
    meta = {
        "app": store.app,
        **_days(found.after),
        **_days(found.before, "base_"),
        "metrics_moved": len(found.moved),
        "metrics_compared": len(found.moved) + len(found.still),
        "metrics_without_reports": len(found.untold),
        "metrics_left_out": len(left_out),
        "metrics_damaged": len(found.damaged),
        "metrics_being_computed": [stored.plan.metric for stored, _ in found.open],
        "error_of": "population",
    }
    return RowSet(meta, DIFFERENCES, rows, f"changes-{found.after.first}-{found.after.last}")


def plan(store: Store, asked: QueryParameters) -> RowSet:
    """Return the third of reports, epsilon and share (or its like), given two; and what would be with more and less."""
    try:
        answer = planned(asked)
        rows = [_planned(each) for each in (answer, *neighbours(answer))]
    except Unplannable as error:
        raise Problem("malformed", str(error)) from None
    lines = registry_lines(answer, store.app, store.today() + EXPIRES_AFTER)
    third = {"share": None, "width_percent": None, "effect_percent": None, **answer.in_meta()}
    return RowSet({"computed": answer.computed, **third, "registry": lines}, PLAN, rows, "plan")


def _days(window: Window, before: str = "") -> dict[str, object]:
    return {f"{before}from": window.first.isoformat(), f"{before}to": window.last.isoformat()}


def _differences(comparison: Comparison, *, moved: bool) -> Iterator[list[object]]:
    before, after = comparison.before, comparison.after
    plan, days, base = after.stored.plan, _days(after.window).values(), _days(before.window).values()
    for row in comparison.moved if moved else comparison.rows:
        numbers = (row.estimate, row.std_error, row.lower, row.upper)
        found = (row.verdict or STILL, None, None, False, None, after.left_out)
        own = (*base, before.n, before.left_out, row.before, row.after, row.p_value, plan.domain.unit)
        yield [plan.metric, plan.rev, *days, row.value, after.n, *numbers, *found, *own]


def _planned(each: Planned[Any]) -> list[object]:
    known = each.to_document()
    return [known.get(column) for column in PLAN]
