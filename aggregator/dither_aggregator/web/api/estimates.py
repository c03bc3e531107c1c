"""The estimates of one metric in one window, with what can be told of each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, cast, get_args

import msgspec
from flask import request
from marshmallow import fields, validate

from dither_aggregator.analysis.differences import Family, GroupReading, read_groups
from dither_aggregator.analysis.estimands import estimand_of, read
from dither_aggregator.analysis.inference import ErrorOf, Method
from dither_aggregator.analysis.reading import (
    BadView,
    EstimateRow,
    Lines,
    Reading,
    TailDocument,
    View,
    Window,
    default_window,
    windows_together,
)
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import (
    Days,
    FirstDay,
    JudgedRow,
    LastDay,
    LeftOut,
    Provisional,
    Significance,
    SnapshotId,
    TableVerdict,
    Verdict,
    says,
)
from dither_aggregator.analysis.shares import METHODS
from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.operations.registry_process import DOCUMENT
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.api.listings import AppMeta
from dither_aggregator.web.api.rowsets import (
    EpsilonOfLife,
    EpsilonOfMemo,
    EpsilonOfOne,
    MechanismName,
    PagedAsked,
    PagedMeta,
    RowsAsked,
    RowSet,
    StoredPlanMeta,
    Unit,
    meta_of,
    page_of,
    top,
    with_part,
)
from dither_aggregator.web.pages.presentation import presentation_of
from dither_aggregator.web.queries import readable_tail
from dither_aggregator.web.query_parameters import (
    GROUP,
    Body,
    FalseShareAsked,
    LevelAsked,
    PlanAsked,
    QueryParameters,
    Value,
    WindowAsked,
    asked_confidence,
    asked_false_share,
    asked_level,
    asked_members,
    asked_plan,
    asked_window,
    one_of,
    refuse_long,
    too_long,
)
from dither_shared.domains import VALUE_CHARACTERS_MAX
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.plan import Plan
from dither_shared.text_normalization import normal, unseen
from dither_shared.wire.reading import Problem

Intervals = Literal["simultaneous", "each"]
INTERVALS: tuple[Intervals, ...] = get_args(Intervals)
VALUES_MAX = 1_000


Together = Annotated[
    int,
    says(
        "for how many windows of days intervals and verdicts hold at once: 1 for windows that pages offer, and for any "
        "other, a single day too, all that can be chosen of the days that are kept"
    ),
]


class EstimatesMeta(Lines, Days, StoredPlanMeta, PagedMeta):
    """Facts of all rows together. An estimand's own follow."""

    kind: str
    mechanism: MechanismName
    n: Annotated[int, says("reports, which are not people")]
    left_out: LeftOut
    provisional: Provisional
    snapshot: SnapshotId
    tally: Annotated[str, says("SHA-256 of n and the counts that were read")]
    epsilon: EpsilonOfOne
    epsilon_permanent: EpsilonOfMemo
    epsilon_lifetime: EpsilonOfLife
    noise_floor: Annotated[float | None, says("the usual standard error of what nobody has; null without reports")]
    level: Annotated[float, says("how sure the intervals are, in percent")]
    intervals: Annotated[Intervals, says("hold all together, or each on its own")]
    together: Together
    interval_method: Annotated[
        Method | None,
        says(
            "exact is of the share among these reports, clopper-pearson of the population or of repeated reports; of "
            "numbers wald is that of shares, while mean and quantiles have strict bounds"
        ),
    ]
    error_of: Annotated[ErrorOf, says("the devices that errors and intervals are of")]
    answer: Annotated[
        str, says("what the rows tell, in a sentence, by intervals that hold all at once; as on the page")
    ]
    tail: Annotated[TailDocument | None, says("null where it cannot be told")]


class CandidatesBody(Body):
    """The texts to look for."""

    candidates = fields.List(fields.String(), required=True)


