"""A metric's page, in words and plots: first all that can be told, then the rest as one crowd."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Protocol

from flask import render_template
from marshmallow import fields

from dither_aggregator.analysis.estimands import estimand_of, read
from dither_aggregator.analysis.keeping import NotReady
from dither_aggregator.analysis.reading import Reading, View
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.standing import Ranked, Standing
from dither_aggregator.analysis.tail import Tail
from dither_aggregator.analysis.windows import Window
from dither_aggregator.counting.folding import TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.asking import (
    LEVELS,
    TODAY,
    WINDOWS,
    Given,
    LevelAsked,
    PlanAsked,
    Value,
    Whole,
    WindowAsked,
    asked_plan,
    asked_window,
    default_window,
    given,
)
from dither_aggregator.web.charts.crowd import Histogram, draw_crowd
from dither_aggregator.web.charts.scale import end, precise, rough
from dither_aggregator.web.charts.shares import Plot, draw
from dither_aggregator.web.computed import told_tail
from dither_aggregator.web.long_lists import refuse_long
from dither_aggregator.web.pages.numbers import numbers_part
from dither_aggregator.web.pages.quality import told_quality
from dither_aggregator.web.pages.tables import tables_part
from dither_aggregator.web.pages.words import in_batches, in_words, lagging, plan_state, sentence_of
from dither_aggregator.web.privacy import privacy_of
from dither_shared.domains import OTHER
from dither_shared.wire.problems import Problem

ROWS_A_PAGE = 50
FOUND_MAX = 20
CHOSEN = (
    "These days were chosen. The error rates stated here hold for the days that a page opens with: "
    "somebody who looks at many windows finds something in nothing."
)
NOT_TOLD = "With a read key, too little of these days is told to show anything."
LISTED_MAX = 25
"""While a day is not over, so many values at most are listed, in their own order."""


class MetricAsked(WindowAsked, PlanAsked, LevelAsked):
    """The parameters of a metric's page."""

    search = Value(load_default="", metadata={"description": "a part of a value"})
    page = Whole(1, 99_999, load_default=1)
    of = fields.String(metadata={"description": "for a table: the column whose rates are shown"})
    by = fields.String(metadata={"description": "for a table: the column that makes the groups"})


@dataclass(frozen=True)
class Controls:
    """The values in the form of a page."""

    plans: Sequence[StoredPlan]
    windows: Sequence[tuple[str, str]]
    """The name and the words of each window on offer; the first is the default, whose name may be ""."""
    window: str | None
    """The name of the one that is shown; None where it is not on offer."""
    shown: Window
    level: str
    search: str


class PagePart(Protocol):
    """A part of the page that a template of its own draws."""

    @property
    def headline(self) -> str:
        """The answer, in a sentence."""

    @property
    def template(self) -> str:
        """Its file."""


@dataclass(frozen=True)
class MetricPage:
    """All that the template shows of a metric."""

    stored: StoredPlan
    window: Window
    controls: Controls
    days: str
    """The window, in words."""
    state: Sequence[str]
    """Sentences on what these reports are."""
    headline: str
    """The answer, in one or two sentences."""
    reading: Reading | None = None
    """None where its counts are no longer kept."""
    standing: Standing | None = None
    rows: Sequence[Ranked] = ()
    """Those of this page that stand out."""
    page: int = 1
    pages: int = 1
    found: Sequence[tuple[Row, str]] = ()
    """The values that were searched for, each with a verdict."""
    matching: int = 0
    """How many values match; the first of them are shown."""
    levels: Sequence[str] = LEVELS
    plot: Plot | None = None
    crowd: Histogram | None = None
    tail: str = ""
    """The share of the whole crowd, in sentences; "" where that cannot be told."""
    part: PagePart | None = None
    """The part of an estimand that has one of its own."""
    quality: str = ""
    """Faults in the counts of single days, in sentences; "" where none is found."""
    open: bool = False
    """Whether it is not computed yet."""
    gone: str | None = None
    """The snapshot that was made of a day whose counts are no longer kept."""

    @property
    def searchable(self) -> bool:
        """Whether the page has values to search: a flag has one share, and numbers and tables have none of the list."""
        plan = self.stored.plan
        return not plan.kind.asked_alone and estimand_of(plan).name not in PARTS

    @property
    def unlisted_other(self) -> bool:
        """Whether "other" is shown beside texts: a reader might take it for the sum of all that are left out."""
        standing = self.standing
        return standing is not None and standing.noun != "value" and any(row.value == OTHER for row in standing.apart)


