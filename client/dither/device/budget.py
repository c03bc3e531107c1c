"""The budget: what a device was charged, by metric name, in micro-epsilon, and what it may still be. In a transaction.

It only grows: a new rev, other terms, a memo that ends, a metric that leaves take nothing back. The cost of a built
upload counts as reserved until a connection stands; then it is charged.

The budget owns the tables `metric` and `class`, and sets the prices of what waits in slots and uploads.
"""

from dither.device.agreement import Agreement, Asked
from dither.device.days import Days, answers_always, draw_periods, period_start
from dither.device.file import DeviceFile
from dither_shared.exact import to_micro
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng


class Budget:
    """The budget in a device's file."""

    def __init__(self, file: DeviceFile, days: Days, registry: Registry, agreement: Agreement, rng: Rng) -> None:
        self._file = file
        self._days = days
        self._registry = registry
        self._agreement = agreement
        self._rng = rng
        self._asked_epsilon = to_micro(registry.device_epsilon)

    def spent(self) -> dict[str, int]:
        """Return the micro-epsilon charged so far, by metric."""
        return dict(self._file.execute("SELECT name, spent FROM metric ORDER BY name").fetchall())

    def _committed(self) -> dict[str, int]:
        """Return the micro-epsilon charged, or reserved by a built upload, by metric."""
        sql = "SELECT name, spent + COALESCE(micro, 0) FROM metric LEFT JOIN reserved ON metric = name"
        return dict(self._file.execute(sql).fetchall())

    def epsilon(self) -> int:
        """Return the most that all metrics may charge together: what was agreed to, or less if less is asked for."""
        return min(self._asked_epsilon, self._agreement.epsilon())

    # Recording.

    def bears(self, metric: Asked, committed: int, has_memo: bool) -> bool:
        """Tell whether one more answer of a metric that is committed to so much fits."""
        if metric.memoized and has_memo:
            return True  # all its answers were reserved when it began
        fits = committed or (metric.name in self._registry.metrics and self._everything_fits())
        if not (fits or self._fits(metric.name, metric.reservation)):
            return False
        # A memo begins with all of its answers left, or not at all.
        needed = metric.reservation if metric.memoized else metric.charge
        return committed + needed <= metric.reservation

    def _everything_fits(self) -> bool:
        """Tell whether the device's epsilon bears all that every metric may reserve: the usual case, and a quick one.

        No answer that is taken changes it.
        """
        fits: bool | None = self._file.known("everything fits")
        if fits is None:
            reserved = dict(self._file.execute("SELECT name, MAX(spent, reserved) FROM metric").fetchall())
            for name, metric in self._registry.metrics.items():
                reserved[name] = max(reserved.get(name, 0), metric.reservation)
            fits = sum(reserved.values()) <= self.epsilon()
            self._file.learn("everything fits", fits)
        return fits

    def _fits(self, name: str, reservation: int) -> bool:
        """Tell whether the device's epsilon bears a metric's reservation beside what the others have begun to spend.

        Those count with all that they reserved, also where they have left the registry: how much of it was spent would
        tell how many answers there were.
        """
        sql = (
            "SELECT SUM(MAX(spent, reserved)) FROM metric WHERE name <> ? AND (spent > 0 OR name IN "
            "(SELECT metric FROM class UNION SELECT metric FROM slot UNION SELECT metric FROM report))"
        )
        (others,) = self._file.one(sql, name) or (0,)
        return int(others or 0) + reservation <= self.epsilon()

    def pay_class(self, metric: Metric, key: str) -> tuple[str, int]:
        """Return the class that a memoized metric answers with, and what its report costs; note a class that is new.

        A class that was charged is free. When the last one that may be charged is, any further answer repeats it:
        silence would say that the answer has changed.
        """
        sql = "SELECT class, charged FROM class WHERE metric = ? ORDER BY place"
        known: dict[str, int] = dict(self._file.execute(sql, metric.name).fetchall())
        if key not in known:
            (reserved,) = self._file.one("SELECT reserved FROM metric WHERE name = ?", metric.name) or (0,)
            if len(known) >= min(metric.charges, reserved // metric.charge):
                key = list(known)[-1]
        if key not in known:
            sql = "INSERT INTO class SELECT ?, ?, COALESCE(MAX(place) + 1, 0), 0 FROM class WHERE metric = ?"
            self._file.execute(sql, metric.name, key, metric.name)
        return key, 0 if known.get(key) else metric.charge

    # Building and sending.

    def price(self, metric: str, charge: int, key: str | None) -> int:
        """Return what a report costs now: nothing where another one of its class was charged meanwhile."""
        paid = key and self._file.one("SELECT 1 FROM class WHERE metric = ? AND class = ? AND charged", metric, key)
        return 0 if paid else charge

    def commitments(self) -> "Commitments":
        """Return what the device is committed to."""
        sql = "SELECT name, reserved FROM metric WHERE name IN (SELECT metric FROM class)"
        return Commitments(self._committed(), dict(self._file.execute(sql).fetchall()))

    def affords(self, commitments: "Commitments", metric: str, charge: int, key: str | None) -> bool:
        """Tell whether a report may be built into an upload, beside what the device is committed to.

        Every report was recorded within its metric's reservation, and is refused if it no longer is: this is where the
        budget refuses if all else fails. One of a memo is not refused: that would tell that its answer is new.
        """
        if not charge or key is not None:
            return True
        asked = self._registry.metrics.get(metric)
        within_metric = asked is None or commitments.of(metric) + charge <= asked.reservation
        return within_metric and commitments.total + charge <= self.epsilon()

    def affords_upload(self, upload_id: str) -> bool:
        """Tell whether all reports of a built upload may be charged, which counts as reserved already."""
        sql = "SELECT metric FROM report WHERE upload = ? AND charge AND class IS NULL"
        fresh = [row[0] for row in self._file.execute(sql, upload_id)]
        if not fresh:
            return True
        commitments, asked = self.commitments(), self._registry.metrics
        within = all(commitments.of(name) <= asked[name].reservation for name in fresh if name in asked)
        return within and commitments.total <= self.epsilon()

    def charge_upload(self, upload_id: str) -> None:
        """Charge what a built upload holds: a connection stands, and its first byte is about to leave."""
        sql = "SELECT metric, charge, class FROM report WHERE upload = ?"
        for metric, charge, key in self._file.execute(sql, upload_id).fetchall():
            price = self.price(metric, charge, key)
            self._file.execute("UPDATE metric SET spent = spent + ? WHERE name = ?", price, metric)
            if key is not None:
                self._file.execute("UPDATE class SET charged = 1 WHERE metric = ? AND class = ?", metric, key)
            if key is not None or price != charge:
                # Without the class: the file tells which answers were charged, and not which one was the latest.
                sql = "UPDATE report SET charge = ?, class = NULL WHERE upload = ? AND metric = ?"
                self._file.execute(sql, price, upload_id, metric)

    # Preparing.

    def prepare_all(self) -> None:
        """Take note of what has changed: a metric that reserves less makes room for others. Draw periods in advance."""
        sql = "SELECT name, terms, memo_key, reserved FROM metric"
        known = {name: tuple(terms) for name, *terms in self._file.execute(sql).fetchall()}
        for name, metric in self._registry.metrics.items():
            if known.get(name) != self.terms(metric) and self._agreement.allows(metric):
                self.prepare(metric)

    def terms(self, metric: Asked) -> tuple[str, str, int]:
        """Return what a metric's row is prepared for: its periods' terms, its memo's key, its reservation."""
        terms = f"{metric.schedule} {metric.charges} {metric.period_days} {metric.expires}"
        return terms, metric.plan.memo_key, metric.reservation

    def prepare(self, metric: Metric) -> None:
        """Make the metric's row that of its present terms; draw its periods if they are new."""
        self._file.end_era()
        terms, memo_key, reserved = self.terms(metric)
        row = self._file.one("SELECT spent, terms, memo_key, reserved FROM metric WHERE name = ?", metric.name)
        spent = row[0] if row else 0
        if row and self._file.one("SELECT 1 FROM class WHERE metric = ?", metric.name):
            if row[2] == memo_key:
                # A reservation never shrinks, and grows only if the device's epsilon bears it.
                reserved = reserved if reserved > row[3] and self._fits(metric.name, reserved) else row[3]
            else:
                # The memo cannot go on. All that was reserved counts as spent, for what was not would tell how many
                # answers there were; what waits is part of it.
                spent = max(spent, row[3])
                self._end_memo(metric.name)
        now = (spent, terms, memo_key, reserved)
        if now != row:
            self._file.execute("INSERT OR REPLACE INTO metric VALUES (?, ?, ?, ?, ?)", metric.name, *now)
        if not row or row[1] != terms:
            self._days.schedule(metric.name, self._drawn(metric, is_new=not row))

    def _end_memo(self, name: str) -> None:
        self._file.execute("DELETE FROM class WHERE metric = ?", name)
        self._file.execute("UPDATE slot SET charge = 0, class = NULL WHERE metric = ?", name)
        self._file.execute(
            "UPDATE report SET charge = 0, class = NULL "
            "WHERE metric = ? AND upload IN (SELECT id FROM upload WHERE NOT charged)",
            name,
        )

    def _drawn(self, metric: Metric, *, is_new: bool) -> list[int]:
        """Draw the periods in which the metric answers; none where it answers in all of them.

        After an upgrade, keep of those that have not begun as many as reports remain, and not the present one, which
        was decided under the old terms. The draw's order is random, so its first ones are a fair choice. Those that
        are over stay, too: the clock may have strayed ahead.
        """
        if answers_always(metric):
            return []
        left = max(0, metric.reservation - self._committed()[metric.name]) // metric.charge
        present = period_start(self._days.today(), metric.period_days)
        drawn = draw_periods(metric, self._rng)
        begins = [day for day in drawn if day > present or (is_new and day == present)]
        return begins[:left] + [day for day in drawn if day < present]

    # Forgetting.

    def forget(self) -> None:
        """Forget all answers of memoized metrics.

        All that a memo reserved counts as spent once a report of it was built: the rest would tell how many answers it
        had. Before what waits is dropped.
        """
        self._file.execute(
            "UPDATE metric SET spent = MAX(spent, reserved) WHERE name IN "
            "(SELECT metric FROM class WHERE charged UNION SELECT metric FROM report WHERE class IS NOT NULL)"
        )
        self._file.execute("DELETE FROM class")

    def forget_unused(self) -> None:
        """Forget the answers of memoized metrics that were not charged and wait no more."""
        self._file.execute(
            "DELETE FROM class WHERE NOT charged "
            "AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.metric = class.metric AND slot.class = class.class) "
            "AND NOT EXISTS (SELECT 1 FROM report WHERE report.metric = class.metric AND report.class = class.class)"
        )


class Commitments:
    """The charges of a device, and its reservations in built uploads, in micro-epsilon. A memo counts with all that it
    reserved."""

    def __init__(self, committed: dict[str, int], memos: dict[str, int]) -> None:
        self._committed = committed
        self.total = sum(max(micro, memos.get(name, 0)) for name, micro in committed.items())

    def of(self, metric: str) -> int:
        """Return what one metric is committed to."""
        return self._committed[metric]

    def add(self, metric: str, charge: int) -> None:
        """Add a fresh report that was just built into an upload."""
        self._committed[metric] += charge
        self.total += charge
