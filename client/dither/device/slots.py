"""Recording: an answer is randomized into its metric's slot, or the metric stays silent. Within a transaction.

With hidden presence a look opens a period with "none" in the slot, the period's first answer takes its place, and the
slot leaves when the period has closed: a device that was there in a period says something, whatever there was to say.
An answer never opens a period: where no look has, it is dropped. So all that depends on it is what the slot says.
"""

import json
from typing import Any

from dither.device.agreement import Agreement
from dither.device.budget import Budget
from dither.device.file import DeviceFile
from dither.device.outbox import RETIRED_DAYS, Outbox
from dither.device.reached import behind_until, forgotten_until, quiet_until, reach, today, use, used_until
from dither.device.skip_reason import (  # fmt: skip
    SPEAKS,
    UNPREPARED,
    Facts,
    SkipReason,
    reason_not_taken,
    reason_nothing_leaves,
    reason_silent,
)
from dither.device.withdrawal import drop_slots, forget_unused_classes
from dither.schedule import end_of_period, period_start, silent_from
from dither_shared.cells import DEVICE_CELLS_MAX
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng
from dither_shared.wire import SYMBOL_DIGITS

SECRET_BYTES = 32
Answer = tuple[int, ...] | str
"""An answer as `Metric.read` returns it."""

_FACTS = """
SELECT m.spent, m.terms, m.memo_key, m.reserved, a.terms, COALESCE(a.refused, 0), s.leaves, s.plan,
    s.replaceable, COALESCE(s.charge, 0), EXISTS (SELECT 1 FROM upload),
    EXISTS (SELECT 1 FROM class WHERE metric = asked.name),
    COALESCE((SELECT micro FROM reserved WHERE metric = asked.name), 0),
    (SELECT until FROM retired AS r WHERE r.metric = asked.name AND r.plan = ?)
FROM (SELECT ? AS name) AS asked LEFT JOIN metric AS m ON m.name = asked.name
    LEFT JOIN agreement AS a ON a.metric = asked.name LEFT JOIN slot AS s ON s.metric = asked.name
"""


