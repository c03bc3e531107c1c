"""The device: one SQLite file with the agreement, the budget, the schedule, a slot for each metric and built uploads.

Each call is one transaction, so a device that is killed anywhere is found in a state it was in before or after. What
is stored is public, random already, or a count; only of a memoized metric the file tells which listed answers it has
given, since each costs once, and of a hidden one whether its period was answered. Life of a report: `record` puts it
in its metric's slot; building moves what the slots hold into one upload, charges the budget and freezes the upload's
bytes and id; `settle` forgets the upload.
"""

import time
from collections.abc import Callable
from pathlib import Path

from dither.device.agreement import Agreement
from dither.device.budget import Budget
from dither.device.file import DAY_S, DeviceBusy, DeviceFile
from dither.device.outbox import BuiltUpload, Outbox
from dither.device.schema import FILE_NAME, DeviceUnusable
from dither.device.slots import Slots
from dither.device.withdrawal import drop, forget
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

__all__ = ["DAY_S", "FILE_NAME", "BuiltUpload", "Device", "DeviceBusy", "DeviceUnusable"]


class Device:
    """The state of one device. Safe to share between threads; processes share the file.

    `folder` None keeps the state in memory: for trials and simulated devices, which then have no quiet days. Raises
    DeviceUnusable for a file that cannot be used. Nothing is recorded before `agree`.
    """

    def __init__(
        self, registry: Registry, folder: Path | None, rng: Rng, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = DeviceFile(folder, clock)
        self.hidden = any(metric.hidden for metric in registry.metrics.values())
        self._agreement = Agreement(self._file, registry)
        self._budget = Budget(self._file, registry, self._agreement, rng)
        self._outbox = Outbox(self._file, self._budget, rng)
        self._slots = Slots(self._file, registry, self._agreement, self._budget, rng, self._outbox.build)
        try:
            with self._file.peek():
                known = self._file.get("app") == registry.app
            if not known:
                with self._file.transaction(durable=True):
                    self._file.belongs_to(registry.app)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file. What waits in it is sent by the next start."""
        self._file.close()

    # The person's choices.

    def choice(self) -> bool | None:
        """Return what the person chose for the whole app, or None if they did not choose."""
        with self._file.peek():
            return self._agreement.choice()

    def agree(self, *, chosen: bool = False) -> None:
        """Keep the registry's terms as agreed to, and, where the person said so here, that they chose it."""
        with self._file.transaction(durable=True):
            self._agreement.agree()
            if chosen:
                self._agreement.choose(True)

    def agree_once(self) -> None:
        """Keep the registry's terms as agreed to, unless any ever were."""
        with self._file.peek():
            agreed = self._agreement.agreed()
        if not agreed:
            self.agree()

    def refuse(self) -> None:
        """Keep that the person refuses, and drop what waits. What was charged stays charged, what was known stays."""
        with self._file.transaction(durable=True):
            self._agreement.choose(False)
            drop(self._file, "refused")

    def refuse_metric(self, metric: str, refused: bool) -> None:
        """Keep that the person refuses one metric, and drop what of it waits; or that they no longer do."""
        with self._file.transaction(durable=True):
            self._agreement.refuse(metric, refused)
            if refused:
                drop(self._file, "refused", metric)

    def refused(self) -> list[str]:
        """Return the metrics that the person refuses."""
        with self._file.peek():
            return self._agreement.refused()

    def asks(self) -> dict[str, list[str]]:
        """Return what the registry asks beyond what was agreed to, by metric, and by "" for the whole device."""
        with self._file.peek():
            return self._agreement.asks()

    def forget(self) -> None:
        """Erase the secret, memos, cohort, and what waits; keep what was spent; say nothing for 30 days."""
        forget(self._file)

    # Recording.

    def record(self, metric: Metric, answer: object) -> str:
        """Randomize an answer into the metric's slot; return "", or why the device stays silent.

        Whether it does depends on days, periods, slots, budgets and agreements; never on the answer.
        """
        # Before the transaction: an answer's own methods may do anything, recording included.
        read = metric.read(answer)
        with self._file.transaction():
            self._outbox.notice_clock()
            reason = self._slots.record(metric, read)
            if reason:
                self._file.count(reason)
            return reason

    # Uploading.

    def lease(self) -> float:
        """Take or renew the lease to send and return 0, or return until when another process has it."""
        with self._file.transaction():
            return self._outbox.lease()

    def release(self) -> None:
        """End the lease."""
        with self._file.transaction():
            self._outbox.release()

    def next_upload(self) -> BuiltUpload | None:
        """Return the upload to send now, marked as sent and synced to the disk before this returns; None if none.

        Builds one if there is none. Gives up one whose first attempt is six days old, or lies in the future.
        """
        with self._file.transaction(durable=True):
            self._slots.open_periods()
            upload = self._outbox.next()
        if upload:
            self._file.checkpoint()  # what was charged for it outlasts the loss of the log, too
        return upload

    def not_sent(self, upload_id: str) -> None:
        """Take back that an upload was sent: the attempt got no connection."""
        with self._file.transaction():
            self._outbox.not_sent(upload_id)

    def settle(self, upload_id: str, outcome: str, refused: int = 0) -> int:
        """Forget the upload of that id, count its reports under `outcome`, or as dropped those that were `refused`.

        Return how many came under `outcome`: none if another process was first.
        """
        with self._file.transaction():
            self._slots.open_periods()
            return self._outbox.forget(upload_id, outcome, refused)

    def split(self, upload_id: str) -> bool:
        """Halve an upload that was refused as too large when it was first sent; False if it cannot be."""
        with self._file.transaction():
            return self._outbox.split(upload_id)

    def plan(self, when: float, not_before: float | None = None) -> None:
        """Plan the next attempt, in seconds since 1970, across restarts too; `not_before` is the aggregator's wish."""
        with self._file.transaction():
            self._outbox.plan(when, not_before)

    def told_to_wait(self) -> bool:
        """Tell whether the aggregator has asked to be left alone for now."""
        with self._file.peek():
            return self._outbox.told_to_wait()

    def begin(self) -> None:
        """Take note of what the registry has changed."""
        with self._file.transaction():
            self._budget.prepare_all(self._file.today())

    def next_moment(self, delay_s: float) -> float | None:
        """Return when to look again, in seconds since 1970; None if nothing comes by itself.

        That is the planned attempt if anything is due, in `delay_s` if none is planned yet; else the next day, if a
        metric whose presence is hidden begins or closes its period then.
        """
        with self._file.transaction():
            self._outbox.notice_clock()
            opens = self._slots.open_periods()
            if self._outbox.due():
                return self._outbox.planned(delay_s)
            self._outbox.plan(None)
            return (self._file.today() + 1.0) * DAY_S if opens else None

    def due(self) -> bool:
        """Tell whether anything may be sent."""
        with self._file.transaction():
            return self._outbox.due()

    # Looking.

    def waiting(self) -> int:
        """Return how many reports wait in slots and in built uploads."""
        with self._file.peek():
            return self._outbox.waiting()

    def preview(self) -> tuple[bytes, dict[str, int]]:
        """Return the upload that is sent next and its micro-epsilon by metric, without building or charging it.

        Its bytes are those that are sent if it is built, else but for the id; b"" if nothing is due.
        """
        with self._file.peek():
            return self._outbox.preview()

    def spent(self) -> dict[str, int]:
        """Return the micro-epsilon charged so far, by metric."""
        with self._file.peek():
            return self._budget.spent()

    def counters(self) -> dict[str, int]:
        """Return how many reports were accepted, and how many answers and reports were not sent, by reason."""
        with self._file.peek():
            return dict(self._file.execute("SELECT name, count FROM counter ORDER BY name").fetchall())
