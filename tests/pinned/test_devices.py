"""A device's file of each version comes to this one, holds what it held, and goes on."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither.device import FILE_NAME, Device
from dither.device.migrations import STEPS
from dither.device.schema import SCHEMA_VERSION
from dither_aggregator.store import Receipt
from dither_shared.wire.reading import parse_upload
from tests.pinned.devices import ASKED, answer_everything, of_today, opened
from tests.pinned.files import FILES, dump, pinned_device
from tests.support.aggregators import sqlite_store
from tests.support.devices import connect
from tests.support.soaking import thinned

VERSIONS = sorted(int(path.name.split("-")[1].split(".")[0]) for path in FILES.glob("device-*.gz"))
REPORTS = {"paint": 20, "mood": 20}
"""How many reports of fresh noise a device may send in its life."""
MEMOS_END = {4}
"""Versions of which a memo does not go on: all that was reserved for it counts as spent."""


def state(directory: Path) -> dict[str, Any]:
    """Return the secret and what else the file keeps by its name."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        return dict(db.execute("SELECT key, value FROM state"))


def bodies(device: Device) -> Iterator[bytes]:
    """Send all that is due."""
    while upload := connect(device):
        yield upload.body
        device.settle(upload.id, "accepted", "accepted")


def test_there_is_a_file_of_this_version_and_of_each_that_has_a_step() -> None:
    """Else: `python -m tests.pinned.files` writes this version's, before the next one is begun."""
    assert sorted({*STEPS, SCHEMA_VERSION}) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_holds_what_it_held(tmp_path: Path, version: int) -> None:
    directory, clock, held = pinned_device(version, tmp_path / "device")
    before = state(directory)
    device = opened(directory, clock)
    memos = {"theme": 10_000_000, "word": 4_394_450} if version in MEMOS_END else {}
    assert device.spent() == held["spent"] | memos
    # Terms of before they said how far a memo links hold for a memo that goes on.
    together = "with all metrics together, of 200 people with the same answers about 199 could be recognised, not 50"
    asks = {
        "": [together],
        "theme": [together],
        "word": ["of 200 people with the same answers about 199 could be recognised"],
    }
    assert (device.choice(), device.refused()) == (held["choice"], held["refused"])
    assert device.asks() == (asks if version in MEMOS_END else {})
    dropped = {"dropped": held["waiting"]} if version in MEMOS_END else {}
    assert device.counters() == held["counters"] | dropped
    assert device.waiting() == (0 if version in MEMOS_END else held["waiting"])
    kept = ("app", "secret", "cohort", "first_day", "agreed_epsilon", "consent")
    assert {key: state(directory)[key] for key in kept} == {key: before[key] for key in kept}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_start_changes_nothing(tmp_path: Path, version: int) -> None:
    directory, clock, _ = pinned_device(version, tmp_path / "device")
    opened(directory, clock).close()
    first = dump(directory)
    opened(directory, clock).close()
    assert dump(directory) == first


@pytest.mark.parametrize("version", thinned(VERSIONS, 0, 1, -1))
def test_a_device_goes_on_within_its_budget_and_its_reports_count(tmp_path: Path, version: int) -> None:
    directory, clock, held = pinned_device(version, tmp_path / "device")
    device, sent = opened(directory, clock), Counter[str]()
    theme, cells = Counter[int](), set()
    with sqlite_store(ASKED, tmp_path / "store", clock) as store:
        for _ in range(40):
            answer_everything(device, ASKED, "red")
            for body in map(of_today, bodies(device)):
                (answer,) = store.append([(parse_upload(body, store.find_plan), body)])
                assert isinstance(answer, Receipt)
                assert answer.rejected == []
                for group in json.loads(body)["groups"]:
                    sent[group["metric"]] += 1
                    theme.update(group["reports"] if group["metric"] == "theme" else [])
                    cells |= {group["cell"]} if group["metric"] == "word" else set()
            clock.travel(1)
        store.fold_all(0)
        counted = {row.metric: 0 for row in store.ledger()}
        for row in store.ledger():
            counted[row.metric] += row.folded
    assert counted == sent
    for metric, most in REPORTS.items():
        # Those of before were charged, each at the same price; the one that waits as built was charged, too.
        charged = held["spent"][metric] // ASKED.metrics[metric].charge
        unanswered = 0 if version in MEMOS_END else 1
        assert sent[metric] == most - charged + unanswered, metric
        assert device.spent()[metric] == ASKED.metrics[metric].reservation
    assert sent["gone"] == 0
    if version in MEMOS_END:
        assert (sent["theme"], sent["word"]) == (0, 0)
    else:
        assert theme.most_common(1)[0][0] == held["red is"], "the memo has another answer than before"
        assert cells == {held["cell of word"]}
        assert device.spent()["theme"] == held["spent"]["theme"]
