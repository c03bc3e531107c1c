import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from dither.device import FILE_NAME, Device, DeviceUnusable
from dither.schedule import EPOCH
from dither_shared.mechanisms import RAPPOR
from dither_shared.registry import Registry
from dither_shared.rng import Rng, keyed_rng
from tests.support.clocks import DAY_S, Clock
from tests.support.registries import registry, registry_text

EXPIRES = EPOCH.fromordinal(EPOCH.toordinal() + 20_777 + 100)


_made: list[Device] = []


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def make(clock: Clock, folder: Path | None = None, seed: int = 1, **changes: object) -> tuple[Device, Registry]:
    asked = registry(**{"expires": EXPIRES, **changes})
    _made.append(Device(asked, folder, Rng(random.Random(seed).getrandbits), clock))
    return _made[-1], asked


def record(device: Device, asked: Registry, metric: str = "color", answer: object = "red") -> str | None:
    return device.record(asked.metrics[metric], answer)


def send(device: Device) -> dict[str, object] | None:
    """Build the upload, pretend that it was accepted, and return its body."""
    upload = device.next_upload()
    if upload is None:
        return None
    device.settle(upload.id, "accepted")
    body: dict[str, object] = json.loads(upload.body)
    return body


def test_an_answer_becomes_one_report_in_one_upload() -> None:
    device, asked = make(Clock())
    assert record(device, asked) is None
    assert record(device, asked, "dark", True) is None
    assert device.waiting() == 2
    assert device.spent() == {"color": 0, "dark": 0}
    body = send(device)
    assert body is not None
    groups = body["groups"]
    assert isinstance(groups, list)
    assert [(group["metric"], len(group["reports"])) for group in groups] == [("color", 1), ("dark", 1)]
    assert device.waiting() == 0
    assert device.spent() == {"color": 2_000_000, "dark": 2_000_000}
    assert device.counters() == {"accepted": 2}
    assert device.next_upload() is None


def test_the_first_answer_of_a_period_counts() -> None:
    clock = Clock()
    device, asked = make(clock)
    assert record(device, asked) is None
    assert record(device, asked, answer="blue") == "answered"
    send(device)
    assert record(device, asked) == "answered"
    clock.travel(1)
    assert record(device, asked) is None


def test_periods_are_whole_utc_days_of_their_length() -> None:
    clock = Clock()
    device, asked = make(clock, period="7d")
    assert record(device, asked) is None  # day 20,777 is the second of its week
    clock.travel(5)
    assert record(device, asked) == "answered"
    clock.travel(1)
    assert record(device, asked) is None


def test_reports_are_limited_for_life() -> None:
    clock = Clock()
    device, asked = make(clock, reports=2)
    for expected in (None, None, "spent", "spent"):
        assert record(device, asked) == expected
        send(device)
        clock.travel(1)
    assert device.spent()["color"] == asked.metrics["color"].reservation


def test_a_waiting_report_counts_against_the_limit() -> None:
    """The answer of a second day must see the first one's charge, though it is made only then."""
    clock = Clock()
    device, asked = make(clock, reports=1)
    assert record(device, asked) is None
    clock.travel(1)
    assert record(device, asked) == "spent"
    while send(device):
        pass
    assert device.spent() == {"color": 2_000_000}
    assert device.counters() == {"accepted": 1, "spent": 1}


def test_a_report_that_no_longer_fits_is_dropped_when_the_upload_is_built(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, reports=3)
    for _ in range(2):
        record(device, asked)
        send(device)
        clock.travel(1)
    record(device, asked)
    device.close()
    device, asked = make(clock, tmp_path, reports=2)
    assert send(device) is None
    assert device.spent() == {"color": 4_000_000}
    assert device.counters() == {"accepted": 2, "spent": 1}


