"""Two API processes, four workers, beat and two Redis under load, all of them killed at random: exact to the bit."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.faults.aggregator.clustered import REDIS, aggregator, all_final, kept_alive, orders, travel
from tests.faults.aggregator.load import REGISTRY, Load, check_all
from tests.faults.aggregator.oracle import Oracle
from tests.support.clusters import BROKER, DATA, SeveralMachines, wait_until
from tests.support.redis_servers import RedisServer
from tests.support.soaking import SOAK, scaled

pytestmark = pytest.mark.slow

SECONDS = scaled(4, 900)
DEVICES = 16
PAUSE_S = 0.0 if SOAK else 0.1
"""A device waits so long between two uploads: enough are in flight at each kill, and other work has time."""
NIGHTS = 2
PAUSES_S = (0.2, 1.8) if SOAK else (0.1, 0.8)
"""Between two kills."""


def kill_child(cluster: SeveralMachines, rng: random.Random, kind: str) -> bool:
    """Kill one of the processes that others started, if there is one."""
    children = [pid for process in cluster.named(kind) if process.runs() for pid in process.children()]
    if children:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(children), signal.SIGKILL)
            return True
    return False


def kills(cluster: SeveralMachines, rng: random.Random) -> dict[str, Callable[[], bool]]:
    """Return everything that can be killed; each tells whether it was there to be killed.

    The one who watches over the cluster starts it again.
    """

    def group(kind: str) -> bool:
        process = rng.choice(cluster.named(kind))
        ran = process.runs()
        process.kill()
        return ran

    def parent(kind: str) -> bool:
        process = rng.choice(cluster.named(kind))
        ran = process.runs()
        process.signal(signal.SIGKILL)
        return ran

    def redis(server: RedisServer) -> bool:
        server.restart()
        return True

    return {
        "api group": lambda: group("api"),
        "api parent": lambda: parent("api"),
        "api child": lambda: kill_child(cluster, rng, "api"),
        "worker group": lambda: group("worker"),
        "worker parent": lambda: parent("worker"),
        "worker child": lambda: kill_child(cluster, rng, "worker"),
        "beat": lambda: group("beat"),
        DATA: lambda: redis(cluster.data),
        BROKER: lambda: redis(cluster.broker),
    }


def test_a_cluster_whose_every_part_is_killed_at_random_counts_everything_once(home: Path) -> None:
    oracle, rng = Oracle("cluster", REGISTRY), random.Random(1)
    with aggregator(REDIS, home, orders(home), apis=2, workers=2, processes=2, shards=8) as cluster:
        assert isinstance(cluster, SeveralMachines)
        with kept_alive(cluster), Load(oracle, cluster, DEVICES, PAUSE_S) as load:
            able, began, night = kills(cluster, rng), time.monotonic(), 0
            names = list(able)
            rng.shuffle(names)
            while (gone := time.monotonic() - began) < SECONDS or names:
                if able[names[-1] if names else rng.choice(list(able))]() and names:
                    names.pop()  # each of them once at least
                time.sleep(rng.uniform(*PAUSES_S))
                load.check()
                if night < NIGHTS and gone > SECONDS * (night + 1) / (NIGHTS + 1):
                    night += 1
                    travel(cluster, night)
                with closing(cluster.open()) as store:
                    oracle.check_conservation(store)
            load.wait_for(20)
        wait_until(all_final(cluster), "every day that is over being final", 90)
        check_all(oracle, cluster)
