"""The files of a SQLite store's directory: their names, what is wrong with one, the lock, and `write.key`."""

import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from dither_aggregator.store.records import StoreError
from dither_shared import file_permissions
from dither_shared.errors import reason_of

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
        for sentence in file_permissions.keep(directory, NAMES):
            _log.warning("%s", sentence)
    except file_permissions.NotOurs as error:
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
            file_permissions.make_file(directory / LOCK_NAME)
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
