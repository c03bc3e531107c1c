"""The acts of an admin key: it changes plans, quarantine, marks and keys, and reads the journal.

Each change is `Administration`'s, as it is on the command line.
"""

from collections.abc import Callable, Iterable, Sequence

from flask import request
from marshmallow import Schema

from dither_aggregator.operations.administration import Administration
from dither_aggregator.operations.registry_process import KnownPlans, NoRegistry, read_apart
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.store.keys import Key
from dither_aggregator.store.plans import Offered
from dither_aggregator.store.records import DayMark
from dither_aggregator.web.api import admin_documents as documents
from dither_aggregator.web.api.description import Operation
from dither_aggregator.web.api.listings import MARKS
from dither_aggregator.web.api.rowsets import RowsAsked, RowSet
from dither_aggregator.web.messages import ACTOR, BODY
from dither_aggregator.web.query_parameters import Parameters, QueryParameters, Whole, body_parameters

PLANS = ("metric", "rev", "plan", "current", "retired")
HELD = ("id", "metric", "rev", "plan", "epoch", "reports", "reason")
SETTLED = ("id", "done")
KEYS = ("id", "scope", "label", "state", "made", "last_used")
JOURNAL = ("at", "actor", "action", "what")
JOURNAL_ROWS = 1_000
"""How many entries are returned unless somebody asks for fewer or more."""


class JournalAsked(RowsAsked):
    """How much of the journal."""

    limit = Whole(1, 100_000, load_default=JOURNAL_ROWS, metadata={"description": "so many of the last entries"})


def _hands(store: Store) -> Administration:
    return Administration(store, request.environ[ACTOR])


def _rows(store: Store, columns: Sequence[str], rows: Iterable[Sequence[object]], name: str) -> RowSet:
    return RowSet({"app": store.app}, columns, list(rows), name)


# Plans.


def load_registry(store: Store, asked: QueryParameters) -> RowSet:
    """Load a registry; return the plans that are new."""
    store.refresh()
    plans = [(one.plan.metric, one.plan.rev, one.plan.digest) for one in store.plans()]
    try:
        offered = Offered.from_document(read_apart(request.environ[BODY], KnownPlans(store.app, plans)))
    except NoRegistry as error:
        body_parameters(documents.RegistryBody, error.short)
        raise
    return _rows(store, PLANS, map(_plan, _hands(store).load(offered)), "plans")


def retire_plan(store: Store, asked: QueryParameters) -> RowSet:
    """Refuse the reports of a plan from now on, or take them again; return it."""
    given = body_parameters(documents.RetireBody)
    metric, rev = given["metric"], given["rev"]
    _hands(store).retire(metric, rev, undo=given["undo"])
    return _rows(store, PLANS, [_plan(one) for one in store.plans(metric) if one.plan.rev == rev], "plans")


def _plan(stored: StoredPlan) -> tuple[object, ...]:
    return stored.plan.metric, stored.plan.rev, stored.plan.digest, stored.current, stored.retired


# Quarantine.


def quarantine(store: Store, asked: QueryParameters) -> RowSet:
    """Return what waits in quarantine."""
    rows = []
    for item in store.quarantined():
        plan = store.plan_by_id(item.plan).plan
        rows.append((item.id, plan.metric, plan.rev, plan.digest, item.epoch.isoformat(), item.n, item.reason))
    return _rows(store, HELD, rows, "quarantine")


def replay_quarantined(store: Store, asked: QueryParameters) -> RowSet:
    """Put groups back into the log, to be counted today."""
    ids = body_parameters(documents.IdsBody)["ids"]
    return _settled(store, ids, _hands(store).replay(ids))


def drop_quarantined(store: Store, asked: QueryParameters) -> RowSet:
    """Give groups up for good."""
    ids = body_parameters(documents.IdsBody)["ids"]
    return _settled(store, ids, _hands(store).drop(ids))


def _settled(store: Store, ids: Sequence[str], done: Sequence[str]) -> RowSet:
    return _rows(store, SETTLED, [(id_, id_ in done) for id_ in ids], "settled")


# Marks.


