"""Reading a store in Redis at one instant, in bounded steps."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dither_aggregator.store import Store
from dither_aggregator.store.contract import with_pending
from dither_aggregator.store.dump import ShardRecord, TallyRecord
from dither_aggregator.store.records import Counted, Poison, Segment, count_pending, fold_read, pack_counts
from dither_aggregator.store.redis import RedisStore, moving, redis_store
from dither_aggregator.store.redis.client import Client
from dither_aggregator.store.redis.redis_store import INSTANT_ATTEMPTS
from dither_aggregator.store.restoring import restore
from dither_shared.registry import Registry
from tests.support.redis_servers import RedisServer
from tests.support.stores import (
    RedisPlace,
    append,
    balance,
    body_in,
    fold_all,
    seal_all,
)


@pytest.fixture
def kind() -> str:
    return "redis"


# Reading at one instant.


def test_a_ledger_is_of_one_instant_however_fast_the_counters_are(
    server: RedisServer, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody folds whenever the log is being read: at last all of it is read in one step."""
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(30):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
        pending = RedisStore._pending
        tried = []

        def overtaken(self: RedisStore, *arguments: Any) -> object:
            fold_all(store)
            append(store, body_in(store, 0, asked, {"dark": [1]}))
            tried.append(1)
            return pending(self, *arguments)

        monkeypatch.setattr(RedisStore, "_pending", overtaken)
        (row,) = store.shard_ledger(0).values()
        assert len(tried) == INSTANT_ATTEMPTS
        assert row == Counted(30 + len(tried), 29 + len(tried), 1, 0, 0)


def test_a_long_log_is_counted_in_pieces(server: RedisServer, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_store, "READ_UPLOADS_MAX", 7)
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(40):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
        assert balance(store) == (40, 0, 40, 0)
        store.fold(0)
        assert balance(store) == (40, 7, 33, 0)


def poisoned(store: Store, asked: Registry) -> None:
    """Fold an upload of whose groups one cannot be counted."""
    append(store, body_in(store, 0, asked, {"color": [1, 1], "dark": [1]}))
    read = store.read_log(0)
    color, dark = read.groups
    segments, _ = fold_read(read._replace(groups=[dark]), {dark.plan: store.plan_by_id(dark.plan).plan.cells})
    assert store.commit_fold(0, read, segments, [Poison(color, "poison")])


def once(monkeypatch: pytest.MonkeyPatch, name: str, meanwhile: Callable[[], object]) -> list[int]:
    """Do something else after the first call of a method of the store; return a list of its calls."""
    method, calls = getattr(RedisStore, name), []

    def overtaken(self: RedisStore, *arguments: Any) -> Any:
        calls.append(1)
        result = method(self, *arguments)
        if len(calls) == 1:
            meanwhile()
        return result

    monkeypatch.setattr(RedisStore, name, overtaken)
    return calls


def dumped_ledger(store: Store) -> dict[Any, Counted]:
    """Return a dump's ledger of the first shard, with what its log holds and only what its quarantine does."""
    (record,) = (one for one in store.dump() if isinstance(one, ShardRecord) and one.shard == 0)
    held: dict[Any, int] = {}
    for group, _ in record.quarantine:
        held[group.plan, group.epoch] = held.get((group.plan, group.epoch), 0) + group.n
    assert {key: row.quarantined - row.dropped for key, row in record.ledger.items() if row.quarantined} == held
    return with_pending(record.ledger, count_pending(record.entries))


