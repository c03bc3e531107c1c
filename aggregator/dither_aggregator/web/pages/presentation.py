"""How the readings of an estimand are shown: all that pages say and draw of it, and of no other.

Each estimand has a class of these, listed by PRESENTATIONS. One without is shown as rows in the order of its readings.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from statistics import NormalDist
from typing import Any, Generic, Protocol, TypeVar

from flask import request
from jinja2 import Environment
from marshmallow import fields, missing, validate

from dither_aggregator.analysis.closed_days import Snapshot, digest_of
from dither_aggregator.analysis.differences import Comparison, Difference
from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.reading import Reading, Window, sees_all
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import Ranked, Row, Significance
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.web.charts import (
    SHARES,
    Measure,
    beside,
    end,
    end_in_points,
    points,
    precise,
    rough,
    rough_in_points,
    shorten,
)
from dither_aggregator.web.forest_plots import Histogram, Plot, draw
from dither_aggregator.web.query_parameters import LevelField, Parameters, QueryParameters
from dither_shared.installed import Installed
from dither_shared.plan import Plan
from dither_shared.safe_output import visible

# Words that several pages use: of windows, ranks, numbers, plans.


EXPIRES_SOON_DAYS = 14
DEVICES = "all devices like these"
WHOSE: dict[ErrorOf, str] = {"population": DEVICES, "reports": "these reports"}
"""The devices or people that errors and intervals are about, in words."""


def in_words(window: Window) -> str:
    """Return a window's days."""
    return f"{window.last}" if window.days == 1 else f"{window.first} to {window.last}, {window.days} days"


def rank_in_words(ranked: Ranked, standing_out: int) -> str:
    """Return what is known of a rank, where so many values stand out: behind others, nobody counts."""
    if ranked.rank_lower == ranked.rank_upper:
        return _ordinal(ranked.rank_lower)
    if ranked.rank_upper > standing_out:
        return f"{_ordinal(ranked.rank_lower)} or behind"
    return f"{ranked.rank_lower} to {ranked.rank_upper}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def plan_state(store: Store, stored: StoredPlan) -> list[str]:
    """Return sentences on a plan that is not simply the registry's."""
    left = (stored.expires - store.today()).days
    sentences = []
    if not stored.current:
        sentences.append(f"This is an older plan, rev {stored.plan.rev}: the registry asks in another way now.")
    if stored.retired:
        sentences.append("It was retired: its reports are refused.")
    if left <= 0:
        sentences.append(f"It expired on {stored.expires}.")
    elif left <= EXPIRES_SOON_DAYS:
        sentences.append(f"It expires in {left} day{'s' * (left != 1)}.")
    return sentences


def lagging(store: Store) -> list[str]:
    """Return a sentence where days are over that are not closed yet."""
    today, sealed = store.today(), store.sealed()
    if (today - sealed).days <= 1:
        return []
    return [f"The last closed day is {sealed}: nothing later is told yet, because those days are not closed."]


def in_batches(store: Store) -> list[str]:
    """Return a sentence where a read key is told of a day that is not over."""
    if sees_all(store):
        return []
    return [
        "With a read key, the figures of a day that is not over change at full hours (UTC), where at least "
        f"{BATCH_MIN} more reports of the metric came; as many more are not in them yet."
    ]


def other_revs(store: Store, shown: StoredPlan) -> list[str]:
    """Return a sentence for each other plan of a metric that has reports, the newest first."""
    sentences = []
    for other in store.plans(shown.plan.metric):
        days = store.epochs(other.plan)
        if days and other.plan.digest != shown.plan.digest:
            sentences.append(f"Rev {other.plan.rev} has reports up to {max(days)}; revs do not join.")
    return sentences


