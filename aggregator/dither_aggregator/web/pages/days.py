"""The days of a metric: a few values day by day, and the snapshot of a closed day or window, to cite.

A snapshot's pages show what can be told, what it was made of, and the same as CSV and SVG.
All numbers are the snapshot's own, but for those that a reader who picks the largest needs: intervals that hold all at
once, and the ranks that follow. These are computed anew from its counts, and the page says so.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from math import isclose
from typing import Any

from flask import Response, render_template

from dither_aggregator.analysis.closed_days import Snapshot, read_snapshot
from dither_aggregator.analysis.differences import group_names
from dither_aggregator.analysis.estimands import Point, estimand_of, estimate, takes_seconds
from dither_aggregator.analysis.reading import Reading, View, Window
from dither_aggregator.analysis.reading_cache import NotReady, refuse_slow
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.document_kinds import DayMark
from dither_aggregator.web.api.listings import immutable, no_snapshot
from dither_aggregator.web.api.rowsets import CsvAsked, csv_file
from dither_aggregator.web.charts import SHARES, Measure, SeriesChart, begins, draw_series, shorten
from dither_aggregator.web.pages.presentation import (
    Cited,
    FormField,
    Presentation,
    count,
    form,
    in_batches,
    lagging,
    other_revs,
    plan_state,
    presentation_of,
    sentence_of,
)
from dither_aggregator.web.queries import SeriesAsked, asked_series, changed, days_chosen, series_asked
from dither_aggregator.web.query_parameters import (
    Parameters,
    QueryParameters,
    asked_window,
    query_parameters,
    refuse_long,
)
from dither_shared.safe_output import file_name


@dataclass(frozen=True)
class TimePage:
    """All that the template shows of a metric's days."""

    stored: StoredPlan
    window: Window
    level: Decimal
    values: Sequence[str]
    state: Sequence[str]
    headline: str
    form: Sequence[FormField]
    chart: SeriesChart | None = None
    table: Sequence[tuple[date, Sequence[Point]]] = ()
    """The points of each day and plan."""
    marks: Sequence[tuple[date, str, bool]] = ()
    """Events of the days, each with its day and whether the operator named it; by day."""
    left_out: int = 0
    """Marks of these days that are too many to show."""
    chosen: bool = False
    """Whether the reader chose the days."""
    chosen_values: Sequence[str] = ()
    """The values that the reader chose, if any."""
    groups: Sequence[str] = ()
    """The groups that the reader chose, if any."""
    offered: Sequence[str] = ()
    """All groups that there are."""

    @property
    def shown(self) -> Presentation[Any]:
        """How its readings are shown."""
        return presentation_of(self.stored.plan)

    @property
    def measure(self) -> Measure:
        """The measure of what is drawn: groups are shares, also of numbers."""
        return SHARES if self.groups else Measure(self.stored.plan.domain.unit)


LISTED_MAX = 1_000
"""So many values are offered in the form's list; others are typed."""
MARKS_SHOWN_MAX = 100
"""The most marks shown in a window, the latest."""


CHOSEN = (
    "You chose these days, so every interval holds for all days that you could have chosen, and is wider than among "
    "the last days alone."
)


def show_days(store: Store, name: str) -> str:
    """Return the page that a request asks for."""
    return render_template("time.html", page=time_page(store, name, query_parameters(SeriesAsked)))


def time_page(store: Store, name: str, asked: QueryParameters) -> TimePage:
    """Return what the page of a metric's days shows."""
    try:
        stored, window, values, points = asked_series(store, name, asked)
    except NotReady as error:
        stored, window = series_asked(store, name, asked)
        values, state = asked.get("values") or (), [*plan_state(store, stored), *lagging(store)]
        fields = _form(stored, window, asked, values, ())
        page = TimePage(stored, window, asked["level"], values, state, sentence_of(error), fields)
        return _with_choices(store, page, asked)
    measure = SHARES if asked.get("group") else Measure(stored.plan.domain.unit)
    listed = [name for name in estimand_of(stored.plan).names(stored) if name not in values][:LISTED_MAX]
    fields = _form(stored, window, asked, values, listed)
    state = [*plan_state(store, stored), *lagging(store), *other_revs(store, stored), *_by_day(store)]
    if days_chosen(store, stored, asked):
        state.append(CHOSEN)
    days: dict[tuple[date, str], list[Point]] = {}
    for point in points:
        days.setdefault((point.epoch, point.plan), []).append(point)
    table = [(epoch, found) for (epoch, _), found in sorted(days.items(), key=lambda item: item[0][0])]
    marks = [(mark.day, mark.text) for mark in store.documents(DayMark) if mark.day in window]
    shown = marks[-MARKS_SHOWN_MAX:]
    told = [point for point in points if not point.untold]
    chart = draw_series(told, window, shown, measure) if told else None
    dated, left_out = _beginnings_and_marks(points, shown), len(marks) - len(shown)
    compared = asked_window(store, asked) is None and not asked.get("group")
    headline = _headline(store, stored, window, values, told, measure, compared=compared)
    if told and headline != (days_told := _days_in_words(presentation_of(stored.plan), told, window)):
        state = [days_told, *state]
    page = TimePage(stored, window, asked["level"], values, state, headline, fields, chart, table, dated, left_out)
    return _with_choices(store, page, asked)