def add_mark(store: Store, asked: QueryParameters) -> RowSet:
    """Mark a day; return its marks."""
    given = body_parameters(documents.MarkBody)
    _hands(store).add_mark(DayMark(given["day"], given["text"]))
    return _rows(store, MARKS, _marks(mark for mark in store.marks() if mark.day == given["day"]), "marks")


def remove_mark(store: Store, asked: QueryParameters) -> RowSet:
    """Remove a mark, or all of a day; return those that were removed."""
    given = body_parameters(documents.UnmarkBody)
    return _rows(store, MARKS, _marks(_hands(store).remove_marks(given["day"], given.get("text"))), "marks")


def _marks(marks: Iterable[DayMark]) -> list[tuple[str, str]]:
    return [(mark.day.isoformat(), mark.text) for mark in marks]


# Keys, and the journal.


def list_keys(store: Store, asked: QueryParameters) -> RowSet:
    """Return all keys, the revoked ones with them; nobody can tell their texts."""
    store.refresh()
    return _rows(store, KEYS, map(_key, store.keys.listed()), "keys")


def create_key(store: Store, asked: QueryParameters) -> RowSet:
    """Make a key; return it with its text, this once."""
    given = body_parameters(documents.NewKeyBody)
    key, text = _hands(store).create_key(given["scope"], given["label"])
    return _rows(store, (*KEYS, "key"), [(*_key(key), text)], "key")


def revoke_key(store: Store, asked: QueryParameters) -> RowSet:
    """Let nobody in with a key from now on; return it."""
    given = body_parameters(documents.RevokeBody)
    return _rows(store, KEYS, [_key(_hands(store).revoke_key(given["id"], wait=given["wait"]))], "keys")


def _key(key: Key) -> tuple[object, ...]:
    columns = key.without_digest()
    return tuple(columns[column] for column in KEYS)


def journal(store: Store, asked: QueryParameters) -> RowSet:
    """Return who asked for which change, the latest last."""
    rows = [entry.to_document() for entry in store.journal(asked["limit"])]
    return _rows(store, JOURNAL, [tuple(row[column] for column in JOURNAL) for row in rows], "journal")


def _post(address: str, answer: Callable[..., RowSet], says: str, row: type[Schema], body: type[Schema]) -> Operation:
    return Operation(address, answer, says, RowsAsked, documents.AppMeta, row, method="POST", body=body)


def _get(
    address: str, answer: Callable[..., RowSet], says: str, row: type[Schema], asked: type[Parameters] = RowsAsked
) -> Operation:
    return Operation(address, answer, says, asked, documents.AppMeta, row)


CHANGES = (
    _post(
        "/admin/registry/load", load_registry, "the plans that are new", documents.StoredPlanRow, documents.RegistryBody
    ),
    _post(
        "/admin/plans/retire",
        retire_plan,
        "the plan whose reports are refused from now on, or taken again",
        documents.StoredPlanRow,
        documents.RetireBody,
    ),
    _get("/admin/quarantine", quarantine, "the reports that could not be counted", documents.HeldRow),
    _post(
        "/admin/quarantine/replay",
        replay_quarantined,
        "which groups were put back into the log",
        documents.SettledRow,
        documents.IdsBody,
    ),
    _post(
        "/admin/quarantine/drop",
        drop_quarantined,
        "which groups were given up",
        documents.SettledRow,
        documents.IdsBody,
    ),
    _post("/admin/marks/add", add_mark, "the marks of the day", documents.DayMarkRow, documents.MarkBody),
    _post(
        "/admin/marks/remove", remove_mark, "the marks that were removed", documents.DayMarkRow, documents.UnmarkBody
    ),
    _get("/admin/keys", list_keys, "every key, without its text", documents.KeyRow),
    _post("/admin/keys/create", create_key, "the new key with its text", documents.NewKeyRow, documents.NewKeyBody),
    _post("/admin/keys/revoke", revoke_key, "the key that lets nobody in", documents.KeyRow, documents.RevokeBody),
    _get("/admin/journal", journal, "who asked for which change", documents.JournalRow, JournalAsked),
)
"""Every address under /v1/admin."""
