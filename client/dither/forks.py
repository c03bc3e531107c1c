"""Around a fork of the host app: the one place where what must happen before and after it is told.

Senders let their threads end before device files close their connections; afterwards files come first. An error of
one keeps no other from its turn: the app must not notice, and no passing fault may end anything for good.
"""

import logging  # noqa: F401 - before our hooks: its own then run after ours, and before them once the fork is over
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Forking(Protocol):
    """An object with something to do around a fork."""

    def before_fork(self) -> None:
        """Get ready: in the parent."""

    def after_fork_in_parent(self) -> None:
        """Go on: in the parent."""

    def after_fork_in_child(self) -> None:
        """Go on, or have done with what is the parent's: in the child."""


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


files: "WeakSet[Forking]" = WeakSet()
senders: "WeakSet[Forking]" = WeakSet()


def _each(members: "WeakSet[Forking]", does: Callable[[Forking], None]) -> None:
    for member in _listed(members):
        with suppress(Exception):
            does(member)


def _listed(members: "WeakSet[Forking]") -> list[Forking]:
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
    _each(files, lambda member: member.after_fork_in_child())
    _each(senders, lambda member: member.after_fork_in_child())


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
