"""A store of an earlier version is brought to this one, with everything in it; of a later one it is left alone."""

import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from dither_aggregator import upkeep
from dither_aggregator.store import Receipt, SQLiteStore, StoreError
from dither_aggregator.store.fsck import check
from dither_aggregator.store.sqlite import FILE_NAME
from dither_shared.wire.reading import parse_upload
from tests.support.clocks import Clock
from tests.support.registries import registry

VECTORS = Path(__file__).parents[1] / "vectors"
ASKED = registry(expires=date(2027, 2, 28))
FIRST_UPLOAD = (
    b'{"v":1,"upload":"GBjoEYkvkCvSPwgkEosvMw","groups":[{"metric":"color","plan":"0533e8dbaebb0918","reports":[1,0]},'
    b'{"metric":"dark","plan":"8f9ecd5fb5e75ec7","reports":[1,0]}]}'
).ljust(512)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with a store of version 2: two days, three segments a metric, six pending groups."""
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript((VECTORS / "store-2.sql").read_text(encoding="utf-8"))
    return tmp_path


def test_version_2_is_migrated_with_everything_in_it(folder: Path) -> None:
    clock = Clock()
    clock.travel(1)
    with closing(SQLiteStore(folder, clock)) as store:
        rows = {(row.metric, row.epoch): (row.accepted, row.folded, row.pending) for row in store.ledger()}
        assert rows == {
            ("color", "2026-11-20"): (10, 10, 0),
            ("color", "2026-11-21"): (14, 8, 6),
            ("dark", "2026-11-20"): (10, 10, 0),
            ("dark", "2026-11-21"): (14, 8, 6),
        }
        assert list(check(store)) == []
        copy = store.append([(parse_upload(FIRST_UPLOAD, store.find_plan), FIRST_UPLOAD)])[0]
        assert isinstance(copy, Receipt)
        assert copy.duplicate
        upkeep.fold_all(store, 0)
        tally = store.tally(ASKED.metrics["color"].plan, date(2026, 11, 21))
        assert (tally.n, int(tally.counts.sum())) == (14, 14)
        assert list(check(store)) == []
        assert [stored.plan for stored in store.plans()] == [metric.plan for metric in ASKED.metrics.values()]
        assert store.seal(0) == date(2026, 11, 20)
        store.load(ASKED)
    with closing(SQLiteStore(folder, clock)) as again:
        assert again.backlog() == 0


def test_what_is_read_only_is_not_migrated(folder: Path) -> None:
    with pytest.raises(StoreError, match="version 2; this dither reads 3"):
        SQLiteStore(folder, read_only=True)


def test_a_migration_that_is_cut_off_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("dither_aggregator.store.sqlite.schema.pack_entry", cut_off)
        with pytest.raises(KeyboardInterrupt):
            SQLiteStore(folder)
    with closing(sqlite3.connect(folder / FILE_NAME)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    with closing(SQLiteStore(folder)) as store:
        assert sum(row.accepted for row in store.ledger()) == 48


@pytest.mark.parametrize("version", [0, 1, 4, 99])
def test_an_unknown_version_is_refused_and_left_alone(folder: Path, version: int) -> None:
    path = folder / FILE_NAME
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"has version {version}; this dither reads 3"):
        SQLiteStore(folder)
    assert path.read_bytes() == before
