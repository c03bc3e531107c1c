"""A SQLite store at work: it is made and opened, uploads go in, are folded and forgotten, and everything is read.

Everything is in one file, as one shard, and each effect is one transaction.

A reader of a file in WAL mode needs a `-wal` and a `-shm` beside it, or the right to make them. A directory that nobody
may write to, such as a snapshot that is mounted, has three cases:

    both are there          SQLite reads both
    the first holds nothing everything is in the file, which is read as `immutable`, without locks
    the second is missing   SQLite could read the file alone, and would leave out what only the first holds: refused

`immutable` promises that nobody else writes to the file either. So it is looked at again after each reading.
"""

import os
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, timedelta
from heapq import nlargest
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from dither_aggregator.health.capacity import FreeSpace, Trouble
from dither_aggregator.store.contract import (
    DEDUPE,
    DEDUPE_DAYS_MIN,
    READ_BYTES_MAX,
    READ_UPLOADS_MAX,
    READINGS_BYTES_MAX,
    REFUSED_DAYS,
    Prepared,
    Store,
    with_pending,
)
from dither_aggregator.store.document_kinds import Document
from dither_aggregator.store.documents import News, misplaced
from dither_aggregator.store.dump import Identity
from dither_aggregator.store.records import (
    HOUR_S,
    Batch,
    Counted,
    Final,
    KeptReading,
    LogEntry,
    LogGroup,
    LogRead,
    OtherLayout,
    Poison,
    RefusedCount,
    RefusedKey,
    Segment,
    ShardStatus,
    StoreError,
    StoreUnavailable,
    TallyKey,
    Unmerged,
    check_size,
    count_pending,
    day_at,
    day_number,
    day_of,
    entry_day,
    pack_entry,
    pack_groups,
    sum_refused,
    unpack_entry,
)
from dither_aggregator.store.sqlite import schema
from dither_aggregator.store.sqlite.schema import FILE_NAME, describe_error, keep
from dither_shared.files import make_file
from dither_shared.safe_output import visible

CACHE_KIB = 16_384
BUSY_S = 30
CHECKPOINT_PAGES = 8_192
"""Pages of the write-ahead log: 32 MiB. Reports that are folded by then are never written to the file itself."""
SORT_ROWS = 10_000
"""So many uploads are moved by one transaction: others wait for it."""
ROWS_AT_ONCE = 500
SEEN_AT_ONCE = 256
"""Uploads that one statement looks for."""

INSERT_SEGMENT = "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?)"
INSERT_POISON = "INSERT INTO quarantine (plan, cell, epoch, n, reason, reports) VALUES (?, ?, ?, ?, ?, ?)"
SELECT_LEDGER = "SELECT plan, epoch, accepted, folded, quarantined, dropped FROM ledger"
SEGMENTS = "(SELECT * FROM segment UNION ALL SELECT * FROM tally)"
_UNMERGED = """
SELECT DISTINCT plan, epoch, whole.low, whole.high FROM segment JOIN
(SELECT epoch, MIN(low) AS low, MAX(high) AS high FROM segment WHERE epoch <= ? GROUP BY epoch) AS whole USING (epoch)
WHERE segment.low > whole.low OR segment.high < whole.high
"""
"""Two segments of an epoch are each shorter than all of it: this finds both of them, and one that is too short."""
_COUNT_REFUSED = """
INSERT INTO refused VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day, metric, reason) DO UPDATE SET groups = groups + excluded.groups, reports = reports + excluded.reports
"""


