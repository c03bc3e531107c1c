"""Whole aggregators for the fault tests: both kinds of them, hurried, and kept alive."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dither_aggregator.store import StoreUnavailable
from tests.faults.aggregator.load import REGISTRY_TEXT
from tests.support.clocks import DAY_S
from tests.support.clusters import Cluster, OneMachine, SeveralMachines, one_machine, several_machines, wait_until
from tests.support.failing import Fault, Orders
from tests.support.redis_servers import RedisServer

SQLITE, REDIS = "sqlite", "redis"
both = pytest.mark.parametrize("kind", [SQLITE, REDIS])

HURRIED: dict[str, object] = {
    "dither_aggregator.ingest.service.FOLD_EVERY_S": 0.3,
    "dither_aggregator.ingest.service.MAINTAIN_EVERY_S": 0.3,
    "dither_aggregator.ingest.service.REFRESH_EVERY_S": 0.2,
    "dither_aggregator.ingest.service.WRITER_FAILED_FOR_S": 1.0,
    "dither_aggregator.workers.tasks.MAINTAIN_EVERY_S": 0.3,
    "dither_aggregator.commands.beat.LOOK_EVERY_S": 0.3,
    "dither_aggregator.store.contract.COMPACT_SEGMENTS": 4,
}
"""So that what happens once a second or a minute, or of 64 segments, happens in a short test."""


def orders(
    home: Path, *faults: Fault, bugs: Sequence[str] = (), settings: Mapping[str, object] = MappingProxyType({})
) -> Orders:
    """Return orders with hurried maintenance; `settings` are values of the aggregator's modules."""
    named = {f"dither_aggregator.{name}": value for name, value in settings.items()}
    return Orders(home / "faults", faults, tuple(bugs), {**HURRIED, **named})


@contextmanager
def aggregator(
    kind: str, home: Path, ordered: Orders | None = None, registry: str = REGISTRY_TEXT, **options: Any
) -> Iterator[Cluster]:
    """Run an aggregator of a kind; `options` are those of several machines."""
    running: Any = one_machine(home, registry, ordered)
    if kind == REDIS:
        running = several_machines(home, registry, ordered, **options)
    with running as cluster:
        assert isinstance(cluster, OneMachine | SeveralMachines)
        yield cluster


@contextmanager
def kept_alive(cluster: Cluster, *servers: RedisServer) -> Iterator[None]:
    """Start what has ended again, as a supervisor does, while the block runs; at its end everything runs.

    Around a load, which settles at its end what it has begun: whoever has noted its kill may still be running then.
    Only the given Redis servers are started again: somebody else restarts the others.
    """
    ending = threading.Event()

    def keep() -> None:
        while not ending.wait(0.05):
            start_missing()

    def start_missing() -> None:
        for server in servers:
            if server.process and server.process.poll() is not None:
                server.relaunch()  # another fault may kill it at once
        for process in cluster.processes.values():
            if not process.runs():
                process.launch()

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        keeper.join(60)
    start_missing()
    for server in servers:
        server.ready()
    for process in cluster.processes.values():
        process.ready()


def travel(cluster: Cluster, days: float) -> None:
    """Let the store's clock be so many days ahead of the true one, as soon as the store can be used."""

    def travelled() -> bool:
        try:
            with closing(cluster.open()) as store:
                store.set_clock_offset(days * DAY_S)
        except StoreUnavailable:
            return False
        return True

    wait_until(travelled, "the store being there")


def all_final(cluster: Cluster) -> Callable[[], bool]:
    """Return a test of whether every epoch but the latest is sealed, and finalized."""

    def test() -> bool:
        with closing(cluster.open()) as store:
            today = store.today()
            return all(
                epoch in finals
                for stored in store.plans()
                for finals in (store.finals(stored.plan),)
                for epoch in store.epochs(stored.plan)
                if epoch < today
            )

    return test
