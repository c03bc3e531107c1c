"""The first page: a card for each metric, with its answer, its last weeks and what moved."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import groupby

import numpy as np
from cachetools import LRUCache
from flask import current_app, render_template
from marshmallow import fields

from dither_aggregator.analysis.differences import Changes, Comparison, dashboard_of
from dither_aggregator.analysis.estimands import DAYS, WEEKS, estimand_of, made_once, read, weeks
from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.reading import Reading, View, Window, default_of
from dither_aggregator.analysis.reading_cache import NotReady, promptly
from dither_aggregator.analysis.rows import Row, benjamini_hochberg
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.dashboard import examples
from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.health.status import Expiries
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.document_kinds import DayMark
from dither_aggregator.web.charts import Measure, shorten
from dither_aggregator.web.forest_plots import SmallRow, Weeks, draw_rows, draw_weeks
from dither_aggregator.web.pages.asking import SavedCard, saved_cards
from dither_aggregator.web.pages.presentation import (
    FormField,
    ReadingAnswer,
    count,
    form,
    lagging,
    other_revs,
    plan_state,
    presentation_of,
    sentence_of,
)
from dither_aggregator.web.queries import changed
from dither_aggregator.web.query_parameters import Parameters, Value, Whole, about, one_of, query_parameters, too_long
from dither_shared.safe_output import visible
from dither_shared.wire.reading import Problem

CARDS_A_PAGE = 200
SUMMARIES_MAX = 10_000
FIRST_CELLS_MAX = 1_000_000
"""A larger tally is not read to say how many reports an open day has."""
SORTS = {"moved": "moved", "newest": "newest", "name": "name"}
"""The words of each order of the cards."""
HEADINGS = {"none": "nothing", "owner": "owner", "tag": "tag"}
"""The words of what cards may be grouped by."""
ANSWERS = ReadingAnswer, Measure, Row
"""The classes of which answers are kept."""
MOVES_SHOWN = 2
"""Moves that a card says."""


class OverviewAsked(Parameters):
    """The parameters of the list of metrics."""

    search = fields.String(
        load_default="", metadata=about("a part of a metric's name or question", "search", type="search", size=18)
    )
    sort = one_of(SORTS, "by what the cards are sorted", "sort by", SORTS)
    by = one_of(HEADINGS, "what the headings are of, under which the cards stand", "group by", HEADINGS)
    page = Whole(1, 9_999, load_default=1)
    tag = Value(load_default="", metadata=about("a tag of the operator's dashboard: its metrics alone"))


@dataclass(frozen=True)
class Line:
    """A metric in the list: all that is known without a chart."""

    stored: StoredPlan
    latest: date | None
    """The latest day with reports."""
    window: Window
    answer: ReadingAnswer
    stands_out: bool
    """Whether it is among all metrics that something stands out in it; else its answer may be of its own page only."""
    status: str
    first: int = 0
    """How many reports came today, where no day before has any; 0 where it is not told."""
    moved: Comparison | None = None
    """None where nothing can be told to have moved since the days before."""

    @property
    def says(self) -> str:
        """The answer in a sentence, which counts that all metrics were looked at."""
        if self.first:
            return f"{count(self.first, 'report')} so far, all of today: estimates follow when the day is over."
        if self.answer.p_value is None or self.stands_out:
            return self.answer.sentence
        if self.answer.rows:
            return (
                f"Its own page shows {count(self.answer.out, 'value')}, but among so many metrics that may be chance."
            )
        return self.answer.sentence

    @property
    def told(self) -> bool:
        """Whether its answer states something that a chart may show."""
        return bool(self.answer.rows) and not self.first and (self.answer.p_value is None or self.stands_out)


@dataclass(frozen=True)
class Card:
    """A metric with its charts."""

    line: Line
    rows: Sequence[SmallRow]
    weeks: Weeks | None
    moves: Sequence[str]
    marks: Sequence[int] = ()
    """The places of days that the operator marked on the line of its weeks."""
    marked: str = ""
    """The words for them."""


@dataclass(frozen=True)
class OverviewPage:
    """All that the template shows of the list."""

    sections: Sequence[tuple[str, Sequence[Card]]]
    """The cards of each heading; all of them under "" where there are no headings."""
    by: str
    """The kind of the headings, owner or tag; "" where there are none."""
    total: int
    matching: int
    headline: str
    state: Sequence[str]
    before: Window
    after: Window
    search: str
    sort: str
    page: int
    pages: int
    example: str
    """A question that can be asked; "" where there is none."""
    saved: Sequence[SavedCard]
    """The dashboard's questions, on the first page of the list alone."""
    tag: str
    tags: Sequence[str]
    """All tags that metrics have."""

    @property
    def bands(self) -> bool:
        """Whether a card has a line of weeks."""
        return any(card.weeks for _, cards in self.sections for card in cards)

    @property
    def form(self) -> Sequence[FormField]:
        """The form."""
        return form(OverviewAsked, {"search": self.search, "sort": self.sort, "by": self.by or "none"})


