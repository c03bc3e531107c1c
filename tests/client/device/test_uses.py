"""Days of use: each is a bit, kept after consent, once, and what the device answers of them."""

import os
import random
import signal
import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from dither.cli import main
from dither.device import FILE_NAME, Device
from dither.device.recording import EPOCH, SILENT_DAYS, day_number
from dither.device.uses import DaysOfUse, Used
from dither_shared.measures import DAYS_KEPT
from dither_shared.registry import Metric, Registry
from tests.support.clocks import DAY_S, Clock
from tests.support.devices import open_device, send
from tests.support.measured import measured, measured_text
from tests.support.soaking import scaled

MONDAY = 20_776
"""A day divisible by 7, on which a period of a week begins."""


def used(directory: Path) -> tuple[int, int, int] | None:
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        row: tuple[int, int, int] | None = db.execute("SELECT first, latest, days FROM used_days").fetchone()
        return row


def days_of(directory: Path) -> set[int]:
    """Return the days that are kept."""
    row = used(directory)
    return {row[1] - back for back in range(DAYS_KEPT) if row[2] >> back & 1} if row else set()


def begun(directory: Path | None, clock: Clock, registry: Registry | None = None) -> Device:
    device = open_device(registry or measured(), directory, clock)
    device.begin()
    return device


def at(day: int) -> Clock:
    return Clock(day * DAY_S + DAY_S / 2)


def test_a_day_is_a_bit_however_often_it_is_used(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock)
    for day in (0, 1, 3, 3, 61, 62):
        clock.now = (MONDAY + day) * DAY_S + 100
        device.use()
        device.use()
    # The first day is 62 days before the latest, and is no longer among those that are kept.
    assert used(tmp_path) == (MONDAY, MONDAY + 62, sum(1 << 62 - day for day in (1, 3, 61, 62)))
    assert days_of(tmp_path) == {MONDAY + day for day in (1, 3, 61, 62)}


def test_only_the_first_use_of_a_day_writes(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock)
    assert device.use()
    before = device._file._db
    assert before is not None
    changes = before.total_changes
    for _ in range(3):
        assert not device.use()
    device.end_periods()  # another transaction: what was known is looked up again
    device.use()
    assert before.total_changes == changes


