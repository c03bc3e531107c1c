"""A store and a backup of each version come to this one, hold what they held, and go on as their streams are pinned."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.store import SQLiteStore, Store, StoreError
from dither_aggregator.store import dump as backup_file
from dither_aggregator.store.dump import SeenRecord
from dither_aggregator.store.invariants import check
from dither_aggregator.store.redis import RedisStore, layout
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import FILE_NAME, schema
from tests.pinned.adapter import Aggregator
from tests.pinned.comparing import differences
from tests.pinned.files import CUTS, FILES, steps_of, unpack
from tests.support.aggregators import dither
from tests.support.clocks import Clock
from tests.support.redis_servers import running_redis
from tests.support.soaking import thinned

STORES = sorted(path.name for path in FILES.glob("store-*.gz"))
BACKUPS = sorted(path.name for path in FILES.glob("*.dither"))


def stream_of(name: str) -> str:
    return name.split(".")[0].split("-")[2]


def put(name: str, directory: Path) -> dict[str, Any]:
    """Put a pinned store, or what is restored of a pinned backup, into a directory; return what it must hold."""
    if name in STORES:
        return unpack(FILES / name, directory, FILE_NAME)
    with closing(SQLiteStore.create(directory, "pinned", Clock(), unfinished=True)) as made:
        restore(made, backup_file.read(FILES / name))
        return {"backlog": made.backlog()}


def dump(store: Store) -> list[Any]:
    return [record.to_document() for record in store.dump()]


def test_there_is_a_file_of_these_versions_and_of_all_that_are_read() -> None:
    """Else: `python -m tests.pinned.files` writes these versions', before the next ones are begun."""
    versions = {
        name: sorted({int(file.split("-")[1]) for file in files}) for name, files in (("s", STORES), ("b", BACKUPS))
    }
    assert versions == {"s": sorted({*schema.STEPS, schema.VERSION}), "b": sorted(backup_file.READ_VERSIONS)}


def without_errors(reading: dict[str, Any]) -> dict[str, Any]:
    """Return what a reading tells but for its errors: devices of that time may have sent several of a day's reports."""
    errors = {"reports", "simultaneous", "interval", "noise_floor", "critical_share", "detectable_share"}
    rows = {name: rows for name, rows in reading["rows"].items() if name in ("value", "estimate")}
    return {**{name: told for name, told in reading.items() if name not in errors}, "rows": rows}


# A restored store has other numbers in its quarantine, and one restored from a Redis has the days of that backup.
GO_ON = [*STORES, *(name for name in BACKUPS if name.startswith("backup-") and stream_of(name) != "quarantine")]


# A step leads from each version to the next: the oldest ones go all of them.
ENDS = {name.rpartition("-")[0] for names in (STORES, BACKUPS) for name in (names[0], names[-1])}
AT_THE_ENDS = [place for place, name in enumerate(GO_ON) if name.rpartition("-")[0] in ENDS]


@pytest.mark.parametrize("name", thinned(GO_ON, *AT_THE_ENDS))
def test_it_goes_on_as_if_it_had_been_here_all_the_time(tmp_path: Path, name: str) -> None:
    assert put(name, tmp_path / "store")["backlog"] > 0
    stream = stream_of(name)
    steps, cut = steps_of(stream), CUTS[stream]
    with Aggregator(tmp_path / "store") as aggregator:
        aggregator.resume(steps[:cut])
        for step in steps[:cut]:
            if step["do"] == "upload":  # a device that did not hear of the answer: it is known
                again = aggregator.upload(**step["with"])
                assert again == {**step["then"], "duplicate": True}
        for number, step in enumerate(steps[cut:], cut):
            came, then = getattr(aggregator, step["do"])(**step["with"]), step["then"]
            if step["do"] == "read":
                came, then = without_errors(came), without_errors(then)
            assert differences(then, came, f"step {number}, {step['do']}") == []
    with closing(SQLiteStore(tmp_path / "store")) as store:
        assert list(check(store)) == []
        assert store.backlog() == 0


