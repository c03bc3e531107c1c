"""A store of an earlier version is brought to this one, step by step; of a version without a step it is left alone."""

import gzip
import hashlib
import json
import os
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from dither_aggregator.store import SQLiteStore, StoreError, dump
from dither_aggregator.store.document_kinds import Dashboard, DayMark, LastBackup, Retention, ToldMoves
from dither_aggregator.store.documents import KINDS
from dither_aggregator.store.invariants import check
from dither_aggregator.store.release_ledger import Release
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import FILE_NAME, KEY_NAME, kept_key, schema
from tests.support.registries import registry
from tests.support.stores import AS_IN_6, append, body_of

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
    opened: list[sqlite3.Connection] = []

    def cut_off(db: sqlite3.Connection) -> None:
        opened.append(db)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(schema.STEPS, schema.VERSION - 1, cut_off)
        with pytest.raises(KeyboardInterrupt):
            SQLiteStore(directory)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
    assert version_of(directory) == schema.VERSION - 2
    with closing(SQLiteStore(directory)) as store:
        assert store.backlog() == 1
    assert steps == ["first", "first", "second"]


@pytest.mark.parametrize("version", [0, 1, 2, 3, schema.VERSION + 1, 99])
def test_a_version_without_a_step_is_refused_in_a_sentence_and_left_alone(directory: Path, version: int) -> None:
    path = directory / FILE_NAME
    say_version(directory, version)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"has version {version}; this dither reads {schema.VERSION}"):
        SQLiteStore(directory)
    assert path.read_bytes() == before


# From version 4, in which a store had the text of one key.

KEY = "DEkX0bWpVY3zKk9uQm4tJxN7aRfPs2Lh"
AS_IN_4 = f"""
{AS_IN_6}
DROP TABLE key; DROP TABLE journal; DROP TABLE taken;
DELETE FROM state WHERE key IN ('secret', 'keys_version');
INSERT INTO state VALUES ('key', '{KEY}');
PRAGMA user_version = 4;
"""


@pytest.fixture
def of_4(directory: Path) -> Path:
    """Return a directory with a store as version 4 made it."""
    say_version(directory, schema.VERSION)
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.executescript(AS_IN_4)
    return directory


def test_the_one_key_of_version_4_still_lets_uploads_in_and_is_known_by_a_hash(of_4: Path) -> None:
    for _ in range(2):
        with closing(SQLiteStore(of_4)) as store:
            (key,) = store.keys.listed()
            assert (key.scope, key.state, store.keys.find(KEY.encode())) == ("write", "active", key)
            assert not store.keys.reading_needs_key
            assert store.journal() == []
            assert (store.backlog(), list(check(store))) == (1, [])
    assert kept_key(of_4) == KEY
    assert (of_4 / KEY_NAME).stat().st_mode & 0o777 == 0o600
    for path in of_4.iterdir():
        assert (KEY.encode() in path.read_bytes()) == (path.name == KEY_NAME), path