def test_an_upgrade_draws_only_as_many_periods_as_reports_are_left(tmp_path: Path) -> None:
    clock = Clock()
    clock.now -= 250 * DAY_S
    device, asked = make(clock, tmp_path, reports=4, epsilon="1")
    for _ in range(3):
        assert record(device, asked) is None
        send(device)
        clock.travel(1)
    device.close()
    device, asked = make(clock, tmp_path, reports=4, epsilon="1", schedule="spread")
    outcomes = []
    for _ in range(345):
        outcomes.append(record(device, asked))
        send(device)
        clock.travel(1)
    assert outcomes.count(None) == 1
    assert set(outcomes) <= {None, "unscheduled"}


def test_more_metrics_than_an_upload_takes_go_in_several(many_flags: Registry) -> None:
    device = Device(many_flags, None, Rng(random.Random(1).getrandbits), Clock())
    _made.append(device)
    assert [device.record(metric, True) for metric in many_flags.metrics.values()] == [None] * 120
    sizes = []
    while body := send(device):
        assert isinstance(body["groups"], list)
        sizes.append(len(body["groups"]))
    assert sizes == [50, 50, 20]
    assert sum(device.spent().values()) == 120 * 100_000


@pytest.fixture
def many_flags() -> Registry:
    text = registry_text(epsilon="0.1", reports=1, expires=EXPIRES)
    head, _, rest = text.partition("[metric.color]")
    flag = rest.partition("[metric.dark]")[2]
    return Registry.parse(head + "".join(f"[metric.flag_{number}]{flag}" for number in range(120)))


class Nosy:
    """An answer that answers another question when asked for its truth."""

    def __init__(self, device: Device, asked: Registry) -> None:
        self.device, self.asked = device, asked

    def __bool__(self) -> bool:
        assert record(self.device, self.asked, "color", "blue") is None
        return True


def test_an_answer_that_records_another_does_not_hang() -> None:
    device, asked = make(Clock())
    assert record(device, asked, "dark", Nosy(device, asked)) is None
    assert device.waiting() == 2


def test_a_call_from_within_a_call_is_refused_and_not_stuck() -> None:
    """As a signal handler would make it, in the middle of a transaction of the same thread."""
    device, asked = make(Clock())

    def interrupting(bits: int) -> int:
        with pytest.raises(DeviceUnusable, match="from within its own call"):
            record(device, asked, "color")
        return random.Random(1).getrandbits(bits)

    device._rng = Rng(interrupting)
    assert record(device, asked, "dark", True) is None
    assert device.waiting() == 1


def test_nothing_refreshes_a_budget(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, reports=1)
    record(device, asked)
    send(device)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, reports=1, rev=2, period="7d", schedule="spread", values=("x", "y"))
    clock.travel(50)
    assert record(device, asked) in ("spent", "unscheduled")
    device.close()
    device, asked = make(clock, tmp_path, reports=1, rev=3)
    assert record(device, asked) == "spent"
    device.close()


def test_an_expired_metric_is_silent() -> None:
    clock = Clock()
    device, asked = make(clock)
    clock.travel(99)
    assert record(device, asked) is None
    clock.travel(1)
    assert record(device, asked) == "expired"


def test_a_new_file_is_quiet_and_memory_is_not(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, quiet_days=2)
    assert record(device, asked) == "quiet"
    clock.travel(1)
    assert record(device, asked) == "quiet"
    clock.travel(1)
    assert record(device, asked) is None
    device.close()
    device, asked = make(clock, None, quiet_days=2)
    assert record(device, asked) is None


def test_a_clock_set_back_opens_no_period_twice() -> None:
    clock = Clock()
    device, asked = make(clock, reports=10, epsilon="1")
    record(device, asked)
    clock.travel(3)
    assert record(device, asked) is None
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
    assert outcomes.count(None) <= 5
    assert outcomes.count(None) >= 3  # 350 of the year's 365 days are still to come
    assert set(outcomes) == {None, "unscheduled", "expired"}


def test_an_old_answer_is_built_before_a_new_one_takes_its_slot() -> None:
    clock = Clock()
    device, asked = make(clock, reports=10, epsilon="1")
    for expected in (None, None, "waiting"):
        assert record(device, asked) == expected
        clock.travel(1)
    assert device.waiting() == 2
    assert device.spent()["color"] == 1_000_000  # the built one; the waiting one is charged when it is built
    assert send(device) is not None
    assert send(device) is not None
    assert send(device) is None


