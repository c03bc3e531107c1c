import random
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither.device import FILE_NAME, Device, DeviceBusy, DeviceFault, Look
from dither.device.file import FORK_WAIT_S
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from tests.support.clocks import DAY_S, Clock
from tests.support.devices import EXPIRES, MEMO, begun, classes, make, open_device, record, send
from tests.support.registries import registry, registry_text
from tests.support.soaking import thinned


def test_the_first_answer_of_a_period_counts() -> None:
    device, asked, clock = begun()
    assert record(device, asked) == ""
    assert record(device, asked, answer="blue") == "answered"
    send(device)
    assert record(device, asked) == "answered"
    clock.travel(1)
    assert record(device, asked) == ""


class Nosy(list[str]):
    """An answer that answers another question when it is read."""

    def __init__(self, device: Device, asked: Registry) -> None:
        super().__init__(["red"])
        self.device, self.asked = device, asked

    def __iter__(self) -> Iterator[str]:
        assert record(self.device, self.asked, "dark", True) == ""
        return super().__iter__()


def test_an_answer_that_records_another_does_not_hang() -> None:
    device, asked = make(Clock(), kind="choices", color="ticks_max = 2")
    assert record(device, asked, "color", Nosy(device, asked)) == ""
    assert device.waiting() == 2


def test_a_call_from_within_a_call_is_refused_and_not_stuck() -> None:
    """As a signal handler would make it, in the middle of a transaction of the same thread."""
    device, asked = make(Clock())

    def interrupting(bits: int) -> int:
        with pytest.raises(DeviceBusy, match="from within its own call"):
            record(device, asked, "color")
        return random.Random(1).getrandbits(bits)

    device._slots._rng = Rng(interrupting)
    assert record(device, asked, "dark", True) == ""
    assert device.waiting() == 1


def test_a_new_file_is_quiet_and_memory_is_not(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, quiet_days=2)
    assert record(device, asked) == "quiet"
    clock.travel(1)
    assert record(device, asked) == "quiet"
    clock.travel(1)
    assert record(device, asked) == ""
    device.close()
    device, asked = make(clock, None, quiet_days=2)
    assert record(device, asked) == ""


def test_a_clock_set_back_opens_no_period_twice() -> None:
    device, asked, clock = begun(reports=10, epsilon="1")
    record(device, asked)
    clock.travel(3)
    assert record(device, asked) == ""
    clock.travel(-1)
    assert record(device, asked) == "answered"
    clock.travel(-1)
    assert record(device, asked) == "clock-behind"
    clock.travel(-365)
    assert record(device, asked) == "clock-behind"


def test_only_drawn_periods_are_answered_and_not_more_than_reports() -> None:
    clock = Clock()
    clock.now -= 250 * DAY_S
    device, asked = make(clock, schedule="spread", reports=5, epsilon="1")
    outcomes = []
    for _ in range(365):
        outcomes.append(record(device, asked))
        send(device)
        clock.travel(1)
    assert outcomes.count("") <= 5
    assert outcomes.count("") >= 3  # 350 of the year's 365 days are still to come
    assert set(outcomes) == {"", "unscheduled", "expired"}


@pytest.mark.parametrize("answer", [[], (), set(), frozenset()])
def test_no_tick_is_an_answer_like_any_other(answer: object) -> None:
    """Silence would say that nothing was ticked."""
    device, asked, clock = begun(kind="choices", color="ticks_max = 2")
    for given in (answer, ["red"], answer):
        assert record(device, asked, answer=given) == ""
        assert device.waiting() == 1
        body = send(device)
        assert body is not None
        assert [(group["metric"], len(group["reports"])) for group in body["groups"]] == [("color", 1)]
        clock.travel(1)
    assert device.spent()["color"] == 6_000_000


# Silent records.


def stored(device: Device) -> dict[str, bytes]:
    """Return all bytes of a device's files."""
    assert device.directory
    return {path.name: path.read_bytes() for path in Path(device.directory).iterdir() if not path.name.endswith("-shm")}


def test_what_was_known_of_a_silent_metric_ends_with_a_change_in_another_process_or_another_day(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path)
    other, _ = make(clock, tmp_path, seed=2)
    assert record(device, asked) == ""
    for _ in range(2):
        assert record(device, asked) == "answered"
    other.refuse()
    clock.travel(1)
    for _ in range(2):
        assert record(device, asked) == "refused"
    other.agree(chosen=True)
    assert record(device, asked) == ""
    clock.travel(1)
    assert record(device, asked) == ""  # the one before is built to make room
    clock.travel(1)
    for _ in range(2):
        assert record(device, asked) == "waiting"
    assert send(other) is not None
    for _ in range(2):
        assert record(device, asked) == "waiting"  # the one in the slot leaves on another day
    clock.travel(1)
    assert record(device, asked) == ""


