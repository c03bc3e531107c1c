"""Computations that pages and API share: days of a few values, two windows, changes, the tail, questions."""

from collections.abc import Sequence

from cachetools import LRUCache
from flask import current_app
from marshmallow import fields, validate

from dither_aggregator.analysis.closed_days import Quality, days
from dither_aggregator.analysis.differences import (
    Changes,
    Comparison,
    Difference,
    before_of,
    changes,
    compare,
    dashboard_of,
    group_series,
    pairs_together,
    side_by_side,
    windows_beside,
)
from dither_aggregator.analysis.estimands import VALUES_MAX, Point, days_shown, estimand_of, read, series, tail
from dither_aggregator.analysis.reading import (
    BadView,
    Reading,
    Tail,
    View,
    Window,
    days_to_choose,
    default_window,
    sees_all,
    windows_together,
)
from dither_aggregator.analysis.reading_cache import keep_figure
from dither_aggregator.ask.answering import Asking, QueryAnswer
from dither_aggregator.ask.dashboard import SavedQuestion, saved_questions
from dither_aggregator.ask.language import BadQuestion, Query, parse
from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.health.status import MOVED
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.query_parameters import (
    CHOSEN_MAX,
    Day,
    LevelAsked,
    PlanAsked,
    QueryParameters,
    Value,
    WindowAsked,
    about,
    asked_confidence,
    asked_members,
    asked_plan,
    asked_window,
    between,
    chosen,
    refuse_both,
    refuse_future,
    refuse_long,
    too_long,
)
from dither_shared.wire.reading import Problem

SERIES_DAYS = 28
QUALITY_DAYS = 28
"""Days that are checked for one answer: words take half a second for each."""
QUESTIONS_MAX = 50
"""Questions that are answered at once."""


class SeriesAsked(WindowAsked, LevelAsked):
    """The parameters of a metric's days."""

    values = fields.List(
        Value(),
        validate=validate.Length(max=VALUES_MAX, error=f"may be given {VALUES_MAX} times at most"),
        metadata=about(f"up to {VALUES_MAX} values; by default those that stand out of the last window", "value"),
    )
    group = fields.List(
        Value(),
        validate=validate.Length(max=VALUES_MAX, error=f"may be given {VALUES_MAX} times at most"),
        metadata=about(f"up to {VALUES_MAX} groups of the operator's dashboard, in place of values"),
    )


def asked_series(
    store: Store, name: str, asked: QueryParameters
) -> tuple[StoredPlan, Window, Sequence[str], list[Point]]:
    """Return the plan, the days, the values or groups, and the points that a request asks for. Raises NotReady."""
    stored, window = series_asked(store, name, asked)
    plans, confidence, together = (
        _on_one_axis(store, stored),
        asked_confidence(asked),
        days_chosen(store, stored, asked),
    )
    if asked_members(store, stored, asked) is not None:
        groups = tuple(dict.fromkeys(asked["group"]))
        return stored, window, groups, group_series(store, plans, window, groups, confidence, together)
    values = tuple(dict.fromkeys(asked.get("values") or ())) or _standing_out(store, stored)
    for value in values:
        if not any(estimand_of(each.plan).knows(each, value) for each in plans):
            raise Problem(
                "malformed", f"the metric {name!r} has no value {value!r}; GET /v1/metrics/{name}/values lists them"
            )
    return stored, window, values, series(store, plans, window, values, confidence, together)


def series_asked(store: Store, name: str, asked: QueryParameters) -> tuple[StoredPlan, Window]:
    """Return the plan and the days that a request asks for, without a look at them."""
    stored = asked_plan(store, name, asked)
    refuse_long(stored)
    refuse_both(asked)
    return stored, asked_window(store, asked) or _last_days(store, name)


def days_together(store: Store, stored: StoredPlan, window: Window, asked: QueryParameters) -> int:
    """Return for how many days, of all plans, the points of a series hold at once."""
    return max(days_chosen(store, stored, asked), days_shown(store, _on_one_axis(store, stored), window), 1)


