"""The lock of a data directory: one process at a time serves it."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from dither_aggregator.store.records import StoreError
from dither_aggregator.store.sqlite.file import describe_error, keep
from dither_shared.ownership import make_file

LOCK_NAME = "lock.sqlite3"


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold a data directory for one serving process; raise StoreError when another one has it.

    The lock is SQLite's own on a file of its own: it works wherever the store does, and ends with the process.
    """
    with ExitStack() as held:
        try:
            keep(directory)
            make_file(directory / LOCK_NAME)
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
