"""The epochs of the SQLite store."""

from datetime import date, timedelta

from dither_aggregator.store.interface.epochs import Epochs
from dither_aggregator.store.interface.log import DEDUPE, DEDUPE_DAYS_MIN
from dither_aggregator.store.interface.refused import REFUSED_DAYS
from dither_aggregator.store.packing import BODY_BYTES, entry_day
from dither_aggregator.store.records import Final, Retention, TallyKey
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.opened import SQLiteOpened
from dither_aggregator.store.sqlite.refused import forget_refused
from dither_aggregator.store.sqlite.rows import INSERT_FINAL, INSERT_SNAPSHOT, final_row, retention_of
from dither_shared.plan import Plan

FORGET_ROWS = 10_000
"""So many uploads are moved by one transaction: others wait for it."""


class SQLiteEpochs(SQLiteOpened, Epochs):
    """Days of the one shard."""

    def seal(self, shard: int) -> date:
        """Close what is over in one transaction."""
        with self._transaction() as db:
            today = self._advance_day()
            row = db.execute("SELECT entry FROM log ORDER BY seq LIMIT 1").fetchone()
            open_from = min(today, entry_day(row[0])) if row else today
            sealed = max(self._day_of("sealed"), open_from - timedelta(days=1))
            self._set_state("sealed", sealed.isoformat())
        return sealed

    def finals(self, plan: Plan) -> dict[date, Final]:
        """Return what is kept of a plan's finalized epochs."""
        rows = self._rows("SELECT epoch, digest, snapshot FROM final WHERE plan = ?", self._plans.get(plan).id)
        return {date.fromisoformat(epoch): Final(digest, snapshot) for epoch, digest, snapshot in rows}

    def all_finals(self) -> set[TallyKey]:
        """Return the plans and epochs that are finalized."""
        return {(plan, date.fromisoformat(epoch)) for plan, epoch in self._rows("SELECT plan, epoch FROM final")}

    def finalize(self, plan: Plan, epoch: date, final: Final, snapshot: bytes) -> Final:
        """Record an epoch's final digest with its snapshot, once."""
        id_ = self._plans.get(plan).id
        with self._transaction() as db:
            row = db.execute(
                "SELECT digest, snapshot FROM final WHERE plan = ? AND epoch = ?", (id_, epoch.isoformat())
            ).fetchone()
            if row:
                return Final(*row)
            db.execute(INSERT_FINAL, final_row(id_, epoch, final))
            db.execute(INSERT_SNAPSHOT, (final.snapshot, epoch.isoformat(), snapshot))
        return final

    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content."""
        rows = self._rows("SELECT content FROM snapshot WHERE id = ?", id_)
        return rows[0][0] if rows else None

    # Retention.

    def retention(self) -> Retention:
        """Return for how long tallies and snapshots are kept."""
        return retention_of(self._states())

    def set_retention(self, retention: Retention) -> None:
        """Change for how long they are kept."""
        with self._transaction() as db:
            db.execute("DELETE FROM state WHERE key IN ('tallies_days', 'snapshots_days')")
            for key, days in vars(retention).items():
                if days is not None:
                    self._set_state(key, days)

    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept."""
        return self._day_of("tallies_from")

    def forget_answers(self, shard: int) -> None:
        """Move the uploads of sealed days, some at a time, into a table that tells no more of them."""
        sealed = self._day_of("sealed").isoformat()
        moved = FORGET_ROWS
        while moved == FORGET_ROWS and self._rows("SELECT 1 FROM seen WHERE day <= ? LIMIT 1", sealed):
            with self._transaction() as db:
                some = "SELECT id FROM seen WHERE day <= ? ORDER BY day, id LIMIT ?"
                db.execute(
                    f"INSERT OR IGNORE INTO taken SELECT id, day, SUBSTR(answer, 1, {BODY_BYTES}) FROM seen "  # noqa: S608
                    f"WHERE id IN ({some}) ORDER BY id",
                    (sealed, FORGET_ROWS),
                )
                moved = db.execute(f"DELETE FROM seen WHERE id IN ({some})", (sealed, FORGET_ROWS)).rowcount  # noqa: S608
                self._set_state("answers_forgotten", 1)  # what erasing.py asks

    def forget(self, shard: int) -> None:
        """Forget old ids and counts, and old tallies that are finalized."""
        days = self.retention().tallies_days
        with self._transaction() as db:
            today = self._advance_day()
            first_known = min(self._seen_from(), (today - DEDUPE).isoformat())
            for table in ("seen", "taken"):
                db.execute(f"DELETE FROM {table} WHERE day < ?", (first_known,))  # noqa: S608 - our own words
            forget_refused(db, today - timedelta(days=REFUSED_DAYS))
            if days is not None:
                first = max(self._day_of("tallies_from"), today - timedelta(days=days))
                for table in ("segment", "tally"):
                    db.execute(
                        f"DELETE FROM {table} AS given WHERE epoch < ? AND EXISTS "  # noqa: S608 - our own words
                        "(SELECT 1 FROM final WHERE final.plan = given.plan AND final.epoch = given.epoch)",
                        (first.isoformat(),),
                    )
                if schema.has_table(db, "reading"):
                    db.execute("DELETE FROM reading WHERE first < ?", (first.isoformat(),))
                self._set_state("tallies_from", first.isoformat())

    def _seen_from(self) -> str:
        """Return the first of the last DEDUPE_DAYS_MIN days on which uploads were accepted."""
        day = date.max.isoformat()
        for _ in range(DEDUPE_DAYS_MIN):
            both = "SELECT MAX(day) AS day FROM seen WHERE day < ? UNION SELECT MAX(day) FROM taken WHERE day < ?"
            ((before,),) = self._rows(f"SELECT MAX(day) FROM ({both})", day, day)  # noqa: S608 - our own words
            day = before or date.min.isoformat()
        return day

    def forget_snapshots(self) -> None:
        """Forget old snapshots."""
        days = self.retention().snapshots_days
        if days is not None:
            first = self.today() - timedelta(days=days)
            with self._transaction() as db:
                db.execute("DELETE FROM snapshot WHERE epoch < ?", (first.isoformat(),))
