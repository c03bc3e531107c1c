"""A Redis that comes back empty, or with less than it had acknowledged: refused or said, not silently gone on with."""

import random
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import requests

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Receipt, Store, StoreError, open_store
from dither_aggregator.store.records import sum_segments
from dither_aggregator.store.redis import RedisStore
from dither_shared.wire.reading import parse_upload
from tests.faults.aggregator.clustered import REDIS, aggregator, orders
from tests.faults.aggregator.editions import APP, METRICS
from tests.faults.aggregator.load import PAUSE_S, REGISTRY, Device, Load, check_all, check_store, wait_folded
from tests.faults.aggregator.oracle import Oracle
from tests.support.aggregators import dither
from tests.support.clocks import DAY_S
from tests.support.clusters import SeveralMachines, wait_until
from tests.support.redis_servers import RedisServer, running_redis
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow

AOF = "appendonlydir"
READING = ("/v1/metrics", "/v1/metrics/flag/estimates", "/v1/metrics/flag/snapshots", "/", "/metrics/flag")


def get(cluster: SeveralMachines, path: str) -> requests.Response:
    return requests.get(cluster.urls[0] + path, timeout=30)


def trouble(cluster: SeveralMachines) -> dict[str, str]:
    """Return what readiness says is wrong."""
    answer = cluster.ready()
    said: dict[str, str] = answer.json()["trouble"]
    assert answer.status_code == (503 if said else 200)
    return said


@contextmanager
def put_away(server: RedisServer) -> Iterator[None]:
    """Restart a Redis without its file, and at the end with it."""
    away = server.directory.with_name("away")
    server.stop()
    shutil.move(server.directory / AOF, away)
    server.start()
    yield
    server.stop()
    shutil.rmtree(server.directory / AOF)
    shutil.move(away, server.directory / AOF)
    server.start()


def newest_file(server: RedisServer) -> Path:
    """Return the file to which a Redis appends."""
    return max((server.directory / AOF).glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))


def test_a_redis_that_comes_back_empty_is_refused_until_it_has_its_file_again(home: Path) -> None:
    oracle = Oracle("empty", REGISTRY)
    with aggregator(REDIS, home, orders(home)) as cluster:
        assert isinstance(cluster, SeveralMachines)
        with Load(oracle, cluster, pause_s=PAUSE_S) as load:
            load.wait_for(100)
        wait_folded(cluster)
        counted = [get(cluster, path).status_code for path in READING]
        assert counted == [200] * len(READING)
        assert trouble(cluster) == {}
        key = cluster.key
        with put_away(cluster.data):
            wait_until(lambda: "store" in trouble(cluster), "readiness being red")
            refused = [get(cluster, path) for path in READING]
            assert [answer.status_code for answer in refused] == [503] * len(READING)
            id_, body = oracle.upload(groups_max=3)
            while all(group.fault for group in oracle.sent(id_).groups):
                id_, body = oracle.upload(groups_max=3)
            with closing(Device(lambda: cluster.urls, key, 0)) as device:
                assert device.post(body).status == 503
            for command in ("ledger", "fsck"):
                assert dither(command, "--data", cluster.data.url).returncode == 2
            assert cluster["beat-0"].code() == 1
            with pytest.raises(AssertionError, match="holds no store"):
                cluster["beat-0"].start()
            with cluster.data.client() as client:
                assert client.dbsize() == 0  # nobody wrote anything
        wait_until(lambda: trouble(cluster) == {}, "readiness being green")
        if not cluster["worker-0"].runs():
            assert cluster["worker-0"].code() == 1
        cluster.start("worker-0", "beat-0")
        with Load(oracle, cluster, devices=4, pause_s=PAUSE_S) as load:
            load.wait_for(20)
        check_all(oracle, cluster)


def test_an_api_that_had_acknowledged_more_than_redis_came_back_with_says_so(home: Path) -> None:
    """Reports folded before are still counted exactly, and so are those acknowledged afterwards."""
    with aggregator(REDIS, home, orders(home)) as cluster:
        assert isinstance(cluster, SeveralMachines)
        kept, lost = Oracle("kept", REGISTRY), Oracle("lost", REGISTRY)
        with Load(kept, cluster, pause_s=PAUSE_S) as load:
            load.wait_for(100)
        wait_folded(cluster)
        for process in [*cluster.named("worker"), *cluster.named("beat")]:
            process.stop()
        size = newest_file(cluster.data).stat().st_size
        with Load(lost, cluster, pause_s=PAUSE_S) as load:
            load.wait_for(20)
        cluster.data.stop()
        with newest_file(cluster.data).open("ab") as file:
            file.truncate(size)
        cluster.data.restart()
        wait_until(lambda: "lost" in trouble(cluster), "readiness saying what is lost")
        uploads = int(trouble(cluster)["lost"].split(" has lost ")[1].split()[0])
        assert uploads == len(load.acknowledged)
        cluster.start("worker-0", "beat-0")
        with Load(kept, cluster, pause_s=PAUSE_S) as load:
            load.wait_for(50)
        assert "lost" in trouble(cluster)
        check_all(kept, cluster)


# The file, cut at any byte.


