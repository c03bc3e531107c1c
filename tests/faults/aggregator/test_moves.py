"""Backups under load, restored elsewhere; a store that moves to Redis, cut off at every step."""

import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest

from dither_aggregator.operations import maintenance
from dither_aggregator.store import Receipt, SQLiteStore, Store, StoreError, open_store
from dither_aggregator.store.dump import SeenRecord
from dither_aggregator.store.redis.layout import GLOBAL
from dither_aggregator.store.restoring import copy
from dither_shared.wire.reading import parse_upload
from tests.faults.aggregator.clustered import aggregator, both, orders
from tests.faults.aggregator.editions import APP
from tests.faults.aggregator.load import PAUSE_S, REGISTRY, Load, check_all, check_store
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import dither
from tests.support.clocks import DAY_S
from tests.support.clusters import Cluster, Process
from tests.support.failing import AFTER, BEFORE, KILL, WITHIN, Fault, Orders
from tests.support.keys import STRONG
from tests.support.redis_servers import RedisServer, running_redis
from tests.support.soaking import SOAK, scaled

pytestmark = pytest.mark.slow

BACKUPS = scaled(2, 30)


def held(oracle: Oracle, store: Store) -> set[str]:
    """Return the ids of the uploads that a store knows."""
    known = {digest for record in store.dump() if isinstance(record, SeenRecord) for digest in record.bodies}
    return {id_ for id_ in oracle.ids() if store.digest(id_.encode()) in known}


def account_of(oracle: Oracle, ids: set[str]) -> Oracle:
    """Return an account of these uploads alone, all of them stored."""
    account = Oracle("restored", REGISTRY)
    for id_ in ids:
        sent = account.note(oracle.sent(id_))
        rejected = [
            {"group": place, "reason": group.fault, "count": group.n}
            for place, group in enumerate(sent.groups)
            if group.fault
        ]
        n = sum(group.n for group in sent.groups if not group.fault)
        account.acknowledged(id_, Receipt(id_, n, duplicate=False, rejected=rejected))
    return account


def back_up(cluster: Cluster, file: Path) -> float:
    """Write a backup; return when it began."""
    began = time.monotonic()
    done = dither("backup", file, "--data", cluster.store_name)
    assert done.returncode == 0, done.stderr
    return began


def check_beginning(load: Load, store: Store, ids: set[str]) -> None:
    """Each upload in a shard's copy was sent before any that is not in it was acknowledged."""
    for shard in range(store.shards):
        of_shard = {id_ for id_ in load.acknowledged if store.shard_of(store.digest(id_.encode())) == shard}
        last = max((load.sent[id_] for id_ in of_shard & ids), default=0.0)
        missing = [id_ for id_ in of_shard - ids if load.acknowledged[id_] < last]
        assert not missing, f"shard {shard}: {missing} were acknowledged before others that are there were sent"


@both
def test_a_backup_under_load_holds_a_sound_beginning_wherever_it_is_restored(home: Path, kind: str) -> None:
    oracle = Oracle("backup", REGISTRY)
    with aggregator(kind, home, orders(home)) as cluster:
        files: list[tuple[Path, float]] = []
        with Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load:
            load.wait_for(100)
            for number in range(BACKUPS):
                file = home / f"backup-{number}.gz"
                files.append((file, back_up(cluster, file)))
                load.wait_for(20)
        check_all(oracle, cluster)
        with closing(cluster.open()) as source, running_redis(home / "elsewhere") as server:
            for number, (file, began) in enumerate(files):
                target = server.url if number % 2 else str(home / f"restored-{number}")
                done = dither("restore", file, "--data", target, "--shards", 3)
                assert done.returncode == 0, done.stderr
                with closing(open_store(target)) as store:
                    ids = held(oracle, store)
                    assert {id_ for id_, when in load.acknowledged.items() if when < began} <= ids
                    account_of(oracle, ids).check(store)
                    check_beginning(load, source, ids)
                    for shard in range(store.shards):
                        store.fold_all(shard)
                    check_store(account_of(oracle, ids), store)
                    if number % 2:
                        with server.client() as client:
                            client.flushall()


# A store that moves.