PARTS: Mapping[str, Callable[[Reading, Given], PagePart]] = {"numbers": numbers_part, "tables": tables_part}
"""The function that makes the part of an estimand, other than shares that stand out or do not."""


def show(store: Store, name: str) -> tuple[str, int]:
    """Return the page that a request asks for, and its status."""
    page = metric_page(store, name, given(MetricAsked))
    privacy = privacy_of(page.stored, store.plans(), page.reading.n if page.reading else 0)
    html = render_template("metric.html", page=page, elsewhere=elsewhere(store, page), privacy=privacy)
    return html, 200 if page.reading or page.open else 410


def metric_page(store: Store, name: str, asked: Given) -> MetricPage:
    """Return what a metric's page shows."""
    stored = asked_plan(store, name, asked)
    window = asked_window(store, asked) or default_window(store, stored)
    controls = _controls(store, stored, window, asked)
    several = not stored.plan.kind.asked_alone
    view = View(simultaneous=several, days=window.days, confidence=int(asked["level"]) / 100)
    refuse_long(stored)
    try:
        reading = read(store, stored, window.last, view)
    except TallyGone as gone:
        headline, state = f"The counts of {gone.epoch} are no longer kept.", plan_state(store, stored)
        return MetricPage(stored, window, controls, in_words(window), state, headline, gone=gone.snapshot)
    except NotReady as error:
        state, headline = plan_state(store, stored), sentence_of(error)
        return MetricPage(stored, window, controls, in_words(window), state, headline, open=True)
    return _shown(store, reading, controls, asked)


