"""The kept readings of the SQLite store: a row a reading, in a table that the first of them makes."""

import sqlite3
from collections.abc import Sequence
from datetime import date

from dither_aggregator.store.interface.readings import READINGS_BYTES_MAX, Readings
from dither_aggregator.store.records import KeptReading
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.opened import SQLiteOpened


class SQLiteReadings(SQLiteOpened, Readings):
    """Readings of the one shard."""

    def kept_reading(self, key: str) -> KeptReading | None:
        """Return an entry."""
        return next(iter(self._readings("key = ?", key)), None)

    def open_readings(self) -> list[KeptReading]:
        """Return the entries of readings that are not there."""
        return self._readings("open")

    def _readings(self, where: str, *values: object) -> list[KeptReading]:
        with self._instant() as db:
            if not schema.has_table(db, "reading"):
                return []
            rows = db.execute(f"SELECT key, first, open, content FROM reading WHERE {where}", values).fetchall()  # noqa: S608 - our own words
        return [
            KeptReading(key, date.fromisoformat(first), bool(open_), content) for key, first, open_, content in rows
        ]

    def keep_readings(self, entries: Sequence[KeptReading]) -> None:
        """Keep entries, and let go of the first ones, in one transaction."""
        with self._transaction() as db:
            schema.make(db, schema.READINGS)
            kept_from = self._day_of("tallies_from")
            rows = [
                (one.key, one.first.isoformat(), one.open, len(one.content), one.content)
                for one in entries
                if one.first >= kept_from
            ]
            db.executemany(
                "INSERT OR REPLACE INTO reading (key, first, open, size, content) VALUES (?, ?, ?, ?, ?)", rows
            )
            _let_go(db)


def _let_go(db: sqlite3.Connection) -> None:
    """Within a transaction: delete the readings that were made first, beyond READINGS_BYTES_MAX."""
    (size,) = db.execute("SELECT SUM(size) FROM reading").fetchone()
    while (size or 0) > READINGS_BYTES_MAX:
        seq, bytes_ = db.execute("SELECT seq, size FROM reading ORDER BY seq LIMIT 1").fetchone()
        db.execute("DELETE FROM reading WHERE seq = ?", (seq,))
        size -= bytes_
