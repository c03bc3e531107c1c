"""The uploader: a daemon thread that starts when there is something to wait for and ends when there is not."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from dither import forks
from dither.device import Device, DeviceUnusable
from dither.device.connection import left_s
from dither.device.send_schedule import NO_ANSWER_YET
from dither.sending.courier import LOG_BYTES_MAX, Courier, delay, passes
from dither.sending.transport import Transport
from dither.status import CLOSED
from dither_shared.frozen import frozen

FLUSH_MAX_S = 3_600.0
NO_THREAD = (
    "no thread can be started now, as while the program ends: it is tried again at the next answer, flush or start"
)
SETTLE_S = 1.0
"""So long a forked child does nothing by itself: it may be about to become another program."""
FLUSH_LOOKS_EVERY_S = 0.25
"""A fork that cannot have the lock wakes nobody: a flush looks again by itself."""
WAKE_WAIT_S = 5.0
"""The longest that a call waits for the thread to have looked, where nothing else bounds it."""
FORK_WAIT_S = 0.05
"""The longest that a fork of the host app waits for the thread to end."""
LOG_BYTES_HURRY = 768 * 1_024
"""Above this, who records waits until the thread has written the log into the file, but for HURRY_WAIT_S at most."""
MEASURE_EVERY = 16
"""After so many answers the log is measured: one adds a few KiB."""
HURRY_STEP_S, HURRY_WAIT_S = 0.001, 0.1


@frozen
class FlushResult:
    """The outcome for the reports that waited."""

    sent: int
    """Reports that the aggregator acknowledged during the flush; in a dry run, those that were shown."""
    waiting: int
    """Reports still on the device: they are sent later, or by the next start. 0 where it was closed meanwhile."""
    detail: str
    """Why the last attempt was not accepted, or not all of it, or that it still goes on; "" if it was."""


class Uploader(Courier):
    """The requests of the app and its forks to the thread: to send at a planned moment, or at once in a flush.

    A fork of the host app ends the thread if it only waits, so that the app forks with no thread of ours; where
    presence is hidden it goes on in either process, else with the next call.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport,
        begin: Callable[[], bool | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(device, transport, begin, clock)
        self._answered_open = 0  # flushes that were done when it was closed: later ones were cut short
        self._unmeasured = 0  # answers that were taken since the log was measured
        self.wakes = False
        """Whether a fork has ended the thread, or none could be started: the next call should start it."""
        forks.senders.add(self)

    def start(self) -> None:
        """Take note of the registry and of what today opens; start the thread if there is anything to wait for."""
        try:
            self._begun = False  # the person may have agreed to more, or the app started again
            begun = self._begin_once()
            waits = begun is None or (begun and self._device.look(delay).when is not None)
        except Exception as error:
            if not passes(error):
                raise
            waits = True  # the thread looks again
        if waits or self._has_long_log():
            self.wake()

    def recorded(self) -> None:
        """Let the thread know of a public answer that was taken. A hidden one leaves no trace here."""
        if self._rests or self._thread is None:
            self.wake()
        self._unmeasured += 1
        if self._unmeasured >= MEASURE_EVERY and not self._situation.hidden:
            self._unmeasured = 0
            self._shorten_log()

    def _shorten_log(self) -> None:
        """Have a log that has become long written into the file, and wait a little where it still grows."""
        log_bytes = self._device.log_bytes()
        if log_bytes > LOG_BYTES_MAX:
            self._tidy_soon()
        waited_s = 0.0
        while log_bytes > LOG_BYTES_HURRY and waited_s < left_s(HURRY_WAIT_S):
            time.sleep(HURRY_STEP_S)
            waited_s += HURRY_STEP_S
            log_bytes = self._device.log_bytes()

    def wake(self) -> None:
        """Let the thread look."""
        self._called = True  # it looks once more where it has the lock for too long
        changed = self._changed
        if changed.acquire(timeout=left_s(WAKE_WAIT_S)):
            self.wakes = not self._start_thread() or self._forks > 0
            changed.release()

    def flush(self, timeout_s: float) -> FlushResult:
        """Send what waits now; return when all of it is answered for, it stops or is closed, or time is up."""
        timeout_s = min(timeout_s, FLUSH_MAX_S) if timeout_s > 0 else 0.0  # NaN is not above 0 either
        until = time.monotonic() + timeout_s
        if not self._changed.acquire(timeout=left_s(FLUSH_MAX_S)):
            return FlushResult(0, self._device.waiting(), NO_ANSWER_YET)
        try:
            sent_before = self._sender.sent
            self._flushes.append(until)
            self._pauses, self._faults, self._paused = 0, 0, 0.0
            try:
                if not self._situation.stopped:
                    self._sender.detail = ""
                self._asked += 1
                mine = self._asked
                if not self._start_thread():
                    self._sender.detail = NO_THREAD
                    self._device.look(delay)
                while not (done := self._over(mine)) and (rest_s := until - time.monotonic()) > 0:
                    self._changed.wait(min(rest_s, FLUSH_LOOKS_EVERY_S))
            finally:
                self._flushes.remove(until)
            cut_short = self._situation.closed and mine > self._answered_open
            detail = CLOSED if cut_short else self._sender.detail or ("" if done else NO_ANSWER_YET)
            alone = not self._flushing()
        finally:
            self._changed.release()
        if not done and alone:
            with suppress(Exception):
                self._sender.put_off_present()
        try:
            waiting = self._device.waiting()
        except DeviceUnusable:
            if not self._situation.closed:
                raise
            waiting = 0
        return FlushResult(self._sender.sent - sent_before, waiting, detail)

    def _over(self, flush: int) -> bool:
        """Tell whether a flush is over. Start the thread again if a fork, and nothing else, has ended it."""
        if self._situation.closed or self._answered >= flush:
            return True
        if self._thread is None:
            self._start_thread()
        return self._thread is None and not self._forks

    def close(self) -> None:
        """End the thread and close the device, without waiting for the network. Flushes that wait return.

        A thread in the middle of a request closes the device itself when the request is over.
        """
        changed = self._changed
        free = changed.acquire(timeout=left_s(WAKE_WAIT_S))  # else the thread is in the middle of a look, and finds it
        if not self._situation.closed:
            self._answered_open = self._answered
            self._set(closed=True)
            if self._thread is None:
                self._device.close()
            else:
                self._sender.let_go()
        if free:
            changed.notify_all()
            changed.release()
        forks.senders.discard(self)

    def _tidy_soon(self) -> None:
        """Have the log written into the file: by the thread, or beside it while it waits for a server's answer."""
        if self._sender.busy:
            self.tidy_beside()
        else:
            self.wake()

    def tidy_beside(self) -> None:
        """Have the log written into the file by another thread than the one that looks and sends."""
        with suppress(RuntimeError):  # none can be started now
            threading.Thread(target=self._tidy, name="dither-uploader", daemon=True).start()

    # Around a fork.

    def before_fork(self) -> None:
        """Let the thread end if it only waits."""
        if self._changed.acquire(timeout=FORK_WAIT_S):
            self._forks += 1
            self.wakes = True
            self._changed.notify_all()
            thread = self._thread
            self._changed.wait_for(lambda: self._thread is None, FORK_WAIT_S)
            if thread is not None and self._thread is None:
                thread.join(FORK_WAIT_S)  # what is said to be over may still have a few steps to go
            self._changed.release()

    def after_fork_in_parent(self) -> None:
        """Go on, by itself where presence is hidden."""
        self._forks = max(0, self._forks - 1)
        if self._changed.acquire(timeout=FORK_WAIT_S):  # else somebody has it, who looks
            if self._device.hidden or self._flushing():
                self._start_thread()
            self._changed.release()

    def after_patch(self) -> None:
        """Have a lock and a thread of the new kind. The present one ends at its next turn; it may be in a request."""
        changed = self._changed
        if changed.acquire(timeout=FORK_WAIT_S):
            self._changed = threading.Condition()
            self._thread = None
            self._sender.forget_attempt()
            self.wakes = True
            changed.notify_all()
            changed.release()

    def after_fork_in_child(self) -> None:
        """Go on, by itself where presence is hidden: whether the app calls may depend on an answer."""
        self._changed = threading.Condition()
        self._thread = None
        self._flushes = []
        self._rests = True
        self._forks = 0
        self._pauses, self._faults, self._paused = 0, 0, 0.0
        self._sender.forget_attempt()
        self.wakes = True
        self._settled = time.monotonic() + SETTLE_S
        if self._device.hidden:
            self._start_thread()
