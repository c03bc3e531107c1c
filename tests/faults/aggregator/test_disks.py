"""A disk that is full, a memory that is full, and both freed: refused in words, and nothing lost or counted twice."""

import resource
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.aggregator.clustered import REDIS, SQLITE, aggregator, orders
from tests.faults.aggregator.load import REGISTRY, Load, check_all, wait_folded
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import ENVIRONMENT
from tests.support.clusters import SERVE, Cluster, SeveralMachines, wait_until
from tests.support.soaking import SOAK, scaled

pytestmark = pytest.mark.slow

ROUNDS = scaled(1, 40)
REFUSED = scaled(10, 30)
"""So many uploads are refused before there is room again."""
PAUSE_S = 0.0 if SOAK else 0.05
"""A device waits so long between two uploads: most of the time these tests wait for what does not take more of them."""
ROOM = 100_000
"""Bytes that the files of SQLite may have."""
SPARE = scaled(10_000, 50_000)
"""Bytes that a Redis may still take, of memory or of disk."""


def may_grow_to(pid: int, size: int | None) -> None:
    """Let the files of a process grow to a size: as a disk that runs full, or that has room again."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def ready(cluster: Cluster) -> bool:
    return cluster.ready().status_code == 200


def refuses(load: Load, status: int = 503) -> None:
    """Wait until more uploads are refused."""
    refused = load.answers[status]
    wait_until(lambda: load.answers[status] > refused + REFUSED, "uploads being refused")


def test_on_a_full_disk_uploads_are_refused_and_room_ends_that(home: Path) -> None:
    oracle = Oracle("disk", REGISTRY)
    with aggregator(SQLITE, home, orders(home)) as cluster:
        with Load(oracle, cluster, 4, PAUSE_S) as load:
            for _ in range(ROUNDS):
                load.wait_for(50)
                may_grow_to(cluster[SERVE].pid, ROOM)
                refuses(load)
                wait_until(lambda: not ready(cluster), "readiness being red")  # a commit may just have found room
                with closing(cluster.open()) as store:
                    oracle.check_conservation(store)
                may_grow_to(cluster[SERVE].pid, None)
                load.wait_for(50)
                wait_until(lambda: ready(cluster), "readiness being green")
        check_all(oracle, cluster)
        assert "Traceback" not in cluster[SERVE].written()


@pytest.mark.parametrize(("floor", "spare", "status"), [("off", SPARE, 503), ("10%", 0, 507)], ids=["off", "floor"])
def test_when_redis_is_full_uploads_are_refused_and_folding_goes_on_and_memory_ends_that(
    floor: str, spare: int, status: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a floor Redis refuses them; with one, the aggregator does before."""
    monkeypatch.setitem(ENVIRONMENT, "DITHER_DISK_FLOOR", floor)
    oracle = Oracle("memory", REGISTRY)
    with aggregator(REDIS, home, orders(home)) as cluster:
        assert isinstance(cluster, SeveralMachines)
        with Load(oracle, cluster, 4, PAUSE_S, floor=status == 507) as load, cluster.data.client() as client:
            for _ in range(ROUNDS):
                load.wait_for(50)
                client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + spare)
                refuses(load, status)
                wait_until(lambda: not ready(cluster), "readiness being red")  # folding makes some room at times
                wait_folded(cluster)  # without any memory to spare
                with closing(cluster.open()) as store:
                    oracle.check_conservation(store)
                client.config_set("maxmemory", 0)
                load.wait_for(50)
                wait_until(lambda: ready(cluster), "readiness being green")
        check_all(oracle, cluster)


def test_a_redis_whose_disk_is_full_ends_and_goes_on_when_there_is_room(home: Path) -> None:
    """With `appendfsync always` it ends rather than answer what it could not write."""
    oracle = Oracle("appended", REGISTRY)
    with aggregator(REDIS, home, orders(home)) as cluster:
        assert isinstance(cluster, SeveralMachines)
        with Load(oracle, cluster, 4, PAUSE_S) as load:
            for _ in range(ROUNDS):
                load.wait_for(50)
                assert cluster.data.process
                file = max(cluster.data.directory.glob("appendonlydir/*.aof"), key=lambda path: path.stat().st_size)
                may_grow_to(cluster.data.process.pid, file.stat().st_size + SPARE)
                cluster.data.process.wait(60)
                wait_until(lambda: not ready(cluster), "readiness being red")
                cluster.data.restart()
                load.wait_for(50)
                wait_until(lambda: ready(cluster), "readiness being green")
        check_all(oracle, cluster)
