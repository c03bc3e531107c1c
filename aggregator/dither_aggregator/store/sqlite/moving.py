"""A SQLite store is dumped, filled, erased, and its day is moved back.

A dump is all of it as it is at one instant: it is read in one transaction, and written in one for each record.

Erasing concerns what the two files still hold of days that are merged. `secure_delete` overwrites each row that is
deleted, and each page that is freed. It does not overwrite the copies that SQLite leaves in the unused middle of a page
when it moves rows within it. So every table that has held uploads or segments one by one is emptied whole, which clears
all of its pages, and filled again. The ids of each day have a table, which is dropped when they have moved.

    segment       when a day is merged, with the days that are not; merged tallies have a table of their own
    log           when a day is erased, with what is not folded
    state         likewise: it has the time at which something began to wait
    quarantine    likewise, if a group was taken out of it since, with what waits

Older versions of those pages are then in the write-ahead log, until it is cut, and in the file, until that log is
copied to it: `wal_checkpoint(TRUNCATE)` does both.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from dither_aggregator.store.clock import DayReset
from dither_aggregator.store.contract import READ_BYTES_MAX, READ_UPLOADS_MAX
from dither_aggregator.store.documents import KINDS
from dither_aggregator.store.dump import (
    BatchesRecord,
    DocumentsRecord,
    FinalRecord,
    Identity,
    Record,
    SeenRecord,
    ShardRecord,
    TallyRecord,
)
from dither_aggregator.store.records import (
    HOUR_S,
    Counted,
    Final,
    Segment,
    StoreUnavailable,
    add_counts,
    day_number,
    day_of,
    pack_counts,
)
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.sqlite_store import (
    BUSY_S,
    INSERT_POISON,
    INSERT_SEGMENT,
    SEGMENTS,
    SELECT_LEDGER,
    SQLiteData,
    batches_in,
    count_refused,
    ledger_of,
    ledger_row,
    poison_of,
    poison_row,
    put_batches,
    refused_in,
    rewrite,
    segment_of,
    segment_row,
    set_state,
)

DUMP_ROWS = 10_000
INSERT_LEDGER = "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)"
CUT_WITHIN_S = 1
"""How long to wait for those who read the write-ahead log: so long uploads may wait too."""
_BEGUN = "clock_reset"


class SQLiteStore(SQLiteData):
    """A store in a directory. Each thread has its own connection, until `close`."""

    def dump(self) -> Iterator[Record]:
        """Yield everything, as it is at one instant."""
        with closing(self._connect()) as db:
            db.execute("BEGIN")
            state = dict(db.execute("SELECT key, value FROM state"))
            first = date.fromisoformat(state["tallies_from"])
            yield Identity(state["app"], state["secret"], state["digest_key"], state["generation"], first)
            for kind in KINDS:
                texts = db.execute("SELECT text FROM document WHERE kind = ? ORDER BY id", (kind.kind,))
                yield from DocumentsRecord.each(kind, (kind.read(text) for (text,) in texts))
            hour, batches = batches_in(db)
            if hour is not None and batches:
                yield BatchesRecord(hour, tuple(batches))
            yield _shard(db, state)
            yield from _seen(db)
            of_tallies = db.execute(f"SELECT plan, epoch, n, counts FROM {SEGMENTS} ORDER BY plan, epoch")  # noqa: S608
            for (plan, epoch), of_tally in groupby(of_tallies, key=itemgetter(0, 1)):
                yield self._tally(plan, date.fromisoformat(epoch), of_tally)
            yield from _finals(db)
            self._check_immutable()

    def _tally(self, plan: int, epoch: date, of_tally: Iterable[tuple[int, str, int, bytes]]) -> TallyRecord:
        total, counts = 0, np.zeros(self.plan_by_id(plan).plan.cells.tally_size, dtype=np.int64)
        for _, _, n, packed in of_tally:
            total += n
            add_counts(counts, packed)
        return TallyRecord(0, plan, epoch, total, pack_counts(counts))

    # Filling.

    def _fill_identity(self, identity: Identity) -> None:
        with self._transaction() as db:
            for key in ("app", "digest_key", "secret"):
                set_state(db, key, getattr(identity, key))
            set_state(db, "tallies_from", identity.tallies_from.isoformat())

    def fill_seen(self, record: SeenRecord) -> None:
        """Remember answered uploads."""
        with self._transaction() as db:
            ids = schema.make_ids(db, "seen", day_number(record.day))
            db.executemany(f"INSERT OR IGNORE INTO {ids} VALUES (?, ?)", record.bodies.items())  # noqa: S608

    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments."""
        with self._transaction() as db:
            db.executemany(INSERT_SEGMENT, list(map(segment_row, segments)))

    def fill_shard(self, record: ShardRecord) -> None:
        """Set days, cursor, log, ledger, quarantine and counts of refused groups."""
        with self._transaction() as db:
            set_state(db, "day", record.day.isoformat())
            set_state(db, "sealed", record.sealed.isoformat())
            set_state(db, "waiting_since", self._now_s())
            db.execute("UPDATE cursor SET seq = ?", (record.cursor,))
            entries = enumerate(record.entries, record.cursor + 1)
            db.execute("INSERT INTO sqlite_sequence VALUES ('log', ?)", (record.cursor,))
            db.executemany("INSERT INTO log (seq, entry) VALUES (?, ?)", entries)
            db.executemany(INSERT_LEDGER, [ledger_row(key, row) for key, row in record.ledger.items()])
            db.executemany(INSERT_POISON, list(map(poison_row, record.quarantine)))
            count_refused(db, record.refused)

    def mark_moved(self, to: str) -> None:
        """Refuse from now on: another store goes on in the place of this one."""
        with self._transaction() as db:
            set_state(db, "moved_to", to)

    # Erasing.

    def erased(self) -> date:
        """Return the latest epoch that is erased."""
        return date.fromisoformat(self._state("erased", date.min.isoformat()))

    def _erase(self, merged: date) -> str:
        """Erase, unless much waits to be folded or in quarantine, or somebody reads for long: a later call does."""
        too_long = self._rewrite_what_waits()
        if not too_long and self._cut_write_ahead_log():
            with self._transaction() as db:
                set_state(db, "erased", merged.isoformat())
        return f"days that are over are not erased: {too_long}" if too_long else ""

    def _rewrite_what_waits(self) -> str:
        """Rewrite the log, and the quarantine if a group was taken out of it; return what is too long for that."""
        with self._transaction() as db:
            state = self._states()
            if not self._is_short("log", "entry"):
                return f"more than {READ_UPLOADS_MAX} uploads wait to be folded"
            if state.get("quarantine_taken") and not self._is_short("quarantine", "reports"):
                return f"more than {READ_UPLOADS_MAX} groups wait in quarantine; replay or drop them"
            rewrite(db, "log")
            rewrite(db, "state")
            if state.get("quarantine_taken"):
                rewrite(db, "quarantine")
                set_state(db, "quarantine_taken", 0)
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

    # Moving the day back.

    def begun_reset(self) -> str:
        """Return the reset that was begun."""
        return str(self._state(_BEGUN, ""))

    def begin_reset(self, text: str) -> None:
        """Keep what a reset is about to do."""
        with self._transaction() as db:
            set_state(db, _BEGUN, text)

    def reset_day(self, reset: DayReset) -> None:
        """Do it in one transaction."""
        with self._transaction() as db:
            day, sealed = reset.day.isoformat(), reset.sealed.isoformat()
            for table in ("tally", "segment", "ledger", "quarantine", "final", "snapshot"):
                aside = reset.to.isoformat(), reset.through.isoformat()
                db.execute(f"DELETE FROM {table} WHERE epoch > ? AND epoch <= ?", aside)  # noqa: S608 - our own words
            self._join_segments(db, reset)
            _join_ledger(db, reset)
            db.execute("UPDATE quarantine SET epoch = ? WHERE epoch > ?", (day, day))
            for of_ids, table in schema.days_of_ids(db):
                if of_ids > day_number(reset.day):
                    ids = schema.make_ids(db, "seen", day_number(reset.day))
                    db.execute(f"INSERT OR IGNORE INTO {ids} SELECT * FROM {table}")  # noqa: S608 - our own words
                    db.execute(f"DROP TABLE {table}")
            for refused, one in refused_in(db).items():
                if refused.day > reset.day:
                    db.execute("DELETE FROM refused WHERE day = ?", (refused.day.isoformat(),))
                    count_refused(db, {refused._replace(day=reset.day): one})
            if schema.has_table(db, "reading"):
                db.execute("DELETE FROM reading")  # no reading outlives its reports, and the others can be made again
            put_batches(db, reset.join_batches(batches_in(db)[1]))
            state = self._states()
            bounds = {"day": day, "tallies_from": day, **dict.fromkeys(("sealed", "merged", "erased"), sealed)}
            for key, most in bounds.items():
                if key in state:
                    set_state(db, key, min(state[key], most))
            if "batches_hour" in state:
                set_state(db, "batches_hour", min(state["batches_hour"], int(self._now_s() // HOUR_S)))
            set_state(db, "quarantine_taken", 1)  # what `_erase` asks
            rewrite(db, "segment")
            db.execute("DELETE FROM state WHERE key = ?", (_BEGUN,))

    def _join_segments(self, db: sqlite3.Connection, reset: DayReset) -> None:
        day = reset.day.isoformat()
        for (plan,) in db.execute("SELECT DISTINCT plan FROM segment WHERE epoch > ?", (day,)).fetchall():
            size = self.plan_by_id(plan).plan.cells.tally_size
            found = db.execute(
                "SELECT low, high, n, counts FROM segment WHERE plan = ? AND epoch >= ? ORDER BY low", (plan, day)
            )
            one = reset.join_segments(segment_of(plan, reset.day, row, size) for row in found)
            db.execute("DELETE FROM segment WHERE plan = ? AND epoch >= ?", (plan, day))
            db.execute(INSERT_SEGMENT, segment_row(one))


def _join_ledger(db: sqlite3.Connection, reset: DayReset) -> None:
    day = reset.day.isoformat()
    found = [ledger_of(*row) for row in db.execute(f"{SELECT_LEDGER} WHERE epoch >= ?", (day,)).fetchall()]
    joined: dict[int, Counted] = {}
    for (plan, _), row in found:
        joined[plan] = joined.get(plan, Counted()) + row
    db.execute("DELETE FROM ledger WHERE epoch >= ?", (day,))
    db.executemany(INSERT_LEDGER, [ledger_row((plan, reset.day), row) for plan, row in joined.items()])


# Records of a dump.


def _shard(db: sqlite3.Connection, state: Mapping[str, Any]) -> ShardRecord:
    (cursor,) = db.execute("SELECT seq FROM cursor").fetchone()
    quarantine = db.execute("SELECT plan, cell, epoch, n, reason, reports FROM quarantine ORDER BY id")
    return ShardRecord(
        shard=0,
        day=date.fromisoformat(state["day"]),
        sealed=date.fromisoformat(state["sealed"]),
        cursor=cursor,
        entries=tuple(entry for (entry,) in db.execute("SELECT entry FROM log ORDER BY seq")),
        ledger=dict(ledger_of(*row) for row in db.execute(SELECT_LEDGER)),
        quarantine=tuple(poison_of(*row) for row in quarantine),
        refused=refused_in(db),
    )


def _seen(db: sqlite3.Connection) -> Iterator[SeenRecord]:
    for day, table in schema.days_of_ids(db):
        (of,) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()  # noqa: S608 - our own words
        ids = db.execute(f"SELECT id, body FROM {table}")  # noqa: S608
        while some := ids.fetchmany(DUMP_ROWS):
            yield SeenRecord(day_of(day), dict(some), of)


def _finals(db: sqlite3.Connection) -> Iterator[FinalRecord]:
    finals = db.execute(
        "SELECT plan, final.epoch, digest, final.snapshot, content FROM final "
        "LEFT JOIN snapshot ON snapshot.id = final.snapshot ORDER BY plan, final.epoch"
    )
    for plan, epoch, digest, id_, content in finals:
        yield FinalRecord(plan, date.fromisoformat(epoch), Final(digest, id_), content)
