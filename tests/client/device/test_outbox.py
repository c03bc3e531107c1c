import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither.device import DAY_S, FILE_NAME, Device
from dither.device.outbox import LEASE_S, Outbox
from dither.device.recording import AGREES_S
from dither_shared.frozen import replaced
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, begun, connect, make, open_device, record, send
from tests.support.registries import registry, registry_text


def test_more_metrics_than_an_upload_takes_go_in_several(many_flags: Registry) -> None:
    device = open_device(many_flags, None, Clock())
    assert [device.record(metric, True) for metric in many_flags.metrics.values()] == [""] * 120
    sizes = []
    while body := send(device):
        sizes.append(len(body["groups"]))
    assert sizes == [50, 50, 20]
    assert sum(device.spent().values()) == 120 * 100_000


@pytest.fixture
def many_flags() -> Registry:
    text = registry_text(epsilon="0.1", reports=1, expires=EXPIRES)
    head, _, rest = text.partition("[metric.color]")
    flag = rest.partition("[metric.dark]")[2]
    return Registry.parse(head + "".join(f"[metric.flag_{number}]{flag}" for number in range(120)))


def test_an_old_answer_is_built_before_a_new_one_takes_its_slot() -> None:
    device, asked, clock = begun(reports=10, epsilon="1")
    for expected in ("", "", "waiting"):
        assert record(device, asked) == expected
        clock.travel(1)
    assert device.waiting() == 2
    for spent in (0, 1_000_000, 2_000_000):  # each is charged when its connection stands, one a day
        assert device.spent()["color"] == spent
        assert (send(device) is None) == (spent == 2_000_000)
        assert send(device) is None
        clock.travel(1)


@pytest.mark.parametrize("charged", [False, True])
def test_an_upload_is_frozen_until_it_is_settled_by_its_own_id(charged: bool) -> None:
    device, asked, clock = begun()
    record(device, asked)
    first = device.next_upload()
    assert first is not None
    assert first.failures == 0
    if charged:
        assert device.charge(first.id)
    record(device, asked, "dark", True)
    assert device.settle("another id", "accepted") == 0
    device.put_off(first.id, "503 unavailable", clock() + 60)
    second = device.next_upload()
    assert second is not None
    assert (second.id, second.body, second.failures) == (first.id, first.body, 1)
    device.settle(first.id, "accepted")
    third = device.next_upload()
    assert third is not None
    assert third.id != first.id


def test_building_charges_nothing_and_a_connection_charges_once() -> None:
    """However often the connection stands: the same bytes under the same id cost once."""
    device, asked = make(Clock())
    record(device, asked)
    record(device, asked, "dark", True)
    upload = device.next_upload()
    assert upload is not None
    assert upload.reports == 2
    assert device.spent() == {"color": 0, "dark": 0}
    for _ in range(3):
        assert device.charge(upload.id)
        assert device.spent() == {"color": 2_000_000, "dark": 2_000_000}


def test_what_the_budget_no_longer_bears_leaves_an_upload_that_never_had_a_connection(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, reports=2)
    record(device, asked)
    record(device, asked, "dark", False)
    send(device)
    clock.travel(1)
    record(device, asked)
    record(device, asked, "dark", False)
    before = device.next_upload()
    assert before is not None
    asked = registry(expires=EXPIRES, reports=1)
    later = open_device(asked, tmp_path, clock, seed=2)
    assert not later.charge(before.id)
    assert later.next_upload() is None
    assert later.spent() == {"color": 2_000_000, "dark": 2_000_000}
    assert later.counters() == {"accepted": 2, "spent": 2}
    assert later.waiting() == 0


def test_what_still_fits_leaves_under_a_new_id(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, reports=2)
    record(device, asked)
    send(device)
    clock.travel(1)
    record(device, asked)
    record(device, asked, "dark", False)
    before = device.next_upload()
    assert before is not None
    device.close()
    later = open_device(registry(expires=EXPIRES, reports=1), tmp_path, clock, seed=2)
    after = connect(later)
    assert after is not None
    assert after.id != before.id
    groups = json.loads(before.body)["groups"]
    assert json.loads(after.body)["groups"] == [group for group in groups if group["metric"] == "dark"]
    assert later.spent() == {"color": 2_000_000, "dark": 2_000_000}


