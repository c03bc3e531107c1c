"""A few values of a metric day by day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from flask import render_template
from marshmallow import fields, validate

from dither_aggregator.analysis.estimands import TallyGone, read
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.series import VALUES_MAX, Point, series
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.api import refuse_long
from dither_aggregator.web.asking import (
    LEVELS,
    Given,
    LevelAsked,
    WindowAsked,
    asked_plan,
    asked_window,
    default_window,
    given,
)
from dither_aggregator.web.charts.series import SeriesChart, draw_series
from dither_aggregator.web.pages.words import plan_state
from dither_shared.wire.problems import Problem

DAYS = 28


class TimeAsked(WindowAsked, LevelAsked):
    """What a metric's days are asked for."""

    values = fields.List(
        fields.String(),
        validate=validate.Length(max=VALUES_MAX, error=f"may be given {VALUES_MAX} times at most"),
        metadata={"description": f"up to {VALUES_MAX} values; by default those that stand out of the last window"},
    )


@dataclass(frozen=True)
class TimePage:
    """All that the template shows of a metric's days."""

    stored: StoredPlan
    window: Window
    level: str
    values: Sequence[str]
    listed: Sequence[str]
    """The values on offer."""
    state: Sequence[str]
    headline: str
    chart: SeriesChart | None = None
    table: Sequence[tuple[date, Sequence[Point]]] = ()
    """The points of each day and plan."""
    levels: Sequence[str] = LEVELS
    slots: int = VALUES_MAX


LISTED_MAX = 1_000
"""So many values are offered in the form's list; others are typed."""


def show(store: Store, name: str) -> str:
    """Return the page that a request asks for."""
    return render_template("time.html", page=time_page(store, name, given(TimeAsked)))


def asked_series(store: Store, name: str, asked: Given) -> tuple[StoredPlan, Window, Sequence[str], list[Point]]:
    """Return the plan, the days, the values and the points that a request asks for."""
    stored = asked_plan(store, name, asked)
    refuse_long(stored)
    window = asked_window(store, asked) or _last_days(store, name)
    values = tuple(dict.fromkeys(asked.get("values") or _standing_out(store, stored)))
    plans = store.plans(name)
    known = {value for each in plans for value in each.plan.values or each.candidates}
    for value in values:
        if value not in known:
            raise Problem("malformed", f"the metric {name!r} has no value {value!r}")
    return stored, window, values, series(store, plans, window, values, int(asked["level"]) / 100)


def time_page(store: Store, name: str, asked: Given) -> TimePage:
    """Return what the page of a metric's days shows."""
    stored, window, values, points = asked_series(store, name, asked)
    listed = [value for value in stored.plan.values or stored.candidates if value not in values][:LISTED_MAX]
    state = plan_state(store, stored)
    days: dict[tuple[date, str], list[Point]] = {}
    for point in points:
        days.setdefault((point.epoch, point.plan), []).append(point)
    table = [(epoch, found) for (epoch, _), found in sorted(days.items(), key=lambda item: item[0][0])]
    if not values:
        headline = "Nothing stands out of the last window: name a value to see its days."
    elif not points:
        headline = "No reports of these days are counted, or their counts are no longer kept."
    else:
        headline = f"{len({epoch for epoch, _ in table}):,} days with reports."
    chart = draw_series(points, window) if points else None
    return TimePage(stored, window, asked["level"], values, listed, state, headline, chart, table)


def _last_days(store: Store, name: str) -> Window:
    """Return the last days to today, from the first of them that has reports."""
    window = Window.ending(store.today(), DAYS + 1)
    there = [day for stored in store.plans(name) for day in store.epochs(stored.plan) if day in window]
    return Window(min(there, default=window.first), window.last)


def _standing_out(store: Store, stored: StoredPlan) -> Sequence[str]:
    """Return the values that lead the metric's page."""
    if stored.plan.kind.asked_alone:
        return (stored.plan.kind.asked_alone,)
    window = default_window(store, stored)
    try:
        standing = read(store, stored, window.last, View(simultaneous=True, days=window.days)).standing()
    except TallyGone:
        return ()
    return [ranked.row.value for ranked in standing.head[:VALUES_MAX]] if standing else ()
