"""A SQLite store as records: all of it as it is at one instant."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from dither_aggregator.counting.folding import Counts
from dither_aggregator.store.dump import (
    BatchesRecord,
    FinalRecord,
    Identity,
    JournalRecord,
    MarksRecord,
    PlanRecord,
    Record,
    SeenRecord,
    ShardRecord,
    TallyRecord,
)
from dither_aggregator.store.interface.moving import Moving
from dither_aggregator.store.keys import Key
from dither_aggregator.store.packing import add_counts, pack_counts
from dither_aggregator.store.records import Final, JournalEntry, Segment
from dither_aggregator.store.sqlite import rows
from dither_aggregator.store.sqlite.batches import batches_in
from dither_aggregator.store.sqlite.epochs import SQLiteEpochs
from dither_aggregator.store.sqlite.journal import SQLiteJournal
from dither_aggregator.store.sqlite.keyring import SQLiteKeyring
from dither_aggregator.store.sqlite.marks import marks_in
from dither_aggregator.store.sqlite.refused import count_refused, refused_in

DUMP_ROWS = 10_000


class SQLiteMoving(SQLiteEpochs, SQLiteKeyring, SQLiteJournal, Moving):
    """A SQLite store as records: read in one transaction, and written in one for each record."""

    def dump(self) -> Iterator[Record]:
        """Yield everything, as it is at one instant."""
        with closing(self._connect()) as db:
            db.execute("BEGIN")
            state = dict(db.execute("SELECT key, value FROM state"))
            yield _identity(db, state)
            for (document,) in db.execute("SELECT document FROM plan ORDER BY id"):
                yield PlanRecord(json.loads(document))
            if marks := marks_in(db):
                yield MarksRecord(tuple(marks))
            hour, batches = batches_in(db)
            if hour is not None and batches:
                yield BatchesRecord(hour, tuple(batches))
            yield from _journal(db)
            yield _shard(db, state)
            yield from _seen(db)
            of_tallies = db.execute(rows.SELECT_SEGMENTS)
            for (plan, epoch), of_tally in groupby(of_tallies, key=itemgetter(0, 1)):
                n, counts = self._sum_packed(plan, of_tally)
                yield TallyRecord(0, plan, date.fromisoformat(epoch), n, pack_counts(counts))
            yield from _finals(db)
            self._check_immutable()

    def _sum_packed(self, plan: int, of_tally: Iterable[tuple[int, str, int, bytes]]) -> tuple[int, Counts]:
        size = self.plan_by_id(plan).plan.cells.tally_size
        total, counts = 0, np.zeros(size, dtype=np.int64)
        for _, _, n, packed in of_tally:
            total += n
            add_counts(counts, packed)
        return total, counts

    # Filling.

    def fill_identity(self, identity: Identity) -> None:
        """Take over what devices and copies of uploads are recognised by."""
        with self._transaction():
            for key in ("app", "digest_key", "secret"):
                self._set_state(key, getattr(identity, key))
            self._set_state("tallies_from", identity.tallies_from.isoformat())
        self.set_retention(identity.retention)
        self.app, self._digest_key, self._secret = identity.app, identity.digest_key, identity.secret
        self._save_keys(identity.keys, self._keys.version)
        self.refresh()

    def fill_seen(self, record: SeenRecord) -> None:
        """Remember answered uploads."""
        with self._transaction() as db:
            seen = [(id_, record.day.isoformat(), answer) for id_, answer in record.answers.items()]
            db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", seen)

    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments."""
        packed = [rows.segment_row(one) for one in segments]
        with self._transaction() as db:
            db.executemany(rows.INSERT_SEGMENT, packed)

    def fill_shard(self, record: ShardRecord) -> None:
        """Set days, cursor, log, ledger, quarantine and counts of refused groups."""
        with self._transaction() as db:
            self._set_state("day", record.day.isoformat())
            self._set_state("sealed", record.sealed.isoformat())
            self._set_state("waiting_since", self._now_s())
            db.execute("UPDATE cursor SET seq = ?", (record.cursor,))
            entries = enumerate(record.entries, record.cursor + 1)
            db.execute("INSERT INTO sqlite_sequence VALUES ('log', ?)", (record.cursor,))
            db.executemany("INSERT INTO log (seq, entry) VALUES (?, ?)", entries)
            db.executemany(rows.INSERT_LEDGER, [rows.ledger_row(key, row) for key, row in record.ledger.items()])
            db.executemany(rows.INSERT_POISON, [rows.poison_row(poison) for poison in record.quarantine])
            count_refused(db, record.refused)

    def fill_final(self, record: FinalRecord) -> None:
        """Add what is kept of a finalized epoch."""
        with self._transaction() as db:
            db.execute(rows.INSERT_FINAL, rows.final_row(record.plan, record.epoch, record.final))
            if record.snapshot is not None:
                snapshot = record.final.snapshot, record.epoch.isoformat(), record.snapshot
                db.execute(rows.INSERT_SNAPSHOT, snapshot)

    def mark_moved(self, to: str) -> None:
        """Refuse from now on: another store goes on in the place of this one."""
        with self._transaction():
            self._set_state("moved_to", to)


def _identity(db: sqlite3.Connection, state: Mapping[str, Any]) -> Identity:
    keys = db.execute("SELECT document FROM key ORDER BY id")
    return Identity(
        state["app"],
        tuple(Key.from_document(json.loads(document)) for (document,) in keys),
        state["secret"],
        state["digest_key"],
        state["generation"],
        rows.retention_of(state),
        date.fromisoformat(state["tallies_from"]),
    )


def _journal(db: sqlite3.Connection) -> Iterator[JournalRecord]:
    entries = db.execute("SELECT entry FROM journal ORDER BY seq")
    while batch := entries.fetchmany(DUMP_ROWS):
        yield JournalRecord(tuple(JournalEntry.from_document(json.loads(entry)) for (entry,) in batch))


def _shard(db: sqlite3.Connection, state: Mapping[str, Any]) -> ShardRecord:
    (cursor,) = db.execute("SELECT seq FROM cursor").fetchone()
    quarantine = db.execute("SELECT plan, cell, epoch, n, reason, reports FROM quarantine ORDER BY id")
    return ShardRecord(
        shard=0,
        day=date.fromisoformat(state["day"]),
        sealed=date.fromisoformat(state["sealed"]),
        cursor=cursor,
        entries=tuple(entry for (entry,) in db.execute("SELECT entry FROM log ORDER BY seq")),
        ledger=dict(rows.ledger_of(*row) for row in db.execute(rows.SELECT_LEDGER)),
        quarantine=tuple(rows.poison_of(*row) for row in quarantine),
        refused=refused_in(db),
    )


def _seen(db: sqlite3.Connection) -> Iterator[SeenRecord]:
    seen = db.execute("SELECT day, id, answer FROM seen UNION ALL SELECT day, id, body FROM taken ORDER BY day")
    while batch := seen.fetchmany(DUMP_ROWS):
        for day, of_day in groupby(batch, key=itemgetter(0)):
            yield SeenRecord(date.fromisoformat(day), {id_: rows.whole_answer(answer) for _, id_, answer in of_day})


def _finals(db: sqlite3.Connection) -> Iterator[FinalRecord]:
    finals = db.execute(
        "SELECT plan, final.epoch, digest, final.snapshot, content FROM final "
        "LEFT JOIN snapshot ON snapshot.id = final.snapshot ORDER BY plan, final.epoch"
    )
    for plan, epoch, digest, id_, content in finals:
        yield FinalRecord(plan, date.fromisoformat(epoch), Final(digest, id_), content)
