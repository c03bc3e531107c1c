"""The tables of a device's file, and how it is made, brought to this version, and opened."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import closing
from functools import cache

from dither.app_process import WARNING, say
from dither_shared import files
from dither_shared.errors import DitherError
from dither_shared.files import StrPath

FILE_NAME = "device.sqlite3"
SENDER_NAME = f"{FILE_NAME}-sender"
_NAMES = (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", f"{FILE_NAME}-journal", SENDER_NAME)
SCHEMA_VERSION = 8
PAGE_BYTES = 1_024
"""A quarter of SQLite's own: a commit writes the pages that it changes, whole, and an answer changes a few bytes."""
OPEN_WAIT_S = 5.0
"""The longest that opening waits for another process that makes or changes the file."""

_SCHEMA = """
CREATE TABLE state (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE agreement (  -- what the person agreed to, and which metrics they refused
    metric TEXT PRIMARY KEY, terms TEXT NOT NULL DEFAULT '', refused INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE metric (
    name TEXT PRIMARY KEY,
    spent INTEGER NOT NULL,    -- micro-epsilon charged, ever
    terms TEXT NOT NULL,       -- what its periods were drawn for
    memo_key TEXT NOT NULL,    -- what its memo belongs to, '' for fresh noise
    reserved INTEGER NOT NULL  -- the most that it may charge, and of a memo the most it ever might
) WITHOUT ROWID;
CREATE TABLE used (  -- the days, from `first` and before `until`, of periods that were answered or, if hidden, opened
    metric TEXT, first INTEGER, until INTEGER NOT NULL, PRIMARY KEY (metric, first)
) WITHOUT ROWID;
CREATE TABLE class (  -- the answers that a memoized metric has given, by their class
    metric TEXT, class TEXT, place INTEGER NOT NULL, charged INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (metric, class)
) WITHOUT ROWID;
CREATE TABLE schedule (metric TEXT, day INTEGER, PRIMARY KEY (metric, day)) WITHOUT ROWID;
CREATE TABLE retired (metric TEXT PRIMARY KEY, plan TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE slot (
    metric TEXT PRIMARY KEY, plan TEXT NOT NULL, charge INTEGER NOT NULL, class TEXT, cell INTEGER,
    report TEXT NOT NULL,
    leaves INTEGER NOT NULL,   -- the first day on which it may be built into an upload
    replaceable INTEGER NOT NULL  -- whether it is a "none" that an answer of the same period may replace
) WITHOUT ROWID;
CREATE TABLE upload (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL,
    charged INTEGER NOT NULL,  -- whether its reports were charged: a connection stood
    failures INTEGER NOT NULL DEFAULT 0,
    sent INTEGER NOT NULL DEFAULT 0,  -- the attempts that had a connection
    first_attempt REAL,        -- when the first of them was, or 0 where that may be too long ago
    seen REAL                  -- the latest that the clock was seen to read since
);
CREATE TABLE report (  -- what a built upload holds
    upload TEXT, metric TEXT,
    charge INTEGER NOT NULL,   -- what it costs, or, once charged, what it cost
    class TEXT,                -- of a memo, while it is to be charged
    PRIMARY KEY (upload, metric)
) WITHOUT ROWID;
CREATE VIEW reserved AS  -- what uploads that were built and not charged will cost, by metric
    SELECT metric, SUM(charge) AS micro FROM report JOIN upload ON id = upload WHERE NOT charged GROUP BY metric;
CREATE TABLE left_on (  -- the aggregator's latest day on which a report of a metric may have come
    metric TEXT PRIMARY KEY, day INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE used_days (  -- one row: days on which the device was used, where a metric measures that
    only INTEGER PRIMARY KEY,
    first INTEGER NOT NULL, latest INTEGER NOT NULL,
    days INTEGER NOT NULL      -- bit k: whether it was used k days before the latest
);
CREATE TABLE counter (name TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""


class DeviceUnusable(DitherError):
    """The device's file cannot be used; the app goes on without telemetry."""


class OtherFile(DeviceUnusable):
    """The file is no device's, or of another version than this dither's, and stays as it is."""


class OtherVersion(OtherFile):
    """The device's file has another version than this dither's."""


class DeviceDamaged(DeviceUnusable):
    """The device's file is damaged, and stays as it is until somebody deletes it."""


class DeviceFault(DeviceUnusable):
    """The device's file cannot be used now; later it may be: too many files are open, the disk fails or is full."""


