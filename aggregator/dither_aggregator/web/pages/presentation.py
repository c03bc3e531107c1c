"""How the readings of an estimand are shown: all that pages say and draw of it, and of no other.

Each estimand has a class of these, in `presentations.py`. One without is shown as rows in the order of its readings.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dither_aggregator.analysis.differences import Comparison, Difference
from dither_aggregator.analysis.reading import Reading
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.significance import Significance
from dither_aggregator.analysis.snapshots import Snapshot
from dither_aggregator.store import Store
from dither_aggregator.web.charts.histogram import Histogram
from dither_aggregator.web.charts.scale import Measure, measure_of, shorten
from dither_aggregator.web.charts.shares import Plot, draw
from dither_aggregator.web.pages.words import DEVICES, count
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.plan import Plan

SHARES_BY_DAY = f"Share of {DEVICES}. A day on which a share cannot be told is left out."
SHARES_MOVED = f"Change in percentage points of the share among {DEVICES}."
ANSWER_ROWS = 3
"""Rows of an answer's chart."""
R = TypeVar("R", bound=Reading)


class PagePart(Protocol):
    """The part of a metric's page that is its estimand's; a template of its own draws it."""

    @property
    def template(self) -> str:
        """Its file."""

    @property
    def intervals(self) -> str:
        """The share or number that its intervals are of, in words that go before the devices; "" where it has none."""


@dataclass(frozen=True)
class ReadingAnswer:
    """The finding of a reading, in a sentence with its figure and interval.

    A sentence states only what intervals support that hold all at once: it is false on at most as many pages as these.
    """

    n: int
    sentence: str
    rows: Sequence[Row] = ()
    """The rows that the sentence is of, for a small chart."""
    leads: str = ""
    """The row whose weeks are drawn beside it; "" where there is none."""
    p_value: float | None = None
    """How often noise alone makes something stand out so far; None where nothing is asked so, or none can."""
    out: int = 0
    """How many values stand out on the metric's own page."""
    measure: Measure | None = None
    """How the rows are written, where not as the metric's are: a table's column may have a unit."""
    open: bool = False
    """Whether it is not computed yet."""


@dataclass(frozen=True)
class CitedRow(Row):
    """A value's row. `lower` to `upper` holds together with those of all other values, and is computed anew."""

    own_lower: float
    own_upper: float
    own_error: float | None
    """None where the interval says more."""
    rank: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot, row: Row, rank: str = "") -> "CitedRow":
        """Return a row of a snapshot, given as it is computed anew."""
        own = snapshot.rows[row.value]
        ends, error = (own["lower"], own["upper"]), own.get("std_error")
        numbers = (own["estimate"], error or row.std_error, row.lower, row.upper)
        return cls(row.value, *numbers, *ends, error, rank)


@dataclass(frozen=True)
class Cited:
    """The part of a snapshot's page that is its estimand's."""

    template: str = "snapshot_rows.html"
    """The file that draws the plot and its numbers."""
    about: str = ""
    """A sentence on the plot, in a file of its own."""
    rows: Sequence[object] = ()
    significance: Significance | None = None
    unlisted: int = 0
    """How many more stand out than are listed."""
    plot: Plot | None = None
    band: bool = False
    """Whether the plot shows where noise alone lies."""
    cut: str = ""
    """For numbers: what becomes of those beyond the outermost edges."""
    histogram: Histogram | None = None