class SQLiteData(Store):
    """A store in a directory. Each thread has its own connection, until `close`."""

    kind = "SQLite"
    layout = schema.VERSION
    id_bytes = 33
    shards = 1

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        *,
        read_only: bool = False,
        unfinished: bool = False,
        moved: bool = False,
    ) -> None:
        super().__init__(clock)
        self._path = directory / FILE_NAME
        self._read_only = read_only
        self._immutable: tuple[int, int] | None = None
        """The file's state when it was first read as one that nobody writes to."""
        self._counted_ids: dict[str, int] = {}
        """The ids of days in order, by their tables."""
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        try:
            if not self._path.exists():
                raise StoreError(f"{directory} holds no store; `dither serve REGISTRY --data {directory}` makes one")
            if not read_only:
                keep(directory)
            self._file = _file_id(self._path)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be used: {describe_error(error)}") from None
        try:
            self._open(unfinished, moved)
        except BaseException as error:
            self.close()
            if isinstance(error, OtherLayout):
                error.args = (f"{self._path} cannot be used: {error}",)
                raise
            if not isinstance(error, OSError | sqlite3.Error | StoreError):
                raise
            raise StoreError(f"{self._path} cannot be used: {describe_error(error)}") from None

    @classmethod
    def create(
        cls, directory: Path, app: str, clock: Callable[[], float] = time.time, *, unfinished: bool = False
    ) -> Self:
        """Make the store of an app in a directory, and open it; `unfinished` until it is restored."""
        path = directory / FILE_NAME
        today = day_at(clock())
        state = {
            **vars(Identity.drawn(app)),
            "tallies_from": date.min.isoformat(),
            "day": today.isoformat(),
            "sealed": (today - timedelta(days=1)).isoformat(),
            "unfinished": int(unfinished),
        }
        try:
            keep(directory)
            make_file(path)
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                db.execute("BEGIN IMMEDIATE")
                if db.execute("PRAGMA user_version").fetchone() != (0,):
                    raise StoreError(f"{directory} holds a store already: name a new directory")
                schema.create(db, state)
                db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be used: {describe_error(error)}") from None
        return cls(directory, clock, unfinished=unfinished)

    @classmethod
    def open_or_create(cls, directory: Path, app: str, clock: Callable[[], float] = time.time) -> Self:
        """Open the store in a directory, made for an app if there is none."""
        path = directory / FILE_NAME
        # A file of no bytes is left where making a store was cut off.
        made = path.exists() and path.stat().st_size
        return cls(directory, clock) if made else cls.create(directory, app, clock)

    def _open(self, unfinished: bool, moved: bool) -> None:
        if self._read_only:
            version = schema.version_of(self._db)
            if version != schema.VERSION:
                raise OtherLayout(
                    f"it has version {version}; this dither reads {schema.VERSION}: `dither serve` brings it to that",
                    newer=False,
                    serve_brings=f"layout {version} to {schema.VERSION}",
                )
        else:
            # By one that cannot write: closing another would write the log of a newer store into its file.
            with closing(self._connect_as("mode=ro")) as reader:
                schema.version_of(reader)
            with self._transaction() as db:
                schema.migrate(db)
        state = self._states()
        if state.get("unfinished") and not unfinished:
            raise StoreError("it was not filled to its end; make it again")
        self.moved_to: str = state.get("moved_to", "")
        if self.moved_to and not moved:
            raise StoreError(f"it was copied to the store {self.moved_to}, which goes on in its place: name that one")
        self.app = state["app"]
        self.generation = state["generation"]
        self._digest_key, self._secret = state["digest_key"], state["secret"]
        self.refresh()

    def finish(self) -> None:
        """Make the store usable."""
        with self._transaction() as db:
            set_state(db, "unfinished", 0)

    # Each thread has a connection.

    @property
    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
            self._connections.append(db)
        return db

    def _connect(self) -> sqlite3.Connection:
        if self._read_only:
            return self._connect_to_read()
        db = self._connect_as("mode=rw")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        # A commit that has returned is on the disk: only then is an upload acknowledged.
        db.execute("PRAGMA synchronous = FULL")
        # Deleted rows are overwritten: see moving.py. Some builds of SQLite do this by default, others do not.
        db.execute("PRAGMA secure_delete = ON")
        return db

    def _connect_as(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?{mode}"
        # Used by one thread; closed by the one that closes the store.
        db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
        try:
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # which reads the file
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _connect_to_read(self) -> sqlite3.Connection:
        try:
            return self._connect_as("mode=ro")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN or os.access(self._path.parent, os.W_OK):
                raise
        self._check_write_ahead_log()
        self._immutable = self._immutable or _content_id(self._path)
        return self._connect_as("mode=ro&immutable=1")

    def _check_write_ahead_log(self) -> None:
        """Raise StoreError when the file that cannot be written is not all there is."""
        log = self._path.with_name(f"{FILE_NAME}-wal")
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"{log.name} holds commits that {FILE_NAME} lacks, and cannot be read without {FILE_NAME}-shm where "
                f"nothing can be written. Copy the directory to where it can, and run this on the copy: "
                f"cp -r {self._path.parent} COPY"
            )

    def _check_immutable(self) -> None:
        """Raise StoreUnavailable when somebody has written to a file that was read as if nobody did."""
        if self._immutable and self._immutable != _content_id(self._path):
            raise StoreUnavailable(f"{self._path} was changed while it was read: somebody can write it; try again")

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
            raise StoreError(f"{self._path} cannot be used: {describe_error(error)}") from None
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be written: {describe_error(error)}") from None

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
                self._check_immutable()
            finally:
                if outermost and db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be read: {describe_error(error)}") from None

    def _rows(self, query: str, *values: object) -> list[Any]:
        try:
            rows = self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path} cannot be read: {describe_error(error)}") from None
        self._check_immutable()
        return rows

    def _replaced(self) -> bool:
        """Whether the file in its place is no more the one that was opened."""
        try:
            return _file_id(self._path) != self._file
        except OSError:
            return True

    # The rows of `state`.

    def _states(self) -> dict[str, Any]:
        return dict(self._rows("SELECT key, value FROM state"))

    def _state(self, key: str, otherwise: Any = None) -> Any:
        rows = self._rows("SELECT value FROM state WHERE key = ?", key)
        return rows[0][0] if rows else otherwise

    # Appending.

    def _append(self, prepared: Sequence[Prepared]) -> list[bytes | None]:
        with self._transaction() as db:
            now = self._now_s()
            today = self._advance_day(db, day_at(now))
            known = _known(db, [item.id for item in prepared])
            before: list[bytes | None] = []
            fresh: list[Prepared] = []
            refused: list[Mapping[tuple[str, str], RefusedCount]] = []
            for item in prepared:
                body = known.get(item.id)
                before.append(body)
                if body is None and item.groups:
                    fresh.append(item)
                    known[item.id] = item.body
                if body is None and item.refused:
                    refused.append(item.refused)
            if fresh:
                _begin_to_wait(db, now)
                self._write_log(db, today, fresh)
            if refused:
                count_refused(db, {RefusedKey(today, *reason): one for reason, one in sum_refused(refused).items()})
        return before

    def _advance_day(self, db: sqlite3.Connection, clock_day: date) -> date:
        """Return the day that an upload counts on now, and remember that it was used."""
        (day,) = db.execute("SELECT value FROM state WHERE key = 'day'").fetchone()
        today = max(clock_day, date.fromisoformat(day))
        set_state(db, "day", today.isoformat())
        return today

    def _write_log(self, db: sqlite3.Connection, today: date, fresh: Collection[Prepared]) -> None:
        """Enter uploads that are new, in their order."""
        head = pack_entry(day_number(today), b"")
        ids = schema.make_ids(db, "seen", day_number(today))
        db.executemany(f"INSERT INTO {ids} VALUES (?, ?)", [(item.id, item.body) for item in fresh])  # noqa: S608
        db.executemany("INSERT INTO log (entry) VALUES (?)", [(head + item.groups,) for item in fresh])
        counts: dict[int, int] = {}
        for item in fresh:
            for plan, n in item.counts:
                counts[plan] = counts.get(plan, 0) + n
        _enter(db, today, counts)

    # Folding.

    def read_log(self, shard: int) -> LogRead:
        """Return the oldest rows of the log."""
        with self._instant() as db:
            (low,) = db.execute("SELECT seq FROM cursor").fetchone()
            high, size = low, 0
            entries: list[bytes] = []
            rows = db.execute("SELECT seq, entry FROM log WHERE seq > ? ORDER BY seq LIMIT ?", (low, READ_UPLOADS_MAX))
            for seq, entry in rows:
                if seq != high + 1:
                    raise StoreError(f"{self._path}: the log goes from {high} to {seq}")
                entries.append(entry)
                high = seq
                size += len(entry)
                if size >= READ_BYTES_MAX:
                    break
        return LogRead(low, high, [group for entry in entries for group in unpack_entry(entry)])

    def commit_fold(self, shard: int, read: LogRead, segments: Sequence[Segment], poisons: Sequence[Poison]) -> bool:
        """Store a fold in one transaction."""
        with self._transaction() as db:
            now = self._now_s()
            if db.execute("UPDATE cursor SET seq = ? WHERE seq = ?", (read.high, read.low)).rowcount != 1:
                return False
            for one in segments:
                db.execute(INSERT_SEGMENT, segment_row(one))
                self._move(db, "folded", one.plan, one.epoch, one.n)
            for poison in poisons:
                self._set_in_quarantine(db, poison)
            db.execute("DELETE FROM log WHERE seq <= ?", (read.high,))
            _wait_on(db, now)
        return True

    def _set_in_quarantine(self, db: sqlite3.Connection, poison: Poison) -> None:
        db.execute(INSERT_POISON, poison_row(poison))
        self._move(db, "quarantined", poison.group.plan, poison.group.epoch, poison.group.n)

    def _move(self, db: sqlite3.Connection, column: str, plan: int, epoch: date, n: int) -> None:
        """Add to a column of the ledger."""
        db.execute(
            f"UPDATE ledger SET {column} = {column} + ? WHERE plan = ? AND epoch = ?",  # noqa: S608 - our own words
            (n, plan, epoch.isoformat()),
        )

    # Tallies: a row a segment, in a table of its own once its day is merged.

    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return the segments of a tally."""
        size = self.plan_by_id(plan).plan.cells.tally_size
        of_tally = f"SELECT low, high, n, counts FROM {SEGMENTS} WHERE plan = ? AND epoch = ? ORDER BY low"  # noqa: S608
        return [segment_of(plan, epoch, row, size) for row in self._rows(of_tally, plan, epoch.isoformat())]

    def all_segments(self, plan: int, epochs: Sequence[date]) -> Iterator[Segment]:
        """Yield the segments of some tallies, from one query for ROWS_AT_ONCE of these."""
        size = self.plan_by_id(plan).plan.cells.tally_size
        days = [epoch.isoformat() for epoch in epochs]
        for first in range(0, len(days), ROWS_AT_ONCE):
            some = days[first : first + ROWS_AT_ONCE]
            among = f"plan = ? AND epoch IN ({', '.join('?' * len(some))})"
            query = f"SELECT epoch, low, high, n, counts FROM {SEGMENTS} WHERE {among} ORDER BY epoch, low"  # noqa: S608
            for epoch, *row in self._rows(query, plan, *some):
                yield segment_of(plan, date.fromisoformat(epoch), (row[0], row[1], row[2], row[3]), size)

    def crowded(self, shard: int, segments: int) -> list[TallyKey]:
        """Return the plans and epochs that have at least so many segments."""
        rows = self._rows("SELECT plan, epoch FROM segment GROUP BY plan, epoch HAVING COUNT(*) >= ?", segments)
        return [(plan, date.fromisoformat(epoch)) for plan, epoch in rows]

    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally."""
        first_ones = (new.plan, new.epoch.isoformat(), old[-1].high)
        with self._transaction() as db:
            rows = db.execute(
                "SELECT low, high FROM segment WHERE plan = ? AND epoch = ? AND high <= ? ORDER BY low", first_ones
            ).fetchall()
            if rows != [(one.low, one.high) for one in old]:
                return False
            db.execute("DELETE FROM segment WHERE plan = ? AND epoch = ? AND high <= ?", first_ones)
            db.execute(INSERT_SEGMENT, segment_row(new))
        return True

    # Days.

    def set_clock_offset(self, seconds: float) -> None:
        """Move the clock of every process that uses this file."""
        with self._transaction() as db:
            set_state(db, "clock_offset_s", seconds)
        self.refresh()

    def seal(self, shard: int) -> date:
        """Close what is over in one transaction."""
        with self._transaction() as db:
            today = self._advance_day(db, self.clock_day())
            row = db.execute("SELECT entry FROM log ORDER BY seq LIMIT 1").fetchone()
            open_from = min(today, entry_day(row[0])) if row else today
            sealed = max(date.fromisoformat(self._state("sealed")), open_from - timedelta(days=1))
            set_state(db, "sealed", sealed.isoformat())
        return sealed

    def note_merged(self, shard: int) -> list[Unmerged]:
        """Move the sealed days into the table of those that are merged, if they are."""
        state = self._states()
        if state.get("merged") == state["sealed"]:
            return []
        with self._transaction() as db:
            sealed = self._state("sealed")
            rows = db.execute(_UNMERGED, (sealed,)).fetchall()
            if not rows:
                db.execute("INSERT INTO tally SELECT * FROM segment WHERE epoch <= ?", (sealed,))
                db.execute("DELETE FROM segment WHERE epoch <= ?", (sealed,))
                rewrite(db, "segment")
                set_state(db, "merged", sealed)
        return [Unmerged(plan, date.fromisoformat(epoch), low, high) for plan, epoch, low, high in rows]

    def _finals(self, plan: int, first: date = date.min, last: date = date.max) -> dict[date, Final]:
        some = "SELECT epoch, digest, snapshot FROM final WHERE plan = ? AND epoch BETWEEN ? AND ?"
        rows = self._rows(some, plan, first.isoformat(), last.isoformat())
        return {date.fromisoformat(epoch): Final(digest, snapshot) for epoch, digest, snapshot in rows}

    def all_finals(self) -> set[TallyKey]:
        """Return the plans and epochs that are finalized."""
        return {(plan, date.fromisoformat(epoch)) for plan, epoch in self._rows("SELECT plan, epoch FROM final")}

    def _finalize(self, plan: int, epoch: date, final: Final, snapshot: bytes | None) -> Final:
        day = epoch.isoformat()
        with self._transaction() as db:
            of_day = "SELECT digest, snapshot FROM final WHERE plan = ? AND epoch = ?"
            if row := db.execute(of_day, (plan, day)).fetchone():
                return Final(*row)
            db.execute("INSERT INTO final VALUES (?, ?, ?, ?)", (plan, day, final.digest, final.snapshot))
            if snapshot is not None:
                db.execute("INSERT OR IGNORE INTO snapshot VALUES (?, ?, ?)", (final.snapshot, day, snapshot))
        return final

    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content."""
        rows = self._rows("SELECT content FROM snapshot WHERE id = ?", id_)
        return rows[0][0] if rows else None

    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept."""
        return date.fromisoformat(self._state("tallies_from"))

    def sort_ids(self, shard: int) -> None:
        """Move the ids of sealed days, some at a time, into tables that are filled in their order."""
        sealed = day_number(date.fromisoformat(self._state("sealed")))
        with self._instant() as db:
            unsorted = [day for day, table in schema.days_of_ids(db) if day <= sealed and table.startswith("seen")]
        for day in unsorted:
            moved = SORT_ROWS
            while moved == SORT_ROWS:
                with self._transaction() as db:
                    moved = _sort_some(db, day)

    def ids(self) -> dict[date, int]:
        """Count the rows of each day: once, of a day that is in order, since nothing enters it any more."""
        ids: dict[date, int] = {}
        with self._instant() as db:
            tables = schema.days_of_ids(db)
            days = Counter(day for day, _ in tables)
            for day, table in tables:
                n = self._counted_ids.get(table)
                if n is None:
                    ((n,),) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchall()  # noqa: S608 - our own words
                if table.startswith("taken") and days[day] == 1:
                    self._counted_ids[table] = n
                ids[day_of(day)] = ids.get(day_of(day), 0) + n
        return ids

    def forget(self, shard: int) -> None:
        """Forget old ids and counts, and old tallies that are finalized."""
        days = self.retention().tallies_days
        with self._transaction() as db:
            today = self._advance_day(db, self.clock_day())
            remembered = schema.days_of_ids(db)
            last = nlargest(DEDUPE_DAYS_MIN, {day for day, _ in remembered})
            for day, table in remembered:
                if day < day_number(today - DEDUPE) and day not in last:
                    db.execute(f"DROP TABLE {table}")
            if schema.has_table(db, "refused"):
                db.execute("DELETE FROM refused WHERE day <= ?", ((today - timedelta(days=REFUSED_DAYS)).isoformat(),))
            if days is not None:
                first = max(self._state("tallies_from"), (today - timedelta(days=days)).isoformat())
                for table in ("segment", "tally"):
                    db.execute(
                        f"DELETE FROM {table} AS given WHERE epoch < ? AND EXISTS "  # noqa: S608 - our own words
                        "(SELECT 1 FROM final WHERE final.plan = given.plan AND final.epoch = given.epoch)",
                        (first,),
                    )
                if schema.has_table(db, "reading"):
                    db.execute("DELETE FROM reading WHERE first < ?", (first,))
                set_state(db, "tallies_from", first)

    def _forget_snapshots(self, first: date) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM snapshot WHERE epoch < ?", (first.isoformat(),))

    # The ledger: a row a plan and epoch, without what is pending.

    def shard_ledger(self, shard: int) -> dict[TallyKey, Counted]:
        """Return the ledger with what is pending, at one instant."""
        with self._instant() as db:
            pending = count_pending(entry for (entry,) in db.execute("SELECT entry FROM log"))
            rows = db.execute(SELECT_LEDGER).fetchall()
        return with_pending(dict(ledger_of(*row) for row in rows), pending)

    def _epochs(self, plans: Sequence[int], first: date = date.min, last: date = date.max) -> dict[int, list[date]]:
        one = "plan = ? AND" if len(plans) == 1 else ""
        some = f"{one} epoch BETWEEN ? AND ? AND accepted > 0"
        query = f"SELECT plan, epoch FROM ledger WHERE {some} ORDER BY plan, epoch DESC"  # noqa: S608 - our own words
        rows = self._rows(query, *(plans if one else ()), first.isoformat(), last.isoformat())
        return {
            plan: [date.fromisoformat(epoch) for _, epoch in of_plan] for plan, of_plan in groupby(rows, itemgetter(0))
        }

    def refused(self, first: date, last: date) -> dict[RefusedKey, RefusedCount]:
        """Return the rows of some days."""
        with self._instant() as db:
            return refused_in(db, first, last)

    # The quarantine: a row a group.

    def _quarantine(self) -> Iterator[tuple[int, int, Poison]]:
        rows = self._rows("SELECT id, plan, cell, epoch, n, reason, reports FROM quarantine ORDER BY id")
        return ((0, number, poison_of(*row)) for number, *row in rows)

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
                self._set_in_quarantine(db, poison)
            _wait_on(db, self._now_s())
        return True

    def _replay(self, shard: int, number: int) -> bool:
        with self._transaction() as db:
            group = _take(db, number)
            if group is None:
                return False
            plan, cell, epoch, n, reports = group
            today = self._advance_day(db, self.clock_day())
            self._move(db, "quarantined", plan, epoch, -n)
            self._move(db, "accepted", plan, epoch, -n)
            _enter(db, today, {plan: n})
            _begin_to_wait(db, self._now_s())
            entry = pack_entry(day_number(today), pack_groups([(plan, cell, n, reports)]))
            db.execute("INSERT INTO log (entry) VALUES (?)", (entry,))
        return True

    def _drop(self, shard: int, number: int) -> bool:
        with self._transaction() as db:
            group = _take(db, number)
            if group is not None:
                self._move(db, "dropped", group.plan, group.epoch, group.n)
        return group is not None

    # Batches: a row a batch.

    def batches(self) -> tuple[int | None, list[Batch]]:
        """Return the hour of the last cut, and all batches."""
        with self._instant() as db:
            return batches_in(db)

    def _keep_batches(self, last: int | None, hour: int, batches: Collection[Batch]) -> None:
        with self._transaction() as db:
            if self._state("batches_hour") == last:
                set_state(db, "batches_hour", hour)
                put_batches(db, batches)

    def batch_keys(self) -> tuple[int | None, dict[TallyKey, bool]]:
        """Return the hour of the last cut, and of what there are batches."""
        with self._instant() as db:
            hour = self._state("batches_hour")
            if not schema.has_table(db, "batch"):
                return hour, {}
            rows = db.execute("SELECT plan, epoch, MAX(shown) FROM batch GROUP BY plan, epoch").fetchall()
        return hour, {(plan, date.fromisoformat(epoch)): bool(shown) for plan, epoch, shown in rows}

    # Kept readings: a row a reading.

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
        """Keep entries, and let go of those that were made first beyond READINGS_BYTES_MAX, in one transaction."""
        with self._transaction() as db:
            schema.make(db, schema.READINGS)
            kept_from = self.tallies_from()
            rows = [
                (one.key, one.first.isoformat(), one.open, len(one.content), one.content)
                for one in entries
                if one.first >= kept_from
            ]
            db.executemany(
                "INSERT OR REPLACE INTO reading (key, first, open, size, content) VALUES (?, ?, ?, ?, ?)", rows
            )
            (size,) = db.execute("SELECT SUM(size) FROM reading").fetchone()
            while (size or 0) > READINGS_BYTES_MAX:
                seq, bytes_ = db.execute("SELECT seq, size FROM reading ORDER BY seq LIMIT 1").fetchone()
                db.execute("DELETE FROM reading WHERE seq = ?", (seq,))
                size -= bytes_

    # Documents: a row each, of whichever kind.

    def _changes(self, versions: Mapping[str, int]) -> News:
        changed: dict[str, tuple[int, list[str]]] = {}
        with self._instant() as db:
            state = self._states()
            for kind, known in versions.items():
                version = state.get(f"{kind}_version", 0)
                if version != known:
                    rows = db.execute("SELECT text FROM document WHERE kind = ?", (kind,))
                    changed[kind] = version, [text for (text,) in rows]
        return News(float(state.get("clock_offset_s", 0.0)), changed)

    def _save(self, kind: type[Document], put: Iterable[Document], gone: Iterable[str | int], version: int) -> bool:
        name = f"{kind.kind}_version"
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO state VALUES (?, 0)", (name,))
            next_one = "UPDATE state SET value = value + 1 WHERE key = ? AND value = ?"
            if db.execute(next_one, (name, version)).rowcount != 1:
                return False
            rows = [(kind.kind, one.document_id, one.to_text()) for one in put]
            db.executemany("INSERT OR REPLACE INTO document VALUES (?, ?, ?)", rows)
            db.executemany("DELETE FROM document WHERE kind = ? AND id = ?", [(kind.kind, id_) for id_ in gone])
        return True

    def _add(self, kind: type[Document], documents: Iterable[Document]) -> None:
        with self._transaction() as db:
            last_one = "SELECT COALESCE(MAX(id), 0) FROM document WHERE kind = ?"
            (last,) = db.execute(last_one, (kind.kind,)).fetchone()
            rows = [(kind.kind, number, one.to_text()) for number, one in enumerate(documents, last + 1)]
            db.executemany("INSERT INTO document VALUES (?, ?, ?)", rows)
            if kind.most is not None:
                oldest = kind.kind, last + len(rows) - kind.most
                db.execute("DELETE FROM document WHERE kind = ? AND id <= ?", oldest)

    def _last(self, kind: type[Document], number: int) -> list[str]:
        some = "SELECT text FROM document WHERE kind = ? ORDER BY id DESC LIMIT ?"
        return [text for (text,) in reversed(self._rows(some, kind.kind, number))]

    # How it is.

    def _read_status(self) -> list[ShardStatus]:
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
                merged=date.fromisoformat(state.get("merged", date.min.isoformat())),
                waiting_s=max(0.0, self._now_s() - state.get("waiting_since", 0.0)) if backlog else 0.0,
            )
        ]

    def left(self) -> FreeSpace | None:
        """Return what is left of the directory's disk, for those who are not root."""
        disk = shutil.disk_usage(self._path.parent)
        return FreeSpace("disk", disk.free, disk.total)

    def _trouble(self) -> dict[Trouble, str]:
        return {Trouble.STORE: f"{self._path} is not the file that was opened"} if self._replaced() else {}

    def integrity(self) -> list[str]:
        """Return what SQLite finds wrong with its file, and what is not where it must be."""
        wrong = [f"file: {text}" for (text,) in self._rows("PRAGMA integrity_check") if text != "ok"]
        with self._instant() as db:
            kept: dict[str, list[tuple[object, str]]] = {}
            for kind, id_, text in db.execute("SELECT kind, id, text FROM document"):
                kept.setdefault(kind, []).append((id_, text))
            ((cursor,),) = db.execute("SELECT seq FROM cursor").fetchall()
            (given,) = db.execute("SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'log'").fetchone()
            first, last, number = db.execute("SELECT MIN(seq), MAX(seq), COUNT(*) FROM log").fetchone()
            astray = db.execute(
                "SELECT id FROM snapshot WHERE NOT EXISTS "
                "(SELECT 1 FROM final WHERE final.snapshot = snapshot.id AND final.epoch = snapshot.epoch)"
            ).fetchall()
        wrong += [fault for kind in kept for fault in misplaced(kind, kept[kind])]
        if (first or cursor + 1, last or cursor, number) != (cursor + 1, given, given - cursor):
            wrong.append(
                f"log: {number:,} uploads wait from {first} to {last}, and should from {cursor + 1} to {given}"
            )
        return wrong + [f"snapshot {visible(id_)}: it is recorded for no such day" for (id_,) in astray]


