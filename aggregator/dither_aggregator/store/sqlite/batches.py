"""The batches of the SQLite store: a row a batch, in a table that the first of them makes."""

import sqlite3
from collections.abc import Collection
from datetime import date

from dither_aggregator.store.interface.batches import Batches
from dither_aggregator.store.records import Batch, TallyKey
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.epochs import SQLiteEpochs
from dither_aggregator.store.sqlite.ledger import SQLiteLedger
from dither_aggregator.store.sqlite.tallies import SQLiteTallies


class SQLiteBatches(SQLiteLedger, SQLiteTallies, SQLiteEpochs, Batches):
    """Batches of the one shard."""

    def batches(self) -> tuple[int | None, list[Batch]]:
        """Return the hour of the last cut, and all batches."""
        with self._instant() as db:
            return batches_in(db)

    def _keep_batches(self, last: int | None, hour: int, batches: Collection[Batch]) -> None:
        """Empty the table whole, so that its pages hold nothing of what was there (erasing.py), and fill it."""
        with self._transaction() as db:
            if self._states().get("batches_hour") != last:
                return
            self._set_state("batches_hour", hour)
            if batches or schema.has_table(db, "batch"):
                db.execute(schema.BATCHES)
                db.execute("DELETE FROM batch")
                rows = [(one.plan, one.epoch.isoformat(), one.shown, one.n, one.packed) for one in batches]
                db.executemany("INSERT INTO batch VALUES (?, ?, ?, ?, ?)", rows)

    def batch_keys(self) -> tuple[int | None, dict[TallyKey, bool]]:
        """Return the hour of the last cut, and of what there are batches."""
        with self._instant() as db:
            hour = self._states().get("batches_hour")
            if not schema.has_table(db, "batch"):
                return hour, {}
            rows = db.execute("SELECT plan, epoch, MAX(shown) FROM batch GROUP BY plan, epoch").fetchall()
        return hour, {(plan, date.fromisoformat(epoch)): bool(shown) for plan, epoch, shown in rows}

    def shown_batch(self, key: TallyKey) -> Batch | None:
        """Return the batch that is shown."""
        _, batches = self.batches()
        return next((one for one in batches if one.shown and (one.plan, one.epoch) == key), None)


def batches_in(db: sqlite3.Connection) -> tuple[int | None, list[Batch]]:
    """Within a transaction: return the hour of the last cut, and all batches."""
    row = db.execute("SELECT value FROM state WHERE key = 'batches_hour'").fetchone()
    if not (row and schema.has_table(db, "batch")):
        return row and row[0], []
    rows = db.execute("SELECT plan, epoch, shown, n, counts FROM batch ORDER BY plan, epoch, shown")
    found = [Batch(plan, date.fromisoformat(day), bool(shown), n, packed) for plan, day, shown, n, packed in rows]
    return row[0], found