def show(store: Store) -> str:
    """Return the page that a request asks for."""
    asked = query_parameters(OverviewAsked)
    search, sort, page, tag = asked["search"].strip(), asked["sort"], asked["page"], asked["tag"]
    tags = dashboard_of(store).tags
    with promptly(store):
        lines, changes = all_lines(store)
        wanted = search.casefold()
        found = [
            line
            for line in lines
            if (wanted in line.stored.plan.metric.casefold() or wanted in line.stored.question.casefold())
            and (not tag or tag in tags.get(line.stored.plan.metric, ()))
        ]
        found.sort(key=_ORDERS[sort])
        heading = partial(_heading, by=asked["by"], tags=tags)
        found.sort(key=lambda line: (not heading(line), heading(line)))  # within a heading the order stays
        pages = max(-(-len(found) // CARDS_A_PAGE), 1)
        if page > pages:
            raise Problem("malformed", f"page must be a number from 1 to {pages}, got {page}")
        marks = store.documents(DayMark)
        shown = found[(page - 1) * CARDS_A_PAGE : page * CARDS_A_PAGE]
        sections = [
            (named, [_card(store, line, marks) for line in lines_of]) for named, lines_of in groupby(shown, heading)
        ]
    state = [*lagging(store), *_over(store)]
    used = sorted({tag for line in lines for tag in tags.get(line.stored.plan.metric, ())})
    made = OverviewPage(
        sections,
        "" if asked["by"] == "none" else asked["by"],
        len(lines),
        len(found),
        headline(lines, changes),
        state,
        changes.before,
        changes.after,
        search,
        sort,
        page,
        pages,
        next(iter(examples(Asking(store), 1)), ""),
        saved_cards(store) if page == 1 and not wanted else (),
        tag,
        used,
    )
    return render_template("overview.html", page=made)


def _heading(line: Line, by: str, tags: Mapping[str, Sequence[str]]) -> str:
    """Return the heading that a card stands under, of several owners or tags the first; "" where it has none."""
    named = {"owner": line.stored.owners, "tag": tags.get(line.stored.plan.metric, ())}.get(by, ())
    return named[0] if named else ""


def all_lines(store: Store) -> tuple[list[Line], Changes]:
    """Return each metric by its newest plan, with an answer that counts that all metrics are looked at; and what moved.

    Answers come first: a page that has to come soon may not have all.
    """
    newest: dict[str, StoredPlan] = {}
    for stored in store.plans():
        newest.setdefault(stored.plan.metric, stored)
    epochs = store.all_epochs()
    sealed, kept_from = store.sealed(), store.tallies_from()
    windows = {name: default_of(epochs.get(stored.id, []), sealed, kept_from) for name, stored in newest.items()}
    answers = {name: _answer(store, stored, windows[name]) for name, stored in newest.items()}
    out = _stand_out(store, newest, windows, answers)
    changes, _ = changed(store)
    moved = {one.after.stored.id: one for one in changes.moved}
    lines = [
        Line(
            stored,
            max(epochs.get(stored.id, []), default=None),
            windows[name],
            out.get(name, answers[name]),
            name in out,
            _status(store, stored, bool(answers[name].n) or answers[name].open, epochs.get(stored.id, [])),
            _first(store, stored) if epochs.get(stored.id) == [store.today()] else 0,
            moved.get(stored.id),
        )
        for name, stored in newest.items()
    ]
    return lines, changes


def _stand_out(
    store: Store, newest: Mapping[str, StoredPlan], windows: Mapping[str, Window], answers: Mapping[str, ReadingAnswer]
) -> dict[str, ReadingAnswer]:
    """Return the answers of the metrics in which something stands out, among all that ask that.

    R of M metrics are chosen by Benjamini and Hochberg at alpha, and each is read with intervals of 1 - alpha R / M: on
    average, at most alpha of the sentences are wrong (Benjamini and Yekutieli 2005). One that such intervals do not
    tell is none, and makes those of all others wider. One that is not computed yet stays, without an answer.
    """
    alpha = 1 - CONFIDENCE
    tested = [name for name, answer in answers.items() if answer.p_value is not None]
    chosen = benjamini_hochberg(np.array([answers[name].p_value for name in tested], dtype=float), alpha)
    out, found = [name for name, one in zip(tested, chosen, strict=True) if one], len(tested) + 1
    told: dict[str, ReadingAnswer] = {}
    while len(out) < found:
        found = len(out)
        level = 1 - alpha * found / max(len(tested), 1)
        told = {name: _answer(store, newest[name], windows[name], level) for name in out}
        out = [name for name in out if told[name].rows or told[name].open]
    return {name: told[name] for name in out}


def _card(store: Store, line: Line, marks: Sequence[DayMark]) -> Card:
    """Return a metric with its charts."""
    stored, answer = line.stored, line.answer
    shown = presentation_of(stored.plan)
    if not line.told:
        return Card(line, (), None, moves_of(line))
    kept: LRUCache[object, Weeks | None] = current_app.extensions.setdefault("weeks", LRUCache(SUMMARIES_MAX))
    leads = line.moved.moved[0].value if line.moved and answer.leads else answer.leads  # a line shows the first move
    key = store.generation, stored.id, stored.reservation, line.window, leads
    drawn = kept.get(key)
    if key not in kept:  # sealed days do not change
        with suppress(NotReady):
            try:
                drawn = kept[key] = draw_weeks(_weeks(store, stored, line.window.last, leads), shown.measure)
            except BadTally:  # not kept: it may be mended
                some = weeks(store, stored, line.window.last, leads, but_damaged=True)
                drawn = draw_weeks(some, shown.measure)
    rows = draw_rows(answer.rows, answer.measure or shown.measure, shown.axis)
    if drawn is None:
        return Card(line, rows, None, moves_of(line))
    within = [mark for mark in marks if drawn.first <= mark.day <= drawn.last]
    return Card(line, rows, drawn, moves_of(line), drawn.places(mark.day for mark in within), _marked(within))


def _weeks(store: Store, stored: StoredPlan, last: date, value: str) -> list[tuple[date, Row]]:
    """Return the weeks of a metric, made once. Raises BadTally where any of their counts are damaged."""
    of = Window.ending(last, DAYS * WEEKS)
    return made_once(store, stored, of, "weeks", (value,), lambda: weeks(store, stored, last, value), (Row,))


def _marked(marks: Sequence[DayMark]) -> str:
    """Return what the dotted lines of a card are."""
    return shorten(marks[0].text) if len(marks) == 1 else count(len(marks), "marked day") if marks else ""


def moves_of(line: Line) -> Sequence[str]:
    """Return what moved, by the verdicts of all metrics together."""
    if line.moved is None:
        return ()
    shown, moved = presentation_of(line.stored.plan), line.moved.moved
    words = [shown.move(row) for row in moved[:MOVES_SHOWN]]
    return [*words, f"{len(moved) - MOVES_SHOWN:,} more moved"] if len(moved) > MOVES_SHOWN else words


def _first(store: Store, stored: StoredPlan) -> int:
    """Return how many reports a metric has today; a read key is told of them in batches."""
    few = stored.plan.cells.tally_size <= FIRST_CELLS_MAX
    try:
        return store.tally(stored.plan, store.today()).n if few else 0
    except (BadTally, TallyGone):
        return 0


def _over(store: Store) -> list[str]:
    """Return a sentence where all metrics have expired."""
    if not Expiries.of(store.plans(), store.today()).all_over:
        return []
    return ["Every metric has expired: devices report nothing more until an app comes with a registry of later dates."]


def _status(store: Store, stored: StoredPlan, has_reports: bool, days: Sequence[date]) -> str:
    sentences = [] if stored.current else ["Not in the registry any more."]
    sentences += plan_state(store, stored)[-1:] if stored.current else []
    if has_reports:
        return " ".join(sentences)
    if store.today() in days:
        sentences.append("Today has some: its page shows them under “today so far”.")
    return " ".join([*sentences, *other_revs(store, stored)[:1]])


def headline(lines: Sequence[Line], changes: Changes) -> str:
    """Return in a sentence what moved, of how many metrics."""
    if not lines:
        return "There are no metrics yet: load a registry with `dither metrics load`."
    metrics, waiting = count(len(lines), "metric"), {stored.id for stored, _ in changes.open}
    waits = sum(line.answer.open or line.stored.id in waiting for line in lines)
    first = sum(line.first for line in lines)
    if first and not any(line.answer.n for line in lines):
        began = "The first report" if first == 1 else f"The first {first:,} reports"
        return f"{metrics}. {began} came today: estimates follow when the day is over."
    rest = ""
    if waits:
        are, them = ("is", "it") if waits == 1 else ("are", "them")
        rest = f" {count(waits, 'metric')} {are} not computed yet: with {them}, others may stand out or have moved."
    moved = sum(line.moved is not None for line in lines)
    if not moved:
        return f"{metrics}. None can be told to have moved.{rest}"
    question = visible(changes.moved[0].after.stored.question)
    which = f"{', most surely' if moved > 1 else ':'} “{question}”{'.' * (question[-1:] not in '?!.')}"
    apart = len(lines) - len(changes.moved) - len(changes.still) - len(changes.open)
    others = f" {apart:,} could not be compared." if apart > 0 else ""
    return f"{moved:,} of {metrics} moved{which}{others}{rest}"


def _answer(store: Store, stored: StoredPlan, window: Window, confidence: float = CONFIDENCE) -> ReadingAnswer:
    """Answer a metric's default window once: sealed days do not change."""
    kept: LRUCache[object, ReadingAnswer] = current_app.extensions.setdefault("summaries", LRUCache(SUMMARIES_MAX))
    key = store.generation, stored.id, stored.candidates, stored.reservation, window, confidence
    answer = kept.get(key)
    if answer is None:
        answer = read_answer(store, stored, window, confidence)
        if answer.n:  # what could not be read may be mended
            kept[key] = answer
    return answer


def read_answer(store: Store, stored: StoredPlan, window: Window, confidence: float) -> ReadingAnswer:
    """Return the answer of a window, or why there is none."""
    if too_long(stored):
        return ReadingAnswer(0, "Too many candidates to be looked for here.")
    opening = estimand_of(stored.plan).opening(window.days, confidence)
    try:
        return made_once(
            store, stored, window, "answer", (opening,), lambda: _answer_now(store, stored, opening, window), ANSWERS
        )
    except TallyGone:
        return ReadingAnswer(0, "Its counts are no longer kept.")
    except BadTally:
        return ReadingAnswer(0, "Its counts are damaged: run `dither fsck`.")
    except NotReady as error:
        return ReadingAnswer(0, sentence_of(error), open=True)


def _answer_now(store: Store, stored: StoredPlan, opening: View, window: Window) -> ReadingAnswer:
    reading = read(store, stored, window.last, opening)
    if reading.n == 0:
        return ReadingAnswer(0, _nothing(reading))
    return presentation_of(stored.plan).answered(reading)


def _nothing(reading: Reading) -> str:
    return "No reports in these days." if reading.left_out == 0 else "Too few reports to be told with a read key."


_LEAST = date.min


def by_moves(line: Line) -> tuple[float, bool, bool, str]:
    """Return a line's place: what moved comes first, the surest of it before others."""
    return line.moved.p_value if line.moved else 2.0, not line.told, not line.answer.n, line.stored.plan.metric


_ORDERS: dict[str, Callable[[Line], tuple[object, ...]]] = {
    "moved": by_moves,
    "newest": lambda line: (-(line.latest or _LEAST).toordinal(), -line.answer.n, line.stored.plan.metric),
    "name": lambda line: (line.stored.plan.metric,),
}