def test_an_upload_is_frozen_until_it_is_settled_by_its_own_id() -> None:
    device, asked = make(Clock())
    record(device, asked)
    first = device.next_upload()
    assert first is not None
    record(device, asked, "dark", True)
    device.settle("another id", "accepted")
    second = device.next_upload()
    assert second is not None
    assert (second.id, second.body, second.attempts) == (first.id, first.body, 2)
    device.settle(first.id, "accepted")
    third = device.next_upload()
    assert third is not None
    assert third.id != first.id


def test_an_upload_is_given_up_before_the_aggregator_forgets_it() -> None:
    clock = Clock()
    device, asked = make(clock)
    record(device, asked)
    first = device.next_upload()
    clock.travel(5.99)
    again = device.next_upload()
    assert first is not None
    assert again is not None
    assert again.id == first.id
    clock.travel(0.02)
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}
    assert device.spent()["color"] == 2_000_000  # it may have been sent: its cost stays


def test_an_upload_is_given_up_when_the_clock_reads_earlier_than_at_the_last_attempt() -> None:
    clock = Clock()
    device, asked = make(clock)
    record(device, asked)
    device.next_upload()
    clock.travel(-0.01)
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}


def test_the_device_epsilon_is_never_exceeded_whatever_the_registries_said(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, reports=1, device_epsilon="4")
    record(device, asked)
    record(device, asked, "dark", True)
    send(device)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, reports=2, epsilon="1", device_epsilon="4")
    assert record(device, asked) == "spent"
    device.close()
    device, asked = make(clock, tmp_path, reports=3, epsilon="1", device_epsilon="6")
    assert record(device, asked) is None
    send(device)
    assert sum(device.spent().values()) == 5_000_000
    device.close()


def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path)
    record(device, asked)
    device.close()
    device, asked = make(clock, tmp_path)
    assert device.waiting() == 1
    assert record(device, asked) == "answered"
    upload = device.next_upload()
    device.close()
    device, asked = make(clock, tmp_path)
    again = device.next_upload()
    assert upload is not None
    assert again is not None
    assert (again.id, again.body) == (upload.id, upload.body)
    device.close()


def test_processes_share_one_file_one_budget_and_one_upload(tmp_path: Path) -> None:
    """Two connections to one file, as two processes have them."""
    clock = Clock()
    one, asked = make(clock, tmp_path, seed=1)
    other, _ = make(clock, tmp_path, seed=2)
    assert record(one, asked) is None
    assert record(other, asked) == "answered"
    first, second = one.next_upload(), other.next_upload()
    assert first is not None
    assert second is not None
    assert (first.id, first.body) == (second.id, second.body)
    assert other.settle(second.id, "accepted")
    assert not one.settle(first.id, "accepted")
    assert one.spent() == other.spent() == {"color": 2_000_000}
    assert one.counters() == {"accepted": 1, "answered": 1}


