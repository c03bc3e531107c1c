"""The tables of the SQLite store, and how each version of them came from the one before."""

import sqlite3
from collections.abc import Callable

from dither_aggregator.store.records import StoreError

VERSION = 4

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
CREATE TABLE tally (  -- the one segment of each tally whose day is merged; its pages have held no other (erasing.py)
    plan INTEGER NOT NULL, epoch TEXT NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL, n INTEGER NOT NULL,
    counts BLOB NOT NULL, PRIMARY KEY (plan, epoch)
) WITHOUT ROWID;
CREATE TABLE ledger (
    plan INTEGER NOT NULL, epoch TEXT NOT NULL,
    accepted INTEGER NOT NULL DEFAULT 0, folded INTEGER NOT NULL DEFAULT 0, quarantined INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,  -- of the quarantined
    PRIMARY KEY (plan, epoch)
) WITHOUT ROWID;
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY AUTOINCREMENT, plan INTEGER NOT NULL, cell INTEGER NOT NULL, epoch TEXT NOT NULL,
    n INTEGER NOT NULL, reason TEXT NOT NULL, reports BLOB NOT NULL
);
CREATE TABLE final (
    plan INTEGER NOT NULL, epoch TEXT NOT NULL, digest TEXT NOT NULL, snapshot TEXT NOT NULL, PRIMARY KEY (plan, epoch)
) WITHOUT ROWID;
CREATE TABLE snapshot (id TEXT PRIMARY KEY, epoch TEXT NOT NULL, content BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO cursor VALUES (0);
"""


MARKS = """
CREATE TABLE IF NOT EXISTS mark (day TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (day, text)) WITHOUT ROWID
"""
"""Made by the first mark: a store without the table has none, so the version of the others stays."""

REFUSED = """
CREATE TABLE IF NOT EXISTS refused (
    day TEXT NOT NULL, metric TEXT NOT NULL, reason TEXT NOT NULL, groups INTEGER NOT NULL, reports INTEGER NOT NULL,
    PRIMARY KEY (day, metric, reason)
) WITHOUT ROWID
"""
"""Made by the first group that is refused, as MARKS is by the first mark."""


def has_table(db: sqlite3.Connection, name: str) -> bool:
    """Whether a table that is made when it is needed is there."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone())


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
        if version not in STEPS:
            next_step = "start with an empty directory" if version < VERSION else "use the dither that wrote it"
            raise StoreError(f"it has version {version}; this dither reads {VERSION}: {next_step}")
        STEPS[version](db)
        version += 1
        db.execute(f"PRAGMA user_version = {version}")


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {}
"""What brings the tables of a version to the next. There is none yet: older tables are refused."""
