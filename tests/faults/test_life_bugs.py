"""Bugs that a life does not survive: each is planted, and a short life finds it."""

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from dither.device import BuiltUpload, Device, Silence
from dither.device.agreement import Agreement
from dither.device.file import DeviceFile
from dither.device.outbox import Outbox
from dither.device.recording import Budget, Slots, end_of_period
from dither.sending.transport import Answer
from dither_shared.registry import Metric
from dither_shared.terms import Terms
from dither_shared.wire import new_upload_id
from tests.faults.schedules import Step, live_by_chance, record, release, travel
from tests.faults.witness import Witness
from tests.support.clocks import DAY_S
from tests.support.soaking import SOAK

pytestmark = pytest.mark.slow


class UsedUp(Exception):
    """In a planted bug: the answer is new, and no more are paid."""


def charge_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Budget, "charge_upload", lambda self, upload_id: None)


def charge_what_is_built(patch: pytest.MonkeyPatch) -> None:
    """As before: also what never has a connection."""
    build = Outbox.build

    def build_and_charge(self: Outbox) -> None:
        build(self)
        for (upload_id,) in self._file.execute("SELECT id FROM upload WHERE NOT charged").fetchall():
            self._budget.charge_upload(upload_id)
            self._file.execute("UPDATE upload SET charged = 1 WHERE id = ?", (upload_id,))

    patch.setattr(Outbox, "build", build_and_charge)


def charge_after_the_first_byte(patch: pytest.MonkeyPatch) -> None:
    post = Witness.post

    def post_first(self: Witness, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        answer = post(self, upload_id, body, lambda: None)
        stands()
        return answer

    patch.setattr(Witness, "post", post_first)


def charge_whatever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Budget, "bears", lambda self, *_: True)
    patch.setattr(Budget, "affords", lambda self, *_: True)
    patch.setattr(Budget, "affords_upload", lambda self, upload_id: True)


def charge_a_memo_what_it_gave(patch: pytest.MonkeyPatch) -> None:
    """When a memo cannot go on, charge the answers that it gave instead of all that it might have given."""
    prepare = Budget.prepare

    def prepare_cheaply(self: Budget, metric: Metric) -> None:
        spent = self.spent().get(metric.name, 0)
        prepare(self, metric)
        self._file.execute("UPDATE metric SET spent = ? WHERE name = ?", (spent, metric.name))

    patch.setattr(Budget, "prepare", prepare_cheaply)


def fall_silent_when_a_memo_is_used_up(patch: pytest.MonkeyPatch) -> None:
    pay_class, fill, replace = Budget.pay_class, Slots._fill, Slots.replace

    def pay_or_raise(self: Budget, metric: Metric, key: str) -> tuple[str, int]:
        paid, micro = pay_class(self, metric, key)
        if paid != key:
            raise UsedUp
        return paid, micro

    def fill_or_not(self: Slots, metric: Metric, answer: Any) -> None:
        with suppress(UsedUp):
            fill(self, metric, answer)

    def replace_or_not(self: Slots, metric: Metric, answer: Any) -> Silence | None:
        with suppress(UsedUp):
            return replace(self, metric, answer)
        return None

    patch.setattr(Budget, "pay_class", pay_or_raise)
    patch.setattr(Slots, "_fill", fill_or_not)
    patch.setattr(Slots, "replace", replace_or_not)


def let_an_answer_open_its_period(patch: pytest.MonkeyPatch) -> None:
    """As before: who answers reports of a period in which nobody looks."""
    replace = Slots.replace

    def open_and_replace(self: Slots, metric: Metric, answer: Any) -> Silence | None:
        self.open_periods()
        return replace(self, metric, answer)

    patch.setattr(Slots, "replace", open_and_replace)


def forget_what_was_spent(patch: pytest.MonkeyPatch) -> None:
    forget = Budget.forget

    def forget_all(self: Budget) -> None:
        forget(self)
        self._file.execute("DELETE FROM metric")

    patch.setattr(Budget, "forget", forget_all)


def forget_metrics_that_left(patch: pytest.MonkeyPatch) -> None:
    begin = Device.begin

    def clean(self: Device) -> None:
        begin(self)
        with self._file.transaction():
            names = ", ".join(f"'{name}'" for name in self._budget._registry.metrics)
            self._file.execute(f"DELETE FROM metric WHERE name NOT IN ({names})")

    patch.setattr(Device, "begin", clean)


