"""The device: one SQLite file with the agreement, the budget, the schedule, a slot for each metric and built uploads.

Each call is one transaction, so a device that is killed anywhere is found in a state it was in before or after. The
file holds public facts, random bits and counts, with two exceptions: which listed answers a memoized metric has given,
since each costs once, and whether a hidden metric's present period was answered. Life of a report: `record` puts it in
its metric's slot; building moves what the slots hold into one upload and freezes its bytes and id; `charge` charges it
when a connection stands; `settle` forgets it.
"""

import math
import sqlite3
from collections.abc import Callable

from dither.device import reached
from dither.device.choosing import Choosing
from dither.device.connected import DeviceBusy
from dither.device.file import DAY_S
from dither.device.outbox import BuiltUpload
from dither.device.refusals import REFUSED_NAME
from dither.device.schema import FILE_NAME, DeviceFault, DeviceUnusable
from dither.device.send_schedule import Sending
from dither.device.skip_reason import SkipReason
from dither.device.slots import Answer
from dither.device.withdrawal import erase, is_untidy
from dither_shared.frozen import frozen
from dither_shared.registry import Metric

__all__ = [
    "DAY_S", "FILE_NAME", "REFUSED_NAME", "BuiltUpload", "Device", "DeviceBusy", "DeviceFault", "DeviceUnusable",
    "Look", "Sending", "SkipReason",
]  # fmt: skip


ERASE_AGAIN_S = 10.0
"""How long until erasing is tried again while another process reads the file."""


def _at_once() -> float:
    return 0.0


@frozen
class Look:
    """The result of a look by the sending thread."""

    when: float | None
    """The planned attempt, or else the next day, in seconds since 1970; None if nothing comes."""
    due: bool
    """Whether anything may be sent."""
    held_until: float
    """Until when not even a flush sends; 0 if it may."""
    outcome: str
    """The last attempt's result, in a few words."""
    midnight: float | None = None
    """When to look again, whatever is planned: a hidden metric may open or close a period. None if none does."""
    untidy: bool = False
    """Whether what was forgotten or replaced is still in the log: `tidy` erases it, unless another process reads it."""


