"""Refused groups are counted once, by day, metric and reason, on both stores; no stranger can add rows."""

import inspect
import json
import sqlite3
import textwrap
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from dither_aggregator.store import SQLiteStore, Store, StoreUnavailable, dump
from dither_aggregator.store.contract import REFUSED_DAYS
from dither_aggregator.store.dump import ShardRecord
from dither_aggregator.store.invariants import check
from dither_aggregator.store.records import RefusedCount, RefusedKey, day_number
from dither_aggregator.store.redis import layout, scripts
from dither_aggregator.store.redis.layout import refused_fields
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import FILE_NAME, schema, sqlite_store
from dither_shared.registry import Registry
from dither_shared.wire.reading import Problem
from tests.aggregator.store.conftest import other_kind, place_of
from tests.support.registries import registry
from tests.support.stores import (
    Place,
    RedisPlace,
    SQLitePlace,
    answer,
    append,
    balance,
    body_in,
    body_of,
    fold_all,
    parsed,
    seal_all,
)

NO_PLAN = "0" * 16


def spoiled(body: bytes, *groups: Mapping[str, object]) -> bytes:
    """Return an upload's body with further groups."""
    document = json.loads(body)
    document["groups"] += groups
    return json.dumps(document).encode()


def emptied(body: bytes) -> bytes:
    """Return an upload's body without its groups."""
    return json.dumps({**json.loads(body), "groups": []}).encode()


def group(metric: object, plan: object = NO_PLAN, reports: object = (1, 0)) -> dict[str, object]:
    return {"metric": metric, "plan": plan, "reports": reports}