class Presentation(ABC, Generic[R]):
    """How readings of one plan are shown."""

    searchable = False
    """Whether a metric's page has values to search."""
    moves_few = False
    """Whether a comparison has a few rows, all of which are shown, moved or not."""
    noun = "value"
    """The word for what a row is of."""
    shows = "estimates"
    """The word for the rows of a plot."""
    same = "share"
    """The word for a row that may differ between two days."""
    axis: tuple[float, float] | None = None
    """The ends of the axis of an answer's chart; None for one that holds zero and the rows."""
    readable_daily = True
    """Whether any report of a day tells something of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.measure = plan, measure_of(plan)

    @abstractmethod
    def part(self, store: Store, reading: R, asked: QueryParameters) -> PagePart:
        """Return what a metric's page shows of a reading with rows; raise Problem for what it does not have."""

    @abstractmethod
    def answer(self, reading: R) -> ReadingAnswer:
        """Return what a reading with rows tells. Overview, headline, snapshot and API show it."""

    def answered(self, reading: R) -> ReadingAnswer:
        """Return the answer of any reading with reports, or why there is none."""
        return self.answer(reading) if reading.rows else ReadingAnswer(reading.n, reading.nothing_to_show)

    @abstractmethod
    def cited(self, reading: R, snapshot: Snapshot) -> Cited:
        """Return what a snapshot's page shows of its reading, computed anew, with rows."""

    @property
    @abstractmethod
    def about_days(self) -> str:
        """Sentences on what a chart of days shows, and why a day has no point."""

    @property
    @abstractmethod
    def about_moves(self) -> str:
        """Sentences on what a chart of differences shows."""

    def moved(self, comparison: Comparison) -> str:
        """Return in a sentence or two what moved, of two windows that are compared."""
        moved, of = comparison.moved, count(len(comparison.rows), self.noun)
        if not moved:
            return f"None of {of} can be told to have moved."
        which = "The largest move seen: " if len(moved) > 1 else ""
        return f"{len(moved):,} of {of} moved. {which}{self.move(moved[0])}."

    def move(self, row: Difference) -> str:
        """Return which way a row moved, and by how much at least and at most."""
        return f"{self.measure.level(row.value) or shorten(row.value)} {self.moved_by(row)}"

    def moved_by(self, row: Difference) -> str:
        """Return the same without the row's name."""
        least, most = sorted((abs(row.lower), abs(row.upper)))
        return f"{row.verdict} by between {self.measure.sizes(least, most, row.std_error)}"


@dataclass(frozen=True)
class RowsPart:
    """Rows with their intervals, one after the other."""

    plot: Plot
    template: str = "rows.html"
    intervals: str = "Intervals are of"


class RowsShown(Presentation[R]):
    """Rows in the order of their reading, in the unit of the metric or as shares."""

    noun = "estimate"
    same = "estimate"

    def headline(self, reading: R) -> str:
        """Return the first row in words, and how many more there are."""
        first, more = reading.rows[0], len(reading.rows) - 1
        ends = (self.measure.end(each, first.std_error) for each in (first.lower, first.upper))
        others = f", and {count(more, 'more estimate')}" if more else ""
        return f"{first.value}: {self.measure.precise(first.estimate, first.std_error)}, {' to '.join(ends)}{others}."

    def part(self, store: Store, reading: R, asked: QueryParameters) -> PagePart:
        """Return all rows."""
        return RowsPart(draw(reading.rows, 0.0, measure=self.measure))

    def answer(self, reading: R) -> ReadingAnswer:
        """Return the headline."""
        return ReadingAnswer(reading.n, self.headline(reading), reading.rows[:ANSWER_ROWS], reading.rows[0].value)

    def cited(self, reading: R, snapshot: Snapshot) -> Cited:
        """Return all rows, as they are in the snapshot."""
        rows = [CitedRow.of(snapshot, row) for row in reading.rows]
        plot = draw(rows, 0.0, measure=self.measure)
        return Cited(about="Estimates with their intervals.", rows=rows, plot=plot)

    @property
    def about_days(self) -> str:
        """Say of whom estimates are."""
        return f"{self._estimates} A day on which one cannot be told is left out."

    @property
    def about_moves(self) -> str:
        """Say of whom differences are."""
        return f"Change. {self._estimates}"

    @property
    def _estimates(self) -> str:
        within = f", in {self.measure.unit}" if self.measure.unit else ""
        return f"Estimates for {DEVICES}{within}."


def reach_in_words(comparison: Comparison) -> str:
    """Return how large a move of a rare share is found; "" where none is told."""
    reach = comparison.detectable
    if reach is None:
        return ""
    if reach > 1:
        return " So few reports could tell of no change at all."
    decimals = 0 if reach >= 0.1 else 1 if reach >= 0.01 else 2
    return f" A rare value is found four times in five if its share moves by {100 * reach:.{decimals}f} points."
