"""The files of the SQLite store: connections and transactions, the lock of its directory, and `write.key`.

A reader of a file in WAL mode needs a `-wal` and a `-shm` beside it, or the right to make them. A directory that nobody
may write to, such as a snapshot that is mounted, has three cases:

    both are there          SQLite reads both
    the first holds nothing everything is in the file, which is read as `immutable`, without locks
    the second is missing   SQLite could read the file alone, and would leave out what only the first holds: refused

`immutable` promises that nobody else writes to the file either. So it is looked at again after each reading.
"""

import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from dither_aggregator.store.records import StoreError, StoreUnavailable
from dither_shared import ownership
from dither_shared.errors import reason_of

FILE_NAME, LOCK_NAME = "store.sqlite3", "lock.sqlite3"
KEY_NAME = "write.key"
"""The text of a directory's first write key, which the store itself does not know."""
NAMES = (
    *(f"{FILE_NAME}{part}" for part in ("", "-wal", "-shm", "-journal")),
    LOCK_NAME, f"{LOCK_NAME}-journal", KEY_NAME,
)  # fmt: skip
"""All files of a store."""
CACHE_KIB = 16_384
BUSY_S = 30
_PRIMARY = 0xFF
"""The part of SQLite's error codes that says the kind; the rest says which of that kind."""
CHECKPOINT_PAGES = 8_192
"""Pages of the write-ahead log: 32 MiB. Reports that are folded by then are never written to the file itself."""

_log = logging.getLogger("dither_aggregator")


def keep(directory: Path) -> None:
    """Make a store's directory if there is none, and see to it that nobody else may change it; raise StoreError."""
    try:
        for sentence in ownership.keep(directory, NAMES):
            _log.warning("%s", sentence)
    except ownership.NotOurs as error:
        raise StoreError(f"{directory} cannot be used: {error}") from None


class SQLiteFile:
    """A file, with a connection for each thread."""

    def __init__(self, directory: Path, *, read_only: bool) -> None:
        self._path = directory / FILE_NAME
        self._read_only = read_only
        self._immutable: tuple[int, int] | None = None
        """The file's state when it was first read as one that nobody writes to."""
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        try:
            if not self._path.exists():
                raise StoreError(f"{directory} holds no store; `dither serve REGISTRY --data {directory}` makes one")
            if not read_only:
                keep(directory)
            self._file = _file_id(self._path)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be used: {describe_error(error)}") from None

    @property
    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
            self._connections.append(db)
        return db

    def _connect(self) -> sqlite3.Connection:
        if self._read_only:
            return self._connect_to_read()
        db = self._connect_as("mode=rw")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        # A commit that has returned is on the disk: only then is an upload acknowledged.
        db.execute("PRAGMA synchronous = FULL")
        # Deleted rows are overwritten: see moving.py. Some builds of SQLite do this by default, others do not.
        db.execute("PRAGMA secure_delete = ON")
        return db

    def _connect_as(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?{mode}"
        # Used by one thread; closed by the one that closes the store.
        db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
        try:
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # which reads the file
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _connect_to_read(self) -> sqlite3.Connection:
        try:
            return self._connect_as("mode=ro")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN or os.access(self._path.parent, os.W_OK):
                raise
        self._check_write_ahead_log()
        self._immutable = self._immutable or _content_id(self._path)
        return self._connect_as("mode=ro&immutable=1")

    def _check_write_ahead_log(self) -> None:
        """Raise StoreError when the file that cannot be written is not all there is."""
        log = self._path.with_name(f"{FILE_NAME}-wal")
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"{log.name} holds commits that {FILE_NAME} lacks, and cannot be read without {FILE_NAME}-shm where "
                f"nothing can be written. Copy the directory to where it can, and run this on the copy: "
                f"cp -r {self._path.parent} COPY"
            )

    def _check_immutable(self) -> None:
        """Raise StoreUnavailable when somebody has written to a file that was read as if nobody did."""
        if self._immutable and self._immutable != _content_id(self._path):
            raise StoreUnavailable(f"{self._path} was changed while it was read: somebody can write it; try again")

    def close(self) -> None:
        """Close every thread's connection."""
        while self._connections:
            self._connections.pop().close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the one right to write; commit at the end of the block, or undo all of it."""
        try:
            if _file_id(self._path) != self._file:
                raise StoreError(f"{self._path} is not the file that was opened: restart, and restore it if it is gone")
            db = self._db
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except OSError as error:
            raise StoreError(f"{self._path} cannot be used: {describe_error(error)}") from None
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be written: {describe_error(error)}") from None

    @contextmanager
    def _instant(self) -> Iterator[sqlite3.Connection]:
        """Read several things as they were at one instant."""
        try:
            db = self._db
            outermost = not db.in_transaction
            try:
                if outermost:
                    db.execute("BEGIN")
                yield db
                self._check_immutable()
            finally:
                if outermost and db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be read: {describe_error(error)}") from None

    def _rows(self, query: str, *values: object) -> list[Any]:
        try:
            rows = self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be read: {describe_error(error)}") from None
        self._check_immutable()
        return rows

    def _replaced(self) -> bool:
        """Whether the file in its place is no more the one that was opened."""
        try:
            return _file_id(self._path) != self._file
        except OSError:
            return True


def describe_error(error: Exception) -> str:
    """Return why a store's file cannot be used and, where that is known, what to do about it."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    if isinstance(error, PermissionError) or code & _PRIMARY == sqlite3.SQLITE_READONLY:
        return f"{reason_of(error)}; run this as the user that owns it"
    if code & _PRIMARY in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"{reason_of(error)}; `dither restore` makes a new store of a backup"
    return reason_of(error)


def _file_id(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _content_id(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold a data directory for one serving process; raise StoreError when another one has it.

    The lock is SQLite's own on a file of its own: it works wherever the store does, and ends with the process.
    """
    with ExitStack() as held:
        try:
            keep(directory)
            ownership.make_file(directory / LOCK_NAME)
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