def counted(place: Place, store: Store, after: int = 0) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the groups and reports that were refused on a day, by metric and reason."""
    found = store.refused(place.day(after), place.day(after))
    assert {key.day for key in found} <= {place.day(after)}
    return {(key.metric, key.reason): (one.groups, one.reports) for key, one in found.items()}


def test_refused_groups_are_counted_by_metric_and_reason(place: Place, store: Store, asked: Registry) -> None:
    dark = asked.metrics["dark"].plan.digest
    body = spoiled(
        body_of(asked, {"color": [1]}),
        group("dark"),
        group("dark", reports=[1]),
        group("dark", dark, reports=[7, 0, 1]),
        group("nothing", reports=[1] * 5),
        group("color", plan=3, reports=[1] * 6),
        {"metric": "dark"},
    )
    assert append(store, body).accepted == 1
    assert counted(place, store) == {
        ("dark", "unknown-plan"): (2, 3),
        ("dark", "bad-report"): (1, 3),
        ("", "unknown-metric"): (1, 5),
        ("color", "malformed"): (1, 6),
        ("dark", "malformed"): (1, 0),
    }
    assert place.open().refused(place.day(), place.day()) == store.refused(place.day(), place.day())
    assert balance(store) == (1, 0, 1, 0)
    assert list(check(store)) == []


def test_a_copy_that_is_known_counts_nothing(place: Place, store: Store, asked: Registry) -> None:
    body = spoiled(body_of(asked, {"color": [1]}), group("dark"))
    conflict = spoiled(emptied(body), group("dark", reports=[1] * 9))
    assert not append(store, body).duplicate
    assert append(store, body).duplicate
    store.append([parsed(store, body), parsed(store, conflict), parsed(store, body)])
    assert counted(place, store) == {("dark", "unknown-plan"): (1, 2)}
    store.retire("color", 1)
    assert append(store, body).duplicate
    assert counted(place, store) == {("dark", "unknown-plan"): (1, 2)}


def test_copies_in_one_batch_count_once(place: Place, store: Store, asked: Registry) -> None:
    body = spoiled(body_of(asked, {"color": [1]}), group("dark"))
    store.append([parsed(store, body)] * 3)
    assert counted(place, store) == {("dark", "unknown-plan"): (1, 2)}


def test_an_upload_with_nothing_acceptable_counts_each_time_it_comes(
    place: Place, store: Store, asked: Registry
) -> None:
    body = body_of(registry(rev=9), {"dark": [1, 1]})
    for times in (1, 2):
        assert isinstance(answer(store, body), Problem)
        assert counted(place, store) == {("dark", "unknown-plan"): (times, 2 * times)}
    store.retire("dark", 1)
    assert isinstance(answer(store, body_of(asked, {"dark": [1]})), Problem)
    assert counted(place, store)["dark", "retired"] == (1, 1)
    assert store.ledger() == []


def test_the_uploads_of_a_batch_are_added_over_all_shards(place: Place, store: Store, asked: Registry) -> None:
    bodies = [
        spoiled(body_in(store, number % store.shards, asked, {"color": [1]}), group("dark"), group(f"m{number}"))
        for number in range(20)
    ]
    store.append([parsed(store, body) for body in bodies])
    assert counted(place, store) == {("dark", "unknown-plan"): (20, 40), ("", "unknown-metric"): (20, 40)}


def test_a_stranger_adds_no_row(place: Place, store: Store, asked: Registry) -> None:
    """Names of metrics, plans, types and texts that are none: they all have one row a reason."""
    names: list[object] = [f"m{number}" for number in range(100)]
    names += [
        *("dark ", "dark\n", "Dark", "dark:x", "\ud800", "'; DROP TABLE refused", "", "d" * 9_999, 7, None),
        ["dark"],
    ]
    for name in names:
        answer(store, spoiled(emptied(body_of(asked, {"color": [1]})), group(name)))
    assert set(counted(place, store)) == {("", "unknown-metric"), ("", "malformed")}
    assert sum(groups for groups, _ in counted(place, store).values()) == len(names)


def test_a_group_counts_on_the_day_on_which_it_came(place: Place, store: Store, asked: Registry) -> None:
    """The day never goes back, also where nothing but refused groups came on it."""
    body = body_of(registry(rev=9), {"dark": [1]})
    answer(store, body)
    place.travel(2)
    answer(store, body)
    place.travel(-1)
    answer(store, body)
    assert counted(place, store) == {("dark", "unknown-plan"): (1, 1)}
    assert counted(place, store, 1) == {}
    assert counted(place, store, 2) == {("dark", "unknown-plan"): (2, 2)}
    assert len(store.refused(place.day(), place.day(2))) == 2


def test_old_counts_are_forgotten(place: Place, store: Store, asked: Registry) -> None:
    body = body_of(registry(rev=9), {"dark": [1]})
    answer(store, body)
    place.travel(1)
    answer(store, body)
    place.travel(REFUSED_DAYS - 2)
    for shard in range(store.shards):
        store.forget(shard)
    assert counted(place, store) == counted(place, store, 1) == {("dark", "unknown-plan"): (1, 1)}
    place.travel(1)
    for shard in range(store.shards):
        store.forget(shard)
    assert counted(place, store) == {}
    assert counted(place, store, 1) == {("dark", "unknown-plan"): (1, 1)}


def test_a_commit_that_fails_counts_nothing(asked: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails at its last statement; what is sent again counts once. A script of Redis is whole by itself."""
    with closing(SQLitePlace(tmp_path)) as place:
        store = place.make(asked)
        body = spoiled(body_of(asked, {"color": [1]}), group("dark"))
        with monkeypatch.context() as patch:
            patch.setattr(schema, "REFUSED", "CREATE TABLE of no kind")
            with pytest.raises(StoreUnavailable):
                append(store, body)
        assert (balance(store), counted(place, store)) == ((0, 0, 0, 0), {})
        assert not append(store, body).duplicate
        assert counted(place, store) == {("dark", "unknown-plan"): (1, 2)}


# Dumps, backups, damage.


