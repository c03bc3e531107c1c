"""The device's SQLite file: its one connection, its transactions, its days.

A connection is never carried across a fork: it is closed before, and opened again by whichever side needs it. Where
that cannot be (a call is in the middle, or the state is in memory), the child has no device.
"""

import atexit
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from dither.device.schema import DeviceUnusable, blank, connect
from dither_shared.errors import DitherError

DAY_S = 86_400

WAIT_S = 0.25
"""The longest that a call of the host app waits for another thread or process."""
DURABLE_WAIT_S = 5.0
FORK_WAIT_S = 0.05


class DeviceBusy(DitherError):
    """The device is in the middle of another call, which a host app does not wait for."""


class DeviceFile:
    """The file in `folder`, or with None the same in memory. Threads take turns; so do processes.

    What the part "Within a transaction" has is for use there.
    """

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.time, *, create: bool = True) -> None:
        self.folder = folder
        self._create = create
        self.clock = clock
        self._lock = threading.RLock()  # so that a call from a signal handler is refused, not stuck
        self._held_for_fork: dict[int, list[bool]] = {}  # by thread: several may fork, and one within a fork
        self._calls = 0  # of the thread that has the lock: within one another if a signal handler calls
        self._forked = False
        self._process = os.getpid()
        self._ended = ""
        self._state: dict[str, Any] | None = None  # what the present transaction has read of it
        self._db: sqlite3.Connection | None = None
        with self._taken(DURABLE_WAIT_S):
            self._open()
        _files.add(self)

    def _open(self) -> sqlite3.Connection:
        try:
            self._db = connect(self.folder, self._create)
            self._db.execute(f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}")
            if self.folder is None:
                self._db.deserialize(blank())
        except (OSError, ValueError, sqlite3.Error) as error:
            self._close()
            raise DeviceUnusable(f"the device file in {self.folder} cannot be used: {error}") from None
        return self._db

    def close(self) -> None:
        """Close the file. What waits in it is sent by the next start."""
        with self._taken(DURABLE_WAIT_S):
            self._ended = self._ended or "it was closed"
            self._close()
        _files.discard(self)

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    @contextmanager
    def _taken(self, wait_s: float) -> Iterator[None]:
        if self._process != os.getpid():  # a fork that Python did not hear of
            self._after_fork_in_child()
        lock = self._lock  # a child that comes back from a signal handler in here has another one
        if not lock.acquire(timeout=wait_s):
            raise DeviceBusy("another thread uses the device")
        self._calls += 1
        try:
            yield
        finally:
            if lock is self._lock:
                self._calls -= 1
            lock.release()

    @contextmanager
    def transaction(self, durable: bool = False) -> Iterator[None]:
        """Run the block as one transaction; `durable` waits longer for it, and syncs it and all before to the disk."""
        with self._idle(DURABLE_WAIT_S if durable else WAIT_S) as db:
            if durable:
                db.execute("PRAGMA synchronous = FULL")
                db.execute(f"PRAGMA busy_timeout = {int(DURABLE_WAIT_S * 1000)}")
            try:
                db.execute("BEGIN IMMEDIATE")
                self._state = None
                yield
                self.execute("COMMIT")
            finally:
                # Not in a child that came back into its parent's transaction: the connection is the parent's alone.
                if self._db is db:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    if durable:
                        db.execute("PRAGMA synchronous = NORMAL")
                        db.execute(f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}")

    @contextmanager
    def peek(self) -> Iterator[None]:
        """Run the block as a transaction that leaves nothing."""
        with self._idle(WAIT_S) as db:
            db.execute("BEGIN")
            self._state = None
            try:
                yield
            finally:
                if self._db is db and db.in_transaction:
                    db.execute("ROLLBACK")

    @contextmanager
    def _idle(self, wait_s: float) -> Iterator[sqlite3.Connection]:
        """Take the lock and the connection, which must not be in the middle of something."""
        with self._taken(wait_s):
            if self._ended:
                raise DeviceUnusable(f"the device cannot be used: {self._ended}")
            if self._forked and not _sqlite_answers():
                self._ended = "another thread of the process that this one was forked from was in SQLite"
                raise DeviceUnusable(f"the device cannot be used: {self._ended}")
            self._forked = False
            db = self._db or self._open()
            if self._calls > 1 or db.in_transaction:
                raise DeviceBusy("the device was called from within its own call, by a signal handler perhaps")
            yield db

    def checkpoint(self) -> None:
        """Write the log into the file and leave nothing of it, as far as other processes let us."""
        if self.folder:
            with self._idle(DURABLE_WAIT_S) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

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
        self._state = None
        self.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", key, value)

    def count(self, name: str, count: int = 1) -> None:
        """Count something for `status()`."""
        self.execute(
            "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
            name,
            count,
        )

    def belongs_to(self, app: str) -> None:
        """Make the file that app's if it is new; raise DeviceUnusable if it is another's."""
        owner = self.get("app")
        if owner is None:
            self.set("app", app)
            self.set("first_day", self.today())
        elif owner != app:
            raise DeviceUnusable(f"the device file belongs to the app {owner!r}")

    def today(self) -> int:
        """Return the day by the clock, or the latest day that was ever used if the clock went back behind it."""
        clock_day = self.clock_day()
        last_day = self.get("last_day")
        if last_day is not None and last_day >= clock_day:
            return int(last_day)
        self.set("last_day", clock_day)
        return clock_day

    def clock_day(self) -> int:
        """Return the day by the clock, as days since 1970."""
        return int(self.clock() // DAY_S)

    # Around a fork.

    def _before_fork(self) -> None:
        held = self._lock.acquire(timeout=FORK_WAIT_S)
        self._held_for_fork.setdefault(threading.get_ident(), []).append(held)
        if held and self.folder and not self._calls:
            self._close()

    def _after_fork_in_parent(self) -> None:
        forks = self._held_for_fork.get(threading.get_ident())
        if forks and forks.pop():
            self._lock.release()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._held_for_fork = {}
        self._calls = 0
        self._forked = True
        self._process = os.getpid()
        if self._db is not None:
            self._ended = "it belongs to the process that this one was forked from"
            _keep_forever(self._db)
            self._db = None


def _sqlite_answers() -> bool:
    """Tell whether SQLite's own locks are free: a fork copies them as another thread of the host had taken them."""

    def use() -> None:
        with closing(sqlite3.connect(":memory:")) as db:
            db.execute("CREATE TABLE x (y)")

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return not thread.is_alive()


_files: WeakSet[DeviceFile] = WeakSet()


def _for_all(method: Callable[[DeviceFile], None]) -> Callable[[], None]:
    def hook() -> None:
        for file in list(_files):
            method(file)

    return hook


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_for_all(DeviceFile._before_fork),
        after_in_parent=_for_all(DeviceFile._after_fork_in_parent),
        after_in_child=_for_all(DeviceFile._after_fork_in_child),
    )


def _keep_all_forever() -> None:
    """Leave the files as they are when the program ends: closing the last connection waits for the disk, twice."""
    for file in list(_files):
        if file._db is not None:
            _keep_forever(file._db)


atexit.register(_keep_all_forever)


def _keep_forever(connection: sqlite3.Connection) -> None:
    """Never let go of a connection, so that it is never closed.

    One that came with a fork must not be: SQLite forbids to use it, and closing it is a use.
    """
    try:
        from _ctypes import Py_INCREF  # ctypes.pythonapi.Py_IncRef, without the time that ctypes takes
    except ImportError:  # a Python that was built without it
        return
    Py_INCREF(connection)
