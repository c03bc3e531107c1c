"""The log of the SQLite store: a row an upload."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date

from dither_aggregator.store.interface.log import READ_BYTES_MAX, READ_UPLOADS_MAX, Log, Prepared
from dither_aggregator.store.packing import day_number, pack_entry, unpack_entry
from dither_aggregator.store.records import (
    LogGroup,
    LogRead,
    Poison,
    Receipt,
    RefusedCount,
    RefusedKey,
    Segment,
    StoreError,
    sum_refused,
)
from dither_aggregator.store.sqlite.ledger import SQLiteLedger
from dither_aggregator.store.sqlite.refused import count_refused
from dither_aggregator.store.sqlite.rows import (
    INSERT_LOG,
    INSERT_POISON,
    INSERT_SEEN,
    INSERT_SEGMENT,
    SEEN_AT_ONCE,
    poison_row,
    segment_row,
    select_seen,
    whole_answer,
)
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import Upload


class SQLiteLog(SQLiteLedger, Log):
    """Appended by one transaction for all uploads that come together."""

    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads in one transaction."""
        prepared = [self._prepare(upload, body) for upload, body in uploads]
        with self._transaction() as db:
            today = self._advance_day()
            known = self._known([item.digest for item in prepared])
            fresh: dict[bytes, Prepared] = {}
            answers: list[Receipt | Problem] = []
            refused: list[Mapping[tuple[str, str], RefusedCount]] = []
            for (upload, _), item in zip(uploads, prepared, strict=True):
                before = known.get(item.digest)
                if before is not None:
                    answers.append(self._repeated(upload, item, before))
                    continue
                if item.groups:
                    fresh[item.digest], known[item.digest] = item, item.answer
                answers.append(item.result)
                refused.append(item.refused)
            if fresh:
                self._begin_to_wait()
                self._write_log(today, fresh.values())
            count_refused(db, {RefusedKey(today, *reason): one for reason, one in sum_refused(refused).items()})
        return answers

    def _known(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Within a transaction: return the answers to those of these uploads that were answered before."""
        known: dict[bytes, bytes] = {}
        for at in range(0, len(digests), SEEN_AT_ONCE):
            some = digests[at : at + SEEN_AT_ONCE]
            rows = self._db.execute(select_seen(len(some)), (*some, *some))
            known.update((id_, whole_answer(answer)) for id_, answer in rows)
        return known

    def _write_log(self, today: date, fresh: Collection[Prepared]) -> None:
        """Within a transaction: enter uploads that are new, in their order."""
        day, number = today.isoformat(), day_number(today)
        self._db.executemany(INSERT_SEEN, [(item.digest, day, item.answer) for item in fresh])
        self._db.executemany(INSERT_LOG, [(pack_entry(number, item.groups),) for item in fresh])
        counts: dict[int, int] = {}
        for item in fresh:
            for plan, n in item.counts:
                counts[plan] = counts.get(plan, 0) + n
        self._enter(today, counts)

    def read_log(self, shard: int) -> LogRead:
        """Return the oldest rows of the log."""
        with self._instant() as db:
            (low,) = db.execute("SELECT seq FROM cursor").fetchone()
            high, size = low, 0
            groups: list[LogGroup] = []
            rows = db.execute("SELECT seq, entry FROM log WHERE seq > ? ORDER BY seq LIMIT ?", (low, READ_UPLOADS_MAX))
            for seq, entry in rows:
                if seq != high + 1:
                    raise StoreError(f"{self._path}: the log goes from {high} to {seq}")
                groups += unpack_entry(entry)
                high = seq
                size += len(entry)
                if size >= READ_BYTES_MAX:
                    break
        return LogRead(low, high, groups)

    def commit_fold(self, shard: int, read: LogRead, segments: Sequence[Segment], poisons: Sequence[Poison]) -> bool:
        """Store a fold in one transaction."""
        rows = [segment_row(one) for one in segments]  # before the transaction: packing takes long
        with self._transaction() as db:
            if db.execute("UPDATE cursor SET seq = ? WHERE seq = ?", (read.high, read.low)).rowcount != 1:
                return False
            for one, row in zip(segments, rows, strict=True):
                db.execute(INSERT_SEGMENT, row)
                self._move("folded", one.plan, one.epoch, one.n)
            for poison in poisons:
                db.execute(INSERT_POISON, poison_row(poison))
                self._move("quarantined", poison.group.plan, poison.group.epoch, poison.group.n)
            db.execute("DELETE FROM log WHERE seq <= ?", (read.high,))
            self._wait_on()
        return True
