"""The acts of an admin key: it changes plans, quarantine, marks and keys, and reads the journal.

Each change is `Administration`'s, as it is on the command line.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Annotated, Any, Self

import msgspec
from flask import request
from marshmallow import fields, validate

from dither_aggregator.analysis.rows import says
from dither_aggregator.operations.administration import Administration
from dither_aggregator.operations.registry_process import KnownPlans, NoRegistry, read_apart
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.document_kinds import SCOPES, STATES, Key
from dither_aggregator.store.documents import Offered
from dither_aggregator.web.api.description import Operation
from dither_aggregator.web.api.listings import AppMeta, MarkRow, marks
from dither_aggregator.web.api.rowsets import PlanDigest, R, RowsAsked, RowSet
from dither_aggregator.web.process_messages import ACTOR, BODY
from dither_aggregator.web.query_parameters import Body, Day, QueryParameters, Whole, body_parameters

IDS_MAX = 1_000
_MARK = "1 to 80 characters; anybody who may read reads them"
JOURNAL_ROWS = 1_000
"""How many entries are returned unless somebody asks for fewer or more."""
MetricName = Annotated[str, says("the metric's name")]
Rev = Annotated[int, says("the metric's version")]


class StoredPlanRow(msgspec.Struct, frozen=True):
    """A plan."""

    metric: MetricName
    rev: Rev
    plan: PlanDigest
    current: Annotated[bool, says("whether it is the registry's")]
    retired: Annotated[bool, says("whether its reports are refused")]

    @classmethod
    def of(cls, stored: StoredPlan) -> Self:
        """Return a plan as a row."""
        return cls(stored.plan.metric, stored.plan.rev, stored.plan.digest, stored.current, stored.retired)


class HeldRow(msgspec.Struct, frozen=True):
    """Reports that could not be counted."""

    id: Annotated[str, says("such as 0-17")]
    metric: MetricName
    rev: Rev
    plan: PlanDigest
    epoch: Annotated[date, says("the day (UTC) on which they were accepted")]
    reports: Annotated[int, says("how many")]
    reason: Annotated[str, says("why they could not be counted")]


class SettledRow(msgspec.Struct, frozen=True):
    """A group that was to be settled."""

    id: Annotated[str, says("such as 0-17")]
    done: Annotated[bool, says("whether it was there")]


class KeyRow(msgspec.Struct, frozen=True):
    """A key, without its text."""

    id: Annotated[str, says("by which it is known and revoked")]
    scope: Annotated[str, says("what it is for", enum=SCOPES)]
    label: Annotated[str, says("the operator's words")]
    state: Annotated[str, says("who uploads with a waiting key is told to come again", enum=STATES)]
    made: Annotated[date, says("the day (UTC) on which it was made")]
    last_used: Annotated[date | None, says("the last day on which it was shown")]

    @classmethod
    def of(cls, key: Key, *text: str) -> Self:
        """Return a key as a row."""
        return cls(key.id, key.scope, key.label, key.state, key.made, key.last_used, *text)


class NewKeyRow(KeyRow, frozen=True):
    """A new key."""

    key: Annotated[str, says("its text, which nobody can tell again")]


class JournalRow(msgspec.Struct, frozen=True):
    """A change that somebody asked for."""

    at: Annotated[str, says("by the store's clock, in UTC", format="date-time")]
    actor: Annotated[str, says("the id of an admin key, or command line")]
    action: Annotated[str, says("such as key revoke")]
    what: Annotated[str, says("to what")]


def _text(what: str, **how: Any) -> fields.String:
    return fields.String(**{"required": True, "metadata": {"description": what}, **how})


def _truth(what: str) -> fields.Boolean:
    return fields.Boolean(truthy={True}, falsy={False}, load_default=False, metadata={"description": what})


class RegistryBody(Body):
    """A registry that names no files."""

    body_bytes_max = 2 * 1024 * 1024
    registry = _text("the text of metrics.toml")


class RetireBody(Body):
    """The plan to retire, or to take again."""

    metric = _text("the metric's name")
    rev = fields.Integer(required=True, strict=True, metadata={"description": "the metric's version"})
    undo = _truth("take its reports again")


class IdsBody(Body):
    """The groups in quarantine to settle."""

    ids = fields.List(fields.String(), required=True, validate=validate.Length(1, IDS_MAX))


class MarkBody(Body):
    """A release or another event."""

    day = Day(required=True, metadata={"description": "the day (UTC) on which it happened, or will"})
    text = _text(_MARK)


class UnmarkBody(Body):
    """The mark to remove; without its text all of the day."""

    day = Day(required=True, metadata={"description": "the day (UTC)"})
    text = _text(_MARK, required=False)


class NewKeyBody(Body):
    """The key to make."""

    scope = _text(
        "what it is for",
        validate=validate.OneOf(SCOPES, error=f"must be {' or '.join(SCOPES)}, got {{input!r}}"),
    )
    label = _text("whose it is; at most 100 characters", required=False, load_default="")


class RevokeBody(Body):
    """The key that is to let nobody in any more."""

    id = _text("as it is listed")
    wait = _truth("have its uploads come again later: of a write key")


class JournalAsked(RowsAsked):
    """How much of the journal."""

    limit = Whole(1, 100_000, "so many of the last entries", load_default=JOURNAL_ROWS)


def _hands(store: Store) -> Administration:
    return Administration(store, request.environ[ACTOR])


def _rows(store: Store, row: type[R], rows: Iterable[R], name: str) -> RowSet[AppMeta, R]:
    return RowSet({"app": store.app}, row, list(rows), name)


# Plans.


def load_registry(store: Store, asked: QueryParameters) -> RowSet[AppMeta, StoredPlanRow]:
    """Load a registry; return the plans that are new."""
    store.refresh()
    plans = [(one.plan.metric, one.plan.rev, one.plan.digest) for one in store.plans()]
    try:
        offered = Offered.from_document(read_apart(request.environ[BODY], KnownPlans(store.app, plans)))
    except NoRegistry as error:
        body_parameters(RegistryBody, error.short)
        raise
    return _rows(store, StoredPlanRow, map(StoredPlanRow.of, _hands(store).load(offered)), "plans")


def retire_plan(store: Store, asked: QueryParameters) -> RowSet[AppMeta, StoredPlanRow]:
    """Refuse the reports of a plan from now on, or take them again; return it."""
    given = body_parameters(RetireBody)
    metric, rev = given["metric"], given["rev"]
    _hands(store).retire(metric, rev, undo=given["undo"])
    retired = [StoredPlanRow.of(one) for one in store.plans(metric) if one.plan.rev == rev]
    return _rows(store, StoredPlanRow, retired, "plans")


# Quarantine.


def quarantine(store: Store, asked: QueryParameters) -> RowSet[AppMeta, HeldRow]:
    """Return what waits in quarantine."""
    rows = []
    for item in store.quarantined():
        plan = store.plan_by_id(item.plan).plan
        rows.append(HeldRow(item.id, plan.metric, plan.rev, plan.digest, item.epoch, item.n, item.reason))
    return _rows(store, HeldRow, rows, "quarantine")


def replay_quarantined(store: Store, asked: QueryParameters) -> RowSet[AppMeta, SettledRow]:
    """Put groups back into the log, to be counted today."""
    ids = body_parameters(IdsBody)["ids"]
    return _settled(store, ids, _hands(store).replay(ids))


def drop_quarantined(store: Store, asked: QueryParameters) -> RowSet[AppMeta, SettledRow]:
    """Give groups up for good."""
    ids = body_parameters(IdsBody)["ids"]
    return _settled(store, ids, _hands(store).drop(ids))


def _settled(store: Store, ids: Sequence[str], done: Sequence[str]) -> RowSet[AppMeta, SettledRow]:
    return _rows(store, SettledRow, [SettledRow(id_, id_ in done) for id_ in ids], "settled")


# Marks.


def add_mark(store: Store, asked: QueryParameters) -> RowSet[AppMeta, MarkRow]:
    """Mark a day; return its marks."""
    given = body_parameters(MarkBody)
    _hands(store).add_mark(given["day"], given["text"])
    return _rows(store, MarkRow, [row for row in marks(store, {}).rows if row.day == given["day"]], "marks")


def remove_mark(store: Store, asked: QueryParameters) -> RowSet[AppMeta, MarkRow]:
    """Remove a mark, or all of a day; return those that were removed."""
    given = body_parameters(UnmarkBody)
    removed = _hands(store).remove_marks(given["day"], given.get("text"))
    return _rows(store, MarkRow, map(MarkRow.of, removed), "marks")


# Keys, and the journal.


def list_keys(store: Store, asked: QueryParameters) -> RowSet[AppMeta, KeyRow]:
    """Return all keys, the revoked ones with them; nobody can tell their texts."""
    store.refresh()
    return _rows(store, KeyRow, map(KeyRow.of, store.keys.listed()), "keys")


def create_key(store: Store, asked: QueryParameters) -> RowSet[AppMeta, NewKeyRow]:
    """Make a key; return it with its text, this once."""
    given = body_parameters(NewKeyBody)
    key, text = _hands(store).create_key(given["scope"], given["label"])
    return _rows(store, NewKeyRow, [NewKeyRow.of(key, text)], "key")


def revoke_key(store: Store, asked: QueryParameters) -> RowSet[AppMeta, KeyRow]:
    """Let nobody in with a key from now on; return it."""
    given = body_parameters(RevokeBody)
    return _rows(store, KeyRow, [KeyRow.of(_hands(store).revoke_key(given["id"], wait=given["wait"]))], "keys")


def journal(store: Store, asked: QueryParameters) -> RowSet[AppMeta, JournalRow]:
    """Return who asked for which change, the latest last."""
    rows = [JournalRow(**entry.to_document()) for entry in store.journal(asked["limit"])]
    return _rows(store, JournalRow, rows, "journal")


CHANGES = (
    Operation("/admin/registry/load", load_registry, "the plans that are new", body=RegistryBody),
    Operation(
        "/admin/plans/retire",
        retire_plan,
        "the plan whose reports are refused from now on, or taken again",
        body=RetireBody,
    ),
    Operation("/admin/quarantine", quarantine, "the reports that could not be counted"),
    Operation("/admin/quarantine/replay", replay_quarantined, "which groups were put back into the log", body=IdsBody),
    Operation("/admin/quarantine/drop", drop_quarantined, "which groups were given up", body=IdsBody),
    Operation("/admin/marks/add", add_mark, "the marks of the day", body=MarkBody),
    Operation("/admin/marks/remove", remove_mark, "the marks that were removed", body=UnmarkBody),
    Operation("/admin/keys", list_keys, "every key, without its text"),
    Operation("/admin/keys/create", create_key, "the new key with its text", body=NewKeyBody),
    Operation("/admin/keys/revoke", revoke_key, "the key that lets nobody in", body=RevokeBody),
    Operation("/admin/journal", journal, "who asked for which change", JournalAsked),
)
"""Every address under /v1/admin."""