def refresh_at_new_terms(patch: pytest.MonkeyPatch) -> None:
    prepare = Budget.prepare

    def prepare_anew(self: Budget, metric: Metric) -> None:
        self._file.execute(
            "UPDATE metric SET spent = 0 WHERE name = ? AND memo_key <> ?", (metric.name, metric.plan.memo_key)
        )
        prepare(self, metric)

    patch.setattr(Budget, "prepare", prepare_anew)


def ask_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Agreement, "covers", lambda self, metric, agreed: True)
    patch.setattr(Agreement, "refuses", lambda self, metric, kept: False)


def ask_about_the_sum_alone(patch: pytest.MonkeyPatch) -> None:
    """As before: another list, a higher epsilon of fewer reports, and a memo for fresh noise go unasked."""
    asks = Terms.asks

    def asks_less(self: Terms, agreed: Terms | None) -> list[str]:
        return [ask for ask in asks(self, agreed) if not re.match("its list|its epsilon of|its fresh|its number", ask)]

    patch.setattr(Terms, "asks", asks_less)


def keep_what_was_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "drop", lambda self, reason, metric=None: None)


def send_before_the_disk_has_it(patch: pytest.MonkeyPatch) -> None:
    def charge(self: Device, upload_id: str) -> bool:
        with self._file.transaction():
            return self._outbox.charge(upload_id)

    patch.setattr(Device, "charge", charge)


def give_every_attempt_an_id(patch: pytest.MonkeyPatch) -> None:
    mark = Outbox.next

    def unfreeze(self: Outbox) -> BuiltUpload | None:
        upload = mark(self)
        if upload is None or self._file.execute("SELECT sent FROM upload WHERE id = ?", (upload.id,)).fetchone() == (
            0,
        ):
            return upload
        new_id = new_upload_id(self._rng.randbits)
        body = upload.body.replace(upload.id.encode(), new_id.encode())
        self._file.execute("UPDATE upload SET id = ?, body = ? WHERE id = ?", (new_id, body, upload.id))
        self._file.execute("UPDATE report SET upload = ? WHERE upload = ?", (new_id, upload.id))
        return BuiltUpload(new_id, body, upload.reports, upload.failures)

    patch.setattr(Outbox, "next", unfreeze)


def never_give_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dither.device.outbox.GIVE_UP_S", 10_000 * DAY_S)


# Bugs that tell who has answered a metric whose presence is hidden: all were there before.


def let_only_an_answer_end_a_period(patch: pytest.MonkeyPatch) -> None:
    """Keep with an answer, and not with a "none", that the period is over, and all before it."""
    replace = Slots.replace

    def replace_and_end(self: Slots, metric: Metric, answer: Any) -> Silence | None:
        reason = replace(self, metric, answer)
        if not reason:
            self._days.use(metric.name, 0, end_of_period(metric, self._days.today()))
        return reason

    patch.setattr(Slots, "replace", replace_and_end)


def count_why_a_hidden_metric_is_silent(patch: pytest.MonkeyPatch) -> None:
    record = Device.record

    def count(self: Device, metric: Metric, answer: object, delay: Callable[[], float]) -> str:
        reason = record(self, metric, answer, delay)
        if reason and metric.hidden:
            self._file.noted[reason] += 1
        return reason

    patch.setattr(Device, "record", count)


def let_a_hidden_answer_plan_the_moment(patch: pytest.MonkeyPatch) -> None:
    record = Device.record

    def plan(self: Device, metric: Metric, answer: object, delay: Callable[[], float]) -> str:
        reason = record(self, metric, answer, delay)
        if not reason and metric.hidden:
            with self._file.transaction():
                self._send_schedule.planned(delay)
        return reason

    patch.setattr(Device, "record", plan)


def keep_whether_a_closed_period_was_answered(patch: pytest.MonkeyPatch) -> None:
    use = DeviceFile._use

    def keep(self: DeviceFile, db: sqlite3.Connection | None) -> None:
        use(self, db)
        execute, sql, other = self.execute, "leaves = 0, replaceable = 0 WHERE", "leaves = 0 WHERE"
        self.execute = lambda asked, *arguments: execute(asked.replace(sql, other), *arguments)

    patch.setattr(DeviceFile, "_use", keep)


def send_a_day_that_waits_with_todays(patch: pytest.MonkeyPatch) -> None:
    """As before: a built report and a waiting one of a metric leave on one day."""
    drop = Outbox._drop_upload

    def forget_the_day(self: Outbox, upload_id: str) -> int:
        dropped = drop(self, upload_id)
        self._file.execute("DELETE FROM left_on")
        return dropped

    patch.setattr(Outbox, "_drop_upload", forget_the_day)