class Life:
    """A store in a Redis that has been through everything, and what each of its shards acknowledged, in order."""

    shards = 2

    def __init__(self, server: RedisServer, seed: int) -> None:
        self.oracle = Oracle(seed, REGISTRY)
        self.acknowledged: list[list[tuple[str, Receipt]]] = [[] for _ in range(self.shards)]
        self._rng = random.Random(seed)
        with closing(RedisStore.create(server.url, APP, shards=self.shards)) as store:
            store.load(REGISTRY)
            for day in range(3):
                store.set_clock_offset(day * DAY_S)
                for _ in range(scaled(12, 60)):
                    self._step(store)
                for shard in range(self.shards):
                    store.fold_all(shard)
                    maintenance.maintain(store, shard)
                for metric in maintenance.unfinalized(store):
                    maintenance.finalize(store, metric)
            self.retire(store)

    def _step(self, store: Store) -> None:
        batch = [self.oracle.upload(groups_max=4) for _ in range(self._rng.randint(1, 4))]
        uploads = [(parse_upload(body, store.find_plan), body) for _, body in batch]
        for (id_, _), answer in zip(batch, store.append(uploads), strict=True):
            if isinstance(answer, Receipt):
                self.acknowledged[store.shard_of(store.digest(id_.encode()))].append((id_, answer))
        shard = self._rng.randrange(self.shards)
        if self._rng.random() < 0.6:
            store.fold(shard)
        for plan, epoch in store.crowded(shard, 3):
            old = store.segments(shard, plan, epoch)
            assert store.replace_segments(shard, old, sum_segments(old))

    def retire(self, store: Store) -> None:
        """Change the registry once more, so that the file ends with that."""
        store.retire(next(iter(METRICS)), 1)

    def held(self, store: Store) -> Oracle:
        """Return the account of as many uploads of each shard as it says were written."""
        account = Oracle("held", REGISTRY)
        for status in store.status():
            known = self.acknowledged[status.shard]
            assert status.written <= len(known)
            for id_, receipt in known[: status.written]:
                account.note(self.oracle.sent(id_))
                account.acknowledged(id_, receipt)
        return account


def offsets(file: Path, number: int) -> list[int]:
    """Return where to cut a file: at its ends, between two commands, and anywhere."""
    content = file.read_bytes()
    rng = random.Random(number)
    between = [place for place in range(1, len(content)) if content.startswith((b"*1\r\n", b"*3\r\n"), place)]
    anywhere = rng.sample(range(len(content)), number - number // 3)
    return [0, 1, len(content) - 1, len(content), *rng.sample(between, number // 3), *anywhere]


def test_a_redis_whose_file_is_cut_at_any_byte_holds_a_sound_beginning_or_is_refused(home: Path) -> None:
    """As the power, a full disk or a kill in the middle of a write leave it, and after the repair that Redis asks for.

    A Redis with `aof-load-truncated yes` starts by itself, and does half of what was cut when it is started once more.
    """
    cuts = opened = started = 0
    with running_redis(home / DATA) as server:
        life = Life(server, seed=1)
        server.stop()
        whole = home / "whole"
        shutil.copytree(server.directory / AOF, whole)
        for place in offsets(newest_file(server), scaled(5, 600)):
            cuts += 1
            restored(server, whole)
            with closing(open_store(server.url)) as watching:
                all_ = sum(status.written for status in watching.status())
                server.stop()
                with newest_file(server).open("ab") as file:
                    file.truncate(place)
                started += starts(server)
                server.restart()
                if not opens(server.url):
                    with pytest.raises(StoreError):
                        watching.status()
                    continue
                opened += 1
                lost = watching.trouble().get(Trouble.LOST)
                account, written = goes_on(life, server)
                missing = f"it has lost {all_ - written} uploads that it had acknowledged"
                assert lost == (missing if written < all_ else None)
            server.restart()
            with closing(open_store(server.url)) as store:
                check_store(account, store)
    assert 2 <= cuts - opened < opened
    assert 2 <= started < cuts / 2, "Redis starts with a file that is whole, and with no other"


def goes_on(life: Life, server: RedisServer) -> tuple[Oracle, int]:
    """Check what a Redis came back with, and use it; return the account of what it has then, and what it had."""
    with closing(open_store(server.url)) as store:
        written = sum(status.written for status in store.status())
        account = life.held(store)
        check_store(account, store)
        for _ in range(4):
            id_, body = account.upload(groups_max=4)
            (answer,) = store.append([(parse_upload(body, store.find_plan), body)])
            if isinstance(answer, Receipt):
                account.acknowledged(id_, answer)
        store.fold_all(0)
        return account, written


def starts(server: RedisServer) -> bool:
    """Try to start a Redis with a file that nobody repaired."""
    try:
        server.start()
    except AssertionError:
        assert "redis-check-aof --fix" in server.written()
        return False
    return True


def opens(url: str) -> bool:
    try:
        open_store(url).close()
    except StoreError:
        return False
    return True


DATA = "data"


def restored(server: RedisServer, whole: Path) -> None:
    """Start a Redis with a whole file."""
    server.stop()
    shutil.rmtree(server.directory / AOF)
    shutil.copytree(whole, server.directory / AOF)
    server.start()
