"""The tables of the SQLite store, and how each version of them came from the one before."""

import json
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import date
from pathlib import Path

from dither_aggregator.store.document_kinds import DayMark, Retention, first_key
from dither_aggregator.store.records import BODY_BYTES, ID_BYTES, OtherLayout, StoreError, day_at, day_number
from dither_shared import files
from dither_shared.errors import reason_of

# The files of a SQLite store's directory: their names, what is wrong with one, the lock, and `write.key`.


FILE_NAME, LOCK_NAME = "store.sqlite3", "lock.sqlite3"
KEY_NAME = "write.key"
"""The text of a directory's first write key, which the store itself does not know."""
NAMES = (
    *(f"{FILE_NAME}{part}" for part in ("", "-wal", "-shm", "-journal")),
    LOCK_NAME, f"{LOCK_NAME}-journal", KEY_NAME,
)  # fmt: skip
"""All files of a store."""
_PRIMARY = 0xFF
"""The part of SQLite's error codes that says the kind; the rest says which of that kind."""

_log = logging.getLogger("dither_aggregator")


def keep(directory: Path) -> None:
    """Make a store's directory if there is none, and see to it that nobody else may change it; raise StoreError."""
    try:
        for sentence in files.keep(directory, NAMES):
            _log.warning("%s", sentence)
    except files.NotOurs as error:
        raise StoreError(f"{directory} cannot be used: {error}") from None


def describe_error(error: Exception) -> str:
    """Return why a store's file cannot be used and, where that is known, what to do about it."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    if isinstance(error, PermissionError) or code & _PRIMARY == sqlite3.SQLITE_READONLY:
        return f"{reason_of(error)}; run this as the user that owns it"
    if code & _PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"{reason_of(error)}; `dither restore` makes a new store of a backup"
    return reason_of(error)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold a data directory for one serving process; raise StoreError when another one has it.

    The lock is SQLite's own on a file of its own: it works wherever the store does, and ends with the process.
    """
    with ExitStack() as held:
        try:
            keep(directory)
            files.make_file(directory / LOCK_NAME)
            lock = sqlite3.connect(directory / LOCK_NAME, isolation_level=None, timeout=0)
            held.enter_context(closing(lock))
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreError(
                    f"{directory} is being served already: stop that process or use another --data"
                ) from None
            raise StoreError(f"{directory} cannot be used: {describe_error(error)}") from None
        except sqlite3.Error as error:
            raise StoreError(f"{directory} cannot be used: {describe_error(error)}") from None
        except FileExistsError:
            raise StoreError(f"{directory} is a file; a store is a directory") from None
        except OSError as error:
            raise StoreError(f"{directory} cannot be used: {describe_error(error)}") from None
        yield


def keep_key(directory: Path, text: str) -> None:
    """Write the key into the directory: whole, on the disk, and for nobody else to read."""
    part = directory / f"{KEY_NAME}.{secrets.token_hex(4)}.part"
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(directory / KEY_NAME)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def kept_key(directory: Path) -> str:
    """Return the key in the directory; "" where somebody has taken the file away."""
    with suppress(FileNotFoundError):
        return (directory / KEY_NAME).read_text(encoding="utf-8", errors="replace").strip()
    return ""


VERSION = 8