def forget_the_day_of_what_was_never_answered(patch: pytest.MonkeyPatch) -> None:
    """An upload that is given up, or taken back after it was sent, may have come as well."""
    drop = Outbox._drop_upload

    def keep_the_accepted_alone(self: Outbox, upload_id: str) -> int:
        kept = self._file.execute("SELECT metric, day FROM left_on").fetchall()
        row = self._file.execute("SELECT failures FROM upload WHERE id = ?", (upload_id,)).fetchone()
        dropped = drop(self, upload_id)
        if row and row[0]:
            self._file.execute("DELETE FROM left_on")
            for one in kept:
                self._file.execute("INSERT INTO left_on VALUES (?, ?)", one)
        return dropped

    patch.setattr(Outbox, "_drop_upload", keep_the_accepted_alone)


BUGS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    charge_nothing: "told what costs|was charged 0 for",
    charge_what_is_built: "was charged .* for 0",
    charge_after_the_first_byte: "told what costs|was charged .* for",
    charge_whatever: "was agreed to",
    charge_a_memo_what_it_gave: "told what costs|depends on its answers",
    fall_silent_when_a_memo_is_used_up: "depends on its answers|the files tell answers apart|was reached by nothing",
    let_an_answer_open_its_period: "depends on its answers|the files tell answers apart",
    forget_what_was_spent: "was refreshed",
    forget_metrics_that_left: "was refreshed|told what costs .* was charged 0",
    refresh_at_new_terms: "was refreshed",
    ask_nobody: "and was recorded|were not agreed to",
    ask_about_the_sum_alone: "were not agreed to",
    keep_what_was_refused: "was refused, and .* left|counted twice",
    send_before_the_disk_has_it: "told what costs",
    give_every_attempt_an_id: "counted twice|should",
    never_give_up: "counted twice",
    let_only_an_answer_end_a_period: "the files tell answers apart, by used",
    count_why_a_hidden_metric_is_silent: "the files tell answers apart, by counter",
    let_a_hidden_answer_plan_the_moment: "depends on its answers: Look|the files tell answers apart, by state",
    keep_whether_a_closed_period_was_answered: "the files tell answers apart, by slot",
    send_a_day_that_waits_with_todays: "had two reports on one day",
    forget_the_day_of_what_was_never_answered: "had two reports on one day",
}

RELEASES = [release] * 3 + [record] * 3 + [travel]
HARD_TO_FIND = {ask_about_the_sum_alone}
"""Lives of everything do not show it, those of releases and answers do. `shared/test_terms` fails on it at once."""
LIVES = 1_000
FIRST_LIVES: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    charge_nothing: 2,
    charge_what_is_built: 3,
    charge_after_the_first_byte: 7,
    charge_whatever: 2,
    send_before_the_disk_has_it: 1,
    never_give_up: 1,
    charge_a_memo_what_it_gave: 31,
    fall_silent_when_a_memo_is_used_up: 11,
    let_an_answer_open_its_period: 100,
    forget_what_was_spent: 3,
    forget_metrics_that_left: 12,
    refresh_at_new_terms: 4,
    let_a_hidden_answer_plan_the_moment: 11,
    ask_about_the_sum_alone: 171,
    forget_the_day_of_what_was_never_answered: 31,
}
"""The life that shows a bug, where it is not the first: to begin with it saves those before it.

If another change makes the lives go another way, a later one shows the bug, and takes longer.
"""


SORTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    charge_nothing,
    charge_whatever,
    let_an_answer_open_its_period,
    forget_what_was_spent,
    ask_nobody,
    keep_what_was_refused,
    let_only_an_answer_end_a_period,
    send_a_day_that_waits_with_todays,
]
"""One for each sort of what a life is held against: charges, terms, silences, new terms, ids, files, days."""


@pytest.mark.parametrize("bug", BUGS if SOAK else SORTS, ids=lambda bug: bug.__name__)
def test_a_life_shows_a_planted_bug(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=BUGS[bug]):
        live_on(FIRST_LIVES.get(bug, 0), RELEASES if bug in HARD_TO_FIND else None)


def live_on(first: int, kinds: Sequence[Step] | None) -> None:
    for seed in range(first, first + LIVES):
        live_by_chance(seed, 40, kinds)
