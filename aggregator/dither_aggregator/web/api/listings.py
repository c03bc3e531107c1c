"""Listings: metrics, the values of each, the snapshots of finalized days, and the marks."""

from collections.abc import Sequence
from datetime import date

from flask import Response

from dither_aggregator.analysis import snapshots
from dither_aggregator.analysis.disclosure import sees_all
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.api.paging import PagedAsked, page_of, top, with_part
from dither_aggregator.web.api.rowsets import JSON, RowsAsked, RowSet
from dither_aggregator.web.query_parameters import PlanAsked, QueryParameters, asked_plan, no_metric
from dither_shared.domains import NONE, OTHER
from dither_shared.wire.problems import Problem

UNLISTED = (OTHER, NONE)
METRICS = (
    *("metric", "kind", "question", "plan", "rev", "current", "retired", "expires", "mechanism"),
    *("epsilon", "epsilon_permanent", "epsilon_lifetime", "values", "candidates", "days", "from", "to"),
)
VALUES = ("metric", "rev", "value", "kind")
MARKS = ("day", "text")
SNAPSHOTS = ("metric", "rev", "plan", "epoch", "tally", "snapshot")


class ValuesAsked(PlanAsked, PagedAsked, RowsAsked):
    """The values of a metric that are asked for."""

    top = top("so many at most, in the plan's order")


def metrics(store: Store, asked: QueryParameters) -> RowSet:
    """Return what is public of every plan, with the days of its reports."""
    epochs = store.all_epochs()
    rows = [_described(stored, epochs.get(stored.id, [])) for stored in store.plans()]
    meta = {
        "app": store.app,
        "lossy": bool(store.lossy),
        "today": store.today().isoformat(),
        "sealed": store.sealed().isoformat(),
    }
    return RowSet(meta, METRICS, rows, "metrics")


def _described(stored: StoredPlan, epochs: Sequence[date]) -> Sequence[object]:
    plan = stored.plan
    first, last = (min(epochs).isoformat(), max(epochs).isoformat()) if epochs else (None, None)
    epsilons = (stored.epsilon, stored.epsilon_permanent, stored.epsilon_lifetime)
    asks = (plan.metric, plan.kind.name, stored.question, plan.digest, plan.rev)
    state = (stored.current, stored.retired, stored.expires.isoformat(), plan.cells.name)
    return (*asks, *state, *epsilons, len(plan.values), len(stored.candidates), len(epochs), first, last)


def values(store: Store, asked: QueryParameters, metric: str) -> RowSet:
    """Return what estimates there can be of: listed values, the registry's candidates, or statistics and shares."""
    stored = asked_plan(store, metric, asked)
    estimand = estimand_of(stored.plan)
    kinds = {name: name if name in UNLISTED else estimand.role for name in estimand.names(stored)}
    kinds |= dict.fromkeys(estimand.shares(stored), "share")
    found = with_part(list(kinds), asked["search"], str)
    chosen, paged = page_of(found, asked)
    plan = stored.plan
    rows = [(metric, plan.rev, value, kinds[value]) for value in chosen]
    meta = {"app": store.app, "metric": metric, "question": stored.question, "plan": plan.digest, "rev": plan.rev}
    return RowSet({**meta, **paged}, VALUES, rows, f"{metric}-values")


def metric_snapshots(store: Store, asked: QueryParameters, metric: str) -> RowSet:
    """Return what is kept of a metric's finalized days, the latest first within each plan."""
    plans = store.plans(metric)
    if not plans:
        raise no_metric(metric)
    whole = sees_all(store)  # counts that are not told could be tried against their digest
    rows = [
        (metric, stored.plan.rev, stored.plan.digest, epoch.isoformat(), digest, final.snapshot)
        for stored in plans
        for epoch, final in sorted(store.finals(stored.plan).items(), reverse=True)
        for digest in [final.digest if whole else None]
    ]
    meta = {"app": store.app, "metric": metric, "question": plans[0].question}
    return RowSet(meta, SNAPSHOTS, rows, f"{metric}-snapshots")


def marks(store: Store, asked: QueryParameters) -> RowSet:
    """Return what the operator marked, by day."""
    return RowSet({"app": store.app}, MARKS, [(mark.day.isoformat(), mark.text) for mark in store.marks()], "marks")


def snapshot(store: Store, asked: QueryParameters, id_: str) -> Response:
    """Return the very bytes whose SHA-256 is the id or, with a read key, what is told of them."""
    content = snapshots.content(store, id_)
    if content is None:
        raise no_snapshot(id_)
    return immutable(Response(content, content_type=JSON), id_)


def no_snapshot(id_: str) -> Problem:
    """Return the answer to an id that is no snapshot's, or no longer."""
    return Problem(
        "not-found",
        f"there is no snapshot {id_!r}, or it is no longer kept; GET /v1/metrics/NAME/snapshots lists a metric's",
    )


def immutable(response: Response, id_: str) -> Response:
    """Let an answer that is made of a snapshot alone be kept for ever."""
    response.set_etag(id_, weak=True)
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response