class EstimatesAsked(WindowAsked, PlanAsked, LevelAsked, FalseShareAsked, PagedAsked, RowsAsked):
    """The parameters of a metric's estimates."""

    top = top("so many at most of the values that stand out, the largest first; needs simultaneous intervals")
    intervals = fields.String(
        validate=validate.OneOf(INTERVALS, error=f"must be {' or '.join(INTERVALS)}, got {{input!r}}"),
        metadata={
            "description": "hold all together, or each on its own; by default simultaneous, and each of a flag, which "
            "has one share"
        },
    )
    error_of = one_of(get_args(ErrorOf), "of these reports, or of the population that they are a sample of")
    normalised = one_of(("no", *METHODS), "adds a column of shares that sum to one")
    values = fields.List(
        Value(),
        validate=validate.Length(max=VALUES_MAX, error=f"is given at most {VALUES_MAX} times"),
        metadata={
            "description": "a value to return; may be given several times. A flag has the row yes, and none if "
            "presence is hidden: no, which says the same again, is returned where it is given here"
        },
    )
    group = GROUP


class GroupsAsked(WindowAsked, PlanAsked, LevelAsked, RowsAsked):
    """The groups of a metric."""

    group = GROUP


class GroupsMeta(Days, StoredPlanMeta):
    """The metric and the days of its groups."""

    n: Annotated[int, says("reports, which are not people")]
    level: Annotated[float, says("how sure the intervals are, in percent")]
    together: Together


class GroupRow(msgspec.Struct, frozen=True):
    """The share of some values or ranges together."""

    metric: str
    rev: int
    first: FirstDay = msgspec.field(name="from")
    last: LastDay = msgspec.field(name="to")
    group: Annotated[str, says("its name in the operator's dashboard")]
    members: Annotated[int, says("how many values or ranges it has; /estimates?group=NAME returns these")]
    n: Annotated[int, says("reports")]
    estimate: Annotated[float | None, says("a share, raw and unbiased; null if it cannot be told")]
    std_error: Annotated[float | None, says("null where the interval does not reach as far to both sides")]
    lower: Annotated[float | None, says("the interval's lower end")]
    upper: Annotated[float | None, says("its upper end")]
    error_of: Annotated[ErrorOf, says("the devices that error and interval are of")]
    family: Annotated[
        Family,
        says(
            "named: written before the metric's first report, and all such groups hold at once; free: all sums of the "
            "metric's values do, whoever made them"
        ),
    ]
    z: Annotated[float, says("in how many standard errors a normal interval of that level reaches")]


def _group_row(stored: StoredPlan, window: Window, each: GroupReading) -> GroupRow:
    row, of = each.row, (stored.plan.metric, stored.plan.rev, window.first, window.last, each.group.name)
    made = partial(GroupRow, *of, len(each.members), each.n)
    if row is None:
        return made(None, None, None, None, "population", each.family, each.z)
    return made(row.estimate, row.told_error, row.lower, row.upper, "population", each.family, each.z)


def groups(store: Store, asked: QueryParameters, metric: str) -> RowSet[GroupsMeta, GroupRow]:
    """Return the shares of a metric's groups, in the order of the dashboard."""
    stored = asked_plan(store, metric, asked)
    window = asked_window(store, asked) or default_window(store, stored)
    asked_members(store, stored, asked)
    together = windows_together(store, stored, window)
    view = View(confidence=asked_confidence(asked), together=together)
    found = read_groups(store, stored, window, view.own_confidence, asked.get("group") or ())
    rows = [_group_row(stored, window, each) for each in found]
    meta: GroupsMeta = {
        **meta_of(store, stored),
        **window.ends,
        "n": found[0].n if found else 0,
        "level": asked_level(asked),
        "together": together,
    }
    return RowSet(meta, GroupRow, rows, f"{metric}-groups-{window.first}-{window.last}")


def estimates(store: Store, asked: QueryParameters, metric: str) -> RowSet[EstimatesMeta, EstimateRow]:
    """Return the estimates of the listed values, or of the registry's candidates."""
    return _estimates(store, asked, asked_plan(store, metric, asked))


