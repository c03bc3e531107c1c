"""A few values of a metric day by day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from flask import render_template

from dither_aggregator.analysis.series import VALUES_MAX, Point
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.asking import (
    LEVELS,
    Given,
    given,
)
from dither_aggregator.web.charts.series import SeriesChart, draw_series
from dither_aggregator.web.computed import SeriesAsked, asked_series
from dither_aggregator.web.pages.words import plan_state


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
    return render_template("time.html", page=time_page(store, name, given(SeriesAsked)))


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
