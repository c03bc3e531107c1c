"""Scenes of devices come out as they are pinned, and a device with another rule is seen in one of them."""

from collections.abc import Callable
from typing import Any

import pytest

from dither.device import outbox, recording
from dither.device.outbox import Outbox
from dither.device.recording import Budget, Slots
from dither.sending import transport
from dither_shared import wire as writing
from tests.pinned.comparing import differences, load
from tests.pinned.scenes import KEY, SCENES, played
from tests.second.plans import Document
from tests.second.uploads import read, write

VECTORS = load("devices")


def wrong(scene: Document) -> list[str]:
    """Return what comes otherwise where a scene is played with the draws that it gives."""
    registry = VECTORS["registries"][scene["registry"]]["toml"]
    steps, draws = scene["steps"], [step["draws"] for step in scene["steps"]]
    try:
        came = played(registry, steps, draws)
    except Exception as error:  # as a draw that nothing is given for
        return [f"{type(error).__name__}: {error}"]
    pinned = [(step["draws"], step["then"]) for step in steps]
    return differences([*map(list, pinned)], [*map(list, came)])


def by_name(scene: Document) -> str:
    return str(scene["name"])


@pytest.mark.parametrize("scene", VECTORS["scenes"], ids=by_name)
def test_a_scene_comes_out_as_it_is_pinned(scene: Document) -> None:
    assert wrong(scene) == []


def test_every_scene_is_pinned() -> None:
    assert [scene["name"] for scene in VECTORS["scenes"]] == [*SCENES]


@pytest.mark.parametrize("scene", VECTORS["scenes"], ids=by_name)
def test_the_second_implementation_writes_the_same_bytes(scene: Document) -> None:
    metrics = VECTORS["registries"][scene["registry"]]["compiled"]["metrics"]
    plans = {(one["plan"]["metric"], one["digest"]): with_integers(one["plan"]) for one in metrics}
    for step in scene["steps"]:
        if body := step["then"].get("sent"):
            upload = read(body.encode(), plans)
            assert not upload.refused
            assert write(upload.id, upload.groups).decode() == body
            keyed = step["then"]["simple"]
            assert keyed.replace(f'"key":"{KEY}",', "").rstrip() == body.rstrip()
            assert len(keyed) & (len(keyed) - 1) == 0
            assert len(keyed) >= len(body)


def with_integers(plan: Any) -> Any:
    """Return a plan of a compiled registry as the aggregator knows it: its integers are texts there."""
    if isinstance(plan, dict):
        whole = ("parameters", "memo")
        return {
            key: {name: int(number) for name, number in value.items()} if key in whole else with_integers(value)
            for key, value in plan.items()
        }
    return [with_integers(one) for one in plan] if isinstance(plan, list) else plan


def opens(slots: Slots, metric: Any, answer: Any) -> Any:
    slots.open_periods()
    return replace(slots, metric, answer)


replace = Slots.replace
OTHER_RULES: list[tuple[object, str, object, str]] = [
    (
        recording,
        "period_start",
        lambda day, period_days: day - (day - 4) % period_days,  # on Mondays
        "periods of seven days begin on Thursdays",
    ),
    (outbox, "GIVE_UP_S", 7 * 86_400.0, "given up after six days"),
    (outbox, "RETIRED_DAYS", 29, "a receipt that refuses a group"),
    (recording, "SILENT_DAYS", 29, "a clock that was ahead"),
    (transport, "_RETRY_AFTER_STEPS_S", (1.0, 86_400.0), "429 and Retry-After in seconds"),
    (transport, "_STOP", frozenset({401}), "403"),
    (transport, "_DROP", frozenset({400, 410, 411, 414, 415, 422, 431}), "409"),
    (transport, "read_date", lambda text: None, "503 and Retry-After as a date"),
    (transport, "PROBLEM_PREFIX", "", "401"),
    (Slots, "replace", opens, "hidden: an answer that no look came before is dropped"),
    (
        Budget,
        "pay_class",
        lambda self, metric, key: (key, metric.charge),  # whatever is spent
        "a memoized answer is charged once",
    ),
    (Budget, "affords", lambda self, commitments, metric, charge, key: False, "a first start, and a quiet day"),
    (Outbox, "notice_clock", lambda self: None, "a clock that goes back while an upload waits"),
    (Outbox, "split", lambda self, upload_id: False, "413 of two groups"),
    (writing, "PADDED_BYTES_MIN", 1_024, "a first start, and a quiet day"),
    (
        writing,
        "itemgetter",
        lambda *places: lambda group: [-ord(letter) for letter in group[0]],
        "the groups of an upload, and its padding",
    ),
    (outbox.SendSchedule, "held_until", lambda self: 0.0, "no connection"),
    (recording, "answers_always", lambda metric: True, "periods that are drawn"),
]


@pytest.mark.parametrize(
    ("owner", "name", "other", "scene"), OTHER_RULES, ids=lambda one: one if isinstance(one, str) and one else ""
)
def test_another_rule_is_seen_in_a_scene(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, other: Callable[..., Any], scene: str
) -> None:
    (pinned,) = (each for each in VECTORS["scenes"] if each["name"] == scene)
    monkeypatch.setattr(owner, name, other)
    assert wrong(pinned)