def estimates_of(store: Store, asked: QueryParameters, metric: str) -> RowSet[EstimatesMeta, EstimateRow]:
    """Return the estimates of the candidates that the body names, in place of the registry's."""
    candidates = _read_candidates(request.get_data())
    return _estimates(store, asked, asked_plan(store, metric, asked), candidates)


def _estimates(
    store: Store, asked: QueryParameters, stored: StoredPlan, candidates: tuple[str, ...] | None = None
) -> RowSet[EstimatesMeta, EstimateRow]:
    window = asked_window(store, asked) or default_window(store, stored)
    together, values = windows_together(store, stored, window), _looked_up(stored, asked)
    view = replace(_read_view(stored.plan, candidates, asked), days=window.days, values=values, together=together)
    refuse_long(stored, candidates)
    reading = read(store, stored, window.last, view)
    telling, estimand = reading, estimand_of(stored.plan)
    # All values are told at once, whichever intervals are shown; texts' tests do so anyway.
    tells_otherwise = estimand.simultaneous and not view.simultaneous
    if (significance := reading.significance()) and tells_otherwise and not significance.scores:
        telling = read(store, stored, window.last, replace(view, simultaneous=True))
        significance = telling.significance()
    tail = readable_tail(store, telling)
    opposite = estimand.opposite(stored)
    if opposite and opposite in asked.get("values", ()):
        also = read(store, stored, window.last, replace(view, values=(opposite,), normalised=None)).rows
        chosen = [*map(JudgedRow, also), *_choose(reading, significance, asked)]
    else:
        chosen = [*_choose(reading, significance, asked)]
    if (members := asked_members(store, stored, asked)) is not None:
        chosen = [each for each in chosen if each.row.value in members]
    rows, paged = page_of(chosen, asked)
    meta: EstimatesMeta = {
        **meta_of(store, stored),
        **window.ends,
        "kind": stored.plan.kind.name,
        "mechanism": stored.plan.cells.name,
        "n": reading.n,
        "left_out": reading.left_out,
        "provisional": reading.provisional,
        "snapshot": reading.snapshot,
        "tally": reading.tally,
        "epsilon": stored.epsilon,
        "epsilon_permanent": stored.epsilon_permanent,
        "epsilon_lifetime": stored.epsilon_lifetime,
        "noise_floor": reading.noise_floor,
        "level": asked_level(asked),
        "intervals": INTERVALS[not reading.view.simultaneous],
        "together": together,
        "interval_method": reading.method,
        "error_of": reading.view.error_of,
        "critical_share": significance.critical_share if significance else None,
        "detectable_share": significance.detectable_share if significance else None,
        "answer": presentation_of(stored.plan).answered(telling).sentence,
        "tail": tail.to_document() if tail else None,
        **paged,
    }
    own = {name: fact for name, fact in reading.own_document().items() if name not in meta}
    name = f"{stored.plan.metric}-{window.first}-{window.last}"
    return RowSet(cast("EstimatesMeta", {**meta, **own}), reading.row, reading.table(rows), name)


def _choose(reading: Reading, significance: Significance | None, asked: QueryParameters) -> Sequence[JudgedRow]:
    """Return the rows that are asked for: in the plan's order or, of the largest, the largest first."""
    judged: Sequence[JudgedRow] = told_rows(reading, significance)
    if "values" in asked:
        judged = _named(reading, judged, asked["values"])
    judged = with_part(judged, asked["search"], lambda each: each.row.value)
    if "top" not in asked:
        return judged
    if not estimand_of(reading.stored.plan).ranks:
        raise Problem("malformed", "top is for metrics with many values: this one asks for one share")
    if not reading.view.simultaneous:
        raise Problem(
            "malformed", "top needs intervals=simultaneous: intervals that hold each on its own miss the largest"
        )
    return sorted((each for each in judged if each.rank_lower), key=lambda each: -each.row.estimate)