class Device(Choosing):
    """The state of one device. Safe to share between threads; processes share the file, which is opened on first use.

    `directory` None keeps the state in memory: for trials and simulated devices, which then have no quiet days. Each
    method raises DeviceUnusable for a file that cannot be used. Nothing is recorded before `agree`.
    """

    # Recording.

    def record(self, metric: Metric, answer: object, delay: Callable[[], float] = _at_once) -> str:
        """Randomize an answer into the metric's slot; return "", or why the device stays silent.

        Whether it does depends on days, periods, slots, budgets and agreements; never on the answer. It leaves after a
        `delay`, in seconds, if nothing is planned yet. An answer that is not taken writes nothing: why is counted with
        the next one that is.

        An answer to a hidden metric only ever replaces the "none" of a period that a look has opened, in a file that
        is open; else it is dropped. Nothing else depends on it: no other row, count, plan or thread.
        """
        if metric.hidden:
            return self._replace(metric, answer)
        reason = self._file.recall(metric.name)
        if not reason:
            # Before the transaction: an answer's own methods may do anything, recording included.
            read = metric.read(answer)
            if self._refusals.pending and not self._keep_refusals_but(metric.name):
                reason = "refused"
            else:
                try:
                    reason = self._take(metric, read, delay)
                except (sqlite3.Error, DeviceBusy, DeviceFault):
                    reason = self._file.lately(metric.name)
                    if not reason:
                        raise
        if reason:
            self._file.noted[reason] += 1
        return reason

    def _take(self, metric: Metric, answer: Answer, delay: Callable[[], float]) -> str:
        with self._file.transaction():
            self._notice_clock()
            reason = self._slots.record(metric, answer)
            if reason:
                self._file.remember(metric.name, reason)
            else:
                self._file.remember_answered(metric.name)
                self._send_schedule.planned(delay)
        self._file.keep_lately(metric.name, reason)
        return reason

    def _replace(self, metric: Metric, answer: object) -> str:
        reason = "refused" if self._refusals.of(metric.name) else self._file.recall(metric.name)
        if not reason:
            read = metric.read(answer)
            # A kill may lose what was noted of other metrics: a hidden answer must not decide whether it does.
            with self._file.transaction(brief=True):
                reason = self._slots.replace(metric, read)
                self._file.remember_replaced(metric.name, reason)
        return reason

    def _notice_clock(self) -> None:
        reached.notice(self._file)
        self._outbox.notice_clock()
        self._send_schedule.notice_clock()

    # Uploading.

    def begin(self) -> None:
        """Take note of what the registry has changed, and that its key may be another one."""
        with self._file.transaction():
            if not self._begun:  # the app's configuration may be another one only at a start
                self._send_schedule.key_refused(refused=False)
            reached.notice(self._file)
            self._slots.begin()
            self._budget.prepare_all(reached.today(self._file))
        self._begun = True

    def look(self, delay: Callable[[], float] = _at_once) -> Look:
        """Open and close periods, and return what to wait for; plan an attempt after a `delay` if one is due."""
        if self._refusals.pending:
            self.keep_refusals()
        with self._file.transaction():
            self._file.keep_noted()
            self._notice_clock()
            self._outbox.see_clock()
            self._slots.open_periods()
            due, held_until = self._outbox.due(), self._send_schedule.held_until()
            midnight = (self._file.clock_day() + 1.0) * DAY_S if self._slots.more_comes() else None
            when = midnight
            if due:
                when = max(self._send_schedule.planned(delay), held_until)
            else:
                self._send_schedule.plan_nothing()
            untidy = is_untidy(self._file)
            if untidy:
                when = min(when or math.inf, self._file.clock() + ERASE_AGAIN_S)
            return Look(when, due, held_until, self._file.get("outcome") or "", midnight, untidy)

    def next_upload(self) -> BuiltUpload | None:
        """Return the upload to send now, building one if there is none; None if there is nothing to send.

        Gives up one whose first attempt is six days old, or may be. Charges nothing.
        """
        self.keep_refusals()
        with self._file.transaction():
            if self._agreement.choice() is False:
                return None
            self._slots.open_periods()
            return self._outbox.next()

    def charge(self, upload_id: str) -> bool:
        """Charge an upload when a connection stands, synced to the disk before this returns.

        Return False if it must not leave: it was taken back, or the budget no longer bears it.
        """
        with self._file.transaction(durable=True):
            charged = self._outbox.charge(upload_id)
        if charged:
            self._file.checkpoint()  # what was charged for it outlasts the loss of the log, too
        return charged

    def settle(
        self,
        upload_id: str,
        outcome: str,
        detail: str = "",
        refused: int = 0,
        retired: tuple[int, ...] = (),
        date: float | None = None,
    ) -> int:
        """Forget the upload of that id, count its reports under `outcome`, or as dropped those that were `refused`.

        Return how many came under `outcome`: none if another process was first. `date` is that of a receipt, in
        seconds since 1970.
        """
        with self._file.transaction():
            reached.agree(self._file, date)
            self._slots.open_periods()
            self._outbox.retire(upload_id, retired)
            self._send_schedule.ended(detail, accepted=outcome == "accepted")
            settled = self._outbox.forget(upload_id, outcome, refused)
            if not self._outbox.due():
                self._send_schedule.plan_nothing()  # what is recorded next has a moment of its own
            return settled

    def put_off(self, upload_id: str, detail: str, when: float, held_until: float | None = None) -> bool:
        """Keep an upload for another attempt, in seconds since 1970; not even a flush makes one before `held_until`.

        Return whether to warn: attempts have failed the same way for an hour.
        """
        with self._file.transaction():
            self._file.execute("UPDATE upload SET failures = failures + 1 WHERE id = ?", upload_id)
            return self._send_schedule.failed(detail, when, held_until)

    def hold(self, until: float) -> None:
        """Let nobody send, flushes of further processes included, before a moment in seconds since 1970."""
        with self._file.transaction():
            self._send_schedule.hold(until)

    def split(self, upload_id: str, detail: str = "") -> bool:
        """Halve an upload that was refused as too large when it was first sent; False if it cannot be."""
        with self._file.transaction():
            self._send_schedule.ended(detail, accepted=False)
            return self._outbox.split(upload_id)

    def stopped(self, detail: str) -> None:
        """Note that nothing is sent until the app's configuration changes: the key was refused."""
        with self._file.transaction():
            self._send_schedule.key_refused(refused=True)
            self._send_schedule.ended(detail, accepted=False)

    def lease(self) -> bool:
        """Take or renew the lease to send, where the file system has no locks; False if another process has it."""
        with self._file.transaction():
            return self._send_schedule.lease()

    def release(self) -> None:
        """End the lease."""
        with self._file.transaction():
            self._send_schedule.release()

    # The disk.

    def tidy(self) -> bool:
        """Write the log into the file, and what was forgotten out of both; False if it must be tried again."""
        return erase(self._file)

    def log_bytes(self) -> int:
        """Return how long the log is that `tidy` writes into the file."""
        return self._file.log_bytes()