def _on_one_axis(store: Store, stored: StoredPlan) -> Sequence[StoredPlan]:
    """Return the plans of a metric whose numbers have the same unit: others have no place on the same axis."""
    unit = stored.plan.domain.unit
    return [each for each in store.plans(stored.plan.metric) if each.plan.domain.unit == unit]


def days_chosen(store: Store, stored: StoredPlan, asked: QueryParameters) -> int:
    """Return for how many days points hold at once that a reader chose: all that can be chosen, of all plans.

    0 where no reader chose them: then they hold for the days that are shown.
    """
    window = asked_window(store, asked)
    if window is None or windows_together(store, stored, window) == 1:
        return 0
    plans = store.plans(stored.plan.metric)
    return sum(days_to_choose(store, each) for each in plans if store.epochs(each.plan, store.tallies_from()))


def _last_days(store: Store, name: str) -> Window:
    """Return the last days to today, from the first of them that has reports."""
    window = Window.ending(store.today(), SERIES_DAYS + 1)
    there = [day for stored in store.plans(name) for day in store.epochs(stored.plan, window.first, window.last)]
    return Window(min(there, default=window.first), window.last)


def _standing_out(store: Store, stored: StoredPlan) -> Sequence[str]:
    """Return the values that lead the metric's page, of those that can be shown day by day."""
    estimand = estimand_of(stored.plan)
    if leading := estimand.leading(stored):
        return leading
    window = default_window(store, stored)
    try:
        significance = read(store, stored, window.last, View(simultaneous=True, days=window.days)).significance()
    except TallyGone:
        return ()
    significant = [ranked.row.value for ranked in significance.significant] if significance else []
    return [value for value in significant if estimand.knows(stored, value)][:VALUES_MAX]


def readable_tail(store: Store, reading: Reading) -> Tail | None:
    """Return the tail of a reading whose intervals hold together; None also where the days before cannot be read.

    That these are damaged or gone says nothing of the days that were asked for, which are shown without it.
    """
    try:
        return tail(store, reading)
    except (TallyGone, BadTally):
        return None


class CompareAsked(WindowAsked, PlanAsked, LevelAsked):
    """The parameters of two windows; the one before has by default as many days and ends where the other begins."""

    metric = fields.String(metadata=about("the metric's name", "metric"))
    base_first = Day(data_key="base_from", metadata=about("the first day of the window before", "before, from"))
    base_last = Day(data_key="base_to", metadata=about("its last day", "to"))
    values = chosen("a value: those that are given alone, with intervals that hold for all")
    group = fields.List(
        Value(),
        validate=validate.Length(max=CHOSEN_MAX, error=f"may be given {CHOSEN_MAX} times at most"),
        metadata=about("a group of the operator's dashboard: the differences of groups, in place of values"),
    )


def asked_comparison(store: Store, asked: QueryParameters) -> tuple[StoredPlan, Window, Window]:
    """Return the plan that a request names, and its windows: before, and after."""
    stored = asked_plan(store, asked["metric"], asked)
    usual = side_by_side(store.epochs(stored.plan), store.sealed(), store.tallies_from())
    after = asked_window(store, asked) or usual[1]
    before = between(asked, "base_first", "base_last") or before_of(after)
    refuse_future(store, before)
    refuse_both(asked)
    asked_members(store, stored, asked)
    refuse_long(stored)
    return stored, before, after


def compared(store: Store, stored: StoredPlan, before: Window, after: Window, confidence: float) -> Comparison:
    """Compare two windows, which a reader may have chosen; raise Problem where they share days, and TallyGone."""
    together = pairs_together(store, stored, before, after)
    try:
        return compare(store, stored, before, after, 1 - confidence, together)
    except BadView as error:
        raise Problem("malformed", str(error)) from None


def chosen_differences(comparison: Comparison, values: Sequence[str]) -> list[Difference]:
    """Return the differences of some values, in that order; raise Problem for one that no window can have.

    A value that the windows do not both tell, but could have, is left out.
    """
    rows = {row.value: row for row in (*comparison.rows, *comparison.untold)}
    refuse_unknown(comparison.after.stored, [value for value in values if value not in rows])
    return [rows[value] for value in dict.fromkeys(values) if value in rows]


