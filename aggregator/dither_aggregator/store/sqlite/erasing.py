"""Erasing in the SQLite store: what its two files still hold of days that are merged.

`secure_delete` overwrites each row that is deleted, and each page that is freed. It does not overwrite the copies that
SQLite leaves in the unused middle of a page when it moves rows within it. So every table that has held uploads or
segments one by one is emptied whole, which clears all of its pages, and filled again:

    segment       when a day is merged, with the days that are not; merged tallies have a table of their own
    log           when a day is erased, with what is not folded
    seen          likewise, with the uploads of the days that are not sealed; those of sealed ones have a table too
    state         likewise: it has the time at which something began to wait
    quarantine    likewise, if a group was taken out of it since, with what waits

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

ANSWERS_MAX = 200_000
"""The most answers of days that are not sealed that are rewritten: it takes a second or two."""
CUT_WITHIN_S = 1
"""How long to wait for those who read the write-ahead log: so long uploads may wait too."""


class SQLiteErasing(SQLiteEpochs, Erasing):
    """The files of the one shard."""

    _waits_for = ""
    """Why nothing was erased at the last attempt, so that it is said once."""

    def erased(self) -> date:
        """Return the latest epoch that is erased."""
        return date.fromisoformat(self._states().get("erased", date.min.isoformat()))

    def erase(self) -> str:
        """Erase, unless much waits to be folded or in quarantine, or somebody reads for long: a later call does."""
        merged = self.merged()
        if merged <= self.erased():
            return ""
        self.forget_answers(0)
        too_long = self._rewrite_what_waits()
        if not too_long and self._cut_write_ahead_log():
            with self._transaction():
                self._set_state("erased", merged.isoformat())
        new, self._waits_for = too_long != self._waits_for, too_long
        return f"days that are over are not erased: {too_long}" if too_long and new else ""

    def _rewrite_what_waits(self) -> str:
        """Rewrite the log, and the quarantine if a group was taken out of it; return what is too long for that."""
        with self._transaction():
            taken = bool(self._states().get("quarantine_taken"))
            if not self._is_short("log", "entry"):
                return f"more than {READ_UPLOADS_MAX} uploads wait to be folded"
            if taken and not self._is_short("quarantine", "reports"):
                return f"more than {READ_UPLOADS_MAX} groups wait in quarantine; replay or drop them"
            if self._states().get("answers_forgotten"):
                ((answers,),) = self._rows("SELECT COUNT(*) FROM seen")
                if answers > ANSWERS_MAX:
                    return f"more than {ANSWERS_MAX:,} uploads came since the day was over"
                self._rewrite("seen")
                self._set_state("answers_forgotten", 0)
            self._rewrite("log")
            self._rewrite("state")
            if taken:
                self._rewrite("quarantine")
                self._set_state("quarantine_taken", 0)
        return ""

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
