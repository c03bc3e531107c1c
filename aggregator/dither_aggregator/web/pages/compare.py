"""Moves: the last sealed days of all metrics beside as many before, and any two windows of one metric."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from flask import render_template
from scipy.special import ndtr

from dither_aggregator.analysis.differences import (
    DAYS,
    Changes,
    Comparison,
    Difference,
    group_differences,
    pairs_together,
)
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import BINS, bin_estimates
from dither_aggregator.counting import TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.charts import Measure
from dither_aggregator.web.forest_plots import Histogram, Plot, draw, draw_histogram
from dither_aggregator.web.pages.asking import saved_cards
from dither_aggregator.web.pages.presentation import (
    FormField,
    Presentation,
    count,
    form,
    lagging,
    other_revs,
    plan_state,
    plans_of,
    presentation_of,
    sentence_of,
    wider,
)
from dither_aggregator.web.queries import CompareAsked, asked_comparison, changed, chosen_differences, compared
from dither_aggregator.web.query_parameters import (
    CHOSEN_MAX,
    SEARCH,
    Day,
    Parameters,
    QueryParameters,
    Whole,
    about,
    asked_confidence,
    asked_members,
    query_parameters,
)
from dither_shared.safe_output import visible
from dither_shared.wire.reading import Problem

VALUES_SHOWN = 5
METRICS_SHOWN = 100
MOVES_TOLD = 2
"""Values of the metric that moved most surely, in the headline."""


@dataclass(frozen=True)
class Moved:
    """The entry of a metric."""

    comparison: Comparison
    rows: Sequence[Difference]
    more: int
    """How many values moved that are not shown here."""


def show_changes(store: Store) -> str:
    """Return the page that a request asks for."""
    query_parameters(Parameters)
    found, left_out = changed(store)
    moved = [
        Moved(one, _largest_moves(one), max(0, len(one.moved) - VALUES_SHOWN)) for one in found.moved[:METRICS_SHOWN]
    ]
    state = [*lagging(store), *young(found.after)]
    asked = [card for card in saved_cards(store) if card.move]
    return render_template(
        "changes.html",
        found=found,
        moved=moved,
        headline=_changes_headline(found),
        left_out=left_out,
        state=state,
        asked=asked,
    )


def _largest_moves(one: Comparison) -> Sequence[Difference]:
    """Return the largest moves: of numbers mean and quantiles in the order of the metric's page."""
    largest = one.moved[:VALUES_SHOWN]
    if not one.after.stored.plan.domain.unit:
        return largest
    places = {row.value: at for at, row in enumerate(one.rows)}
    return sorted(largest, key=lambda row: places[row.value])


def young(after: Window) -> list[str]:
    """Return why the windows that pages choose are shorter than the week that a reader expects."""
    if after.days >= DAYS:
        return []
    return ["The counts go back less than two weeks: the later half of these days is compared with the earlier."]


def _changes_headline(found: Changes) -> str:
    """Return in a sentence what moved."""
    compared = len(found.moved) + len(found.still)
    if not compared:
        return "Nothing can be compared yet: no metric has reports of both windows."
    if not found.moved:
        return f"Nothing can be told to have moved, in any of {count(compared, 'metric')}."
    stored, rows = found.moved[0].after.stored, found.moved[0].moved
    moves = ", ".join(presentation_of(stored.plan).move(row) for row in rows[:MOVES_TOLD])
    where = f"{'most surely ' * (len(found.moved) > 1)}in “{visible(stored.question)}”"
    return f"Something moved in {len(found.moved):,} of {count(compared, 'metric')}, {where}: {moves}."


# Two windows of a metric: the differences, which of them can be told from noise, and how surely.


ROWS_A_PAGE = 50
FOUND_MAX = 20
SCORES_SHOWN = 4.0
"""Standard errors that the histogram shows on either side of zero, whatever the differences are."""


class ComparePageAsked(CompareAsked):
    """The parameters of a comparison's page."""

    first = Day(data_key="from", metadata=about("", "after, from"))
    search = SEARCH
    page = Whole(1, 99_999, load_default=1)


@dataclass(frozen=True)
class ComparePage:
    """All that the template shows of a comparison."""

    stored: StoredPlan
    before: Window
    after: Window
    level: Decimal
    search: str
    state: Sequence[str]
    headline: str
    form: Sequence[FormField]
    comparison: Comparison | None = None
    chosen: bool = False
    """Whether the reader chose the days."""
    wider: str = ""
    """How many times as wide intervals are because the reader chose the days; "" where they are no wider."""
    open: bool = False
    """Whether it is not computed yet."""
    rows: Sequence[Difference] = ()
    """Those of this page that moved."""
    page: int = 1
    pages: int = 1
    found: Sequence[Difference] = ()
    matching: int = 0
    """How many values match; the first of them are shown."""
    plot: Plot | None = None
    histogram: Histogram | None = None
    values: Sequence[str] = ()
    """The values that the reader chose: these are the rows."""
    group: str | None = None
    """The group that the reader chose: of the values only its own are rows."""
    groups: Sequence[Difference] = ()
    """The differences of groups, or of the chosen one."""
    group_plot: Plot | None = None

    @property
    def carried(self) -> Sequence[str]:
        """The chosen values that a metric's page takes, too."""
        return self.values if self.shown.searchable else ()

    @property
    def shown(self) -> Presentation[Any]:
        """How its readings are shown."""
        return presentation_of(self.stored.plan)


def show(store: Store) -> str | tuple[str, int]:
    """Return the page that a request asks for; without a metric, the question for one."""
    asked = query_parameters(ComparePageAsked)
    if "metric" not in asked:
        names = sorted({stored.plan.metric for stored in store.plans()})
        fields = form(ComparePageAsked, {}, {"metric": names})
        return render_template("compare.html", page=None, form=fields)
    page = compare_page(store, asked)
    return render_template("compare.html", page=page), 200 if page.comparison or page.open else 410


