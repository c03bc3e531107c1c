"""The device's SQLite file: its one connection, its transactions, its log, its day, and what is known of it.

The connection is opened when it is first used, shared by threads, and never carried across a fork: it is closed before
one, and opened again by whichever side needs it. If that cannot be (a call is in the middle, or the state is in
memory), the child has no device.

SQLite waits by itself, whatever it was told: for ten seconds where locks cannot be had, and for a disk as long as that
takes. Nothing can call it back, so a thread of ours enters it for the app's calls, which can so stop waiting.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from math import inf
from time import monotonic
from weakref import WeakSet

from dither import app_process
from dither.app_process import WARNING, say
from dither.device.schema import (
    FILE_NAME,
    OPEN_WAIT_S,
    DeviceDamaged,
    DeviceFault,
    DeviceUnusable,
    blank,
    check_version,
    connect,
    empty,
    version_of,
)
from dither_shared.errors import DitherError
from dither_shared.files import StrPath
from dither_shared.light_typing import Any, TypeVar

DAY_S = 86_400
WAIT_S = 0.25
"""The longest that a call of the host app waits for another thread or process."""
BRIEF_WAIT_S = 0.02
"""The longest that a hidden answer waits: far less than a fork, which must find nobody in the middle of one."""
DURABLE_WAIT_S = 5.0
"""The longest that is waited for SQLite where nothing else bounds it, whatever it waits for beside locks."""
FORK_WAIT_S = 0.25
"""The longest that a fork of the host app waits for a call in the middle to end."""
ANSWER_WITHIN_S = 0.25
"""How long a forked child waits to see whether it can use SQLite."""

T = TypeVar("T")
_STATE = "the state"
"""The key of what is known of the table of that name. No metric has such a name."""


class DeviceBusy(DitherError):
    """The device is in the middle of another call, which a host app does not wait for."""


class DeviceFile:
    """The file in `directory`, or with None the same in memory. Threads take turns; so do processes.

    The methods under "Within a transaction" are for use there.

    All that is known of the file holds for an *era*. It ends with the day, with whatever another connection writes, and
    with whatever this one writes: but for answers and looks, which may keep it, and call `end_era` where they change
    more than what they say themselves.
    """

    def __init__(
        self, directory: StrPath | None, clock: Callable[[], float] = time.time, *, create: bool = True
    ) -> None:
        self.directory = None if directory is None else os.fspath(directory)
        self._create = create
        self._lock = threading.RLock()  # so that a call from a signal handler is refused, not stuck
        self._beside_lock = threading.Lock()
        self._fork_locks = app_process.Locks(FORK_WAIT_S, self._lock, self._beside_lock)
        self._calls = 0  # of the thread that has the lock: within one another if a signal handler calls
        self._probe = probe_of_process()  # until a forked child has used SQLite
        self._process = os.getpid()
        self._ended = ""
        self._db: sqlite3.Connection | None = None
        self.execute: Callable[..., sqlite3.Cursor] = _not_open
        """Run one statement, with a tuple of its arguments: within a transaction."""
        self._late: sqlite3.Connection | None = None  # one that was opened when nobody waited for it any more
        self._pragmas: dict[str, object] = {}  # of the connection, as they were set
        self._helper: Helper | None = None
        self._sentinel: Sentinel | None = None
        self.clock = clock
        self.day = -1
        """The day by the clock, as days since 1970, at the begin of the latest transaction."""
        self.state: dict[str, Any] = {}
        """The values of the state: within a transaction."""
        self._era = 0
        self._version = -1  # of the data in the present era
        self._ends_era = False  # whether what the present transaction writes ends the era
        self._known: dict[Hashable, tuple[int, Any]] = {}  # with the era: all of today
        self._today: dict[Hashable, Any] = {}  # what no other process can make untrue today
        self._learnt: dict[Hashable, Any] = {}  # what is known once the present transaction is over
        self._learnt_for_today: list[Hashable] = []
        self.noted: Counter[str] = Counter()
        """Counts since the last transaction that wrote; the next one keeps them."""
        self._noting: dict[str, int] = {}  # of it, what the present transaction keeps
        app_process.files.add(self)
        _open_files.add(self)

    # Transactions.

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
            self.begin_era(of_day=True)
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
                self._noting, self._learnt, self._learnt_for_today = {}, {}, []
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
                self._learnt, self._learnt_for_today = {}, []
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
            self._known, self._today = {}, {}
            self.day = day
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
            self.begin_era(of_day=True)
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

    def learn(self, what: Hashable, value: Any, *, all_day: bool = False) -> None:
        """Let it be known until the era ends, unless the present transaction is undone.

        `all_day` says that no other process can make it untrue today: then it is recalled without a look at the file.
        """
        self._learnt[what] = value
        if all_day:
            self._learnt_for_today.append(what)

    def _keep_learnt(self) -> None:
        for what, value in self._learnt.items():
            self._know(what, value)
        for what in self._learnt_for_today:
            self._today[what] = self._learnt[what]

    def begin_era(self, *, of_day: bool = False) -> None:
        """Let nothing be known from now on; what holds all day only with `of_day`."""
        self._era += 1
        if of_day:
            self._today = {}

    def end_era(self) -> None:
        """Let the era end with what this transaction writes, though it began as one that keeps it."""
        self._ends_era = True

    def recall(self, what: Hashable) -> Any:
        """Return what is known of something; None if the file may have changed since, in any process.

        Outside of transactions, and without the wait for one.
        """
        day = self.day  # before what it knows: another thread may begin a day in between
        value = self._today.get(what)
        if value is not None and day == int(self.clock() // DAY_S):
            return value
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

    def get(self, key: str) -> Any:
        """Return a value of the state, or None."""
        return self.state.get(key)

    def set(self, key: str, value: object) -> None:
        """Set a value of the state; None is as if it was never set."""
        if value != self.state.get(key):
            self.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))
            self.state[key] = value

    def count(self, name: str, count: int = 1) -> None:
        """Count something for `status()`."""
        self.execute(
            "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
            (name, count),
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

    # The connection.

    def _open(self) -> sqlite3.Connection:
        wait_s = left_s(OPEN_WAIT_S)
        try:
            if self.directory is None:
                db = connect(None)
                db.deserialize(blank())
            else:
                self._sentinel = self._sentinel or Sentinel()
                self._start_helper()
                db = self._late or self._help(lambda: connect(self.directory, self._create, wait_s), wait_s, self._keep)
        except (OSError, ValueError, sqlite3.Error) as error:
            self._close()
            raise _kind_of(error)(f"the device file in {self.directory} cannot be used: {error}") from None
        self._use(db)
        self._late = None
        self._pragmas = {}
        self._version = -1  # each connection counts its own versions
        self.begin_era()
        return db

    def _use(self, db: sqlite3.Connection | None) -> None:
        self._db = db
        self.execute = _not_open if db is None else db.execute

    def _keep(self, late: sqlite3.Connection | None) -> None:
        """Keep a connection that came late for the next call: a slow disk would else be opened again and again."""
        self._late = late
        if late is not None and self._ended:
            late.close()

    def _start_helper(self) -> None:
        """Have a helper while the file is open: an answer to a hidden metric starts no thread."""
        with suppress(RuntimeError):  # none can be started, as when the program ends
            self._helper = self._helper or Helper()

    def _help(
        self,
        job: Callable[[], T],
        wait_s: float,
        late: Callable[[T | None], object],
        db: sqlite3.Connection | None = None,
    ) -> T:
        """Return what a job with the file returns, and wait for it no longer than this, whatever SQLite waits for.

        After that it is DeviceBusy until the job is done, and `late` takes what came of it. `db` is the connection that
        the job is for: a child that came back into its parent's call must not use it.
        """
        if self.directory is None:
            return job()
        helper = self._helper
        if db is not self._db:
            raise DeviceBusy("the device belongs to the process that this one was forked from")
        # A moment is there always: a signal handler may have taken all the time.
        wait_s = max(left_s(max(wait_s, DURABLE_WAIT_S)), BRIEF_WAIT_S)
        try:
            return helper.do(job, wait_s, late) if helper else job()
        except Overdue:
            raise DeviceBusy("SQLite still waits for the device file") from None

    @property
    def _lent(self) -> bool:
        """Whether the connection is still in use for a call that is over."""
        return self._helper is not None and self._helper.overdue

    def _begin(
        self, how: str, wait_s: float, *, durable: bool = False, opens: bool = True
    ) -> tuple[sqlite3.Connection, int]:
        """Begin a transaction; return the connection, and the version of the data that it sees."""
        db = self._idle(opens=opens)
        wait_s = left_s(wait_s)
        if self.directory is None:
            db.execute(how)
            return db, 0
        # SQLite is to give up before we do, since the connection is free then. In steps: to set it takes a moment.
        pragmas = {"busy_timeout": int(wait_s * 180) * 5, "synchronous": "FULL" if durable else "NORMAL"}

        def begin() -> int:
            try:
                for pragma, value in pragmas.items():
                    if self._pragmas.get(pragma) != value:
                        db.execute(f"PRAGMA {pragma} = {value}")
                        self._pragmas[pragma] = value
                db.execute(how)
                version: int = db.execute("PRAGMA data_version").fetchone()[0]  # takes the locks where `how` does not
            except BaseException:
                undo(db)
                raise
            return version

        return db, self._help(begin, wait_s, lambda _: undo(db), db)

    def close(self) -> None:
        """Close the file. The next start sends its waiting reports."""
        lock = self._take(DURABLE_WAIT_S)
        try:
            self._ended = self._ended or "it was closed"
            self._close()
        finally:
            self._give(lock)
        app_process.files.discard(self)
        _open_files.discard(self)

    def _close(self) -> None:
        db, helper, sentinel = self._db or self._late, self._helper, self._sentinel
        in_use = self._lent or (sentinel is not None and not sentinel.stands())
        self._use(None)
        self._late = self._helper = self._sentinel = None
        if helper is not None:
            helper.end(FORK_WAIT_S)  # first: a few steps that it still has to go are gone when the file is closed
        if in_use:
            keep_forever(db)
        elif db is not None:
            db.close()
        if sentinel is not None:
            sentinel.close()

    def _take(self, wait_s: float) -> app_process.Lock:
        """Take the lock and return it, for `_give`. Plain calls: each answer that is recorded comes by here."""
        if self._process != os.getpid():  # a fork that Python did not hear of
            self.after_fork_in_child()
        lock = self._lock  # a child that comes back from a signal handler in here has another one
        if not lock.acquire(timeout=left_s(wait_s)):
            raise DeviceBusy("another thread uses the device")
        self._calls += 1
        return lock

    def _give(self, lock: app_process.Lock) -> None:
        if lock is self._lock:
            self._calls -= 1
            # Asked here first: this is the end of each call, and most apps run without uWSGI.
            if not self._calls and self.directory and "uwsgi" in sys.modules and app_process.comes_untold():
                self._close()
        lock.release()

    def _idle(self, *, opens: bool = True) -> sqlite3.Connection:
        """Return the connection, which must not be in the middle of something; with the lock taken.

        Open it where it is not open, unless `opens` is False.
        """
        if self._db is None and not opens:
            raise DeviceFault("the device file is not open yet")
        if self._ended:
            raise DeviceUnusable(f"the device cannot be used: {self._ended}")
        if self._probe and not self._probe.answers():
            raise DeviceFault("the device cannot be used: SQLite was in use when this process was forked")
        self._probe = None
        if self._lent:
            raise DeviceBusy("SQLite still waits for the device file")
        if self._sentinel and self._db and not self._sentinel.stands():
            self._lose(self._db)
        db = self._db or self._open()
        if self._calls > 1 or db.in_transaction:
            raise DeviceBusy("the device was called from within its own call, by a signal handler perhaps")
        return db

    def _lose(self, db: sqlite3.Connection) -> None:
        """Take note that the app has closed the file: no connection of this process can use it any more."""
        keep_forever(db)  # its numbers may be those of the app's files by now: it would close these
        self._use(None)
        self._ended = "the app has closed its descriptors; its next start goes on, and sends what waits"
        say(WARNING, "telemetry is off: %s", self._ended)
        raise DeviceUnusable(f"the device cannot be used: {self._ended}")

    @contextmanager
    def _beside(self) -> Iterator[sqlite3.Connection]:
        """Yield a second connection, for what takes long: no call of the app waits for it, only forks do."""
        if not self._beside_lock.acquire(timeout=DURABLE_WAIT_S):
            raise DeviceBusy("another thread writes the log")
        lock = self._beside_lock
        try:
            with closing(sqlite3.connect(f"{self.directory}/{FILE_NAME}", timeout=WAIT_S)) as db:
                yield db
        finally:
            lock.release()

    # Around a fork.

    def before_fork(self) -> None:
        """Keep others out, and close the connection unless a call is in the middle."""
        if self._fork_locks.take() and self.directory and not self._calls and not self._lent:
            self._close()

    def after_fork_in_parent(self) -> None:
        """Let others in again."""
        self._fork_locks.let_go()

    def after_fork_in_child(self) -> None:
        """Start anew, or without a device where the connection is the parent's."""
        self._lock = threading.RLock()
        self._beside_lock = threading.Lock()
        self._fork_locks = app_process.Locks(FORK_WAIT_S, self._lock, self._beside_lock)
        self._calls = 0
        self._probe = Probe()
        self._process = os.getpid()
        self._helper = None
        if self._db is not None or self._late is not None:
            self._ended = "it belongs to the process that this one was forked from"
            keep_forever(self._db or self._late)
            self._use(None)
            self._late = None
        self.noted = Counter()  # the parent keeps it

    def after_patch(self) -> None:
        """Have locks of the new kind, unless somebody is in the middle of a call."""
        if self._lock.acquire(timeout=FORK_WAIT_S):
            self._lock = threading.RLock()
        if self._beside_lock.acquire(timeout=FORK_WAIT_S):
            self._beside_lock = threading.Lock()
        self._fork_locks = app_process.Locks(FORK_WAIT_S, self._lock, self._beside_lock)


