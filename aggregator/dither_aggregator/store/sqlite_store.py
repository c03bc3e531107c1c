"""The store for one machine: everything in one SQLite file, as one shard, every effect one transaction."""

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import date, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from dither_aggregator.counting.folding import Counts
from dither_aggregator.store import sqlite_schema
from dither_aggregator.store.dump import (
    FinalRecord,
    Identity,
    PlanRecord,
    Record,
    SeenRecord,
    ShardRecord,
    TallyRecord,
)
from dither_aggregator.store.interface import DEDUPE, DEDUPE_DAYS_MIN, READ_BYTES_MAX, READ_UPLOADS_MAX, Prepared, Store
from dither_aggregator.store.packing import (
    day_number,
    day_of,
    pack_counts,
    pack_entry,
    pack_groups,
    unpack_counts,
    unpack_entry,
)
from dither_aggregator.store.plans import Plans, StoredPlan
from dither_aggregator.store.records import (
    Final,
    LogGroup,
    LogRead,
    Poison,
    Quarantined,
    Receipt,
    Retention,
    Segment,
    ShardStatus,
    StoreError,
    StoreUnavailable,
)
from dither_shared.plan import Plan
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import Upload

FILE_NAME = "store.sqlite3"
LOCK_NAME = "lock.sqlite3"
CACHE_KIB = 16_384
CHECKPOINT_PAGES = 8_192
"""Of the write-ahead log: 32 MiB. Reports that are folded by then are never written to the file itself."""
DUMP_ROWS = 10_000
DAY_S = 86_400