def compare_page(store: Store, asked: QueryParameters) -> ComparePage:
    """Return what the page of a comparison shows."""
    stored, before, after = asked_comparison(store, asked)
    chosen = any(name in asked for name in ("first", "epoch", "window", "base_first"))
    pays = pairs_together(store, stored, before, after) > 1
    state = [*plan_state(store, stored), *lagging(store)]
    state += _window_state(chosen and not pays, after.last > store.sealed())
    state += [] if chosen else young(after)
    state += other_revs(store, stored)
    level, search, plans = asked["level"], asked["search"].strip(), plans_of(store, stored)
    days = {"base_first": before.first, "base_last": before.last, "first": after.first, "last": after.last}
    others = {
        "plan": stored.plan.digest if plans else None,
        "search": None if presentation_of(stored.plan).moves_few else search,
    }
    shown = {**asked, **days, **others, "metric": None, "window": None}
    fields = form(ComparePageAsked, shown, {"plan": plans}, (*days, "plan"))
    values, names = asked.get("values") or (), asked.get("group") or ()
    page = ComparePage(stored, before, after, level, search, state, "", fields, chosen=chosen)
    page = replace(page, values=values, group=next(iter(names), None))
    try:
        comparison = compared(store, stored, before, after, asked_confidence(asked))
    except TallyGone as gone:
        return replace(page, headline=f"{gone}".capitalize())
    except NotReady as error:
        return replace(page, headline=sentence_of(error), open=True)
    groups = group_differences(store, stored, before, after, comparison.after.view.own_confidence, names)
    members = asked_members(store, stored, asked)
    if members is not None:
        told = {row.value for row in comparison.rows}
        values = [value for value in members if value in told][:CHOSEN_MAX]
    shown_page = _shown(page, comparison, asked["page"], values if names or values else None)
    drawn = draw(groups, 0.0, signed=True) if groups else None
    return replace(shown_page, groups=groups, group_plot=drawn)


def _shown(page: ComparePage, comparison: Comparison, number: int, values: Sequence[str] | None) -> ComparePage:
    chosen = None if values is None else chosen_differences(comparison, values)
    moved = comparison.moved if chosen is None else [row for row in chosen if not row.untold]
    pages = max(-(-len(moved) // ROWS_A_PAGE), 1)
    if number > pages:
        raise Problem("malformed", f"page must be a number from 1 to {pages}, got {number}")
    rows = moved[(number - 1) * ROWS_A_PAGE : number * ROWS_A_PAGE]
    few = page.shown.moves_few
    if few and values is None:
        rows = list(comparison.rows)
    wanted = page.search.casefold()
    found = [row for row in comparison.rows if wanted and wanted in row.value.casefold()]
    still = [row for row in comparison.rows if not row.verdict] if values is None else []
    return replace(
        page,
        headline=headline(comparison),
        state=[*page.state, *_left_out_sentences(comparison), *_untold(page, comparison)],
        comparison=comparison,
        wider=wider(comparison.after, len(comparison.rows)),
        rows=rows,
        page=number,
        pages=pages,
        found=found[:FOUND_MAX],
        matching=len(found),
        plot=draw(rows, 0.0, signed=True, measure=Measure(page.stored.plan.domain.unit)) if rows else None,
        histogram=_histogram(still) if len(still) > 1 and not few else None,
    )


def _left_out_sentences(comparison: Comparison) -> Iterator[str]:
    """Yield sentences on the reports that are left out of either window."""
    for when, reading in (("Before", comparison.before), ("After", comparison.after)):
        yield from (f"{when}: {sentence}" for sentence in reading.left_out_sentences)


def _untold(page: ComparePage, comparison: Comparison) -> Iterator[str]:
    """Yield a sentence on values that one of the windows does not tell, with the interval that both leave."""
    measure = Measure(page.stored.plan.domain.unit)
    names = ", ".join(
        f"{measure.called(row.value)} ({measure.end_in_points(row.lower, row.upper - row.lower)} to "
        f"{measure.end_in_points(row.upper, row.upper - row.lower)})"
        for row in comparison.untold
    )
    if names:
        yield f"Not told, because in one of the windows each may lie in a third of the axis or more: {names}."


def _histogram(rows: Sequence[Difference]) -> Histogram:
    scores = np.array([row.estimate / row.std_error for row in rows])
    edges = np.linspace(min(-SCORES_SHOWN, *scores), max(SCORES_SHOWN, *scores), BINS + 1)
    return draw_histogram(bin_estimates(scores, edges, ndtr), scores=True)


def headline(comparison: Comparison) -> str:
    """Return in a sentence or two what moved."""
    before, after = comparison.before, comparison.after
    if before.n == 0 or after.n == 0:
        which = "either window" if before.n == after.n else "the window before" if before.n == 0 else "the last window"
        return f"Nothing can be compared: no reports of {which} are counted."
    if before.provisional or after.provisional:
        return "More reports may come: nothing is told of a window that is not over."
    if not comparison.rows:
        return before.nothing_to_show if after.rows else after.nothing_to_show
    return presentation_of(after.stored.plan).moved(comparison)


def _window_state(chosen: bool, provisional: bool) -> list[str]:
    sentences = []
    if provisional:
        sentences.append("Provisional: more reports may come.")
    if chosen:
        sentences.append(
            "These days were chosen. If they were chosen because they look different, every verdict here is too sure: "
            "somebody who tries many windows finds something in pure noise."
        )
    return sentences
