"""The day of the SQLite store, moved back in one transaction."""

import sqlite3

from dither_aggregator.store.interface.resetting import DayReset, Resetting
from dither_aggregator.store.packing import HOUR_S
from dither_aggregator.store.records import Counted
from dither_aggregator.store.sqlite import rows, schema
from dither_aggregator.store.sqlite.batches import SQLiteBatches
from dither_aggregator.store.sqlite.keyring import SQLiteKeyring
from dither_aggregator.store.sqlite.refused import count_refused, refused_in

_BEGUN = "clock_reset"


class SQLiteResetting(SQLiteBatches, SQLiteKeyring, Resetting):
    """Days of the one shard."""

    def begun_reset(self) -> str:
        """Return the reset that was begun."""
        return str(self._states().get(_BEGUN, ""))

    def begin_reset(self, text: str) -> None:
        """Keep what a reset is about to do."""
        with self._transaction():
            self._set_state(_BEGUN, text)

    def reset_day(self, reset: DayReset) -> None:
        """Do it in one transaction."""
        _, batches = self.batches()
        kept = reset.join_batches(batches)
        with self._transaction() as db:
            day, sealed = reset.day.isoformat(), reset.sealed.isoformat()
            for table in ("tally", "segment", "ledger", "quarantine", "final", "snapshot"):
                aside = reset.to.isoformat(), reset.through.isoformat()
                db.execute(f"DELETE FROM {table} WHERE epoch > ? AND epoch <= ?", aside)  # noqa: S608 - our own words
            self._join_segments(db, reset)
            _join_ledger(db, reset)
            db.execute("UPDATE quarantine SET epoch = ? WHERE epoch > ?", (day, day))
            for table in ("seen", "taken"):
                db.execute(f"UPDATE {table} SET day = ? WHERE day > ?", (day, day))  # noqa: S608
            for refused, one in refused_in(db).items():
                if refused.day > reset.day:
                    db.execute("DELETE FROM refused WHERE day = ?", (refused.day.isoformat(),))
                    count_refused(db, {refused._replace(day=reset.day): one})
            if schema.has_table(db, "reading"):
                db.execute("DELETE FROM reading")  # no reading outlives its reports, and the others can be made again
            if batches:
                db.execute("DELETE FROM batch")
                packed = [(one.plan, one.epoch.isoformat(), one.shown, one.n, one.packed) for one in kept]
                db.executemany("INSERT INTO batch VALUES (?, ?, ?, ?, ?)", packed)
            state = self._states()
            bounds = {"day": day, "tallies_from": day, **dict.fromkeys(("sealed", "merged", "erased"), sealed)}
            for key, most in bounds.items():
                if key in state:
                    self._set_state(key, min(state[key], most))
            if "batches_hour" in state:
                self._set_state("batches_hour", min(state["batches_hour"], int(self._now_s() // HOUR_S)))
            self._set_state("quarantine_taken", 1)  # what erasing.py asks
            self._rewrite("segment")
            db.execute("DELETE FROM state WHERE key = ?", (_BEGUN,))

    def _join_segments(self, db: sqlite3.Connection, reset: DayReset) -> None:
        day = reset.day.isoformat()
        for (plan,) in db.execute("SELECT DISTINCT plan FROM segment WHERE epoch > ?", (day,)).fetchall():
            size = self.plan_by_id(plan).plan.cells.tally_size
            found = db.execute(
                "SELECT low, high, n, counts FROM segment WHERE plan = ? AND epoch >= ? ORDER BY low", (plan, day)
            )
            one = reset.join_segments(rows.segment_of(plan, reset.day, row, size) for row in found)
            db.execute("DELETE FROM segment WHERE plan = ? AND epoch >= ?", (plan, day))
            db.execute(rows.INSERT_SEGMENT, rows.segment_row(one))


def _join_ledger(db: sqlite3.Connection, reset: DayReset) -> None:
    day = reset.day.isoformat()
    found = [rows.ledger_of(*row) for row in db.execute(f"{rows.SELECT_LEDGER} WHERE epoch >= ?", (day,)).fetchall()]
    joined: dict[int, Counted] = {}
    for (plan, _), row in found:
        joined[plan] = joined.get(plan, Counted()) + row
    db.execute("DELETE FROM ledger WHERE epoch >= ?", (day,))
    db.executemany(rows.INSERT_LEDGER, [rows.ledger_row((plan, reset.day), row) for plan, row in joined.items()])