def told_rows(reading: Reading, significance: Significance | None) -> list[JudgedRow]:
    """Return each row of a reading with what is told of it."""
    if significance is None:
        return [*(JudgedRow(row) for row in reading.rows), *(JudgedRow(row, "untold") for row in reading.untold)]
    judged = {each.row.value: each for each in significance.tell(provisional=reading.provisional)}
    if reading.view.simultaneous:  # and the intervals that standing out was told by
        return [judged.get(row.value) or JudgedRow(row) for row in reading.rows]
    return [judged.get(row.value, JudgedRow(row))._replace(row=row) for row in reading.rows]


def _looked_up(stored: StoredPlan, asked: QueryParameters) -> tuple[str, ...] | None:
    """Return the values that are asked for where any can be looked up by name, also those that no search finds."""
    estimand = estimand_of(stored.plan)
    values = tuple(dict.fromkeys(asked.get("values") or ()))
    if not (values and estimand.looks_up and all(estimand.knows(stored, value) for value in values)):
        return None
    return values


def _named(reading: Reading, judged: Sequence[JudgedRow], values: Sequence[str]) -> list[JudgedRow]:
    """Return the rows of some values; raise Problem for one that is never among the rows."""
    estimand = estimand_of(reading.stored.plan)
    known = {
        *estimand.names(reading.stored),
        *estimand.shares(reading.stored),
        *(reading.view.candidates or ()),
        *(each.row.value for each in judged),
    }
    unknown = next((value for value in values if value not in known), None)
    if unknown is not None:
        metric = reading.stored.plan.metric
        raise Problem(
            "malformed", f"values: there is no value {unknown!r} here; GET /v1/metrics/{metric}/values lists them"
        )
    return [each for each in judged if each.row.value in values]


def _read_view(plan: Plan, candidates: tuple[str, ...] | None, asked: QueryParameters) -> View:
    normalised = None if asked["normalised"] == "no" else asked["normalised"]
    error_of = cast("ErrorOf", asked["error_of"])
    intervals = asked.get("intervals", INTERVALS[not estimand_of(plan).simultaneous])
    level = asked_confidence(asked)
    false_share = asked_false_share(plan, asked)
    view = View(error_of, intervals == INTERVALS[0], normalised, candidates, confidence=level, false_share=false_share)
    try:
        estimand_of(plan).check(plan, view, frozenset(request.args))
    except BadView as error:
        raise Problem("malformed", str(error)) from None
    return view


def _read_candidates(body: bytes) -> tuple[str, ...]:
    try:
        document = DOCUMENT.decode(body)  # which reads nothing that is nested, and no half of a surrogate pair
    except (msgspec.MsgspecError, UnicodeDecodeError):
        document = {}
    listed = document.get("candidates") if len(document) == 1 else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= CANDIDATES_MAX:
        form = f'{{"candidates": [...]}} with 1 to {CANDIDATES_MAX} texts'
        raise Problem("malformed", f"the body must be {form}, in JSON that UTF-8 can hold")
    texts = [normal(text) for text in listed if isinstance(text, str)]
    if len(texts) < len(listed) or max(map(len, texts)) > VALUE_CHARACTERS_MAX:
        raise Problem("malformed", f"a candidate must be a text of at most {VALUE_CHARACTERS_MAX} characters")
    places: dict[str, int] = {}
    for place, text in enumerate(texts, 1):
        if hidden := unseen(text):
            raise Problem("malformed", f"candidates must be texts that can be seen, got {hidden} in number {place}")
        if text in places:
            raise Problem("malformed", f"candidates must be different, and numbers {places[text]} and {place} are not")
        places[text] = place
    return tuple(places)


# The estimates of all metrics in one window, for a spreadsheet or a report: one request, one table.


ROWS_MAX = 200_000
"""Rows of one answer: a row is about 500 bytes."""
Missing = Literal["no reports", "being computed", "not computed", "too many candidates", "gone", "damaged", "too few"]


class AllAsked(WindowAsked, LevelAsked, RowsAsked):
    """The days that are asked for, of all metrics."""