def count(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def of_pages(percent: Decimal) -> str:
    """Return on how many pages something is so, as 95 of 100 such pages; odd levels have no whole number of them."""
    whole = percent == int(percent)
    return f"{percent:f} of 100 such pages" if whole else f"{percent:f}\N{NO-BREAK SPACE}% of such pages"


def wider(reading: Reading, rows: int) -> str:
    """Return how many times as wide normal intervals of so many rows are because days were chosen; "" if not wider."""
    if reading.view.together == 1 or not rows:
        return ""
    paid, offered = (
        -NormalDist().inv_cdf(view.alpha(rows) / 2) for view in (reading.view, replace(reading.view, together=1))
    )
    return f"{paid / offered:.1f}"


def sentence_of(error: NotReady) -> str:
    """Return why there is nothing to show yet, as a sentence."""
    return f"{error.words[0].upper()}{error.words[1:]}."


def dress(templates: Environment) -> None:
    """Give templates the words and numbers that pages are written with."""
    templates.filters.update(precise=precise, points=points, end=end, end_in_points=end_in_points, rough=rough)
    templates.filters.update(rough_in_points=rough_in_points)
    templates.filters.update(
        rank=rank_in_words,
        days=in_words,
        visible=visible,
        measure=lambda plan: Measure(plan.domain.unit),
        beside=beside,
    )
    templates.filters.update(
        whose=WHOSE.__getitem__, counted=count, of_pages=of_pages, digest=lambda id_: digest_of(id_)[:12]
    )
    templates.globals.update(shares=SHARES)
    templates.trim_blocks = templates.lstrip_blocks = True


# The forms of pages, made of what parameters declare of themselves: labels, choices, and how fields look.


LIST_SIZE_LEAST, LIST_SIZE_MOST = 14, 30
"""Characters that a field of a list shows: a value that is cut could be read as another one."""


@dataclass(frozen=True)
class FormField:
    """A field of a form."""

    name: str
    label: str
    value: str
    choices: Mapping[str, str] | None = None
    """The words of each value on offer; None where any may be typed."""
    look: Mapping[str, object] = field(default_factory=dict)
    """Further attributes of its input."""
    offers: Mapping[str, str] | None = None
    """The words of values that are offered to who types one, where these are the last field with them."""


def form(
    schema: type[Parameters],
    shown: Mapping[str, Any],
    choices: Mapping[str, Collection[str]] | None = None,
    first: Sequence[str] = (),
) -> list[FormField]:
    """Return the fields of all parameters that have a label: some `first`, then the others as they are declared.

    A parameter that is shown as None has no field. `choices` are those that the store knows, by their words if these
    are others.
    """
    declared, known = schema().fields, choices or {}
    return [
        each
        for name in dict.fromkeys((*first, *declared))
        if declared[name].metadata.get("label") and shown.get(name, "") is not None
        for each in _fields(declared[name], shown.get(name, ""), known.get(name))
    ]


def as_typed(schema: type[Parameters]) -> dict[str, str]:
    """Return the parameters of the request as they were sent, and the usual ones of what was left empty."""
    usual = {name: "" if each.load_default is missing else each.load_default for name, each in schema().fields.items()}
    return {name: request.args.get(name) or f"{default}" for name, default in usual.items()}


def plans_of(store: Store, stored: StoredPlan) -> dict[str, str]:
    """Return the plans of a metric, each with its rev; none where there is nothing to choose."""
    plans = {each.plan.digest: str(each.plan.rev) for each in store.plans(stored.plan.metric)}
    return plans if len(plans) > 1 else {}


def _fields(declared: fields.Field[Any], value: Any, choices: Collection[str] | None) -> Iterator[FormField]:
    name, label = str(declared.data_key or declared.name), declared.metadata["label"]
    look = {**getattr(declared, "look", {}), **declared.metadata["look"]}
    if isinstance(declared, LevelField):
        choices = declared.offered(value)
    if choices is None and isinstance(declared.validate, validate.OneOf):
        choices = declared.metadata.get("words") or list(declared.validate.choices)
    words = choices if isinstance(choices, Mapping) or choices is None else {each: each for each in choices}
    if isinstance(declared, fields.List):
        assert isinstance(declared.validate, validate.Length)
        slots = [*value, ""][: declared.validate.max]  # one more than are named
        size = min(max(LIST_SIZE_LEAST, *map(len, slots)), LIST_SIZE_MOST)
        for place, each in enumerate(slots, 1):
            offers = words if place == len(slots) else None
            yield FormField(name, f"{label} {place}", each, look={"list": name, "size": size}, offers=offers)
        return
    written = f"{value:f}" if isinstance(value, Decimal) else f"{value}"
    yield FormField(name, label, written, words, look)


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
        self.plan, self.measure = plan, Measure(plan.domain.unit)

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


# The presentations, by the name of their estimand.


_HERE = "dither_aggregator.web.pages"
_OWN: dict[str, type[Presentation[Any]] | str] = {
    "shares": f"{_HERE}.shares:SharesShown",
    "one share": f"{_HERE}.shares:OneShareShown",
    "numbers": f"{_HERE}.numbers:NumbersShown",
    "texts": f"{_HERE}.shares:SharesShown",
    "tables": f"{_HERE}.tables:TablesShown",
    "words": f"{_HERE}.shares:SharesShown",
}
PRESENTATIONS = Installed[type[Presentation[Any]]]("dither.presentations", _OWN)


def load_presentations() -> None:
    """Load our own: whoever forks this process then has them."""
    for estimand in _OWN:
        PRESENTATIONS.get(estimand)


def presentation_of(plan: Plan) -> Presentation[Any]:
    """Return how readings of a plan are shown."""
    return PRESENTATIONS.get(plan.kind.estimand, RowsShown)(plan)
