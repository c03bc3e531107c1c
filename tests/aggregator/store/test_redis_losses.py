"""A Redis that is restarted, has lost a part of what it held, has no memory, or is damaged."""

import re
import threading
from contextlib import closing
from typing import Any

import pytest

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.store import Receipt, StoreError, StoreUnavailable
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.dump import ShardRecord
from dither_aggregator.store.records import fold_read, sum_segments
from dither_aggregator.store.redis import RedisStore, layout, scripts
from dither_aggregator.store.redis.client import Client
from dither_aggregator.store.redis.layout import tally_name
from dither_shared.registry import Registry
from tests.support.redis_servers import RedisServer
from tests.support.stores import (
    RedisPlace,
    append,
    balance,
    body_in,
    body_of,
    fold_all,
    parsed,
    seal_all,
    store_on,
)


@pytest.fixture
def kind() -> str:
    return "redis"


def test_nothing_is_lost_or_doubled_when_redis_is_killed(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        bodies = [body_of(asked, {"color": [1, 2], "dark": [0]}) for _ in range(60)]
        for number, body in enumerate(bodies):
            append(store, body)
            if number % 20 == 10:
                own.restart()
            if number % 15 == 7:
                store.fold(number % 4)
        assert store.trouble() == {}
        assert all(append(store, body).duplicate for body in bodies)
        fold_all(store)
        assert balance(store) == (180, 180, 0, 0)


# Restarts, and what they lose.


def test_scripts_that_redis_has_forgotten_are_loaded_and_run_once(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store, closing(server.client()) as client:
        for _ in range(3):
            client.script_flush()
            batch = [parsed(store, body_of(asked, {"dark": [1]})) for _ in range(20)]
            answers = store.append([*batch, *batch])
            assert [one.duplicate for one in answers if isinstance(one, Receipt)] == [False] * 20 + [True] * 20
            client.script_flush()
            fold_all(store)
            client.script_flush()
            assert store.ledger()
            client.script_flush()
            assert list(store.dump())
        assert balance(store) == (60, 60, 0, 0)


def test_a_dump_is_of_one_instant_though_redis_has_forgotten_a_script_that_it_needs(
    server: RedisServer, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part of the missing script is not read later than the rest."""
    with closing(store_on(server, asked)) as store, closing(RedisStore(server.url)) as other:
        append(store, body_in(store, 0, asked, {"dark": [1, 0]}))
        load = Client._load

        def meanwhile(self: Client, commands: Any) -> None:
            monkeypatch.undo()
            append(other, body_in(other, 0, asked, {"dark": [1]}))
            load(self, commands)

        with closing(server.client()) as client:
            client.script_flush()
            for script in scripts.SCRIPTS.values():
                if script is not scripts.LEDGER_NOW:
                    client.script_load(script.text)
        monkeypatch.setattr(Client, "_load", meanwhile)
        (record,) = (one for one in store.dump() if isinstance(one, ShardRecord) and one.shard == 0)
        (row,) = record.ledger.values()
        assert (row.accepted, len(record.entries)) == (3, 2)


def cut(server: RedisServer, number_of_bytes: int) -> None:
    """Kill the server, cut the end off its file, repair that, and start it again."""
    server.kill()
    (file,) = server.directory.glob("appendonlydir/*.incr.aof")
    content = file.read_bytes()
    file.write_bytes(content[:-number_of_bytes])
    server.repair()
    server.start()


def test_acknowledged_uploads_that_are_gone_are_told_for_good(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        for _ in range(8):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        assert store.trouble() == {}
        cut(own, 10)
        assert "has lost 1 uploads that it had acknowledged" in store.trouble()[Trouble.LOST]
        append(store, body_in(store, 1, asked, {"dark": [1]}))
        append(store, body_in(store, 1, asked, {"dark": [1]}))
        assert "has lost 1 uploads" in store.trouble()[Trouble.LOST]
        fold_all(store)
        assert balance(store) == (9, 9, 0, 0)
    with closing(RedisStore(own.url)) as again:
        assert again.trouble() == {}


def test_a_loss_is_seen_in_the_answer_of_an_append(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        for _ in range(8):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        size = len(next(own.directory.glob("appendonlydir/*.incr.aof")).read_bytes())
        for _ in range(3):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        cut(own, len(next(own.directory.glob("appendonlydir/*.incr.aof")).read_bytes()) - size)
        append(store, body_in(store, 1, asked, {"dark": [1]}))
        assert "has lost 2 uploads" in store.trouble()[Trouble.LOST]


def test_many_threads_are_not_taken_for_a_loss(server: RedisServer, asked: Registry) -> None:
    with closing(store_on(server, asked)) as store:

        def work() -> None:
            for _ in range(40):
                append(store, body_in(store, 0, asked, {"dark": [1]}))
                store.status()

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.trouble() == {}
        assert store.status()[0].written == 240


def test_a_counter_that_read_what_is_gone_changes_nothing(own: RedisServer, asked: Registry) -> None:
    """The file was cut between read and commit, and other uploads came in the place of the lost ones."""
    with closing(store_on(own, asked)) as store:
        for _ in range(3):
            append(store, body_in(store, 1, asked, {"dark": [1]}))
        read = store.read_log(1)
        counted = fold_read(read, {item.id: item.plan.cells for item in store.plans()})
        cut(own, 10)
        append(store, body_in(store, 1, asked, {"dark": [0]}))
        assert store.status()[1].written == 3
        assert not store.commit_fold(1, read, *counted)
        fold_all(store)
        day = store.today()
        assert store.tally(asked.metrics["dark"].plan, day).counts.tolist() == [3, 1, 2]
        assert balance(store) == (3, 3, 0, 0)


def test_a_compaction_that_read_what_is_gone_changes_nothing(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store:
        for report in (1, 1, 1):
            append(store, body_in(store, 1, asked, {"dark": [report]}))
            fold_all(store)
        plan, day = store.stored(asked.metrics["dark"].plan).id, store.today()
        old = store.segments(1, plan, day)
        cut(own, 10)
        assert len(store.segments(1, plan, day)) == 2
        fold_all(store)
        assert not store.replace_segments(1, old, sum_segments(old))
        assert store.compact(1) == 0
        assert store.tally(asked.metrics["dark"].plan, day).n == 3
        assert balance(store) == (3, 3, 0, 0)


@pytest.mark.parametrize("lost", [1, 40, 100, 200, 400, 800, 1_500])
def test_a_file_that_is_cut_anywhere_balances(own: RedisServer, asked: Registry, lost: int) -> None:
    with closing(store_on(own, asked)) as store:
        for number in range(10):
            append(store, body_of(asked, {"color": [1, 2], "dark": [0]}))
            if number % 3 == 0:
                fold_all(store)
        cut(own, lost)
        assert store.integrity() == []
        accepted, _, _, quarantined = balance(store)
        fold_all(store)
        assert balance(store) == (accepted, accepted, 0, quarantined)
        assert store.integrity() == []


# Memory.


def test_without_memory_nothing_is_taken_and_what_is_there_is_folded(own: RedisServer, asked: Registry) -> None:
    with closing(store_on(own, asked)) as store, closing(own.client()) as client:
        first, second = body_of(asked, {"dark": [1]}), body_of(asked, {"dark": [1]})
        append(store, first)
        client.config_set("maxmemory", "1")
        for body in (first, second):
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                append(store, body)
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            store.retire("dark", 1)
        store.put(Retention(tallies_days=400))  # which may make room
        assert store.retention() == Retention(400, None)
        assert balance(store) == (1, 0, 1, 0)
        fold_all(store)
        seal_all(store)
        for shard in range(store.shards):
            store.forget(shard)
            store.compact(shard)
        assert balance(store) == (1, 1, 0, 0)
        assert store.trouble() == {}
        client.config_set("maxmemory", "0")
        assert append(store, first).duplicate
        assert not append(store, second).duplicate


# Damage.


def test_a_log_that_lacks_uploads_is_not_folded(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(3):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
        place.redis.ltrim(layout.shard_key(0, "log"), 1, -1)
        with pytest.raises(StoreError, match="the log of shard 0 holds 2 uploads of 3"):
            store.fold(0)
        assert store.integrity() == ["shard 0: the log holds 2 uploads, and 3 are to be folded"]


def test_a_tally_that_lacks_segments_is_found(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        for _ in range(2):
            append(store, body_in(store, 0, asked, {"dark": [1]}))
            fold_all(store)
        name = tally_name(store.stored(asked.metrics["dark"].plan).id, place.day())
        place.redis.lpop(layout.shard_key(0, "tally", name))
        (found,) = store.integrity()
        assert re.fullmatch(rf"shard 0: the tally of plan \d+ on {place.day()} lacks segments, or has too many", found)


def test_what_is_cut_off_is_damaged(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        append(store, body_in(store, 0, asked, {"dark": [1]}))
        place.redis.rpush(layout.shard_key(0, "tally", tally_name(1, place.day(-2))), b"short")
        place.redis.zadd(layout.shard_key(0, "tallies"), {tally_name(1, place.day(-2)): 1})
        with pytest.raises(StoreError, match="is damaged: a segment is cut off"):
            store.merge(0)
        place.redis.lset(layout.shard_key(0, "log"), 0, b"short")
        with pytest.raises(StoreError, match="is damaged: an entry of the log is cut off"):
            store.seal(0)
        place.redis.hset(layout.shard_key(0, "quarantine"), "1", b"short")
        for use in (store.replay, store.drop):
            with pytest.raises(StoreError, match="is damaged: a quarantined group is cut off"):
                use("0-1")
        with pytest.raises(StoreError, match="the quarantined group 0-1 is damaged"):
            store.quarantined()


def test_a_key_of_another_kind_is_an_error_in_words(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = place.make(asked)
        place.redis.set(layout.shard_key(0, "log"), "text")
        with pytest.raises(StoreError, match="cannot be used: WRONGTYPE"):
            store.read_log(0)
