"""The budget: what a device was charged, by metric name, in micro-epsilon, and what it may still be. In a transaction.

It only grows: a new rev, other terms, a memo that ends, a metric that leaves take nothing back.
"""

from dither.device.agreement import Agreement
from dither.device.file import DeviceFile
from dither.schedule import answers_always, draw_periods, period_start
from dither_shared.exact import to_micro
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng


class Budget:
    """The budget in a device's file."""

    def __init__(self, file: DeviceFile, registry: Registry, agreement: Agreement, rng: Rng) -> None:
        self._file = file
        self._registry = registry
        self._agreement = agreement
        self._rng = rng
        self._asked_epsilon = to_micro(registry.device_epsilon)

    def spent(self) -> dict[str, int]:
        """Return the micro-epsilon charged so far, by metric."""
        return dict(self._file.execute("SELECT name, spent FROM metric ORDER BY name").fetchall())

    def epsilon(self) -> int:
        """Return the most that all metrics may charge together: what was agreed to, or less if less is asked for."""
        return min(self._asked_epsilon, self._agreement.epsilon())

    def bears(self, metric: Metric, spent: int) -> bool:
        """Tell whether one more answer of a metric that has spent so much fits."""
        if metric.memoized and self._has_memo(metric.name):
            return True  # all its answers were reserved when it began
        if not spent and not self._fits(metric.name, metric.reservation):
            return False
        # A memo begins with all of its answers left, or not at all.
        needed = metric.reservation if metric.memoized else metric.charge
        return spent + needed <= metric.reservation

    def _has_memo(self, name: str) -> bool:
        return self._file.one("SELECT 1 FROM class WHERE metric = ?", name) is not None

    def _fits(self, name: str, reservation: int) -> bool:
        """Tell whether the device's epsilon bears a metric's reservation beside what the others have begun to spend.

        Those count with all that they reserved, also where they have left the registry: how much of it was spent would
        tell how many answers there were.
        """
        row = self._file.one("SELECT SUM(MAX(spent, reserved)) FROM metric WHERE name <> ?", name)
        if row and (row[0] or 0) + reservation <= self.epsilon():
            return True  # though all of them count, begun or not: the usual case, and the quick one
        others = self._file.execute(
            "SELECT name, MAX(spent, reserved), "
            "spent > 0 OR name IN (SELECT metric FROM class UNION SELECT metric FROM slot) "
            "FROM metric WHERE name <> ?",
            name,
        ).fetchall()
        taken = sum(most for other, most, begun in others if begun or other not in self._registry.metrics)
        return int(taken) + reservation <= self.epsilon()

    def paid_class(self, metric: Metric, key: str) -> tuple[str, int]:
        """Return the class that a memoized metric answers with, and what its report costs.

        A class that was charged is free. When the last one that may be charged is, any further answer repeats it:
        silence would say that the answer has changed.
        """
        sql = "SELECT class, charged FROM class WHERE metric = ? ORDER BY place"
        known: dict[str, int] = dict(self._file.execute(sql, metric.name).fetchall())
        (reserved,) = self._file.one("SELECT reserved FROM metric WHERE name = ?", metric.name) or (0,)
        if key not in known and len(known) >= min(metric.charges, reserved // metric.charge):
            key = list(known)[-1]
        if key not in known:
            self._file.execute("INSERT INTO class VALUES (?, ?, ?, 0)", metric.name, key, len(known))
        return key, 0 if known.get(key) else metric.charge

    def charge(self, metric: str, charge: int, key: str | None) -> bool:
        """Charge a report, which then leaves; or return False if it may not.

        Every report was recorded within its metric's reservation, and is refused if it no longer is: this is where the
        budget refuses if all else fails. One of a memo is not refused: that would tell that its answer is new.
        """
        if charge and key is None and not self._affords(metric, charge):
            return False
        self._file.execute("UPDATE metric SET spent = spent + ? WHERE name = ?", charge, metric)
        self._file.execute("UPDATE class SET charged = 1 WHERE metric = ? AND class = ?", metric, key)
        return True

    def _affords(self, metric: str, charge: int) -> bool:
        spent = self.spent()
        asked = self._registry.metrics.get(metric)
        within_metric = asked is None or spent[metric] + charge <= asked.reservation
        sql = "SELECT name, reserved FROM metric WHERE name IN (SELECT metric FROM class)"
        memos = dict(self._file.execute(sql).fetchall())
        total = sum(max(micro, memos.get(name, 0)) for name, micro in spent.items())
        return within_metric and total + charge <= self.epsilon()

    def prepare_all(self, today: int) -> None:
        """Take note of changes to metrics that were asked before: one that reserves less makes room for others."""
        for name in self.spent():
            metric = self._registry.metrics.get(name)
            if metric is not None and not self._agreement.silence(metric):
                self.prepare(metric, today)

    def prepare(self, metric: Metric, today: int) -> tuple[int, int]:
        """Return what the metric has spent and the day from which it may answer; draw its periods if terms are new."""
        terms = f"{metric.schedule} {metric.charges} {metric.period_days} {metric.expires}"
        memo_key, reserved = metric.plan.memo_key, metric.reservation
        row = self._file.one(
            "SELECT spent, next_day, terms, memo_key, reserved FROM metric WHERE name = ?", metric.name
        )
        if row and row[2:] == (terms, memo_key, reserved):
            return row[0], row[1]
        spent, next_day = row[:2] if row else (0, 0)
        if row and self._has_memo(metric.name):
            if row[3] == memo_key:
                # What was reserved stays so, and grows only where the device's epsilon bears it.
                reserved = reserved if reserved > row[4] and self._fits(metric.name, reserved) else row[4]
            else:
                # The memo cannot go on. All that was reserved counts as spent, for what was not would tell how many
                # answers there were; what waits is part of it.
                spent = max(spent, row[4])
                self._file.execute("DELETE FROM class WHERE metric = ?", metric.name)
                self._file.execute("UPDATE slot SET charge = 0, class = NULL WHERE metric = ?", metric.name)
        self._file.execute(
            "INSERT OR REPLACE INTO metric VALUES (?, ?, ?, ?, ?, ?)",
            metric.name, spent, next_day, terms, memo_key, reserved,
        )  # fmt: skip
        if not row or row[2] != terms:
            if row:
                self._file.execute("DELETE FROM schedule WHERE metric = ?", metric.name)
            self._draw_periods(metric, spent, period_start(today, metric.period_days) + (1 if row else 0))
        return spent, next_day

    def _draw_periods(self, metric: Metric, spent: int, begun: int) -> None:
        """Draw the periods in which the metric answers.

        Of an upgrade's draw only periods not begun count, today's was decided under the old terms, and of them no more
        than there are reports left. The draw's order is random, so its first ones are a fair choice.
        """
        if not answers_always(metric):
            left = max(0, metric.reservation - spent) // metric.charge
            for day in [day for day in draw_periods(metric, self._rng) if day >= begun][:left]:
                self._file.execute("INSERT INTO schedule VALUES (?, ?)", metric.name, day)

    def scheduled(self, metric: Metric, today: int) -> bool:
        """Tell whether the metric answers in today's period."""
        day = period_start(today, metric.period_days)
        return answers_always(metric) or bool(
            self._file.one("SELECT 1 FROM schedule WHERE metric = ? AND day = ?", metric.name, day)
        )
