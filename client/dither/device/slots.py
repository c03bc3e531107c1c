"""Recording: an answer is randomized into its metric's slot, or the metric stays silent. Within a transaction.

With hidden presence a look opens a period with "none" in the slot, the period's first answer takes its place, and the
slot leaves when the period has closed: a device that was there in a period says something, whatever there was to say.
An answer never opens a period: where no look has, it is dropped. So all that depends on it is what the slot says.
"""

import json

from dither.device.budget import Budget
from dither.device.days import Days, end_of_period, period_start
from dither.device.file import DeviceFile
from dither.device.outbox import Outbox
from dither.device.skip_reason import Silence, SkipReason, SkipReasons, Step
from dither_shared.cells import DEVICE_CELLS_MAX
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng
from dither_shared.wire import SYMBOL_DIGITS

SECRET_BYTES = 32
Answer = tuple[int, ...] | str
"""An answer as `Metric.read` returns it."""


class Slots:
    """The slots in a device's file, which it fills; the outbox empties them."""

    def __init__(
        self,
        file: DeviceFile,
        days: Days,
        registry: Registry,
        skip_reasons: SkipReasons,
        budget: Budget,
        rng: Rng,
        outbox: Outbox,
    ) -> None:
        self._file = file
        self._days = days
        self._skip_reasons = skip_reasons
        self._budget = budget
        self._rng = rng
        self._outbox = outbox
        self.public = 0
        """The place of the device's value in the registry's public column."""
        self._hidden = [metric for metric in registry.metrics.values() if metric.hidden]

    # Recording.

    def record(self, metric: Metric, answer: Answer) -> Silence | None:
        """Randomize an answer into the metric's slot; return None, or why the metric is silent."""
        if self._hidden:
            self.open_periods()
        skip = self._decide(metric)
        if skip.step is not Step.FILL:
            return skip.reason or Silence.ANSWERED
        self._fill(metric, answer)
        self._days.reach()
        return None

    def replace(self, metric: Metric, answer: Answer) -> Silence | None:
        """Let an answer take the place of the "none" of a hidden metric's open period; return None, or why it does not.

        Write nothing but what the slot says, and of a memo the class that it would cost: no day, no row of its own.
        """
        reason = self._skip_reasons.not_taken(metric).reason
        if reason is None:
            (cell,) = self._file.one("SELECT cell FROM slot WHERE metric = ?", metric.name) or (None,)
            if metric.memoized:  # the class that "none" would have cost
                self._file.execute("UPDATE slot SET class = NULL WHERE metric = ?", metric.name)
                self._budget.forget_unused()
            charge, key, report = self._randomize(metric, answer, cell or 0)
            # The row stays where it is, and as long as it was: another order of rows would tell that it was answered.
            sql = "UPDATE slot SET charge = ?, class = ?, report = ?, replaceable = 0 WHERE metric = ?"
            self._file.execute(sql, charge, key, report, metric.name)
        return reason

    def open_periods(self) -> None:
        """Let every metric whose presence is hidden say "none", unless an answer replaces that in time."""
        self.close_periods()
        for metric in self._hidden:
            if self._decide(metric).step is Step.FILL:
                self._file.end_era()
                self._fill(metric, metric.nothing)

    def close_periods(self) -> bool:
        """Make slots of periods that have closed like any other, whether they were answered or not; tell if any was.

        Drop those of periods that are yet to begin: a look opened them in a false future. All traces of an answer go:
        from the file here, from the log because `replaced` asks for it.
        """
        day = self._days.today()
        sql = (
            "SELECT metric FROM slot WHERE leaves > ? AND NOT EXISTS "
            "(SELECT 1 FROM used WHERE used.metric = slot.metric AND first <= ? AND until >= leaves)"
        )
        for (metric,) in self._file.execute(sql, day, day).fetchall():
            self._file.end_era()
            self._file.count("dropped", self._outbox.drop_slots(metric))
            self._budget.forget_unused()
        closed = self._file.one("SELECT 1 FROM slot WHERE leaves BETWEEN 1 AND ?", day) is not None
        if closed:
            self._file.end_era()
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

    def _decide(self, metric: Metric) -> SkipReason:
        """Return why no slot is to be filled, or that one is. Prepare the budget and make room before it."""
        skip = self._skip_reasons.decide(metric)
        if skip.step is Step.PREPARE:
            self._budget.prepare(metric)
            skip = self._skip_reasons.decide(metric, prepared=True)
        if skip.step is Step.MAKE_ROOM:
            self._outbox.build()
            skip = self._skip_reasons.decide(metric, prepared=True)
        return skip

    # Filling.

    def _fill(self, metric: Metric, answer: Answer) -> None:
        """Randomize an answer into an empty slot: with hidden presence "none", which an answer may replace.

        The present period is over for further ones.
        """
        day = self._days.today()
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
        self._days.use(metric.name, period_start(day, metric.period_days), ends)

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
