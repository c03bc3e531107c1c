"""Both stores keep of an upload that it was taken, in few bytes, and no more."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from dither_aggregator.operations import maintenance
from dither_aggregator.store import Store, dump
from dither_aggregator.store.dump import SeenRecord
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import BODY_BYTES, day_number
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import FILE_NAME, schema, sqlite_store
from dither_shared.registry import Registry
from dither_shared.wire import new_upload_id
from dither_shared.wire.reading import Problem
from tests.aggregator.store.conftest import other_kind, place_of
from tests.aggregator.store.test_erasing import erase_all
from tests.support.stores import Place, RedisPlace, SQLitePlace, answer, append, body_in, body_of, fold_all, parsed

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


def test_a_late_duplicate_is_told_what_an_early_one_is(place: Place, store: Store, asked: Registry) -> None:
    (body, *_) = uploads(store, asked)
    copy = {"accepted": HELD, "duplicate": True, "rejected": []}
    assert receipt_of(store, body) == copy
    day_over(place, store)
    assert receipt_of(store, body) == copy
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


def kept_ids(place: Place, store: Store) -> list[list[bytes]]:
    """Return the ids that are kept, of each table or bucket in the order in which they lie there."""
    if isinstance(place, SQLitePlace):
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db:
            return [[id_ for (id_,) in db.execute(f"SELECT id FROM {table}")] for _, table in schema.days_of_ids(db)]
    keys = sorted(place.redis.scan_iter("dither:{*}:seen:*"))  # type: ignore[attr-defined]
    return [list(place.redis.hkeys(key)) for key in keys]  # type: ignore[attr-defined]


def test_of_an_upload_two_short_digests_are_kept(place: Place, store: Store, asked: Registry) -> None:
    bodies = uploads(store, asked, 30)
    expected = {store.digest(json.loads(body)["upload"].encode()): store.digest(body, BODY_BYTES) for body in bodies}
    for _ in range(2):
        kept = [record.bodies for record in store.dump() if isinstance(record, SeenRecord)]
        assert {id_: body for some in kept for id_, body in some.items()} == expected
        assert {(len(id_), len(body)) for id_, body in expected.items()} == {(12, 4)}
        day_over(place, store)


def test_a_sealed_day_does_not_tell_which_upload_came_first(place: Place, store: Store, asked: Registry) -> None:
    """Redis keeps a small hash, and a page of SQLite its rows, in the order in which they came."""
    uploads(store, asked, 300)
    day_over(place, store)
    erase_all(store)
    kept = kept_ids(place, store)
    assert sum(map(len, kept)) == 300
    assert all(ids == sorted(ids) for ids in kept)
    if isinstance(place, SQLitePlace):
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db:
            assert [table.partition("_")[0] for _, table in schema.days_of_ids(db)] == ["taken"]


@pytest.mark.parametrize("kind", ["redis"])
def test_a_day_has_buckets_for_as_many_ids_as_the_fullest_before(place: Place, store: Store, asked: Registry) -> None:
    """It is written with the day's first id, and no process changes it: another would look for ids elsewhere."""
    redis = cast(RedisPlace, place).redis
    key, days = "dither:{0}:seen", []
    for number in (70, 3):
        for _ in range(number):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
        days.append(day_number(store.today()))
        day_over(place, store)
    redis.hset(key, f"{days[0]}:ids", 64 * 100 + 1)  # as if it had been a busy one
    (body, *_) = [body_in(store, 0, asked, {"dark": [1]}) for _ in range(2)]
    append(store, body)
    listed = {field.decode(): int(n) for field, n in redis.hgetall(key).items()}
    today = day_number(store.today())
    assert [listed[f"{day}:buckets"] for day in (*days, today)] == [64, 64, 128]
    assert [listed[f"{day}:ids"] for day in (days[1], today)] == [3, 1]
    assert append(place.open(), body).duplicate


def test_ids_take_few_bytes(place: Place, store: Store, asked: Registry) -> None:
    """In Redis, where buckets are full, and in a file."""
    day = store.today()
    drawn = random.Random(2)
    if isinstance(place, SQLitePlace):
        number = 20_000
        store.fill_seen(SeenRecord(day, {drawn.randbytes(12): drawn.randbytes(4) for _ in range(number)}))

        def bytes_each() -> float:
            with closing(sqlite3.connect(place.directory / FILE_NAME)) as db:
                names = [table for _, table in schema.days_of_ids(db)]
                size = f"SELECT SUM(pgsize) FROM dbstat WHERE name IN ({', '.join('?' * len(names))})"
                ((total,),) = db.execute(size, names).fetchall()
                return int(total) / number

        assert bytes_each() <= 33
        day_over(place, store)
        assert bytes_each() <= 26
    else:
        redis = cast(RedisPlace, place).redis
        number = store.shards * 64 * 64
        store.fill_seen(SeenRecord(day, {drawn.randbytes(12): drawn.randbytes(4) for _ in range(number)}, number))
        buckets = list(redis.scan_iter("dither:{*}:seen:*:*", count=10_000))
        assert {redis.object("encoding", key) for key in buckets} == {b"listpack"}
        assert sum(redis.memory_usage(key) for key in buckets) / number <= 26


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


def test_a_backup_brings_batches_and_what_is_kept_of_uploads_back(
    place: Place, store: Store, asked: Registry, tmp_path: Path, request: pytest.FixtureRequest
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
    dump.write(tmp_path / "backup", store.dump())
    with closing(place_of(other_kind(place), tmp_path / "other", request, 1, shards=2)) as other:
        made = other.begin()
        restore(made, dump.read(tmp_path / "backup"))
        assert made.batches() == store.batches()
        assert receipt_of(made, body) == {"accepted": HELD, "duplicate": True, "rejected": []}
        assert list(check(made)) == []


def test_many_uploads_are_moved_some_at_a_time(
    tmp_path: Path, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "SORT_ROWS", 2)
    with closing(SQLitePlace(tmp_path / "store")) as place:
        store = place.make(asked)
        bodies = uploads(store, asked, 5)
        fold_all(store)
        place.travel(1)
        store.seal(0)
        store.sort_ids(0)
        assert [receipt_of(store, body)["duplicate"] for body in bodies] == [True] * 5
        (ids,) = kept_ids(place, store)
        assert len(ids) == 5
        assert ids == sorted(ids)


def test_the_ids_of_each_day_are_counted(place: Place, store: Store, asked: Registry) -> None:
    first = store.today()
    bodies = uploads(store, asked, 30)
    for body in bodies:
        append(store, body)
    assert store.ids() == {first: 30}
    day_over(place, store)
    append(store, body_of(asked, {"dark": [1]}))
    assert store.ids() == {first: 30, store.today(): 1}
