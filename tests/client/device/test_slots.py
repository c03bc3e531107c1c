import random
from pathlib import Path

import pytest

from dither.device import Device, DeviceBusy
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from tests.support.clocks import DAY_S, Clock
from tests.support.devices import make, record, send


def test_an_answer_becomes_one_report_in_one_upload() -> None:
    device, asked = make(Clock())
    assert record(device, asked) == ""
    assert record(device, asked, "dark", True) == ""
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
    assert record(device, asked) == ""
    assert record(device, asked, answer="blue") == "answered"
    send(device)
    assert record(device, asked) == "answered"
    clock.travel(1)
    assert record(device, asked) == ""


def test_periods_are_whole_utc_days_of_their_length() -> None:
    clock = Clock()
    device, asked = make(clock, period="7d")
    assert record(device, asked) == ""  # day 20,777 is the second of its week
    clock.travel(5)
    assert record(device, asked) == "answered"
    clock.travel(1)
    assert record(device, asked) == ""


class Nosy:
    """An answer that answers another question when asked for its truth."""

    def __init__(self, device: Device, asked: Registry) -> None:
        self.device, self.asked = device, asked

    def __bool__(self) -> bool:
        assert record(self.device, self.asked, "color", "blue") == ""
        return True


def test_an_answer_that_records_another_does_not_hang() -> None:
    device, asked = make(Clock())
    assert record(device, asked, "dark", Nosy(device, asked)) == ""
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


def test_an_expired_metric_is_silent() -> None:
    clock = Clock()
    device, asked = make(clock)
    clock.travel(99)
    assert record(device, asked) == ""
    clock.travel(1)
    assert record(device, asked) == "expired"


def test_a_new_file_is_quiet_and_memory_is_not(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, quiet_days=2)
    assert record(device, asked) == "quiet"
    clock.travel(1)
    assert record(device, asked) == "quiet"
    clock.travel(1)
    assert record(device, asked) == ""
    device.close()
    device, asked = make(clock, None, quiet_days=2)
    assert record(device, asked) == ""


def test_a_clock_set_back_opens_no_period_twice() -> None:
    clock = Clock()
    device, asked = make(clock, reports=10, epsilon="1")
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


def test_several_ticks_are_one_report(tmp_path: Path) -> None:
    device, asked = make(Clock(), tmp_path, kind="choices", color="ticks_max = 2")
    assert record(device, asked, answer=["red", "blue"]) == ""
    body = send(device)
    assert body is not None
    groups = body["groups"]
    assert isinstance(groups, list)
    assert len(groups[0]["reports"]) == 1
    assert device.spent()["color"] == 2_000_000