class AllMeta(AppMeta):
    """The metrics that the rows are of."""

    level: Annotated[float, says("how sure the intervals are, in percent: all of one metric at once")]
    together: Annotated[
        int,
        says("as of a metric's own estimates; the most of any metric, as the oldest has the most days to choose of"),
    ]
    metrics: Annotated[int, says("how many there are, those without estimates counted")]
    metrics_missing: Annotated[int, says("how many of them have no estimates: each has a row that says why")]


class AllRow(msgspec.Struct, frozen=True):
    """One value's number with its error, or a metric without any."""

    metric: str
    rev: int
    first: FirstDay = msgspec.field(name="from")
    last: LastDay = msgspec.field(name="to")
    value: Annotated[str | None, says("null where the metric has no estimates")]
    n: Annotated[int | None, says("reports; null where they are not read")]
    estimate: Annotated[float | None, says("a share; a mean or a quantile in the unit; null if untold")]
    std_error: Annotated[float | None, says("null where the interval does not reach as far to both sides")]
    lower: Annotated[float | None, says("the interval's lower end")]
    upper: Annotated[float | None, says("its upper end")]
    error_of: Annotated[ErrorOf, says("the devices that error and interval are of")]
    verdict: Annotated[Verdict | TableVerdict | Literal["untold"] | None, says("as among the metric's own estimates")]
    provisional: Provisional
    snapshot: SnapshotId
    left_out: LeftOut
    unit: Unit
    missing: Annotated[
        Missing | None,
        says(
            "why a metric has no estimates, else null. Ask again soon if it is being computed; gone are counts that "
            "are no longer kept, and damaged ones cannot be those of any reports"
        ),
    ]


def all_estimates(store: Store, asked: QueryParameters) -> RowSet[AllMeta, AllRow]:
    """Return the estimates of each metric's newest plan, as its page opens; one without any is a row that says why."""
    newest: dict[str, StoredPlan] = {}
    for stored in store.plans():
        newest.setdefault(stored.plan.metric, stored)
    window, together = asked_window(store, asked), 1
    rows: list[AllRow] = []
    for stored in newest.values():
        own = window or default_window(store, stored)
        view = replace(
            estimand_of(stored.plan).opening(own.days, asked_confidence(asked)),
            together=windows_together(store, stored, own),
        )
        together = max(together, view.together)
        rows += _rows_of(store, stored, own, view)
        if len(rows) > ROWS_MAX:
            raise Problem("malformed", f"these are more than {ROWS_MAX:,} rows: ask for one metric at a time")
    missing = sum(row.missing is not None for row in rows)
    days = f"{window.first}-{window.last}" if window else f"{store.sealed()}"
    return RowSet(
        {
            "app": store.app,
            "level": asked_level(asked),
            "together": together,
            "metrics": len(newest),
            "metrics_missing": missing,
        },
        AllRow,
        rows,
        f"{store.app}-{days}",
    )


def _rows_of(store: Store, stored: StoredPlan, window: Window, view: View) -> Iterator[AllRow]:
    missing: Missing
    n: int | None = None
    if too_long(stored):
        missing = "too many candidates"
    else:
        try:
            reading = read(store, stored, window.last, view)
        except TallyGone:
            missing = "gone"
        except BadTally:
            missing = "damaged"
        except NotReady as error:
            missing = "not computed" if error.failed else "being computed"
        else:
            if told := told_rows(reading, reading.significance()):
                yield from (_row(row, stored.plan.domain.unit) for row in reading.table(told))
                return
            n, missing = reading.n, "too few" if reading.n or reading.left_out != 0 else "no reports"
    of = (stored.plan.metric, stored.plan.rev, window.first, window.last)
    open_ = window.last > store.sealed()
    yield AllRow(
        *of, None, n, None, None, None, None, "population", None, open_, None, None, stored.plan.domain.unit, missing
    )


def _row(row: EstimateRow, unit: str) -> AllRow:
    names = set(EstimateRow.__struct_fields__) & set(AllRow.__struct_fields__)
    return AllRow(**{name: getattr(row, name) for name in names}, unit=unit, missing=None)
