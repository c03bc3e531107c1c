import json
from pathlib import Path

import pytest

from dither.device.moments import LEASE_S
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, make, open_device, record, send
from tests.support.registries import registry_text


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
    clock = Clock()
    device, asked = make(clock, reports=10, epsilon="1")
    for expected in ("", "", "waiting"):
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
    assert record(one, asked) == ""
    assert record(other, asked) == "answered"
    first, second = one.next_upload(), other.next_upload()
    assert first is not None
    assert second is not None
    assert (first.id, first.body) == (second.id, second.body)
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


def test_the_order_of_groups_tells_nothing_about_the_order_of_answers() -> None:
    """Sorted by name: whoever is recorded first, the groups of an upload are in one order."""
    for names in (("color", "dark"), ("dark", "color")):
        device, asked = make(Clock())
        for name in names:
            record(device, asked, name)
        body = send(device)
        assert body is not None
        assert [group["metric"] for group in body["groups"]] == ["color", "dark"]


def test_one_process_sends_at_a_time(tmp_path: Path) -> None:
    clock = Clock()
    one, _ = make(clock, tmp_path, seed=1)
    other, _ = make(clock, tmp_path, seed=2)
    assert one.lease() == 0
    assert one.lease() == 0
    assert other.lease() == clock() + LEASE_S
    other.release()  # not its own
    assert other.lease() > 0
    one.release()
    assert other.lease() == 0


def test_the_lease_of_a_process_that_is_gone_ends(tmp_path: Path) -> None:
    clock = Clock()
    one, _ = make(clock, tmp_path, seed=1)
    other, _ = make(clock, tmp_path, seed=2)
    one.lease()
    clock.now += LEASE_S
    assert other.lease() == 0
    assert one.lease() > 0
    clock.travel(-365)  # a lease that would last a year is another clock's
    assert one.lease() == 0


def test_an_upload_that_is_too_large_is_halved_under_new_ids() -> None:
    device, asked = make(Clock())
    record(device, asked)
    record(device, asked, "dark", True)
    upload = device.next_upload()
    assert upload is not None
    assert device.split(upload.id)
    assert not device.settle(upload.id, "dropped")
    sent, ids = [], {upload.id}
    while half := device.next_upload():
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
    device.next_upload()
    upload = device.next_upload()
    assert upload is not None
    assert not device.split(upload.id)


def test_an_upload_that_got_no_connection_is_not_given_up() -> None:
    clock = Clock()
    device, asked = make(clock)
    record(device, asked)
    ids = set()
    for _ in range(20):
        upload = device.next_upload()
        assert upload is not None
        ids.add(upload.id)
        device.not_sent(upload.id)
        clock.travel(1)
    assert len(ids) == 1
    assert device.waiting() == 1


def test_six_days_count_from_the_first_attempt_that_may_have_got_a_connection() -> None:
    clock = Clock()
    device, asked = make(clock)
    record(device, asked)
    lost = device.next_upload()  # killed: nobody knows what became of it
    assert lost is not None
    clock.travel(1)
    again = device.next_upload()
    assert again is not None
    device.not_sent(again.id)
    clock.travel(5.01)
    assert device.next_upload() is None
    assert device.counters() == {"given-up": 1}


def test_a_plan_of_another_clock_is_made_anew() -> None:
    clock = Clock()
    device, asked = make(clock)
    record(device, asked)
    clock.travel(365)
    device.plan(clock() + 60)
    assert device.look(lambda: 5).when == clock() + 60
    clock.travel(-365)
    assert device.look(lambda: 5).when == clock() + 5