def _with_choices(store: Store, page: TimePage, asked: QueryParameters) -> TimePage:
    return replace(
        page,
        chosen=asked_window(store, asked) is not None,
        chosen_values=tuple(asked.get("values") or ()) if presentation_of(page.stored.plan).searchable else (),
        groups=tuple(asked.get("group") or ()),
        offered=group_names(store, page.stored),
    )


def _form(
    stored: StoredPlan, window: Window, asked: QueryParameters, values: Sequence[str], listed: Sequence[str]
) -> Sequence[FormField]:
    """Return the form, with values on offer."""
    measure = Measure(stored.plan.domain.unit)
    offers = {value: measure.called(value) if measure.unit else "" for value in listed}
    shown = {"first": window.first, "last": window.last, "values": None if asked.get("group") else values}
    return form(SeriesAsked, {**asked, **shown, "window": None}, {"values": offers}, ("first", "last"))


def _headline(
    store: Store,
    stored: StoredPlan,
    window: Window,
    values: Sequence[str],
    points: Sequence[Point],
    measure: Measure,
    *,
    compared: bool,
) -> str:
    """Return how the first value was on the first and the last closed day, or why no day is to be seen.

    Two days tell less than two weeks: where those are `compared`, what all changes say of the value is told, too.
    """
    if not values:
        return "Nothing stands out of the last window under this rev: name a value to see its days."
    shown = presentation_of(stored.plan)
    if not points and not shown.readable_daily and store.epochs(stored.plan, window.first, window.last):
        return "No single day tells enough, or its counts are no longer kept."
    if not points:
        return "No reports of these days are counted, or their counts are no longer kept."
    closed = [point for point in points if point.value == points[0].value and not point.provisional]
    newest = max(closed, key=lambda point: (point.epoch, point.rev)).plan if closed else ""
    same_rev = [point for point in closed if point.plan == newest]
    if len(same_rev) < 2:
        return _days_in_words(shown, points, window)
    first, last = same_rev[0], same_rev[-1]
    name = shorten(measure.called(first.value))
    way = "rose" if last.lower > first.upper else "fell" if last.upper < first.lower else ""
    finer = measure.finer((first.lower, first.upper), (last.lower, last.upper)) if way else 0
    before, after = (f"{_about(measure, point, finer)} on {point.epoch}" for point in (first, last))
    if way:
        level = measure.level(first.value)
        return f"{level[0].upper() + level[1:] if level else name} {way} from {before} to {after}."
    moved, weeks = _move(store, stored, first.value) if compared and newest == stored.plan.digest else ("", "")
    if moved:
        return f"{name} {moved} in {weeks}."
    nor = f", nor by {weeks}" if weeks else ""
    return f"{name}: {before}, {after}. By these two days it cannot be told to have moved{nor}."


def _move(store: Store, stored: StoredPlan, value: str) -> tuple[str, str]:
    """Return how a value moved between the windows of all changes, "" where it cannot be told to have, and the windows.

    Both are empty where the metric was not compared, or no more than days were.
    """
    found, _ = changed(store)
    days = found.after.days
    if days == 1 or stored.id not in {*(one.after.stored.id for one in found.moved), *(one.id for one in found.still)}:
        return "", ""
    rows = (row for one in found.moved if one.after.stored.id == stored.id for row in one.moved)
    row = next((row for row in rows if row.value == value), None)
    by = presentation_of(stored.plan).moved_by(row) if row else ""
    return by, f"the last {days} days against the {days} before"


def _about(measure: Measure, point: Point, finer: int) -> str:
    """Return a share with its interval, or the interval alone of what has a unit."""
    if measure.unit:
        return measure.ends(point.lower, point.upper, finer=finer)
    return measure.about(point.estimate, point.lower, point.upper, finer)


def _days_in_words(shown: Presentation[Any], points: Sequence[Point], window: Window) -> str:
    """Return how many days of the window there are to see, and how to tell them apart."""
    days = len({point.epoch for point in points})
    there = f"ha{'s' if days == 1 else 've'} reports" if shown.readable_daily else "can be told"
    same = f"If the bands of two days do not meet, the {shown.same} was not the same."
    return f"{days:,} of {count(window.days, 'day')} {there}. {same}"


def _by_day(store: Store) -> list[str]:
    """Return sentences on the days that a read key is not told by themselves."""
    sentences = in_batches(store)
    return (
        [*sentences, f"Days of fewer than {BATCH_MIN} reports are told in windows of several days only."]
        if sentences
        else []
    )


