"""Uploads are synced to the disk before they are acknowledged; a Redis that does not wait for its disk loses some.

strace shows the order of the calls. Whether a disk keeps what it says it synced when the power goes is not tried.
"""

import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.aggregator.clustered import orders
from tests.faults.aggregator.load import REGISTRY, REGISTRY_TEXT, Device, Load, check_all
from tests.faults.aggregator.oracle import Oracle
from tests.support.clusters import SERVE, Cluster, OneMachine, SeveralMachines, running
from tests.support.failing import Orders
from tests.support.redis_servers import RedisServer, redis_server
from tests.support.soaking import SOAK, scaled
from tests.support.tracing import SYNCS, Call, calls, slow_syncs, tracing, wrapper

pytestmark = pytest.mark.slow

UPLOADS = scaled(8, 500)
ALONE = {"ingest.service.FOLD_EVERY_S": 3600.0, "ingest.service.MAINTAIN_EVERY_S": 3600.0}
"""So that nothing but uploads is written."""


def send(cluster: Cluster, oracle: Oracle) -> list[tuple[float, float]]:
    """Send uploads one after another; return when each was sent and when its 202 was there."""
    spans: list[tuple[float, float]] = []
    with closing(Device(lambda: cluster.urls, cluster.key, 0)) as device:
        while len(spans) < UPLOADS:
            id_, body = oracle.upload(groups_max=3)
            began = time.time()
            answer = device.post(body)
            if answer.status == 202:
                spans.append((began, time.time()))
                oracle.acknowledged(id_, answer.document)
            else:
                oracle.refused(id_, answer.document)
    return spans


def unsynced_answers(trace: list[Call], suffix: str, answers: str) -> int:
    """Return how many answers left a process while what the thread of uploads wrote to a file was not synced.

    That thread writes most. Others may be writing just then: what a server does at its start takes a while.
    """
    writers = Counter(call.tid for call in trace if call.file.endswith(suffix) and call.name not in SYNCS)
    ((writer, _),) = writers.most_common(1)
    dirty, unsynced = False, 0
    for call in trace:
        if call.file.endswith(suffix) and call.tid == writer:
            dirty = call.name not in SYNCS
        elif answers in call.data and "TCP" in call.file:
            unsynced += dirty
    return unsynced


def synced_within(trace: list[Call], suffix: str, spans: list[tuple[float, float]]) -> int:
    """Return during how many of the uploads a sync of a file ended."""
    ends = [call.time_s for call in trace if call.name in SYNCS and call.file.endswith(suffix)]
    return sum(any(began < end < answered for end in ends) for began, answered in spans)


def served(home: Path, ordered: Orders) -> tuple[list[Call], list[tuple[float, float]]]:
    """Send uploads to a `dither serve` that is traced."""
    oracle, output = Oracle("serve", REGISTRY), home / "trace"
    cluster = OneMachine(home / "cluster", REGISTRY_TEXT, ordered)
    with running(cluster):
        cluster[SERVE].launch(*tracing(output))
        cluster[SERVE].ready()
        spans = send(cluster, oracle)
        assert cluster[SERVE].stop() == 0
        check_all(oracle, cluster)
    return list(calls(output)), spans


def test_sqlite_has_synced_each_upload_before_its_202(home: Path) -> None:
    trace, spans = served(home, orders(home, settings=ALONE))
    assert unsynced_answers(trace, "-wal", "HTTP/1.1 202") == 0
    assert synced_within(trace, "-wal", spans) == UPLOADS


def test_a_202_without_a_sync_is_seen_in_the_trace(home: Path) -> None:
    trace, spans = served(home, orders(home, bugs=["commit without a sync"], settings=ALONE))
    assert unsynced_answers(trace, "-wal", "HTTP/1.1 202") > UPLOADS // 2
    assert synced_within(trace, "-wal", spans) < UPLOADS // 2


def restart_behind(server: RedisServer, before: list[str]) -> None:
    """Restart a Redis behind another command."""
    script = wrapper(server.directory, before, redis_server())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDIS_SERVER", str(script))
        server.restart()


def several(home: Path, policy: str) -> SeveralMachines:
    return SeveralMachines(home, REGISTRY_TEXT, appendfsync=policy, lossy=policy != "always")


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_redis_has_synced_each_upload_before_it_answers_where_it_is_told_to(home: Path, policy: str) -> None:
    oracle, output, cluster = Oracle("redis", REGISTRY), home / "trace", several(home / "cluster", policy)
    with running(cluster):
        restart_behind(cluster.data, tracing(output))
        cluster.add_api()
        cluster.start()
        spans = send(cluster, oracle)
        cluster["api-0"].stop()
        check_all(oracle, cluster, folded=False)
    trace = list(calls(output))
    if policy == "always":
        assert unsynced_answers(trace, ".aof", "") == 0
        assert synced_within(trace, ".aof", spans) == UPLOADS
    else:
        assert unsynced_answers(trace, ".aof", "") > UPLOADS // 2


# A disk that takes its time, and a Redis that does not wait for it.

SLOW_S = 3.0
QUICKER_S = 0.05
"""The disk's delay if each upload waits for it."""
LOADED_S = {"everysec": SLOW_S, "always": 3.0 if SOAK else 1.0}
"""The load goes on for once or twice this long, or until there is anything that a kill could lose."""
GATHERED_BYTES = 20_000
ATTEMPTS = 5
"""How often the control may fail to show a loss."""


def lost_by_a_kill(home: Path, policy: str, seed: int) -> int:
    """Kill a Redis whose disk is slow, when it has acknowledged what it has not written; return what it has lost."""
    oracle, rng, cluster = Oracle(f"slow {seed}", REGISTRY), random.Random(seed), several(home / f"{seed}", policy)
    with running(cluster):
        restart_behind(cluster.data, slow_syncs(home / "trace", SLOW_S if policy == "everysec" else QUICKER_S))
        cluster.add_api()
        cluster.start()
        load = Load(oracle, cluster, devices=4)
        with load, cluster.data.client() as client:
            deadline = time.monotonic() + rng.uniform(1, 2) * LOADED_S[policy]
            if policy == "always":
                load.wait_for(20)
            while time.monotonic() < deadline:
                if client.info("persistence")["aof_buffer_length"] > GATHERED_BYTES:
                    break
                time.sleep(0.01)
            cluster.data.kill()
            with load.lock:
                acknowledged = sum(
                    group.n for id_ in load.acknowledged for group in oracle.sent(id_).groups if not group.fault
                )
            load.give_up()
        cluster.kill_all()
        cluster.data.restart()
        with closing(cluster.open()) as store:
            rows = store.ledger()
            if policy == "always":
                oracle.check(store)
            assert all(row.balanced for row in rows)
            return max(0, acknowledged - sum(row.accepted for row in rows))


def test_where_redis_does_not_wait_for_the_disk_acknowledged_reports_are_seen_to_be_lost(home: Path) -> None:
    """The control of the next test."""
    assert any(lost_by_a_kill(home, "everysec", seed) for seed in range(ATTEMPTS))


def test_where_redis_waits_for_a_slow_disk_a_kill_loses_nothing(home: Path) -> None:
    for seed in range(scaled(1, 20)):
        assert lost_by_a_kill(home, "always", seed) == 0