def _not_open(*_: object) -> sqlite3.Cursor:
    raise AssertionError("the device file is not open here")


def undo(db: sqlite3.Connection) -> None:
    """Undo the transaction that a connection is in, if it is in one."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _kind_of(error: Exception) -> type[DeviceUnusable]:
    if isinstance(error, OSError | sqlite3.OperationalError):
        return DeviceFault
    return DeviceDamaged if isinstance(error, sqlite3.DatabaseError) else DeviceUnusable


_open_files: WeakSet[DeviceFile] = WeakSet()


def _keep_all_forever() -> None:
    """Leave the files as they are when the program ends: closing the last connection waits for the disk, twice."""
    for file in list(_open_files):
        if file._db is not None:
            keep_forever(file._db)


atexit.register(_keep_all_forever)


# How long a call may wait, and the thread that waits in its place.

_until: ContextVar[float] = ContextVar("_until", default=inf)


class within:  # noqa: N801 - used as a function; a generator would take longer than all else of a silent answer
    """Let all that this thread waits for within the block be over after so many seconds, all in all."""

    __slots__ = ("_before", "_until")

    def __init__(self, seconds: float) -> None:
        self._until = monotonic() + seconds

    def __enter__(self) -> None:
        self._before = _until.set(min(_until.get(), self._until))

    def __exit__(self, *raised: object) -> None:
        _until.reset(self._before)


def left_s(wait_s: float) -> float:
    """Return how long this thread may wait, of so many seconds."""
    until = _until.get()
    return wait_s if until == inf else min(wait_s, max(0.0, until - monotonic()))


class Overdue(Exception):
    """The job was not done in time, or one before it is not done yet."""


class Helper:
    """One thread, which ends with `end`, or when nothing refers to this."""

    def __init__(self) -> None:
        self._new_lock = _native("allocate_lock")
        self._asked, self._over = self._new_lock(), self._new_lock()
        self._asked.acquire()
        self._over.acquire()
        self._jobs: list[Callable[[], None] | None] = []
        self.overdue = False
        """Whether it is still at a job that nobody waits for any more."""
        self._thread: threading.Thread | None = None
        work = (self._jobs, self._asked, self._over)
        if self._new_lock is _thread.allocate_lock:
            self._thread = threading.Thread(target=_work, args=work, name="dither-file", daemon=True)
            self._thread.start()
        else:  # the app's threads are gevent's: all of them would wait for SQLite with this one
            _native("start_new_thread")(_work, work)

    def do(self, job: Callable[[], T], wait_s: float, late: Callable[[T | None], object]) -> T:
        """Return what `job` returns, or raise what it raises; raise Overdue after so many seconds.

        Then the thread goes on, and `late` takes what came of it, None for an error. A busy machine may be slow to let
        the thread begin: it is waited for once more.
        """
        if self.overdue:
            raise Overdue
        claim, done = self._new_lock(), self._new_lock()
        done.acquire()
        came: list[Any] = [None, None]
        begun: list[bool] = []

        def work() -> None:
            begun.append(True)
            try:
                came[0] = job()
            except BaseException as error:
                came[1] = error
            if not claim.acquire(False):
                with suppress(Exception):
                    late(came[0])
                self.overdue = False
            done.release()

        try:
            self._jobs.append(work)
            self._tell()
            in_time = done.acquire(timeout=wait_s) or (not begun and done.acquire(timeout=wait_s))
        except BaseException:  # a signal handler's, which may come before the thread was told
            in_time = False
            self._tell()
            self._give_up(claim, lambda: late(came[0]))
            raise
        if not in_time and self._give_up(claim, done.acquire):
            raise Overdue
        if came[1] is not None:
            raise came[1]
        result: T = came[0]
        return result

    def _give_up(self, claim: Any, otherwise: Callable[[], object]) -> bool:
        """Wait no longer; do something else where the job is done after all."""
        self.overdue = True
        gives_up = bool(claim.acquire(False))
        if not gives_up:
            self.overdue = False
            otherwise()
        return gives_up

    def end(self, wait_s: float) -> None:
        """Let the thread end, and wait a little for it, unless it is still at a job."""
        self._stop()
        if self.overdue:
            return
        if self._thread is None:
            self._over.acquire(timeout=wait_s)
        else:
            self._thread.join(wait_s)

    def _stop(self) -> None:
        self._jobs.append(None)
        self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # it was told, and has not begun yet
            self._asked.release()

    def __del__(self) -> None:
        with suppress(Exception):
            self._stop()


def _work(jobs: list[Callable[[], None] | None], asked: Any, over: Any) -> None:
    while True:
        if not jobs:
            asked.acquire()
            continue
        job = jobs.pop(0)
        if job is None:
            break
        job()
        del job  # it refers to the helper, which may go while this waits
    over.release()


def _native(name: str) -> Any:
    """Return a function of `_thread` as the system has it, whatever gevent has put in its place."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey.get_original("_thread", name) if monkey else getattr(_thread, name)


