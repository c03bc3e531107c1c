"""Listings: metrics, the values of each, the snapshots of finalized days, and the marks."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal, Self, TypedDict

import msgspec
from flask import Response

from dither_aggregator.analysis import closed_days
from dither_aggregator.analysis.closed_days import ALPHA, Check
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.reading import sees_all
from dither_aggregator.analysis.rows import Days, says
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.document_kinds import SCOPES, DayMark
from dither_aggregator.web.api.rowsets import (
    JSON,
    EpsilonOfLife,
    EpsilonOfMemo,
    EpsilonOfOne,
    MechanismName,
    MetricMeta,
    PagedAsked,
    PagedMeta,
    PlanDigest,
    RowsAsked,
    RowSet,
    StoredPlanMeta,
    meta_of,
    page_of,
    top,
    with_part,
)
from dither_aggregator.web.problems import CONTENT_TYPE
from dither_aggregator.web.queries import asked_quality
from dither_aggregator.web.query_parameters import PlanAsked, QueryParameters, WindowAsked, asked_plan, no_metric
from dither_shared.domains import NONE, OTHER
from dither_shared.wire.reading import PROBLEMS, Problem

UNLISTED = (OTHER, NONE)
ROLES = ("listed", "candidate", "found", *UNLISTED, "statistic", "share")


class MetricsMeta(TypedDict):
    """The aggregator."""

    app: str
    lossy: Annotated[bool, says("whether it may lose what it acknowledged, as its operator allowed")]
    today: Annotated[date, says("today by the store's clock (UTC)")]
    sealed: Annotated[date, says("the last day that nothing can enter any more")]


class MetricRow(msgspec.Struct, frozen=True):
    """A plan of a metric: the registry's, or an older one."""

    metric: str
    kind: str
    question: str
    plan: PlanDigest
    rev: int
    current: Annotated[bool, says("whether the registry has it now")]
    retired: Annotated[bool, says("whether its reports are refused")]
    expires: date
    mechanism: MechanismName
    epsilon: EpsilonOfOne
    epsilon_permanent: EpsilonOfMemo
    epsilon_lifetime: EpsilonOfLife
    values: Annotated[int, says("how many listed values it has")]
    candidates: Annotated[int, says("how many texts are looked for by default")]
    days: Annotated[int, says("how many days have reports")]
    first: Annotated[date | None, says("the first of them")] = msgspec.field(name="from")
    last: Annotated[date | None, says("the last of them")] = msgspec.field(name="to")


class ValuesMeta(StoredPlanMeta, PagedMeta):
    """The metric, and which part of the rows this is."""


class ValueRow(msgspec.Struct, frozen=True):
    """A value that there are estimates of."""

    metric: str
    rev: int
    value: str
    kind: Annotated[
        str,
        says(
            "other is what is not listed, none says that there was nothing to say; of numbers statistic is the mean or "
            "a quantile, and share that of a range or above an edge",
            enum=ROLES,
        ),
    ]


class KeptRow(msgspec.Struct, frozen=True):
    """The snapshot of one final day."""

    metric: str
    rev: int
    plan: PlanDigest
    epoch: date
    tally: Annotated[str | None, says("SHA-256 of n and the counts; null with a read key")]
    snapshot: Annotated[str, says("its id, which is the SHA-256 of its content")]


class AppMeta(TypedDict):
    """The aggregator."""

    app: Annotated[str, says("the app whose reports these are")]


class MarkRow(msgspec.Struct, frozen=True):
    """A release or another event."""

    day: Annotated[date, says("the day (UTC) on which it happened, or will")]
    text: Annotated[str, says("the operator's words: 1 to 80 characters")]

    @classmethod
    def of(cls, mark: DayMark) -> Self:
        """Return a mark as a row."""
        return cls(mark.day, mark.text)


class ValuesAsked(PlanAsked, PagedAsked, RowsAsked):
    """The values of a metric that are asked for."""

    top = top("so many at most, in the plan's order")


def metrics(store: Store, asked: QueryParameters) -> RowSet[MetricsMeta, MetricRow]:
    """Return what is public of every plan, with the days of its reports."""
    epochs = store.all_epochs()
    rows = [_described(stored, epochs.get(stored.id, [])) for stored in store.plans()]
    today, sealed = store.today(), store.sealed()
    meta: MetricsMeta = {"app": store.app, "lossy": bool(store.lossy), "today": today, "sealed": sealed}
    return RowSet(meta, MetricRow, rows, "metrics")


