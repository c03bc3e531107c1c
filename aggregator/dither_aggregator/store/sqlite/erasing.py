"""Erasing in the SQLite store: what its two files still hold of days that are merged.

`secure_delete` overwrites each row that is deleted, and each page that is freed. It does not overwrite the copies that
SQLite leaves in the unused middle of a page when it moves rows within it. So every table that has held uploads or
segments one by one is emptied whole, which clears all of its pages, and filled again:

    segment       when a day is merged, with the days that are not; merged tallies have a table of their own
    log           when a day is erased, with what is not folded
    quarantine    likewise, with what waits

Older versions of those pages are then in the write-ahead log, until it is cut, and in the file, until that log is
copied to it: `wal_checkpoint(TRUNCATE)` does both.
"""

import sqlite3
from datetime import date

from dither_aggregator.store.interface.erasing import Erasing
from dither_aggregator.store.interface.log import READ_BYTES_MAX, READ_UPLOADS_MAX
from dither_aggregator.store.records import StoreUnavailable
from dither_aggregator.store.sqlite.epochs import SQLiteEpochs
from dither_aggregator.store.sqlite.file import BUSY_S

CUT_WITHIN_S = 1
"""How long to wait for those who read the write-ahead log: so long uploads may wait too."""


class SQLiteErasing(SQLiteEpochs, Erasing):
    """The files of the one shard."""

    def erased(self) -> date:
        """Return the latest epoch that is erased."""
        return date.fromisoformat(self._states().get("erased", date.min.isoformat()))

    def erase(self) -> str:
        """Erase, unless much waits to be folded, or somebody reads for long: then a later call does."""
        merged = self.merged()
        if merged > self.erased() and self._rewrite_what_waits() and self._cut_write_ahead_log():
            with self._transaction():
                self._set_state("erased", merged.isoformat())
        return ""

    def _rewrite_what_waits(self) -> bool:
        """Rewrite log and quarantine if they are short; return whether."""
        with self._transaction():
            short = self._is_short("log", "entry") and self._is_short("quarantine", "reports")
            if short:
                self._rewrite("log")
                self._rewrite("quarantine")
        return short

    def _is_short(self, table: str, column: str) -> bool:
        some = f"SELECT LENGTH({column}) AS size FROM {table} LIMIT {READ_UPLOADS_MAX + 1}"  # noqa: S608 - our own words
        ((rows, size),) = self._rows(f"SELECT COUNT(*), TOTAL(size) FROM ({some})")  # noqa: S608
        return bool(rows <= READ_UPLOADS_MAX and size <= READ_BYTES_MAX)

    def _cut_write_ahead_log(self) -> bool:
        """Copy the write-ahead log to the file, and cut it to nothing; return whether nobody prevented that."""
        try:
            self._db.execute(f"PRAGMA busy_timeout = {int(CUT_WITHIN_S * 1000)}")
            try:
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be written: {error}") from None
        return not busy
