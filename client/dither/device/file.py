"""The device's SQLite file: its transactions, its log, its day, and what is known of it without another look."""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from dither.device.schema import FILE_NAME, check_version, empty, version_of
from dither.device.sqlite_connection import BRIEF_WAIT_S, DURABLE_WAIT_S, WAIT_S, Connected, DeviceBusy, undo
from dither_shared.files import StrPath

DAY_S = 86_400
_STATE = "the state"
"""The key of what is known of the table of that name. No metric has such a name."""


class DeviceFile(Connected):
    """The file in `directory`, or with None the same in memory. Threads take turns; so do processes.

    The methods under "Within a transaction" are for use there.

    All that is known of the file holds for an *era*. It ends with the day, with whatever another connection writes, and
    with whatever this one writes: but for answers and looks, which may keep it, and call `end_era` where they change
    more than what they say themselves.
    """

    def __init__(
        self, directory: StrPath | None, clock: Callable[[], float] = time.time, *, create: bool = True
    ) -> None:
        super().__init__(directory, create=create)
        self.clock = clock
        self.day = -1
        """The day by the clock, as days since 1970, at the begin of the latest transaction."""
        self.state: dict[str, Any] = {}
        """The values of the state: within a transaction."""
        self._era = 0
        self._version = -1  # of the data in the present era
        self._ends_era = False  # whether what the present transaction writes ends the era
        self._known: dict[Hashable, tuple[int, Any]] = {}  # with the era: all of today
        self._learnt: dict[Hashable, Any] = {}  # what is known once the present transaction is over
        self.noted: Counter[str] = Counter()
        """Counts since the last transaction that wrote; the next one keeps them."""
        self._noting: dict[str, int] = {}  # of it, what the present transaction keeps

    def _opened(self) -> None:
        self._version = -1  # each connection counts its own versions
        self.begin_era()

    def start_over(self, clock: Callable[[], float]) -> None:
        """Become the file of a new device in memory, as empty as any.

        Another connection would prepare every statement again, which takes longer than to run them.
        """
        assert self.directory is None
        lock = self._take(WAIT_S)
        try:
            empty(self._idle())
            self.clock, self.day = clock, -1
            self.noted = Counter()
            self._opened()
        finally:
            self._give(lock)

    @contextmanager
    def transaction(
        self, durable: bool = False, *, wait_s: float | None = None, keeps_era: bool = False, brief: bool = False
    ) -> Iterator[None]:
        """Run the block as one transaction, undone if it changes nothing.

        `durable` waits longer for its turn, if not for `wait_s`, and syncs what it and all before have written to the
        disk. `keeps_era` is for what calls `end_era` itself. `brief` is for hidden answers: it keeps the era, hardly
        waits, raises DeviceFault if the file is not open, since opening makes files beside it, and leaves what was
        counted in memory to the next one.
        """
        wait_s = wait_s or (DURABLE_WAIT_S if durable else BRIEF_WAIT_S if brief else WAIT_S)
        lock = self._take(wait_s)
        try:
            db, version = self._begin("BEGIN IMMEDIATE", wait_s, durable=durable, opens=not brief)
            before = db.total_changes
            self._ends_era = not (keeps_era or brief)
            committed = False
            try:
                self._look(db, version)
                yield
                if self._db is db:
                    if db.total_changes != before:
                        if not brief:
                            self.keep_noted()
                        self._commit(db, wait_s)
                        committed = True
                    self._keep_learnt()
            finally:
                self._noting, self._learnt = {}, {}
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
                self._look(db, version)
                yield
                if db.total_changes == before:
                    self._keep_learnt()
            finally:
                self._learnt = {}
                if self._db is db:
                    self._roll_back(db, before)
        finally:
            self._give(lock)

    def _look(self, db: sqlite3.Connection, version: int) -> None:
        """Begin an era if another connection has written since, or the day is another; read the state in a new one."""
        if self.directory and version != self._version:
            check_version(version_of(db))  # a newer dither's process may have brought it further
            self._version = version
            self.begin_era()
        day = int(self.clock() // DAY_S)
        if day != self.day:
            self.day, self._known = day, {}
        known = self.known(_STATE)
        if known is None:
            # All of it at once: a transaction needs several, and a query costs more than a row.
            known = dict(db.execute("SELECT key, value FROM state").fetchall())
            self._know(_STATE, known)
        self.state = known

    def _roll_back(self, db: sqlite3.Connection, before: int) -> None:
        """Undo what was not committed. A commit that failed may have undone it already."""
        if db.total_changes != before:
            self.begin_era()
        if not self._lent and db.in_transaction:  # in this order: the helper's call may be over in between
            db.execute("ROLLBACK")

    def _commit(self, db: sqlite3.Connection, wait_s: float) -> None:
        """Commit. One that comes too late counts all the same, and the call that made it was told that it failed."""
        self._help(lambda: db.execute("COMMIT"), wait_s, lambda _: undo(db), db)
        if self._ends_era:
            self.begin_era()
            self._know(_STATE, self.state)  # as it was written
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

    def untidy(self) -> bool:
        """Tell whether the log holds what is no longer in the file: within a transaction."""
        return bool(self.get("erasing") or self.get("replaced"))

    def erase(self) -> bool:
        """Leave nothing in the log of what was forgotten or replaced; False while another connection reads it."""
        if not self.checkpoint():
            return False
        with self.transaction():
            self.set("erasing", None)
            self.set("replaced", None)
        return True

    # Facts that need no other look, so that an answer that is not taken costs next to nothing.

    def known(self, what: Hashable) -> Any:
        """Return what this era knows of something; None if that is nothing. Within a transaction."""
        if what in self._learnt:
            return self._learnt[what]
        era, value = self._known.get(what, (-1, None))
        return value if era == self._era else None

    def _know(self, what: Hashable, value: Any) -> None:
        self._known[what] = self._era, value

    def learn(self, what: Hashable, value: Any) -> None:
        """Let it be known until the era ends, unless the present transaction is undone."""
        self._learnt[what] = value

    def _keep_learnt(self) -> None:
        for what, value in self._learnt.items():
            self._know(what, value)

    def begin_era(self) -> None:
        """Let nothing be known from now on."""
        self._era += 1

    def end_era(self) -> None:
        """Let the era end with what this transaction writes, though it began as one that keeps it."""
        self._ends_era = True

    def recall(self, what: Hashable) -> Any:
        """Return what is known of something; None if the file may have changed since, in any process.

        Outside of transactions, and without the wait for one.
        """
        lock = self._lock
        if self.known(what) is None or self._process != os.getpid() or not lock.acquire(blocking=False):
            return None
        self._calls += 1
        try:
            db = self._db
            if db is None or self._calls > 1 or self._ended or self._lent or self.day != int(self.clock() // DAY_S):
                return None
            if self.directory and self._data_version(db) != self._version:
                return None
            return self.known(what)
        finally:
            self._give(lock)

    def lately(self, what: Hashable) -> Any:
        """Return what was known of something at any time today, whatever has changed since; None if that is nothing.

        For when the file cannot be used: whether an era has ended may depend on a hidden answer elsewhere.
        """
        return self._known.get(what, (0, None))[1] if self.day == int(self.clock() // DAY_S) else None

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
        return self.state.get(key)

    def set(self, key: str, value: object) -> None:
        """Set a value of the state; None is as if it was never set."""
        if value != self.state.get(key):
            self.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", key, value)
            self.state[key] = value

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

    def counts(self) -> dict[str, int]:
        """Return all that was counted, what is still in memory included."""
        kept = dict(self.execute("SELECT name, count FROM counter ORDER BY name").fetchall())
        return dict(Counter(kept) + self.noted)

    def after_fork_in_child(self) -> None:
        """Start anew, without what the parent will keep."""
        super().after_fork_in_child()
        self.noted = Counter()
