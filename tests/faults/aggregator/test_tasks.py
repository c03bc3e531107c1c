"""Tasks that are lost, doubled and late, workers that race, sleep and are old: the counts are the same."""

import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from dither_aggregator.workers.tasks import ESTIMATE, FOLD, MAINTAIN, BrokerError, Task, TaskQueue, make_app
from tests.faults.aggregator.clustered import REDIS, aggregator, all_final, orders, travel
from tests.faults.aggregator.load import PAUSE_S, REGISTRY, Load, check_all
from tests.faults.aggregator.oracle import Oracle
from tests.support.clusters import SeveralMachines, wait_until
from tests.support.failing import BEFORE, SLEEP, TOO_LATE, Fault
from tests.support.soaking import SOAK, scaled

pytestmark = pytest.mark.slow

ROUNDS = scaled(1, 20)
SLEEP_S = scaled(1, 60)
PUBLISH_EVERY_S = 0.02 if SOAK else 0.08
"""Ten tasks each time: enough for eight workers to race, and not to do nothing else."""
UPLOADS = scaled(60, 150)
"""Before a day ends, and after it."""


@contextmanager
def publishing(cluster: SeveralMachines, metrics: list[str], shards: int) -> Iterator[None]:
    """Publish all tasks, and some there are not, all the while."""
    ending, rng = Event(), random.Random(1)
    tasks = [Task(kind, shard) for kind in (FOLD, MAINTAIN) for shard in range(-1, shards + 1)]
    tasks += [Task(ESTIMATE, name) for name in [*metrics, "nobody"]]

    def publish() -> None:
        with closing(TaskQueue(make_app(cluster.broker.url))) as task_queue:
            while not ending.wait(PUBLISH_EVERY_S):
                try:
                    task_queue.publish(rng.choices(tasks, k=10))
                except BrokerError:
                    continue

    publisher = Thread(target=publish, daemon=True)
    publisher.start()
    try:
        yield
    finally:
        ending.set()
        publisher.join(60)


def test_eight_workers_that_race_on_two_shards_count_everything_once(home: Path) -> None:
    """One of them sleeps with a count that it has not committed, while the others fold, compact and seal."""
    oracle = Oracle("race", REGISTRY)
    asleep = Fault("commit_fold", BEFORE, SLEEP, nth=2, seconds=SLEEP_S)
    drowsy = Fault("commit_fold", BEFORE, SLEEP, nth=4, times=30 * ROUNDS + 300, seconds=0.05)
    merging = Fault("replace_segments", BEFORE, SLEEP, times=30 * ROUNDS, seconds=0.02)
    ordered = orders(home, asleep, drowsy, merging)
    with aggregator(REDIS, home, ordered, processes=8, api_processes=1, shards=2) as cluster:
        assert isinstance(cluster, SeveralMachines)
        with publishing(cluster, list(REGISTRY.metrics), shards=2):
            with Load(oracle, cluster, pause_s=PAUSE_S) as load:
                for _ in range(ROUNDS):
                    load.wait_for(UPLOADS)
                    travel(cluster, 1)
                    load.wait_for(UPLOADS)
                wait_until(lambda: ordered.noted(asleep.over), "the sleeper being awake", SLEEP_S + 60)
                wait_until(lambda: ordered.noted(TOO_LATE) >= 3, "three workers that came too late")
            wait_until(all_final(cluster), "every day that is over being final", 120)
        check_all(oracle, cluster)


def test_a_broker_that_is_flushed_killed_and_away_and_five_beats_change_no_count(home: Path) -> None:
    oracle = Oracle("broker", REGISTRY)
    with aggregator(REDIS, home, orders(home), beats=5) as cluster:
        assert isinstance(cluster, SeveralMachines)
        with Load(oracle, cluster, pause_s=PAUSE_S) as load:
            for _ in range(ROUNDS):
                for _ in range(20):
                    with cluster.broker.client() as client:
                        client.flushall()
                    time.sleep(0.02)
                cluster.broker.restart()
                load.wait_for(50)
                cluster.broker.stop()
                load.wait_for(100)  # which needs no broker
                cluster.broker.start()
                load.wait_for(50)
        travel(cluster, 1)
        wait_until(all_final(cluster), "every day that is over being final", 90)
        check_all(oracle, cluster)