def connect(directory: StrPath | None, create: bool = True, wait_s: float = OPEN_WAIT_S) -> sqlite3.Connection:
    """Open the file; make it and its directory for the user alone, or bring it to this version, if `create`.

    A file of a newer version, of one without a step, or of another program is refused and stays as it is. So is one
    that others may change, unless it is the user's own: then it is theirs alone from here on.
    """
    where = ":memory:"
    if directory:
        where = f"{directory}/{FILE_NAME}"
        _keep(directory, mend=create)
    db = sqlite3.connect(where, isolation_level=None, check_same_thread=False, timeout=wait_s)
    if directory:
        try:
            _prepare_patiently(db, create, wait_s)
        except OtherFile:
            _close_unchanged(db, where)
            raise
        except BaseException:
            db.close()
            raise
    return db


_logged: set[str] = set()
"""The sentences about modes that were said: a connection that is opened again says none of them."""


def _keep(directory: StrPath, mend: bool) -> None:
    try:
        noticed = files.keep(directory, _NAMES, mend=mend)
    except files.NotOurs as error:
        raise DeviceUnusable(f"the device file in {directory} cannot be used: {error}") from None
    for sentence in noticed:
        if sentence not in _logged:
            _logged.add(sentence)
            say(WARNING, "%s", sentence)
    files.make_file(f"{directory}/{FILE_NAME}")


def _close_unchanged(db: sqlite3.Connection, path: str) -> None:
    """Close a connection that may be the last one, and write nothing of the log into the file, as SQLite then would."""
    if not _has_log(path):
        db.close()  # there is nothing to write, and what SQLite made beside the file goes
        return
    from pathlib import Path  # only for a file that is not used

    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as reader:
        version_of(reader)  # from here on it is the last one, and cannot write
        db.close()


def _prepare_patiently(db: sqlite3.Connection, create: bool, wait_s: float) -> None:
    """Prepare the file, again while another process makes it: SQLite does not wait by itself to change the journal."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return _prepare(db, create)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _prepare(db: sqlite3.Connection, create: bool) -> None:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    version = version_of(db)  # read after the tables: whoever makes them now sets the version in the same transaction
    if tables and (version == 0 or "state" not in tables):
        raise OtherFile("the file is another program's: name another data_dir")
    check_version(version, create)
    if version == 0:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA wal_autocheckpoint = 0")  # the sending thread's work, never a call's of the app
    if version and (db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",) or _is_cut(db)):
        raise DeviceDamaged("the device file is damaged")
    if version != SCHEMA_VERSION:
        db.execute("BEGIN IMMEDIATE")
        version = version_of(db)  # another process may have been first
        check_version(version, create)
        if version == 0:
            _make_tables(db)
        else:
            from dither.device.migrations import migrate  # only for a file of an earlier version

            migrate(db, SCHEMA_VERSION)
        db.execute("COMMIT")


def version_of(db: sqlite3.Connection) -> int:
    """Return the version of a file's tables; 0 where there are none."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_version(version: int, create: bool = False) -> None:
    """Raise DeviceUnusable for a file that is not to be used; `create` says that it may be made or brought here."""
    if version == SCHEMA_VERSION or (create and version == 0):
        return
    from dither.device.migrations import STEPS

    if create and version in STEPS:
        return
    if version == 0:
        raise DeviceUnusable("it is no device's: it was never used")
    next_step = "use the dither that wrote it, or a newer one"
    if version in STEPS:
        next_step = "the app brings it to this version at its first start with this dither"
    elif version < SCHEMA_VERSION:
        next_step = "no step leads from it to this version"
    raise OtherVersion(f"the device file has version {version}; this dither reads {SCHEMA_VERSION}: {next_step}")


def _is_cut(db: sqlite3.Connection) -> bool:
    """Tell whether the end of the file is missing, which SQLite reads as zeros. With a log it may not be there yet."""
    (_, _, path) = db.execute("PRAGMA database_list").fetchone()
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    return not _has_log(path) and os.stat(path).st_size < pages * page_bytes


def _has_log(path: str) -> bool:
    try:
        return os.stat(f"{path}-wal").st_size > 0
    except FileNotFoundError:
        return False


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@cache
def blank() -> bytes:
    """Return the image of an empty file: a fleet copies it instead of making the tables for each device."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        _make_tables(db)
        return db.serialize()


@cache
def _tables() -> list[str]:
    return re.findall(r"CREATE TABLE (\w+)", _SCHEMA)


def empty(db: sqlite3.Connection) -> None:
    """Delete every row, so that a file in memory is as a `blank` one. Statements that were prepared stay so."""
    db.execute("BEGIN IMMEDIATE")
    for table in _tables():
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own schema
    db.execute("COMMIT")
