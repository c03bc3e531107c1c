"""The one connection to a device's file: opened when it is first used, shared by threads, never carried across a fork.

It is closed before a fork, and opened again by whichever side needs it. If that cannot be (a call is in the middle, or
the state is in memory), the child has no device.

SQLite waits by itself, whatever it was told: for ten seconds where locks cannot be had, and for a disk as long as that
takes. Nothing can call it back, so a thread of ours enters it for the app's calls, which can so stop waiting.
"""

import _thread
import atexit
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

from dither import fork_handlers
from dither.device.schema import FILE_NAME, OPEN_WAIT_S, DeviceDamaged, DeviceFault, DeviceUnusable, blank, connect
from dither.logger import WARNING, say
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
ANSWER_WITHIN_S = 0.25
"""How long a forked child waits to see whether it can use SQLite."""

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
        self._fork_locks = fork_handlers.Locks(FORK_WAIT_S, self._lock, self._beside_lock)
        self._calls = 0  # of the thread that has the lock: within one another if a signal handler calls
        self._probe = probe_of_process()  # until a forked child has used SQLite
        self._process = os.getpid()
        self._ended = ""
        self._db: sqlite3.Connection | None = None
        self._late: sqlite3.Connection | None = None  # one that was opened when nobody waited for it any more
        self._pragmas: dict[str, object] = {}  # of the connection, as they were set
        self._helper: Helper | None = None
        self._sentinel: Sentinel | None = None
        fork_handlers.files.add(self)
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
        fork_handlers.files.discard(self)
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

    def _take(self, wait_s: float) -> fork_handlers.Lock:
        """Take the lock and return it, for `_give`. Plain calls: each answer that is recorded comes by here."""
        if self._process != os.getpid():  # a fork that Python did not hear of
            self.after_fork_in_child()
        lock = self._lock  # a child that comes back from a signal handler in here has another one
        if not lock.acquire(timeout=left_s(wait_s)):
            raise DeviceBusy("another thread uses the device")
        self._calls += 1
        return lock

    def _give(self, lock: fork_handlers.Lock) -> None:
        if lock is self._lock:
            self._calls -= 1
            if not self._calls and self.directory and fork_handlers.comes_untold():
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
        self._fork_locks = fork_handlers.Locks(FORK_WAIT_S, self._lock, self._beside_lock)
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
        self._fork_locks = fork_handlers.Locks(FORK_WAIT_S, self._lock, self._beside_lock)


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


# How long a call may wait, and the thread that waits in its place.

_until: ContextVar[float] = ContextVar("_until", default=inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let all that this thread waits for within the block be over after so many seconds, all in all."""
    before = _until.set(min(_until.get(), monotonic() + seconds))
    try:
        yield
    finally:
        _until.reset(before)


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
