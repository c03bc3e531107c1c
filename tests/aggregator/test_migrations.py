"""A store of an earlier version is brought to this one, step by step; of a version without a step it is left alone."""

import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from dither_aggregator.store import SQLiteStore, StoreError
from dither_aggregator.store.fsck import check
from dither_aggregator.store.sqlite import FILE_NAME, schema
from tests.support.registries import registry
from tests.support.stores import append, body_of

ASKED = registry(expires=date(2027, 2, 28))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a store in it that says of itself that it is two versions older."""
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        store.load(ASKED)
        append(store, body_of(ASKED, {"color": [1, 0]}))
    say_version(tmp_path, schema.VERSION - 2)
    return tmp_path


def say_version(directory: Path, version: int) -> None:
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.execute(f"PRAGMA user_version = {version}")


def version_of(directory: Path) -> int:
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is done by two steps that are made up."""
    done: list[str] = []

    def first(db: sqlite3.Connection) -> None:
        done.append("first")
        db.execute("CREATE TABLE made (up INTEGER)")

    def second(db: sqlite3.Connection) -> None:
        done.append("second")
        db.execute("INSERT INTO made VALUES (7)")

    monkeypatch.setattr(schema, "STEPS", {schema.VERSION - 2: first, schema.VERSION - 1: second})
    return done


def test_every_step_is_taken_once_in_order_and_everything_is_still_there(directory: Path, steps: list[str]) -> None:
    for _ in range(2):
        with closing(SQLiteStore(directory)) as store:
            assert store.backlog() == 1
            assert list(check(store)) == []
    assert (steps, version_of(directory)) == (["first", "second"], schema.VERSION)
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        assert db.execute("SELECT up FROM made").fetchall() == [(7,)]


@pytest.mark.usefixtures("steps")
def test_what_is_read_only_is_not_migrated(directory: Path) -> None:
    with pytest.raises(StoreError, match=f"has version {schema.VERSION - 2}; this dither reads {schema.VERSION}"):
        SQLiteStore(directory, read_only=True)
    assert version_of(directory) == schema.VERSION - 2


def test_a_migration_that_is_cut_off_changes_nothing(
    directory: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(db: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(schema.STEPS, schema.VERSION - 1, cut_off)
        with pytest.raises(KeyboardInterrupt):
            SQLiteStore(directory)
    assert version_of(directory) == schema.VERSION - 2
    with closing(SQLiteStore(directory)) as store:
        assert store.backlog() == 1
    assert steps == ["first", "first", "second"]


@pytest.mark.parametrize("version", [0, 1, 2, schema.VERSION - 1, schema.VERSION + 1, 99])
def test_a_version_without_a_step_is_refused_in_a_sentence_and_left_alone(directory: Path, version: int) -> None:
    path = directory / FILE_NAME
    say_version(directory, version)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"has version {version}; this dither reads {schema.VERSION}"):
        SQLiteStore(directory)
    assert path.read_bytes() == before
