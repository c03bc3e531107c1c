"""A day is reached when it was used or charged on; from a false future a device falls back to its clock's day."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from dither.device import Device
from dither.device.recording import SILENT_DAYS, SPANS_MAX
from dither.sending.transport import Outcome, read_answer
from dither_shared.registry import Registry
from tests.support.clocks import DAY_S, Clock
from tests.support.devices import EXPIRES, MEMO, begun, classes, connect, open_device, record, send
from tests.support.registries import registry

FAR = (date(2040, 1, 1) - date(2026, 11, 20)).days
PLENTY: dict[str, Any] = {"reports": 40, "epsilon": "0.5", "device_epsilon": "40"}


def start(asked: Registry, directory: Path | None, clock: Clock) -> Device:
    """Start the app: it agrees, begins and looks."""
    device = open_device(asked, directory, clock)
    device.begin()
    device.look()
    return device


def strayed(directory: Path | None = None, days: float = FAR, **changes: Any) -> tuple[Device, Registry, Clock]:
    """Return a device that answered once today, once after so many days, and is back today. Both answers wait."""
    device, asked, clock = begun(directory, **{**PLENTY, "expires": EXPIRES.replace(year=2042), **changes})
    assert record(device, asked) == ""
    clock.travel(days)
    assert record(device, asked) == ""
    clock.travel(-days)
    assert record(device, asked, "dark", True) == "clock-behind"
    return device, asked, clock


def receive(device: Device, when: float | None) -> None:
    """Send the upload, and receive a receipt with this Date."""
    upload = connect(device)
    assert upload
    device.settle(upload.id, "accepted", "accepted", date=when)


# Beginning and looking reach no day.


@pytest.mark.parametrize("presence", ["public", "hidden"])
@pytest.mark.parametrize("first", [False, True])
def test_a_start_in_2040_in_which_nothing_is_recorded_silences_nothing(
    tmp_path: Path, presence: str, first: bool
) -> None:
    clock = Clock()
    asked = registry(**PLENTY, presence=presence, expires=EXPIRES, schedule="spread", period="7d")
    if not first:
        start(asked, tmp_path, clock).close()
    clock.travel(FAR)
    start(asked, tmp_path, clock).close()
    clock.travel(-FAR)
    device = start(asked, tmp_path, clock)
    for _ in range(SILENT_DAYS):
        device.look()
        record(device, asked)
        clock.travel(1)
        send(device)
    assert device.counters()["accepted"] >= (2 if presence == "public" else 3)


def test_what_has_expired_in_2040_has_not_when_the_clock_is_right_again() -> None:
    device, asked, clock = begun(**PLENTY)
    clock.travel(FAR)
    assert record(device, asked) == "expired"
    device.look()
    clock.travel(-FAR)
    assert record(device, asked) == ""


def test_a_file_that_was_made_in_2040_is_quiet_for_its_days_of_the_right_clock(tmp_path: Path) -> None:
    clock = Clock()
    asked = registry(**PLENTY, quiet_days=5, expires=EXPIRES)
    clock.travel(FAR)
    start(asked, tmp_path, clock).close()
    clock.travel(-FAR)
    device = start(asked, tmp_path, clock)
    for _ in range(5):
        assert record(device, asked) == "quiet"
        clock.travel(1)
    assert record(device, asked) == ""


def test_a_thread_with_hidden_metrics_looks_at_the_clocks_midnight_while_it_is_behind() -> None:
    device, _, clock = begun(**PLENTY, presence="hidden")
    device.look()
    clock.travel(FAR)
    send(device)
    clock.travel(-FAR)
    look = device.look()
    assert look.midnight == (clock.now // DAY_S + 1) * DAY_S


# Hidden periods that a look opened in a false future.


@pytest.mark.parametrize("memo", [{}, MEMO])
def test_a_hidden_period_that_only_a_look_has_opened_in_2040_is_dropped_answered_or_not(memo: dict[str, Any]) -> None:
    seen = []
    for answered in (False, True):
        device, asked, clock = begun(**{**PLENTY, "presence": "hidden", "expires": EXPIRES.replace(year=2042), **memo})
        clock.travel(FAR)
        device.look()
        if answered:
            assert record(device, asked) == ""
        clock.travel(-FAR)
        if answered:
            assert record(device, asked) in ("unopened", "waiting")  # no look has opened today yet
        device.look()
        assert device.waiting() == 2
        assert record(device, asked) == ""
        look = device.look()
        clock.travel(1)
        body = send(device)
        assert body
        assert [group["metric"] for group in body["groups"]] == ["color", "dark"]
        seen.append((device.spent(), device.counters(), look, len(classes(device))))
    assert seen[0] == seen[1]
    assert seen[0][1] == {"accepted": 2, "dropped": 2}


@pytest.mark.parametrize("period", [1, 7])
@pytest.mark.parametrize("answered", [False, True])
def test_a_hidden_period_that_follows_the_present_one_is_dropped_too(period: int, answered: bool) -> None:
    """Else an answer on a day that was answered would take the next one's place."""
    device, asked, clock = begun(**PLENTY, presence="hidden", period=f"{period}d", expires=EXPIRES)
    device.look()
    if answered:
        assert record(device, asked) == ""
    clock.travel(period)
    device.look()
    assert device.waiting() == 4  # two of them are built
    clock.travel(-period)
    device.look()
    assert device.waiting() == 2
    assert record(device, asked) == "answered"


