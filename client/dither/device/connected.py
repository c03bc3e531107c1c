"""The one connection to a device's file: opened when it is first used, shared by threads, never carried across a fork.

It is closed before a fork, and opened again by whichever side needs it. If that cannot be (a call is in the middle, or
the state is in memory), the child has no device.
"""

import atexit
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeVar
from weakref import WeakSet

from dither import forks
from dither.device.inherited import Probe, Sentinel, keep_forever, probe_of_process
from dither.device.schema import FILE_NAME, OPEN_WAIT_S, DeviceDamaged, DeviceFault, DeviceUnusable, blank, connect
from dither.device.sqlite_thread import Helper, Overdue, left_s
from dither.say import WARNING, say
from dither_shared.errors import DitherError
from dither_shared.files import StrPath

WAIT_S = 0.25
"""The longest that a call of the host app waits for another thread or process."""
BRIEF_WAIT_S = 0.02
"""The longest that a hidden answer waits: far less than a fork, which must find nobody in the middle of one."""
DURABLE_WAIT_S = 5.0
"""The longest that is waited for SQLite where nothing else bounds it, whatever it waits for beside locks."""
FORK_WAIT_S = 0.25
"""The longest that a fork of the host app waits for a call in the middle to end."""


T = TypeVar("T")


class DeviceBusy(DitherError):
    """The device is in the middle of another call, which a host app does not wait for."""


class Connected:
    """The connection to the file in `directory`, or with None to the same in memory. Threads take turns."""

    def __init__(self, directory: StrPath | None, *, create: bool = True) -> None:
        self.directory = None if directory is None else os.fspath(directory)
        self._create = create
        self._lock = threading.RLock()  # so that a call from a signal handler is refused, not stuck
        self._beside_lock = threading.Lock()
        self._fork_locks = forks.Locks(FORK_WAIT_S, self._lock, self._beside_lock)
        self._calls = 0  # of the thread that has the lock: within one another if a signal handler calls
        self._probe = probe_of_process()  # until a forked child has used SQLite
        self._process = os.getpid()
        self._ended = ""
        self._db: sqlite3.Connection | None = None
        self._late: sqlite3.Connection | None = None  # one that was opened when nobody waited for it any more
        self._pragmas: dict[str, object] = {}  # of the connection, as they were set
        self._helper: Helper | None = None
        self._sentinel: Sentinel | None = None
        forks.files.add(self)
        _open_files.add(self)

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
        self._db, self._late = db, None
        self._pragmas = {}
        self._opened()
        return db

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

    def _opened(self) -> None:
        """Take note that the connection is a new one."""

    def close(self) -> None:
        """Close the file. The next start sends its waiting reports."""
        lock = self._take(DURABLE_WAIT_S)
        try:
            self._ended = self._ended or "it was closed"
            self._close()
        finally:
            self._give(lock)
        forks.files.discard(self)
        _open_files.discard(self)

    def _close(self) -> None:
        db, helper, sentinel = self._db or self._late, self._helper, self._sentinel
        in_use = self._lent or (sentinel is not None and not sentinel.stands())
        self._db = self._late = self._helper = self._sentinel = None
        if helper is not None:
            helper.end(FORK_WAIT_S)  # first: a few steps that it still has to go are gone when the file is closed
        if in_use:
            keep_forever(db)
        elif db is not None:
            db.close()
        if sentinel is not None:
            sentinel.close()

    def _take(self, wait_s: float) -> forks.Lock:
        """Take the lock and return it, for `_give`. Plain calls: each answer that is recorded comes by here."""
        if self._process != os.getpid():  # a fork that Python did not hear of
            self.after_fork_in_child()
        lock = self._lock  # a child that comes back from a signal handler in here has another one
        if not lock.acquire(timeout=left_s(wait_s)):
            raise DeviceBusy("another thread uses the device")
        self._calls += 1
        return lock

    def _give(self, lock: forks.Lock) -> None:
        if lock is self._lock:
            self._calls -= 1
            if not self._calls and self.directory and forks.comes_untold():
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
        self._db = None
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
        self._fork_locks = forks.Locks(FORK_WAIT_S, self._lock, self._beside_lock)
        self._calls = 0
        self._probe = Probe()
        self._process = os.getpid()
        self._helper = None
        if self._db is not None or self._late is not None:
            self._ended = "it belongs to the process that this one was forked from"
            keep_forever(self._db or self._late)
            self._db = self._late = None

    def after_patch(self) -> None:
        """Have locks of the new kind, unless somebody is in the middle of a call."""
        if self._lock.acquire(timeout=FORK_WAIT_S):
            self._lock = threading.RLock()
        if self._beside_lock.acquire(timeout=FORK_WAIT_S):
            self._beside_lock = threading.Lock()
        self._fork_locks = forks.Locks(FORK_WAIT_S, self._lock, self._beside_lock)


def undo(db: sqlite3.Connection) -> None:
    """Undo the transaction that a connection is in, if it is in one."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _kind_of(error: Exception) -> type[DeviceUnusable]:
    if isinstance(error, OSError | sqlite3.OperationalError):
        return DeviceFault
    return DeviceDamaged if isinstance(error, sqlite3.DatabaseError) else DeviceUnusable


_open_files: "WeakSet[Connected]" = WeakSet()


def _keep_all_forever() -> None:
    """Leave the files as they are when the program ends: closing the last connection waits for the disk, twice."""
    for file in list(_open_files):
        if file._db is not None:
            keep_forever(file._db)


atexit.register(_keep_all_forever)