# Hidden presence.

HIDDEN: dict[str, Any] = {"presence": "hidden", "reports": 20, "epsilon": "1"}


def groups(device: Device) -> list[str]:
    body = send(device)
    return [group["metric"] for group in body["groups"]] if body else []


def test_a_hidden_metric_leaves_only_when_its_period_has_closed() -> None:
    device, asked, clock = begun(**HIDDEN, period="7d")
    device.look()
    assert record(device, asked) == ""
    assert groups(device) == []
    assert not device.look().due
    assert device.waiting() == 2  # what was said of the colour, and "none" of the other
    clock.travel(5)  # day 20,777 is the second of its week
    assert groups(device) == []
    clock.travel(1)
    assert groups(device) == ["color", "dark"]


def test_the_first_answer_of_a_period_takes_the_place_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise that never strikes, so that a report shows its answer."""
    clock = Clock()
    asked = registry(**{"expires": EXPIRES, **HIDDEN, "color": 'mechanism = "grr"'})
    device = open_device(asked, None, clock, Honest(random.Random(1).getrandbits))
    sent = []
    for answers in ([], ["green", "red"], ["none"], ["blue"]):
        device.look()
        words = [record(device, asked, answer=answer) for answer in answers]
        assert words == ["", "answered"][: len(answers)]
        clock.travel(1)
        body = send(device)
        assert body is not None
        sent.append({group["metric"]: group["reports"] for group in body["groups"]}["color"])
    assert sent == [[4], [1], [4], [2]]


class Honest(Rng):
    def coin(self, threshold: int) -> bool:
        return True


def test_whether_there_was_anything_to_say_is_in_no_upload() -> None:
    """Two devices, of which one never records: the same groups leave on the same days, at the same cost."""

    def leaves(answers: list[object], memo: dict[str, Any]) -> tuple[list[list[str]], dict[str, int]]:
        device, asked, clock = begun(**{**HIDDEN, "reports": 6, **memo})
        seen = []
        for day in range(12):
            device.look()
            if day < len(answers) and answers[day] is not None:
                record(device, asked, answer=answers[day])
            if day % 4 > 1:
                seen.append(groups(device))
            clock.travel(1)
        return seen, device.spent()

    for memo in ({}, MEMO):
        silent = leaves([], memo)
        assert ["color", "dark"] in silent[0]
        others: list[list[object]] = [["red"] * 12, [None, "red", None, "blue", "green"], ["none", None, "red"]]
        for answers in others:
            seen, spent = leaves(answers, memo)
            assert seen == silent[0]
            if not memo:
                assert spent == silent[1]


ANSWERS: list[list[object]] = [["red"] * 9, [None, "red", None, "blue"], ["none"] * 9, ["x"]]


@pytest.mark.parametrize("looks_every", [1, 3])
@pytest.mark.parametrize("answers", thinned(ANSWERS, 0, 1))
def test_once_a_period_is_closed_the_file_does_not_tell_whether_it_was_answered(
    answers: list[object], looks_every: int, tmp_path: Path
) -> None:
    """The same bytes but for the digits of symbols and SQLite's count of commits, looked before the answer or not.

    Uploads are sent in between, left unsent, and given up; some answers are given twice.
    """

    def lives(answers: list[object], directory: Path) -> list[tuple[dict[str, list[list[object]]], int, bytes]]:
        device, asked, clock = begun(directory, **HIDDEN)
        device._slots._rng = Rng(random.Random(str(answers)).getrandbits)  # ids are drawn by the other one
        seen = []
        for day in range(8):
            if day % looks_every == 0:
                device.look()
            if day < len(answers) and answers[day] is not None:
                for _ in range(day % 3 + 1):
                    record(device, asked, answer=answers[day])
            clock.travel(1)
            device.look()
            if day % 4 == 1:
                assert groups(device) == ["color", "dark"]
            elif day == 4:
                assert device.next_upload() is not None
            assert device.tidy()
            files = stored(device)
            seen.append((rows(device), len(files[f"{FILE_NAME}-wal"]), files[FILE_NAME]))
        return seen

    silent, answered = lives([], tmp_path / "silent"), lives(answers, tmp_path / "answered")
    assert silent[0][0]["slot"]
    for (told, log_bytes, content), (other_told, other_log_bytes, other) in zip(silent, answered, strict=True):
        assert (told, log_bytes) == (other_told, other_log_bytes)
        assert len(content) == len(other)
        apart = {place for place, pair in enumerate(zip(content, other, strict=True)) if pair[0] != pair[1]}
        said = {place for place in apart if chr(content[place]).isdigit() and chr(other[place]).isdigit()}
        assert apart - said <= COMMITS_COUNTED


COMMITS_COUNTED = {*range(24, 28), *range(92, 96)}
"""The bytes of a SQLite file in which its commits are counted."""


def rows(device: Device) -> dict[str, list[list[object]]]:
    """Return all rows of a device's file, with a mark in the place of each symbol, id and secret."""
    with device._file.peek():
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        tables = [name for (name,) in device._file.execute(sql).fetchall()]
        found = {table: device._file.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    noise = re.compile("|".join([r"(?<=\[)\d+(?=\])", "^[0-9](?= *$)", *(row[1] for row in found["upload"])]))

    def masked(value: object) -> object:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        return noise.sub(lambda found: "#" * len(found[0]), text) if isinstance(text, str) else text

    return {table: [[masked(value) for value in row] for row in found[table]] for table in tables}


@pytest.mark.parametrize("answered", [False, True])
def test_while_the_clock_is_behind_by_less_than_a_day_none_is_opened_as_an_answer_is_taken(answered: bool) -> None:
    """Else a device with an answer would send a report for that day, and one without would not."""
    device, asked, clock = begun(**HIDDEN)
    device.look()
    clock.travel(1)
    assert groups(device) == ["color", "dark"]  # charged on this day, of the day before
    clock.travel(-0.9)
    device.look()
    if answered:
        assert record(device, asked) == ""
    assert device.waiting() == 2
    clock.travel(0.9)
    assert groups(device) == []
    clock.travel(1)
    assert groups(device) == ["color", "dark"]
    assert device.spent() == {"color": 2_000_000, "dark": 2_000_000}


@pytest.mark.parametrize("answered", [False, True])
def test_while_the_clock_is_behind_by_more_neither_is(answered: bool) -> None:
    device, asked, clock = begun(**HIDDEN)
    device.look()
    clock.travel(1)
    assert groups(device) == ["color", "dark"]
    clock.travel(-2)
    if answered:
        assert record(device, asked) == "clock-behind"
    device.look()
    assert device.waiting() == 2  # of the day that was reached
    assert device.spent() == {"color": 1_000_000, "dark": 1_000_000}


def test_none_is_one_of_the_answers_of_a_memo() -> None:
    device, asked, clock = begun(**{**HIDDEN, **MEMO, "answers": 2})
    for answer in ("", "red", "blue"):
        device.look()
        if answer:
            record(device, asked, answer=answer)
        clock.travel(1)
        send(device)
    assert classes(device) == [("4", 1), ("0", 1)]
    assert device.spent()["color"] == 8_000_000


def test_a_none_that_was_replaced_costs_no_answer_of_a_memo() -> None:
    device, asked, clock = begun(**{**HIDDEN, **MEMO, "answers": 1})
    device.look()
    assert classes(device) == [("4", 0)]
    record(device, asked)
    assert classes(device) == [("0", 0)]
    clock.travel(1)
    send(device)
    assert device.spent()["color"] == 4_000_000


def test_a_hidden_text_says_none() -> None:
    clock = Clock()
    text = {"kind": "text", "epsilon_permanent": "4", "device_epsilon": "16", "candidates": ("a.org",)}
    device, asked = make(clock, **{**HIDDEN, **text})
    assert asked.metrics["color"].asked.candidates == ("a.org", "none")
    device.look()
    clock.travel(1)
    assert groups(device) == ["color", "dark"]


def test_a_day_on_which_the_device_was_away_is_no_report() -> None:
    device, _, clock = begun(**HIDDEN)
    device.look()
    clock.travel(5)
    assert groups(device) == ["color", "dark"]
    assert groups(device) == []


def test_the_device_looks_again_when_a_period_may_close_and_after_the_last_one_for_the_clock_may_be_set_back() -> None:
    device, _, clock = begun(**HIDDEN)
    assert tidied(device) == (int(clock() // DAY_S) + 1) * DAY_S
    clock.travel(99)
    assert device.look(lambda: 7).when == clock() + 7  # what the first day left
    send(device)
    assert tidied(device) == (int(clock() // DAY_S) + 1) * DAY_S
    clock.travel(1)
    send(device)
    assert tidied(device) == (int(clock() // DAY_S) + 1) * DAY_S
    public, _ = make(Clock())
    assert public.look() == Look(None, False, 0.0, "")


def tidied(device: Device) -> float | None:
    """Return when to look again, once nothing of a replaced answer is left in the log."""
    if device.look().untidy:
        assert device.tidy()
    look = device.look()
    assert not look.untidy
    return look.when


def test_a_hidden_period_that_would_close_too_late_is_not_opened() -> None:
    """It costs, and the aggregator, which takes reports for a week after a metric expires, would refuse it."""
    clock = Clock()
    device, asked = make(clock, **HIDDEN, period="30d")  # expires on day 20,877; the last period closes on day 20,880
    clock.travel(75)
    device.look()
    assert record(device, asked) == ""
    device, asked = make(clock, **HIDDEN, period="360d")  # it closes on day 20,880
    device.look()
    assert record(device, asked) == ""
    device, asked = make(clock, **HIDDEN, period="61d")  # the last one closes on day 20,923
    clock.travel(20)
    device.look()
    assert record(device, asked) == "expired"
    assert device.waiting() == 0


@pytest.mark.parametrize("memo", [{}, MEMO])
def test_an_answer_to_a_hidden_metric_writes_nothing_where_no_look_has_opened_the_period(
    memo: dict[str, Any], tmp_path: Path
) -> None:
    """Not at first, not after midnight, not with another public answer's refusals or with a clock that has gone on."""
    device, asked, clock = begun(tmp_path, **{**HIDDEN, **memo})
    for days in (1, 1.4, 1, 3):
        before, noted = stored(device), dict(device._file.noted)
        assert record(device, asked) == "unopened"
        assert record(device, asked, "dark", answer=True) == "unopened"
        assert (stored(device), dict(device._file.noted)) == (before, noted)
        device.look()
        clock.travel(days)
        for _ in range(2):  # one of a metric leaves a day
            groups(device)
            clock.travel(1)


def test_a_public_answer_opens_the_periods_of_hidden_metrics() -> None:
    """The application may have no thread; and who answers a public metric shows it anyway."""
    text = registry_text(expires=EXPIRES, presence="hidden").replace('presence = "hidden"', 'presence = "public"', 1)
    asked = Registry.parse(text)
    assert (asked.metrics["color"].hidden, asked.metrics["dark"].hidden) == (False, True)
    device = open_device(asked, None, Clock())
    device.begin()  # all is prepared: the answer opens the period, and changes nothing else of the hidden metric
    assert record(device, asked, "dark", answer=True) == "unopened"
    assert record(device, asked) == ""
    assert record(device, asked, "dark", answer=True) == ""


def test_an_answer_to_a_hidden_metric_opens_no_file(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path, **HIDDEN)
    device.look()
    device._file.before_fork()
    device._file.after_fork_in_parent()
    with pytest.raises(DeviceFault, match="not open yet"):
        record(device, asked)
    assert not (tmp_path / f"{FILE_NAME}-wal").exists()
    device.look()
    assert record(device, asked) == ""


def test_a_hidden_answer_in_the_middle_of_a_long_period_keeps_no_day(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, **HIDDEN, period="30d")
    device.look()
    kept = rows(device)["state"]
    clock.travel(2)
    assert record(device, asked) == ""
    assert rows(device)["state"] == kept


def test_an_answer_to_a_hidden_metric_hardly_waits(tmp_path: Path) -> None:
    """A fork waits for who is in the middle of one: a device that it found there would be lost to the child."""
    device, asked = make(Clock(), tmp_path, **HIDDEN)
    device.look()
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(sqlite3.OperationalError):
            record(device, asked)
        assert time.monotonic() - began < FORK_WAIT_S
        other.execute("ROLLBACK")
    assert record(device, asked) == ""


@pytest.mark.parametrize("answered", [False, True])
def test_what_is_counted_of_a_public_metric_does_not_tell_of_hidden_answers_elsewhere(
    tmp_path: Path, answered: bool
) -> None:
    """Another process's answer makes this one look into the file again, which somebody else has locked."""
    text = registry_text(expires=EXPIRES, presence="hidden").replace('presence = "hidden"', 'presence = "public"', 1)
    asked = Registry.parse(text)
    clock = Clock()
    device, elsewhere = (open_device(asked, tmp_path, clock) for _ in range(2))
    assert [record(device, asked) for _ in range(2)] == ["", "answered"]
    if answered:
        elsewhere.look()
        assert record(elsewhere, asked, "dark", answer=True) == ""
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert record(device, asked) == "answered"
        other.execute("ROLLBACK")
    assert device.counters() == {"answered": 2}


def test_an_answer_to_a_hidden_metric_keeps_no_counts_of_others(tmp_path: Path) -> None:
    text = registry_text(expires=EXPIRES, presence="hidden").replace('presence = "hidden"', 'presence = "public"', 1)
    asked = Registry.parse(text)
    device = open_device(asked, tmp_path, Clock())
    assert [record(device, asked) for _ in range(2)] == ["", "answered"]
    assert record(device, asked, "dark", answer=True) == ""
    assert device._file.noted == {"answered": 1}


def test_what_is_dropped_while_a_period_is_open_asks_for_the_log_to_be_erased(tmp_path: Path) -> None:
    """It shows whether the period was answered: else until the log is long."""
    device, asked = make(Clock(), tmp_path, **HIDDEN)
    device.look()
    assert record(device, asked) == ""
    assert not device.look().untidy
    device.refuse_metric("color", refused=True)
    assert device.look().untidy