def _described(stored: StoredPlan, epochs: Sequence[date]) -> MetricRow:
    plan = stored.plan
    return MetricRow(
        *(plan.metric, plan.kind.name, stored.question, plan.digest, plan.rev),
        *(stored.current, stored.retired, stored.expires, plan.cells.name),
        *(stored.epsilon, stored.epsilon_permanent, stored.epsilon_lifetime),
        *(len(plan.values), len(stored.candidates), len(epochs)),
        *(min(epochs, default=None), max(epochs, default=None)),
    )


def values(store: Store, asked: QueryParameters, metric: str) -> RowSet[ValuesMeta, ValueRow]:
    """Return what estimates there can be of: listed values, the registry's candidates, or statistics and shares."""
    stored = asked_plan(store, metric, asked)
    estimand = estimand_of(stored.plan)
    kinds = {name: name if name in UNLISTED else estimand.role for name in estimand.names(stored)}
    kinds |= dict.fromkeys(estimand.shares(stored), "share")
    found = with_part(list(kinds), asked["search"], str)
    chosen, paged = page_of(found, asked)
    rows = [ValueRow(metric, stored.plan.rev, value, kinds[value]) for value in chosen]
    return RowSet({**meta_of(store, stored), **paged}, ValueRow, rows, f"{metric}-values")


def metric_snapshots(store: Store, asked: QueryParameters, metric: str) -> RowSet[MetricMeta, KeptRow]:
    """Return what is kept of a metric's finalized days, the latest first within each plan."""
    plans = store.plans(metric)
    if not plans:
        raise no_metric(metric)
    whole = sees_all(store)  # counts that are not told could be tried against their digest
    rows = [
        KeptRow(metric, stored.plan.rev, stored.plan.digest, epoch, final.digest if whole else None, final.snapshot)
        for stored in plans
        for epoch, final in sorted(store.finals(stored.plan).items(), reverse=True)
    ]
    meta: MetricMeta = {"app": store.app, "metric": metric, "question": plans[0].question}
    return RowSet(meta, KeptRow, rows, f"{metric}-snapshots")


def marks(store: Store, asked: QueryParameters) -> RowSet[AppMeta, MarkRow]:
    """Return what the operator marked, by day."""
    return RowSet({"app": store.app}, MarkRow, map(MarkRow.of, store.documents(DayMark)), "marks")


def snapshot(store: Store, asked: QueryParameters, id_: str) -> Response:
    """Return the very bytes whose SHA-256 is the id or, with a read key, what is told of them."""
    content = closed_days.content(store, id_)
    if content is None:
        raise no_snapshot(store, id_)
    return immutable(Response(content, content_type=JSON), id_)


def no_snapshot(store: Store, id_: str) -> Problem:
    """Return the answer to an id that is no snapshot's, or no longer."""
    if closed_days.is_given_up(store, id_):
        return Problem("gone", f"the snapshot {id_} was given up by `store keep`")
    return Problem("not-found", f"there is no snapshot {id_!r}; GET /v1/metrics/NAME/snapshots lists a metric's")


def immutable(response: Response, id_: str) -> Response:
    """Let an answer that is made of a day's snapshot alone be kept for ever; a window's estimates are made anew."""
    if "." in id_:
        return response
    response.set_etag(id_, weak=True)
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response


# Data quality as rows: counts that honest devices hardly ever send, day by day.


class QualityMeta(Days, StoredPlanMeta):
    """The days that were checked, and their plan."""

    days_checked: Annotated[int, says("closed days with reports whose counts are kept")]
    days_implausible: Annotated[int, says("those with a check that is implausible")]
    false_alarms: Annotated[float, says("at most this part of a sound metric's days is called implausible")]


