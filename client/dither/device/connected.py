"""The one connection to a device's file: opened when it is first used, shared by threads, never carried across a fork.

It is closed before a fork, and opened again by whichever side needs it. If that cannot be (a call is in the middle, or
the state is in memory), the child has no device.
"""

import atexit
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from weakref import WeakSet

from dither import forks
from dither.device.inherited import Probe, keep_forever, probe_of_process
from dither.device.schema import FILE_NAME, DeviceDamaged, DeviceFault, DeviceUnusable, blank, connect
from dither_shared.errors import DitherError

WAIT_S = 0.25
"""The longest that a call of the host app waits for another thread or process."""
BRIEF_WAIT_S = 0.02
"""The longest that a hidden answer waits: far less than a fork, which must find nobody in the middle of one."""
DURABLE_WAIT_S = 5.0
FORK_WAIT_S = 0.25
"""The longest that a fork of the host app waits for a call in the middle to end."""


class DeviceBusy(DitherError):
    """The device is in the middle of another call, which a host app does not wait for."""


class Connected:
    """The connection to the file in `directory`, or with None to the same in memory. Threads take turns."""

    def __init__(self, directory: Path | None, *, create: bool = True) -> None:
        self.directory = directory
        self._create = create
        self._lock = threading.RLock()  # so that a call from a signal handler is refused, not stuck
        self._beside_lock = threading.Lock()
        self._fork_locks = forks.Locks(FORK_WAIT_S, self._lock, self._beside_lock)
        self._calls = 0  # of the thread that has the lock: within one another if a signal handler calls
        self._probe = probe_of_process()  # until a forked child has used SQLite
        self._process = os.getpid()
        self._ended = ""
        self._db: sqlite3.Connection | None = None
        forks.files.add(self)
        _open_files.add(self)

    def _open(self) -> sqlite3.Connection:
        try:
            self._db = connect(self.directory, self._create)
            self._db.execute(f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}")
            if self.directory is None:
                self._db.deserialize(blank())
        except (OSError, ValueError, sqlite3.Error) as error:
            self._close()
            raise _kind_of(error)(f"the device file in {self.directory} cannot be used: {error}") from None
        self._opened()
        return self._db

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
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _take(self, wait_s: float) -> forks.Lock:
        """Take the lock and return it, for `_give`. Plain calls: each answer that is recorded comes by here."""
        if self._process != os.getpid():  # a fork that Python did not hear of
            self.after_fork_in_child()
        lock = self._lock  # a child that comes back from a signal handler in here has another one
        if not lock.acquire(timeout=wait_s):
            raise DeviceBusy("another thread uses the device")
        self._calls += 1
        return lock

    def _give(self, lock: forks.Lock) -> None:
        if lock is self._lock:
            self._calls -= 1
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
        db = self._db or self._open()
        if self._calls > 1 or db.in_transaction:
            raise DeviceBusy("the device was called from within its own call, by a signal handler perhaps")
        return db

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
        if self._fork_locks.take() and self.directory and not self._calls:
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
        if self._db is not None:
            self._ended = "it belongs to the process that this one was forked from"
            keep_forever(self._db)
            self._db = None


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