def test_a_hidden_report_of_2040_that_was_charged_keeps_the_device_silent_for_thirty_days() -> None:
    device, asked, clock = begun(**PLENTY, presence="hidden", expires=EXPIRES.replace(year=2042))
    clock.travel(FAR)
    device.look()
    clock.travel(1)
    assert send(device)
    clock.travel(-FAR)
    for _ in range(SILENT_DAYS):
        device.look()
        assert record(device, asked) == "clock-behind"
        assert not device.look().due
        clock.travel(1)
    device.look()
    assert record(device, asked) == ""


# A device that was used in a false future.


@pytest.mark.parametrize("days", [FAR, 40, 3])
@pytest.mark.parametrize("off_s", [0, DAY_S, -DAY_S])
def test_a_receipt_whose_date_agrees_with_the_clock_within_a_day_ends_a_false_future_at_once(
    days: int, off_s: float
) -> None:
    device, asked, clock = strayed(days=days)
    receive(device, clock() + off_s)
    assert record(device, asked, "dark", True) == ""
    assert record(device, asked) == "answered"  # it was, before the clock strayed
    clock.travel(1)
    assert record(device, asked) == ""


@pytest.mark.parametrize("when", [None, DAY_S + 1, -DAY_S - 1, FAR * DAY_S])
def test_no_other_receipt_moves_anything(when: float | None) -> None:
    device, asked, clock = strayed()
    receive(device, None if when is None else clock() + when)
    assert record(device, asked, "dark", True) == "clock-behind"


def test_a_receipt_never_moves_a_device_ahead_of_its_clock() -> None:
    device, asked, clock = begun(**PLENTY)
    record(device, asked)
    receive(device, clock() + DAY_S)
    assert record(device, asked) == "answered"
    clock.travel(1)
    assert record(device, asked) == ""


def test_without_a_receipt_a_false_future_ends_after_thirty_silent_days() -> None:
    device, asked, clock = strayed()
    until = device.skip_reasons()["dark"].until
    assert until == clock.now // DAY_S + SILENT_DAYS
    for _ in range(SILENT_DAYS):
        assert record(device, asked, "dark", True) == "clock-behind"
        clock.travel(1)
    assert record(device, asked, "dark", True) == ""


def test_days_ahead_of_which_the_clock_was_right_again_do_not_count_as_silent() -> None:
    device, asked, clock = strayed(days=100)
    for days in (20, 80, -80):  # for a moment it reads again what it did: all is in order there
        clock.travel(days)
        device.look()
    for _ in range(SILENT_DAYS):
        assert record(device, asked, "dark", True) == "clock-behind"
        clock.travel(1)
    assert record(device, asked, "dark", True) == ""


