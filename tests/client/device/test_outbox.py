from pathlib import Path

import pytest

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
