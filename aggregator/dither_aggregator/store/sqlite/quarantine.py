"""The quarantine of the SQLite store: a row a group."""

from collections.abc import Iterator, Mapping, Sequence

from dither_aggregator.store.interface.quarantine import Quarantine
from dither_aggregator.store.packing import day_number, pack_entry, pack_groups
from dither_aggregator.store.records import LogEntry, LogGroup, Poison, Quarantined
from dither_aggregator.store.sqlite.ledger import SQLiteLedger
from dither_aggregator.store.sqlite.rows import INSERT_POISON, poison_of, poison_row

ROWS_AT_ONCE = 500


class SQLiteQuarantine(SQLiteLedger, Quarantine):
    """Groups by number; the one shard is 0."""

    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine."""
        rows = self._rows("SELECT id, plan, cell, epoch, n, reason, reports FROM quarantine ORDER BY id")
        return [Quarantined.of(f"0-{number}", poison_of(*row)) for number, *row in rows]

    def log_entries(self, shard: int) -> Iterator[LogEntry]:
        """Yield the rows of the log."""
        last = 0
        while rows := self._rows("SELECT seq, entry FROM log WHERE seq > ? ORDER BY seq LIMIT ?", last, ROWS_AT_ONCE):
            for last, entry in rows:
                yield LogEntry(last, entry)

    def set_apart(
        self, shard: int, oldest: LogEntry, others: Mapping[LogEntry, bytes], poisons: Sequence[Poison]
    ) -> bool:
        """Take rows out of the log in one transaction."""
        with self._transaction() as db:
            for place, entry, _ in (oldest, *others):
                if not db.execute("SELECT 1 FROM log WHERE seq = ? AND entry = ?", (place, entry)).fetchone():
                    return False
            if db.execute("UPDATE cursor SET seq = ? WHERE seq = ?", (oldest.place, oldest.place - 1)).rowcount != 1:
                return False
            db.execute("DELETE FROM log WHERE seq = ?", (oldest.place,))
            db.executemany("UPDATE log SET entry = ? WHERE seq = ?", [(new, one.place) for one, new in others.items()])
            for poison in poisons:
                db.execute(INSERT_POISON, poison_row(poison))
                self._move("quarantined", poison.group.plan, poison.group.epoch, poison.group.n)
            self._wait_on()
        return True

    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log."""
        with self._transaction() as db:
            group = self._take(id_)
            if group is None:
                return False
            plan, cell, epoch, n, reports = group
            today = self._advance_day()
            self._move("quarantined", plan, epoch, -n)
            self._move("accepted", plan, epoch, -n)
            self._enter(today, {plan: n})
            self._begin_to_wait()
            entry = pack_entry(day_number(today), pack_groups([(plan, cell, n, reports)]))
            db.execute("INSERT INTO log (entry) VALUES (?)", (entry,))
        return True

    def drop(self, id_: str) -> bool:
        """Give a quarantined group up."""
        with self._transaction():
            group = self._take(id_)
            if group is not None:
                self._move("dropped", group.plan, group.epoch, group.n)
        return group is not None

    def _take(self, id_: str) -> LogGroup | None:
        """Within a transaction: take a group out of the quarantine."""
        shard, _, number = id_.partition("-")
        if shard != "0" or not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        row = self._db.execute(
            "DELETE FROM quarantine WHERE id = ? RETURNING plan, cell, epoch, n, reason, reports", (int(number),)
        ).fetchone()
        if row is None:
            return None
        self._set_state("quarantine_taken", 1)  # what erasing.py asks
        return poison_of(*row).group
