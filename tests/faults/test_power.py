"""A power cut: what was written and not synced to the disk is lost, at any moment."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither.device import Device
from tests.faults.life import Pair
from tests.faults.questions import Question
from tests.faults.witness import watched


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    with watched():
        devices = Pair(home)
        plenty = Question(charges=30)
        devices.upgrade((("hue", plenty), ("mode", Question(charges=3, permanent="2"))), 100, 360)
        devices.agree()
        devices.travel(1)
        yield devices
        devices.close()


@pytest.mark.parametrize("fate", ["unheard", "killed-after", "accepted", "dropped"])
def test_what_left_is_charged_after_a_power_cut_and_counted_once(pair: Pair, fate: str) -> None:
    pair.record("hue", ("a", "b"))
    pair.record("mode", ("a", "b"))
    pair.attempt(fate)
    pair.lose_power()
    pair.travel(1)
    for witness in pair.both:
        assert witness.device.spent() == {"hue": 1_000_000, "mode": 2_000_000, "size": 0}
    while pair.attempt("accepted"):
        pass
    for witness in pair.both:
        assert not witness.account.uploads
        assert set(witness.counted.values()) <= {1}


@pytest.mark.parametrize("what", ["all", "hue"])
def test_a_refusal_outlasts_a_power_cut(pair: Pair, what: str) -> None:
    """Else a person who has opted out is found to agree."""
    pair.record("hue", ("a", "b"))
    if what == "all":
        pair.refuse()
    else:
        pair.refuse_metric("hue", refused=True)
    witness = pair.both[0]
    witness.lose_power(pair.registry)
    assert (witness.device.choice() is False) == (what == "all")
    assert witness.device.refused() == ([] if what == "all" else ["hue"])
    assert witness.device.waiting() == 0


def test_a_refusal_kept_beside_a_full_file_outlasts_a_power_cut(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is room again it is written: the disk must have that before the mark beside the file is gone."""
    witness = pair.both[0]

    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Device, "_write_refusals", full)
        witness.do(Device.refuse)
    assert witness.device.directory
    assert list(Path(witness.device.directory).glob("*-refused"))
    synced = witness.syncs
    witness.do(Device.look)
    assert witness.device.choice() is False
    assert witness.syncs > synced or list(Path(witness.device.directory).glob("*-refused"))


def test_what_was_forgotten_does_not_come_back_after_a_power_cut(pair: Pair) -> None:
    pair.record("mode", ("a", "b"))
    pair.attempt("accepted")
    pair.forget()
    witness = pair.both[0]
    witness.lose_power(pair.registry)
    assert witness.do(Device.waiting) == 0
    with witness.device._file.peek():
        assert witness.device._file.get("secret") is None
    pair.both[1].lose_power(pair.registry)
    pair.record("hue", ("a", "b"))
    assert pair.said["forgotten"] == 2
