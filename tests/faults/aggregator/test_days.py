"""Midnight during load, night after night: days seal when nothing of them is pending, and never change again."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import requests

from tests.faults.aggregator.clustered import aggregator, all_final, both, orders, travel
from tests.faults.aggregator.load import PAUSE_S, REGISTRY, Load, check_all
from tests.faults.aggregator.oracle import Oracle
from tests.support.clocks import DAY_S
from tests.support.clusters import Cluster, wait_until
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow

NIGHTS = scaled(2, 60)
BEFORE_MIDNIGHT_S = 0.4
LOOK_EVERY_S = 1.0
"""A look reads the whole store, which takes as long as the load does in a twentieth of it."""


def snapshots(cluster: Cluster) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return what the API lists as final: (metric, plan, epoch) to the digests of tally and snapshot."""
    found = {}
    for metric in REGISTRY.metrics:
        answer: Any = requests.get(f"{cluster.urls[0]}/v1/metrics/{metric}/snapshots", timeout=30)
        for one in answer.json()["rows"]:
            found[metric, one["plan"], one["epoch"]] = one["tally"], one["snapshot"]
    return found


@contextmanager
def conserved(oracle: Oracle, cluster: Cluster) -> Iterator[None]:
    """Look all the while whether everything accepted is somewhere, and whether days and what they sealed stay."""
    ending, failures = Event(), list[BaseException]()

    def look() -> None:
        try:
            with closing(cluster.open()) as store:
                while not ending.wait(LOOK_EVERY_S):
                    store.refresh()
                    oracle.check_conservation(store)
        except BaseException as error:
            failures.append(error)

    watcher = Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ending.set()
        watcher.join(60)
    assert not failures, failures


def today(cluster: Cluster) -> date:
    with closing(cluster.open()) as store:
        return store.today()


def reach_midnight(cluster: Cluster, load: Load) -> bool:
    """Set the clock to just before the end of the day, and wait for it; tell whether midnight came by itself."""
    before = today(cluster)
    midnight = (before - date(1970, 1, 1)).days + 1
    travel(cluster, midnight - (time.time() + BEFORE_MIDNIGHT_S) / DAY_S)
    by_itself = today(cluster) == before
    load.wait_for(30)
    wait_until(lambda: today(cluster) > before, "midnight")
    return by_itself


@both
def test_days_that_end_under_load_seal_and_stay_as_they_are(home: Path, kind: str) -> None:
    oracle = Oracle("days", REGISTRY)
    with aggregator(kind, home, orders(home)) as cluster:
        nights, by_themselves = 0, 0
        with Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load, conserved(oracle, cluster):
            while nights < NIGHTS or not by_themselves:  # a busy machine may set the clock too late
                load.wait_for(30)
                by_themselves += reach_midnight(cluster, load)
                nights += 1
                load.wait_for(30)
                wait_until(all_final(cluster), "every day that is over being final, while the load goes on", 120)
        now = snapshots(cluster)
        assert len({epoch for _, _, epoch in now}) >= NIGHTS
        with Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load:
            load.wait_for(30)
        seen, now = now, snapshots(cluster)
        assert {key: now[key] for key in seen} == seen
        # The clock is set back: said, and counted on the later day.
        travel(cluster, 0)
        wait_until(lambda: cluster.ready().status_code == 503, "readiness being red")
        with Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load:
            load.wait_for(30)
        assert snapshots(cluster) == now
        check_all(oracle, cluster)