def _shown(store: Store, reading: Reading, controls: Controls, asked: Given) -> MetricPage:
    stored, window = reading.stored, reading.window
    state = [
        *plan_state(store, stored),
        *_window_state(store, reading, controls.level),
        *reading.less_told,
        *reading.sentences,
    ]
    standing = reading.standing() if reading.rows else None
    quality = told_quality(store, stored, window)
    bare = MetricPage(stored, window, controls, in_words(window), state, "", reading, standing, quality=quality)
    if reading.n == 0:
        nothing = "No reports of these days are counted."
        return replace(bare, headline=nothing if reading.left_out == 0 else NOT_TOLD)
    if not reading.rows:
        return replace(bare, headline=reading.nothing_to_show)
    if part_of := PARTS.get(estimand_of(stored.plan).name):
        part = part_of(reading, asked)
        return replace(bare, part=part, headline=part.headline)
    if standing is None:
        return replace(bare, plot=draw(reading.rows, reading.noise_floor or 0.0))
    told = not (reading.provisional or standing.too_few)
    found = _found(standing, controls.search, provisional=reading.provisional)
    if standing.too_few:
        return replace(bare, headline=headline_of(standing, reading), found=found[:FOUND_MAX], matching=len(found))
    page, pages = asked["page"], max(-(-len(standing.head) // ROWS_A_PAGE), 1)
    if page > pages:
        raise Problem("malformed", f"page must be a number from 1 to {pages}, got {page}")
    rows = standing.head[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE]
    listed = standing.crowd if reading.provisional and len(standing.crowd) <= LISTED_MAX else ()
    drawn = [*(ranked.row for ranked in rows), *listed, *standing.apart]
    floor = reading.noise_floor or 0.0
    alone = stored.plan.kind.asked_alone
    tail = told_tail(store, reading)
    return replace(
        bare,
        headline=headline_of(standing, reading),
        rows=rows,
        page=page,
        pages=pages,
        found=found[:FOUND_MAX],
        matching=len(found),
        plot=draw(drawn, floor, standing.critical_share if told and not alone else None, (0.0, 1.0) if alone else None)
        if drawn
        else None,
        crowd=draw_crowd(standing.bins, standing.scores) if standing.bins and not listed else None,
        tail=_tail_in_words(tail, reading, standing) if tail else "",
    )


def _controls(store: Store, stored: StoredPlan, window: Window, asked: Given) -> Controls:
    """Return the form; a window that is not on offer stands in it as it is."""
    usual = default_window(store, stored)
    windows = [(Window.ending(store.sealed(), days), str(days)) for days in WINDOWS]
    offered = dict([*windows, (usual, ""), (Window.ending(store.today(), 1), TODAY)])
    words = {each: "today so far" if name == TODAY else in_words(each) for each, name in offered.items()}
    choices = [(offered[each], words[each]) for each in sorted(offered, key=lambda each: (each != usual, each.days))]
    plans = store.plans(stored.plan.metric)
    return Controls(plans, choices, offered.get(window), window, asked["level"], asked["search"].strip())


# Sentences.


def headline_of(standing: Standing, reading: Reading) -> str:
    """Return what can be told of a reading's rows, in one or two sentences."""
    kind = reading.stored.plan.kind
    if standing.too_few:
        few = f"{reading.n:,} reports are" if reading.n > 1 else "One report is"
        return f"{few} too few to tell: even a value that everybody has would be found less than four times in five."
    what = f"{standing.noun}s"
    values = len(standing.head) + len(standing.crowd)
    reach = ""
    if standing.detectable_share is not None and not kind.asked_alone:
        reach = f" With this many reports, a value that {rough(standing.detectable_share)} have is found "
        reach += "four times in five."
    if reading.provisional:
        return f"More reports may come: of {reading.n:,} so far nothing is called found, and nothing ranked."
    if kind.asked_alone:
        row = standing.apart[0]
        estimate, lower, upper = (precise(share, row.std_error) for share in (row.estimate, row.lower, row.upper))
        silent = ", of all devices, those included that have nothing to say" * (len(standing.apart) > 1)
        return f"{estimate} say {kind.asked_alone}, between {lower} and {upper}{silent}."
    if not standing.head:
        return f"None of {values:,} {what} stands out from the noise.{reach}"
    return (
        f"{len(standing.head):,} of {values:,} {what} stand{'s' * (len(standing.head) == 1)} out from the noise.{reach}"
    )


def _tail_in_words(tail: Tail, reading: Reading, standing: Standing) -> str:
    """Return the share of the whole crowd, its days, and why these are not the days shown."""
    total, several = tail.total, reading.stored.plan.kind.several
    estimate = precise(total.estimate, total.std_error)
    lower, upper = (end(share, total.std_error) for share in (total.lower, total.upper))
    level = f"the {100 * reading.view.confidence:.0f}\N{NO-BREAK SPACE}% interval is"
    if several:
        estimate, lower, upper = (each.removesuffix("\N{NO-BREAK SPACE}%") for each in (estimate, lower, upper))
        had = f"every hundred of {tail.n:,} reports named {estimate} of them on average"
    else:
        had = f"they had {estimate} of {tail.n:,} reports together"
    apart = " and ".join(f"“{row.value}”" for row in standing.apart)
    without = f" That leaves out {apart}." if apart else ""
    return (
        f"Before these days ({in_words(tail.window)}) {had}: {level} from {lower} to {upper}.{without} "
        "The days shown cannot tell it: low noise kept some of these values from standing out, so their sum is too low."
    )


def _window_state(store: Store, reading: Reading, level: str) -> list[str]:
    said = lagging(store)
    if reading.provisional:
        said.append("Provisional: more reports may come.")
        said += in_batches(store)
    elif reading.window != default_window(store, reading.stored):
        said.append(CHOSEN)
    plan = reading.stored.plan
    around = Window.ending(reading.epoch, max(reading.window.days, WINDOWS[0]))
    older = [each.plan for each in store.plans(plan.metric) if each.plan.digest != plan.digest]
    others = {epoch for each in older for epoch in store.epochs(each) if epoch in around}
    if level == "80":
        said.append("At 80\N{NO-BREAK SPACE}%, up to one such page in five shows a value that nobody has.")
    if others:
        said.append(f"Another rev has reports on {len(others)} of the {around.days} days to here: they do not join.")
    if backlog := store.backlog():
        said.append(f"{backlog:,} uploads are not counted yet.")
    if reading.stored.plan.kind.several:
        said.append("People may give several answers: shares need not sum to 100\N{NO-BREAK SPACE}%.")
    return said


def elsewhere(store: Store, page: MetricPage) -> list[tuple[StoredPlan, date]]:
    """Return the plans of the metric with the latest day of each that has reports, but for what is shown."""
    shown = page.stored.plan.digest
    latest = [(stored, next(iter(store.epochs(stored.plan)), None)) for stored in page.controls.plans]
    return [
        (stored, day)
        for stored, day in latest
        if day is not None and not (stored.plan.digest == shown and day in page.window)
    ]


def _found(standing: Standing, search: str, *, provisional: bool) -> Sequence[tuple[Row, str]]:
    """Return the rows that have a text in their value, each with a verdict where there may be one."""
    if not search:
        return []
    wanted, told = search.casefold(), standing.tell(provisional=provisional)
    return [(each.row, each.verdict or "") for each in told if wanted in each.row.value.casefold()]
