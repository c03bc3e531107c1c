from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dither.device import FILE_NAME, Device
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, MEMO, classes, make, open_device, record, send
from tests.support.registries import registry


def upgrade(folder: Path, clock: Clock, **changes: object) -> tuple[Device, Registry]:
    """Return the same device under another registry, to which nobody agreed yet."""
    asked = registry(**{"expires": EXPIRES, **changes})
    return open_device(asked, folder, clock, seed=2, agree=False), asked


def test_nothing_is_recorded_before_the_person_agrees() -> None:
    clock = Clock()
    asked = registry(expires=EXPIRES)
    device = open_device(asked, None, clock, agree=False)
    assert record(device, asked) == "not-agreed"
    assert device.asks() == {
        "": ["the device's epsilon rises from 0 to 40"],
        "color": ["it is new, and may cost 6"],
        "dark": ["it is new, and may cost 6"],
    }
    device.agree_once()
    assert device.asks() == {}
    assert record(device, asked) == ""


RISES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "lifetime": ({}, {"reports": 4}, "its epsilon for life rises from 6 to 8"),
    "epsilon of a report": ({}, {"epsilon": "3"}, "its epsilon for life rises from 6 to 9"),
    "permanent epsilon": (
        {**MEMO, "answers": 2},
        {**MEMO, "answers": 1, "epsilon_permanent": "5"},
        "its epsilon of a permanent answer rises from 4 to 5",
    ),
    "fresh": (MEMO, {"reports": 1, "epsilon": "1"}, "its memoized answers become fresh ones"),
    "period": ({"period": "7d"}, {"period": "1d"}, "its period shortens from 7d to 1d"),
    "presence": ({"presence": "hidden"}, {"presence": "public"}, "whether it answers is no longer hidden"),
    "expiry": (
        {},
        {"expires": EXPIRES + timedelta(days=1)},
        f"its expiry is extended from {EXPIRES} to {EXPIRES + timedelta(days=1)}",
    ),
}


@pytest.mark.parametrize("change", RISES)
def test_a_metric_that_asks_for_more_is_silent_until_the_person_agrees_again(change: str, tmp_path: Path) -> None:
    before, after, why = RISES[change]
    clock = Clock()
    make(clock, tmp_path, device_epsilon="40", **{k: v for k, v in before.items() if k != "device_epsilon"})
    device, asked = upgrade(
        tmp_path, clock, device_epsilon="40", **{k: v for k, v in after.items() if k != "device_epsilon"}
    )
    assert device.asks() == {"color": [why], "dark": [why]}
    assert record(device, asked) == "not-agreed"
    device.agree_once()  # what start() was given is no new choice
    assert record(device, asked) == "not-agreed"
    device.agree()
    assert record(device, asked) == ""


def test_a_metric_that_asks_for_less_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    make(clock, tmp_path)
    less = {"reports": 2, "period": "7d", "expires": EXPIRES - timedelta(days=1), "device_epsilon": "20", "rev": 2}
    device, asked = upgrade(tmp_path, clock, **less)
    assert device.asks() == {}
    assert record(device, asked) == ""
    device.agree()  # to less than before: going back to what was agreed before asks for more
    device, asked = upgrade(tmp_path, clock)
    assert set(device.asks()) == {"", "color", "dark"}


def test_a_new_metric_is_silent_and_the_others_go_on(tmp_path: Path) -> None:
    clock = Clock()
    make(clock, tmp_path)
    head, _, dark = _texts()
    new = Registry.parse(head + dark + dark.replace("[metric.dark]", "[metric.newer]"))
    device = open_device(new, tmp_path, clock, agree=False)
    assert device.asks() == {"newer": ["it is new, and may cost 6"]}
    assert device.record(new.metrics["newer"], True) == "not-agreed"
    assert device.record(new.metrics["dark"], True) == ""


def _texts() -> tuple[str, str, str]:
    from tests.support.registries import registry_text

    head, _, rest = registry_text(expires=EXPIRES).partition("[metric.color]")
    color, _, dark = rest.partition("[metric.dark]")
    return head, "[metric.color]" + color, "[metric.dark]" + dark