class SQLiteStore(Store):
    """A store in a directory. Each thread has its own connection, until `close`."""

    shards = 1

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        *,
        read_only: bool = False,
        unfinished: bool = False,
        moved: bool = False,
    ) -> None:
        self._path = folder / FILE_NAME
        self._clock = clock
        self._read_only = read_only
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        if not self._path.exists():
            raise StoreError(f"{folder} holds no store; `dither serve REGISTRY --data {folder}` makes one")
        try:
            self._file = _file_id(self._path)
            self._open(unfinished, moved)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise StoreError(f"{self._path} cannot be used: {error}") from None
        except StoreError as error:
            self.close()
            raise StoreError(f"{self._path} cannot be used: {error}") from None

    @classmethod
    def create(
        cls, folder: Path, app: str, clock: Callable[[], float] = time.time, *, unfinished: bool = False
    ) -> "SQLiteStore":
        """Make the store of an app in a directory, and open it; `unfinished` until it is restored."""
        path = folder / FILE_NAME
        today = day_of(int(clock() // DAY_S))
        state: dict[str, object] = {
            "app": app,
            "key": secrets.token_urlsafe(24),
            "digest_key": secrets.token_bytes(32),
            "generation": secrets.token_hex(8),
            "day": today.isoformat(),
            "sealed": (today - timedelta(days=1)).isoformat(),
            "tallies_from": date.min.isoformat(),
            "plans_version": 0,
            "unfinished": int(unfinished),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                db.execute("BEGIN IMMEDIATE")
                if db.execute("PRAGMA user_version").fetchone() != (0,):
                    raise StoreError(f"{folder} holds a store already")
                sqlite_schema.create(db, state)
                db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be used: {error}") from None
        return cls(folder, clock, unfinished=unfinished)

    @classmethod
    def open_or_create(cls, folder: Path, app: str, clock: Callable[[], float] = time.time) -> "SQLiteStore":
        """Open the store in a directory, made for an app if there is none."""
        path = folder / FILE_NAME
        # A file of no bytes is left where making a store was cut off.
        made = path.exists() and path.stat().st_size
        return cls(folder, clock) if made else cls.create(folder, app, clock)

    def _open(self, unfinished: bool, moved: bool) -> None:
        if self._read_only:
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version != sqlite_schema.VERSION:
                raise StoreError(f"it has version {version}; this dither reads {sqlite_schema.VERSION}")
        else:
            with self._transaction() as db:
                sqlite_schema.migrate(db)
        state = self._states()
        if state.get("unfinished") and not unfinished:
            raise StoreError("it was not filled to its end; make it again")
        self.moved_to: str = state.get("moved_to", "")
        if self.moved_to and not moved:
            raise StoreError(f"it was copied to the store {self.moved_to}, which goes on in its place")
        self.app = state["app"]
        self.key = state["key"]
        self.generation = state["generation"]
        self._digest_key = state["digest_key"]
        self.refresh()

    # Connections, transactions, state.

    @property
    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
            self._connections.append(db)
        return db

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={'ro' if self._read_only else 'rw'}"
        # Used by one thread; closed by the one that closes the store.
        db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30, check_same_thread=False)
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if not self._read_only:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            # A commit that has returned is on the disk: only then is an upload acknowledged.
            db.execute("PRAGMA synchronous = FULL")
        return db

    def close(self) -> None:
        """Close every thread's connection."""
        while self._connections:
            self._connections.pop().close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the one right to write; commit at the end of the block, or undo all of it."""
        try:
            if _file_id(self._path) != self._file:
                raise StoreError(f"{self._path} is not the file that was opened: restart, and restore it if it is gone")
            db = self._db
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except OSError as error:
            raise StoreError(f"{self._path} cannot be used: {error}") from None
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be written: {error}") from None

    @contextmanager
    def _instant(self) -> Iterator[sqlite3.Connection]:
        """Read several things as they were at one instant."""
        try:
            db = self._db
            outermost = not db.in_transaction
            try:
                if outermost:
                    db.execute("BEGIN")
                yield db
            finally:
                if outermost and db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be read: {error}") from None

    def _rows(self, query: str, *values: object) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be read: {error}") from None

    def _states(self) -> dict[str, Any]:
        return dict(self._rows("SELECT key, value FROM state"))

    def _set_state(self, key: str, value: object) -> None:
        """Within a transaction."""
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def _day_of(self, key: str) -> date:
        ((text,),) = self._rows("SELECT value FROM state WHERE key = ?", key)
        return date.fromisoformat(text)

    # Plans and time.

    def refresh(self) -> None:
        """Take up what other processes changed."""
        with self._instant():
            state = self._states()
            self._offset_s = float(state.get("clock_offset_s", 0.0))
            if not hasattr(self, "_plans") or self._plans.version != state["plans_version"]:
                documents = self._rows("SELECT document FROM plan ORDER BY id")
                stored = [StoredPlan.from_document(json.loads(document)) for (document,) in documents]
                self._plans = Plans(stored, state["plans_version"])

    def _save_plans(self, plans: Sequence[StoredPlan], version: int) -> bool:
        with self._transaction() as db:
            moved = db.execute(
                "UPDATE state SET value = value + 1 WHERE key = 'plans_version' AND value = ?", (version,)
            )
            if moved.rowcount != 1:
                return False
            rows = [(item.id, json.dumps(item.to_document())) for item in plans]
            db.executemany("INSERT OR REPLACE INTO plan VALUES (?, ?)", rows)
        return True

    def _now_s(self) -> float:
        return self._clock() + self._offset_s

    def clock_day(self) -> date:
        """Return the day by the process's clock."""
        return day_of(int(self._now_s() // DAY_S))

    def set_clock_offset(self, seconds: float) -> None:
        """Move the clock of every process that uses this file."""
        with self._transaction():
            self._set_state("clock_offset_s", seconds)
        self.refresh()

    def _advance_day(self) -> date:
        """Within a transaction: return the day that an upload counts on now, and remember that it was used."""
        today = max(self.clock_day(), self._day_of("day"))
        self._set_state("day", today.isoformat())
        return today

    # Accepting.

    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads in one transaction."""
        prepared = [(upload, self._prepare(upload, body)) for upload, body in uploads]
        with self._transaction() as db:
            today = self._advance_day()
            if not db.execute("SELECT 1 FROM log LIMIT 1").fetchone():
                self._set_state("waiting_since", self._now_s())
            counts: dict[int, int] = {}
            answers = [self._append_one(upload, item, today, counts) for upload, item in prepared]
            self._enter(today, counts)
        return answers

    def _append_one(self, upload: Upload, item: Prepared, today: date, counts: dict[int, int]) -> Receipt | Problem:
        row = self._db.execute("SELECT answer FROM seen WHERE id = ?", (item.digest,)).fetchone()
        if row is not None:
            return self._repeated(upload, item, row[0])
        if item.groups:
            self._db.execute("INSERT INTO seen VALUES (?, ?, ?)", (item.digest, today.isoformat(), item.answer))
            self._db.execute("INSERT INTO log (entry) VALUES (?)", (pack_entry(day_number(today), item.groups),))
            for plan, n in item.counts:
                counts[plan] = counts.get(plan, 0) + n
        return item.result

    def _enter(self, epoch: date, counts: dict[int, int]) -> None:
        """Within a transaction: count reports as accepted."""
        self._db.executemany(
            "INSERT INTO ledger (plan, epoch, accepted) VALUES (?, ?, ?) "
            "ON CONFLICT (plan, epoch) DO UPDATE SET accepted = accepted + excluded.accepted",
            [(plan, epoch.isoformat(), n) for plan, n in counts.items()],
        )

    # Folding.

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
        packed = [pack_counts(one.counts) for one in segments]
        with self._transaction() as db:
            if db.execute("UPDATE cursor SET seq = ? WHERE seq = ?", (read.high, read.low)).rowcount != 1:
                return False
            for one, counts in zip(segments, packed, strict=True):
                epoch = one.epoch.isoformat()
                db.execute(
                    "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)", (one.plan, epoch, one.low, one.high, one.n, counts)
                )
                self._move("folded", one.plan, one.epoch, one.n)
            for group, reason in poisons:
                db.execute(
                    "INSERT INTO quarantine (plan, epoch, n, reason, reports) VALUES (?, ?, ?, ?, ?)",
                    (group.plan, group.epoch.isoformat(), group.n, reason, group.reports),
                )
                self._move("quarantined", group.plan, group.epoch, group.n)
            db.execute("DELETE FROM log WHERE seq <= ?", (read.high,))
            self._set_state("waiting_since", self._now_s())
        return True

    def _move(self, column: str, plan: int, epoch: date, n: int) -> None:
        """Within a transaction: add to a column of the ledger."""
        self._db.execute(
            f"UPDATE ledger SET {column} = {column} + ? WHERE plan = ? AND epoch = ?",  # noqa: S608 - our own words
            (n, plan, epoch.isoformat()),
        )

    def crowded(self, shard: int, segments: int) -> list[tuple[int, date]]:
        """Return the plans and epochs that have at least so many segments."""
        rows = self._rows("SELECT plan, epoch FROM segment GROUP BY plan, epoch HAVING COUNT(*) >= ?", segments)
        return [(plan, date.fromisoformat(epoch)) for plan, epoch in rows]

    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally."""
        epoch, high = new.epoch.isoformat(), old[-1].high
        packed = pack_counts(new.counts)
        with self._transaction() as db:
            rows = db.execute(
                "SELECT low, high FROM segment WHERE plan = ? AND epoch = ? AND high <= ? ORDER BY low",
                (new.plan, epoch, high),
            ).fetchall()
            if rows != [(one.low, one.high) for one in old]:
                return False
            db.execute("DELETE FROM segment WHERE plan = ? AND epoch = ? AND high <= ?", (new.plan, epoch, high))
            db.execute(
                "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)", (new.plan, epoch, new.low, new.high, new.n, packed)
            )
        return True

    # Epochs.

    def seal(self, shard: int) -> date:
        """Close what is over in one transaction."""
        with self._transaction() as db:
            today = self._advance_day()
            row = db.execute("SELECT entry FROM log ORDER BY seq LIMIT 1").fetchone()
            open_from = min(today, next(unpack_entry(row[0])).epoch) if row else today
            sealed = max(self._day_of("sealed"), open_from - timedelta(days=1))
            self._set_state("sealed", sealed.isoformat())
        return sealed

    def finals(self, plan: Plan) -> dict[date, Final]:
        """Return what is recorded of a plan's final epochs."""
        rows = self._rows("SELECT epoch, digest, snapshot FROM final WHERE plan = ?", self._plans.get(plan).id)
        return {date.fromisoformat(epoch): Final(digest, snapshot) for epoch, digest, snapshot in rows}

    def all_finals(self) -> set[tuple[int, date]]:
        """Return the plans and epochs that are recorded as final."""
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
            db.execute("INSERT INTO final VALUES (?, ?, ?, ?)", (id_, epoch.isoformat(), final.digest, final.snapshot))
            db.execute("INSERT OR IGNORE INTO snapshot VALUES (?, ?, ?)", (final.snapshot, epoch.isoformat(), snapshot))
        return final

    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content."""
        rows = self._rows("SELECT content FROM snapshot WHERE id = ?", id_)
        return rows[0][0] if rows else None

    def retention(self) -> Retention:
        """Return for how long tallies and snapshots are kept."""
        state = self._states()
        return Retention(state.get("tallies_days"), state.get("snapshots_days"))

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

    def forget(self, shard: int) -> None:
        """Forget old ids, and old tallies that are recorded as final."""
        days = self.retention().tallies_days
        with self._transaction() as db:
            today = self._advance_day()
            db.execute("DELETE FROM seen WHERE day < ?", (min(self._seen_from(), (today - DEDUPE).isoformat()),))
            if days is not None:
                first = max(self._day_of("tallies_from"), today - timedelta(days=days))
                db.execute(
                    "DELETE FROM segment WHERE epoch < ? AND EXISTS "
                    "(SELECT 1 FROM final WHERE final.plan = segment.plan AND final.epoch = segment.epoch)",
                    (first.isoformat(),),
                )
                self._set_state("tallies_from", first.isoformat())

    def _seen_from(self) -> str:
        """Return the first of the last DEDUPE_DAYS_MIN days on which uploads were accepted."""
        day = date.max.isoformat()
        for _ in range(DEDUPE_DAYS_MIN):
            ((before,),) = self._rows("SELECT MAX(day) FROM seen WHERE day < ?", day)
            day = before or date.min.isoformat()
        return day

    def forget_snapshots(self) -> None:
        """Forget old snapshots."""
        days = self.retention().snapshots_days
        if days is not None:
            first = self.today() - timedelta(days=days)
            with self._transaction() as db:
                db.execute("DELETE FROM snapshot WHERE epoch < ?", (first.isoformat(),))

    # Reading.

    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return the segments of a tally."""
        size = self.plan_by_id(plan).plan.mechanism.shape.tally_size
        rows = self._rows(
            "SELECT low, high, n, counts FROM segment WHERE plan = ? AND epoch = ? ORDER BY low",
            plan,
            epoch.isoformat(),
        )
        return [Segment(plan, epoch, low, high, n, unpack_counts(counts, size)) for low, high, n, counts in rows]

    def epochs(self, plan: Plan) -> list[date]:
        """Return the days on which reports of the plan were accepted."""
        rows = self._rows(
            "SELECT epoch FROM ledger WHERE plan = ? AND accepted > 0 ORDER BY epoch DESC", self._plans.get(plan).id
        )
        return [date.fromisoformat(epoch) for (epoch,) in rows]

    def all_epochs(self) -> dict[int, list[date]]:
        """Return the days on which reports of each plan were accepted."""
        rows = self._rows("SELECT plan, epoch FROM ledger WHERE accepted > 0 ORDER BY plan, epoch DESC")
        return {
            plan: [date.fromisoformat(epoch) for _, epoch in of_plan] for plan, of_plan in groupby(rows, itemgetter(0))
        }

    def shard_ledger(self, shard: int) -> dict[tuple[int, date], tuple[int, int, int, int, int]]:
        """Return the ledger with what is pending, at one instant."""
        with self._instant() as db:
            pending: dict[tuple[int, date], int] = {}
            for (entry,) in db.execute("SELECT entry FROM log"):
                for group in unpack_entry(entry):
                    pending[group.plan, group.epoch] = pending.get((group.plan, group.epoch), 0) + group.n
            rows = db.execute("SELECT plan, epoch, accepted, folded, quarantined, dropped FROM ledger").fetchall()
        kept = {(plan, date.fromisoformat(epoch)): numbers for plan, epoch, *numbers in rows}
        ledger = {}
        for key in kept.keys() | pending.keys():
            accepted, folded, quarantined, dropped = kept.get(key, (0, 0, 0, 0))
            ledger[key] = (accepted, folded, pending.get(key, 0), quarantined, dropped)
        return ledger

    def status(self) -> list[ShardStatus]:
        """Return how far the one shard is."""
        with self._instant() as db:
            state = self._states()
            (cursor,) = db.execute("SELECT seq FROM cursor").fetchone()
            # Nothing is ever missing between the first and the last; counting the rows would read all of them.
            first, last = db.execute("SELECT (SELECT MIN(seq) FROM log), (SELECT MAX(seq) FROM log)").fetchone()
            backlog = last - first + 1 if first else 0
        return [
            ShardStatus(
                shard=0,
                written=max(cursor, last or 0),
                cursor=cursor,
                backlog=backlog,
                day=date.fromisoformat(state["day"]),
                clock_day=self.clock_day(),
                sealed=date.fromisoformat(state["sealed"]),
                waiting_s=max(0.0, self._now_s() - state.get("waiting_since", 0.0)) if backlog else 0.0,
            )
        ]

    def _trouble(self) -> dict[str, str]:
        try:
            same = _file_id(self._path) == self._file
        except OSError:
            same = False
        return {} if same else {"store": f"{self._path} is not the file that was opened"}

    def integrity(self) -> list[str]:
        """Return what SQLite finds wrong with its file."""
        return [f"file: {text}" for (text,) in self._rows("PRAGMA integrity_check") if text != "ok"]

    # Quarantine.

    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine."""
        rows = self._rows("SELECT id, plan, epoch, n, reason, reports FROM quarantine ORDER BY id")
        return [
            Quarantined(f"0-{number}", plan, date.fromisoformat(epoch), n, reason, reports)
            for number, plan, epoch, n, reason, reports in rows
        ]

    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log."""
        with self._transaction() as db:
            row = self._take(id_)
            if row is None:
                return False
            plan, epoch, n, reports = row
            today = self._advance_day()
            self._move("quarantined", plan, epoch, -n)
            self._move("accepted", plan, epoch, -n)
            self._enter(today, {plan: n})
            if not db.execute("SELECT 1 FROM log LIMIT 1").fetchone():
                self._set_state("waiting_since", self._now_s())
            entry = pack_entry(day_number(today), pack_groups([(plan, n, reports)]))
            db.execute("INSERT INTO log (entry) VALUES (?)", (entry,))
        return True

    def drop(self, id_: str) -> bool:
        """Give a quarantined group up."""
        with self._transaction():
            row = self._take(id_)
            if row is not None:
                plan, epoch, n, _ = row
                self._move("dropped", plan, epoch, n)
        return row is not None

    def _take(self, id_: str) -> tuple[int, date, int, bytes] | None:
        """Within a transaction: take a group out of the quarantine."""
        shard, _, number = id_.partition("-")
        if shard != "0" or not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        row = self._db.execute(
            "DELETE FROM quarantine WHERE id = ? RETURNING plan, epoch, n, reports", (int(number),)
        ).fetchone()
        return (row[0], date.fromisoformat(row[1]), row[2], row[3]) if row else None

    # The whole.

    def dump(self) -> Iterator[Record]:
        """Yield everything, as it is at one instant."""
        with closing(self._connect()) as db:
            db.execute("BEGIN")
            state = dict(db.execute("SELECT key, value FROM state"))
            yield Identity(
                state["app"],
                state["key"],
                state["digest_key"],
                state["generation"],
                Retention(state.get("tallies_days"), state.get("snapshots_days")),
                date.fromisoformat(state["tallies_from"]),
            )
            for (document,) in db.execute("SELECT document FROM plan ORDER BY id"):
                yield PlanRecord(json.loads(document))
            (cursor,) = db.execute("SELECT seq FROM cursor").fetchone()
            yield ShardRecord(
                shard=0,
                day=date.fromisoformat(state["day"]),
                sealed=date.fromisoformat(state["sealed"]),
                cursor=cursor,
                entries=tuple(entry for (entry,) in db.execute("SELECT entry FROM log ORDER BY seq")),
                ledger={
                    (plan, date.fromisoformat(epoch)): tuple(numbers)
                    for plan, epoch, *numbers in db.execute(
                        "SELECT plan, epoch, accepted, folded, quarantined, dropped FROM ledger"
                    )
                },
                quarantine=tuple(
                    (plan, date.fromisoformat(epoch), n, reason, reports)
                    for plan, epoch, n, reason, reports in db.execute(
                        "SELECT plan, epoch, n, reason, reports FROM quarantine ORDER BY id"
                    )
                ),
            )
            rows = db.execute("SELECT day, id, answer FROM seen ORDER BY day")
            while batch := rows.fetchmany(DUMP_ROWS):
                for day, of_day in groupby(batch, key=itemgetter(0)):
                    yield SeenRecord(date.fromisoformat(day), {id_: answer for _, id_, answer in of_day})
            rows = db.execute("SELECT plan, epoch, n, counts FROM segment ORDER BY plan, epoch")
            for (plan, epoch), of_tally in groupby(rows, key=itemgetter(0, 1)):
                n, counts = self._sum_packed(plan, of_tally)
                yield TallyRecord(0, plan, date.fromisoformat(epoch), n, pack_counts(counts))
            rows = db.execute(
                "SELECT plan, final.epoch, digest, final.snapshot, content FROM final "
                "LEFT JOIN snapshot ON snapshot.id = final.snapshot ORDER BY plan, final.epoch"
            )
            for plan, epoch, digest, id_, content in rows:
                yield FinalRecord(plan, date.fromisoformat(epoch), Final(digest, id_), content)

    def _sum_packed(self, plan: int, rows: Iterable[tuple[int, str, int, bytes]]) -> tuple[int, Counts]:
        size = self.plan_by_id(plan).plan.mechanism.shape.tally_size
        total, counts = 0, np.zeros(size, dtype=np.int64)
        for _, _, n, packed in rows:
            total += n
            counts += unpack_counts(packed, size)
        return total, counts

    def fill_identity(self, identity: Identity) -> None:
        """Take over what devices and copies of uploads are recognised by."""
        with self._transaction():
            for key in ("app", "key", "digest_key"):
                self._set_state(key, getattr(identity, key))
            self._set_state("tallies_from", identity.tallies_from.isoformat())
        self.set_retention(identity.retention)
        self.app, self.key, self._digest_key = identity.app, identity.key, identity.digest_key

    def fill_seen(self, record: SeenRecord) -> None:
        """Remember answered uploads."""
        with self._transaction() as db:
            rows = [(id_, record.day.isoformat(), answer) for id_, answer in record.answers.items()]
            db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", rows)

    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments."""
        rows = [
            (one.plan, one.epoch.isoformat(), one.low, one.high, one.n, pack_counts(one.counts)) for one in segments
        ]
        with self._transaction() as db:
            db.executemany("INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)", rows)

    def fill_shard(self, record: ShardRecord) -> None:
        """Set days, cursor, log, ledger and quarantine."""
        with self._transaction() as db:
            self._set_state("day", record.day.isoformat())
            self._set_state("sealed", record.sealed.isoformat())
            self._set_state("waiting_since", self._now_s())
            db.execute("UPDATE cursor SET seq = ?", (record.cursor,))
            entries = enumerate(record.entries, record.cursor + 1)
            db.execute("INSERT INTO sqlite_sequence VALUES ('log', ?)", (record.cursor,))
            db.executemany("INSERT INTO log (seq, entry) VALUES (?, ?)", entries)
            ledger = [(plan, epoch.isoformat(), *numbers) for (plan, epoch), numbers in record.ledger.items()]
            db.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", ledger)
            db.executemany(
                "INSERT INTO quarantine (plan, epoch, n, reason, reports) VALUES (?, ?, ?, ?, ?)",
                [
                    (plan, epoch.isoformat(), n, reason, reports)
                    for plan, epoch, n, reason, reports in record.quarantine
                ],
            )

    def fill_final(self, record: FinalRecord) -> None:
        """Add what is recorded of a final epoch."""
        epoch = record.epoch.isoformat()
        with self._transaction() as db:
            db.execute(
                "INSERT INTO final VALUES (?, ?, ?, ?)",
                (record.plan, epoch, record.final.digest, record.final.snapshot),
            )
            if record.snapshot is not None:
                db.execute(
                    "INSERT OR IGNORE INTO snapshot VALUES (?, ?, ?)", (record.final.snapshot, epoch, record.snapshot)
                )

    def finish(self) -> None:
        """Make the store usable."""
        with self._transaction():
            self._set_state("unfinished", 0)

    def mark_moved(self, to: str) -> None:
        """Refuse from now on: another store goes on in the place of this one."""
        with self._transaction():
            self._set_state("moved_to", to)


def _file_id(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a data directory for one serving process; raise StoreError when another one has it.

    The lock is SQLite's own on a file of its own: it works wherever the store does, and ends with the process.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / LOCK_NAME).touch(mode=0o600)
            lock = sqlite3.connect(folder / LOCK_NAME, isolation_level=None, timeout=0)
            held.enter_context(closing(lock))
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreError(f"{folder} is being served already: stop that process or use another --data") from None
            raise StoreError(f"{folder} cannot be used: {error}") from None
        except sqlite3.Error as error:
            raise StoreError(f"{folder} cannot be used: {error}") from None
        except OSError as error:
            raise StoreError(f"{folder} cannot be used: {error.strerror}") from None
        yield
