"""Every field and row of both stores is changed in turn: fsck tells it, or counting.md says why it cannot be seen."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from dither_aggregator.operations import maintenance
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.document_kinds import DayMark, Retention
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import KeptReading
from dither_aggregator.store.sqlite import FILE_NAME
from dither_shared.registry import Registry
from tests.aggregator.store.conftest import place_of
from tests.support.redis_servers import RedisCluster
from tests.support.registries import registry
from tests.support.soaking import scaled
from tests.support.stores import Place, RedisPlace, SQLitePlace, answer, append, body_of, fold_all, seal_all

PAGE = Path(__file__).parents[3] / "aggregator" / "counting.md"
ROWS = scaled(1, 6)
"""So many rows of a table, fields of a hash, or elements of a list are changed; with 1, one thing of each name."""
SHARDS = 2
CHANGED = range(SHARDS - scaled(1, SHARDS), SHARDS)
"""The shards of a Redis whose keys are changed: the last one, which a look that ends early misses, or both."""


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """Return a place of two shards: all keys of both are changed in turn, and all keys of both read each time."""
    with closing(place_of(kind, tmp_path / "store", request, 0, shards=SHARDS)) as made:
        yield made


def fill(place: Place, asked: Registry) -> Store:
    """Make a store that has some of everything: a day that is final, one that is open, and what waits."""
    store = place.make(asked)
    for _ in range(8):
        append(store, body_of(asked, {"dark": [1, 0, 1], "color": [0, 1]}))
    fold_all(store)
    place.travel(1)
    seal_all(store)
    for shard in range(store.shards):
        store.merge(shard)
        store.sort_ids(shard)
    for metric in maintenance.unfinalized(store):
        maintenance.finalize(store, metric)
    for _ in range(8):
        append(store, body_of(asked, {"dark": [1]}))
    place.change_log(lambda entry: entry[:-1] + b"\x07")
    fold_all(store)
    for _ in range(8):
        append(store, body_of(asked, {"dark": [1, 0]}))
    fold_all(store)
    store.cut_batches()
    append(store, body_of(asked, {"dark": [1, 0] * (BATCH_MIN // 2)}))
    fold_all(store)
    place.travel(1 / 24)
    store.cut_batches()
    for _ in range(8):
        append(store, body_of(asked, {"dark": [1], "color": [0]}))
    answer(store, body_of(registry(rev=9), {"dark": [1]}))  # it is refused
    store.keep_readings(
        [KeptReading(key, store.today(), open_, b"a reading") for key, open_ in (("made", False), ("begun", True))]
    )
    store.create_key("read", "the web team")
    store.put(Retention(400, 300))
    store.put(DayMark(date(2026, 1, 1), "version 158"))
    store.note("command line", "mark add", "version 158")
    store.backed_up(1_000)
    return store


def others(value: Any) -> list[Any]:
    """Return other values in the place of one: the one that is hardest to see, or all that come to mind."""
    return _others(value)[: scaled(1, 3)]


def _others(value: Any) -> list[Any]:
    if isinstance(value, int | float):
        return [value + 1, value + 100, value - 1]
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            return [str(date.fromisoformat(value) + timedelta(days=days)) for days in (1, -1)]
        return [f"{value}x"]
    if re.fullmatch(rb"-?\d+", value):
        return [str(int(value) + more).encode() for more in (1, 100, -1)]
    return [bytes(each ^ (place == at) for place, each in enumerate(value)) for at in (len(value) // 2, 0)]


def alter_sqlite(place: SQLitePlace) -> Iterator[str]:
    """Change the file's fields and rows one by one; yield the name of each while it is changed."""
    place.close()
    file = place.directory / FILE_NAME
    whole = file.read_bytes()
    for what, statement, values in _sqlite_changes(file):
        with closing(sqlite3.connect(file)) as db, suppress(sqlite3.IntegrityError):
            with db:
                db.execute(statement, values)
            yield what
        file.write_bytes(whole)