def test_nothing_is_kept_before_consent_nor_without_a_metric_that_measures(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = open_device(measured(), tmp_path / "asked", clock, agree=False)
    assert not device.use()
    assert used(tmp_path / "asked") is None
    device.agree()
    assert device.use()
    assert used(tmp_path / "asked") is not None
    other = begun(tmp_path / "other", clock, measured("theme"))
    assert not other.use()
    assert used(tmp_path / "other") is None
    alone = begun(tmp_path / "alone", clock, measured("lasts"))
    assert not alone.use()
    assert used(tmp_path / "alone") is None


def test_refusing_every_metric_that_measures_erases_the_days(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock, measured("back", "weeks", "theme"))
    device.use()
    device.refuse_metric("back", refused=True)
    assert days_of(tmp_path) == {MONDAY}
    device.refuse_metric("weeks", refused=True)
    assert used(tmp_path) is None
    clock.travel(1)
    assert not device.use()
    assert used(tmp_path) is None
    device.refuse_metric("back", refused=False)
    device.use()
    assert used(tmp_path) == (MONDAY + 1, MONDAY + 1, 1)
    device.refuse()
    assert used(tmp_path) is None


def test_days_go_where_no_metric_measures_them_any_more(tmp_path: Path) -> None:
    """They stay while a metric only waits for consent to more."""
    clock = at(MONDAY)
    device = begun(tmp_path, clock, measured("back"))
    device.use()
    device.close()
    more = Registry.parse(measured_text("back").replace('"low"', '"high"'))
    device = open_device(more, tmp_path, clock, agree=False)
    device.begin()
    assert not device.use()
    device.close()
    assert days_of(tmp_path) == {MONDAY}
    begun(tmp_path, clock, measured("theme")).close()
    assert used(tmp_path) is None
    device = begun(tmp_path, clock, measured("back"))
    device.use()
    assert days_of(tmp_path) == {MONDAY}
    device.drop()  # the app says that the person does not agree
    assert used(tmp_path) is None
    clock.travel(1)
    device.use()
    assert days_of(tmp_path) == {MONDAY + 1}
    clock.now = day_number(date(2027, 6, 30)) * DAY_S + 1
    assert not device.use()
    assert used(tmp_path) is None


def test_forget_erases_them_and_they_begin_after_the_silence(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock)
    device.use()
    assert device.forget()
    assert used(tmp_path) is None
    clock.travel(SILENT_DAYS - 1)
    assert not device.use()
    assert used(tmp_path) is None
    clock.travel(1)
    device.use()
    assert used(tmp_path) == (MONDAY + SILENT_DAYS, MONDAY + SILENT_DAYS, 1)


def test_the_command_that_forgets_erases_them_too(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock)
    device.use()
    device.close()
    assert main(["device", "forget", str(tmp_path)]) == 0
    assert used(tmp_path) is None


def test_a_quiet_device_keeps_its_use_and_says_nothing(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock, measured(quiet_days=3))
    assert not device.use()
    assert days_of(tmp_path) == {MONDAY}
    clock.travel(3)
    assert device.use()
    assert used(tmp_path) == (MONDAY, MONDAY + 3, 0b1001)


def answers(uses: list[int], name: str, **keys: Any) -> list[object]:
    """Return what a device that is used on some days after MONDAY answers on each of them."""
    metric: Metric = measured(name, **keys).metrics[name]
    found: list[object] = []
    state = Used(MONDAY + uses[0], MONDAY + uses[0], 0)
    for day in uses:
        state = state.on(MONDAY + day)
        found.append(state.answer(metric, state.first))
    return found


def test_answers_are_about_the_period_before_whatever_day_is_first() -> None:
    uses = [0, 1, 2, 6, 9, 20, 21]
    assert answers(uses, "days") == [None] * 4 + [4, 1, 1]
    assert answers(uses, "back") == [None] * 4 + [True, True, True]
    assert answers(uses, "weeks") == [0, 0, 0, 0, 1, 2, 3]
    assert answers([0, 40], "back") == [None, False]
    # Two periods of 31 days are all that is kept.
    first = -MONDAY % 31
    assert answers([first, *range(first + 31, first + 62)], "days", period="31d") == [None] + [1] * 31
    assert answers([*range(first, first + 31), first + 61], "days", period="31d")[-1] == 31


def test_the_month_of_first_use_never_changes() -> None:
    day = EPOCH + timedelta(days=MONDAY)
    assert day.year == 2026
    for number, name in ((24, f"{day:%B} of an even year"), (4, "July to December of an even year")):
        assert set(answers([0, 40, 400, 720], "since", cohorts=number)) == {name}


def test_the_schedule_records_what_is_due_and_a_report_of_a_week_is_one(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock)
    sent: dict[str, int] = {}
    for _ in range(28):
        device.use()
        body = send(device)
        for group in body["groups"] if body else []:
            sent[group["metric"]] = sent.get(group["metric"], 0) + len(group["reports"])
        clock.travel(1)
    assert sent == {"days": 3, "back": 3, "weeks": 4, "since": 4}  # of the first week two cannot know the one before
    assert device.spent()["since"] == 2_000_000


def test_clocks_that_go_back_and_forth_count_no_day_twice(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock, measured("back"))
    coins = random.Random(1)
    for _ in range(scaled(100, 300)):
        clock.now = (MONDAY + coins.choice([0, 0, 1, 1, 2, -1, 40, 400])) * DAY_S + coins.random() * DAY_S
        device.use()
        row = used(tmp_path)
        assert row is None or (row[0] <= row[1] and row[2].bit_count() <= DAYS_KEPT)
        assert row is None or row[1] - row[0] + 1 >= row[2].bit_count()


def test_a_day_ahead_of_the_clock_goes_again(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock, measured("weeks", period="1d"))
    device.use()
    clock.travel(30)
    device.use()
    assert days_of(tmp_path) == {MONDAY, MONDAY + 30}
    clock.travel(-29)
    device.use()
    assert days_of(tmp_path) == {MONDAY, MONDAY + 30}  # the clock is behind: nothing is kept
    for _ in range(SILENT_DAYS):
        clock.travel(1 / SILENT_DAYS)
        device.look()
    clock.travel(SILENT_DAYS)
    device.look()
    device.use()
    today = int(clock.now // DAY_S)
    assert days_of(tmp_path) == {MONDAY, MONDAY + 30, today}


def test_a_kill_at_any_moment_leaves_a_day_once_and_its_reports_with_it(tmp_path: Path) -> None:
    """The day and the reports that are due are one transaction: both are there, or neither."""
    clock = at(MONDAY)
    begun(tmp_path, clock, measured("since", "back")).close()
    weeks = scaled(6, 12)
    for day in range(weeks):
        pid = os.fork()
        if not pid:
            try:
                device = Device(measured("since", "back"), tmp_path, _rng(day), at(MONDAY + 7 * day))
                execute, left = device._file.execute, [random.Random(day).randrange(40)]

                def counted(sql: str, *arguments: object, execute: Any = execute, left: Any = left) -> Any:
                    left[0] -= 1
                    if left[0] < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return execute(sql, *arguments)

                device._file.execute = counted
                device.use()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        device = Device(measured("since", "back"), tmp_path, _rng(day), at(MONDAY + 7 * day))
        kept = MONDAY + 7 * day in days_of(tmp_path)
        assert (device.waiting() > 0) == kept
        assert device.use() != kept
        assert days_of(tmp_path) >= {MONDAY + 7 * day}
        while send(device):
            pass
        device.close()
    assert days_of(tmp_path) == {MONDAY + 7 * day for day in range(weeks) if 7 * (weeks - 1 - day) < DAYS_KEPT}


def _rng(seed: int) -> Any:
    from dither_shared.rng import Rng

    return Rng(random.Random(seed).getrandbits)


def test_the_month_is_that_of_the_first_day_in_utc() -> None:
    metric = measured("since", cohorts=24).metrics["since"]
    last = (date(2026, 11, 30) - EPOCH).days
    assert Used(last, last, 1).answer(metric, last) == "November of an even year"
    assert Used(last + 1, last + 1, 1).answer(metric, last + 1) == "December of an even year"


def first_use(device: Device) -> int:
    with device._file.peek():
        row = device._file.execute("SELECT first, latest, days FROM used_days").fetchone()
        assert row
        return DaysOfUse(device._file, device._days).first_use(Used(*row))


def test_the_first_use_is_the_files_first_day_where_a_later_version_measures(tmp_path: Path) -> None:
    clock = at(MONDAY - 200)
    begun(tmp_path, clock, measured("theme")).close()
    clock.travel(200)
    device = begun(tmp_path, clock)
    device.use()
    assert used(tmp_path) == (MONDAY, MONDAY, 1)
    assert first_use(device) == MONDAY - 200


def test_after_forget_the_first_use_is_a_later_one(tmp_path: Path) -> None:
    clock = at(MONDAY)
    device = begun(tmp_path, clock)
    device.forget()
    clock.travel(SILENT_DAYS + 3)
    device.use()
    assert first_use(device) == MONDAY + SILENT_DAYS + 3


def test_a_clock_that_was_never_set_gives_no_first_day(tmp_path: Path) -> None:
    clock = at(0)
    device = begun(tmp_path, clock)
    device.use()
    assert used(tmp_path) is None
    clock.travel(MONDAY)
    device.use()
    assert used(tmp_path) == (MONDAY, MONDAY, 1)
    assert first_use(device) == MONDAY


def test_a_device_that_cannot_know_the_period_before_does_not_say_no(tmp_path: Path) -> None:
    """It was begun, or agreed to the metric, within it: its answer would be the same whatever it did."""
    clock = at(MONDAY + 2)
    device = begun(tmp_path, clock, measured("back", "days"))
    waiting = []
    for _ in range(3):
        device.use()
        waiting.append(device.waiting())
        clock.travel(7)
    assert waiting == [0, 0, 2]
