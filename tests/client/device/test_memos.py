import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dither_shared.mechanisms import RAPPOR
from dither_shared.rng import Rng, keyed_rng
from tests.support.clocks import DAY_S, Clock
from tests.support.devices import EXPIRES, MEMO, begun, classes, make, open_device, record, send
from tests.support.registries import registry


def test_each_different_answer_is_charged_and_after_the_last_one_that_one_is_repeated() -> None:
    device, asked, clock = begun(**MEMO)
    for answer, known, spent in [
        ("red", ["0"], 4),
        ("blue", ["0", "2"], 8),
        ("green", ["0", "2"], 8),
        ("red", ["0", "2"], 8),
        (None, ["0", "2"], 8),
    ]:
        assert record(device, asked, answer=answer) == ""
        assert [name for name, _ in classes(device)] == known
        send(device)
        assert device.spent()["color"] == spent * 1_000_000
        clock.travel(1)


class FixedRng(Rng):
    """A second stage that always keeps the memo, so that a test can see it."""

    def coin(self, threshold: int) -> bool:
        return True


def memos(directory: Path | None, answers: list[str], seed: int, day: int = 0, **changes: object) -> list[object]:
    clock = Clock()
    clock.travel(day)
    asked = registry(
        expires=EXPIRES, values=tuple("abcdefghijklmnopqrstuvwxyz"), color='mechanism = "grr"', **{**MEMO, **changes}
    )
    device = open_device(asked, directory, clock, FixedRng(random.Random(seed).getrandbits))
    seen: list[object] = []
    for answer in answers:
        assert record(device, asked, answer=answer) == ""
        body = send(device)
        assert body is not None
        seen.append(body["groups"][0]["reports"][0])
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
    """26 values at epsilon 4: 40 devices all have the true one with a probability of 2e-7."""
    assert any(memos(None, ["c"], seed) != memos(None, ["c"], 0) for seed in range(1, 40))


def test_a_new_rev_or_epsilon_of_a_report_keeps_the_memo(tmp_path: Path) -> None:
    first = memos(tmp_path, ["c"], seed=1)
    assert memos(tmp_path, ["c"], seed=2, day=1, rev=2) == first
    assert memos(tmp_path, ["c"], seed=3, day=2, rev=3, epsilon="0.5") == first


@pytest.mark.parametrize("changes", [{"epsilon_permanent": "3"}, {"values": ("red", "green")}])
def test_a_memo_that_cannot_go_on_has_spent_all_that_was_reserved(tmp_path: Path, changes: dict[str, Any]) -> None:
    """One answer of two was given; that it was one would be told by what is left."""
    device, asked, clock = begun(tmp_path, **MEMO)
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
    device, asked, clock = begun(tmp_path, **MEMO)
    record(device, asked)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, **{**MEMO, "epsilon_permanent": "3"})
    assert record(device, asked) == "spent"
    assert send(device) is not None
    assert device.spent()["color"] == 8_000_000


def test_fresh_noise_that_becomes_a_memo_has_nothing_left(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, reports=3)
    record(device, asked)
    send(device)
    device.close()
    clock.travel(1)
    device, asked = make(clock, tmp_path, **MEMO)
    assert record(device, asked) == "spent"


def test_fewer_answers_than_were_given_leave_those_that_were_paid(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, **MEMO)
    for answer in ("red", "blue"):
        record(device, asked, answer=answer)
        send(device)
        clock.travel(1)
    device.close()
    device, asked = make(clock, tmp_path, **{**MEMO, "answers": 1})
    for answer in ("red", "blue", "green"):
        assert record(device, asked, answer=answer) == ""
        send(device)
        clock.travel(1)
    assert device.spent()["color"] == 8_000_000
    assert classes(device) == [("0", 1), ("2", 1)]


def test_whether_a_memoized_metric_is_silent_does_not_depend_on_its_answers() -> None:
    def said(answers: list[object]) -> list[str]:
        device, asked, clock = begun(**MEMO)
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
    device, asked, clock = begun(**MEMO)
    record(device, asked)
    with device._file.transaction():
        device._file.execute("DELETE FROM slot")
    clock.travel(1)
    assert record(device, asked) == ""
    send(device)
    assert device.spent()["color"] == 4_000_000
    assert classes(device) == [("0", 1)]


TEXT: dict[str, Any] = {
    "kind": "text",
    "epsilon": "1",
    "epsilon_permanent": "4",
    "device_epsilon": "16",
    "candidates": ("example.org", "example.net"),
}


