"""The uploader: a daemon thread that starts when there is something to send and ends when there is not."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dither.device import Device
from dither.transport import Answer, HttpTransport, Outcome

SEND_WITHIN_S = 3_600.0
"""A report leaves at a random moment of the hour after it was recorded."""
BACKOFF_S = 60.0
BACKOFF_MAX_S = 6 * 3_600.0
FLUSH_BACKOFF_S = 0.25
FLUSH_BACKOFF_MAX_S = 5.0

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
    """Why some wait, or "" when none does."""


class Uploader:
    """Sends what a device has built, one upload at a time, until the aggregator has answered for it."""

    def __init__(
        self, device: Device, transport: HttpTransport, clock: Callable[[], float] = time.time
    ) -> None:
        self._device = device
        self._transport = transport
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._flush_until = 0.0  # time.monotonic
        self._flush_failures = 0
        self._closed = False
        self._stopped = False  # by a wrong key: nothing is sent until the next start
        self._detail = ""
        self._sent = 0

    def wake(self) -> None:
        """Plan an attempt, if none is planned, and start the thread that makes it."""
        if self._device.send_at is None:
            self._device.send_at = self._clock() + _jitter.uniform(0, SEND_WITHIN_S)
        with self._changed:
            self._start()

    def flush(self, timeout_s: float) -> FlushResult:
        """Send what waits now; return when all of it is answered for, sending has stopped, or time is up."""
        with self._changed:
            sent_before = self._sent
            self._flush_until = time.monotonic() + timeout_s
            self._flush_failures = 0
            self._start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, timeout_s)
            self._flush_until = 0.0
            waiting = self._device.waiting()
            return FlushResult(self._sent - sent_before, waiting, self._detail if waiting else "")

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
        if self._thread is None and not self._closed and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="dither-uploader", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while self._wait_until_due() and self._send_one():
                pass
        except Exception as error:
            # The host app must not notice; what waits stays in the file for the next start.
            self._detail = f"stopped by {type(error).__name__}"
            _log.warning("telemetry stopped sending: %s", type(error).__name__)
        finally:
            self._transport.idle()
            with self._changed:
                if self._closed:
                    self._device.close()
                self._thread = None
                self._changed.notify_all()

    def _wait_until_due(self) -> bool:
        """Wait for the planned moment or a flush; False when there is nothing to wait for."""
        with self._changed:
            while not self._closed:
                send_at = self._device.send_at
                if self._flushing():
                    return True
                if send_at is None or not self._device.waiting():
                    return False
                wait_s = send_at - self._clock()
                if wait_s <= 0:
                    return True
                self._changed.wait(wait_s)
            return False

    def _flushing(self) -> bool:
        return time.monotonic() < self._flush_until

    def _send_one(self) -> bool:
        """Send one upload; False when nothing is left to send or sending must stop."""
        upload = self._device.next_upload()
        if upload is None:
            self._device.send_at = None
            return False
        answer = self._transport.post(upload.id, upload.body)
        self._detail = answer.detail
        if answer.outcome is Outcome.KEPT:
            self._plan_retry(answer, upload.attempts)
            return True
        if answer.outcome is Outcome.STOPPED:
            self._stopped = True
            _log.warning("telemetry stopped sending: %s", answer.detail)
            return False
        self._device.settle(upload.id, answer.outcome.value)
        if answer.outcome is Outcome.ACCEPTED:
            with self._changed:
                self._sent += upload.reports - answer.rejected
        return True

    def _plan_retry(self, answer: Answer, attempts: int) -> None:
        """Plan the next attempt with full jitter; in a flush, wait for a short while of its own instead."""
        backoff_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(attempts, 20))
        self._device.send_at = self._clock() + answer.retry_after_s + _jitter.uniform(0, backoff_s)
        with self._changed:
            if self._flushing():
                self._flush_failures += 1
                longest_s = min(FLUSH_BACKOFF_MAX_S, FLUSH_BACKOFF_S * 2.0 ** min(self._flush_failures, 20))
                self._changed.wait_for(lambda: self._closed, _jitter.uniform(0, longest_s))