def test_a_period_that_was_used_in_a_false_future_is_not_answered_again_when_it_comes() -> None:
    device, asked, clock = strayed(days=10)
    receive(device, clock())
    for day in range(12):
        assert record(device, asked) == ("answered" if day in (0, 10) else "")
        send(device)
        clock.travel(1)


def test_what_was_charged_in_a_false_future_stays_charged() -> None:
    device, asked, clock = strayed(reports=3)
    receive(device, clock())
    for left in (1, 2, 3):
        assert device.spent()["color"] == left * 500_000
        clock.travel(1)
        assert record(device, asked) == ("" if left == 1 else "spent")
        send(device)


def test_what_was_memoized_in_a_false_future_stays_memoized() -> None:
    device, asked, clock = strayed(**MEMO)
    receive(device, clock())
    before = classes(device)
    clock.travel(1)
    assert record(device, asked) == ""
    send(device)
    assert classes(device) == before
    assert device.spent()["color"] == 4_000_000


def test_what_was_drawn_stays_drawn_and_a_start_in_a_false_future_cuts_nothing_off(tmp_path: Path) -> None:
    """Neither the first start, nor one with other terms."""
    clock = Clock()
    clock.travel(60)
    for reports in (30, 20):
        asked = registry(**{**PLENTY, "reports": reports, "schedule": "spread", "expires": EXPIRES})
        device = start(asked, tmp_path, clock)
        with device._file.peek():
            days = [day for (day,) in device._file.execute("SELECT day FROM schedule WHERE metric = 'color'")]
        device.close()
        assert len(days) >= reports - 1  # the present period was decided under the terms before
        assert any(day < clock.now // DAY_S - 60 for day in days)


def test_the_days_that_are_kept_as_used_are_bounded_and_only_the_shortest_gaps_are_closed() -> None:
    device, asked, clock = begun(reports=80, epsilon="0.25", device_epsilon="40", expires=EXPIRES.replace(year=2042))
    for gap in range(SPANS_MAX + 8):
        assert record(device, asked) == ""
        send(device)
        clock.travel(2 + gap)
    with device._file.peek():
        spans = device._file.execute("SELECT first, until FROM used ORDER BY first").fetchall()
    assert len(spans) == SPANS_MAX
    assert spans[0][1] - spans[0][0] > 30  # nine uses and the gaps between them
    assert all(until - first == 1 for first, until in spans[1:])


# Other things that a false future leaves behind.


@pytest.mark.parametrize("used", [False, True])
def test_forgetting_in_a_false_future_is_thirty_silent_days_of_the_right_clock(tmp_path: Path, used: bool) -> None:
    clock = Clock()
    asked = registry(**PLENTY, expires=EXPIRES.replace(year=2042))
    device = start(asked, tmp_path, clock)
    clock.travel(FAR)
    if used:
        assert record(device, asked) == ""
    device.forget()
    clock.travel(-FAR)
    device.look()
    for _ in range(SILENT_DAYS):
        assert record(device, asked) == ("clock-behind" if used else "forgotten")
        clock.travel(1)
    device.look()
    assert record(device, asked) == ""


def test_forgetting_while_the_clock_is_behind_begins_the_silence_anew() -> None:
    device, asked, clock = strayed()
    clock.travel(20)
    device.forget()
    for _ in range(SILENT_DAYS):
        device.look()
        assert record(device, asked) != ""
        clock.travel(1)
    assert record(device, asked) == ""


def test_a_plan_that_was_retired_in_a_false_future_is_silent_in_it_alone() -> None:
    device, asked, clock = begun(**PLENTY, expires=EXPIRES.replace(year=2042))
    clock.travel(FAR)
    record(device, asked)
    upload = connect(device)
    assert upload
    device.settle(upload.id, "dropped", "410 retired", retired=(0,))
    assert record(device, asked) == "retired"
    clock.travel(-FAR)
    record(device, asked, "dark", True)
    clock.travel(SILENT_DAYS)
    assert record(device, asked) == ""


def test_an_answer_that_retires_a_plan_reaches_no_day() -> None:
    device, asked, clock = begun(**PLENTY)
    record(device, asked)
    upload = connect(device)
    assert upload
    clock.travel(40)
    device.settle(upload.id, "dropped", "410 retired", retired=(0,))
    clock.travel(-39)
    assert record(device, asked, "dark", True) == ""


@pytest.mark.parametrize("back_s", [20, 3_600, DAY_S, FAR * DAY_S])
def test_no_wait_is_longer_because_the_clock_was_set_back(back_s: float) -> None:
    device, asked, clock = begun(**PLENTY)
    record(device, asked)
    upload = device.next_upload()
    assert upload
    device.put_off(upload.id, "503", clock() + 600, clock() + 500)
    clock.now += 10
    clock.now -= back_s
    for _ in range(2):
        look = device.look(lambda: 3_600.0)
        assert look.held_until <= clock() + 500
        assert look.when
        assert look.when <= clock() + 600
    assert device.look(lambda: 3_600.0).when == look.when


def test_a_wait_that_ended_when_the_clock_was_set_back_does_not_come_again() -> None:
    device, asked, clock = begun(**PLENTY)
    record(device, asked)
    clock.now += 5 * 3_600
    device.put_off("", "503", clock() + DAY_S, clock() + DAY_S)
    clock.now -= 5 * 3_600
    assert device.look().held_until == 0
    clock.now += 6 * 3_600
    assert device.look().held_until == 0


def test_an_upload_whose_sending_was_seen_to_be_six_days_ago_is_given_up_when_the_clock_goes_back() -> None:
    """No day is reached meanwhile, and the clock does not go back behind the attempt."""
    device, asked, clock = begun(**PLENTY)
    record(device, asked)
    assert connect(device)
    clock.travel(7)
    device.look()
    clock.travel(-6.9)
    device.look()
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}


