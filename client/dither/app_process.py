"""The process of the host app: its forks and its kind of threads, and its logger.

Senders let their threads end before a fork, and then device files close their connections; afterwards files come first.
An error of one keeps no other from its turn: the app must not notice, and no passing fault may end anything for good.
"""

from __future__ import annotations

import logging  # before our hooks: its own then run after ours, and before them once the fork is over
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from logging import DEBUG, INFO, WARNING
from weakref import WeakSet

from dither_shared.light_typing import Protocol
from dither_shared.text_normalization import visible

__all__ = [
    "DEBUG", "IMPORTING", "INFO", "LOGGER", "WARNING", "Forking", "Lock", "Locks", "comes_untold", "files", "notice",
    "say", "senders",
]  # fmt: skip

# The logger `dither`.

LOGGER = logging.getLogger("dither")
LOGGER.addHandler(logging.NullHandler())


def say(level: int, message: str, *arguments: object) -> None:
    """Log a message that holds no answer nor anything unseen, whatever the app's handlers and filters do with it."""
    try:
        if LOGGER.isEnabledFor(level):
            LOGGER.log(level, message, *(each if isinstance(each, int) else visible(str(each)) for each in arguments))
    except Exception:  # noqa: S110 - and `suppress` takes longer than a level that nobody hears
        pass


# Around a fork of the app, and a change of its kind of threads.


class Forking(Protocol):
    """An object with something to do around a fork."""

    def before_fork(self) -> None:
        """Get ready: in the parent."""

    def after_fork_in_parent(self) -> None:
        """Go on: in the parent."""

    def after_fork_in_child(self) -> None:
        """Go on, or have done with what is the parent's: in the child."""

    def after_patch(self) -> None:
        """Have locks of the app's kind by now: gevent has put its own in place of the system's."""


class Lock(Protocol):
    """A lock of threading's, reentrant or not."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it."""

    def release(self) -> None:
        """Let it go."""


class Locks:
    """Locks that a fork takes first, so that what they stand for is not copied in the middle of something."""

    def __init__(self, wait_s: float, *locks: Lock) -> None:
        self._wait_s = wait_s
        self._locks = locks
        self._held: dict[int, list[list[Lock]]] = {}  # by thread: several may fork, and one within a fork

    def take(self) -> bool:
        """Take them, waiting for a moment for each; return whether all could be had.

        A fork within another of the same thread has what that one took: to wait for it would be to wait for itself.
        """
        forks_of_thread = self._held.setdefault(threading.get_ident(), [])
        had = [lock for locks in forks_of_thread for lock in locks]
        taken = [lock for lock in self._locks if lock not in had and lock.acquire(timeout=self._wait_s)]
        forks_of_thread.append(taken)
        return all(lock in had or lock in taken for lock in self._locks)

    def let_go(self) -> None:
        """Let go, in the parent, of those that were taken."""
        forks_of_thread = self._held.get(threading.get_ident())
        for lock in forks_of_thread.pop() if forks_of_thread else []:
            lock.release()


files: WeakSet[Forking] = WeakSet()
senders: WeakSet[Forking] = WeakSet()


def _each(members: WeakSet[Forking], does: Callable[[Forking], None]) -> None:
    for member in _listed(members):
        with suppress(Exception):
            does(member)


def _listed(members: WeakSet[Forking]) -> list[Forking]:
    while True:
        try:
            return list(members)
        except RuntimeError:  # another thread has just added one
            continue


def _before() -> None:
    _each(senders, lambda member: member.before_fork())
    _each(files, lambda member: member.before_fork())


def _after_in_parent() -> None:
    _each(files, lambda member: member.after_fork_in_parent())
    _each(senders, lambda member: member.after_fork_in_parent())


def _after_in_child() -> None:
    global _process
    _process = os.getpid()
    _each(files, lambda member: member.after_fork_in_child())
    _each(senders, lambda member: member.after_fork_in_child())


_process, _kind = os.getpid(), threading.Lock


def notice() -> None:
    """Take note of a fork that Python was not told of, and of gevent's patch after a fork: when the app calls.

    gunicorn forks its workers first and then lets gevent patch them; uWSGI forks in C.
    """
    global _kind
    if _process != os.getpid():
        _after_in_child()
    if _kind is not threading.Lock:
        _kind = threading.Lock
        _each(files, lambda member: member.after_patch())
        _each(senders, lambda member: member.after_patch())


def comes_untold() -> bool:
    """Tell whether a fork is to come that nobody tells of beforehand: in uWSGI's master, which loads the app.

    Nothing may be open then, and no thread may run.
    """
    uwsgi = sys.modules.get("uwsgi")
    return uwsgi is not None and uwsgi.worker_id() == 0 and uwsgi.masterpid() in (0, os.getpid())


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


# The first import of `requests`.

IMPORT_WAIT_S = 2.0
"""The longest that a fork of the host app waits for the first import of `requests`."""


class Importing:
    """The first import of `requests`, which a fork waits for: half of it would be of no use to the child."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        files.add(self)

    def before_fork(self) -> None:
        """Wait until it is done."""
        self._fork_locks.take()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._fork_locks.let_go()

    def after_fork_in_child(self) -> None:
        """Have a lock of its own."""
        self.lock = threading.Lock()
        self._fork_locks = Locks(IMPORT_WAIT_S, self.lock)

    def after_patch(self) -> None:
        """Have a lock of the new kind, unless an import goes on."""
        if self.lock.acquire(blocking=False):
            self.after_fork_in_child()


IMPORTING = Importing()
