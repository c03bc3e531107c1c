"""The marks of the SQLite store: a row a mark, in a table that the first mark makes."""

import sqlite3
from datetime import date

from dither_aggregator.store.interface.marks import MARKS_MAX, Marks, too_many
from dither_aggregator.store.records import DayMark
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.opened import SQLiteOpened


class SQLiteMarks(SQLiteOpened, Marks):
    """Marks of the one shard."""

    def marks(self) -> list[DayMark]:
        """Return all marks."""
        with self._instant() as db:
            return marks_in(db)

    def _add_mark(self, mark: DayMark) -> bool:
        """Keep a mark; its table is made where there is none."""
        with self._transaction() as db:
            known = marks_in(db)
            if mark in known:
                return False
            if len(known) >= MARKS_MAX:
                raise too_many()
            db.execute(schema.MARKS)
            db.execute("INSERT INTO mark VALUES (?, ?)", _row(mark))
        return True

    def remove_mark(self, mark: DayMark) -> bool:
        """Remove a mark."""
        with self._transaction() as db:
            kept = schema.has_table(db, "mark")
            return kept and db.execute("DELETE FROM mark WHERE day = ? AND text = ?", _row(mark)).rowcount == 1


def marks_in(db: sqlite3.Connection) -> list[DayMark]:
    """Within a transaction: return all marks; none where no mark was ever added."""
    if not schema.has_table(db, "mark"):
        return []
    rows = db.execute("SELECT day, text FROM mark ORDER BY day, text")
    return [DayMark(date.fromisoformat(day), text) for day, text in rows]


def _row(mark: DayMark) -> tuple[str, str]:
    return mark.day.isoformat(), mark.text
