"""The first import of `requests`: a fork in the middle of it would leave the child with half of it."""

import threading

from dither import forks

IMPORT_WAIT_S = 2.0
"""The longest that a fork of the host app waits for the first import of `requests`."""


class Importing:
    """The first import of `requests`, which a fork waits for: half of it would be of no use to the child."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        forks.files.add(self)

    def before_fork(self) -> None:
        """Wait until it is done."""
        self._fork_locks.take()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._fork_locks.let_go()

    def after_fork_in_child(self) -> None:
        """Have a lock of its own."""
        self.lock = threading.Lock()
        self._fork_locks = forks.Locks(IMPORT_WAIT_S, self.lock)

    def after_patch(self) -> None:
        """Have a lock of the new kind, unless an import goes on."""
        if self.lock.acquire(blocking=False):
            self.after_fork_in_child()


IMPORTING = Importing()