_TABLES = """
CREATE TABLE state (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
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
CREATE TABLE tally (  -- the one segment of each tally whose day is merged; its pages have held no other (moving.py)
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
IDS = """
CREATE TABLE IF NOT EXISTS {} (  -- the uploads of one day: digests of id and body
    id BLOB PRIMARY KEY, body BLOB NOT NULL
) WITHOUT ROWID
"""
"""`seen_DAY`, made by a day's first upload, and `taken_DAY`, into which they are moved in the order of ids when the day
is sealed: there they take less, and do not tell which came first. A day is the number of days since 1970."""
_TAKEN_OF_6 = """
CREATE TABLE taken (id BLOB PRIMARY KEY, day TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX taken_day ON taken (day);
"""
DOCUMENTS = """
CREATE TABLE document (  -- of every kind, numbered ones by their numbers
    kind TEXT NOT NULL, id NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID
"""
_KEYS_OF_5 = """
CREATE TABLE key (  -- each with a hash of its text
    id TEXT PRIMARY KEY, document TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE journal (  -- of what operators did
    seq INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL
);
"""

REFUSED = """
CREATE TABLE IF NOT EXISTS refused (
    day TEXT NOT NULL, metric TEXT NOT NULL, reason TEXT NOT NULL, groups INTEGER NOT NULL, reports INTEGER NOT NULL,
    PRIMARY KEY (day, metric, reason)
) WITHOUT ROWID
"""
"""Made by the first group that is refused: a store without the table has none, so the version of the others stays."""


BATCHES = """
CREATE TABLE IF NOT EXISTS batch (
    plan INTEGER NOT NULL, epoch TEXT NOT NULL, shown INTEGER NOT NULL, n INTEGER NOT NULL, counts BLOB NOT NULL,
    PRIMARY KEY (plan, epoch, shown)
) WITHOUT ROWID
"""
"""Made by the first batch."""

READINGS = """
CREATE TABLE IF NOT EXISTS reading (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, first TEXT NOT NULL, open INTEGER NOT NULL,
    size INTEGER NOT NULL, content BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS reading_size ON reading (seq, size, first);
CREATE INDEX IF NOT EXISTS reading_open ON reading (key) WHERE open
"""
"""Made by the first reading that is kept. `seq` rises with each: the smallest was made first."""


def has_table(db: sqlite3.Connection, name: str) -> bool:
    """Whether a table that is made when it is needed is there."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone())


def days_of_ids(db: sqlite3.Connection) -> list[tuple[int, str]]:
    """Return the days whose uploads are remembered, in order, each with a table that has some."""
    names = "SELECT name FROM sqlite_master WHERE name GLOB 'seen_*' OR name GLOB 'taken_*'"
    return sorted((int(name.partition("_")[2]), name) for (name,) in db.execute(names))


def make_ids(db: sqlite3.Connection, kind: str, day: int) -> str:
    """Make the table `seen` or `taken` of a day where there is none; return its name."""
    name = f"{kind}_{day}"
    db.execute(IDS.format(name))
    return name


def create(db: sqlite3.Connection, state: dict[str, object]) -> None:
    """Make the tables in an empty file, within a transaction."""
    make(db, _TABLES + DOCUMENTS)
    db.executemany("INSERT INTO state VALUES (?, ?)", state.items())
    db.execute(f"PRAGMA user_version = {VERSION}")


def make(db: sqlite3.Connection, tables: str) -> None:
    """Carry out some statements within a transaction."""
    for statement in tables.split(";\n"):
        db.execute(statement)


def version_of(db: sqlite3.Connection) -> int:
    """Return the version of a file's tables; raise OtherLayout for one that no step leads from."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != VERSION and version not in STEPS:
        next_step = "start with an empty directory" if version < VERSION else "use the dither that wrote it"
        raise OtherLayout(
            f"it has version {version}; this dither reads {VERSION}: {next_step}", newer=version > VERSION
        )
    return int(version)


def migrate(db: sqlite3.Connection) -> None:
    """Bring a file's tables to VERSION, within a transaction; raise OtherLayout for a version without a step."""
    while (version := version_of(db)) != VERSION:
        STEPS[version](db)
        db.execute(f"PRAGMA user_version = {version + 1}")


def _from_4(db: sqlite3.Connection) -> None:
    """Put the hash of the one key in the place of its text, which goes into `write.key` beside the file."""
    ((_, _, path),) = db.execute("PRAGMA database_list")
    ((text,),) = db.execute("SELECT value FROM state WHERE key = 'key'")
    secret = secrets.token_bytes(32)
    key = first_key(text, secret, day_at(time.time()))
    keep_key(Path(path).parent, text)  # first: cut off here, the next attempt writes the same again
    make(db, _KEYS_OF_5)
    db.execute("INSERT INTO key VALUES (?, ?)", (key.id, json.dumps(key.to_document())))
    db.execute("DELETE FROM state WHERE key = 'key'")
    db.executemany("INSERT INTO state VALUES (?, ?)", [("secret", secret), ("keys_version", 1)])


def _from_5(db: sqlite3.Connection) -> None:
    """Make room for the uploads of sealed days, which maintenance moves there."""
    make(db, _TAKEN_OF_6)


def _from_6(db: sqlite3.Connection) -> None:
    """Put plans, keys, marks, the journal and the retention into the one table of documents."""
    make(db, DOCUMENTS)
    db.execute("INSERT INTO document SELECT 'plans', id, document FROM plan")
    db.execute("INSERT INTO document SELECT 'keys', id, document FROM key")
    db.execute("INSERT INTO document SELECT 'journal', seq, entry FROM journal")
    if has_table(db, "mark"):
        marks = [DayMark(date.fromisoformat(day), text) for day, text in db.execute("SELECT day, text FROM mark")]
        rows = [(mark.kind, mark.document_id, mark.to_text()) for mark in marks]
        db.executemany("INSERT INTO document VALUES (?, ?, ?)", rows)
        db.execute("DROP TABLE mark")
    days = dict(db.execute("SELECT key, value FROM state WHERE key IN ('tallies_days', 'snapshots_days')"))
    kept = Retention(**days)
    db.execute("INSERT INTO document VALUES (?, ?, ?)", (kept.kind, kept.document_id, kept.to_text()))
    db.execute("DELETE FROM state WHERE key IN ('tallies_days', 'snapshots_days')")
    for table in ("plan", "key", "journal"):
        db.execute(f"DROP TABLE {table}")


def _from_7(db: sqlite3.Connection) -> None:
    """Put uploads into a table for each day, by shorter digests, and without what was answered."""
    for table, column in (("seen", "answer"), ("taken", "body")):
        for (day,) in db.execute(f"SELECT DISTINCT day FROM {table}").fetchall():  # noqa: S608 - our own words
            name = make_ids(db, table, day_number(date.fromisoformat(day)))
            db.execute(
                f"INSERT OR IGNORE INTO {name} SELECT SUBSTR(id, 1, {ID_BYTES}), SUBSTR({column}, 1, {BODY_BYTES}) "  # noqa: S608
                f"FROM {table} WHERE day = ? ORDER BY id",
                (day,),
            )
        db.execute(f"DROP TABLE {table}")
    db.execute("DELETE FROM state WHERE key = 'answers_forgotten'")


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {4: _from_4, 5: _from_5, 6: _from_6, 7: _from_7}
"""The step that brings the tables of a version to the next. Tables older than these are refused."""
