"""The uploader: a daemon thread that starts when there is something to send and ends when there is not."""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet

from dither.device import BuiltUpload, Device, DeviceBusy
from dither.randomness import jitter
from dither.say import say
from dither.sending.transport import Answer, Outcome, Transport
from dither_shared.frozen import frozen

SEND_WITHIN_S = 3_600.0
"""A report leaves at a random moment of the hour after it was recorded."""
BACKOFF_S = 60.0
BACKOFF_MAX_S = 6 * 3_600.0
PAUSE_S = 0.25
PAUSE_MAX_S = 5.0
BUSY = "another process is sending"
PASSING = (DeviceBusy, sqlite3.OperationalError)
"""Faults of the file that may be over the next time."""
FLUSH_MAX_S = 3_600.0
LOOK_AGAIN_S = 3_600.0
"""The longest that the thread sleeps without a look at the clock, which may be set."""
FORK_WAIT_S = 0.05
"""The longest that a fork of the host app waits for the thread to end."""


@frozen
class FlushResult:
    """What became of the reports that waited."""

    sent: int
    """Reports that the aggregator acknowledged during the flush."""
    waiting: int
    """Reports still on the device: they are sent later, or by the next start."""
    detail: str
    """Why the last attempt was not accepted, or that it still goes on; "" if it was."""


class Sender:
    """Sends what a device has built, one upload at a time, on the thread that asks."""

    def __init__(self, device: Device, transport: Transport, clock: Callable[[], float] = time.time) -> None:
        self._device = device
        self._transport = transport
        self._clock = clock
        self.sent = 0
        """Reports that the aggregator has acknowledged."""
        self.detail = ""
        """Why the latest attempt was not accepted, or "" if it was."""

    def attempt(self) -> Outcome | None:
        """Send one upload, act on the answer and return what it was; None when there is nothing to send."""
        upload = self._device.next_upload() if self._device.due() else None
        if upload is None:
            return None
        answer = self._transport.post(upload.id, upload.body)
        say(logging.DEBUG, "an upload of %d reports: %s", upload.reports, answer.detail)
        self.detail = "" if answer.outcome is Outcome.ACCEPTED else answer.detail
        self._act(upload, answer)
        return answer.outcome

    def _act(self, upload: BuiltUpload, answer: Answer) -> None:
        if answer.outcome is Outcome.KEPT:
            if not answer.connected:
                self._device.not_sent(upload.id)
            backoff_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(upload.attempts, 20))
            not_before = self._clock() + answer.retry_after_s
            self._device.plan(not_before + jitter(backoff_s), not_before if answer.retry_after_s else None)
        elif answer.outcome is Outcome.TOO_LARGE:
            if not self._device.split(upload.id):
                self._device.settle(upload.id, Outcome.DROPPED.value)
        elif answer.outcome is not Outcome.STOPPED:
            settled = self._device.settle(upload.id, answer.outcome.value, answer.rejected)
            if answer.outcome is Outcome.ACCEPTED:
                self.sent += settled


