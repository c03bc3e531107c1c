"""Both stores keep of an upload whose day is sealed that it was taken, and no more."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, Store, archive
from dither_aggregator.store.invariants import check
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import FILE_NAME, sqlite_store
from dither_shared.registry import Registry
from dither_shared.wire.problems import Problem
from dither_shared.wire.writing import new_upload_id
from tests.aggregator.store.conftest import place_of
from tests.aggregator.store.test_erasing import directory_of, erase_all, wait_until_gone
from tests.support.stores import AS_IN_6, Place, SQLitePlace, answer, append, body_in, body_of, fold_all, parsed

HELD = 0x1F3
"""So many reports an upload holds: with the digest of its body before it, these bytes are found nowhere by chance."""


def day_over(place: Place, store: Store) -> None:
    """Let a day end, and do what workers do."""
    fold_all(store)
    place.travel(1)
    for shard in range(store.shards):
        maintenance.maintain(store, shard)
    maintenance.maintain_whole(store)


def uploads(store: Store, asked: Registry, number: int = 3) -> list[bytes]:
    """Take uploads of HELD reports; return their bodies."""
    drawn = random.Random(1)
    bodies = [body_of(asked, {"dark": [1] * HELD}, new_upload_id(drawn.getrandbits)) for _ in range(number)]
    store.append([parsed(store, body) for body in bodies])
    return bodies


def receipt_of(store: Store, body: bytes) -> dict[str, Any]:
    receipt = answer(store, body)
    assert not isinstance(receipt, Problem)
    return {name: value for name, value in receipt.to_document().items() if name != "upload"}


def test_a_late_duplicate_is_told_no_counts(place: Place, store: Store, asked: Registry) -> None:
    (body, *_) = uploads(store, asked)
    copy = {"accepted": HELD, "duplicate": True, "rejected": []}
    assert receipt_of(store, body) == copy
    day_over(place, store)
    assert receipt_of(store, body) == {**copy, "accepted": 0}
    other = body_of(asked, {"dark": [0]}, json.loads(body)["upload"])
    conflict = answer(store, other)
    assert isinstance(conflict, Problem)
    assert conflict.slug == "upload-conflict"
    shard = store.shard_of(store.digest(json.loads(body)["upload"].encode()))
    for _ in range(8):
        place.travel(1)
        append(store, body_in(store, shard, asked, {"dark": [1]}))
        day_over(place, store)
    assert receipt_of(store, body) == {**copy, "duplicate": False}  # it is forgotten after as many days as ever
    assert list(check(store)) == []


def test_the_files_do_not_tell_how_many_reports_an_upload_held(place: Place, store: Store, asked: Registry) -> None:
    bodies = uploads(store, asked, 30)
    traces = [store.digest(body) + HELD.to_bytes(4, "little") for body in bodies]

    class Left:
        @staticmethod
        def left(directory: Path) -> tuple[int, int]:
            content = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
            return sum(trace in content for trace in traces), 0

    assert Left.left(directory_of(place))[0] == 30
    day_over(place, store)
    erase_all(store)
    wait_until_gone(Left, directory_of(place))  # type: ignore[arg-type]


def test_no_arrival_time_is_kept_to_less_than_an_hour(place: Place, store: Store, asked: Registry) -> None:
    """While something waits the time is known, for the alert; a copy of what came before leaves none."""
    place.travel(1 / 7)
    (body, *_) = uploads(store, asked)
    assert store.status()[0].waiting_s < 60
    fold_all(store)
    receipt_of(store, body)
    for shard in [one.shard for one in store.status() if one.written]:
        assert waiting_since(place, shard) % 3_600 == 0


def waiting_since(place: Place, shard: int) -> float:
    if isinstance(place, SQLitePlace):
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db:
            ((since,),) = db.execute("SELECT value FROM state WHERE key = 'waiting_since'").fetchall()
            return float(since)
    return float(place.redis.hget(f"dither:{{{shard}}}", "waiting_since"))  # type: ignore[attr-defined]


def test_a_store_that_tells_more_of_an_erased_day_is_found(place: Place, store: Store, asked: Registry) -> None:
    uploads(store, asked)
    day_over(place, store)
    erase_all(store)
    assert list(check(store)) == []
    if isinstance(place, SQLitePlace):
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db, db:
            db.execute("INSERT INTO seen SELECT id, day, CAST(body || x'01000000' AS BLOB) FROM taken")
            db.execute("DELETE FROM taken")
    else:
        for shard in range(store.shards):
            for key in place.redis.scan_iter(f"dither:{{{shard}}}:seen:*"):  # type: ignore[attr-defined]
                for id_, kept in place.redis.hgetall(key).items():  # type: ignore[attr-defined]
                    place.redis.hset(key, id_, kept[:16] + b"\1\0\0\0")  # type: ignore[attr-defined]
    assert any("tell how many reports an upload held" in said for said in check(store))


@pytest.mark.parametrize("target", ["sqlite", "redis"])
def test_a_backup_brings_batches_and_what_is_kept_of_uploads_back(
    place: Place, store: Store, asked: Registry, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """So the figures that are shown next differ from the last that were shown by a hundred reports, here too."""
    (body, *_) = uploads(store, asked)
    for shard in range(store.shards):
        maintenance.maintain(store, shard)
    maintenance.maintain_whole(store)
    day_over(place, store)
    for _ in range(3):
        place.travel(1 / 24)
        append(store, body_of(asked, {"dark": [1] * HELD}))
        fold_all(store)
        maintenance.maintain_whole(store)
    assert len(store.batches()[1]) == 2
    archive.write(tmp_path / "backup", store.dump())
    with closing(place_of(target, tmp_path / "other", request, 1, shards=2)) as other:
        made = other.begin()
        restore(made, archive.read(tmp_path / "backup"))
        assert made.batches() == store.batches()
        assert receipt_of(made, body) == {"accepted": 0, "duplicate": True, "rejected": []}
        assert list(check(made)) == []


def test_many_uploads_are_moved_some_at_a_time(
    tmp_path: Path, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "FORGET_ROWS", 2)
    with closing(SQLitePlace(tmp_path / "store")) as place:
        store = place.make(asked)
        bodies = uploads(store, asked, 5)
        fold_all(store)
        place.travel(1)
        store.seal(0)
        store.forget_answers(0)
        assert [receipt_of(store, body)["accepted"] for body in bodies] == [0] * 5
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db:
            assert db.execute("SELECT COUNT(*) FROM seen").fetchone() == (0,)


def test_a_store_of_version_5_forgets_what_it_told_at_the_next_upkeep(tmp_path: Path, asked: Registry) -> None:
    with closing(SQLitePlace(tmp_path / "store")) as place:
        store = place.make(asked)
        (body, *_) = uploads(store, asked)
        fold_all(store)
        place.travel(1)
        store.seal(0)
        store.close()
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db:
            db.executescript(f"{AS_IN_6} DROP TABLE taken; PRAGMA user_version = 5;")
        again = place.keep(SQLiteStore(place.directory))
        assert receipt_of(again, body)["accepted"] == HELD
        maintenance.maintain(again, 0)
        maintenance.maintain_whole(again)
        assert receipt_of(again, body) == {"accepted": 0, "duplicate": True, "rejected": []}
        assert list(check(again)) == []