def _file_id(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _content_id(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


# Steps within a transaction.


def set_state(db: sqlite3.Connection, key: str, value: object) -> None:
    """Set a row of `state`."""
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))


def rewrite(db: sqlite3.Connection, table: str) -> None:
    """Empty a table and fill it again, so that its pages hold nothing but its rows."""
    rows = db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own words
    db.execute(f"DELETE FROM {table}")  # noqa: S608
    if rows:
        places = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608


def _known(db: sqlite3.Connection, ids: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the bodies of those of these uploads that came before."""
    known: dict[bytes, bytes] = {}
    for _, table in schema.days_of_ids(db):
        for at in range(0, len(ids), SEEN_AT_ONCE):
            some = ids[at : at + SEEN_AT_ONCE]
            places = ", ".join("?" * len(some))
            known.update(db.execute(f"SELECT id, body FROM {table} WHERE id IN ({places})", some))  # noqa: S608
    return known


def _sort_some(db: sqlite3.Connection, day: int) -> int:
    """Move some of a day's ids to where they are in order, and drop their table behind the last; return how many."""
    there = [table for of_day, table in schema.days_of_ids(db) if (of_day, table) == (day, f"seen_{day}")]
    if not there:
        return 0  # another process did it
    name = schema.make_ids(db, "taken", day)
    some = f"SELECT id FROM seen_{day} ORDER BY id LIMIT {SORT_ROWS}"  # noqa: S608 - our own words
    db.execute(f"INSERT OR IGNORE INTO {name} SELECT * FROM seen_{day} WHERE id IN ({some}) ORDER BY id")  # noqa: S608
    moved = db.execute(f"DELETE FROM seen_{day} WHERE id IN ({some})").rowcount  # noqa: S608
    if moved < SORT_ROWS:
        db.execute(f"DROP TABLE seen_{day}")
    return moved


def _enter(db: sqlite3.Connection, epoch: date, counts: Mapping[int, int]) -> None:
    """Count reports as accepted."""
    db.executemany(
        "INSERT INTO ledger (plan, epoch, accepted) VALUES (?, ?, ?) "
        "ON CONFLICT (plan, epoch) DO UPDATE SET accepted = accepted + excluded.accepted",
        [(plan, epoch.isoformat(), n) for plan, n in counts.items()],
    )


def _begin_to_wait(db: sqlite3.Connection, now: float) -> None:
    """Before something is put into the log: note the time if nothing waits yet."""
    if not db.execute("SELECT 1 FROM log LIMIT 1").fetchone():
        set_state(db, "waiting_since", now)


def _wait_on(db: sqlite3.Connection, now: float) -> None:
    """After something left the log: note the time, to the hour if nothing waits any more."""
    waits = db.execute("SELECT 1 FROM log LIMIT 1").fetchone()
    set_state(db, "waiting_since", now if waits else now - now % HOUR_S)


def _take(db: sqlite3.Connection, number: int) -> LogGroup | None:
    """Take a group out of the quarantine."""
    row = db.execute(
        "DELETE FROM quarantine WHERE id = ? RETURNING plan, cell, epoch, n, reason, reports", (number,)
    ).fetchone()
    if row is None:
        return None
    set_state(db, "quarantine_taken", 1)  # what `_erase` asks
    return poison_of(*row).group


def count_refused(db: sqlite3.Connection, counted: Mapping[RefusedKey, RefusedCount]) -> None:
    """Add to the rows of refused groups; the table is made where there is none."""
    if counted:
        db.execute(schema.REFUSED)
        rows = [(key.day.isoformat(), key.metric, key.reason, *vars(one).values()) for key, one in counted.items()]
        db.executemany(_COUNT_REFUSED, rows)


def put_batches(db: sqlite3.Connection, batches: Collection[Batch]) -> None:
    """Empty the table whole, so that its pages hold nothing of what was there (moving.py), and fill it."""
    if batches or schema.has_table(db, "batch"):
        db.execute(schema.BATCHES)
        db.execute("DELETE FROM batch")
        rows = [(one.plan, one.epoch.isoformat(), one.shown, one.n, one.packed) for one in batches]
        db.executemany("INSERT INTO batch VALUES (?, ?, ?, ?, ?)", rows)


# Reading what may have no table yet.


def refused_in(db: sqlite3.Connection, first: date = date.min, last: date = date.max) -> dict[RefusedKey, RefusedCount]:
    """Return the refused groups of some days; none where no group was ever refused."""
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


def batches_in(db: sqlite3.Connection) -> tuple[int | None, list[Batch]]:
    """Return the hour of the last cut, and all batches."""
    row = db.execute("SELECT value FROM state WHERE key = 'batches_hour'").fetchone()
    if not (row and schema.has_table(db, "batch")):
        return row and row[0], []
    rows = db.execute("SELECT plan, epoch, shown, n, counts FROM batch ORDER BY plan, epoch, shown")
    found = [Batch(plan, date.fromisoformat(day), bool(shown), n, packed) for plan, day, shown, n, packed in rows]
    return row[0], found


# The meaning of rows: each record has one way in and one way out.


def segment_row(one: Segment) -> tuple[int, str, int, int, int, bytes]:
    """Return the row of a segment."""
    return one.plan, one.epoch.isoformat(), one.low, one.high, one.n, one.packed


def segment_of(plan: int, epoch: date, row: tuple[int, int, int, bytes], size: int) -> Segment:
    """Return the segment of `size` counts of (low, high, n, counts); raise BadTally for anything else."""
    low, high, n, packed = row
    return Segment(plan, epoch, low, high, n, check_size(packed, size))


def poison_row(poison: Poison) -> tuple[int, int, str, int, str, bytes]:
    """Return the row of a group that could not be counted, but for its number."""
    group = poison.group
    return group.plan, group.cell, group.epoch.isoformat(), group.n, poison.reason, group.reports


def poison_of(plan: int, cell: int, epoch: str, n: int, reason: str, reports: bytes) -> Poison:
    """Return the group of a row of the quarantine."""
    return Poison(LogGroup(plan, cell, date.fromisoformat(epoch), n, reports), reason)


def ledger_row(key: TallyKey, row: Counted) -> tuple[int, str, int, int, int, int]:
    """Return the row of what is kept of a plan and epoch."""
    plan, epoch = key
    return plan, epoch.isoformat(), *row.kept


def ledger_of(plan: int, epoch: str, *kept: int) -> tuple[TallyKey, Counted]:
    """Return what a row of the ledger keeps."""
    return (plan, date.fromisoformat(epoch)), Counted.from_kept(*kept)