def test_the_devices_epsilon_is_the_one_that_was_agreed_to(tmp_path: Path) -> None:
    clock = Clock()
    make(clock, tmp_path, device_epsilon="12")
    device, asked = upgrade(tmp_path, clock, device_epsilon="30")
    assert device.asks() == {"": ["the device's epsilon rises from 12 to 30"]}
    with device._file.peek():
        assert device._budget.epsilon() == 12_000_000
    assert record(device, asked) == ""


def test_refusing_drops_what_waits_and_keeps_what_was_charged(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path)
    record(device, asked)
    assert device.next_upload() is not None
    record(device, asked, "dark", True)
    device.refuse()
    assert device.waiting() == 0
    assert device.spent() == {"color": 2_000_000, "dark": 0}
    assert device.counters() == {"refused": 2}
    assert record(device, asked) == "refused"
    assert device.next_upload() is None


def test_opting_out_and_in_again_refreshes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, **MEMO)
    assert record(device, asked) == ""
    send(device)
    before = classes(device)
    device.refuse()
    device.agree(chosen=True)
    assert record(device, asked) == "answered"
    clock.travel(1)
    assert record(device, asked) == ""
    send(device)
    assert classes(device) == before
    assert device.spent()["color"] == 4_000_000


def test_one_metric_can_be_refused_and_takes_its_built_upload_with_it() -> None:
    device, asked = make(Clock())
    record(device, asked)
    record(device, asked, "dark", True)
    assert device.next_upload() is not None
    device.refuse_metric("color", refused=True)
    assert device.refused() == ["color"]
    assert device.waiting() == 0
    assert record(device, asked) == "refused"
    assert record(device, asked, "dark", True) == "answered"
    device.refuse_metric("color", refused=False)
    assert record(device, asked) == "answered"
    assert device.spent() == {"color": 2_000_000, "dark": 2_000_000}


def test_refusing_one_metric_leaves_another_ones_slot_and_upload() -> None:
    clock = Clock()
    device, asked = make(clock)
    record(device, asked, "dark", True)
    upload = device.next_upload()
    record(device, asked)
    device.refuse_metric("color", refused=True)
    assert device.waiting() == 1
    again = device.next_upload()
    assert upload is not None
    assert again is not None
    assert again.id == upload.id


def test_a_choice_is_kept_by_the_file(tmp_path: Path) -> None:
    clock = Clock()
    device, _ = make(clock, tmp_path)
    assert device.choice() is None
    device.agree(chosen=True)
    assert device.choice() is True
    device.refuse()
    device.close()
    device, _ = upgrade(tmp_path, clock)
    assert device.choice() is False


def test_a_choice_made_in_one_process_counts_in_another(tmp_path: Path) -> None:
    clock = Clock()
    one, asked = make(clock, tmp_path, seed=1)
    other, _ = make(clock, tmp_path, seed=2)
    other.refuse()
    assert record(one, asked) == "refused"


# Forgetting.


def test_forgetting_erases_secret_cohort_memos_and_what_waits_and_keeps_what_was_spent(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, **MEMO)
    record(device, asked)
    send(device)
    record(device, asked, "dark", True)
    with device._file.transaction():
        secret = device._slots._secret()
        device._slots._cohort()
    assert secret in (tmp_path / FILE_NAME).read_bytes() + (tmp_path / f"{FILE_NAME}-wal").read_bytes()
    device.forget()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret not in stored
    assert device.waiting() == 0
    assert classes(device) == []
    with device._file.peek():
        assert device._file.get("cohort") is None
    assert device.spent() == {"color": 8_000_000, "dark": 0}  # all that the memo reserved; of the other nothing left
    clock.travel(29)
    assert record(device, asked) == "forgotten"
    clock.travel(1)
    assert record(device, asked) == "spent"
    assert record(device, asked, "dark", True) == ""
    with device._file.transaction():
        assert device._slots._secret() != secret


def test_forgetting_refreshes_no_budget_of_fresh_answers(tmp_path: Path) -> None:
    clock = Clock()
    device, asked = make(clock, tmp_path, reports=2)
    record(device, asked)
    send(device)
    for _ in range(3):
        device.forget()
        clock.travel(30)
        record(device, asked)
        send(device)
        clock.travel(1)
    assert device.spent()["color"] == 4_000_000
    assert device.counters()["accepted"] == 2
