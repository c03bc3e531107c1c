"""How a device's file of an earlier version becomes one of the next: a step a version, within one transaction.

A step never refreshes a budget: what was spent stays spent, and what the next version cannot go on with counts as spent
with all that was reserved for it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring a file's tables to a version, from one with a step; within a transaction."""
    (now,) = db.execute("PRAGMA user_version").fetchone()
    while now != version:
        STEPS[now](db)
        now += 1
        db.execute(f"PRAGMA user_version = {now}")


def _from_4(db: sqlite3.Connection) -> None:
    """Call cohorts cells. Plans have other digests and memos other keys, so neither what waits nor a memo goes on.

    No aggregator knows the plan of a report that waits, nor reads an upload that was built: both are dropped. They cost
    what they cost: nothing where no connection stood. A memo began with all its answers reserved, and how many of them
    were given must not show: all of them count as spent.
    """
    db.execute("ALTER TABLE slot RENAME COLUMN cohort TO cell")
    db.execute("UPDATE metric SET spent = MAX(spent, reserved) WHERE name IN (SELECT metric FROM class)")
    db.execute(
        "INSERT INTO counter SELECT 'dropped', n FROM "
        "(SELECT (SELECT COUNT(*) FROM slot) + (SELECT COUNT(*) FROM report) AS n) WHERE n > 0 "
        "ON CONFLICT (name) DO UPDATE SET count = count + excluded.count"
    )
    for table in ("slot", "upload", "report", "class", "retired"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own words
    db.execute("INSERT OR REPLACE INTO state VALUES ('replaced', 1)")  # what was dropped leaves the log, too
    for metric, text in db.execute("SELECT metric, terms FROM agreement WHERE terms <> ''").fetchall():
        db.execute("UPDATE agreement SET terms = ? WHERE metric = ?", (_terms_from_4(text), metric))


def _terms_from_4(text: str) -> str:
    """Return the terms that a person agreed to under the name that they have now; "" where they cannot be read."""
    try:
        terms = json.loads(text)
        terms["cells"] = terms.pop("cohorts")
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""  # what cannot be read was not agreed to
    return json.dumps(terms, sort_keys=True)


def _from_5(db: sqlite3.Connection) -> None:
    """Keep which days were used, not only the latest of them: all those before it count as used.

    Plans of when to send, which did not say when they were made, are made anew.
    """
    db.execute("DROP VIEW reserved")
    for statement in _TABLES_OF_6.split(";"):
        db.execute(statement)
    db.execute("INSERT INTO used SELECT name, 0, next_day FROM metric WHERE next_day > 0")
    db.execute("INSERT INTO new_metric SELECT name, spent, terms, memo_key, reserved FROM metric")
    kept = "place, id, body, charged, failures, sent, first_attempt, last_attempt"
    db.execute(f"INSERT INTO new_upload SELECT {kept} FROM upload")  # noqa: S608 - our own words
    for table in ("metric", "upload"):
        db.execute(f"DROP TABLE {table}")
        db.execute(f"ALTER TABLE new_{table} RENAME TO {table}")
    db.execute(_RESERVED_OF_6)
    db.execute("DELETE FROM state WHERE key IN ('planned', 'held_until', 'quiet_until')")


_TABLES_OF_6 = """
CREATE TABLE used (metric TEXT, first INTEGER, until INTEGER NOT NULL, PRIMARY KEY (metric, first)) WITHOUT ROWID;
CREATE TABLE new_metric (
    name TEXT PRIMARY KEY, spent INTEGER NOT NULL, terms TEXT NOT NULL, memo_key TEXT NOT NULL,
    reserved INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE new_upload (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL, charged INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0, sent INTEGER NOT NULL DEFAULT 0, first_attempt REAL, seen REAL
);
"""
_RESERVED_OF_6 = """
CREATE VIEW reserved AS
    SELECT metric, SUM(charge) AS micro FROM report JOIN upload ON id = upload WHERE NOT charged GROUP BY metric
"""


def _from_6(db: sqlite3.Connection) -> None:
    """Keep on which day each metric's latest report left, from now on: plans had other digests before."""
    db.execute("CREATE TABLE left_on (metric TEXT PRIMARY KEY, day INTEGER NOT NULL) WITHOUT ROWID")


def _from_7(db: sqlite3.Connection) -> None:
    """Keep days of use, from now on. A dither of before cannot use the file: its `forget()` would leave them."""
    db.execute(
        "CREATE TABLE used_days (only INTEGER PRIMARY KEY, "
        "first INTEGER NOT NULL, latest INTEGER NOT NULL, days INTEGER NOT NULL)"
    )


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {4: _from_4, 5: _from_5, 6: _from_6, 7: _from_7}
"""By version, the step that brings the tables to the next one. A file older than these is left alone."""