def refuse_unknown(stored: StoredPlan, values: Sequence[str]) -> None:
    """Raise Problem for a value that no reading of a plan can have."""
    unknown = next((value for value in values if not estimand_of(stored.plan).knows(stored, value)), None)
    if unknown is not None:
        metric = stored.plan.metric
        raise Problem(
            "malformed", f"values: there is no value {unknown!r} here; GET /v1/metrics/{metric}/values lists them"
        )


def asked_quality(store: Store, metric: str, asked: QueryParameters) -> tuple[StoredPlan, Window, list[Quality]]:
    """Return the plan and the days that a request names, and what is wrong with their counts."""
    stored = asked_plan(store, metric, asked)
    window = asked_window(store, asked) or default_window(store, stored)
    if window.days > QUALITY_DAYS:
        raise Problem("malformed", f"at most {QUALITY_DAYS} days are checked at a time, got {window.days}")
    return stored, window, list(days(store, stored, window))


def changed(store: Store) -> tuple[Changes, Sequence[StoredPlan]]:
    """Return what moved in the metrics of the registry, and those whose lists of candidates are too long for here."""
    plans = [stored for stored in store.plans() if stored.current]
    long = [stored for stored in plans if too_long(stored)]
    windows = windows_beside(store, plans)
    asked = tuple((stored.id, stored.question, stored.candidates, stored.reservation) for stored in plans)
    key = store.generation, windows, asked, store.tallies_from()
    kept: LRUCache[object, Changes] = current_app.extensions.setdefault("changes", LRUCache(1))
    found = kept.get(key)
    if found is None:  # sealed days do not change: the page of a day is made once
        found = changes(store, [stored for stored in plans if stored not in long], *windows)
        if not (found.damaged or found.open):
            kept[key] = found
    return found, long


def saved(store: Store) -> list[SavedQuestion]:
    """Return the dashboard's questions with their answers, and whether these moved between the windows of changes."""
    dashboard = dashboard_of(store)
    if not dashboard.questions:
        return []
    plans = store.plans()
    windows = windows_beside(store, [stored for stored in plans if stored.current])
    asked = tuple((stored.id, stored.candidates, stored.reservation) for stored in plans)
    told = tuple(dashboard.questions.items()), dashboard.fixed, sees_all(store)
    key = store.generation, windows, asked, told, store.tallies_from()
    kept: LRUCache[object, list[SavedQuestion]] = current_app.extensions.setdefault("saved", LRUCache(2))
    found = kept.get(key)
    if found is None:  # sealed days do not change
        found = saved_questions(Asking(store), windows, too_long)
        if not any(one.open for one in found):
            kept[key] = found
            if not sees_all(store):  # monitors are told what every reader is
                keep_figure(store, MOVED, sum(bool(one.verdict) for one in found))
    return found


def lines(text: str) -> list[str]:
    """Return questions that were written a line each; an empty text is one, too, which cannot be asked."""
    return [line for line in text.replace("\r", "").split("\n") if line.strip()] or [""]


def answered(asking: Asking, texts: Sequence[str], *, fixed: bool) -> list[tuple[Query, list[QueryAnswer]]]:
    """Return questions with their answers, which hold together with those of any others, or are `fixed` and hold alone.

    Raises BadQuestion before any count is read, NotReady and LongList.
    """
    if len(texts) > QUESTIONS_MAX:
        raise BadQuestion(f"at most {QUESTIONS_MAX} questions are asked at once, got {len(texts):,}")
    questions = parsed(asking, texts)
    return list(zip(questions, asking.answer_all(questions, fixed=fixed), strict=True))


def parsed(asking: Asking, texts: Sequence[str]) -> list[Query]:
    """Read questions that can be asked here; raise BadQuestion for any other, and LongList."""
    questions = [parse(text, asking.groups) for text in texts]
    for question in questions:
        asking.windows(question)
        for stored in asking.asked_plans(question):
            refuse_long(stored)
    return questions
