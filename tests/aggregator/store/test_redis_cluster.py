"""A Redis Cluster under a store: what it refuses, and what failovers, lost replicas and moving slots leave."""

import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from redis.crc import key_slot

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.store import Receipt, Store, StoreError, StoreUnavailable, create_store, open_store
from dither_aggregator.store.invariants import check as fsck
from dither_aggregator.store.redis import client, layout
from dither_shared.registry import Registry
from dither_shared.wire.reading import Problem
from tests.faults.aggregator.load import REGISTRY_TEXT
from tests.support.aggregators import dither
from tests.support.forwarding import Network
from tests.support.redis_servers import RedisCluster, RedisServer, redis_cli, running_cluster, valkey_server
from tests.support.stores import append, balance, body_in, body_of, fold_all, parsed, store_on
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with running_cluster(tmp_path_factory.mktemp("nodes")) as running:
        yield running


@pytest.fixture
def nodes(of_all: RedisCluster) -> RedisCluster:
    """A cluster that a test may spoil and leaves running: three primaries with a replica each, and nothing in them."""
    return emptied(of_all)


def emptied(cluster: RedisCluster) -> RedisCluster:
    cluster.settled()
    cluster.client().flushall()
    wait_until(lambda: not any(node.ask("DBSIZE") for node in cluster.nodes))
    return cluster


@pytest.fixture
def store(nodes: RedisCluster, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with closing(create_store(nodes.url, "example", 8)) as made:
        made.load(asked)
        monkeypatch.setattr(client, "WAIT_MS", 1_000)
        yield made


@contextmanager
def stopped(node: RedisServer) -> Iterator[None]:
    """Let a node do nothing meanwhile."""
    assert node.process
    node.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)


def test_a_node_given_as_a_single_redis_is_refused_and_left_empty(nodes: RedisCluster, tmp_path: Path) -> None:
    single = nodes.nodes[0].url
    registry = tmp_path / "metrics.toml"
    registry.write_text(REGISTRY_TEXT, encoding="utf-8")
    made = dither("init", registry, "--data", single)
    assert made.returncode == 2
    assert "is a node of a Redis Cluster" in made.stderr
    assert "redis+cluster://" in made.stderr
    assert [node.ask("DBSIZE") for node in nodes.nodes] == [0] * 6
    told = json.loads(dither("doctor", "--data", single, "--json").stdout)
    (opening,) = (one for one in told["checks"] if one["check"] == "opening")
    assert "redis+cluster://" in opening["value"]
    assert "init" not in opening["value"] + opening["hint"]


def test_a_single_redis_given_as_a_cluster_is_refused(server: RedisServer) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        open_store(server.url.replace("redis://", "redis+cluster://").removesuffix("/0"))


def test_a_store_moves_from_one_redis_to_a_cluster(server: RedisServer, nodes: RedisCluster, asked: Registry) -> None:
    bodies = [body_of(asked, {"dark": [1], "color": [2]}) for _ in range(30)]
    with closing(store_on(server, asked)) as before:
        before.append([parsed(before, body) for body in bodies[:20]])
        fold_all(before)
        before.append([parsed(before, body) for body in bodies[20:]])
        moved = dither("store", "copy", "--data", server.url, "--to", nodes.url.partition("?")[0], "--json")
        assert moved.returncode == 0, moved.stderr
        with pytest.raises(StoreUnavailable, match="copied to another"):
            append(before, bodies[0])
    with pytest.raises(StoreError, match="was copied to another: serve that one"):
        open_store(server.url)
    with closing(open_store(nodes.url)) as after:
        answers = after.append([parsed(after, body) for body in bodies])
        assert all(isinstance(one, Receipt) and one.duplicate for one in answers)
        fold_all(after)
        assert balance(after) == (60, 60, 0, 0)
        assert list(fsck(after)) == []


