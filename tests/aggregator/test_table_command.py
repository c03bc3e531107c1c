"""`dither table synthesize`: records of a real store, what is said of them, and what is refused."""

import csv
import json
import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dither.cli import main
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.pairs import TooFew
from dither_aggregator.analysis.tables.synthesis import synthesise_table
from dither_aggregator.commands.table import chosen_columns
from dither_aggregator.store import SQLiteStore
from dither_shared.errors import ConfigurationError
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.support.clocks import Clock
from tests.support.devices import EXPIRES
from tests.support.drawn_tables import alone, draw_pairs, draw_table, stored_table
from tests.support.stores import fold_all, seal_all
from tests.support.tables import table, tables

COLUMNS = 'crashed = ["no", "yes"], version = ["=157", "158"], load = { low = 0, high = 10, asks = ["mean"] }'
ARMS = 'arm = ["a", "b"]'
REPORTS = 3_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a sealed day: people on 158 crash, others do not."""
    place = tmp_path_factory.mktemp("store") / "data"
    registry = tables(COLUMNS, ARMS, epsilon=6, expires=EXPIRES)
    clock, draw = Clock(), random.Random(5)
    clock.travel(-1)
    with closing(SQLiteStore.open_or_create(place, registry.app, clock)) as store:
        store.load(registry)
        _put(store, registry, draw)
        fold_all(store)
        clock.travel(1)
        seal_all(store)
    return str(place)


def _put(store: SQLiteStore, registry: Registry, draw: random.Random) -> None:
    metric, rng = registry.metrics["asked"], Rng(draw.getrandbits)
    by_cell: dict[int, list[int | str]] = {}
    for _ in range(REPORTS):
        arm, new = draw.randrange(2), draw.random() < 0.5
        read = metric.read({"crashed": "yes" if new else "no", "version": "158" if new else "=157", "load": 5})
        cell = metric.cells.draw(rng, arm)
        mechanism = cast("PureMechanism", metric.cells.mechanism_of(cell))
        report = mechanism.randomize(metric.class_of(read, cell, rng), rng)
        by_cell.setdefault(cell, []).append(mechanism.shape.to_wire(report))
    for cell, reports in by_cell.items():
        for first in range(0, len(reports), 100):
            groups = [("asked", metric.plan.digest, reports[first : first + 100], cell)]
            body = encode_upload(new_upload_id(draw.getrandbits), groups)
            store.append([(parse_upload(body, store.find_plan), body)])


def synthesize(data: str, *args: str) -> int:
    return main(["table", "synthesize", *args, "--data", data])


def test_records_agree_with_what_was_measured(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "records.csv"
    assert synthesize(data, "asked", "--records", "20000", "--out", str(out)) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "20,000 records" in said.err
    assert (
        "They agree with 3 measured pairs of columns to within the noise of 3,000 reports: crashed x version"
        in said.err
    )
    assert "no record is anybody's" in said.err
    assert "Coins rounded load to one of two ends" in said.err
    with out.open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["crashed", "version", "load"]
    assert len(rows) == 20_000
    together = Counter((crashed, version) for crashed, version, _ in rows)
    assert together["yes", "158"] / 20_000 == pytest.approx(0.5, abs=0.05)
    assert together["yes", "=157"] / 20_000 < 0.05
    assert {load for *_, load in rows} <= {"0", "10", "other"}


def test_the_same_counts_give_the_same_records(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for args in (("--records", "50"), ("--records", "50"), ("--records", "51"), ("--records", "50", "--public", "a")):
        assert synthesize(data, "asked", *args) == 0
        drawn.append(capsys.readouterr().out.splitlines())
    assert drawn[0] == drawn[1]
    assert drawn[0] not in (drawn[2][:51], drawn[3])


def test_records_have_the_columns_that_are_named(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert synthesize(data, "asked", "--records", "5000", "--columns", "load,crashed") == 0
    said = capsys.readouterr()
    header, *rows = said.out.splitlines()
    assert header == "crashed,load"
    assert "They agree with 1 measured pair of columns to within the noise of 3,000 reports: crashed x load" in said.err
    crashed = Counter(row.partition(",")[0] for row in rows)
    assert crashed["yes"] / 5_000 == pytest.approx(0.5, abs=0.05)


def test_of_sixteen_columns_some_are_named() -> None:
    columns = ", ".join(f'c{place} = ["a", "b"]' for place in range(16))
    plan = stored_table(table(columns, epsilon=4))
    with pytest.raises(ConfigurationError, match="at most, these columns have 43,046,721: name fewer with --columns"):
        chosen_columns(plan, None)
    counted = draw_pairs(plan.plan, 120 * 400, np.random.default_rng(3))
    made = synthesise_table(plan, counted, View(), lambda steps, ratio: None, None, chosen_columns(plan, "c3,c15,c8"))
    assert made.names == ["c3", "c8", "c15"]
    assert made.in_words(made.draw(3)) == [
        [("a", "b", "other")[place] for place in row] for row in made.draw(3).tolist()
    ]
    with pytest.raises(ConfigurationError, match=r"--columns must be 2 or more of c0,c1,.*, got c3,c33"):
        chosen_columns(plan, "c3,c33")


def test_json_says_what_they_agree_with(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert synthesize(data, "asked", "--out", str(tmp_path / "r.csv"), "--json", "--public", "b") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["metric"], document["records"], document["public"], document["agrees"]) == (
        "asked",
        10_000,
        "b",
        True,
    )
    assert document["pairs"] == [["crashed", "version"], ["crashed", "load"], ["version", "load"]]
    assert 1_300 < document["reports"] < 1_700
    assert document["chi2"] <= document["chi2_at_most"]
    assert len(document["not_for"]) == 4


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("none",), "there is no metric 'none'"),
        (("asked", "--plan", "x"), "there is no metric 'asked' with a plan 'x'"),
        (("asked", "--public", "c"), "--public must be a or b, got 'c'"),
        (("asked", "--json"), "--json needs --out"),
        (("asked", "--columns", "load"), "--columns must be 2 or more of crashed,version,load, got load"),
        (("asked", "--from", "2026-11-20"), "--from and --to go together"),
        (("asked", "--from", "2026-11-20", "--to", "2026-11-19"), "--from must not be after --to"),
        (("asked", "--from", "2020-01-01", "--to", "2020-01-02"), "0 reports are too few"),
    ],
)
def test_a_mistake_is_said_in_a_line(
    data: str, args: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert synthesize(data, *args) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert why in said.err


@pytest.mark.parametrize(
    "args", [("asked", "--records", "0"), ("asked", "--records", "1000001"), ("asked", "--to", "x")]
)
def test_arguments_that_cannot_be_are_refused(data: str, args: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        synthesize(data, *args)
    assert ended.value.code == 2


# Devices with nothing to say.


def test_records_are_of_devices_with_something_to_say() -> None:
    stored = stored_table(table('a = ["x"], b = ["u"]', epsilon=4, presence="hidden"))
    for silent, fits in ((0.6, True), (0.999, False)):
        shares = np.append((1 - silent) * alone((0.8, 0.2), (0.3, 0.7)).ravel(), silent)
        tally = draw_table(stored.plan, [shares], [20_000], np.random.default_rng(3))
        if not fits:
            with pytest.raises(TooFew, match="too few of these reports say anything"):
                synthesise_table(stored, tally, View(), lambda steps, ratio: None)
            continue
        made = synthesise_table(stored, tally, View(), lambda steps, ratio: None)
        assert made.synthesis.weights.sum() == pytest.approx(1)
        assert made.synthesis.weights[0].sum() == pytest.approx(0.8, abs=0.05)