# Connections that a process must not use or close: inherited, open at its end, or closed by the app itself.


class Probe:
    """Whether a child can use SQLite: a fork copies SQLite's own locks as other threads of the host had taken them."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def answers(self) -> bool:
        """Tell whether SQLite can be used. The first call waits for a moment to find out, a further one does not.

        Raises RuntimeError where no thread can be started to find out.
        """
        wait_s = 0.0
        if self._thread is None:
            thread = threading.Thread(target=_use_sqlite, daemon=True)
            thread.start()
            self._thread, wait_s = thread, left_s(ANSWER_WITHIN_S)
        self._thread.join(wait_s)
        return not self._thread.is_alive()


_IMPORTED_BY = os.getpid()
_probes: dict[int, Probe] = {}


def probe_of_process() -> Probe | None:
    """Return the one probe of a process that was forked since this was imported; None where no fork copied locks."""
    process = os.getpid()
    return None if process == _IMPORTED_BY else _probes.setdefault(process, Probe())


class Sentinel:
    """A descriptor of ours beside those of SQLite, by which to tell whether the app has closed all that it finds.

    SQLite would go on with the numbers of its own, whatever file of the app's has them by now.
    """

    def __init__(self) -> None:
        self._descriptor, other = os.pipe()  # unlike any file's, its identity is never another's
        os.close(other)
        self._identity = self._look()

    def stands(self) -> bool:
        """Tell whether it is as it was."""
        try:
            return self._look() == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Close it, unless its number is another file's."""
        if self.stands():
            os.close(self._descriptor)

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino


def _use_sqlite() -> None:
    with suppress(sqlite3.Error), closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE x (y)")


def keep_forever(connection: sqlite3.Connection | None) -> None:
    """Never let go of a connection, so that it is never closed.

    One that came with a fork must not be: SQLite forbids to use it, and closing it is a use.
    """
    try:
        from _ctypes import Py_INCREF  # ctypes.pythonapi.Py_IncRef, without the time that ctypes takes
    except ImportError:  # a Python that was built without it
        return
    if connection is not None:
        Py_INCREF(connection)