def test_a_copy_that_fails_leaves_the_old_store_in_use(
    server: RedisServer, nodes: RedisCluster, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StoreError("the copy is another")

    monkeypatch.setattr("dither_aggregator.store.restoring._compare", fails)
    with closing(store_on(server, asked)) as before:
        assert dither("store", "copy", "--data", server.url, "--to", nodes.url).returncode != 0
        assert not append(before, body_of(asked, {"dark": [1]})).duplicate
    with pytest.raises(StoreError, match="not filled to its end"):
        open_store(nodes.url)


@pytest.mark.parametrize(
    "name", ["redis+cluster://", "redis+cluster://h:x", "redis+cluster://h:1/3", "redis+cluster://h:1?replicas=9"]
)
def test_what_is_no_address_of_a_cluster_is_told(name: str) -> None:
    with pytest.raises(StoreError, match="is not the address of a cluster"):
        open_store(name)


def test_a_slot_that_is_being_moved_takes_nothing_and_is_left_as_it_was(
    nodes: RedisCluster, store: Store, asked: Registry
) -> None:
    """Its ledger's key has moved, and the log's has not: a script that began would leave one without the other."""
    bodies = [body_in(store, 0, asked, {"dark": [1]}) for _ in range(3)]
    append(store, bodies[0])
    ledger = layout.shard_key(0, "ledger", store.stored(asked.metrics["dark"].plan).id)
    source, target = nodes.owner(ledger), nodes.other(ledger)
    move = nodes.moving(ledger, target)
    next(move)
    source.ask("MIGRATE", "127.0.0.1", target.port, ledger, 0, 5_000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.append([parsed(store, bodies[1])])
    with pytest.raises(StoreUnavailable):
        store.shard_ledger(0)
    answers = store.append([parsed(store, body) for body in (bodies[2], body_in(store, 1, asked, {"dark": [1]}))])
    assert isinstance(answers[0], Problem)
    assert answers[0].slug == "unavailable"
    assert isinstance(answers[1], Receipt)
    list(move)
    assert store.status()[0].written == 1
    assert not append(store, bodies[1]).duplicate
    fold_all(store)
    assert balance(store) == (3, 3, 0, 0)
    assert store.integrity() == []


def test_the_first_call_to_all_shards_after_a_slot_has_moved_succeeds(
    nodes: RedisCluster, store: Store, asked: Registry
) -> None:
    """The word of replicas is asked for by a key of the first shard of a node, which is the one that has moved.

    Other shards of that node were done by then, and each shard is done once.
    """
    moves = first_of_nodes(nodes)
    for number, shard in enumerate(moves):
        for _ in nodes.moving(layout.shard_key(shard), nodes.other(layout.shard_key(shard))):
            pass
        assert [one.written for one in store.status()] == [number] * 8
        answers = store.append([parsed(store, body_in(store, each, asked, {"dark": [1]})) for each in range(8)])
        assert [one.duplicate for one in answers if isinstance(one, Receipt)] == [False] * 8
    fold_all(store)
    assert balance(store) == (8 * len(moves), 8 * len(moves), 0, 0)
    assert list(fsck(store)) == []


def test_a_slot_that_is_being_moved_refuses_no_other_shard_of_its_node(
    nodes: RedisCluster, store: Store, asked: Registry
) -> None:
    """The key by which the word of replicas is asked for is on the other node already."""
    shard = first_of_nodes(nodes)[0]
    key = layout.shard_key(shard)
    source, target = nodes.owner(key), nodes.other(key)
    move = nodes.moving(key, target)
    next(move)
    source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5_000)
    bodies = [body_in(store, each, asked, {"dark": [1]}) for each in range(8)]
    answers = store.append([parsed(store, body) for body in bodies])
    assert [place for place, one in enumerate(answers) if not isinstance(one, Receipt)] == [shard]
    list(move)
    answers = store.append([parsed(store, body) for body in bodies])
    assert [one.duplicate for one in answers if isinstance(one, Receipt)] == [each != shard for each in range(8)]


def first_of_nodes(nodes: RedisCluster) -> list[int]:
    """Return the first shard of each node that has several."""
    by_node: dict[int, list[int]] = {}
    for shard in range(8):
        by_node.setdefault(nodes.owner(layout.shard_key(shard)).port, []).append(shard)
    found = [shards[0] for shards in by_node.values() if len(shards) > 1]
    assert found
    return found


def test_nothing_is_acknowledged_or_told_that_the_replica_lacks(
    nodes: RedisCluster, store: Store, asked: Registry
) -> None:
    """Also a copy is not: it may be the primary alone that knows it."""
    body, other = body_in(store, 0, asked, {"dark": [1]}), body_in(store, 0, asked, {"dark": [1]})
    append(store, body)
    with stopped(nodes.owner(layout.shard_key(0), "replica")):
        for sent in (other, other, body):
            with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
                store.append([parsed(store, sent)])
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            store.read_log(0)
        with closing(open_store(nodes.url.replace("replicas=1", "replicas=0"))) as alone:
            assert append(alone, other).duplicate
            assert "a failover loses" in alone.lossy
    assert append(store, other).duplicate
    fold_all(store)
    assert balance(store) == (2, 2, 0, 0)


def test_nothing_is_acknowledged_while_a_replica_has_no_whole_file(
    nodes: RedisCluster, store: Store, asked: Registry
) -> None:
    """It was copied to and still writes its file: killed now, it would come back with the file of before."""
    body = body_in(store, 0, asked, {"dark": [1]})
    replica = nodes.owner(layout.shard_key(0), "replica")
    replica.settings["rdb-key-save-delay"] = "3000000"
    replica.restart()
    nodes.settled()
    assert replica.ask("INFO", "persistence")["aof_rewrite_in_progress"]
    with pytest.raises(StoreUnavailable, match="is not whole yet"):
        append(store, body)
    with closing(open_store(nodes.url)) as begun, pytest.raises(StoreUnavailable, match="is not whole yet"):
        append(begun, body)
    replica.ask("CONFIG SET", "rdb-key-save-delay", 0)
    replica.settings.pop("rdb-key-save-delay")
    replica.restart()
    nodes.settled()
    wait_until(lambda: not replica.ask("INFO", "persistence")["aof_rewrite_in_progress"], 30, "its file being whole")
    assert append(store, body).duplicate
    replica.ask("CONFIG SET", "rdb-key-save-delay", 3_000_000)
    replica.ask("BGREWRITEAOF")  # an ordinary one leaves the file as it is until it has ended
    assert append(store, body).duplicate
    with closing(open_store(nodes.url)) as begun:
        assert append(begun, body).duplicate
    assert replica.ask("INFO", "persistence")["aof_rewrite_in_progress"]
    replica.restart()  # without that rewrite, for the tests that follow


def test_a_failover_keeps_what_was_acknowledged_and_knows_its_copies(
    nodes: RedisCluster, store: Store, asked: Registry
) -> None:
    bodies = [body_of(asked, {"dark": [1]}) for _ in range(40)]
    store.append([parsed(store, body) for body in bodies])
    gone, heir = nodes.owner(layout.shard_key(0)), nodes.owner(layout.shard_key(0), "replica")
    gone.kill()
    wait_until(lambda: heir.ask("ROLE")[0] == b"master", 30, "the replica being elected")
    body = body_in(store, 0, asked, {"dark": [1]})
    wait_until(lambda: "0 of 1 replicas" in _refusal(store, body), 30, "the shard waiting for a replica")
    gone.launch()
    nodes.settled()
    assert gone.ask("ROLE")[0] == b"slave"
    answers = store.append([parsed(store, body) for body in bodies])
    assert all(isinstance(one, Receipt) and one.duplicate for one in answers)
    assert store.trouble() == {}


def _takes(store: Store, body: bytes) -> bool:
    return not _refusal(store, body)


def _refusal(store: Store, body: bytes) -> str:
    try:
        append(store, body)
    except StoreUnavailable as error:
        return str(error)
    return ""


def test_one_more_replica_than_is_waited_for_is_refused(tmp_path: Path) -> None:
    """The cluster might elect the one that was not waited for."""
    with running_cluster(tmp_path / "nodes", 1, 2) as nodes:
        with pytest.raises(StoreError, match=r"with 2 replicas, and 1 are waited for.*--replicas 2"):
            create_store(nodes.url.replace("replicas=2", "replicas=1"), "example", 2)
        assert [node.ask("DBSIZE") for node in nodes.nodes] == [0] * 3
        create_store(nodes.url, "example", 2).close()


def test_settings_by_which_an_empty_or_strange_replica_is_elected_are_refused(tmp_path: Path) -> None:
    with (
        running_cluster(tmp_path / "nodes", 1, 0, cluster_replica_validity_factor="0") as nodes,
        pytest.raises(StoreError, match=r"cluster-replica-validity-factor 0.*It must have"),
    ):
        create_store(nodes.url, "example", 2)


def test_a_node_that_is_away_stops_its_own_shards_alone(nodes: RedisCluster, store: Store, asked: Registry) -> None:
    """Also where it is the one with the plans and keys: they are known by heart."""
    mine = nodes.owner(layout.GLOBAL)
    there = [shard for shard in range(8) if nodes.owner(layout.shard_key(shard)) is not mine]
    away = [shard for shard in range(8) if shard not in there]
    assert there
    assert away
    bodies = [body_in(store, shard, asked, {"dark": [1]}) for shard in (there[0], away[0])]
    assert len(store.last_status()) == 8
    gone = mine, nodes.owner(layout.GLOBAL, "replica")
    for node in gone:
        node.kill()
    taken, refused = store.append([parsed(store, body) for body in bodies])
    assert isinstance(taken, Receipt)
    assert isinstance(refused, Problem)
    store.refresh()
    assert len(store.last_status()) == 8
    with pytest.raises(StoreUnavailable):
        store.status()
    assert store.trouble().keys() == {Trouble.AWAY}
    assert re.match(rf"plans and keys: .*; {len(away)} of 8 shards: ", store.trouble()[Trouble.AWAY])
    with pytest.raises(StoreUnavailable):
        open_store(nodes.url)
    for node in gone:
        node.launch()
    nodes.settled()
    store.refresh()
    assert store.trouble() == {}
    assert append(store, bodies[0]).duplicate
    assert not append(store, bodies[1]).duplicate


def test_a_process_starts_while_shards_are_away_and_takes_the_others(
    nodes: RedisCluster, store: Store, asked: Registry
) -> None:
    mine = nodes.owner(layout.GLOBAL)
    there = [shard for shard in range(8) if nodes.owner(layout.shard_key(shard)) is mine]
    away = next(shard for shard in range(8) if shard not in there)
    gone = [nodes.owner(layout.shard_key(away), role) for role in ("primary", "replica")]
    bodies = [body_in(store, shard, asked, {"dark": [1]}) for shard in (there[0], away)]
    for node in gone:
        node.kill()
    with closing(open_store(nodes.url)) as begun:
        taken, refused = begun.append([parsed(begun, body) for body in bodies])
        assert isinstance(taken, Receipt)
        assert isinstance(refused, Problem)
        assert begun.trouble().keys() == {Trouble.AWAY}
        assert {status.shard for status in begun.last_status()} >= set(there)
        for node in gone:
            node.launch()
        nodes.settled()
        assert len(begun.last_status()) == 8
        assert begun.trouble() == {}
        assert append(begun, bodies[0]).duplicate
        assert not append(begun, bodies[1]).duplicate


# A network that is cut, and a node that dies while a slot moves.


def test_a_primary_that_is_cut_off_acknowledges_nothing_and_what_it_took_is_counted_once(
    networked: tuple[Network, RedisCluster], asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients reach it, and no node does: it goes on for a moment, and another is elected meanwhile."""
    monkeypatch.setattr(client, "WAIT_MS", 500)
    network, nodes = networked[0], emptied(networked[1])
    with closing(create_store(nodes.url, "example", 8)) as store:
        store.load(asked)
        before, cut_off, after = (body_in(store, 0, asked, {"dark": [1]}) for _ in range(3))
        append(store, before)
        first, heir = nodes.owner(layout.shard_key(0)), nodes.owner(layout.shard_key(0), "replica")
        with network.cut(first, *(node for node in nodes.nodes if node is not first)):
            assert "0 of 1 replicas" in _refusal(store, cut_off)
            assert first.ask("HGET", layout.shard_key(0), "written") == b"2"
            with pytest.raises(StoreUnavailable):
                store.read_log(0)
            wait_until(lambda: heir.ask("ROLE")[0] == b"master", 60, "the replica being elected")
            assert heir.ask("HGET", layout.shard_key(0), "written") == b"1"
            for body in (before, cut_off, after):
                assert _refusal(store, body)
        nodes.settled()
        wait_until(lambda: not _refusal(store, before), 60, "the shard being there again")
        assert append(store, before).duplicate
        for body in (cut_off, after):
            append(store, body)
            assert append(store, body).duplicate
        fold_all(store)
        assert balance(store) == (3, 3, 0, 0)
        assert list(fsck(store)) == []


def test_a_node_that_clients_do_not_reach_is_away_for_them_and_loses_nothing(
    networked: tuple[Network, RedisCluster], asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other is elected, because the nodes see each other."""
    monkeypatch.setitem(client.OPTIONS, "socket_timeout", 1)
    network, nodes = networked[0], emptied(networked[1])
    with closing(create_store(nodes.url, "example", 8)) as store:
        store.load(asked)
        bodies = [body_in(store, shard, asked, {"dark": [1]}) for shard in range(8) for _ in range(2)]
        far = nodes.owner(layout.shard_key(0))
        behind = [shard for shard in range(8) if nodes.owner(layout.shard_key(shard)) is far]
        store.append([parsed(store, body) for body in bodies[::2]])
        with network.cut(far):
            answers = store.append([parsed(store, body) for body in bodies[1::2]])
            refused = [shard for shard, one in enumerate(answers) if isinstance(one, Problem)]
            assert refused == behind
        wait_until(lambda: not _refusal(store, bodies[1]), 60, "the node being reached again")
        answers = store.append([parsed(store, body) for body in bodies])
        assert all(isinstance(one, Receipt) for one in answers)
        fold_all(store)
        assert balance(store) == (16, 16, 0, 0)
        assert nodes.owner(layout.shard_key(0)) is far


@pytest.mark.parametrize("dying", ["source", "target"])
def test_a_slot_whose_move_a_dying_primary_cuts_off_is_mended_and_moved_again(
    nodes: RedisCluster, store: Store, asked: Registry, dying: str
) -> None:
    """Some keys have moved; one is on both nodes, as when its source dies before it heard that the other has it."""
    bodies = [body_in(store, 0, asked, {"dark": [1], "color": [0]}) for _ in range(3)]
    store.append([parsed(store, body) for body in bodies[:2]])
    key = layout.shard_key(0)
    source, target = nodes.owner(key), nodes.other(key)
    move = nodes.moving(key, target)
    next(move)
    log, ledger = f"{key}:log", layout.shard_key(0, "ledger", store.stored(asked.metrics["dark"].plan).id)
    source.ask("MIGRATE", "127.0.0.1", target.port, ledger, 0, 5_000)
    source.ask("MIGRATE", "127.0.0.1", target.port, log, 0, 5_000, "COPY")
    assert _refusal(store, bodies[2])
    {"source": source, "target": target}[dying].restart()
    nodes.settled()
    assert _refusal(store, bodies[2])
    redis_cli("--cluster", "fix", f"127.0.0.1:{target.port}", "--cluster-replace")
    nodes.wait_for_owner(key, source)
    wait_until(lambda: not _refusal(store, bodies[0]), 60, "the shard being there again")
    for _ in nodes.moving(key, target):
        pass
    answers = store.append([parsed(store, body) for body in bodies])
    assert [isinstance(one, Receipt) and one.duplicate for one in answers] == [True, True, False]
    fold_all(store)
    assert balance(store) == (6, 6, 0, 0)
    assert list(fsck(store)) == []


def test_on_valkey_disks_of_replicas_are_waited_for_and_a_slot_moves_at_once(
    tmp_path: Path, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_SERVER", valkey_server())
    monkeypatch.setattr(client, "WAIT_MS", 500)
    with running_cluster(tmp_path / "nodes", 2, 1) as nodes, closing(create_store(nodes.url, "example", 4)) as store:
        store.load(asked)
        key = layout.shard_key(0)
        source, target = nodes.owner(key), nodes.other(key)
        bodies = [body_in(store, 0, asked, {"dark": [1]}) for _ in range(40)]
        for number, body in enumerate(bodies):
            if number == 5:
                slot = key_slot(key.encode())
                to = target.ask("CLUSTER MYID")
                source.ask("CLUSTER MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to)
            wait_until(partial(_takes, store, body), 60, "the shard being there")
        nodes.wait_for_owner(key, target)
        assert source.ask("INFO", "commandstats")["cmdstat_waitaof"]["calls"]
        assert all(append(store, body).duplicate for body in bodies)
        fold_all(store)
        assert balance(store) == (40, 40, 0, 0)
        assert list(fsck(store)) == []
        nodes.owner(key, "replica").ask("CONFIG SET", "appendfsync", "no")
        assert "0 of 1 replicas" in _refusal(store, body_in(store, 0, asked, {"dark": [1]}))


@pytest.fixture(scope="module")
def networked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, RedisCluster]]:
    """Run a cluster behind a network of its own."""
    network, nodes = Network(), RedisCluster(tmp_path_factory.mktemp("networked"), 3, 1)
    try:
        network.join(nodes)
        nodes.start()
        yield network, nodes
    finally:
        nodes.stop()
        network.stop()


def test_who_talks_to_a_node_hears_its_answer_though_another_thread_sees_that_it_left(
    nodes: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are closed afterwards."""
    with closing(client.ClusterClient(nodes.url)) as talking, ThreadPoolExecutor() as threads:
        known = talking._known()
        leaves = known.get_primaries()[0]
        node = known.get_redis_connection(leaves)
        heard = threads.submit(talking._exchange, [client._Talk(node, [("WAIT", 9, 500)])])
        wait_until(lambda: node.info("clients")["blocked_clients"])
        monkeypatch.setattr(known.nodes_manager, "initialize", lambda: known.nodes_manager.nodes_cache.pop(leaves.name))
        talking._stale = True
        talking._known()
        assert heard.result() == [[1]]
        assert not any(each.is_connected for each in node.connection_pool._connections)
