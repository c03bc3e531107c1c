"""A snapshot's pages, to cite: what can be told, what it was made of, and the same as CSV and SVG.

All numbers are the snapshot's own, but for those that a reader who picks the largest needs: intervals that hold all at
once, and the ranks that follow. These are computed anew from its counts, and the page says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any, cast

from flask import Response, render_template

from dither_aggregator.analysis.estimands import estimate, takes_seconds
from dither_aggregator.analysis.keeping import refuse_slow
from dither_aggregator.analysis.numbers import NumberRow, NumbersReading
from dither_aggregator.analysis.reading import Reading, View
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.snapshots import Snapshot, read_snapshot
from dither_aggregator.analysis.standing import Standing
from dither_aggregator.analysis.tables.reading import TablesReading
from dither_aggregator.store import Store
from dither_aggregator.web.api.listings import immutable, no_snapshot
from dither_aggregator.web.api.rowsets import CsvAsked, csv_file
from dither_aggregator.web.asking import Parameters, given
from dither_aggregator.web.charts.crowd import Histogram, draw_crowd
from dither_aggregator.web.charts.shares import Plot, draw
from dither_aggregator.web.long_lists import refuse_long
from dither_aggregator.web.pages.metric import headline_of
from dither_aggregator.web.pages.numbers import NumberWords, headline_of_numbers
from dither_aggregator.web.pages.tables import headline_of_tables
from dither_aggregator.web.pages.words import rank_in_words
from dither_shared.harmless import file_name

ROWS_SHOWN = 50
NOTHING = "With a read key, too little of this day is told to show anything.", "No reports of this day are counted."
AGREES = 1e-9
"""Shares this near are the same: other versions of the libraries may give other last digits."""
_FIRST_COLUMNS = ("value", "estimate", "std_error", "lower", "upper")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class CitedRow:
    """A value's row. `lower` to `upper` holds together with those of all other values, and is computed anew."""

    value: str
    estimate: float
    std_error: float
    lower: float
    upper: float
    own_lower: float
    own_upper: float
    rank: str


@dataclass(frozen=True)
class Quantity:
    """A mean or a quantile in words. `interval` holds together with those of the others, and is computed anew."""

    name: str
    seems: str
    interval: str
    own_interval: str


@dataclass(frozen=True)
class SnapshotPage:
    """All that the templates show of a snapshot."""

    snapshot: Snapshot
    reading: Reading
    """Computed anew from the snapshot's counts."""
    headline: str
    agrees: bool
    """Whether estimates and errors that are computed anew are the snapshot's."""
    standing: Standing | None = None
    rows: Sequence[CitedRow] = ()
    unlisted: int = 0
    """How many more stand out than are listed."""
    quantities: Sequence[Quantity] = ()
    cut: str = ""
    """For numbers: what becomes of those beyond the outermost edges."""
    plot: Plot | None = None
    crowd: Histogram | None = None


def show(store: Store, id_: str) -> str:
    """Return a snapshot's page."""
    return render_template("snapshot.html", page=snapshot_page(_asked(store, id_)))


def csv(store: Store, id_: str) -> Response:
    """Return the rows of a snapshot, all of them, as they are in it."""
    asked = given(CsvAsked)
    snapshot = _found(store, id_)
    rows: Sequence[Mapping[str, Any]] = snapshot.estimates["rows"]
    further = sorted({name for row in rows for name in row}.difference(_FIRST_COLUMNS))
    columns, left_out = (*_FIRST_COLUMNS, *further), snapshot.tally.left_out
    cells = ([*(row.get(name) for name in columns), left_out] for row in rows)
    return immutable(csv_file((*columns, "left_out"), cells, _name(snapshot), asked), id_)


def svg(store: Store, id_: str) -> Response:
    """Return a snapshot's plot as a file of its own."""
    snapshot = _asked(store, id_)
    drawn = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", render_template("snapshot.svg", page=snapshot_page(snapshot)))
    response = Response(drawn, content_type="image/svg+xml")
    response.headers["Content-Disposition"] = f'inline; filename="{file_name(_name(snapshot), "svg")}"'
    return immutable(response, id_)


