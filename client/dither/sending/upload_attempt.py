"""One attempt: the upload that is due, its charge once a connection stands, and what its answer means for it.

The process that sends is the one that holds a lock, which ends with its process, however that ends. It is on a file of
its own, beside the device's: closing any descriptor of the database would take away SQLite's locks on it. On a file
system without locks a lease in the device's file stands in, which ends after two minutes.
"""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable

from dither import fork_handlers
from dither.device import BuiltUpload, Device
from dither.device.schema import SENDER_NAME
from dither.device.sqlite_connection import DURABLE_WAIT_S, left_s
from dither.logger import DEBUG, WARNING, say
from dither.randomness import jitter
from dither.sending.transport import Answer, Outcome, Transport
from dither_shared.errors import DitherError
from dither_shared.file_permissions import NO_LINK

BACKOFF_S = 60.0
BACKOFF_MAX_S = 6 * 3_600.0
BUSY = "another process is sending"
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


class TakenBack(DitherError):
    """The upload must not leave: it was dropped while the connection was made, or no longer fits the budget."""


class Sender:
    """Sends what a device has built, one upload at a time, on the thread that asks."""

    def __init__(self, device: Device, transport: Transport, clock: Callable[[], float] = time.time) -> None:
        self._device = device
        self._transport = transport
        self._clock = clock
        self._lock = SenderLock(device)
        self._present: BuiltUpload | None = None  # whose answer is waited for
        self._answering = threading.Lock()  # around what is done on the word that there is no answer yet
        self.sent = 0
        """Reports that the aggregator has acknowledged."""
        self.detail = ""
        """Why the latest attempt was not accepted, or not all of it; "" if it was."""
        self.elsewhere = False
        """Whether another process was sending at the latest attempt."""
        self.held = False
        """Whether flushes, too, leave it alone for now, since the latest attempt."""

    def attempt(self) -> Outcome | None:
        """Send one upload, act on the answer and return what it was.

        None where nothing was sent: there is nothing to send, or another process is at it, as `detail` says then.
        """
        self.elsewhere = not self._lock.take()
        if self.elsewhere:
            self.detail = BUSY
            return None
        try:
            upload = self._device.next_upload()
            if upload is None:
                return None
            self._present = upload
            answer = self._transport.post(upload.id, upload.body, lambda: self._charge(upload.id))
            with self._answering:
                self._present = None
            say(DEBUG, "an upload of %d reports: %s", upload.reports, answer.detail)
            whole = answer.outcome is Outcome.ACCEPTED and not (answer.rejected or answer.dry)
            self.detail = "" if whole else answer.detail
            self._act(upload, answer)
        except TakenBack:
            return None
        else:
            return answer.outcome
        finally:
            self._present = None
            self._lock.release()

    def _charge(self, upload_id: str) -> None:
        if not self._device.charge(upload_id):
            raise TakenBack

    def _act(self, upload: BuiltUpload, answer: Answer) -> None:
        device, outcome = self._device, answer.outcome
        if outcome is Outcome.KEPT:
            self._put_off(upload, answer)
        elif outcome is Outcome.STOPPED:
            device.stopped(answer.detail)
        elif outcome is not Outcome.TOO_LARGE:
            settled = device.settle(
                upload.id, outcome.value, answer.detail, answer.rejected, answer.retired, answer.date
            )
            self.sent += settled if outcome is Outcome.ACCEPTED else 0
        elif not device.split(upload.id, answer.detail):
            device.settle(upload.id, Outcome.DROPPED.value, answer.detail)

    def _put_off(self, upload: BuiltUpload, answer: Answer) -> None:
        not_before = self._clock() + answer.retry_after_s
        when = not_before + _backoff_s(upload)
        # Flushes, too, leave alone a server that certainly cannot be reached: those of other processes as well.
        held_until = not_before if answer.retry_after_s else None if answer.connected else when
        self.held = held_until is not None
        if self._device.put_off(upload.id, answer.detail, when, held_until):
            say(WARNING, "telemetry could not send for an hour: %s", answer.detail)

    @property
    def busy(self) -> bool:
        """Whether an attempt waits for its answer."""
        return self._present is not None

    def let_go(self) -> None:
        """Let other processes send, though an attempt may wait for its answer: what they send has the same id."""
        self._lock.release()

    def forget_attempt(self) -> None:
        """Take note, in a forked child, that an attempt is the parent's."""
        self._present = None
        self._answering = threading.Lock()

    def put_off_present(self) -> None:
        """Let flushes of further processes leave the server alone for a while, if the present attempt has no answer.

        An answer that comes meanwhile counts after it, and lifts it.
        """
        answering = self._answering
        if not answering.acquire(timeout=left_s(DURABLE_WAIT_S)):
            return
        try:
            if self._present is not None:
                self._device.hold(self._clock() + _backoff_s(self._present))
        finally:
            answering.release()


def _backoff_s(upload: BuiltUpload) -> float:
    return jitter(min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(upload.failures + 1, 20)))


class SenderLock:
    """The lock of one telemetry object; also two in one process keep each other out. A device in memory needs none."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._path = f"{device.directory}/{SENDER_NAME}" if device.directory else ""
        self._descriptor = -1
        self._leased = False
        fork_handlers.files.add(self)

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
