"""The tables of the SQLite store, and how each version of them came from the one before."""

import json
import secrets
import sqlite3
import time
import zlib
from datetime import date, timedelta

import numpy as np

from dither_aggregator.store.packing import day_number, pack_answer, pack_counts, pack_entry, pack_groups
from dither_aggregator.store.records import StoreError

VERSION = 3

_TABLES = """
CREATE TABLE state (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE plan (id INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE seen (  -- what was answered, by keyed digest of the upload's id
    id BLOB PRIMARY KEY, day TEXT NOT NULL, answer BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX seen_day ON seen (day);
CREATE TABLE log (  -- accepted and not folded: a row an upload
    seq INTEGER PRIMARY KEY AUTOINCREMENT, entry BLOB NOT NULL
);
CREATE TABLE cursor (  -- everything up to here is folded
    seq INTEGER NOT NULL
);
CREATE TABLE segment (  -- count vectors of the log from above `low` to `high`, whose sum is the tally
    plan INTEGER NOT NULL, epoch TEXT NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, n INTEGER NOT NULL,
    counts BLOB NOT NULL, PRIMARY KEY (plan, epoch, low)
) WITHOUT ROWID;
CREATE TABLE ledger (
    plan INTEGER NOT NULL, epoch TEXT NOT NULL,
    accepted INTEGER NOT NULL DEFAULT 0, folded INTEGER NOT NULL DEFAULT 0, quarantined INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,  -- of the quarantined
    PRIMARY KEY (plan, epoch)
) WITHOUT ROWID;
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY AUTOINCREMENT, plan INTEGER NOT NULL, epoch TEXT NOT NULL, n INTEGER NOT NULL,
    reason TEXT NOT NULL, reports BLOB NOT NULL
);
CREATE TABLE final (
    plan INTEGER NOT NULL, epoch TEXT NOT NULL, digest TEXT NOT NULL, snapshot TEXT NOT NULL, PRIMARY KEY (plan, epoch)
) WITHOUT ROWID;
CREATE TABLE snapshot (id TEXT PRIMARY KEY, epoch TEXT NOT NULL, content BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO cursor VALUES (0);
"""


def create(db: sqlite3.Connection, state: dict[str, object]) -> None:
    """Make the tables in an empty file, within a transaction."""
    for statement in _TABLES.split(";\n"):
        db.execute(statement)
    db.executemany("INSERT INTO state VALUES (?, ?)", state.items())
    db.execute(f"PRAGMA user_version = {VERSION}")


def migrate(db: sqlite3.Connection) -> None:
    """Bring a file's tables to VERSION, within a transaction; raise StoreError for a version that is not known."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    while version != VERSION:
        if version not in _STEPS:
            raise StoreError(f"it has version {version}; this dither reads {VERSION}")
        _STEPS[version](db)
        version += 1
        db.execute(f"PRAGMA user_version = {version}")


def _from_2(db: sqlite3.Connection) -> None:
    """From a log row a group to one an upload; sealing, quarantine, snapshots and retirement come in."""
    for name in ("plan", "upload", "log", "ledger"):
        db.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    db.execute("DROP INDEX upload_day")
    kept = {"state", "cursor", "segment"}
    for statement in _TABLES.split(";\n"):
        words = statement.split()
        if words[:1] == ["CREATE"] and words[2] not in kept:
            db.execute(statement)
    _plans_from_2(db)
    for plan, epoch, low, counts in db.execute("SELECT plan, epoch, low, counts FROM segment").fetchall():
        packed = pack_counts(np.frombuffer(zlib.decompress(counts), "<i8"))
        db.execute("UPDATE segment SET counts = ? WHERE plan = ? AND epoch = ? AND low = ?", (packed, plan, epoch, low))
    _uploads_from_2(db)
    db.execute(
        "INSERT INTO ledger (plan, epoch, accepted, folded, quarantined) "
        "SELECT plan, epoch, accepted, folded, quarantined FROM old_ledger"
    )
    for name in ("plan", "upload", "log", "ledger"):
        db.execute(f"DROP TABLE old_{name}")
    _state_from_2(db)


def _plans_from_2(db: sqlite3.Connection) -> None:
    for row in db.execute("SELECT id, document, question, candidates, reservation, expires, current FROM old_plan"):
        id_, document, question, candidates, reservation, expires, current = row
        plan = {
            "id": id_,
            "plan": json.loads(document),
            "question": question,
            "candidates": json.loads(candidates),
            "reservation": reservation,
            "expires": expires,
            "current": bool(current),
            "retired": False,
        }
        db.execute("INSERT INTO plan VALUES (?, ?)", (id_, json.dumps(plan)))


def _uploads_from_2(db: sqlite3.Connection) -> None:
    for id_, body, day, accepted, rejected in db.execute("SELECT id, body, day, accepted, rejected FROM old_upload"):
        db.execute("INSERT INTO seen VALUES (?, ?, ?)", (id_, day, pack_answer(body, accepted, json.loads(rejected))))
    for seq, plan, epoch, n, reports in db.execute("SELECT seq, plan, epoch, n, reports FROM old_log"):
        entry = pack_entry(day_number(date.fromisoformat(epoch)), pack_groups([(plan, n, reports)]))
        db.execute("INSERT INTO log VALUES (?, ?)", (seq, entry))
    (cursor,) = db.execute("SELECT seq FROM cursor").fetchone()
    # The next upload's number is beyond every one that was ever given, also where the log is empty.
    (last,) = db.execute("SELECT MAX(seq) FROM (SELECT seq FROM sqlite_sequence UNION SELECT ?)", (cursor,)).fetchone()
    db.execute("DELETE FROM sqlite_sequence WHERE name = 'log'")
    db.execute("INSERT INTO sqlite_sequence VALUES ('log', ?)", (last,))


def _state_from_2(db: sqlite3.Connection) -> None:
    (first,) = db.execute(
        "SELECT COALESCE(MIN(epoch), (SELECT value FROM state WHERE key = 'day')) FROM ledger"
    ).fetchone()
    state = {
        "generation": secrets.token_hex(8),
        "sealed": (date.fromisoformat(first) - timedelta(days=1)).isoformat(),
        "tallies_from": date.min.isoformat(),
        "plans_version": 1,
        "waiting_since": time.time(),
    }
    db.executemany("INSERT INTO state VALUES (?, ?)", state.items())


_STEPS = {2: _from_2}
