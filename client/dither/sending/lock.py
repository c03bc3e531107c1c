"""The process that sends is the one that holds a lock. The lock ends with its process, however that ends.

The lock is on a file of its own, beside the device's: closing any descriptor of the database would take away SQLite's
locks on it. On a file system without locks a lease in the device's file stands in, which ends after two minutes.
"""

import errno
import os
import sys

from dither import forks
from dither.device import Device
from dither.device.schema import SENDER_NAME
from dither_shared.ownership import NO_LINK

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP})
_HELD = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK})

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class SenderLock:
    """The lock of one telemetry object; also two in one process keep each other out. A device in memory needs none."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._path = f"{device.directory}/{SENDER_NAME}" if device.directory else ""
        self._descriptor = -1
        self._leased = False
        forks.files.add(self)

    def take(self) -> bool:
        """Take the lock and return True, or False if somebody else has it.

        Raises OSError where there are no file descriptors left, or what the device raises for its lease.
        """
        if not self._path:
            return True
        # On the file that has that name by now: what is not inherited by programs that the app starts.
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | NO_LINK | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                self._leased = self._device.lease()
                return self._leased
            if error.errno in _HELD:
                return False
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let others send."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        if self._leased:
            self._leased = False
            self._device.release()

    # Around a fork: the child has a copy of the descriptor, and with it would hold the lock after its parent's end.

    def before_fork(self) -> None:
        """Do nothing: the parent goes on."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_patch(self) -> None:
        """Do nothing: it is the system's lock."""

    def after_fork_in_child(self) -> None:
        """Close the child's copy. The parent's lock stays, and so does its lease."""
        descriptor, self._descriptor, self._leased = self._descriptor, -1, False
        if descriptor >= 0:
            os.close(descriptor)
