"""`dither words candidates`: the list of a real store, what is said of it, and what is refused."""

import json
import random
from contextlib import closing
from pathlib import Path

import pytest

from dither.cli import main
from dither_aggregator.store import SQLiteStore
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES
from tests.support.registries import registry, registry_text
from tests.support.stores import fold_all, seal_all

pytestmark = pytest.mark.slow
REPORTS = 3_000
SAID = {"firefox": 0.4, "other": 0.2, "two\nlines": 0.2, None: 0.1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a sealed day of words."""
    place = tmp_path_factory.mktemp("store") / "data"
    asked = registry(kind="words", reports=1, epsilon="6", device_epsilon="60", expires=EXPIRES)
    clock, draw = Clock(), random.Random(7)
    clock.travel(-1)
    with closing(SQLiteStore.open_or_create(place, asked.app, clock)) as store:
        store.load(asked)
        _put(store, asked, draw)
        fold_all(store)
        clock.travel(1)
        seal_all(store)
    return str(place)


def _put(store: SQLiteStore, asked: Registry, draw: random.Random) -> None:
    metric, rng = asked.metrics["color"], Rng(draw.getrandbits)
    by_cell: dict[int, list[int | str]] = {}
    said = draw.choices([*SAID, ...], [*SAID.values(), 1 - sum(SAID.values())], k=REPORTS)
    for device, answer in enumerate(said):
        read = metric.read(str(device) if answer is ... else answer)
        cell = metric.cells.draw(rng)
        mechanism = metric.cells.mechanism_of(cell)
        report = mechanism.randomize(metric.class_of(read, cell, rng), rng)
        by_cell.setdefault(cell, []).append(mechanism.shape.to_wire(report))
    for cell, reports in by_cell.items():
        body = encode_upload(new_upload_id(draw.getrandbits), [("color", metric.plan.digest, reports, cell)])
        store.append([(parse_upload(body, store.find_plan), body)])


def test_the_list_can_be_listed_by_a_registry(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.txt"
    assert main(["words", "candidates", "color", "--found", "--out", str(out), "--data", data]) == 0
    lines = out.read_text(encoding="utf-8").splitlines()
    assert "firefox" in lines
    assert not {"other", "none", "“other”", "two", "lines"} & set(lines)
    (tmp_path / "metrics.toml").write_text(
        registry_text(kind="text", epsilon="6", device_epsilon="60", color='candidates_file = "found.txt"'), "utf-8"
    )
    assert Registry.load(tmp_path / "metrics.toml").metrics["color"].asked.candidates == tuple(lines)
    said = capsys.readouterr().err
    assert f"{len(lines)} texts, {len(lines)} of them told to be there, by {REPORTS:,} reports" in said
    assert "cannot be a line of a list" in said


def test_a_document_has_each_texts_numbers(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["words", "candidates", "color", "--json", "--data", data]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["value"]: row for row in document["candidates"]}
    assert (document["metric"], document["reports"]) == ("color", REPORTS)
    assert rows["firefox"]["named"] is True
    assert abs(rows["firefox"]["estimate"] - 0.4) < 6 * rows["firefox"]["std_error"]
    assert all(row["z"] > 1.5 for row in rows.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no metric 'nowhere'"),
        (["dark"], "dark must be of kind words, got flag"),
        (["color", "--from", "2026-01-01"], "--from and --to go together"),
        (["color", "--json", "--out", "x"], "--json prints a document"),
        (["color", "--plan", "0" * 16], "with a plan"),
    ],
)
def test_mistakes_are_told(data: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["words", "candidates", *arguments, "--data", data]) == 2
    assert message in capsys.readouterr().err