KILLED = """
import os, random, signal, sys
from pathlib import Path
from dither.device import Device
from dither_shared.rng import Rng
from tests.support.registries import registry
asked = registry()
device = Device(asked, Path(sys.argv[1]), Rng(random.Random(1).getrandbits))
assert device.record(asked.metrics["color"], "red") is None
assert device.record(asked.metrics["dark"], True) is None
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_recorded_survives_kill_9(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False, timeout=60)
    assert done.returncode == -9
    asked = registry()
    device = Device(asked, tmp_path, Rng(random.Random(2).getrandbits))
    assert device.waiting() == 2
    device.close()


def test_the_file_is_the_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    device, _ = make(Clock(), folder)
    device.close()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_no_answer_reaches_the_file(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path, values=("marker-listed", "b", "c"))
    record(device, asked, answer="marker-listed")
    record(device, asked, "dark", "marker-free-text")
    device.next_upload()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert len(stored) > 4096
    assert b"marker" not in stored
    device.close()


def test_a_file_of_another_app_or_version_is_refused(tmp_path: Path) -> None:
    device, _ = make(Clock(), tmp_path)
    device.close()
    with pytest.raises(DeviceUnusable, match="belongs to the app 'example'"):
        make(Clock(), tmp_path, app="another")
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(DeviceUnusable, match="version 99; this dither reads 2"):
        make(Clock(), tmp_path)


def test_a_damaged_file_and_a_folder_that_is_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, and long enough to be read as one" * 100)
    with pytest.raises(DeviceUnusable, match="cannot be used"):
        make(Clock(), tmp_path)
    with pytest.raises(DeviceUnusable, match="cannot be used"):
        make(Clock(), tmp_path / FILE_NAME)


def test_two_devices_make_different_noise_and_one_seed_makes_the_same() -> None:
    def reports(seed: int) -> object:
        device, asked = make(Clock(), None, seed, values=tuple(f"v{number}" for number in range(40)))
        record(device, asked)
        body = send(device)
        return body and (body["upload"], body["groups"])

    assert reports(1) == reports(1)
    assert reports(1) != reports(2)


MEMO: dict[str, Any] = {"epsilon": "1", "epsilon_permanent": "4", "device_epsilon": "16"}
"""Two answers, of 4 each; a year of repeats."""


def classes(device: Device) -> list[tuple[str, int]]:
    rows: list[tuple[str, int]] = device._db.execute(
        "SELECT class, charged FROM class WHERE metric = 'color' ORDER BY place"
    ).fetchall()
    return rows


def test_a_repeated_answer_is_charged_once() -> None:
    clock = Clock()
    device, asked = make(clock, **MEMO)
    for _ in range(30):
        assert record(device, asked) is None
        send(device)
        clock.travel(1)
    assert device.spent()["color"] == 4_000_000
    assert device.counters()["accepted"] == 30


def test_each_different_answer_is_charged_and_after_the_last_one_that_one_is_repeated() -> None:
    clock = Clock()
    device, asked = make(clock, **MEMO)
    for answer, known, spent in [
        ("red", ["0"], 4),
        ("blue", ["0", "2"], 8),
        ("green", ["0", "2"], 8),
        ("red", ["0", "2"], 8),
        (None, ["0", "2"], 8),
    ]:
        assert record(device, asked, answer=answer) is None
        assert [name for name, _ in classes(device)] == known
        send(device)
        assert device.spent()["color"] == spent * 1_000_000
        clock.travel(1)


class FixedRng(Rng):
    """A second stage that always keeps the memo, so that a test can see it."""

    def coin(self, threshold: int) -> bool:
        return True


def memos(folder: Path | None, answers: list[str], seed: int, day: int = 0, **changes: object) -> list[object]:
    clock = Clock()
    clock.travel(day)
    asked = registry(
        expires=EXPIRES, values=tuple("abcdefghijklmnopqrstuvwxyz"), color='mechanism = "grr"', **{**MEMO, **changes}
    )
    device = Device(asked, folder, FixedRng(random.Random(seed).getrandbits), clock)
    seen: list[object] = []
    for answer in answers:
        assert record(device, asked, answer=answer) is None
        body = send(device)
        assert body is not None
        seen.append(body["groups"][0]["reports"][0])  # type: ignore[index]
        clock.travel(1)
    device.close()
    return seen


def test_the_same_answer_has_the_same_memo_for_life_and_across_restarts(tmp_path: Path) -> None:
    first = memos(tmp_path, ["c", "d", "c", "c"], seed=1)
    assert first[0] == first[2] == first[3]
    later = memos(tmp_path, ["c"], seed=2, day=9)  # a new process, another generator, the same file
    assert later == first[:1]


def test_a_third_answer_repeats_the_second_ones_memo() -> None:
    first = memos(None, ["c", "d", "e", "f"], seed=3)
    assert first[1] == first[2] == first[3]


def test_devices_draw_their_own_memos() -> None:
    """26 values at epsilon 4: the memo of 40 devices is not one and the same (a false alarm of 1e-9)."""
    assert len({str(memos(None, ["c"], seed)) for seed in range(40)}) > 1


def test_a_new_rev_or_epsilon_of_a_report_keeps_the_memo(tmp_path: Path) -> None:
    first = memos(tmp_path, ["c"], seed=1)
    assert memos(tmp_path, ["c"], seed=2, day=1, rev=2) == first
    assert memos(tmp_path, ["c"], seed=3, day=2, rev=3, epsilon="0.5") == first


@pytest.mark.parametrize("changes", [{"epsilon_permanent": "3"}, {"values": ("red", "green")}])
def test_a_memo_that_cannot_go_on_has_spent_all_that_was_reserved(tmp_path: Path, changes: dict[str, Any]) -> None:
    """One answer of two was given; that it was one would be told by what is left."""
    clock = Clock()
    device, asked = make(clock, tmp_path, **MEMO)
    record(device, asked)
    send(device)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, **{**MEMO, **changes, "rev": 2})
    for answer in ("red", "green"):
        assert record(device, asked, answer=answer) == "spent"
    assert device.spent()["color"] == 8_000_000
    assert classes(device) == []
    device.close()
    device, asked = make(clock, tmp_path, reports=4, epsilon="2", rev=3)
    assert record(device, asked) == "spent"


def test_what_waits_when_the_memo_ends_is_sent_and_is_part_of_what_was_reserved(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, **MEMO)
    record(device, asked)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, **{**MEMO, "epsilon_permanent": "3"})
    assert record(device, asked) == "spent"
    assert send(device) is not None
    assert device.spent()["color"] == 8_000_000


def test_fresh_noise_that_becomes_a_memo_has_nothing_left(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, reports=3)
    record(device, asked)
    send(device)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, **MEMO)
    assert record(device, asked) == "spent"


def test_fewer_answers_than_were_given_leave_those_that_were_paid(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, **MEMO)
    for answer in ("red", "blue"):
        record(device, asked, answer=answer)
        send(device)
        clock.travel(1)
    device.close()
    device, asked = make(clock, tmp_path, **{**MEMO, "answers": 1})
    for answer in ("red", "blue", "green"):
        assert record(device, asked, answer=answer) is None
        send(device)
        clock.travel(1)
    assert device.spent()["color"] == 8_000_000
    assert classes(device) == [("0", 1), ("2", 1)]


def test_whether_a_memoized_metric_is_silent_does_not_depend_on_its_answers() -> None:
    def said(answers: list[object]) -> list[str | None]:
        clock = Clock()
        device, asked = make(clock, **MEMO)
        words = []
        for place in range(24):
            words.append(record(device, asked, answer=answers[place % len(answers)]))
            if place % 5 > 2:
                send(device)
            clock.travel(1)
        return words

    always = said(["red"])
    assert "waiting" in always
    others: list[list[object]] = [
        ["red", "green", "blue", None],
        [None, 7, "red", "red"],
        [*["green"] * 9, "red", "blue"],
    ]
    for answers in others:
        assert said(answers) == always


def test_an_unsent_answer_that_was_dropped_is_charged_when_it_is_given_again() -> None:
    clock = Clock()
    device, asked = make(clock, **MEMO)
    record(device, asked)
    device._db.execute("DELETE FROM slot")
    clock.travel(1)
    assert record(device, asked) is None
    send(device)
    assert device.spent()["color"] == 4_000_000
    assert classes(device) == [("0", 1)]


def test_several_ticks_are_one_report(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path, kind="choices", color="ticks_max = 2")
    assert record(device, asked, answer=["red", "blue"]) is None
    body = send(device)
    assert body is not None
    groups = body["groups"]
    assert isinstance(groups, list)
    assert len(groups[0]["reports"]) == 1
    assert device.spent()["color"] == 2_000_000


TEXT: dict[str, Any] = {
    "kind": "text",
    "epsilon": "1",
    "epsilon_permanent": "4",
    "device_epsilon": "16",
    "candidates": ("example.org", "example.net"),
}


def test_a_text_is_a_report_of_the_devices_one_cohort(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, **TEXT)
    cohorts = set()
    for answer in ("example.org", "another word", None, "x" * 1000, "\ud800", 7):
        assert record(device, asked, answer=answer) is None
        body = send(device)
        assert body is not None
        (group,) = cast("list[dict[str, Any]]", body["groups"])
        cohorts.add(group["cohort"])
        assert len(group["reports"]) == 1
        clock.travel(1)
    assert len(cohorts) == 1
    assert device.spent()["color"] == 8_000_000  # two answers are paid, the second is repeated
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"example.org" not in stored
    assert b"another word" not in stored


def test_what_is_no_text_is_one_and_the_same_answer() -> None:
    clock = Clock()
    device, asked = make(clock, **TEXT)
    for answer in (None, 7, "x" * 201, "other", b"other"):
        record(device, asked, answer=answer)
        send(device)
        clock.travel(1)
    assert device.spent()["color"] == 4_000_000


def test_an_observer_of_a_year_learns_the_permanent_bits_and_no_more() -> None:
    """365 reports of one text: their mean tells every bit of the memo, and the memo is not the text's Bloom bits.

    A bit's mean lies within 6 sigma of p or q, which are 0.3 apart here, 11 sigma.
    """
    clock = Clock()
    device, asked = make(clock, seed=5, **{**TEXT, "epsilon": "2", "color": ""}, expires=EXPIRES + timedelta(days=300))
    mechanism = asked.metrics["color"].mechanism
    assert isinstance(mechanism, RAPPOR)
    ones = [0] * mechanism.k
    for _ in range(365):
        assert record(device, asked, answer="example.org") is None
        body = send(device)
        assert body is not None
        report = mechanism.shape.from_wire(body["groups"][0]["reports"][0])  # type: ignore[index]
        ones = [count + (report >> bit & 1) for bit, count in enumerate(ones)]
        clock.travel(1)
    middle = 365 * (mechanism.threshold_irr_0 + mechanism.threshold_irr_1) / 2 / 2**64
    seen = sum(1 << bit for bit, count in enumerate(ones) if count > middle)
    ((key, _),) = classes(device)
    memo = mechanism.permanent.randomize(
        int(key), keyed_rng(device._secret(), f"{asked.metrics['color'].plan.memo_key} {key}".encode())
    )
    assert seen == memo
    assert seen != int(key)
    assert device.spent()["color"] == 4_000_000


def test_metrics_and_answers_have_memos_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[tuple[bytes, bytes]] = []

    def keyed(secret: bytes, context: bytes) -> Rng:
        asked_for.append((secret, context))
        return keyed_rng(secret, context)

    monkeypatch.setattr("dither.device.keyed_rng", keyed)
    clock = Clock()
    device, asked = make(clock, values=("a",), color='mechanism = "grr"', **MEMO)
    for metric, answer in (("color", "a"), ("dark", False), ("color", None), ("dark", True), ("color", "a")):
        assert record(device, asked, metric, answer) is None
        send(device)
        clock.travel(1)
    assert asked_for[0] == asked_for[4]
    assert len(set(asked_for)) == 4
    keys = {asked.metrics[name].plan.memo_key.encode() for name in ("color", "dark")}
    assert len(keys) == 2
    assert {context.split()[0] for _, context in asked_for} == keys


# Registries that change while a memo goes on: what leaves, and when, never depends on the answers.

_METRIC = """
[metric.{name}]
rev = {rev}
kind = "choice"
question = "What?"
values = ["a", "b", "c"]
epsilon = 1
{life}
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {expires}
"""


def registry_of(device_epsilon: int, **metrics: str) -> Registry:
    """Return a registry of choices: "fresh 3" has three reports of 1, "memo 2 4" two answers of 4."""
    parts = [f"[registry]\napp = 'x'\ndevice_epsilon = {device_epsilon}\nquiet_days = 0"]
    for name, text in metrics.items():
        kind, number, *permanent = text.split()
        life = f"reports = {number}\nschedule = 'early'"
        if kind == "memo":
            life = f"memoize = true\nanswers = {number}\nepsilon_permanent = {permanent[0]}"
        parts.append(_METRIC.format(name=name, rev=1, life=life, expires=EXPIRES))
    return Registry.parse("\n".join(parts))


Day = tuple[list[str | None], list[str]]
"""What was said to each metric's answer, and the metrics of the upload."""


