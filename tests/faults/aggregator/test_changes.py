"""An aggregator changes while it runs: its registry, its release, and the layout of its store."""

import signal
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from dither_aggregator.store.redis import layout
from dither_aggregator.workers.tasks import FOLD, Task, TaskQueue, make_app
from dither_shared.registry import Registry
from tests.faults.aggregator.clustered import REDIS, aggregator, both, kept_alive, orders
from tests.faults.aggregator.editions import METRICS
from tests.faults.aggregator.load import PAUSE_S, REGISTRY, Load, check_all, registry_text
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import dither
from tests.support.clusters import SERVE, Cluster, OneMachine, SeveralMachines, wait_until
from tests.support.failing import Fault
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow

BITS = 'kind = "choice"\nreports = 1\nepsilon = 1\nmechanism = "oue"\nvalues = ["a", "b", "c", "d"]'
LATE = 'kind = "choice"\nreports = 1\nepsilon = 2\nmechanism = "pgr"\nvalues = ["a", "b", "c", "d", "e", "f", "g"]'
SECOND_TEXT = registry_text({**METRICS, "bits": BITS, "late": LATE}, {"bits": 2})
SECOND = Registry.parse(SECOND_TEXT)
NEW = {(name, SECOND.metrics[name].plan.digest) for name in ("bits", "late")}
FLAG = ("flag", REGISTRY.metrics["flag"].plan.digest)


def load_registry(cluster: Cluster, text: str) -> None:
    """Load a registry as an operator does: by SIGHUP, after a command where there are several machines."""
    cluster.registry.write_text(text, encoding="utf-8")
    if not isinstance(cluster, OneMachine):
        done = dither("metrics", "load", cluster.registry, "--data", cluster.store_name)
        assert done.returncode == 0, done.stderr
    for process in [*cluster.named(SERVE), *cluster.named("api")]:
        process.signal(signal.SIGHUP)


def retire(cluster: Cluster, *how: str) -> None:
    done = dither("metrics", "retire", "flag", "--rev", 1, "--data", cluster.store_name, *how)
    assert done.returncode == 0, done.stderr


def accepted(cluster: Cluster, plan: tuple[str, str]) -> int:
    with closing(cluster.open()) as store:
        return sum(row.accepted for row in store.ledger() if (row.metric, row.plan) == plan)


def has_more_than(cluster: Cluster, before: int) -> bool:
    return accepted(cluster, FLAG) > before


def takes_no_more(cluster: Cluster, load: Load) -> bool:
    """Tell whether none of so many uploads brings a flag: a third of them hold some."""
    before = accepted(cluster, FLAG)
    load.wait_for(60)
    return accepted(cluster, FLAG) == before


@both
def test_a_registry_that_changes_under_load_loses_and_doubles_nothing(home: Path, kind: str) -> None:
    """Devices send reports of both editions all the while; a process is killed just as it changes the plans."""
    oracle = Oracle("registry", REGISTRY, SECOND)
    # Before it a process that serves for the first time saves its key, its registry, and the key's first use.
    ordered = orders(home, Fault("_save", "within", nth=4)) if kind != REDIS else orders(home)
    with aggregator(kind, home, ordered) as cluster:
        with kept_alive(cluster), Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load:
            load.refusing = NEW | {FLAG}
            load.wait_for(50)
            assert not any(accepted(cluster, plan) for plan in NEW)
            for _ in range(scaled(1, 50)):
                load_registry(cluster, SECOND_TEXT)
                wait_until(lambda: all(accepted(cluster, plan) for plan in NEW), "reports of the new plans")
                assert accepted(cluster, ("bits", REGISTRY.metrics["bits"].plan.digest))
                retire(cluster)
                load.wait_for(50)
                wait_until(partial(takes_no_more, cluster, load), "all having heard of it")
                before = accepted(cluster, FLAG)
                load.wait_for(100)
                assert accepted(cluster, FLAG) == before
                retire(cluster, "--undo")
                wait_until(partial(has_more_than, cluster, before), "reports of what was retired")
                load_registry(cluster, registry_text())
        assert not ordered.left()
        check_all(oracle, cluster)


def test_workers_of_an_older_release_leave_to_newer_ones_what_they_do_not_know(home: Path) -> None:
    oracle = Oracle("mixed", REGISTRY, SECOND)
    with aggregator(REDIS, home, orders(home), workers=0) as cluster:
        assert isinstance(cluster, SeveralMachines)
        stale = cluster.add_worker(orders=orders(home, bugs=["know no new plans"]))
        older = cluster.add_worker(orders=orders(home, bugs=["know no new mechanisms"]))
        cluster.start(stale.name, older.name)
        with Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load:
            load.refusing = NEW
            load.wait_for(100)
            load_registry(cluster, SECOND_TEXT)
            wait_until(lambda: all(accepted(cluster, plan) for plan in NEW), "reports of the new plans")
            load.wait_for(50)
            # Both have had reports in hand that only a newer worker can fold: which of them a task comes to is chance.
            wait_until(lambda: "does not know" in stale.written(), "a plan that the stale worker does not know")
            wait_until(lambda: "of a later dither" in older.written(), "a mechanism that the older one does not know")
            cluster.add_worker()
            cluster.start("worker-2")
            load.wait_for(100)
        check_all(oracle, cluster)
        with closing(cluster.open()) as store:
            assert store.quarantined() == []


def set_version(cluster: SeveralMachines, version: int) -> None:
    """Let a store be one of another layout, as a migration would."""
    with cluster.data.client() as client, closing(cluster.open()) as store:
        keys = [layout.GLOBAL, *map(layout.shard_key, range(store.shards))]
        with client.pipeline() as pipeline:
            for key in keys:
                pipeline.hset(key, "token", f"{version}:{store.generation}")
            pipeline.hset(layout.GLOBAL, "version", version)
            pipeline.execute()


def publish(cluster: SeveralMachines) -> None:
    """Have a worker look at the store."""
    with closing(TaskQueue(make_app(cluster.broker.url))) as task_queue:
        task_queue.publish([Task(FOLD, 0)])


def test_processes_of_another_layout_are_refused_before_they_read_or_write(home: Path) -> None:
    oracle = Oracle("layout", REGISTRY)
    with aggregator(REDIS, home, orders(home)) as cluster:
        assert isinstance(cluster, SeveralMachines)
        later = orders(home, settings={"store.redis.layout.VERSION": 99})
        with pytest.raises(AssertionError, match=f"holds a store of version {layout.VERSION}; this dither reads 99"):
            cluster.add_api(orders=later).start()
        cluster.remove("api-1")
        with Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load:
            load.wait_for(50)
            with closing(cluster.open()) as store:
                generation = store.generation
            set_version(cluster, 99)
            wait_until(lambda: cluster.ready().status_code == 503, "readiness being red")
            refused = load.answers[503]
            wait_until(lambda: load.answers[503] > refused + 20, "uploads being refused")
            publish(cluster)  # which the beat does no more, nor an API that accepts nothing
            assert cluster["beat-0"].code() == 1
            assert cluster["worker-0"].code() == 1
            with cluster.data.client() as client:
                keys = [layout.GLOBAL, *map(layout.shard_key, range(4))]
                before = [client.hgetall(key) for key in keys]
                refused = load.answers[503]
                wait_until(lambda: load.answers[503] > refused + 20, "more uploads being refused")
                assert [client.hgetall(key) for key in keys] == before
                for key in keys:
                    client.hset(key, "token", layout.token(generation))
                client.hset(layout.GLOBAL, "version", layout.VERSION)
            with kept_alive(cluster):
                load.wait_for(50)
        check_all(oracle, cluster)
