"""Recording: an answer is randomized into its metric's slot, or the metric stays silent. Within a transaction.

Whether it does depends on days, periods, slots, budgets and agreements; never on the answer. Where presence is hidden,
a period begins with "none" in the slot, the period's first answer takes its place, and the slot leaves when the period
has closed: a device that was there in a period says something, whatever there was to say.
"""

import json
from collections.abc import Callable

from dither.device.agreement import Agreement
from dither.device.budget import Budget
from dither.device.file import DeviceFile
from dither.schedule import day_number, period_start
from dither_shared.mechanisms import Memoized
from dither_shared.mechanisms.rappor import COHORTS_MAX
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng

SECRET_BYTES = 32
GRACE_DAYS = 7
"""For so long after a metric expires an aggregator takes its reports: one that leaves later is not made."""
Answer = tuple[int, ...] | str
"""An answer as `Metric.read` returns it."""


class Slots:
    """The slots in a device's file. `build` moves what they hold into an upload, unless one is still to be sent."""

    def __init__(
        self,
        file: DeviceFile,
        registry: Registry,
        agreement: Agreement,
        budget: Budget,
        rng: Rng,
        build: Callable[[], None],
    ) -> None:
        self._file = file
        self._agreement = agreement
        self._budget = budget
        self._rng = rng
        self._build = build
        self._hidden = [metric for metric in registry.metrics.values() if metric.hidden]
        self._quiet_days = registry.quiet_days if file.folder else 0

    def record(self, metric: Metric, answer: Answer) -> str:
        """Randomize an answer into the metric's slot; return "", or why the metric is silent."""
        self.open_periods()
        today = self._file.today()
        reason = self._silence(metric, today)
        if not reason:
            ends = self._opened(metric, today) or _end_of_period(metric, today)
            self._fill(metric, answer, ends)
            self._file.execute("UPDATE metric SET next_day = ? WHERE name = ?", ends, metric.name)
        return reason

    def open_periods(self) -> bool:
        """Let every metric whose presence is hidden say "none" unless it says something else before its period closes.

        Return whether there is one that may still open a period.
        """
        today = self._file.today() if self._hidden else 0
        for metric in self._hidden:
            # Asked in any case: it takes note of an upgrade, as an answer would.
            silent = self._silence(metric, today)
            if not silent and not self._opened(metric, today):
                self._fill(metric, metric.nothing, _end_of_period(metric, today))
        held = bool(self._hidden) and self._file.one("SELECT 1 FROM slot WHERE leaves > ?", today) is not None
        return held or any(day_number(metric.expires) > today for metric in self._hidden)

    def _silence(self, metric: Metric, today: int) -> str:
        if unagreed := self._agreement.silence(metric):
            return unagreed
        if today > self._file.clock_day() + 1:
            return "clock-behind"
        expires = day_number(metric.expires)
        if today >= expires or (metric.hidden and _end_of_period(metric, today) >= expires + GRACE_DAYS):
            return "expired"
        if today < self._file.get("first_day") + self._quiet_days:
            return "quiet"
        if today < (self._file.get("forgotten_until") or 0):
            return "forgotten"
        spent, next_day = self._budget.prepare(metric, today)
        if today < next_day:
            return "answered"
        if not self._budget.scheduled(metric, today):
            return "unscheduled"
        leaves = self._leaves(metric)
        if leaves is not None and not self._opened(metric, today):
            if leaves <= today:
                self._build()
            if self._leaves(metric) is not None:
                return "waiting"
            spent = self._budget.spent()[metric.name]  # what waited is charged now
        return "" if self._budget.bears(metric, spent) else "spent"

    def _leaves(self, metric: Metric) -> int | None:
        """Return the first day on which what the metric's slot holds may leave, or None if it is empty."""
        row = self._file.one("SELECT leaves FROM slot WHERE metric = ?", metric.name)
        return row[0] if row else None

    def _opened(self, metric: Metric, today: int) -> int:
        """Return when the period ends whose "none" is in the slot and may be replaced; 0 if there is none.

        It ends when it did before an upgrade, and one of another plan is not replaced: what leaves, and when, would
        tell whether there was an answer since.
        """
        if not metric.hidden:
            return 0
        sql = "SELECT leaves FROM slot WHERE metric = ? AND leaves > ? AND plan = ?"
        row = self._file.one(sql, metric.name, today, metric.plan.digest)
        return row[0] if row else 0

    def _fill(self, metric: Metric, answer: Answer, ends: int) -> None:
        if metric.hidden:
            # The "none" of this period, and the class that it would have cost.
            self._file.execute("DELETE FROM slot WHERE metric = ?", metric.name)
            self._file.execute("DELETE FROM class WHERE metric = ? AND NOT charged", metric.name)
        mechanism, shape = metric.mechanism, metric.mechanism.shape
        cohort = self._cohort() & (shape.cohorts - 1) if shape.cohorts else None
        answer_class = metric.class_of(answer, cohort or 0)
        charge, key = metric.charge, None
        if isinstance(mechanism, Memoized):
            # In hex: decimals of so many digits may be refused, by a setting of the host's.
            key, charge = self._budget.paid_class(metric, f"{answer_class:x}")
            memo_rng = keyed_rng(self._secret(), f"{metric.plan.memo_key} {key}".encode("ascii"))
            report = mechanism.repeat(mechanism.permanent.randomize(int(key, 16), memo_rng), self._rng)
        else:
            report = mechanism.randomize(answer_class, self._rng)
        self._file.execute(
            "INSERT INTO slot VALUES (?, ?, ?, ?, ?, ?, ?)",
            # The class only while it is to be charged: else the file would tell the present answer.
            metric.name, metric.plan.digest, charge, key if charge else None, cohort, json.dumps(shape.to_wire(report)),
            ends if metric.hidden else 0,
        )  # fmt: skip

    def _cohort(self) -> int:
        """Return the one number below 128 that puts this device into a cohort of every metric that has some."""
        cohort: int | None = self._file.get("cohort")
        if cohort is None:
            cohort = self._rng.uniform(COHORTS_MAX)
            self._file.set("cohort", cohort)
        return cohort

    def _secret(self) -> bytes:
        secret: bytes | None = self._file.get("secret")
        if secret is None:
            secret = self._rng.randbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")
            self._file.set("secret", secret)
        return secret


def _end_of_period(metric: Metric, today: int) -> int:
    """Return the first day after the period."""
    return period_start(today, metric.period_days) + metric.period_days