class Slots:
    """The slots in a device's file."""

    def __init__(
        self, file: DeviceFile, registry: Registry, agreement: Agreement, budget: Budget, rng: Rng, outbox: Outbox
    ) -> None:
        self._file = file
        self._agreement = agreement
        self._budget = budget
        self._rng = rng
        self._outbox = outbox
        self._metrics = registry.metrics
        self._quiet_days = registry.quiet_days if file.directory else 0
        self.public = 0
        """The place of the device's value in the registry's public column."""
        self._hidden = [metric for metric in registry.metrics.values() if metric.hidden]

    # Recording.

    def record(self, metric: Metric, answer: Answer) -> str:
        """Randomize an answer into the metric's slot; return "", or why the metric is silent."""
        if self._hidden:
            self.open_periods()
        skip_reason = self._decide(metric)
        if skip_reason is SPEAKS:
            self._fill(metric, answer)
            reach(self._file)
        return skip_reason.reason

    def replace(self, metric: Metric, answer: Answer) -> str:
        """Let an answer take the place of the "none" of a hidden metric's open period; return "", or why it is dropped.

        Write nothing but what the slot says, and of a memo the class that it would cost: no day, no row of its own.
        """
        skip_reason = reason_not_taken(self._facts(metric, self._row(metric)))
        if skip_reason is SPEAKS:
            (cell,) = self._file.one("SELECT cell FROM slot WHERE metric = ?", metric.name) or (None,)
            if metric.memoized:  # the class that "none" would have cost
                self._file.execute("UPDATE slot SET class = NULL WHERE metric = ?", metric.name)
                forget_unused_classes(self._file)
            charge, key, report = self._randomize(metric, answer, cell or 0)
            # The row stays where it is, and as long as it was: another order of rows would tell that it was answered.
            sql = "UPDATE slot SET charge = ?, class = ?, report = ?, replaceable = 0 WHERE metric = ?"
            self._file.execute(sql, charge, key, report, metric.name)
        return skip_reason.reason

    def open_periods(self) -> None:
        """Let every metric whose presence is hidden say "none", unless an answer replaces that in time."""
        self.close_periods()
        for metric in self._hidden:
            if self._decide(metric) is SPEAKS:
                self._fill(metric, metric.nothing)

    def close_periods(self) -> bool:
        """Make slots of periods that have closed like any other, whether they were answered or not; tell if any was.

        Drop those of periods that are yet to begin: a look opened them in a false future. All traces of an answer go:
        from the file here, from the log because `replaced` asks for it.
        """
        day = today(self._file)
        sql = (
            "SELECT metric FROM slot WHERE leaves > ? AND NOT EXISTS "
            "(SELECT 1 FROM used WHERE used.metric = slot.metric AND first <= ? AND until >= leaves)"
        )
        for (metric,) in self._file.execute(sql, day, day).fetchall():
            self._file.count("dropped", drop_slots(self._file, metric))
            forget_unused_classes(self._file)
        closed = self._file.one("SELECT 1 FROM slot WHERE leaves BETWEEN 1 AND ?", day) is not None
        if closed:
            self._file.execute("UPDATE slot SET leaves = 0, replaceable = 0 WHERE leaves BETWEEN 1 AND ?", day)
            self._file.set("replaced", 1)
        return closed

    def end_periods(self) -> bool:
        """Close periods, and let no answer replace the "none" of an open one: telemetry is off, and nobody looks.

        An open one's slot leaves as late as it would. Tell if there was any.
        """
        ended = self._file.execute("UPDATE slot SET replaceable = 0 WHERE leaves > 0").rowcount > 0
        if ended:
            self._file.set("replaced", 1)
            self.close_periods()
        return ended

    def more_comes(self) -> bool:
        """Tell whether a metric's presence is hidden: it may open or close a period, an expired one when the clock is
        set right."""
        return bool(self._hidden)

    def begin(self) -> None:
        """Keep for how long a new file is quiet, for `dither device`; take up plans that replace retired ones."""
        self._file.set("quiet_days", self._quiet_days)
        for name, plan in self._file.execute("SELECT metric, plan FROM retired").fetchall():
            if name in self._metrics and self._metrics[name].plan.digest != plan:
                self._file.execute("DELETE FROM retired WHERE metric = ?", name)

    def _decide(self, metric: Metric) -> SkipReason:
        """Return SPEAKS if a new slot is to be filled. Prepare the budget and make room, if that is lacking."""
        row = self._row(metric)
        facts = self._facts(metric, row)
        skip_reason = reason_silent(facts)
        if skip_reason is UNPREPARED:
            is_new = self._budget.prepare(metric, today(self._file))
            facts = self._facts(metric, row if is_new else self._row(metric), prepared=True)
            skip_reason = reason_silent(facts)
        if skip_reason is SPEAKS and facts.replaceable:
            return SkipReason("answered")  # by the "none" that an answer may still replace
        if skip_reason is SPEAKS and facts.crowded:
            self._outbox.build()  # what the slot holds makes room
            skip_reason = reason_silent(self._facts(metric, self._row(metric), prepared=True))
        return skip_reason

    # Looking.

    def skip_reason(self, metric: Metric) -> SkipReason:
        """Return why nothing of a metric leaves, changing nothing."""
        return reason_nothing_leaves(self._facts(metric, self._row(metric)))

    def _row(self, metric: Metric) -> tuple[Any, ...]:
        row = self._file.one(_FACTS, metric.plan.digest, metric.name)
        assert row
        return row

    def _facts(self, metric: Metric, row: tuple[Any, ...], *, prepared: bool = False) -> Facts:
        """Return what decides whether a metric is silent; `prepared` says that its budget is."""
        spent, *terms, agreed, refused, leaves, slot_plan = row[:8]
        replaceable, charge, built, has_memo, building, retired = row[8:]
        day = today(self._file)
        next_day = used_until(self._file, metric.name, day, end_of_period(metric, day))
        crowded = leaves is not None
        waits = crowded and (bool(built) or leaves > day)
        committed = (spent or 0) + building + (0 if waits else charge)
        prepared = prepared or tuple(terms) == self._budget.terms(metric)
        scheduled, next_scheduled = self._budget.scheduled(metric, day) if prepared else (True, None)
        return Facts(
            today=day,
            clock_day=self._file.clock_day(),
            behind_until=behind_until(self._file),
            refused=self._agreement.refuses(metric.name, bool(refused)),
            agreed=self._agreement.covers(metric, agreed or ""),
            expires=silent_from(metric, day),
            quiet_until=quiet_until(self._file, self._quiet_days),
            forgotten_until=forgotten_until(self._file),
            # One that lies further ahead was set by another clock.
            retired_until=retired if retired and retired <= day + RETIRED_DAYS + 1 else 0,
            prepared=prepared,
            next_day=next_day,
            hidden=metric.hidden,
            # One of another plan stays: what leaves, and when, would tell whether there was an answer since.
            replaceable=bool(replaceable) and day < leaves <= next_day and slot_plan == metric.plan.digest,
            scheduled=scheduled,
            next_scheduled=next_scheduled,
            crowded=crowded,
            waits=waits,
            key_refused=bool(self._file.get("key_refused")),
            affordable=not prepared or self._budget.bears(metric, committed, bool(has_memo)),
        )

    # Filling.

    def _fill(self, metric: Metric, answer: Answer) -> None:
        """Randomize an answer into an empty slot: with hidden presence "none", which an answer may replace.

        The present period is over for further ones.
        """
        day = today(self._file)
        ends = end_of_period(metric, day)
        cells = metric.cells
        cell = (
            cells.of_device(self._cohort())
            if cells.lasting
            else cells.draw(self._rng, self.public if cells.public > 1 else 0)
        )
        charge, key, report = self._randomize(metric, answer, cell)
        self._file.execute(
            "INSERT INTO slot VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            metric.name, metric.plan.digest, charge, key, cell if cells.several else None, report,
            ends if metric.hidden else 0, int(metric.hidden),
        )  # fmt: skip
        use(self._file, metric.name, period_start(day, metric.period_days), ends)

    def _randomize(self, metric: Metric, answer: Answer, cell: int) -> tuple[int, str | None, str]:
        """Return what the report of an answer costs, its class while that is to be charged, and the report itself.

        The class only so long: else the file would tell the present answer. Reports of a metric are equally long.
        """
        mechanism = metric.cells.mechanism_of(cell)
        answer_class = metric.class_of(answer, cell, self._rng_of_class(metric))
        charge, key, rng = metric.charge, None, self._rng
        if metric.memoized:
            # In hex: decimals of so many digits may be refused, by a setting of the host's.
            key, charge = self._budget.pay_class(metric, f"{answer_class:x}")
            answer_class = int(key, 16)
            rng = keyed_rng(self._secret(), f"{metric.plan.memo_key} {key}".encode("ascii"))
        report = mechanism.repeat(mechanism.first_stage.randomize(answer_class, rng), self._rng)
        return charge, key if charge else None, json.dumps(mechanism.shape.to_wire(report)).ljust(SYMBOL_DIGITS)

    def _rng_of_class(self, metric: Metric) -> Rng:
        """Return the coins that a class may need: of a memoized answer they always fall alike."""
        if not (metric.memoized and metric.kind.rounds):
            return self._rng
        return keyed_rng(self._secret(), f"{metric.plan.memo_key} class".encode("ascii"))

    def _cohort(self) -> int:
        """Return the one number below 128 that puts this device into a cell of every metric whose cells last."""
        cohort: int | None = self._file.get("cohort")
        if cohort is None:
            cohort = self._rng.uniform(DEVICE_CELLS_MAX)
            self._file.set("cohort", cohort)
        return cohort

    def _secret(self) -> bytes:
        secret: bytes | None = self._file.get("secret")
        if secret is None:
            secret = self._rng.randbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")
            self._file.set("secret", secret)
        return secret
