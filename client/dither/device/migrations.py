"""How a device's file of an earlier version becomes one of the next: a step a version, within one transaction.

A step never refreshes a budget: what was spent stays spent, and what the next version cannot go on with counts as spent
with all that was reserved for it.
"""

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


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {4: _from_4}
"""By version, the step that brings the tables to the next one. A file older than these is left alone."""