STEPS = (
    "fill_identity",
    "fill_plans",
    "fill_journal",
    "fill_seen",
    "fill_segments",
    "fill_shard",
    "fill_final",
    "mark_moved",
    "finish",
)
CUTS = [
    Fault(step, when)
    for step, when in [
        ("fill_seen", WITHIN),
        ("mark_moved", BEFORE),
        ("mark_moved", WITHIN),
        ("finish", WITHIN),
        ("finish", AFTER),
    ]
]
if SOAK:
    CUTS = [Fault(step, when, KILL, nth) for step in STEPS for when in (BEFORE, WITHIN, AFTER) for nth in (1, 2)]


def lived(directory: Path) -> Oracle:
    """Make a store with recorded days, segments, and a log in which something waits; return its account."""
    oracle = Oracle("moved", REGISTRY)
    with closing(SQLiteStore.create(directory, APP)) as store:
        store.load(REGISTRY)
        store.register_key("write", STRONG)
        store.create_key("read", "the web team")
        store.note("command line", "key create", "read")
        for day in range(3):
            store.set_clock_offset(day * DAY_S)
            for number in range(20):
                id_, body = oracle.upload(groups_max=5)
                (answer,) = store.append([(parse_upload(body, store.find_plan), body)])
                if isinstance(answer, Receipt):
                    oracle.acknowledged(id_, answer)
                if number % 7 == 0:
                    store.fold(0)
            if day < 2:
                store.fold_all(0)
        maintenance.maintain(store, 0)
        for metric in maintenance.unfinalized(store):
            maintenance.finalize(store, metric)
        assert store.backlog()
        assert oracle.unsettled() == []
    return oracle


def opens(name: str) -> bool:
    try:
        open_store(name).close()
    except StoreError:
        return False
    return True


def move(directory: Path, server: RedisServer) -> None:
    """Move it as an operator does who reads what is said."""
    with closing(server.client()) as client:
        half_filled = str(client.hget(GLOBAL, "token")).endswith(":unfinished'")
        if half_filled and "moved_to" not in states(directory):
            with pytest.raises(StoreError, match="not filled to its end"):
                copy(directory, server.url, shards=4)
            client.flushdb()
    copy(directory, server.url, shards=4)


def states(directory: Path) -> set[str]:
    """Return what is written about the store in a directory."""
    with closing(SQLiteStore(directory, moved=True)) as store:
        return set(store._states())


def known(store: Store) -> list[object]:
    """Return who is let in, by what sessions are signed, and who changed what."""
    key = store.keys.find(STRONG.encode())
    assert key
    return [key.id, store.signing_secret(b"sessions"), *store.keys.listed(), *store.journal()]


def send_again(oracle: Oracle, store: Store) -> None:
    """Send everything again, as devices do that did not hear of the answer: it is known."""
    for id_ in oracle.ids():
        body = oracle.body(id_)
        (answer,) = store.append([(parse_upload(body, store.find_plan), body)])
        if isinstance(answer, Receipt):
            assert answer.duplicate
            oracle.acknowledged(id_, answer)


def test_a_move_that_is_killed_at_any_step_loses_and_doubles_nothing(home: Path) -> None:
    happened = 0
    life = lived(home / "lived")
    with running_redis(home / "redis") as server:
        for number, cut in enumerate(CUTS):
            directory = shutil.copytree(home / "lived", home / f"store-{number}")
            oracle = life.copy()
            with closing(open_store(str(directory))) as store:
                known_before = known(store)
            ordered = Orders(home / f"faults-{number}", (cut,))
            killed = Process(
                home, f"copy-{number}", ["store", "copy", "--data", directory, "--to", server.url, "--shards", 4]
            )
            killed.orders = ordered
            killed.launch()
            code = killed.code()
            assert code == (-9 if ordered.happened(cut) else 0), killed.written()
            happened += bool(ordered.happened(cut))
            assert not (opens(str(directory)) and opens(server.url)), f"both can be used after {cut.name}"
            move(directory, server)
            assert not opens(str(directory))
            with closing(open_store(server.url)) as store:
                assert known(store) == known_before
                oracle.check(store)
                send_again(oracle, store)
                for shard in range(store.shards):
                    store.fold_all(shard)
                check_store(oracle, store)
            with server.client() as client:
                client.flushdb()
    assert happened >= min(len(CUTS), 2 * len(STEPS))