def test_a_backup_brings_the_counts_back(
    place: Place, store: Store, asked: Registry, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for after in range(3):
        for shard in range(store.shards):
            append(store, spoiled(body_in(store, shard, asked, {"color": [1]}), group("dark"), group("nothing")))
        if after < 2:
            fold_all(store)
            place.travel(1)
            seal_all(store)
    before = store.refused(place.day(), place.day(2))
    assert sum(before.values(), RefusedCount()) == RefusedCount(6 * store.shards, 12 * store.shards)
    dump.write(tmp_path / "backup.gz", store.dump())
    with closing(place_of(other_kind(place), tmp_path / "other", request, 1, 3)) as target:
        restore(target.begin(), dump.read(tmp_path / "backup.gz"))
        target.travel(2)
        made = target.open()
        assert made.refused(place.day(), place.day(2)) == before
        assert list(check(made)) == []
        append(made, spoiled(body_of(asked, {"color": [1]}), group("dark")))
        key = RefusedKey(place.day(2), "dark", "unknown-plan")
        assert made.refused(place.day(2), place.day(2))[key] == before[key] + RefusedCount(1, 2)


def test_a_backup_of_an_older_release_has_no_counts(store: Store, tmp_path: Path) -> None:
    for record in store.dump():
        if isinstance(record, ShardRecord):
            document = record.to_document()
            del document["refused"]
            assert ShardRecord.from_document(document) == record


def write_refused(place: Place, key: RefusedKey, refused: RefusedCount) -> None:
    """Write a count past every check."""
    day = day_number(key.day)
    if isinstance(place, RedisPlace):
        place.redis.execute_command("HSET", layout.shard_key(0, "refused", day), *refused_fields(key, refused))
        place.redis.zadd(layout.shard_key(0, "refused"), {str(day): day})
    elif isinstance(place, SQLitePlace):
        with closing(sqlite3.connect(place.directory / FILE_NAME)) as db, db:
            db.execute(schema.REFUSED)
            row = key.day.isoformat(), key.metric, key.reason, refused.groups, refused.reports
            db.execute("INSERT INTO refused VALUES (?, ?, ?, ?, ?)", row)


@pytest.mark.parametrize(
    ("metric", "reason", "refused", "said"),
    [
        ("dark", "expired", RefusedCount(1, -1), "1 groups with -1 reports cannot be"),
        ("dark", "expired", RefusedCount(-1, 1), "-1 groups with 1 reports cannot be"),
        ("dark", "mood", RefusedCount(1, 1), "nothing is refused because of 'mood'"),
        ("nothing", "expired", RefusedCount(1, 1), "the store has no plan of 'nothing'"),
        ("", "unknown-metric", RefusedCount(1, 0), ""),
    ],
)
def test_a_damaged_count_is_found(
    metric: str, reason: str, refused: RefusedCount, said: str, place: Place, store: Store
) -> None:
    seal_all(store)  # its day is the clock's now
    write_refused(place, RefusedKey(place.day(), metric, reason), refused)
    assert list(check(store)) == ([f"shard 0, refused on {place.day()}: {said}"] if said else [])


# Older stores.


def test_a_file_without_the_table_has_no_counts_until_the_first(tmp_path: Path, asked: Registry) -> None:
    """Such a file is what an older release wrote: it gets its table with the first group that is refused."""

    def has_table() -> bool:
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
            return schema.has_table(db, "refused")

    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        store.load(asked)
        append(store, body_of(asked, {"color": [1]}))
        store.forget(0)
        with closing(SQLiteStore(tmp_path, read_only=True)) as reader:
            assert reader.refused(store.today(), store.today()) == {}
            assert not has_table()
            append(store, spoiled(body_of(asked, {"color": [1]}), group("dark")))
            assert has_table()
            assert list(reader.refused(store.today(), store.today()).values()) == [RefusedCount(1, 2)]


def _append_with(old: str, new: str) -> Callable[..., object]:
    source = inspect.getsource(SQLiteStore._append)
    assert old in source
    made = dict(vars(sqlite_store))
    exec(textwrap.dedent(source.replace(old, new)), made)
    return cast("Callable[..., object]", made["_append"])


def _script_with(old: str, new: str) -> scripts.Script:
    assert old in scripts.APPEND.text
    return scripts.script(scripts.APPEND.text.replace(old, new).partition("\n")[2])


@pytest.mark.parametrize(
    ("lua", "python", "caught_by"),
    [
        (
            ("known[id] and '' or refusals", "refusals"),
            (
                "if body is None and item.refused",
                "if item.refused",
            ),
            test_a_copy_that_is_known_counts_nothing,
        ),
        (
            ("refused['n:' .. why] = (refused['n:' .. why] or 0) + n", "refused['n:' .. why] = n"),
            ("sum_refused(refused)", "{key: one for part in refused for key, one in part.items()}"),
            test_the_uploads_of_a_batch_are_added_over_all_shards,
        ),
        (
            ("if #entries > 0 or next(refused) then advance() end", "if #entries > 0 then advance() end"),
            ("RefusedKey(today, *reason)", "RefusedKey(self.clock_day(), *reason)"),
            test_a_group_counts_on_the_day_on_which_it_came,
        ),
    ],
    ids=["counts a copy", "does not add", "lets the day go back"],
)
def test_a_planted_bug_is_caught(
    lua: tuple[str, str],
    python: tuple[str, str],
    caught_by: Callable[[Place, Store, Registry], None],
    place: Place,
    store: Store,
    asked: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = _script_with(*lua)
    monkeypatch.setattr(scripts, "APPEND", script)
    monkeypatch.setattr(SQLiteStore, "_append", _append_with(*python))
    with pytest.raises(AssertionError):
        caught_by(place, store, asked)