class QualityRow(msgspec.Struct, frozen=True):
    """One check of one closed day, with the count that is farthest off."""

    metric: str
    rev: int
    epoch: Annotated[date, says("the day (UTC), by itself")]
    n: Annotated[int, says("its reports")]
    check: Annotated[
        Check,
        says(
            "cells are reports by cell or cohort; shares support of a value, a bit or a symbol, between what nobody "
            "and what everybody would give; ones the bits set in all reports; unused the support of values that "
            "nobody can have, each by itself or together"
        ),
    ]
    tests: Annotated[int, says("how many counts it looks at")]
    of: Annotated[str, says("the name of the count, in words that follow the number")]
    observed: Annotated[int, says("the count")]
    expected_lower: Annotated[float, says("the least that is expected, whatever is answered")]
    expected_upper: Annotated[float, says("the most")]
    p_value: Annotated[
        float, says("how often honest devices are so far off at most, in any of the counts of five checks")
    ]
    verdict: Literal["implausible", "nothing found"]


class QualityAsked(WindowAsked, PlanAsked, RowsAsked):
    """The days of a metric to check."""


def quality(store: Store, asked: QueryParameters, metric: str) -> RowSet[QualityMeta, QualityRow]:
    """Return a row for each check of each closed day that has reports: the count that is farthest off."""
    stored, window, days = asked_quality(store, metric, asked)
    rows = [
        QualityRow(
            *(metric, stored.plan.rev, day.epoch, day.n, one.check, one.tests, one.of, one.observed),
            *(one.low, one.high, one.p_value, "implausible" if one.implausible else "nothing found"),
        )
        for day in days
        for one in day.checks
    ]
    meta: QualityMeta = {
        **meta_of(store, stored),
        **window.ends,
        "days_checked": len(days),
        "days_implausible": sum(day.worst is not None for day in days),
        "false_alarms": ALPHA,
    }
    return RowSet(meta, QualityRow, rows, f"{metric}-quality-{window.first}-{window.last}")


# `POST /v1/reports`, described beside what is read. `web/endpoints.py` answers; shared/wire.md says all.


SECURITY = {
    f"{scope}Key": {"type": "http", "scheme": "bearer", "description": f"`dither keys create {scope}` makes one"}
    for scope in SCOPES
}
READ_KEY: list[dict[str, list[str]]] = [{"readKey": []}, {"adminKey": []}, {}]
"""The last says that no key may be needed: before a read key is made."""
ADMIN_KEY: list[dict[str, list[str]]] = [{"adminKey": []}]


def _members(*optional: str, **members: Any) -> dict[str, Any]:
    """Return the schema of an object with these members and no others."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False}


def _refusals(*slugs: str) -> dict[str, Any]:
    """Return problem documents, by their statuses."""
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    reasons: dict[str, list[str]] = {}
    for slug in slugs:
        status, title = PROBLEMS[slug]
        reasons.setdefault(str(status), []).append(title)
    return {status: {"description": "; ".join(titles), "content": content} for status, titles in reasons.items()}


_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
_GROUP = _members(
    "cell",
    metric=_TEXT,
    plan=_TEXT | {"description": "the digest of the plan"},
    cell=_COUNT | {"description": "of a plan that has several"},
    reports={"type": "array", "items": {"type": ["integer", "string"]}},
)
_UPLOAD = _members(
    v={"const": 1},
    upload=_TEXT | {"description": "128 random bits, as base64url without padding; the same when it is sent again"},
    groups={"type": "array", "items": _GROUP, "minItems": 1, "maxItems": 50},
)
_SIMPLE = _TEXT | {"description": "from a page of an allowed origin: the same, with the key as `key` behind `v`"}
_RECEIPT = _members(
    upload=_TEXT,
    accepted=_COUNT,
    duplicate={"type": "boolean"},
    rejected={"type": "array", "items": _members(group=_COUNT, reason=_TEXT, count=_COUNT)},
)
UPLOADS = {
    "post": {
        "operationId": "reports",
        "summary": "the receipt of an upload, which is on the disk",
        "tags": ["uploads"],
        "security": [{"writeKey": []}, {}],
        "requestBody": {"required": True, "content": {JSON: {"schema": _UPLOAD}, "text/plain": {"schema": _SIMPLE}}},
        "responses": {
            "202": {"description": "it was stored, now or before", "content": {JSON: {"schema": _RECEIPT}}},
            **_refusals(
                *("malformed", "key-missing", "key-wrong", "key-scope", "origin-not-allowed"),
                *("upload-conflict", "expired"),
                *("length-required", "too-large", "unsupported-media-type", "refused", "headers-too-large", "too-many"),
                *("failed", "key-waiting", "backlog-full", "unavailable", "disk-full"),
            ),
        },
    }
}
"""A path item of OpenAPI 3.1."""
