"""Each effect of a store stays within one slot of Redis, as a cluster wants it, under the keys that are documented."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from dither_aggregator.store import Receipt, Store
from dither_aggregator.store.document_kinds import DayMark, Retention
from dither_aggregator.store.records import Final, sum_segments
from dither_aggregator.store.redis import layout
from dither_shared.registry import Registry
from tests.support.redis_servers import RedisServer, running_cluster
from tests.support.stores import RedisPlace, answer, append, balance, body_in, body_of, fold_all, parsed, seal_all


@pytest.fixture
def kind() -> str:
    return "redis"


def test_the_keys_of_a_shard_lie_in_one_slot(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        store = _lived(place, asked)
        keys = list(place.redis.scan_iter())
        slots: dict[str, set[int]] = {}
        for key in keys:
            slots.setdefault(key.decode().split(":")[1], set()).add(key_slot(key))
        assert slots.keys() == {"{g}", "{0}", "{1}", "{2}", "{3}"}
        assert all(len(of_one) == 1 for of_one in slots.values())
        assert len(set.union(*slots.values())) == 5
        documented = re.findall(r"^    (dither:\S+)", layout.__doc__ or "", re.MULTILINE)
        patterns = [re.sub("[A-Z]+", "[^:]+", re.escape(name).replace(r"\{3\}", r"\{\d+\}")) for name in documented]
        for key in keys:
            assert any(re.fullmatch(pattern, key.decode()) for pattern in patterns), key
        assert store.integrity() == []


def test_every_effect_stays_within_a_slot(tmp_path: Path, asked: Registry) -> None:
    """A Redis Cluster refuses what does not; one node that has all slots is a cluster."""
    with running_cluster(tmp_path / "redis", 1, 0) as cluster, closing(RedisPlace(cluster)) as place:
        store = _lived(place, asked)
        assert balance(store) == (45, 43, 0, 2)
        assert list(store.dump())
        assert place.open().ledger() == store.ledger()


def _lived(place: RedisPlace, asked: Registry) -> Store:
    """A store that has done everything once."""
    store = place.make(asked)
    answers = store.append([parsed(store, body_of(asked, {"color": [1], "dark": [1]})) for _ in range(21)])
    assert all(isinstance(one, Receipt) for one in answers)
    append(store, body_in(store, 0, asked, {"color": [1, 1]}))
    place.change_log(lambda entry: entry[:-2] + b"\xff\xff" if entry.endswith(b"\x01\x01") else entry)
    fold_all(store)
    assert store.drop("0-1")
    assert not isinstance(answer(store, body_of(asked, {"dark": [1]})), Exception)
    fold_all(store)
    return _aged(place, store, asked)


def _aged(place: RedisPlace, store: Store, asked: Registry) -> Store:
    plan = asked.metrics["dark"].plan
    for shard in range(store.shards):
        if segments := store.segments(shard, store.stored(plan).id, place.day()):
            assert store.replace_segments(shard, segments, sum_segments(segments))
    store.finalize(plan, place.day(), Final("digest", "a" * 64), b"content")
    store.retire("dark", 1)
    place.travel(1)
    seal_all(store)
    for shard in range(store.shards):
        store.merge(shard)
    assert store.merged() == place.day()
    assert store.erase() == ""
    store.put(Retention(100, 0))
    store.put(DayMark(place.day(), "version 158"))
    for shard in range(store.shards):
        store.forget(shard)
    store.forget_snapshots()
    store.finalize(plan, place.day(1), Final("digest", "b" * 64), b"content")
    return store


def test_nothing_asks_for_all_keys(server: RedisServer, asked: Registry) -> None:
    with closing(RedisPlace(server)) as place:
        before: dict[str, Any] = place.redis.info("commandstats")
        _lived(place, asked)
        after: dict[str, Any] = place.redis.info("commandstats")
        for command in ("cmdstat_keys", "cmdstat_scan"):
            assert before.get(command, {"calls": 0})["calls"] == after.get(command, {"calls": 0})["calls"]
