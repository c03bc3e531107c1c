"""The device: one SQLite file with the agreement, the budget, the schedule, a slot for each metric and built uploads.

Each call is one transaction, so a device that is killed anywhere is found in a state it was in before or after. The
file holds public facts, random bits and counts, with two exceptions: which listed answers a memoized metric has given,
since each costs once, and whether a hidden metric's present period was answered. Life of a report: `record` puts it in
its metric's slot; building moves what the slots hold into one upload and freezes its bytes and id; `charge` charges it
when a connection stands; `settle` forgets it.

Each table has one object that writes it: `Agreement`, `Budget`, `Days`, `DaysOfUse`, `Slots`, `Outbox`, `SendSchedule`.
They are told what they need, and reason about nothing else; `SkipReasons` asks them all why a metric is silent.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable

from dither.device.agreement import EVERYTHING, REFUSED_NAME, Agreement, Refusals
from dither.device.file import DAY_S, DURABLE_WAIT_S, WAIT_S, DeviceBusy, DeviceFile
from dither.device.outbox import BuiltUpload, Outbox, Sending, SendSchedule, notice_clock
from dither.device.recording import Budget, Days, Silence, SkipReason, SkipReasons, Slots, day_number
from dither.device.schema import FILE_NAME, DeviceDamaged, DeviceFault, DeviceUnusable, OtherVersion
from dither_shared.files import StrPath
from dither_shared.frozen import frozen
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

__all__ = [
    "DAY_S",
    "FILE_NAME",
    "REFUSED_NAME",
    "BuiltUpload",
    "Device",
    "DeviceBusy",
    "DeviceFault",
    "DeviceUnusable",
    "Look",
    "Sending",
    "Silence",
    "SkipReason",
]  # fmt: skip


ERASE_AGAIN_S = 10.0
"""How long until erasing is tried again while another process reads the file."""


_USE = "days of use"
"""The key of what is known of them: that today is kept, if it may be. No metric has such a name."""


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
    another_day: bool = False
    """Whether all that waits does so because a report of its metric has left today."""
    untidy: bool = False
    """Whether what was forgotten or replaced is still in the log: `tidy` erases it, unless another process reads it."""


class Device:
    """The state of one device. Safe to share between threads; processes share the file, which is opened on first use.

    `directory` None keeps the state in memory: for trials and simulated devices, which then have no quiet days. Each
    method raises DeviceUnusable for a file that cannot be used. Nothing is recorded before `agree`.
    """

    def __init__(
        self,
        registry: Registry,
        directory: StrPath | None,
        rng: Rng,
        clock: Callable[[], float] = time.time,
        *,
        goes_on: Device | None = None,
        follows: Device | None = None,
    ) -> None:
        """Make the parts. `goes_on` is a device in memory whose state goes on, as a file's does at another start.

        `follows` is one that has ended, which nobody uses again: nothing but its connection goes on.
        """
        self._registry = registry
        before = goes_on or follows
        self._file: DeviceFile = before._file if before else DeviceFile(directory, clock)
        if follows:
            self._file.start_over(clock)
        self._file.begin_era(of_day=True)  # what was known may have been known of another registry
        self.directory = self._file.directory
        """The directory of the file, or None for a device in memory."""
        self.hidden = any(metric.hidden for metric in registry.metrics.values())
        """Whether the presence of a metric is hidden: it may open or close a period, also an expired one's."""
        self.measured = [
            metric for metric in registry.metrics.values() if metric.measures not in ("", "session_length")
        ]
        """The metrics that it answers itself, of its days of use."""
        self._quiet_days = registry.quiet_days if self.directory else 0
        self._begun = False
        self._refusals = Refusals(directory)
        self._days = Days(self._file)
        known = before._agreement if before else None
        self._agreement: Agreement = Agreement(self._file, registry, self._refusals, known)
        self._budget = Budget(self._file, self._days, registry, self._agreement, rng)
        self._skip_reasons = SkipReasons(self._file, self._days, self._agreement, self._budget, self._quiet_days)
        # Not of `self`: a device that nobody closes goes, with its file, when nothing refers to it.
        self._outbox = outbox = Outbox(self._file, self._days, self._budget, rng)
        self._slots = Slots(
            self._file, self._days, registry, self._skip_reasons, self._budget, rng, lambda: outbox.build()
        )
        self._send_schedule = SendSchedule(self._file)

    def set_public(self, place: int) -> None:
        """Let tables' reports say this value of the registry's public column from now on."""
        self._slots.public = place

    def open(self) -> None:
        """Make the file this app's if it is new; raise DeviceUnusable if it is another's."""
        if self.directory:  # a look first: of a file that there is it needs no more
            with self._file.peek():
                owner = self._file.get("app")
        else:
            owner = None
        if owner is None:
            with self._file.transaction(durable=True):
                owner = self._file.get("app")
                if owner is None:
                    self._file.set("app", self._registry.app)
                    self._file.set("first_day", self._file.day)
        if owner not in (None, self._registry.app):
            raise DeviceUnusable(f"the device file belongs to the app {owner!r}")

    def close(self) -> None:
        """Close the file. The next start sends its waiting reports."""
        self._file.close()

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
        reason: Silence | None = self._file.recall(metric.name)
        if reason is None:
            # Before the transaction: an answer's own methods may do anything, recording included.
            read = metric.read(answer)
            if self._refusals.pending and not self._keep_refusals_but(metric.name):
                reason = Silence.REFUSED
            else:
                try:
                    with self._file.transaction(keeps_era=True):
                        notice_clock(self._send_schedule, self._outbox, self._days)
                        # In a false future a receipt that another process gets may bring back a day without answers.
                        lasts = self._days.today() == self._file.day
                        reason = self._slots.record(metric, read)
                        if reason is None:
                            self._send_schedule.planned(delay)
                        known = reason or Silence.ANSWERED
                        self._file.learn(metric.name, known, all_day=lasts and known is Silence.ANSWERED)
                except (sqlite3.Error, DeviceBusy, DeviceFault):
                    reason = self._file.lately(metric.name)
                    if reason is None:
                        raise
        if reason is None:
            return ""
        word: str = reason.value
        self._file.noted[word] += 1
        return word

    def use(self, delay: Callable[[], float] = _at_once) -> bool:
        """Keep that the device is used today, and answer what it measures itself; return whether a report waits now.

        The first use of a day does: all others write nothing. Nothing is kept unless the person agreed to a metric that
        measures it.
        """
        if not self.measured or self._file.recall(_USE):
            return False
        from dither.device.uses import DaysOfUse  # most registries measure nothing

        if self._refusals.pending:
            self.keep_refusals()
        answered = False
        with self._file.transaction(keeps_era=True):
            notice_clock(self._send_schedule, self._outbox, self._days)
            measured = [metric for metric in self._wanted() if self._agreement.allows(metric)]
            days = DaysOfUse(self._file, self._days)
            used = days.mark() if measured else None
            if not measured:
                self._forget_use()
            if used:
                self._file.end_era()
                first_use = days.first_use(used)
                for metric in measured:
                    answer = used.answer(metric, first_use)
                    if answer is not None:
                        answered |= self._slots.record(metric, metric.read(answer)) is None
            if answered:
                self._send_schedule.planned(delay)
            self._file.learn(_USE, True)
        return answered

    def _wanted(self) -> list[Metric]:
        """Return the metrics that measure days of use, without those that are refused or have expired."""
        today, refused = self._days.today(), self._agreement.refused()
        return [
            metric
            for metric in self.measured
            if today < day_number(metric.expires) and not self._agreement.refuses(metric.name, metric.name in refused)
        ]

    def _forget_use(self, *, refused: bool = False) -> None:
        """Erase the days of use if no metric is left that measures them; one that only waits for consent is left."""
        if (refused or not self._wanted()) and self._file.execute("SELECT 1 FROM used_days").fetchone():
            from dither.device.uses import DaysOfUse

            DaysOfUse(self._file, self._days).forget()
            self._file.set("replaced", 1)

    def _replace(self, metric: Metric, answer: object) -> str:
        refused = self._refusals.of(metric.name)
        reason: Silence | None = Silence.REFUSED if refused else self._file.recall(metric.name)
        if reason is None:
            read = metric.read(answer)
            # A kill may lose what was noted of other metrics: a hidden answer must not decide whether it does.
            with self._file.transaction(brief=True):
                reason = self._slots.replace(metric, read)
                self._file.learn(metric.name, reason or Silence.ANSWERED)
        return reason.value if reason else ""

    # Uploading.

    def begin(self) -> None:
        """Take note of what the registry has changed, and that its key may be another one."""
        with self._file.transaction():
            if not self._begun:  # the app's configuration may be another one only at a start
                self._send_schedule.key_refused(refused=False)
            self._days.notice()
            self._file.set("quiet_days", self._quiet_days)  # for `dither device`
            self._outbox.take_up(self._registry.metrics)
            self._budget.prepare_all()
            if not self.measured:  # it may have expired by a false clock alone: then a use tells
                self._forget_use()
        self._begun = True

    def look(self, delay: Callable[[], float] = _at_once) -> Look:
        """Open and close periods, and return what to wait for; plan an attempt after a `delay` if one is due."""
        if self._refusals.pending:
            self.keep_refusals()
        with self._file.transaction(keeps_era=True):
            self._file.keep_noted()
            notice_clock(self._send_schedule, self._outbox, self._days)
            self._outbox.see_clock()
            self._slots.open_periods()
            due, held_until = self._outbox.due(), self._send_schedule.held_until()
            midnight = (self._file.day + 1.0) * DAY_S if self.hidden else None
            when = midnight
            if due:
                when = max(self._send_schedule.planned(delay), held_until)
            else:
                self._send_schedule.plan_nothing()
            another_day = self._outbox.due_another_day()
            if another_day:
                when = min(when or math.inf, self._days.next_of_aggregator())
            untidy = self._file.untidy()
            if untidy:
                when = min(when or math.inf, self._file.clock() + ERASE_AGAIN_S)
            outcome = self._file.get("outcome") or ""
            return Look(when, due, held_until, outcome, midnight, another_day, untidy)

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
            self._days.agree(date)
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
            self._outbox.failed(upload_id)
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

    # The person's choices.

    def choice(self) -> bool | None:
        """Return what the person chose for the whole app, in whichever process, or None if they did not choose."""
        self._refusals.look()
        if EVERYTHING in self._refusals.pending:
            return False
        with self._file.peek():
            return self._agreement.choice()

    def agree(self, *, chosen: bool = False) -> None:
        """Keep the registry's terms as agreed to, and, where the person said so here, that they chose it."""
        refused_before = self._unwritten(EVERYTHING)
        with self._file.transaction(durable=True):
            if refused_before:
                self._outbox.drop("refused")
            self._agreement.agree()
            if chosen:
                self._agreement.choose(True)
        self._refusals.clear(EVERYTHING)

    def agree_once(self) -> None:
        """Keep the registry's terms as agreed to, unless any ever were."""
        with self._file.peek():
            agreed = self._agreement.agreed()
        if not agreed:
            self.agree()

    def refuse(self) -> None:
        """Keep that the person refuses, and drop what waits and the days of use. Charges stay, as do memos.

        If the file cannot be written, the choice is kept beside it. Raises where that cannot be either: then it holds
        in this process alone.
        """
        self._refuse(EVERYTHING)

    def refuse_metric(self, metric: str, refused: bool) -> None:
        """Keep that the person refuses one metric, and drop what of it waits; or that they no longer do."""
        if refused:
            self._refuse(metric)
            return
        refused_before = self._unwritten(metric)
        with self._file.transaction(durable=True):
            if refused_before:
                self._outbox.drop("refused", metric)
            self._agreement.refuse(metric, refused)
        self._refusals.clear(metric)

    def _unwritten(self, metric: str) -> bool:
        """Tell whether a refusal is still to be written: what waited then must not leave, whatever is chosen since."""
        self._refusals.look()
        return metric in self._refusals.pending

    def _refuse(self, metric: str) -> None:
        try:
            self.open()
            self._write_refusals({metric}, DURABLE_WAIT_S)
        except Exception as error:
            # The mark waits for the disk, for the dither of the file's version, or for a new file in place of a damaged
            # one. Beside the file of another app it would be read as that app's.
            waits = isinstance(error, DeviceDamaged | DeviceFault | OtherVersion) or not isinstance(
                error, DeviceUnusable
            )
            if not (waits and self._refusals.note(metric)):
                raise

    def keep_refusals(self) -> None:
        """Write the refusals that could not be written before, ours and other processes'."""
        self._refusals.look()
        if self._refusals.pending:
            self._write_refusals(set(self._refusals.pending), WAIT_S)

    def _keep_refusals_but(self, metric: str) -> bool:
        """Write the refusals; return False where that cannot be, and a metric is refused by one of them."""
        try:
            self.keep_refusals()
        except Exception:
            if not self._refusals.of(metric):
                raise
            return False
        return True

    def _write_refusals(self, metrics: set[str], wait_s: float) -> None:
        with self._file.transaction(durable=True, wait_s=wait_s):  # the disk has it before the mark beside it goes
            for metric in metrics:
                if metric == EVERYTHING:
                    self._agreement.choose(False)
                    self._outbox.drop("refused")
                else:
                    self._agreement.refuse(metric, refused=True)
                    self._outbox.drop("refused", metric)
            self._forget_use()
        self._refusals.clear(*metrics)

    def drop(self) -> None:
        """Drop what waits and the days of use: the app says that the person does not agree."""
        with self._file.transaction(durable=True):
            self._outbox.drop("refused")
            self._forget_use(refused=True)

    def refused(self) -> list[str]:
        """Return the metrics that the person refuses."""
        with self._file.peek():
            return sorted({*self._agreement.refused(), *self._refusals.pending} - {EVERYTHING})

    def asks(self) -> dict[str, list[str]]:
        """Return what the registry asks beyond what was agreed to, by metric, and by "" for the whole device."""
        with self._file.peek():
            return self._agreement.asks()

    def forget(self) -> bool:
        """Erase the secret, memos, cohort, and what waits; keep what was spent; say nothing for 30 days.

        Return False while another process still reads what was: `look` goes on with it.
        """
        with self._file.transaction(durable=True):
            self._outbox.forget_everything()
        return self._file.erase()

    def end_periods(self) -> bool:
        """Close all periods, and open none: nothing is recorded. Tell whether the log is to be erased."""
        with self._file.transaction():
            return self._slots.end_periods()

    # The disk.

    def tidy(self) -> bool:
        """Write the log into the file, and what was forgotten out of both; False if it must be tried again."""
        return self._file.erase()

    def log_bytes(self) -> int:
        """Return how long the log is that `tidy` writes into the file."""
        return self._file.log_bytes()

    def erasing(self) -> bool:
        """Tell whether what was forgotten is still to be erased, because another process reads it."""
        with self._file.peek():
            return bool(self._file.get("erasing"))

    # Looking, without changing anything.

    def waiting(self) -> int:
        """Return how many reports wait in slots and in built uploads."""
        with self._file.peek():
            return self._outbox.waiting()

    def preview(self) -> tuple[bytes, dict[str, int]]:
        """Return the upload that is sent next and its micro-epsilon by metric, without building or charging it.

        Its bytes are those that are sent if it is built, else but for the id; b"" if nothing is due.
        """
        with self._file.peek(tries=True):
            self._slots.open_periods()
            return self._outbox.preview()

    def spent(self) -> dict[str, int]:
        """Return the micro-epsilon charged so far, by metric."""
        with self._file.peek():
            return self._budget.spent()

    def counters(self) -> dict[str, int]:
        """Return how many reports were accepted, and how many answers and reports were not sent, by reason."""
        with self._file.peek():
            return self._file.counts()

    def skip_reasons(self) -> dict[str, SkipReason]:
        """Return why each metric of the registry is silent today, and until when."""
        with self._file.peek():
            metrics = self._registry.metrics
            return {name: self._skip_reasons.nothing_leaves(metric) for name, metric in metrics.items()}

    def sending(self) -> Sending:
        """Return what became of the last attempt to send, and when the next one is."""
        with self._file.peek():
            return self._send_schedule.sending()
