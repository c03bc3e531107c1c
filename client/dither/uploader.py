"""The uploader: a daemon thread that starts when there is something to send and ends when there is not."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dither.device import Device
from dither.transport import Outcome, Transport

SEND_WITHIN_S = 3_600.0
"""A report leaves at a random moment of the hour after it was recorded."""
BACKOFF_S = 60.0
BACKOFF_MAX_S = 6 * 3_600.0
FLUSH_BACKOFF_S = 0.25
FLUSH_BACKOFF_MAX_S = 5.0
FLUSH_MAX_S = 3_600.0

_log = logging.getLogger("dither")
_jitter = random.SystemRandom()


@dataclass(frozen=True)
class FlushResult:
    """What became of the reports that waited."""

    sent: int
    """Reports that the aggregator acknowledged during the flush."""
    waiting: int
    """Reports still on the device: they are sent later, or by the next start."""
    detail: str
    """Why the last attempt was not accepted, or "" if it was."""


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
        upload = self._device.next_upload() if self._device.waiting() else None
        if upload is None:
            return None
        answer = self._transport.post(upload.id, upload.body)
        self.detail = "" if answer.outcome is Outcome.ACCEPTED else answer.detail
        if answer.outcome is Outcome.KEPT:
            backoff_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(upload.attempts, 20))
            self._device.plan(self._clock() + answer.retry_after_s + _jitter.uniform(0, backoff_s))
        elif answer.outcome is not Outcome.STOPPED:
            settled = self._device.settle(upload.id, answer.outcome.value)
            if settled and answer.outcome is Outcome.ACCEPTED:
                self.sent += upload.reports - answer.rejected
        return answer.outcome


class Uploader:
    """The thread around a sender: at a planned moment, or at once in a flush."""

    def __init__(self, device: Device, transport: Transport, clock: Callable[[], float] = time.time) -> None:
        self._device = device
        self._transport = transport
        self._clock = clock
        self._sender = Sender(device, transport, clock)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._flushes: list[float] = []  # until when each goes on, by time.monotonic
        self._flush_failures = 0
        self._closed = False
        self._stopped = False  # by a wrong key: nothing is sent until the next start

    def wake(self) -> None:
        """Plan an attempt, if none is planned, and start the thread that makes it."""
        with self._changed:
            self._planned()
            self._start()

    def flush(self, timeout_s: float) -> FlushResult:
        """Send what waits now; return when all of it is answered for, sending has stopped, or time is up."""
        timeout_s = min(timeout_s, FLUSH_MAX_S) if timeout_s > 0 else 0.0  # NaN is not above 0 either
        until = time.monotonic() + timeout_s
        with self._changed:
            sent_before = self._sender.sent
            self._flushes.append(until)
            self._flush_failures = 0
            if not self._stopped:
                self._sender.detail = ""
            self._start()
            self._changed.wait_for(lambda: self._thread is None, timeout_s)
            self._flushes.remove(until)
            return FlushResult(self._sender.sent - sent_before, self._device.waiting(), self._sender.detail)

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

    def _start(self) -> None:
        """Start the thread, or let the one there is look again."""
        if self._thread is None and not self._closed and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="dither-uploader", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                outcome = self._sender.attempt()
                if outcome is Outcome.STOPPED:
                    self._stopped = True
                    _log.warning("telemetry stopped sending: %s", self._sender.detail)
                elif outcome is Outcome.KEPT:
                    self._pause_flush()
        except Exception as error:
            # The host app must not notice. What waits stays in the file; the next record or start tries again.
            self._sender.detail = f"failed ({type(error).__name__})"
            _log.warning("telemetry could not send: %s", type(error).__name__)
            with self._changed:
                self._end()

    def _wait_until_due(self) -> bool:
        """Wait for the planned moment or a flush. When there is nothing to wait for, end the thread and return False.

        Both under one lock, so that whoever records meanwhile finds either a thread that looks again or none.
        """
        with self._changed:
            while not self._closed and not self._stopped and not self._device.rest():
                if self._flushing():
                    return True
                wait_s = self._planned() - self._clock()
                if wait_s <= 0:
                    return True
                self._changed.wait(min(wait_s, SEND_WITHIN_S))
            self._end()
            return False

    def _planned(self) -> float:
        """Return when the next attempt is due: a random moment, chosen now if none is."""
        planned = self._device.planned()
        if planned is None:
            planned = self._clock() + _jitter.uniform(0, SEND_WITHIN_S)
            self._device.plan(planned)
        return planned

    def _end(self) -> None:
        self._thread = None
        self._transport.idle()
        if self._closed:
            self._device.close()
        self._changed.notify_all()

    def _flushing(self) -> bool:
        return any(time.monotonic() < until for until in self._flushes)

    def _pause_flush(self) -> None:
        """In a flush, wait for a short while instead of the planned one."""
        with self._changed:
            if self._flushing():
                self._flush_failures += 1
                longest_s = min(FLUSH_BACKOFF_MAX_S, FLUSH_BACKOFF_S * 2.0 ** min(self._flush_failures, 20))
                self._changed.wait_for(lambda: self._closed, _jitter.uniform(0, longest_s))