def history(folder: Path, steps: list[tuple[Registry, str, bool]]) -> tuple[list[Day], dict[str, int]]:
    """Live through a day a step: a registry, the answer to all of its metrics, whether what waits is sent."""
    clock = Clock()
    log: list[Day] = []
    for number, (asked, answer, sent) in enumerate(steps):
        device = Device(asked, folder, Rng(random.Random(number).getrandbits), clock)
        said = [device.record(metric, answer) for metric in asked.metrics.values()]
        body = send(device) if sent else None
        groups = cast("list[dict[str, Any]]", body["groups"]) if body else []
        log.append((said, sorted(group["metric"] for group in groups)))
        spent = device.spent()
        device.close()
        clock.travel(1)
    return log, spent


TWO, ONE, THREE = (registry_of(16, m=f"memo {number} 4") for number in (2, 1, 3))
CHANGES: dict[str, list[tuple[Registry, bool]]] = {
    "a metric leaves and another comes": [
        (registry_of(16, m="memo 2 4", old="fresh 8"), True),
        *[(registry_of(16, m="memo 2 4", new="fresh 8"), True)] * 3,
    ],
    "fewer answers while one waits": [(TWO, True), (TWO, False), (ONE, True), (ONE, True)],
    "the memo leaves": [(TWO, True), (TWO, True), *[(registry_of(8, new="fresh 4"), True)] * 2],
    "fewer answers, then fresh noise": [
        *[(TWO, True)] * 2,
        (ONE, True),
        *[(registry_of(16, m="fresh 9"), True)] * 3,
    ],
    "fresh noise while an answer waits": [(TWO, True), (TWO, False), *[(registry_of(16, m="fresh 5"), True)] * 2],
    "more answers than the device's epsilon bears": [
        (registry_of(16, m="memo 2 4", old="fresh 8"), True),
        *[(registry_of(16, m="memo 4 4"), True)] * 4,
    ],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_no_silence_of_a_memo_depends_on_an_answer(change: str, tmp_path: Path) -> None:
    steps = CHANGES[change]
    logs = []
    for place, answers in enumerate(("aaaaaaaa", "abbbbbbb", "abcabcab", "aabbccaa")):
        log, spent = history(
            tmp_path / str(place), [(asked, a, sent) for (asked, sent), a in zip(steps, answers, strict=False)]
        )
        logs.append(log)
        assert sum(spent.values()) <= 16_000_000
    assert all(log == logs[0] for log in logs)


def test_a_device_is_never_charged_less_than_it_sent(tmp_path: Path) -> None:
    """Three answers of 4, the third of which waits while the cap falls and then the values change."""
    values = registry_of(16, m="memo 1 4.5")
    steps = [(THREE, "a", True), (THREE, "b", True), (THREE, "c", False), (ONE, "c", False), (values, "c", True)]
    log, spent = history(tmp_path / "memo", steps)
    assert [sent for _, sent in log].count(["m"]) == 3
    assert spent["m"] == 12_000_000
    fresh, memo = registry_of(16, m="fresh 4"), registry_of(16, m="memo 1 4")
    log, spent = history(
        tmp_path / "fresh", [(fresh, "a", True), (fresh, "a", False), (memo, "a", False), (fresh, "a", True)]
    )
    assert [sent for _, sent in log].count(["m"]) == 2
    assert spent["m"] == 2_000_000


def test_all_metrics_together_never_exceed_the_devices_epsilon(tmp_path: Path) -> None:
    """Two metrics have begun; one leaves with all it reserved, and the other is refused when its report is built."""
    both, one = registry_of(8, m="fresh 4", n="fresh 4"), registry_of(4, n="fresh 4")
    log, spent = history(tmp_path, [(both, "a", True)] * 3 + [(one, "a", True)] * 3)
    assert spent == {"m": 3_000_000, "n": 3_000_000}
    assert [sent for _, sent in log[3:]] == [[], [], []]
