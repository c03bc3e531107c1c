"""When the device sends next, and what became of the last attempt. Within a transaction.

The moments are kept across restarts. None depends on an answer to a metric whose presence is hidden.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime

from dither.device.file import DeviceFile
from dither_shared.frozen import frozen

LEASE_S = 120.0
"""Longer than an attempt takes; should one take longer, two processes send the same bytes under the same id."""
WARN_AFTER_S = 3_600.0
NO_ANSWER_YET = "no answer yet"


@frozen
class Sending:
    """The outcome of the last attempt to send, and the moment of the next one."""

    outcome: str = ""
    """The outcome of the last attempt, in a few words; "" if there was none."""
    last: datetime | None = None
    """When that was, in UTC."""
    next: datetime | None = None
    """When the next attempt is planned, in UTC; None while nothing waits, or nothing is planned yet."""
    held_until: datetime | None = None
    """Until when not even a flush sends, in UTC: the aggregator asked to wait, or could not be reached; else None."""


class SendSchedule:
    """The moments at which a device sends, in its file."""

    def __init__(self, file: DeviceFile) -> None:
        self._file = file
        self._token = os.urandom(8).hex()

    # The plan.

    def planned(self, delay: Callable[[], float]) -> float:
        """Return when the next attempt is planned; plan one after a `delay`, in seconds, if none is."""
        now, state = self._file.clock(), self._file.state
        when: float | None = state.get("planned")
        if when is None:
            when = now + delay()
            self._plan(when)
        elif now < (made := state["planned_at"]):  # the clock was set back: nothing waits longer than it would
            when = now + min(delay(), when - made)
            self._plan(when)
        return when

    def _plan(self, when: float | None) -> None:
        self._file.set("planned", when)
        self._file.set("planned_at", None if when is None else self._file.clock())

    def plan_nothing(self) -> None:
        """Take the plan back: nothing waits. Until when the aggregator is left alone stays."""
        self._plan(None)

    def notice_clock(self) -> None:
        """Let a wait be over for good where the clock reads earlier than at the attempt that it comes from."""
        state = self._file.state
        if state.get("held_until") and self._file.clock() < state["outcome_at"]:
            self._file.set("held_until", None)

    def held_until(self) -> float:
        """Return until when not even a flush sends: the aggregator asked to wait, or could not be reached; or 0."""
        until: float = self._file.get("held_until") or 0.0
        return until if until and self._file.get("outcome_at") <= self._file.clock() < until else 0.0

    # The outcome of an attempt.

    def failed(self, outcome: str, when: float, held_until: float | None) -> bool:
        """Note that an attempt failed and when the next one is; tell whether it is time for a warning.

        That is once, after an hour of attempts that failed the same way, until one is accepted.
        """
        now = self._file.clock()
        if self._file.get("failing") != outcome or now < self._file.get("failing_since"):  # the clock was set back
            self._file.set("failing", outcome)
            self._file.set("failing_since", now)
        self._note(outcome)
        self._plan(when)
        self._file.set("held_until", held_until)
        warn = now - self._file.get("failing_since") >= WARN_AFTER_S and not self._file.get("warned")
        if warn:
            self._file.set("warned", 1)
        return warn

    def hold(self, until: float) -> None:
        """Block sending (flush too) until then: an earlier attempt timed out but may still arrive."""
        self._note(NO_ANSWER_YET)
        self._plan(until)
        self._file.set("held_until", until)

    def ended(self, outcome: str, *, accepted: bool) -> None:
        """Note that an attempt was answered for good."""
        self._note(outcome)
        self._file.set("held_until", None)
        self._file.set("failing", None)
        if accepted:
            self._file.set("warned", None)

    def key_refused(self, *, refused: bool) -> None:
        """Keep whether the aggregator refused the key."""
        self._file.set("key_refused", int(refused) or None)

    def _note(self, outcome: str) -> None:
        self._file.set("outcome", outcome)
        self._file.set("outcome_at", self._file.clock())

    def sending(self) -> Sending:
        """Return what became of the last attempt, and when the next one is."""
        get = self._file.get
        held_until = self.held_until()
        planned = max(get("planned"), held_until) if get("planned") and not get("key_refused") else 0.0
        return Sending(
            get("outcome") or "", moment(get("outcome_at")), moment(planned or None), moment(held_until or None)
        )

    # The sender, where the file system has no locks.

    def lease(self) -> bool:
        """Take or renew the lease to send; False if another process has it."""
        now = self._file.clock()
        until: float = self._file.get("lease_until") or 0.0
        # One that would last much longer was taken by another clock.
        if now < until <= now + 2 * LEASE_S and self._file.get("lease_holder") != self._holder():
            return False
        self._file.set("lease_until", now + LEASE_S)
        self._file.set("lease_holder", self._holder())
        return True

    def release(self) -> None:
        """End the lease, unless another process has it by now."""
        if self._file.get("lease_holder") == self._holder():
            self._file.set("lease_until", None)

    def _holder(self) -> str:
        return f"{os.getpid()} {self._token}"


def moment(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as a moment in UTC, without its fraction."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)