class Uploader:
    """The thread around a sender: at a planned moment, or at once in a flush.

    It ends when nothing waits. A fork of the host app ends it too if it only waits, so that the app forks with no
    thread of ours; the next call starts it again, in either process.
    """

    def __init__(self, device: Device, transport: Transport, clock: Callable[[], float] = time.time) -> None:
        self._device = device
        self._transport = transport
        self._clock = clock
        self._sender = Sender(device, transport, clock)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._hidden = device.hidden
        self._flushes: list[float] = []  # until when each goes on, by time.monotonic
        self._asked = self._looked = self._answered = 0  # flushes: begun, seen by the thread, done as far as can be
        self._pauses = 0
        self._idle = True  # the thread has found nothing to send
        self._closed = False
        self._stopped = False  # by a wrong key: nothing is sent until the next start
        self._forking = 0  # forks that have begun and are not over
        self.paused = False
        """Whether a fork has ended the thread, so that the next call should wake it."""
        _uploaders.add(self)

    def begin(self) -> None:
        """Take note of the registry, open what today opens, and wake the thread if there is anything to wait for."""
        try:
            self._device.begin()
            waits = self._device.next_moment(jitter(SEND_WITHIN_S)) is not None
        except PASSING:
            waits = True  # the thread looks again
        if waits:
            self.wake()

    def wake(self) -> None:
        """Let the thread plan an attempt and make it."""
        with self._changed:
            self.paused = self._forking > 0
            if self._thread is None or self._idle:
                with suppress(*PASSING):
                    self._device.next_moment(jitter(SEND_WITHIN_S))  # planned, however soon the app ends
                self._start()

    def flush(self, timeout_s: float) -> FlushResult:
        """Send what waits now; return when all of it is answered for, sending has stopped, or time is up."""
        timeout_s = min(timeout_s, FLUSH_MAX_S) if timeout_s > 0 else 0.0  # NaN is not above 0 either
        until = time.monotonic() + timeout_s
        with self._changed:
            sent_before = self._sender.sent
            self._flushes.append(until)
            self._pauses = 0
            try:
                if not self._stopped:
                    self._sender.detail = ""
                    self._idle = False
                self._asked += 1
                mine = self._asked
                self._start()
                done = self._changed.wait_for(
                    lambda: (self._thread is None or self._answered >= mine) and not self._forking, timeout_s
                )
            finally:
                self._flushes.remove(until)
            detail = self._sender.detail or ("" if done else "no answer yet")
            return FlushResult(self._sender.sent - sent_before, self._device.waiting(), detail)

    def close(self) -> None:
        """End the thread and close the device, without waiting for the network.

        A thread in the middle of a request closes the device itself when the request is over.
        """
        with self._changed:
            if not self._closed:
                self._closed = True
                self._changed.notify_all()
                if self._thread is None:
                    self._device.close()
                else:
                    with suppress(Exception):
                        self._device.release()
        _uploaders.discard(self)

    def _start(self) -> None:
        """Start the thread, or let the one there is look again."""
        if self._thread is None and not self._closed and not self._stopped:
            thread = threading.Thread(target=self._run, name="dither-uploader", daemon=True)
            thread.start()  # which may fail; if not, it waits for the lock that we hold
            self._thread = thread
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                try:
                    self._send()
                except PASSING as error:
                    self._bear(error)
        except Exception as error:
            # The host app must not notice. What waits stays in the file; the next record or start tries again.
            self._sender.detail = f"failed ({type(error).__name__})"
            say(logging.WARNING, "telemetry could not send: %s", type(error).__name__)
            with self._changed:
                self._end()

    def _send(self) -> None:
        """Make one attempt, unless another process is at it."""
        if self._device.lease():
            self._sender.detail = BUSY
            self._pause(PAUSE_MAX_S)
            return
        try:
            outcome = self._sender.attempt()
        finally:
            self._device.release()
        if outcome is Outcome.STOPPED:
            self._stopped = True
            say(logging.WARNING, "telemetry stopped sending: %s", self._sender.detail)
        elif outcome is Outcome.KEPT and self._flushing():
            self._pause(PAUSE_MAX_S)
        else:
            self._pauses = 0

    def _wait_until_due(self) -> bool:
        """Wait for the planned moment or a flush. When there is nothing to wait for, end the thread and return False.

        Both under one lock, so that whoever records meanwhile finds either a thread that looks again or none.
        """
        with self._changed:
            while not (self._closed or self._stopped or self._forking):
                self._looked = self._asked
                try:
                    when = self._device.next_moment(jitter(SEND_WITHIN_S))
                    due = self._device.due()
                    told_to_wait = self._device.told_to_wait()
                except PASSING as error:
                    self._bear(error)
                    continue
                if when is None:
                    break
                if not due and self._sender.detail == BUSY:
                    self._sender.detail = ""  # that process has sent everything
                if told_to_wait and not self._sender.detail:
                    self._sender.detail = "the aggregator asked to wait"
                self._idle = not due or told_to_wait
                if self._idle:
                    self._answered = self._looked
                    self._changed.notify_all()
                elif self._flushing():
                    return True
                wait_s = when - self._clock()
                if wait_s <= 0 and not self._idle:
                    return True
                self._changed.wait(min(max(wait_s, 0.0), LOOK_AGAIN_S))
            self._end()
            return False

    def _end(self) -> None:
        self._thread = None
        self._idle = True
        self._transport.idle()
        if self._closed:
            self._device.close()
        self._changed.notify_all()

    def _flushing(self) -> bool:
        return any(time.monotonic() < until for until in self._flushes)

    def _bear(self, error: Exception) -> None:
        """Look again ever more seldom after a fault of the file; what waits stays there.

        A flush goes on where another process has the file, and ends where it would have to wait for room on the disk.
        """
        with self._changed:
            self._sender.detail = f"failed ({type(error).__name__})"
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY) & 0xFF != sqlite3.SQLITE_BUSY:
                self._answered = self._looked
                self._changed.notify_all()
            self._pause(BACKOFF_MAX_S)

    def _pause(self, longest_s: float) -> None:
        """Wait for a short while, not for the planned moment: a random one that doubles, and is shorter in a flush."""
        with self._changed:
            self._pauses += 1
            most_s = min(PAUSE_MAX_S if self._flushing() else longest_s, PAUSE_S * 2.0 ** min(self._pauses, 20))
            flushes = len(self._flushes)
            self._changed.wait_for(
                lambda: self._closed or self._forking or len(self._flushes) > flushes, jitter(most_s)
            )

    # Around a fork.

    def _before_fork(self) -> None:
        if self._changed.acquire(timeout=FORK_WAIT_S):
            self._forking += 1
            self.paused = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, FORK_WAIT_S)
            self._changed.release()

    def _after_fork_in_parent(self) -> None:
        with self._changed:
            self._forking = max(0, self._forking - 1)
            if self._hidden or self._flushing():
                self._idle = False
                self._start()

    def _after_fork_in_child(self) -> None:
        self._changed = threading.Condition()
        self._thread = None
        self._flushes = []
        self._idle = True
        self._forking = 0
        self.paused = True


_uploaders: WeakSet[Uploader] = WeakSet()


def _for_all(method: Callable[[Uploader], None]) -> Callable[[], None]:
    def hook() -> None:
        for uploader in list(_uploaders):
            method(uploader)

    return hook


if hasattr(os, "register_at_fork"):  # not on Windows
    # Runs before the hook of the device's file, which was registered first.
    os.register_at_fork(
        before=_for_all(Uploader._before_fork),
        after_in_parent=_for_all(Uploader._after_fork_in_parent),
        after_in_child=_for_all(Uploader._after_fork_in_child),
    )