def _sqlite_changes(file: Path) -> list[tuple[str, str, list[Any]]]:
    changes: list[tuple[str, str, list[Any]]] = []
    with closing(sqlite3.connect(file)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            info = db.execute(f"PRAGMA table_info({table})").fetchall()
            columns = [row[1] for row in info]
            keys = [row[1] for row in info if row[5]] or columns
            where = " AND ".join(f"{key} = ?" for key in keys)
            named = table in ("state", "document", "sqlite_sequence")
            rows = db.execute(f"SELECT * FROM {table}").fetchall()
            for row in rows if named else rows[:ROWS]:
                fields = dict(zip(columns, row, strict=True))
                at = [fields[key] for key in keys]
                name = f"{table} {fields[keys[0]]}" if named else re.sub(r"\d+$", "N", table)
                for column, value in fields.items():
                    update = f"UPDATE {table} SET {column} = ? WHERE {where}"
                    changes += [(f"{name}: {column}", update, [other, *at]) for other in others(value)]
                changes.append((f"{name}: gone", f"DELETE FROM {table} WHERE {where}", at))
    return changes if ROWS > 1 else [*{change[0]: change for change in changes}.values()]


def alter_redis(place: RedisPlace) -> Iterator[str]:
    """Change the fields, elements and keys of a Redis one by one; yield the name of each while it is changed."""
    redis = place.redis
    tried = set[str]()
    others_keys = tuple(f"dither:{{{shard}}}" for shard in range(SHARDS) if shard not in CHANGED)
    for key in sorted(key for key in set(redis.scan_iter()) if not key.decode().startswith(others_keys)):
        name = re.sub(r"(?<=snapshot:)\w+|(?<=:)\d+|(?<=\{)\d(?=\})", "N", key.decode().removeprefix("dither:"))
        whole = redis.dump(key)
        changes: list[tuple[str, tuple[Any, ...]]] = []
        match redis.type(key):
            case b"hash":
                items = list(redis.hgetall(key).items())
                for field, value in items if name in ("{g}", "{N}") else items[:ROWS]:
                    of = f"{name} {field.decode()}" if name in ("{g}", "{N}") else name
                    changes += [(f"{of}: value", ("HSET", key, field, other)) for other in others(value)]
                    changes.append((f"{of}: gone", ("HDEL", key, field)))
            case b"list":
                for at, value in enumerate(redis.lrange(key, 0, ROWS - 1)):
                    changes += [(f"{name}: value", ("LSET", key, at, other)) for other in others(value)]
                changes.append((f"{name}: gone", ("LPOP", key)))
            case b"zset":
                for member, score in redis.zrange(key, 0, ROWS - 1, withscores=True):
                    changes.append((f"{name}: value", ("ZADD", key, score + 1, member)))
                    changes.append((f"{name}: gone", ("ZREM", key, member)))
            case b"set":
                changes += [(f"{name}: gone", ("SREM", key, member)) for member in list(redis.smembers(key))[:ROWS]]
            case b"string":
                changes += [(f"{name}: value", ("SET", key, other)) for other in others(redis.get(key))]
        for what, command in [*changes, (f"{name}: gone", ("DEL", key))]:
            if ROWS == 1 and what in tried:
                continue
            tried.add(what)
            redis.execute_command(*command)
            yield what
            redis.restore(key, 0, whole, replace=True)


def listed(place: Place) -> set[str]:
    """Return what the page says that fsck cannot see; the field `sure` is a cluster's."""
    part = PAGE.read_text(encoding="utf-8").partition("\n## What fsck cannot see\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in part.splitlines() if line.startswith("| ")]
    found = {name for row in rows[1:] for name in re.findall("`([^`]+)`", row[2 if place.kind == "sqlite" else 3])}
    clustered = isinstance(place, RedisPlace) and isinstance(place.server, RedisCluster)
    return {name for name in found if clustered or " sure: " not in name}


@pytest.mark.slow
def test_whatever_is_changed_is_told_or_listed(place: Place, asked: Registry) -> None:
    """A cursor that is ahead once went unseen, while all that came afterwards stayed pending."""
    assert list(check(fill(place, asked))) == []
    unseen = set()
    for what in alter_sqlite(place) if isinstance(place, SQLitePlace) else alter_redis(cast(RedisPlace, place)):
        try:
            with closing(place._open()) as store:
                told = bool(next(check(store), None))
        except (StoreError, ValueError, TypeError, KeyError):
            told = True
        if not told:
            unseen.add(what)
    known = listed(place)
    assert unseen <= known, "\n".join(sorted(unseen - known))
    if ROWS > 1:
        assert unseen == known, "\n".join(sorted(known - unseen))