def test_a_text_is_a_report_of_the_devices_one_cohort(tmp_path: Path) -> None:
    device, asked, clock = begun(tmp_path, **TEXT)
    cohorts = set()
    for answer in ("example.org", "another word", None, "x" * 1000, "\ud800", 7):
        assert record(device, asked, answer=answer) == ""
        body = send(device)
        assert body is not None
        (group,) = body["groups"]
        cohorts.add(group["cell"])
        assert len(group["reports"]) == 1
        clock.travel(1)
    assert len(cohorts) == 1
    assert device.spent()["color"] == 8_000_000  # two answers are paid, the second is repeated
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"example.org" not in stored
    assert b"another word" not in stored


def test_what_is_no_text_is_one_and_the_same_answer() -> None:
    device, asked, clock = begun(**TEXT)
    for answer in (None, 7, "x" * 201, "other", b"other"):
        record(device, asked, answer=answer)
        send(device)
        clock.travel(1)
    assert device.spent()["color"] == 4_000_000


def test_an_observer_of_a_year_learns_the_permanent_bits_and_no_more() -> None:
    """365 reports of one text: their mean tells every bit of the memo, and the memo is not the text's Bloom bits.

    A bit's mean lies within 6 sigma of p or q, which are 0.3 apart here, 11 sigma.
    """
    device, asked, clock = begun(seed=5, **{**TEXT, "epsilon": "2", "color": ""}, expires=EXPIRES + timedelta(days=300))
    mechanism = asked.metrics["color"].mechanism
    assert isinstance(mechanism, RAPPOR)
    ones = [0] * mechanism.k
    for _ in range(365):
        assert record(device, asked, answer="example.org") == ""
        body = send(device)
        assert body is not None
        report = mechanism.shape.from_wire(body["groups"][0]["reports"][0])
        ones = [count + (report >> bit & 1) for bit, count in enumerate(ones)]
        clock.travel(1)
    middle = 365 * (mechanism.threshold_irr_0 + mechanism.threshold_irr_1) / 2 / 2**64
    seen = sum(1 << bit for bit, count in enumerate(ones) if count > middle)
    ((key, _),) = classes(device)
    with device._file.peek():
        secret = device._slots._secret()
    memo = mechanism.permanent.randomize(
        int(key, 16), keyed_rng(secret, f"{asked.metrics['color'].plan.memo_key} {key}".encode())
    )
    assert seen == memo
    assert seen != int(key, 16)
    assert device.spent()["color"] == 4_000_000


def test_metrics_and_answers_have_memos_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[tuple[bytes, bytes]] = []

    def keyed(secret: bytes, context: bytes) -> Rng:
        asked_for.append((secret, context))
        return keyed_rng(secret, context)

    monkeypatch.setattr("dither.device.recording.keyed_rng", keyed)
    device, asked, clock = begun(values=("a",), color='mechanism = "grr"', **MEMO)
    for metric, answer in (("color", "a"), ("dark", False), ("color", None), ("dark", True), ("color", "a")):
        assert record(device, asked, metric, answer) == ""
        send(device)
        clock.travel(1)
    assert asked_for[0] == asked_for[4]
    assert len(set(asked_for)) == 4
    keys = {asked.metrics[name].plan.memo_key.encode() for name in ("color", "dark")}
    assert len(keys) == 2
    assert {context.split()[0] for _, context in asked_for} == keys


def test_a_host_that_allows_few_digits_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class may be a number of thousands of bits, and whether it is written must not depend on the answer."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        values = tuple(f"v{number}" for number in range(3_000))
        device, asked = make(Clock(), **{**MEMO, "values": values, "color": 'mechanism = "oue"'})
        for answer in ("v0", "v2999"):
            device, asked = make(Clock(), **{**MEMO, "values": values, "color": 'mechanism = "oue"'})
            assert record(device, asked, answer=answer) == ""
    finally:
        sys.set_int_max_str_digits(before)


def test_the_file_does_not_tell_which_paid_answer_waits() -> None:
    device, asked, clock = begun(**MEMO)
    for answer in ("red", "blue", "red"):
        record(device, asked, answer=answer)
        with device._file.peek():
            rows = device._file.execute("SELECT class FROM slot").fetchall()
        assert rows == [(None if clock.now > Clock().now + DAY_S else "0" if answer == "red" else "2",)]
        send(device)
        clock.travel(1)