@pytest.mark.parametrize("days", [0.01, 3, 7])
def test_an_upload_that_was_sent_is_given_up_in_1970_too(days: float) -> None:
    """A machine without a battery for its clock starts there, however long ago the attempt is."""
    device, asked, clock = begun(**PLENTY)
    record(device, asked)
    assert connect(device)
    clock.now = days * DAY_S
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}


def test_failures_that_began_in_2040_are_warned_of_after_an_hour_of_the_right_clock() -> None:
    device, asked, clock = begun(**PLENTY)
    record(device, asked)
    clock.travel(FAR)
    assert not device.put_off("", "503", clock() + 60)
    clock.travel(-FAR)
    assert not device.put_off("", "503", clock() + 60)
    clock.now += 3_600
    assert device.put_off("", "503", clock() + 60)


# The Date of a receipt.


@pytest.mark.parametrize(
    "text", ["Fri, 20 Nov 2026 12:00:00 GMT", "Friday, 20-Nov-26 12:00:00 GMT", "Fri Nov 20 12:00:00 2026"]
)
def test_every_form_of_a_date_is_read(text: str) -> None:
    answer = read_answer(202, {"Date": text}, b'{"upload": "x", "accepted": 1}', "x")
    assert answer.outcome is Outcome.ACCEPTED
    assert answer.date == datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text", ["", "x", "0", "Fri, 99 Nov 2026 12:00:00 GMT", "Fri, 20 Nov 99999 12:00:00 GMT", ";" * 9_999, "\x00", "é"]
)
def test_a_date_that_is_none_is_no_fault(text: str) -> None:
    assert read_answer(202, {"Date": text}, b'{"upload": "x", "accepted": 1}', "x").date is None


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b'{"upload": "x", "accepted": 1}'), (202, b'{"upload": "another", "accepted": 1}'), (302, b""),
        (200, b"<html>Welcome to our network</html>"), (511, b""), (503, b'{"type": "busy"}'),
    ],
)  # fmt: skip
def test_only_a_receipt_has_a_date(status: int, body: bytes) -> None:
    assert read_answer(status, {"Date": "Fri, 20 Nov 2026 12:00:00 GMT"}, body, "x").date is None
