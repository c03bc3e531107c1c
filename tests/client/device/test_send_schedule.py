"""When the device sends next, and what it says of the last attempt."""

from pathlib import Path

import pytest

from dither.device import BuiltUpload, Device
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import begun, make, record

HOUR_S = 3_600.0


def built(device: Device, asked: Registry) -> BuiltUpload:
    """Return an upload that was just built."""
    record(device, asked)
    upload = device.next_upload()
    assert upload is not None
    return upload


def test_the_moment_is_drawn_once_and_kept_whatever_is_recorded_and_whoever_looks(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path)
    assert device.record(asked.metrics["color"], "red", lambda: 100.0) == ""
    planned = clock() + 100
    clock.now += 50
    assert device.record(asked.metrics["dark"], True, lambda: 7.0) == ""
    assert device.look(lambda: 7.0).when == planned
    other, _ = make(clock, tmp_path, seed=2)
    clock.now += 100  # it is past, and was not made
    assert other.look(lambda: 7.0).when == planned


@pytest.mark.parametrize("outcome", ["accepted", "dropped"])
def test_what_is_recorded_after_an_answer_has_a_moment_of_its_own(outcome: str) -> None:
    """Also where the process ended before it looked again: a moment that is past would send it at once."""
    device, asked, clock = begun()
    upload = built(device, asked)
    device.settle(upload.id, outcome, outcome)
    clock.now += 2 * HOUR_S
    assert device.record(asked.metrics["dark"], True, lambda: 100.0) == ""
    assert device.look(lambda: 7.0).when == clock() + 100


def test_a_failed_attempt_plans_the_next_one_and_holds_flushes_back_only_where_it_says_so() -> None:
    device, asked, clock = begun()
    upload = built(device, asked)
    device.put_off(upload.id, "502 without an answer of ours", clock() + 60)
    look = device.look(lambda: 7.0)
    assert (look.when, look.due, look.held_until, look.outcome) == (
        clock() + 60, True, 0, "502 without an answer of ours",
    )  # fmt: skip
    device.put_off(upload.id, "no answer (ConnectionError)", clock() + 90, clock() + 80)
    look = device.look(lambda: 7.0)
    assert (look.when, look.held_until, look.outcome) == (clock() + 90, clock() + 80, "no answer (ConnectionError)")
    clock.now += 80
    assert device.look(lambda: 7.0).held_until == 0


def test_what_is_held_back_stays_so_though_nothing_waits_any_more() -> None:
    device, asked, clock = begun()
    upload = built(device, asked)
    until = clock() + 3_600
    device.put_off(upload.id, "503 busy", until, until)
    device.refuse_metric("color", refused=True)
    assert device.look().when is None
    assert device.sending().next is None
    record(device, asked, "dark", True)
    assert (device.look().held_until, device.look().when) == (until, until)


# One warning, and not more.


def warnings(device: Device, upload: BuiltUpload, clock: Clock, attempts: list[tuple[float, str]]) -> list[bool]:
    """Return, for attempts that fail each so long after the one before, whether to warn."""
    said = []
    for passes_s, detail in attempts:
        clock.now += passes_s
        said.append(device.put_off(upload.id, detail, clock() + 60))
    return said


def test_attempts_that_fail_in_another_way_begin_a_new_hour() -> None:
    device, asked, clock = begun()
    upload = built(device, asked)
    assert not any(warnings(device, upload, clock, [(HOUR_S - 1, way) for way in "xyxyxy"]))
    assert warnings(device, upload, clock, [(HOUR_S - 1, "y"), (1.0, "y"), (HOUR_S, "x")]) == [False, True, False]


def test_after_one_was_accepted_there_may_be_another_warning(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path)
    upload = built(device, asked)
    assert warnings(device, upload, clock, [(0.0, "x"), (HOUR_S, "x")]) == [False, True]
    device.close()
    device, asked = make(clock, tmp_path)  # another process of the same device says it no second time
    assert warnings(device, upload, clock, [(HOUR_S, "x")]) == [False]
    device.settle(upload.id, "accepted", "accepted")
    clock.travel(1)
    upload = built(device, asked)
    assert warnings(device, upload, clock, [(0.0, "x"), (HOUR_S, "x")]) == [False, True]