def test_an_upload_that_had_a_connection_is_never_unfrozen_whatever_a_new_registry_bears(tmp_path: Path) -> None:
    """It may have been counted: under another id its reports would be counted, and charged, again."""
    device, asked, clock = begun(tmp_path, reports=3)
    for _ in range(2):
        record(device, asked)
        send(device)
        clock.travel(1)
    record(device, asked)
    record(device, asked, "dark", False)
    before = connect(device)
    assert before is not None
    device.close()
    later = open_device(registry(expires=EXPIRES, reports=2), tmp_path, clock, seed=2)
    after = connect(later)
    assert after is not None
    assert (after.id, after.body) == (before.id, before.body)
    assert later.settle(after.id, "accepted") == 2
    assert later.spent() == {"color": 6_000_000, "dark": 2_000_000}
    assert later.counters() == {"accepted": 4}


def test_an_upload_is_given_up_before_the_aggregator_forgets_it() -> None:
    device, asked, clock = begun()
    record(device, asked)
    first = connect(device)
    clock.travel(5.99)
    again = connect(device)
    assert first is not None
    assert again is not None
    assert again.id == first.id
    clock.travel(0.02)
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}
    assert device.spent()["color"] == 2_000_000  # it may have been sent: its cost stays


def test_an_upload_is_given_up_when_the_clock_reads_earlier_than_at_the_last_attempt() -> None:
    device, asked, clock = begun()
    record(device, asked)
    connect(device)
    clock.travel(-0.01)
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}


def test_processes_share_one_file_one_budget_and_one_upload(tmp_path: Path) -> None:
    """Two connections to one file, as two processes have them."""
    one, asked, clock = begun(tmp_path, seed=1)
    other, _ = make(clock, tmp_path, seed=2)
    assert record(one, asked) == ""
    assert record(other, asked) == "answered"
    first, second = one.next_upload(), other.next_upload()
    assert first is not None
    assert second is not None
    assert (first.id, first.body) == (second.id, second.body)
    assert one.charge(first.id)
    assert other.charge(second.id)
    assert other.settle(second.id, "accepted")
    assert not one.settle(first.id, "accepted")
    assert one.spent() == other.spent() == {"color": 2_000_000}
    assert one.counters() == {"accepted": 1, "answered": 1}


def test_a_look_at_the_next_upload_builds_and_charges_nothing() -> None:
    device, asked = make(Clock())
    assert device.preview() == (b"", {})
    record(device, asked)
    record(device, asked, "dark", True)
    seen, cost = device.preview()
    assert cost == {"color": 2_000_000, "dark": 2_000_000}
    assert device.spent() == {"color": 0, "dark": 0}
    upload = device.next_upload()
    assert upload is not None
    assert json.loads(upload.body)["groups"] == json.loads(seen)["groups"]
    assert device.preview() == (upload.body, cost)
    assert device.charge(upload.id)
    assert device.preview() == (upload.body, cost)


def test_a_preview_shows_nothing_that_would_be_given_up() -> None:
    device, asked, clock = begun()
    record(device, asked)
    assert connect(device)
    clock.travel(7)
    record(device, asked, "dark", True)
    seen, cost = device.preview()
    assert [group["metric"] for group in json.loads(seen)["groups"]] == list(cost) == ["dark"]
    upload = device.next_upload()
    assert upload is not None
    assert json.loads(upload.body)["groups"] == json.loads(seen)["groups"]


