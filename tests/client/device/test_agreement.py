import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dither.device import FILE_NAME, Device
from dither_shared.registry import Registry
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES, MEMO, begun, classes, connect, make, open_device, record, send
from tests.support.registries import registry, registry_text


def upgrade(directory: Path, clock: Clock, **changes: object) -> tuple[Device, Registry]:
    """Return the same device under another registry, to which nobody agreed yet."""
    asked = registry(**{"expires": EXPIRES, **changes})
    return open_device(asked, directory, clock, seed=2, agree=False), asked


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


# Here a device is silent; tests/shared/test_terms.py has a row for each thing that counts as more.
RISES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "permanent epsilon": (
        {**MEMO, "answers": 2},
        {**MEMO, "answers": 1, "epsilon_permanent": "5"},
        ["its epsilon of a permanent answer rises from 4 to 5"],
    ),
    "fresh": (MEMO, {"reports": 1, "epsilon": "1"}, ["its memoized answers become fresh ones"]),
    "memoized": (
        {"reports": 4},
        {**MEMO, "answers": 2},
        ["its fresh answers become memoized ones, whose noise is a lasting mark"],
    ),
    "presence": ({"presence": "hidden"}, {"presence": "public"}, ["whether it answers is no longer hidden"]),
}


@pytest.mark.parametrize("change", RISES)
def test_a_metric_that_asks_for_more_is_silent_until_the_person_agrees_again(change: str, tmp_path: Path) -> None:
    before, after, why = RISES[change]
    clock = Clock()
    make(clock, tmp_path, device_epsilon="40", **{k: v for k, v in before.items() if k != "device_epsilon"})
    device, asked = upgrade(
        tmp_path, clock, device_epsilon="40", **{k: v for k, v in after.items() if k != "device_epsilon"}
    )
    assert device.asks() == {"color": why, "dark": why}
    assert record(device, asked) == "not-agreed"
    device.agree_once()  # what start() was given is no new choice
    assert record(device, asked) == "not-agreed"
    device.agree()
    assert record(device, asked) == ""


REPLACED: dict[str, tuple[str, str, str]] = {
    "question": ("Do people use the dark theme?", "Do people vote?", 'its question becomes "Do people vote?"'),
    "sensitivity": ('sensitivity = "low"', 'sensitivity = "high"', "its sensitivity rises from low to high"),
    "kind": ('kind = "flag"', 'kind = "choice"\nvalues = ["x"]', "its kind changes from flag to choice"),
    "a fresh flag become a memoized text": (
        'kind = "flag"',
        'kind = "text"\nmemoize = true\nepsilon_permanent = 4\nanswers = 1',
        "its kind changes from flag to text",
    ),
}


@pytest.mark.parametrize("change", REPLACED)
def test_a_metric_that_asks_something_else_is_silent_until_the_person_agrees_again(change: str, tmp_path: Path) -> None:
    """And what of it waits under the old terms is what they agreed to, and is sent."""
    old, new, why = REPLACED[change]
    before, asked, clock = begun(tmp_path)
    assert record(before, asked, "dark", True) == ""
    before.close()
    clock.travel(1)
    head, color, dark = _texts()
    assert old in dark
    if "memoize" in new:
        dark = dark.replace('reports = 3\nschedule = "early"', "")
    asked = Registry.parse(head + color + dark.replace(old, new))
    device = open_device(asked, tmp_path, clock, seed=2, agree=False)
    device.begin()
    assert why in device.asks()["dark"]
    assert set(device.asks()) == ({"", "dark"} if "memoize" in new else {"dark"})  # a mark: of the whole device
    assert record(device, asked, "dark", True) == "not-agreed"
    assert record(device, asked) == ""
    body = send(device)
    assert body is not None
    assert [group["metric"] for group in body["groups"]] == ["color", "dark"]
    device.agree()
    # A memo begins with all of its answers left, or not at all.
    assert record(device, asked, "dark", True) == ("spent" if "memoize" in new else "")


MANY = tuple(f"v{number}" for number in range(20))
LISTED: dict[str, Any] = {"epsilon": "1", "epsilon_permanent": "2", "answers": 1, "values": MANY}
"""Another mechanism links more, less or about as many devices; the flag `dark` stays as it is."""


def by(mechanism: str) -> dict[str, Any]:
    return LISTED | {"color": f'mechanism = "{mechanism}"'}


