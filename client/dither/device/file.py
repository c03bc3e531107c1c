"""The device's SQLite file: its transactions, its log, its days, and what is known of it without another look."""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dither.device.connected import BRIEF_WAIT_S, DURABLE_WAIT_S, WAIT_S, Connected, DeviceBusy, undo
from dither.device.schema import FILE_NAME, check_version, empty, version_of
from dither_shared.files import StrPath

DAY_S = 86_400


class DeviceFile(Connected):
    """The file in `directory`, or with None the same in memory. Threads take turns; so do processes.

    The methods under "Within a transaction" are for use there.
    """

    def __init__(
        self, directory: StrPath | None, clock: Callable[[], float] = time.time, *, create: bool = True
    ) -> None:
        super().__init__(directory, create=create)
        self.clock = clock
        self._state: dict[str, Any] | None = None  # as it was at the version `_state_at`, with what we have set since
        self._state_at = -1
        self._known: dict[str, str] = {}  # what `remember` was told, while nothing has changed
        self._answered: set[str] = set()  # and `remember_answered`
        self._lately: dict[str, str] = {}  # what `keep_lately` was told today, whatever has changed
        self._day = -1  # when the present era began
        self._only_answers = False  # whether the present transaction takes answers and does nothing else
        self._only_replaced = False  # whether it replaces a "none" and does nothing else
        self.era = 0
        """Goes up when the file may have changed by more than an answer that this connection took."""
        self.noted: Counter[str] = Counter()
        """Counts since the last transaction that wrote; the next one keeps them."""
        self._noting: dict[str, int] = {}  # of it, what the present transaction keeps

    def _opened(self) -> None:
        self._state, self._state_at = None, -1  # each connection counts its own versions
        self._begin_era()

    def start_over(self, clock: Callable[[], float]) -> None:
        """Become the file of a new device in memory, as empty as any.

        Another connection would prepare every statement again, which takes longer than to run them.
        """
        assert self.directory is None
        lock = self._take(WAIT_S)
        try:
            empty(self._idle())
            self.clock, self._day = clock, -1
            self.noted = Counter()
            self._opened()
        finally:
            self._give(lock)

    @contextmanager
    def transaction(self, durable: bool = False, *, wait_s: float | None = None, brief: bool = False) -> Iterator[None]:
        """Run the block as one transaction, undone if it changes nothing.

        `durable` waits longer for its turn, if not for `wait_s`, and syncs what it and all before have written to the
        disk. `brief` is for hidden answers: it hardly waits, raises DeviceFault if the file is not open, since opening
        makes files beside it, and leaves what was counted in memory to the next one.
        """
        wait_s = wait_s or (DURABLE_WAIT_S if durable else BRIEF_WAIT_S if brief else WAIT_S)
        lock = self._take(wait_s)
        try:
            db, version = self._begin("BEGIN IMMEDIATE", wait_s, durable=durable, opens=not brief)
            before = db.total_changes
            committed = False
            try:
                self._check_state(db, version)
                yield
                if self._db is db and db.total_changes != before:
                    if not brief:
                        self.keep_noted()
                    self._commit(db, wait_s)
                    committed = True
            finally:
                self._noting, self._only_answers, self._only_replaced = {}, False, False
                # Not in a child that came back into its parent's transaction: the connection is the parent's alone.
                if self._db is db and not committed:
                    self._roll_back(db, before)
        finally:
            self._give(lock)

    @contextmanager
    def peek(self, *, tries: bool = False) -> Iterator[None]:
        """Run the block as a transaction that leaves nothing; `tries` says that it writes what is then undone."""
        lock = self._take(WAIT_S)
        try:
            # A transaction that begins to write after a look may be refused at once, however long it would wait.
            db, version = self._begin("BEGIN IMMEDIATE" if tries else "BEGIN", WAIT_S)
            before = db.total_changes
            try:
                self._check_state(db, version)
                yield
            finally:
                if self._db is db:
                    self._roll_back(db, before)
        finally:
            self._give(lock)

    def _check_state(self, db: sqlite3.Connection, version: int) -> None:
        """Forget what was read, if another connection has written since, and what is known, if the day is another."""
        if self.directory and version != self._state_at:
            check_version(version_of(db))  # a newer dither's process may have brought it further
            self._state, self._state_at = None, version
            self._begin_era()
        if self._day != (day := self.clock_day()):
            self._day = day
            self._lately = {}
            self._begin_era()

    def _roll_back(self, db: sqlite3.Connection, before: int) -> None:
        """Undo what was not committed. A commit that failed may have undone it already."""
        if db.total_changes != before:
            self._state = None
            self._begin_era()
        if not self._lent and db.in_transaction:  # in this order: the helper's call may be over in between
            db.execute("ROLLBACK")

    def _commit(self, db: sqlite3.Connection, wait_s: float) -> None:
        """Commit. One that comes too late counts all the same, and the call that made it was told that it failed."""
        self._help(lambda: db.execute("COMMIT"), wait_s, lambda _: undo(db), db)
        if self._only_answers:
            self._known = {}
        elif not self._only_replaced:
            self._begin_era()
        if self._noting:
            self.noted.subtract(self._noting)
            self.noted = +self.noted

    # The log.

    def log_bytes(self) -> int:
        """Return how long the log is that waits to be written into the file."""
        try:
            return os.stat(f"{self.directory}/{FILE_NAME}-wal").st_size if self.directory else 0
        except OSError:
            return 0

    def checkpoint(self) -> bool:
        """Write the log into the file and leave nothing of it; False if another connection still reads it.

        Never within a call of the app's: it waits for the disk.
        """
        if not self.directory:
            return True
        with self._beside() as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # most of it, while others may write
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    # Facts that need no other look, so that an answer that is not taken costs next to nothing.

    def _begin_era(self) -> None:
        self._known, self._answered = {}, set()
        self.era += 1

    def remember(self, metric: str, skip_reason: str) -> None:
        """Keep why a metric is silent until the file or the day changes. Within a transaction."""
        self._known[metric] = skip_reason

    def remember_answered(self, metric: str) -> None:
        """Keep that a metric takes no more until the day changes, or the file by more than further answers.

        Within a transaction that does nothing else than to take its answer.
        """
        self._answered.add(metric)
        self._only_answers = True

    def keep_lately(self, metric: str, skip_reason: str) -> None:
        """Keep for `lately` what became of a public answer, after its transaction."""
        self._lately[metric] = skip_reason or "answered"

    def lately(self, metric: str) -> str:
        """Return why a public metric was silent earlier today, or "answered"; "" if it was not asked.

        For when the file cannot be used. All else that is known may be forgotten because of a hidden answer elsewhere.
        """
        return self._lately.get(metric, "") if self._day == self.clock_day() else ""

    def remember_replaced(self, metric: str, skip_reason: str) -> None:
        """Keep the same of a hidden metric whose answer was taken, or why it was not; within a transaction like that.

        Nothing that is known of others changes with it.
        """
        self._known[metric] = skip_reason or "answered"
        self._only_replaced = True

    def recall(self, metric: str) -> str:
        """Return why a metric is silent, if that was kept; "" if the file may have changed since, in any process."""
        lock = self._lock
        if not (self._known or self._answered) or self._process != os.getpid() or not lock.acquire(blocking=False):
            return ""
        self._calls += 1
        try:
            db = self._db
            if db is None or self._calls > 1 or self._ended or self._lent or self._day != self.clock_day():
                return ""
            if self.directory and self._data_version(db) != self._state_at:
                return ""
            return "answered" if metric in self._answered else self._known.get(metric, "")
        finally:
            self._give(lock)

    def _data_version(self, db: sqlite3.Connection) -> int:
        """Return the version of the data, or -1 if it cannot be told now."""
        if not (self._sentinel and self._sentinel.stands()):
            return -1
        try:
            version: int = self._help(
                lambda: db.execute("PRAGMA data_version").fetchone()[0], WAIT_S, lambda _: None, db
            )
        except DeviceBusy:
            return -1
        return version

    # Within a transaction.

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        """Run one statement."""
        assert self._db is not None
        return self._db.execute(sql, arguments)

    def one(self, sql: str, *arguments: object) -> tuple[Any, ...] | None:
        """Return the first row."""
        row: tuple[Any, ...] | None = self.execute(sql, *arguments).fetchone()
        return row

    def get(self, key: str) -> Any:
        """Return a value of the state, or None."""
        if self._state is None:
            # All of it at once: a transaction needs several, and a query costs more than a row.
            self._state = dict(self.execute("SELECT key, value FROM state").fetchall())
        return self._state.get(key)

    def set(self, key: str, value: object) -> None:
        """Set a value of the state; None is as if it was never set."""
        if value != self.get(key):
            self.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", key, value)
            assert self._state is not None
            self._state[key] = value

    def count(self, name: str, count: int = 1) -> None:
        """Count something for `status()`."""
        self.execute(
            "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
            name,
            count,
        )

    def keep_noted(self) -> None:
        """Keep what was counted in memory, once, with this transaction."""
        if not self._noting:
            self._noting = dict(self.noted)
            for name, count in self._noting.items():
                self.count(name, count)

    def clock_day(self) -> int:
        """Return the day by the clock, as days since 1970."""
        return int(self.clock() // DAY_S)

    def after_fork_in_child(self) -> None:
        """Start anew, without what the parent will keep."""
        super().after_fork_in_child()
        self.noted = Counter()
