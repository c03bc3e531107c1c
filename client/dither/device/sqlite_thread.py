"""A thread of the system's that enters SQLite for others, so that they can stop waiting for it.

SQLite waits by itself, whatever it was told: for ten seconds where locks cannot be had, and for a disk as long as that
takes. Nothing can call it back, so whoever must not wait lets another thread wait.
"""

import _thread
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

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