def test_a_mechanism_that_links_more_is_silent_until_the_person_agrees_again(tmp_path: Path) -> None:
    clock = Clock()
    make(clock, tmp_path, **by("grr"))
    device, asked = upgrade(tmp_path, clock, **by("oue"))
    people = "of 200 people with the same answers about 166 could be recognised, not 21"
    together = "of 200 people with the same answers about 171 could be recognised, not 34"
    assert device.asks() == {"color": [people], "": [f"with all metrics together, {together}"]}
    assert record(device, asked, "color", "v3") == "not-agreed"
    assert record(device, asked, "dark", True) == ""
    device.agree()
    assert device.asks() == {}
    assert record(device, asked, "color", "v3") == ""
    for _ in range(2):  # less than that, and back
        device, asked = upgrade(tmp_path, clock, **by("grr"))
        assert device.asks() == {}
        device, asked = upgrade(tmp_path, clock, **by("oue"))


def test_small_steps_of_linking_are_held_against_what_was_agreed_to(tmp_path: Path) -> None:
    """All metrics together count, and one of which the noise links no more than before goes on."""
    clock = Clock()
    make(clock, tmp_path, **by("grr") | {"epsilon_permanent": "3"})
    device, asked = upgrade(tmp_path, clock, **by("pgr") | {"epsilon_permanent": "2.5"})
    assert device.asks() == {}
    device, asked = upgrade(tmp_path, clock, **by("pgr") | {"epsilon_permanent": "2.2"})
    why = ["with all metrics together, of 200 people with the same answers about 40 could be recognised, not 27"]
    assert device.asks() == {"": why, "color": why}
    assert record(device, asked, "color", "v3") == "not-agreed"
    assert record(device, asked, "dark", True) == ""


def kept_without_linking(directory: Path) -> None:
    """Make a device's file one of before terms said how far noise links."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as db, db:
        for metric, terms in db.execute("SELECT metric, terms FROM agreement").fetchall():
            older = {key: value for key, value in json.loads(terms).items() if key != "linked"}
            db.execute("UPDATE agreement SET terms = ? WHERE metric = ?", (json.dumps(older, sort_keys=True), metric))
        db.execute("DELETE FROM state WHERE key IN ('agreed_linked', 'agreed_linkable')")


def test_terms_from_before_they_said_how_far_noise_links_hold_for_the_memo_that_goes_on(tmp_path: Path) -> None:
    device, _, clock = begun(tmp_path, **by("grr"))
    device.begin()
    device.close()
    kept_without_linking(tmp_path)
    device, asked = upgrade(tmp_path, clock, **by("grr") | {"rev": 2})
    assert device.asks() == {}
    assert record(device, asked, "color", "v3") == record(device, asked, "dark", True) == ""
    device, asked = upgrade(tmp_path, clock, **by("oue"))
    together = "with all metrics together, of 200 people with the same answers about 171 could be recognised, not 50"
    assert device.asks() == {
        "color": ["of 200 people with the same answers about 166 could be recognised"],
        "": [together],
    }
    device.agree()
    assert device.asks() == {}


def test_a_file_from_before_terms_said_it_asks_for_a_linkable_registry_unless_its_memos_go_on(tmp_path: Path) -> None:
    clock = Clock()
    small: dict[str, Any] = {"epsilon": "0.2", "epsilon_permanent": "0.5"}
    device, _ = make(clock, tmp_path, **small)
    device.begin()
    device.close()
    kept_without_linking(tmp_path)

    def linkable(**changes: Any) -> tuple[Device, Registry]:
        text = registry_text(expires=EXPIRES, **changes).replace("[registry]", "[registry]\nlinkable = true")
        asked = Registry.parse(text)
        return open_device(asked, tmp_path, clock, seed=2, agree=False), asked

    device, asked = linkable(**small)
    assert device.asks() == {}
    less = small | {"epsilon_permanent": "0.4"}
    device, asked = upgrade(tmp_path, clock, **less)
    assert device.asks() == {}
    device, asked = linkable(**less)
    assert set(device.asks()) == {"", "color", "dark"}
    assert "it is now meant that reports can be joined" in device.asks()[""][0]
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
    device, asked = make(Clock(), tmp_path)
    record(device, asked)
    assert connect(device) is not None
    record(device, asked, "dark", True)
    device.refuse()
    assert device.waiting() == 0
    assert device.spent() == {"color": 2_000_000, "dark": 0}
    assert device.counters() == {"refused": 2}
    assert record(device, asked) == "refused"
    assert device.next_upload() is None


def test_refusing_frees_what_was_only_reserved(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, reports=1)
    record(device, asked)
    upload = device.next_upload()
    assert upload is not None
    device.refuse()
    assert (device.waiting(), device.spent()) == (0, {"color": 0})
    assert not device.charge(upload.id)  # a connection that stands too late
    assert device.spent() == {"color": 0}
    device.agree(chosen=True)
    clock.travel(1)
    assert record(device, asked) == ""
    assert send(device) is not None
    assert device.spent() == {"color": 2_000_000}


def test_opting_out_and_in_again_refreshes_nothing(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, **MEMO)
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


def test_refusing_one_metric_keeps_what_a_connection_has_charged_of_all_that_left_with_it() -> None:
    device, asked = make(Clock())
    record(device, asked)
    record(device, asked, "dark", True)
    upload = connect(device)
    assert upload is not None
    device.refuse_metric("color", refused=True)
    assert device.waiting() == 0
    assert device.spent() == {"color": 2_000_000, "dark": 2_000_000}
    assert device.settle(upload.id, "accepted") == 0


def test_refusing_one_metric_leaves_another_ones_slot_and_upload() -> None:
    device, asked = make(Clock())
    record(device, asked, "dark", True)
    upload = device.next_upload()
    record(device, asked)
    device.refuse_metric("color", refused=True)
    assert device.waiting() == 1
    again = device.next_upload()
    assert upload is not None
    assert again is not None
    assert again.id == upload.id


# Forgetting.


def test_forgetting_erases_secret_cohort_memos_and_what_waits_and_keeps_what_was_spent(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, **MEMO)
    record(device, asked)
    send(device)
    record(device, asked, "dark", True)
    with device._file.transaction():
        secret = device._slots._secret()
        device._slots._cohort()
    assert secret in (tmp_path / FILE_NAME).read_bytes() + (tmp_path / f"{FILE_NAME}-wal").read_bytes()
    assert device.forget()
    assert not device.erasing()
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
    device, asked, clock = begun(tmp_path, reports=2)
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


@pytest.mark.parametrize("charged", [False, True])
def test_forgetting_frees_what_was_only_reserved_of_a_fresh_metric_and_nothing_of_a_memo(
    charged: bool, tmp_path: Path
) -> None:
    """A memo's whole reservation stays spent once a report of it was built: what is left tells how many there were."""
    for keys, spent in (({"reports": 1}, 2_000_000 if charged else 0), (MEMO, 8_000_000)):
        device, asked, clock = begun(tmp_path / str(len(keys)), **keys)
        record(device, asked)
        upload = connect(device) if charged else device.next_upload()
        assert upload is not None
        device.forget()
        assert device.waiting() == 0
        assert device.spent() == {"color": spent}
        assert device.charge(upload.id) is False
        clock.travel(30)
        assert record(device, asked) == ("spent" if spent else "")


