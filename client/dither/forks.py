"""Around a fork of the host app: the one place where what must happen before and after it is told.

Senders let their threads end before device files close their connections; afterwards files come first. An error of
one keeps no other from its turn: the app must not notice, and no passing fault may end anything for good.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Forking(Protocol):
    """What has something to do around a fork."""

    def before_fork(self) -> None:
        """Get ready: in the parent."""

    def after_fork_in_parent(self) -> None:
        """Go on: in the parent."""

    def after_fork_in_child(self) -> None:
        """Go on, or have done with what is the parent's: in the child."""


files: "WeakSet[Forking]" = WeakSet()
senders: "WeakSet[Forking]" = WeakSet()


def _each(members: "WeakSet[Forking]", does: Callable[[Forking], None]) -> None:
    for member in list(members):
        with suppress(Exception):
            does(member)


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