def test_nobody_writes_between_the_looks_of_a_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that reads and then writes is refused at once if another one has written between the two."""
    device, asked = make(Clock(), tmp_path)
    record(device, asked)
    build = Outbox.build

    def build_late(self: Outbox) -> None:
        self._file.execute("SELECT 1 FROM slot").fetchone()
        with (
            closing(sqlite3.connect(tmp_path / FILE_NAME, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("UPDATE metric SET spent = spent")
        build(self)

    monkeypatch.setattr(Outbox, "build", build_late)
    body, cost = device.preview()
    assert json.loads(body)["groups"]
    assert cost == {"color": 2_000_000}


def test_the_order_of_groups_tells_nothing_about_the_order_of_answers() -> None:
    """Sorted by name: whoever is recorded first, the groups of an upload are in one order."""
    for names in (("color", "dark"), ("dark", "color")):
        device, asked = make(Clock())
        for name in names:
            record(device, asked, name)
        body = send(device)
        assert body is not None
        assert [group["metric"] for group in body["groups"]] == ["color", "dark"]


def test_the_lease_of_a_process_that_is_gone_ends(tmp_path: Path) -> None:
    one, _, clock = begun(tmp_path, seed=1)
    other, _ = make(clock, tmp_path, seed=2)
    one.lease()
    clock.now += LEASE_S - 1
    assert not other.lease()
    clock.now += 1
    assert other.lease()
    assert not one.lease()
    clock.travel(-365)  # a lease that would last a year is another clock's
    assert one.lease()


def test_an_upload_that_is_too_large_is_halved_under_new_ids() -> None:
    device, asked = make(Clock())
    record(device, asked)
    record(device, asked, "dark", True)
    upload = connect(device)
    assert upload is not None
    assert device.split(upload.id)
    assert not device.settle(upload.id, "dropped")
    sent, ids = [], {upload.id}
    while half := connect(device):
        ids.add(half.id)
        sent += json.loads(half.body)["groups"]
        assert not device.split(half.id)  # one group cannot be halved
        device.settle(half.id, "accepted")
    assert sent == json.loads(upload.body)["groups"]
    assert len(ids) == 3
    assert device.spent() == {"color": 2_000_000, "dark": 2_000_000}


def test_an_upload_that_may_have_been_stored_is_not_halved() -> None:
    """Its first attempt had no answer, so the aggregator may have it: halves under new ids would count twice."""
    device, asked = make(Clock())
    record(device, asked)
    record(device, asked, "dark", True)
    connect(device)
    upload = connect(device)
    assert upload is not None
    assert not device.split(upload.id)


def test_an_upload_that_got_no_connection_is_neither_given_up_nor_charged() -> None:
    device, asked, clock = begun()
    record(device, asked)
    ids = set()
    for failures in range(20):
        upload = device.next_upload()
        assert upload is not None
        assert upload.failures == failures
        ids.add(upload.id)
        device.put_off(upload.id, "no answer (ConnectionError)", clock() + 60, clock() + 60)
        clock.travel(1)
    assert len(ids) == 1
    assert device.waiting() == 1
    assert device.spent()["color"] == 0


def test_six_days_count_from_the_first_attempt_that_may_have_got_a_connection() -> None:
    device, asked, clock = begun()
    record(device, asked)
    unreached = device.next_upload()
    assert unreached is not None
    device.put_off(unreached.id, "no answer (ConnectionError)", clock() + 60, clock() + 60)
    clock.travel(20)
    lost = connect(device)  # killed: nobody knows what became of it
    assert lost is not None
    clock.travel(1)
    again = device.next_upload()
    assert again is not None
    assert again.id == lost.id
    device.put_off(again.id, "no answer (ConnectionError)", clock() + 60, clock() + 60)
    clock.travel(4.98)
    assert device.next_upload() == replaced(again, failures=2)
    clock.travel(0.03)
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}


def test_a_plan_of_another_clock_is_made_anew() -> None:
    device, asked, clock = begun()
    record(device, asked)
    clock.travel(365)
    upload = device.next_upload()
    assert upload is not None
    device.put_off(upload.id, "no answer (ConnectionError)", clock() + 60, clock() + 60)
    look = device.look(lambda: 5)
    assert (look.when, look.held_until) == (clock() + 60, clock() + 60)
    clock.travel(-365)
    look = device.look(lambda: 5)
    assert (look.when, look.held_until) == (clock() + 5, 0)


def test_a_plan_that_is_retired_is_silent_and_no_other_one_is(tmp_path: Path) -> None:
    """Two processes of one device, of which one was started after an upgrade."""
    old, asked, clock = begun(tmp_path, seed=1)
    newer = registry(expires=EXPIRES, rev=2)
    new = open_device(newer, tmp_path, clock, seed=2)
    new.begin()
    record(old, asked)
    upload = connect(old)
    assert upload is not None
    old.settle(upload.id, "dropped", "410 retired", retired=(0, 1, 49))
    clock.travel(1)
    assert record(old, asked) == "retired"
    assert record(new, newer) == ""
    assert record(old, asked, "dark", True) == ""
    send(new)
    clock.travel(28)
    assert record(old, asked) == "retired"
    clock.travel(1)
    assert record(old, asked) == ""


# One report of a metric a day of the aggregator's.

DAILY: dict[str, Any] = {"reports": 40, "epsilon": "0.25", "device_epsilon": "40"}


def away(clock: Clock, directory: Path | None = None, **changes: Any) -> tuple[Device, Registry]:
    """Return a device that was away since the day before yesterday: a report is built, and another one waits."""
    device, asked = make(clock, directory, **{**DAILY, **changes})
    for _ in range(2):
        assert record(device, asked) == ""
        clock.travel(1)
    assert device.waiting() == 2
    return device, asked


def arrive(device: Device, ahead_s: float | None = 0.0) -> list[str]:
    """Send all that may leave now; return the metrics of what came. Receipts have a Date, so far ahead of the clock."""
    came: list[str] = []
    while upload := connect(device):
        date = None if ahead_s is None else device._file.clock() + ahead_s
        device.settle(upload.id, "accepted", "accepted", date=date)
        came += [group["metric"] for group in json.loads(upload.body)["groups"]]
    return came


def test_a_device_that_was_away_sends_what_is_built_today_and_what_waits_tomorrow() -> None:
    clock = Clock()
    device, asked = away(clock)
    assert arrive(device) == ["color"]
    assert record(device, asked) == "waiting"
    look = device.look()
    midnight = (clock() // DAY_S + 1) * DAY_S
    assert (look.due, look.another_day, look.when) == (False, True, midnight + AGREES_S)
    clock.now = midnight + AGREES_S - 1
    assert arrive(device) == []
    clock.now = midnight + AGREES_S
    assert device.look().due
    assert arrive(device) == ["color"]
    assert device.look().when is None


def test_other_metrics_do_not_wait_with_it() -> None:
    clock = Clock()
    device, asked = away(clock)
    assert arrive(device) == ["color"]
    assert record(device, asked, "dark", answer=True) == ""
    assert arrive(device) == ["dark"]
    clock.travel(1)
    assert arrive(device) == ["color"]


def test_the_same_bytes_that_are_sent_again_after_midnight_count_for_the_day_of_the_answer() -> None:
    clock = Clock()
    device, _asked = away(clock)
    upload = connect(device)
    assert upload
    device.put_off(upload.id, "no answer", clock() + 60)
    clock.travel(1)
    assert connect(device) == replaced(upload, failures=1)
    device.settle(upload.id, "accepted", "accepted")
    assert arrive(device) == []
    clock.travel(1)
    assert arrive(device) == ["color"]


def test_midnight_between_connection_and_answer_belongs_to_both_days() -> None:
    clock = Clock()
    device, _asked = away(clock)
    clock.now = (clock() // DAY_S + 1) * DAY_S - 1
    upload = connect(device)
    assert upload
    clock.now += 2
    device.settle(upload.id, "accepted", "accepted", date=clock())
    clock.travel(0.9)
    assert arrive(device) == []
    clock.travel(0.2)
    assert arrive(device) == ["color"]


def test_what_was_given_up_or_taken_back_may_have_come_too() -> None:
    for end in ("given up", "refused"):
        clock = Clock()
        device, asked = away(clock)
        upload = connect(device)
        assert upload
        device.put_off(upload.id, "no answer", clock() + 60)
        if end == "refused":
            device.refuse_metric("color", True)
            device.refuse_metric("color", False)
            assert record(device, asked) == ""
        else:
            clock.travel(6.1)
        assert arrive(device) == []
        clock.travel(1)
        assert arrive(device) == ["color"]


def test_what_never_had_a_connection_came_on_no_day() -> None:
    clock = Clock()
    device, asked = away(clock)
    assert device.next_upload()
    device.refuse_metric("color", True)
    device.refuse_metric("color", False)
    assert record(device, asked) == ""
    assert arrive(device) == ["color"]


@pytest.mark.parametrize("ahead_h", [-20_000, -23, -5, 0, 5, 23, 20_000])
def test_a_clock_that_is_always_wrong_keeps_to_the_aggregators_days_from_the_first_receipt_on(ahead_h: int) -> None:
    """20 days in which it answers each day, and looks each hour. The aggregator's clock is ahead by so many hours."""
    clock = Clock()
    device, asked = away(clock, expires=EXPIRES.replace(year=2042))
    days = []
    for hour in range(20 * 24):
        if hour % 24 == 10:
            record(device, asked)
        days += [int((clock() + ahead_h * 3_600) // DAY_S)] * len(arrive(device, ahead_h * 3_600))
        clock.travel(1 / 24)
    assert len(set(days)) == len(days) >= 19


def test_a_clock_without_a_receipts_date_counts_its_own_days() -> None:
    """So it may send two on one day of an aggregator whose clock is another one: what client/device.md says."""
    clock = Clock()
    device, _asked = away(clock)
    assert arrive(device, None) == ["color"]
    clock.travel(0.6)
    assert arrive(device, None) == ["color"]


def test_a_day_that_is_far_ahead_holds_nothing_for_longer_than_a_day() -> None:
    clock = Clock()
    clock.travel(400)
    device, _asked = away(clock, expires=EXPIRES.replace(year=2042))
    assert arrive(device) == ["color"]
    clock.travel(-300)
    device.look()
    assert arrive(device) == []
    clock.travel(1)
    assert arrive(device) == ["color"]


def test_a_clock_that_is_set_back_by_an_hour_at_midnight_sends_no_second_report() -> None:
    clock = Clock()
    device, _asked = away(clock)
    clock.now = (clock() // DAY_S) * DAY_S + 600
    assert arrive(device) == ["color"]
    clock.travel(-1 / 24)
    device.look()
    assert arrive(device) == []
    clock.travel(0.9)
    assert arrive(device) == []
    clock.travel(0.2)
    assert arrive(device) == ["color"]


def test_an_upload_that_was_built_for_a_day_waits_where_the_clock_is_set_back_before_it_leaves() -> None:
    clock = Clock()
    device, _asked = away(clock)
    assert arrive(device) == ["color"]
    clock.travel(1)
    assert device.next_upload()
    clock.travel(-1)
    assert device.next_upload() is None
    assert not device.look().due
    clock.travel(1)
    assert arrive(device) == ["color"]


def test_hidden_periods_open_at_midnight_though_the_last_report_left_the_day_before() -> None:
    """The report of the closed period is built then, and leaves a minute later: no answer is dropped meanwhile."""
    device, asked, clock = begun(**{**DAILY, "presence": "hidden"})
    device.look()
    for night in range(4):
        clock.now = (clock() // DAY_S + 1) * DAY_S
        assert device.look().due == (not night)
        assert record(device, asked) == ""
        assert arrive(device) == ([] if night else ["color", "dark"])
        clock.now += AGREES_S
        assert arrive(device) == (["color", "dark"] if night else [])