def stored(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir())


# A refusal that cannot be written.


@contextmanager
def unwritable(directory: Path) -> Iterator[None]:
    """Let nothing be written into the device's file."""
    with (
        closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as other,
        pytest.MonkeyPatch.context() as m,
    ):
        m.setattr("dither.device.DURABLE_WAIT_S", 0.05)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.parametrize("metric", [None, "color"])
def test_a_refusal_that_cannot_be_written_holds_at_once_and_at_the_next_start(
    metric: str | None, tmp_path: Path
) -> None:
    device, asked, clock = begun(tmp_path)
    record(device, asked)
    with unwritable(tmp_path):
        if metric:
            device.refuse_metric(metric, refused=True)
            assert device.refused() == [metric]
        else:
            device.refuse()
            assert device.choice() is False
    device.close()
    later, asked = upgrade(tmp_path, clock)
    assert later.refused() == ([metric] if metric else [])
    assert later.choice() is (None if metric else False)
    assert later.next_upload() is None
    assert (later.waiting(), later.counters()) == (0, {"refused": 1})
    assert record(later, asked) == "refused"
    assert record(later, asked, "dark", True) == ("" if metric else "refused")
    assert {path.name for path in tmp_path.iterdir()} <= {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"}


def test_who_agrees_after_a_refusal_that_could_not_be_written_has_agreed(tmp_path: Path) -> None:
    """Also where they say it in another process than the one that still has the refusal to write."""
    device, asked, clock = begun(tmp_path)
    with unwritable(tmp_path):
        device.refuse()
    other, _ = upgrade(tmp_path, clock)
    other.agree(chosen=True)
    device.look()
    assert record(device, asked) == ""
    assert device.choice() is other.choice() is True
