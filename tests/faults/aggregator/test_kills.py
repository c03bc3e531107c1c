"""`kill -9` of an aggregator's processes under load: nothing acknowledged is lost, nothing is counted twice."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.aggregator.clustered import REDIS, SQLITE, aggregator, all_final, both, kept_alive, orders, travel
from tests.faults.aggregator.load import PAUSE_S, REGISTRY, Load, check_all, check_now
from tests.faults.aggregator.oracle import Oracle
from tests.support.clusters import DATA, wait_until
from tests.support.failing import AFTER, BEFORE, KILL, KILL_GROUP, KILL_REDIS, RAISE, SLEEP, TOO_LATE, WITHIN, Fault
from tests.support.soaking import SOAK, scaled

pytestmark = pytest.mark.slow

EFFECTS = ("append", "commit_fold", "replace_segments", "seal", "note_merged", "erase", "forget", "finalize")
SHORT = (
    Fault("append", WITHIN, nth=3),
    Fault("append", AFTER, nth=4),
    Fault("append", AFTER, RAISE, nth=2, times=3),
    Fault("commit_fold", WITHIN, nth=2),
    Fault("commit_fold", AFTER),
    Fault("replace_segments", WITHIN),
    Fault("seal", AFTER),
    Fault("note_merged", WITHIN),
    Fault("note_merged", AFTER, nth=2),
    Fault("erase", AFTER),
    Fault("finalize", WITHIN),
)
LONG = [
    tuple(
        Fault(effect, when, action, nth, times=3)
        for action, nth in ((KILL, 1), (KILL, 5), (KILL_GROUP, 2), (RAISE, 3))
        if (when, action) != (WITHIN, RAISE)
    )
    for effect in EFFECTS
    for when in (BEFORE, WITHIN, AFTER)
]
OF_REDIS = tuple(
    Fault(effect, when, KILL_REDIS, nth=2)
    for effect, when in (("append", WITHIN), ("append", AFTER), ("commit_fold", AFTER))
)
HAPPENED_WITHIN_S = 240
ROUNDS = LONG if SOAK else [SHORT]
UPLOADS = scaled(40, 100)
"""Between two days."""
SOON: dict[str, object] = {
    "ingest.service.MAINTAIN_EVERY_S": 0.15,
    "workers.tasks.MAINTAIN_EVERY_S": 0.15,
    "commands.beat.LOOK_EVERY_S": 0.15,
    "store.contract.COMPACT_SEGMENTS": 2,
}
"""So that segments of short days are merged, too."""


@pytest.mark.parametrize("faults", ROUNDS, ids=lambda faults: f"{faults[0].when} {faults[0].point}" if SOAK else "each")
@both
def test_a_kill_at_every_named_point_loses_and_doubles_nothing(
    home: Path, kind: str, faults: tuple[Fault, ...]
) -> None:
    of_redis = OF_REDIS if kind == REDIS else ()
    oracle, ordered = (
        Oracle(f"points {faults}", REGISTRY),
        orders(home, *faults, *of_redis, settings={} if SOAK else SOON),
    )
    with aggregator(kind, home, ordered, processes=2) as cluster:
        servers = [cluster.servers[DATA]] if kind == REDIS else []
        with kept_alive(cluster, *servers), Load(oracle, cluster, pause_s=PAUSE_S) as load:
            load.wait_for(UPLOADS)
            days, deadline = 0, time.monotonic() + HAPPENED_WITHIN_S
            while ordered.left():
                assert time.monotonic() < deadline, f"these did not happen: {ordered.left()}"
                load.wait_for(UPLOADS)  # so that there are segments to merge
                days += 1
                travel(cluster, days)  # and a day to seal, and to record
                load.wait_for(30)
        wait_until(all_final(cluster), "every day that is over being final")
        check_all(oracle, cluster)


def test_kills_at_random_moments_lose_and_double_nothing(home: Path) -> None:
    """The one process of one machine is killed. All processes of several machines are killed in test_cluster.py."""
    oracle, rng = Oracle("kills", REGISTRY), random.Random(1)
    with aggregator(SQLITE, home) as cluster:
        with Load(oracle, cluster, pause_s=PAUSE_S) as load:
            for _ in range(scaled(3, 200)):
                time.sleep(rng.uniform(0.1, 1.0 if SOAK else 0.6))
                cluster["serve"].kill()
                cluster["serve"].start()
                load.wait_for(20)
        check_all(oracle, cluster)


# Bugs that this suite finds.


def answer_before_the_commit(home: Path, kind: str) -> None:
    oracle = Oracle("early", REGISTRY)
    with aggregator(kind, home, orders(home, bugs=["answer before the commit"])) as cluster:
        with Load(oracle, cluster) as load:
            load.wait_for(50)
            cluster.named("serve" if kind == SQLITE else "api")[0].start()  # which kills it first
        check_all(oracle, cluster)


def forget_the_ids(home: Path, kind: str) -> None:
    oracle = Oracle("ids", REGISTRY)
    lost = Fault("append", AFTER, RAISE, nth=3, times=3)
    with aggregator(kind, home, orders(home, lost, bugs=["forget the ids"])) as cluster:
        with Load(oracle, cluster) as load:
            load.wait_for(100)
        check_all(oracle, cluster)


def fold_in_two_steps(home: Path, kind: str) -> None:
    oracle = Oracle("steps", REGISTRY)
    ordered = orders(home, Fault("commit_fold", AFTER), bugs=["fold in two steps"])
    with aggregator(kind, home, ordered) as cluster:
        with kept_alive(cluster), Load(oracle, cluster):
            wait_until(lambda: not ordered.left(), "the kill")
        check_all(oracle, cluster)


def commit_without_the_cursor(home: Path, kind: str) -> None:
    oracle = Oracle("cursor", REGISTRY)
    late = Fault("commit_fold", BEFORE, SLEEP, times=100, seconds=0.3)
    ordered = orders(home, late, bugs=["commit without the cursor"])
    with aggregator(kind, home, ordered, processes=4, api_processes=1, shards=1) as cluster:
        with Load(oracle, cluster):
            wait_until(lambda: ordered.noted(TOO_LATE), "a counter that was too late")
        with suppress(AssertionError):  # by any of its signs: it counts all the same, as soon as no other one is faster
            wait_until(lambda: check_now(oracle, cluster), "a sign", 10)
        check_all(oracle, cluster)


@pytest.mark.parametrize(
    ("bug", "kind", "finding"),
    [
        (answer_before_the_commit, SQLITE, "accepted twice|do not explain it"),
        (forget_the_ids, SQLITE, "accepted twice|do not explain it"),
        (fold_in_two_steps, REDIS, "were accepted, .* are there"),
        (commit_without_the_cursor, REDIS, "were accepted, .* are there"),
    ],
)
def test_a_planted_bug_is_found(home: Path, bug: Callable[[Path, str], None], kind: str, finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        bug(home, kind)