def test_keys_of_version_4_that_cannot_be_written_to_a_file_change_nothing(
    of_4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left on device"):
            SQLiteStore(of_4)
    assert version_of(of_4) == 4
    assert {path.name for path in of_4.iterdir()} == {FILE_NAME}
    with closing(SQLiteStore(of_4)) as store:
        assert store.keys.find(KEY.encode())


# From version 6, in which plans, keys, marks and the journal had a table each, and the retention two rows.


def test_the_documents_of_version_6_are_all_there(directory: Path) -> None:
    marks = [DayMark(date(2026, 11, 20), "version 158"), DayMark(date(2026, 11, 20), "a day that was \N{SNOWMAN}")]
    say_version(directory, schema.VERSION)
    with closing(SQLiteStore(directory)) as store:
        keys = [store.create_key(scope)[0] for scope in ("write", "read")]
        for number in range(3):
            store.note("command line", "mark add", f"number {number}")
        before = store.plans(), store.keys.listed(), store.journal()
    with closing(sqlite3.connect(directory / FILE_NAME)) as db, db:
        db.executescript(AS_IN_6)
        db.execute("CREATE TABLE mark (day TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (day, text)) WITHOUT ROWID")
        db.executemany("INSERT INTO mark VALUES (?, ?)", [(mark.day.isoformat(), mark.text) for mark in marks])
        db.execute("INSERT INTO state VALUES ('tallies_days', 400)")
    for _ in range(2):
        with closing(SQLiteStore(directory)) as store:
            assert (store.plans(), store.keys.listed(), store.journal()) == before
            assert (store.documents(DayMark), store.retention()) == (sorted(marks), Retention(400, None))
            assert list(check(store)) == []
    with closing(SQLiteStore(directory)) as store:  # and they can be changed
        assert store.remove(marks[0])
        store.revoke_key(keys[0].id)
        store.retire("dark", 1)
        store.note("command line", "mark remove", "version 158")
        assert [entry.what for entry in store.journal()] == ["number 0", "number 1", "number 2", "version 158"]
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not tables & {"plan", "key", "mark", "journal"}


# A backup of version 4, in which keys and retention stood in the identity, and marks and the journal by themselves.


def as_in_4(backup: Path) -> None:
    """Rewrite a backup as version 4 wrote it."""
    with gzip.open(backup) as file:
        head, identity, *lines = [json.loads(line) for line in file][:-1]
    kept = {line["documents"]["kind"]: line["documents"]["documents"] for line in lines if "documents" in line}
    identity["identity"] |= {"keys": kept["keys"], "retention": kept["retention"][0]}
    lines = [
        {**head, "version": 4},
        identity,
        *({"plan": plan} for plan in kept["plans"]),
        {"marks": {"marks": kept["marks"]}},
        {"journal": {"entries": kept["journal"]}},
        *(line for line in lines if "documents" not in line),
    ]
    sign(backup, lines)


def sign(backup: Path, lines: list[dict[str, object]]) -> None:
    written = [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines]
    end = {"records": len(written), "sha256": hashlib.sha256(b"".join(written)).hexdigest()}
    backup.write_bytes(gzip.compress(b"".join(written) + json.dumps({"end": end}).encode() + b"\n"))


def test_a_backup_of_version_4_brings_all_its_documents(tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path / "old", "example")) as store:
        store.load(ASKED)
        store.create_key("write")
        store.put(Retention(400, 30))
        store.put(DayMark(date(2026, 11, 20), "version 158"))
        store.note("command line", "mark add", "version 158")
        dump.write(tmp_path / "backup", store.dump())
        as_in_4(tmp_path / "backup")
        with closing(SQLiteStore.create(tmp_path / "new", "example", unfinished=True)) as made:
            restore(made, dump.read(tmp_path / "backup"))
            for kind in set(KINDS) - {LastBackup, Dashboard, Release, ToldMoves}:  # which came later
                assert made.documents(kind) == store.documents(kind) != []
            assert made.signing_secret(b"sessions") == store.signing_secret(b"sessions")


# A backup of version 2, which has the text of that key.


def as_in_2(backup: Path) -> None:
    """Rewrite a backup as version 2 wrote it."""
    with gzip.open(backup) as file:
        lines = [json.loads(line) for line in file]
    lines[0]["version"] = 2
    identity = lines[1]["identity"]
    del identity["secret"]
    identity |= {"key": KEY, "retention": {"tallies_days": None, "snapshots_days": None}}
    (plans,) = [line["documents"]["documents"] for line in lines if line.get("documents", {}).get("kind") == "plans"]
    others = [line for line in lines[2:] if "documents" not in line]
    lines = [*lines[:2], *({"plan": plan} for plan in plans), *others]
    sign(backup, lines[:-1])


def test_a_backup_of_version_2_is_restored_with_its_key_as_a_write_key(tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path / "old", "example")) as store:
        store.load(ASKED)
        append(store, body_of(ASKED, {"color": [1, 0]}))
        dump.write(tmp_path / "backup", store.dump())
    as_in_2(tmp_path / "backup")
    with closing(SQLiteStore.create(tmp_path / "new", "example", unfinished=True)) as made:
        restore(made, dump.read(tmp_path / "backup"))
        (key,) = made.keys.listed()
        assert (key.scope, key.state, made.keys.find(KEY.encode())) == ("write", "active", key)
        assert (made.backlog(), made.journal(), list(check(made))) == (1, [], [])
    assert not any(KEY.encode() in path.read_bytes() for path in (tmp_path / "new").iterdir())


@pytest.mark.parametrize(
    ("ahead", "advice"), [(1, "use the dither that wrote it"), (-1, "`dither serve` brings it to that")]
)
def test_a_store_that_is_only_read_says_what_helps(directory: Path, ahead: int, advice: str) -> None:
    say_version(directory, schema.VERSION + ahead)
    with pytest.raises(StoreError, match=f"this dither reads {schema.VERSION}: {advice}"):
        SQLiteStore(directory, read_only=True)
    assert version_of(directory) == schema.VERSION + ahead
