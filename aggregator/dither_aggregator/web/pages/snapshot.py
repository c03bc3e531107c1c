"""A snapshot's pages, to cite: what can be told, what it was made of, and the same as CSV and SVG.

All numbers are the snapshot's own, but for those that a reader who picks the largest needs: intervals that hold all at
once, and the ranks that follow. These are computed anew from its counts, and the page says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

from flask import Response, render_template

from dither_aggregator.analysis.estimands import estimand_of, estimate, takes_seconds
from dither_aggregator.analysis.reading import Reading, View
from dither_aggregator.analysis.reading_cache import refuse_slow
from dither_aggregator.analysis.snapshots import Snapshot, read_snapshot
from dither_aggregator.store import Store
from dither_aggregator.web.api.listings import immutable, no_snapshot
from dither_aggregator.web.api.rowsets import CsvAsked, csv_file
from dither_aggregator.web.pages.presentation import Cited, Presentation
from dither_aggregator.web.pages.presentations import presentation_of
from dither_aggregator.web.query_parameters import Parameters, query_parameters, refuse_long
from dither_shared.safe_output import file_name

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


def show(store: Store, id_: str) -> str:
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