@pytest.mark.parametrize("name", STORES)
def test_it_knows_its_keys_and_its_journal(tmp_path: Path, name: str) -> None:
    held = put(name, tmp_path / "store")
    with closing(SQLiteStore(tmp_path / "store")) as store:
        keys = held.get("keys") or {"": held["key"]}
        for text in keys.values():
            assert (key := store.keys.find(text.encode()))
            assert key.state == "active"
            assert not held.get("keys") or keys[key.id] == text
        assert [entry.to_document() for entry in store.journal()] == held["journal"]
        assert store.backlog() == held["backlog"]


@pytest.mark.parametrize("name", STORES)
def test_a_second_start_changes_nothing(tmp_path: Path, name: str) -> None:
    put(name, tmp_path / "store")
    with closing(SQLiteStore(tmp_path / "store")) as store:
        first = dump(store)
    content = (tmp_path / "store" / FILE_NAME).read_bytes()
    with closing(SQLiteStore(tmp_path / "store")) as store:
        assert dump(store) == first
    assert (tmp_path / "store" / FILE_NAME).read_bytes() == content


@pytest.mark.parametrize("stream", CUTS)
def test_every_backup_also_one_of_a_redis_fills_a_redis(tmp_path: Path, stream: str) -> None:
    taken = [step for step in steps_of(stream)[: CUTS[stream]] if step["do"] == "upload"]
    accepted = sum(step["then"]["accepted"] for step in taken)
    with running_redis(tmp_path / "redis") as server:
        backups = [name for name in BACKUPS if stream_of(name) == stream]
        for name in thinned(backups, 0, -1):
            with closing(RedisStore.create(server.url, "pinned", shards=4, unfinished=True)) as made:
                restore(made, backup_file.read(FILES / name))
                assert made.backlog() > 0
                for shard in range(made.shards):
                    made.fold_all(shard)
                assert list(check(made)) == []
                rows = made.ledger()
                assert (sum(row.accepted for row in rows), sum(row.pending for row in rows)) == (accepted, 0)
                known = {one for record in made.dump() if isinstance(record, SeenRecord) for one in record.bodies}
                assert {made.digest(step["with"]["id_"].encode()) for step in taken} <= known
            with server.client() as client:
                client.flushdb()


# Newer ones.


def test_a_newer_store_is_refused_with_what_to_do_and_left_alone(tmp_path: Path) -> None:
    put(STORES[-1], tmp_path / "store")
    path = tmp_path / "store" / FILE_NAME
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        log = path.with_name(f"{FILE_NAME}-wal").read_bytes()
        before = path.read_bytes()
        shutil.copytree(tmp_path / "store", tmp_path / "newer")  # as after a kill: the log is still there
    assert log
    path = tmp_path / "newer" / FILE_NAME
    for command in ("ledger", "fsck", "doctor"):
        done = dither(command, "--data", path.parent)
        assert done.returncode in (1, 2)
        assert f"has version {schema.VERSION + 1}" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    with pytest.raises(StoreError, match="use the dither that wrote it"):
        SQLiteStore(path.parent)
    assert (path.read_bytes(), path.with_name(f"{FILE_NAME}-wal").read_bytes()) == (before, log)


@pytest.mark.parametrize(
    ("version", "next_step"),
    [(layout.VERSION + 1, "use the dither that wrote it"), (layout.VERSION - 1, "dither backup.*dither restore")],
)
def test_a_redis_of_another_version_is_refused_with_what_to_do(tmp_path: Path, version: int, next_step: str) -> None:
    with running_redis(tmp_path / "redis") as server, server.client() as client:
        RedisStore.create(server.url, "pinned", shards=4).close()
        client.hset(layout.GLOBAL, "version", version)
        before = client.hgetall(layout.GLOBAL)
        with pytest.raises(StoreError, match=next_step):
            RedisStore(server.url)
        assert client.hgetall(layout.GLOBAL) == before


def test_a_newer_backup_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SQLiteStore.create(tmp_path / "store", "pinned")) as store, monkeypatch.context() as patched:
        patched.setattr(backup_file, "VERSION", backup_file.VERSION + 1)
        backup_file.write(tmp_path / "backup", store.dump())
    done = dither("restore", tmp_path / "backup", "--data", tmp_path / "new")
    assert done.returncode == 2
    assert "use the dither that wrote it" in done.stderr