def _beginnings_and_marks(points: Sequence[Point], marks: Iterable[tuple[date, str]]) -> list[tuple[date, str, bool]]:
    """Return where plans begin and what the operator marked, by day."""
    begun = [(point.epoch, f"rev {point.rev} begins", False) for point in begins(points)]
    return sorted([*begun, *((day, text, True) for day, text in marks)])


# Snapshots.


NOTHING = "With a read key, too little is told to show anything.", "No reports of this day are counted."
AGREES = 1e-9
"""Shares this near are the same: other versions of the libraries may give other last digits."""
_FIRST_COLUMNS = ("value", "estimate", "std_error", "lower", "upper")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class SnapshotPage:
    """All that the templates show of a snapshot."""

    snapshot: Snapshot
    reading: Reading
    """Computed anew from the snapshot's counts."""
    headline: str
    agrees: bool
    """Whether estimates and errors that are computed anew are the snapshot's."""
    cited: Cited | None = None
    """The part that is the estimand's; None where there is nothing to show."""

    @property
    def shown(self) -> Presentation[Any]:
        """How its reading is shown."""
        return presentation_of(self.snapshot.stored.plan)


def show_snapshot(store: Store, id_: str) -> str:
    """Return a snapshot's page."""
    return render_template("snapshot.html", page=snapshot_page(_asked(store, id_)))


def csv(store: Store, id_: str) -> Response:
    """Return the rows of a snapshot, all of them, as they are in it."""
    asked = query_parameters(CsvAsked)
    snapshot = _found(store, id_)
    rows: Sequence[Mapping[str, Any]] = snapshot.estimates["rows"]
    further = sorted({name for row in rows for name in row}.difference(_FIRST_COLUMNS))
    columns, left_out = (*_FIRST_COLUMNS, *further), snapshot.tally.left_out
    cells = ([*(row.get(name) for name in columns), left_out] for row in rows)
    return immutable(csv_file((*columns, "left_out"), cells, _name(snapshot), asked), id_)


def svg(store: Store, id_: str) -> Response:
    """Return a snapshot's plot as a file of its own."""
    snapshot = _asked(store, id_)
    drawn = render_template("snapshot.svg", page=snapshot_page(snapshot))
    return immutable(svg_of(drawn, _name(snapshot)), id_)


def only_xml(drawn: str) -> str:
    """Return a document without the characters that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", drawn)


def svg_of(drawn: str, name: str) -> Response:
    """Return a picture as a file, called so: characters that XML does not have are replaced."""
    response = Response(only_xml(drawn), content_type="image/svg+xml")
    response.headers["Content-Disposition"] = f'inline; filename="{file_name(name, "svg")}"'
    return response


def _asked(store: Store, id_: str) -> Snapshot:
    query_parameters(Parameters)
    return _found(store, id_)


def _found(store: Store, id_: str) -> Snapshot:
    snapshot = read_snapshot(store, id_)
    if snapshot is None:
        raise no_snapshot(store, id_)
    refuse_slow(store, slow=takes_seconds(snapshot.stored))
    return snapshot


def _name(snapshot: Snapshot) -> str:
    window = snapshot.window
    days = f"{window.last}" if window.days == 1 else f"{window.first}-{window.last}"
    return f"{snapshot.stored.plan.metric}-{days}-{snapshot.digest[:12]}"


def snapshot_page(snapshot: Snapshot) -> SnapshotPage:
    """Return what is shown of a snapshot."""
    stored, window = snapshot.stored, snapshot.window
    refuse_long(stored)
    opening = replace(estimand_of(stored.plan).opening(window.days), together=snapshot.together)
    reading = estimate(stored, window.last, snapshot.tally, opening, snapshot=snapshot.id)
    as_it_was_made = View(error_of=snapshot.estimates["error_of"], days=window.days, together=snapshot.together)
    agrees = _agrees(estimate(stored, window.last, snapshot.tally, as_it_was_made), snapshot)
    if not reading.n:
        return SnapshotPage(snapshot, reading, NOTHING[reading.left_out == 0], agrees)
    shown = presentation_of(stored.plan)
    cited = shown.cited(reading, snapshot) if reading.rows else None
    return SnapshotPage(snapshot, reading, shown.answered(reading).sentence, agrees, cited)


def _agrees(reading: Reading, snapshot: Snapshot) -> bool:
    """Return whether the same counts still give what the snapshot says."""
    opposite = estimand_of(snapshot.stored.plan).opposite(snapshot.stored)  # earlier snapshots have its row, too
    own = {value: row for value, row in snapshot.rows.items() if value != opposite}
    return own.keys() == {row.value for row in reading.rows} and all(
        isclose(getattr(row, name), own[row.value][name], abs_tol=AGREES)
        for row in reading.rows
        for name in ("estimate", "std_error")
        if name in own[row.value]
    )
