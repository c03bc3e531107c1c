"""The refused groups of the SQLite store: a row a day, metric and reason, in a table that the first of them makes."""

import sqlite3
from collections.abc import Mapping
from datetime import date

from dither_aggregator.store.interface.refused import Refusing
from dither_aggregator.store.records import RefusedCount, RefusedKey
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.opened import SQLiteOpened

_COUNT = """
INSERT INTO refused VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day, metric, reason) DO UPDATE SET groups = groups + excluded.groups, reports = reports + excluded.reports
"""


class SQLiteRefusing(SQLiteOpened, Refusing):
    """Counts of the one shard."""

    def refused(self, first: date, last: date) -> dict[RefusedKey, RefusedCount]:
        """Return the rows of some days."""
        with self._instant() as db:
            return refused_in(db, first, last)


def refused_in(db: sqlite3.Connection, first: date = date.min, last: date = date.max) -> dict[RefusedKey, RefusedCount]:
    """Within a transaction: return the rows of some days; none where no group was ever refused."""
    if not schema.has_table(db, "refused"):
        return {}
    rows = db.execute(
        "SELECT day, metric, reason, groups, reports FROM refused WHERE day BETWEEN ? AND ? ORDER BY day",
        (first.isoformat(), last.isoformat()),
    )
    return {
        RefusedKey(date.fromisoformat(day), metric, reason): RefusedCount(groups, reports)
        for day, metric, reason, groups, reports in rows
    }


def count_refused(db: sqlite3.Connection, counted: Mapping[RefusedKey, RefusedCount]) -> None:
    """Within a transaction: add to the rows; the table is made where there is none."""
    if counted:
        db.execute(schema.REFUSED)
        rows = [(key.day.isoformat(), key.metric, key.reason, *vars(one).values()) for key, one in counted.items()]
        db.executemany(_COUNT, rows)


def forget_refused(db: sqlite3.Connection, last: date) -> None:
    """Within a transaction: delete the rows of days up to one."""
    if schema.has_table(db, "refused"):
        db.execute("DELETE FROM refused WHERE day <= ?", (last.isoformat(),))