def _asked(store: Store, id_: str) -> Snapshot:
    given(Parameters)
    return _found(store, id_)


def _found(store: Store, id_: str) -> Snapshot:
    snapshot = read_snapshot(store, id_)
    if snapshot is None:
        raise no_snapshot(id_)
    refuse_slow(store, slow=takes_seconds(snapshot.stored))
    return snapshot


def _name(snapshot: Snapshot) -> str:
    return f"{snapshot.stored.plan.metric}-{snapshot.epoch}-{snapshot.id[:12]}"


def snapshot_page(snapshot: Snapshot) -> SnapshotPage:
    """Return what is shown of a snapshot."""
    stored = snapshot.stored
    refuse_long(stored)
    several = not stored.plan.kind.asked_alone
    reading = estimate(stored, snapshot.epoch, snapshot.tally, View(simultaneous=several), snapshot=snapshot.id)
    agrees = _agrees(estimate(stored, snapshot.epoch, snapshot.tally), snapshot)  # as it was made
    bare = SnapshotPage(snapshot, reading, "", agrees, reading.standing())
    standing = bare.standing
    if not reading.rows:
        return replace(
            bare,
            headline=reading.nothing_to_show if reading.n else NOTHING[reading.left_out == 0],
        )
    if isinstance(reading, TablesReading):
        return replace(bare, headline=headline_of_tables(reading))
    if standing is None:
        return _of_numbers(bare, cast("NumbersReading", reading))
    if standing.too_few:
        return replace(bare, headline=headline_of(standing, reading))
    ranked = [(each.row, rank_in_words(each, len(standing.head))) for each in standing.head[:ROWS_SHOWN]]
    rows = [_row(snapshot, row, rank) for row, rank in [*ranked, *((row, "") for row in standing.apart)]]
    return replace(
        bare,
        headline=headline_of(standing, reading),
        rows=rows,
        unlisted=max(len(standing.head) - ROWS_SHOWN, 0),
        plot=_plot(reading, standing, rows) if rows else None,
        crowd=draw_crowd(standing.bins, standing.scores) if standing.bins else None,
    )


def _of_numbers(bare: SnapshotPage, reading: NumbersReading) -> SnapshotPage:
    """Return what is shown of mean and quantiles: each as it is in the snapshot, beside intervals that hold at once."""
    words, told = NumberWords.of(reading.stored.plan), bare.snapshot.rows
    rows = [row for row in reading.distinct if row.value in told]
    own = [NumberRow(**told[row.value]) for row in rows]
    quantities = [
        Quantity(words.measure.called(row.value), words.seems(one), words.interval(row), words.interval(one))
        for row, one in zip(rows, own, strict=True)
    ]
    plot = draw([_row(bare.snapshot, row, "") for row in rows], 0.0, measure=words.measure)
    return replace(bare, headline=headline_of_numbers(reading), quantities=quantities, plot=plot, cut=words.cut)


def _row(snapshot: Snapshot, row: Row, rank: str) -> CitedRow:
    """Return a row of the page, given as it is computed anew."""
    own = snapshot.rows[row.value]
    numbers = (own["estimate"], own["std_error"], row.lower, row.upper, own["lower"], own["upper"])
    return CitedRow(row.value, *numbers, rank)


def _plot(reading: Reading, standing: Standing, rows: Sequence[CitedRow]) -> Plot:
    floor = reading.noise_floor or 0.0
    if reading.stored.plan.kind.asked_alone:
        return draw(rows, floor, ends=(0.0, 1.0))
    return draw(rows, floor, standing.critical_share)


def _agrees(reading: Reading, snapshot: Snapshot) -> bool:
    """Return whether the same counts still give what the snapshot says."""
    own = snapshot.rows
    return own.keys() == {row.value for row in reading.rows} and all(
        isclose(getattr(row, name), own[row.value][name], abs_tol=AGREES)
        for row in reading.rows
        for name in ("estimate", "std_error")
    )
