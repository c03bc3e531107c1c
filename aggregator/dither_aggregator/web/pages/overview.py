"""The first page: every metric, a row each, with what can be told of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from cachetools import LRUCache
from flask import current_app, render_template
from marshmallow import fields

from dither_aggregator.analysis.estimands import estimand_of, read
from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.multiplicity import benjamini_hochberg
from dither_aggregator.analysis.reading import Reading
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.windows import Window, default_of
from dither_aggregator.counting.folding import BadTally, TallyGone
from dither_aggregator.health.expiry import Expiries
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.long_lists import too_long
from dither_aggregator.web.pages.forms import FormField, form
from dither_aggregator.web.pages.presentation import Summary
from dither_aggregator.web.pages.presentations import presentation_of
from dither_aggregator.web.pages.words import count, lagging, other_revs, plan_state
from dither_aggregator.web.query_parameters import Parameters, Whole, about, one_of, query_parameters
from dither_shared.wire.problems import Problem

ROWS_A_PAGE = 100
SUMMARIES_MAX = 10_000
FIRST_CELLS_MAX = 1_000_000
"""A larger tally is not read to say how many reports an open day has."""
SORTS = {
    "name": "name",
    "reports": "most reports",
    "latest": "latest reports",
    "detectable": "least detectable share",
}
"""The words of each order of the rows."""


class OverviewAsked(Parameters):
    """The parameters of the list of metrics."""

    search = fields.String(
        load_default="", metadata=about("a part of a metric's name or question", "search", type="search", size=18)
    )
    sort = one_of(SORTS, "by what the rows are sorted", "sort by", SORTS)
    page = Whole(1, 9_999, load_default=1)


@dataclass(frozen=True)
class Line:
    """A row of the list."""

    stored: StoredPlan
    latest: date | None
    """The latest day with reports."""
    summary: Summary
    stands_out: bool
    status: str
    first: int = 0
    """How many reports came today, where no day before has any; 0 where it is not told."""

    @property
    def says(self) -> str:
        """The answer, in a few words."""
        if self.first:
            return f"{count(self.first, 'report')} so far, all of today: estimates follow when the day is over"
        if self.summary.p_value is None or self.stands_out:
            return self.summary.says
        return f"{self.summary.says}, but not among all metrics" if self.summary.out else "nothing stands out"


@dataclass(frozen=True)
class OverviewPage:
    """All that the template shows of the list."""

    lines: Sequence[Line]
    total: int
    matching: int
    headline: str
    state: Sequence[str]
    search: str
    sort: str
    page: int
    pages: int

    @property
    def form(self) -> Sequence[FormField]:
        """The form."""
        return form(OverviewAsked, {"search": self.search, "sort": self.sort})


def show(store: Store) -> str:
    """Return the page that a request asks for."""
    asked = query_parameters(OverviewAsked)
    search, sort, page = asked["search"].strip(), asked["sort"], asked["page"]
    lines = all_lines(store)
    wanted = search.casefold()
    found = [
        line
        for line in lines
        if wanted in line.stored.plan.metric.casefold() or wanted in line.stored.question.casefold()
    ]
    found.sort(key=_ORDERS[sort])
    pages = max(-(-len(found) // ROWS_A_PAGE), 1)
    if page > pages:
        raise Problem("malformed", f"page must be a number from 1 to {pages}, got {page}")
    shown = found[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE]
    state = [*lagging(store), *_over(store)]
    made = OverviewPage(shown, len(lines), len(found), headline(lines), state, search, sort, page, pages)
    return render_template("overview.html", page=made)


def all_lines(store: Store) -> list[Line]:
    """Return a row for each metric, of its newest plan; what stands out by a false discovery rate over all of them."""
    newest: dict[str, StoredPlan] = {}
    for stored in store.plans():
        newest.setdefault(stored.plan.metric, stored)
    epochs = store.all_epochs()
    sealed, kept_from = store.sealed(), store.tallies_from()
    windows = {name: default_of(epochs.get(stored.id, []), sealed, kept_from) for name, stored in newest.items()}
    summaries = {name: _summary(store, stored, windows[name]) for name, stored in newest.items()}
    tested = [name for name, summary in summaries.items() if summary.p_value is not None]
    found = benjamini_hochberg(np.array([summaries[name].p_value for name in tested], dtype=float), 1 - CONFIDENCE)
    out = {name for name, one in zip(tested, found, strict=True) if one and summaries[name].out}
    return [
        Line(
            stored,
            max(epochs.get(stored.id, []), default=None),
            summaries[name],
            name in out,
            _status(store, stored, bool(summaries[name].n) or summaries[name].open, epochs.get(stored.id, [])),
            _first(store, stored) if epochs.get(stored.id) == [store.today()] else 0,
        )
        for name, stored in newest.items()
    ]


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


def headline(lines: Sequence[Line]) -> str:
    """Return in a sentence in how many metrics something stands out."""
    if not lines:
        return "There are no metrics yet: load a registry with `dither metrics load`."
    tested = [line for line in lines if line.summary.p_value is not None]
    waits = sum(line.summary.open for line in lines)
    out = sum(line.stands_out for line in tested)
    first = sum(line.first for line in lines)
    if first and not any(line.summary.n for line in lines):
        began = "The first report" if first == 1 else f"The first {first:,} reports"
        return f"{count(len(lines), 'metric')}. {began} came today: estimates follow when the day is over."
    if not tested:
        return (
            f"{count(len(lines), 'metric')}, {waits:,} not computed yet."
            if waits
            else f"{count(len(lines), 'metric')}."
        )
    others, rest = len(lines) - len(tested) - waits, ""
    if others:
        ask, have = ("one asks", "has") if others == 1 else (f"{others:,} ask", "have")
        rest = f" The other {ask} for a yes or no, numbers or a table, or {have} too few reports."
    if waits:
        are = "is" if waits == 1 else "are"
        rest += f" {count(waits, 'metric')} {are} not computed yet: with them, others may stand out."
    return f"In {out:,} of {count(len(tested), 'metric')} something stands out from the noise.{rest}"


def _summary(store: Store, stored: StoredPlan, window: Window) -> Summary:
    """Summarise a metric's default window once: sealed days do not change."""
    kept: LRUCache[object, Summary] = current_app.extensions.setdefault("summaries", LRUCache(SUMMARIES_MAX))
    key = store.generation, stored.id, stored.candidates, stored.reservation, window
    summary = kept.get(key)
    if summary is None:
        summary = _summarise(store, stored, window)
        if summary.n:  # what could not be read may be mended
            kept[key] = summary
    return summary


def _summarise(store: Store, stored: StoredPlan, window: Window) -> Summary:
    if too_long(stored):
        return Summary(0, "too many candidates to be looked for here")
    try:
        reading = read(store, stored, window.last, estimand_of(stored.plan).opening(window.days))
    except TallyGone:
        return Summary(0, "its counts are no longer kept")
    except BadTally:
        return Summary(0, "its counts are damaged: run `dither fsck`")
    except NotReady as error:
        return Summary(0, error.words, open=True)
    if reading.n == 0:
        return Summary(0, _nothing(reading))
    return presentation_of(stored.plan).summary(reading)


def _nothing(reading: Reading) -> str:
    return "no reports in these days" if reading.left_out == 0 else "too few reports to be told with a read key"


_LEAST = date.min
_ORDERS: dict[str, Callable[[Line], tuple[object, ...]]] = {
    "name": lambda line: (line.stored.plan.metric,),
    "reports": lambda line: (-line.summary.n, line.stored.plan.metric),
    "latest": lambda line: (-(line.latest or _LEAST).toordinal(), line.stored.plan.metric),
    "detectable": lambda line: (line.summary.detectable or 2.0, line.stored.plan.metric),
}