def test_a_dump_reads_all_of_a_shard_that_can_change_in_one_step(
    place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload with a refused group that comes right behind that step is in no part of it."""
    store, other = place.make(asked), place.open()

    def send() -> None:
        document = json.loads(body_in(store, 0, asked, {"dark": [1]}))
        document["groups"].append({"metric": "nothing", "plan": "0" * 16, "reports": [1]})
        append(other, json.dumps(document).encode())

    def of_first_shard() -> list[object]:
        found = store.dump()
        record = next(one for one in found if isinstance(one, ShardRecord))
        return [record, next(found)]

    send()
    calm, read, calls = of_first_shard(), Client.read_at_once, list[int]()

    def overtaken(self: Client, commands: Any) -> Any:
        found = read(self, commands)
        calls.append(1)
        if len(calls) == 1:
            send()
        return found

    monkeypatch.setattr(Client, "read_at_once", overtaken)
    assert of_first_shard() == calm
    assert of_first_shard() != calm


@pytest.mark.parametrize("how", ["shard_ledger", "dump"])
@pytest.mark.parametrize("step", ["replay", "drop"])
def test_what_leaves_the_quarantine_while_sealed_days_are_read_is_read_again(
    step: str, how: str, place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    poisoned(store, asked)
    poisoned(store, asked)
    place.travel(2)
    seal_all(store)
    other = place.open()
    calls = once(monkeypatch, "_settled", lambda: getattr(other, step)("0-1"))
    rows = store.shard_ledger(0) if how == "shard_ledger" else dumped_ledger(store)
    assert calls == ([1, 1] if how == "shard_ledger" else [1] * (1 + store.shards))
    if how == "shard_ledger" or step == "replay":
        assert all(row.accepted == row.folded + row.pending + row.quarantined for row in rows.values()), rows
    assert sum(row.pending for row in rows.values()) == (2 if step == "replay" else 0)
    assert sum(row.dropped for row in rows.values()) == (2 if step == "drop" else 0)


@pytest.mark.parametrize("how", ["shard_ledger", "dump"])
def test_a_day_that_begins_while_a_ledger_is_read_is_in_it(
    how: str, place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    other = place.open()

    def tomorrow() -> None:
        place.travel(1)
        append(other, body_in(other, 0, asked, {"dark": [1, 1]}))
        other.fold(0)

    once(monkeypatch, "_settled", tomorrow)
    rows = store.shard_ledger(0) if how == "shard_ledger" else dumped_ledger(store)
    assert {epoch: row for (_, epoch), row in rows.items()} == {
        place.day(): Counted(1, 1),
        place.day(1): Counted(2, 2),
    }


def test_a_tally_that_begins_while_its_names_are_read_is_in_the_dump(
    place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    fold_all(store)
    append(store, body_in(store, 0, asked, {"color": [1, 1]}))
    once(monkeypatch, "_read_ahead", lambda: fold_all(store))
    tallies = [record for record in store.dump() if isinstance(record, TallyRecord)]
    assert sorted(record.n for record in tallies) == [1, 2]


@pytest.mark.parametrize("folds", range(3), ids=["as-it-was", "folded-meanwhile", "overtaken"])
def test_a_long_log_is_dumped_in_pieces(
    folds: int, place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.make(asked)
    append(store, body_in(store, 0, asked, {"dark": [1]}))
    fold_all(store)
    for _ in range(40):
        append(store, body_in(store, 0, asked, {"dark": [1]}))
    for module in (redis_store, moving):
        monkeypatch.setattr(module, "READ_UPLOADS_MAX", 7)

    def meanwhile() -> None:
        if folds == 1:
            store.fold(0)
        elif folds == 2:
            fold_all(store)
            append(store, body_in(store, 0, asked, {"dark": [1]}))
            fold_all(store)
        append(store, body_in(store, 0, asked, {"dark": [1]}))

    once(monkeypatch, "_read_ahead", meanwhile)
    (row,) = dumped_ledger(store).values()
    assert row == [Counted(42, 1, 41), Counted(42, 8, 34), Counted(43, 42, 1)][folds]


def test_no_reply_holds_redis_up_for_all_that_a_shard_has(
    place: RedisPlace, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of days, of which each has a row in the ledger and a tally: each is looked at in pieces."""
    store = place.begin()
    store.load(asked)
    plan, days = store.stored(asked.metrics["dark"].plan).id, [place.day(-2 - day) for day in range(365)]
    rows = {(plan, day): Counted(1, 1) for day in days}
    store.fill_shard(ShardRecord(0, place.day(), place.day(-1), 1, (), rows))
    store.fill_segments(0, [Segment(plan, day, 0, 1, 1, pack_counts(np.array([1, 1, 0]))) for day in days])
    for shard in range(1, store.shards):
        store.fill_shard(ShardRecord(shard, place.day(), place.day(-1), 0, ()))
    store.finish()
    monkeypatch.setattr(redis_store, "SCAN_ITEMS", 20)
    longest: list[int] = []
    send = Client._send

    def measured(self: Client, commands: Any, together: bool) -> list[Any]:
        replies = send(self, commands, together)
        longest.extend(sum(map(_items, replies)) if together else _items(reply) for reply in replies)
        return replies

    monkeypatch.setattr(Client, "_send", measured)
    assert len(store.ledger()) == 365
    assert sum(isinstance(record, TallyRecord) for record in store.dump()) == 365
    assert max(longest) < 120
    place.redis.config_resetstat()
    assert store.integrity() == []
    assert place.redis.info("commandstats")["cmdstat_evalsha"]["calls"] > 365 / 120


def _items(reply: object) -> int:
    return sum(map(_items, reply)) if isinstance(reply, list | dict) else 1


def test_a_copy_with_other_shards_knows_ids_of_days_that_its_shards_had_not_used(
    redis_servers: tuple[RedisServer, RedisServer], asked: Registry
) -> None:
    """The last of 4 shards was ahead. Its ids go to the last of 3, everything else of it to the first."""
    source, target = (RedisPlace(server, shards) for server, shards in zip(redis_servers, (4, 3), strict=True))
    with closing(source), closing(target):
        store = source.make(asked)
        source.travel(5)
        bodies = [body_in(store, 3, asked, {"dark": [1]}) for _ in range(3)]
        for body in bodies:
            append(store, body)
        restore(target.begin(), store.dump())
        target.travel(0)
        copy = target.open()
        assert copy.clock_day() < copy.today()
        assert all(append(copy, body).duplicate for body in bodies)
