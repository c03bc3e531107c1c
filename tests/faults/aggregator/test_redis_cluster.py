"""A store in a Redis Cluster under load, whose nodes are killed at random while slots move: exact to the bit."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from dither_aggregator.store import Store, StoreUnavailable
from dither_aggregator.store.redis import layout
from tests.faults.aggregator.clustered import REDIS, aggregator, kept_alive, orders
from tests.faults.aggregator.load import REGISTRY, Load, check_all
from tests.faults.aggregator.oracle import Oracle
from tests.support.clusters import Cluster, wait_until
from tests.support.redis_servers import RedisCluster, RedisServer, running_cluster
from tests.support.soaking import SOAK, scaled

pytestmark = pytest.mark.slow

KILLS = scaled(3, 100)
SEED = scaled(24, 1)
"""One with which few kills are of all three sorts."""
DEVICES = 8
PAUSE_S = 0.0 if SOAK else 0.1
SHARDS = 8
UPLOADS = 20
"""Acknowledged between two kills, at least."""


def test_nodes_that_are_killed_at_random_while_slots_move_lose_and_double_nothing(home: Path) -> None:
    """A primary is missed and its replica elected, or it is back before; a replica is away for a while."""
    oracle, rng = Oracle("nodes", REGISTRY), random.Random(SEED)
    with (
        running_cluster(home / "nodes", cluster_node_timeout="1000") as nodes,
        aggregator(REDIS, home, orders(home), shards=SHARDS, data=nodes.url) as cluster,
    ):
        elected = 0
        with kept_alive(cluster), Load(oracle, cluster, DEVICES, PAUSE_S) as load:
            for number in range(KILLS):
                elected += _kill(nodes, rng, rng.choice([True, True, False]))
                load.wait_for(UPLOADS)
                if number % 2:
                    _move(nodes, rng)
                with closing(_opened(cluster)) as store:
                    oracle.check_conservation(store)
            load.wait_for(UPLOADS)
        assert elected >= max(1, KILLS // 5)
        check_all(oracle, cluster)
        print(f"{load.answers}: {elected} elections in {KILLS} kills, {oracle}")


def _kill(nodes: RedisCluster, rng: random.Random, until_elected: bool) -> bool:
    """Kill a node, and start it again: a primary perhaps when another is elected; return whether one was."""
    victim = rng.choice(nodes.nodes)
    leads = victim.ask("INFO")["role"] == "master"
    before = _primaries(nodes.nodes)
    victim.kill()
    others = [node for node in nodes.nodes if node is not victim]
    elected = leads and until_elected
    if elected:
        wait_until(lambda: len(_primaries(others)) == len(before), "a replica being elected")
    victim.relaunch()
    victim.ready()
    nodes.settled()
    return elected


def _primaries(nodes: list[RedisServer]) -> list[RedisServer]:
    return [node for node in nodes if node.ask("INFO")["role"] == "master"]


def _move(nodes: RedisCluster, rng: random.Random) -> None:
    """Move the slot of a shard, or of what is global, to another primary."""
    key = rng.choice([layout.GLOBAL, *map(layout.shard_key, range(SHARDS))])
    for _ in nodes.moving(key, nodes.other(key)):
        pass


def _opened(cluster: Cluster) -> Store:
    """Open the store as soon as all its shards can be read."""
    opened: list[Store] = []

    def opens() -> bool:
        try:
            opened.append(cluster.open())
        except StoreUnavailable:
            return False
        return True

    wait_until(opens, "all shards being there")
    return opened[0]
