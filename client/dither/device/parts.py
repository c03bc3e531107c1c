"""The parts of a device, how it becomes an app's, and what can be seen of it without changing anything."""

import time
from collections import Counter
from collections.abc import Callable

from dither.device.agreement import Agreement
from dither.device.budget import Budget
from dither.device.file import DeviceFile
from dither.device.outbox import Outbox
from dither.device.refusals import Refusals
from dither.device.schema import DeviceUnusable
from dither.device.send_schedule import Sending, SendSchedule
from dither.device.skip_reason import SkipReason
from dither.device.slots import Slots
from dither_shared.files import StrPath
from dither_shared.registry import Registry
from dither_shared.rng import Rng


class Parts:
    """The parts of a device, for `Device`."""

    def __init__(
        self,
        registry: Registry,
        directory: StrPath | None,
        rng: Rng,
        clock: Callable[[], float] = time.time,
        *,
        goes_on: "Parts | None" = None,
        follows: "Parts | None" = None,
    ) -> None:
        """Make the parts. `goes_on` is a device in memory whose state goes on, as a file's does at another start.

        `follows` is one that has ended, which nobody uses again: nothing but its connection goes on.
        """
        self._registry = registry
        before = goes_on or follows
        self._file: DeviceFile = before._file if before else DeviceFile(directory, clock)
        if follows:
            self._file.start_over(clock)
        self.hidden = any(metric.hidden for metric in registry.metrics.values())
        self._begun = False
        self._refusals = Refusals(directory)
        self._agreement = Agreement(self._file, registry, self._refusals)
        self._budget = Budget(self._file, registry, self._agreement, rng)
        self._outbox = Outbox(self._file, self._budget, rng)
        self._send_schedule = SendSchedule(self._file)
        self._slots = Slots(self._file, registry, self._agreement, self._budget, rng, self._outbox)

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
                    self._file.set("first_day", self._file.clock_day())
        if owner not in (None, self._registry.app):
            raise DeviceUnusable(f"the device file belongs to the app {owner!r}")

    def close(self) -> None:
        """Close the file. The next start sends its waiting reports."""
        self._file.close()

    @property
    def directory(self) -> str | None:
        """The directory of the file, or None for a device in memory."""
        return self._file.directory

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
            kept = dict(self._file.execute("SELECT name, count FROM counter ORDER BY name").fetchall())
        return dict(Counter(kept) + self._file.noted)

    def skip_reasons(self) -> dict[str, SkipReason]:
        """Return why each metric of the registry is silent today, and until when."""
        with self._file.peek():
            return {name: self._slots.skip_reason(metric) for name, metric in self._registry.metrics.items()}

    def sending(self) -> Sending:
        """Return what became of the last attempt to send, and when the next one is."""
        with self._file.peek():
            return self._send_schedule.sending()

    def end_periods(self) -> bool:
        """Close all periods, and open none: nothing is recorded. Tell whether the log is to be erased."""
        with self._file.transaction():
            return self._slots.end_periods()

    def erasing(self) -> bool:
        """Tell whether what was forgotten is still to be erased, because another process reads it."""
        with self._file.peek():
            return bool(self._file.get("erasing"))
