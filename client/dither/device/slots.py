"""Recording: an answer is randomized into its metric's slot, or the metric stays silent. Within a transaction.

With hidden presence a period opens with "none" in the slot, the period's first answer takes its place, and the slot
leaves when the period has closed: a device that was there in a period says something, whatever there was to say.
"""

import json
from typing import Any

from dither.device.agreement import Agreement
from dither.device.budget import Budget
from dither.device.file import DeviceFile
from dither.device.outbox import Outbox
from dither.device.silence import SPEAKS, UNPREPARED, Facts, Silence, why_nothing_leaves, why_silent
from dither.device.withdrawal import forget_unused_classes
from dither.schedule import day_number, end_of_period, silent_from
from dither_shared.cells import DEVICE_CELLS_MAX
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng

SECRET_BYTES = 32
Answer = tuple[int, ...] | str
"""An answer as `Metric.read` returns it."""

_FACTS = """
SELECT m.spent, m.next_day, m.terms, m.memo_key, m.reserved, a.terms, COALESCE(a.refused, 0), s.leaves, s.plan,
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
        today = self._file.today()
        facts, silence = self._decide(metric, today)
        if silence is not SPEAKS:
            return silence.reason
        ends = facts.next_day if facts.replaceable else end_of_period(metric, today)
        self._fill(metric, answer, ends, replaceable=False)
        return ""

    def open_periods(self) -> None:
        """Let every metric whose presence is hidden say "none" unless it says something else before its period closes.

        The last period has closed, so all traces of whether it was answered go: from the file here, from the log
        because `replaced` asks for it.
        """
        today = self._file.today()
        if self._file.one("SELECT 1 FROM slot WHERE replaceable AND leaves <= ?", today):
            self._file.execute("UPDATE slot SET replaceable = 0 WHERE leaves <= ?", today)
            self._file.set("replaced", 1)
        for metric in self._hidden:
            facts, silence = self._decide(metric, today)
            if silence is SPEAKS and not facts.replaceable:
                self._fill(metric, metric.nothing, end_of_period(metric, today), replaceable=True)
                self._file.set("replaced", 1)

    def more_comes(self) -> bool:
        """Tell whether a metric whose presence is hidden may still open or close a period."""
        today = self._file.today()
        held = bool(self._hidden) and self._file.one("SELECT 1 FROM slot WHERE leaves > ?", today) is not None
        return held or any(day_number(metric.expires) > today for metric in self._hidden)

    def _quiet_until(self) -> int:
        return (self._file.get("first_day") or 0) + self._quiet_days

    def begin(self) -> None:
        """Keep until when the device is quiet, for `dither device`; take up plans that replace retired ones."""
        self._file.set("quiet_until", self._quiet_until())
        for name, plan in self._file.execute("SELECT metric, plan FROM retired").fetchall():
            if name in self._metrics and self._metrics[name].plan.digest != plan:
                self._file.execute("DELETE FROM retired WHERE metric = ?", name)

    def _decide(self, metric: Metric, today: int) -> tuple[Facts, Silence]:
        """Return whether the metric speaks. Prepare its budget, and make room for its answer, if that is what lacks."""
        row = self._row(metric)
        facts = self._facts(metric, today, row)
        silence = why_silent(facts)
        if silence is UNPREPARED:
            is_new = self._budget.prepare(metric, today)
            facts = self._facts(metric, today, row if is_new else self._row(metric), prepared=True)
            silence = why_silent(facts)
        if silence is SPEAKS and facts.crowded and not facts.replaceable:
            self._outbox.build()  # what the slot holds makes room
            facts = self._facts(metric, today, self._row(metric), prepared=True)
            silence = why_silent(facts)
        return facts, silence

    # Looking.

    def silence(self, metric: Metric) -> Silence:
        """Return why nothing of a metric leaves, changing nothing."""
        return why_nothing_leaves(self._facts(metric, self._file.today(), self._row(metric)))

    def _row(self, metric: Metric) -> tuple[Any, ...]:
        row = self._file.one(_FACTS, metric.plan.digest, metric.name)
        assert row
        return row

    def _facts(self, metric: Metric, today: int, row: tuple[Any, ...], *, prepared: bool = False) -> Facts:
        """Return what decides whether a metric is silent; `prepared` says that its budget is."""
        spent, next_day, *terms, agreed, refused, leaves, slot_plan = row[:9]
        replaceable, charge, built, has_memo, building, retired = row[9:]
        crowded = leaves is not None
        waits = crowded and (bool(built) or leaves > today)
        committed = (spent or 0) + building + (0 if waits else charge)
        prepared = prepared or tuple(terms) == self._budget.terms(metric)
        scheduled, next_scheduled = self._budget.scheduled(metric, today) if prepared else (True, None)
        return Facts(
            today=today,
            clock_day=self._file.clock_day(),
            refused=self._agreement.refuses(metric.name, bool(refused)),
            agreed=self._agreement.covers(metric, agreed or ""),
            expires=silent_from(metric, today),
            quiet_until=self._quiet_until(),
            forgotten_until=self._file.get("forgotten_until") or 0,
            retired_until=retired or 0,
            prepared=prepared,
            next_day=next_day or 0,
            # One of another plan stays: what leaves, and when, would tell whether there was an answer since.
            replaceable=bool(replaceable) and leaves > today and slot_plan == metric.plan.digest,
            scheduled=scheduled,
            next_scheduled=next_scheduled,
            crowded=crowded,
            waits=waits,
            key_refused=bool(self._file.get("key_refused")),
            affordable=not prepared or self._budget.bears(metric, committed, bool(has_memo)),
        )

    # Filling.

    def _fill(self, metric: Metric, answer: Answer, ends: int, *, replaceable: bool) -> None:
        """Randomize an answer into the slot. The period, which ends on the day `ends`, is over for further ones."""
        if metric.hidden:
            # The "none" of this period, and the class that it would have cost.
            self._file.execute("DELETE FROM slot WHERE metric = ?", metric.name)
            forget_unused_classes(self._file)
        cells = metric.cells
        cell = (
            cells.of_device(self._cohort())
            if cells.lasting
            else cells.draw(self._rng, self.public if cells.public > 1 else 0)
        )
        mechanism = cells.mechanism_of(cell)
        answer_class = metric.class_of(answer, cell, self._rng_of_class(metric))
        charge, key, rng = metric.charge, None, self._rng
        if metric.memoized:
            # In hex: decimals of so many digits may be refused, by a setting of the host's.
            key, charge = self._budget.pay_class(metric, f"{answer_class:x}")
            answer_class = int(key, 16)
            rng = keyed_rng(self._secret(), f"{metric.plan.memo_key} {key}".encode("ascii"))
        report = mechanism.repeat(mechanism.first_stage.randomize(answer_class, rng), self._rng)
        self._file.execute(
            "INSERT INTO slot VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            # The class only while it is to be charged: else the file would tell the present answer.
            metric.name, metric.plan.digest, charge, key if charge else None, cell if cells.several else None,
            json.dumps(mechanism.shape.to_wire(report)), ends if metric.hidden else 0, int(replaceable),
        )  # fmt: skip
        self._file.execute("UPDATE metric SET next_day = ? WHERE name = ?", ends, metric.name)
        self._file.keep_today()

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
