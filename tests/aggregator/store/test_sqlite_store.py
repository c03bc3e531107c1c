"""The SQLite store alone: its file, its lock, its transactions."""

import errno
import gzip
import random
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.store import Receipt, SQLiteStore, StoreError, StoreUnavailable, create_store, open_store
from dither_aggregator.store.contract import Prepared
from dither_aggregator.store.sqlite import FILE_NAME, LOCK_NAME, exclusive, schema, sqlite_store
from dither_aggregator.store.sqlite.schema import describe_error
from dither_shared.registry import Registry
from dither_shared.wire.reading import Problem
from tests.support.clocks import Clock
from tests.support.stores import append, balance, body_of, fold_all, parsed


@pytest.fixture
def sqlite(tmp_path: Path, asked: Registry) -> Iterator[SQLiteStore]:
    with closing(SQLiteStore.create(tmp_path, "example")) as made:
        made.load(asked)
        yield made


def test_a_store_is_only_for_its_owner(sqlite: SQLiteStore, tmp_path: Path) -> None:
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert sqlite.lossy == ""


def test_a_store_is_not_made_twice(sqlite: SQLiteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds a store already"):
        SQLiteStore.create(tmp_path, "example")


def test_a_store_is_named_by_its_directory(tmp_path: Path) -> None:
    with closing(create_store(str(tmp_path / "new"), "example")) as made:
        assert isinstance(made, SQLiteStore)
        with closing(open_store(str(tmp_path / "new"))) as again:
            assert again.generation == made.generation


def test_the_clock_is_the_process_s_clock(tmp_path: Path, asked: Registry) -> None:
    clock = Clock()
    with closing(SQLiteStore.create(tmp_path, "example", clock)) as store:
        assert store.clock_day().isoformat() == "2026-11-20"
        clock.travel(2)
        assert store.clock_day().isoformat() == "2026-11-22"


def test_a_failed_commit_stores_nothing(sqlite: SQLiteStore, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = body_of(asked, {"dark": [1]}), body_of(asked, {"dark": [0]})
    uploads = [parsed(sqlite, body) for body in (good, bad)]
    enter = SQLiteStore._write_log

    def fail_after_the_first(
        self: SQLiteStore, db: sqlite3.Connection, today: date, fresh: Collection[Prepared]
    ) -> None:
        enter(self, db, today, list(fresh)[:1])
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(SQLiteStore, "_write_log", fail_after_the_first)
    with pytest.raises(StoreUnavailable, match="cannot be written: database or disk is full"):
        sqlite.append(uploads)
    monkeypatch.undo()
    assert sqlite.ledger() == []
    assert not append(sqlite, good).duplicate


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_uploads_that_come_together_are_known_and_counted_once(
    sqlite: SQLiteStore, asked: Registry, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(sqlite_store, "SEEN_AT_ONCE", at_once)
    old, *new = (parsed(sqlite, body_of(asked, {"dark": [1], "color": [0, 1]})) for _ in range(6))
    refused = parsed(sqlite, body_of(asked, {"dark": [9]}))
    sqlite.append([old])
    answers = sqlite.append([new[0], old, new[1], new[0], refused, *new[2:], new[4]])
    duplicates = [answer.duplicate for answer in answers if isinstance(answer, Receipt)]
    assert duplicates == [False, True, False, True, False, False, False, True]
    assert isinstance(answers[4], Problem)
    assert balance(sqlite) == (18, 0, 18, 0)
    assert [answer for answer in sqlite.append([refused]) if isinstance(answer, Receipt)] == []
    assert [len(sqlite.read_log(0).groups), sqlite.read_log(0).high] == [12, 6]


def test_a_reader_sees_and_changes_nothing(sqlite: SQLiteStore, tmp_path: Path, asked: Registry) -> None:
    append(sqlite, body_of(asked, {"dark": [1]}))
    fold_all(sqlite)
    with closing(SQLiteStore(tmp_path, read_only=True)) as reader:
        assert balance(reader) == (1, 1, 0, 0)
        with pytest.raises(StoreUnavailable, match="readonly"):
            append(reader, body_of(asked, {"dark": [1]}))


def test_another_file_in_its_place_is_refused(sqlite: SQLiteStore, tmp_path: Path, asked: Registry) -> None:
    append(sqlite, body_of(asked, {"dark": [1]}))
    (tmp_path / FILE_NAME).rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"cannot be used|is not the file that was opened"):
            append(sqlite, body_of(asked, {"dark": [1]}))
        assert "is not the file that was opened" in sqlite.trouble()[Trouble.STORE]
        (tmp_path / FILE_NAME).touch()


def test_a_store_that_was_moved_is_refused(sqlite: SQLiteStore, tmp_path: Path) -> None:
    sqlite.mark_moved("0123456789abcdef")
    with pytest.raises(StoreError, match="was copied to the store 0123456789abcdef, which goes on in its place"):
        SQLiteStore(tmp_path)


def test_unusable_stores_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no store"):
        SQLiteStore(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(gzip.compress(random.Random(1).randbytes(9000)))
    for use in (SQLiteStore, lambda directory: SQLiteStore.create(directory, "example")):
        with pytest.raises(StoreError, match=r"cannot be used: .*file is not a database"):
            use(tmp_path)
    with pytest.raises(StoreError, match="cannot be used"):
        SQLiteStore.create(tmp_path / FILE_NAME, "example")
    other = tmp_path / "other"
    SQLiteStore.create(other, "example").close()
    with closing(sqlite3.connect(other / FILE_NAME)) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    for read_only in (True, False):
        with pytest.raises(StoreError, match=f"version {schema.VERSION + 1}; this dither reads {schema.VERSION}"):
            SQLiteStore(other, read_only=read_only)


def test_why_a_file_cannot_be_used_is_said_with_what_to_do(
    sqlite: SQLiteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / FILE_NAME))
    assert describe_error(denied) == "Permission denied; run this as the user that owns it"
    assert describe_error(OSError(errno.ENOSPC, "No space left on device", "x")) == "No space left on device"
    with closing(sqlite3.connect(f"file:{tmp_path / FILE_NAME}?mode=ro", uri=True)) as db:
        with pytest.raises(sqlite3.OperationalError) as refused:
            db.execute("DELETE FROM state")
        assert (
            describe_error(refused.value) == "attempt to write a readonly database; run this as the user that owns it"
        )

    def deny(path: Path) -> bool:
        raise denied

    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", deny)
        with pytest.raises(StoreError, match=r"store\.sqlite3 cannot be used: Permission denied; run this as"):
            SQLiteStore(tmp_path)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / FILE_NAME).write_bytes(b"garbage" * 1000)
    with pytest.raises(StoreError, match=r"file is not a database; `dither restore` makes a new store of a backup$"):
        SQLiteStore(tmp_path / "damaged")


def test_a_file_in_place_of_the_directory_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").touch()
    with (
        pytest.raises(StoreError, match=r"metrics\.toml is a file; a store is a directory"),
        exclusive(tmp_path / "metrics.toml"),
    ):
        pass


def test_a_directory_is_served_once(tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(StoreError, match="is being served already"), exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        assert (tmp_path / LOCK_NAME).exists()
