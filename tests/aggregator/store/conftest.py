"""One suite for all kinds of store: `place` is any, `store` a store made there with the registry `asked`.

A cluster has the scripts of a Redis, and other connections: `make test` tries it with the tests of CLUSTERED alone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dither_aggregator.store import Store
from dither_shared.registry import Registry, utc_today
from tests.support.redis_servers import RedisCluster, RedisServer, running_cluster, running_redis
from tests.support.registries import registry
from tests.support.soaking import MEMORY, SOAK
from tests.support.stores import Place, RedisPlace, SQLitePlace

KINDS = ["sqlite", "redis", "cluster"]
CLUSTERED = (
    *("test_copies_in_one_batch_count_once", "test_what_arrives_between_read_and_commit_stays_in_the_log"),
    *("test_a_group_is_replayed_or_dropped_once", "test_a_final_digest_is_recorded_once"),
    *("test_a_copy_is_the_same", "test_a_day_is_erased_in_every_shard", "test_what_is_replayed_is_counted"),
)
ABOVE = ("test_administering.py", "test_release_ledger.py", "test_marks.py")
"""They test more than the store's contract, which others hold on all kinds: `make test` tries these on one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out, in `make test`, the tests of a cluster that are not CLUSTERED, and those ABOVE on other kinds."""
    items[:] = [item for item in items if SOAK or not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    if "[cluster" in item.name:
        return item.name.partition("[")[0] not in CLUSTERED
    return "[redis" in item.name and item.path.name in ABOVE


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two, so that one store can be copied to another. Every test finds them empty."""
    with (
        TemporaryDirectory(dir=MEMORY) as directory,
        running_redis(Path(directory, "one")) as one,
        running_redis(Path(directory, "other")) as other,
    ):
        yield one, other


@pytest.fixture(scope="session")
def redis_clusters() -> Iterator[Callable[[int], RedisCluster]]:
    """Return one of two, so that one store can be copied to another: whole, and as small as it may be."""
    with TemporaryDirectory(dir=MEMORY) as directory, ExitStack() as running:
        started: dict[int, RedisCluster] = {}

        def cluster(number: int) -> RedisCluster:
            if number not in started:
                size = (1, 0) if number else (3, 1)
                started[number] = running.enter_context(running_cluster(Path(directory, f"{number}"), *size))
            return started[number]

        yield cluster


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    with closing(place_of(kind, tmp_path / "store", request, 0)) as made:
        yield made


def place_of(kind: str, directory: Path, request: pytest.FixtureRequest, server: int, shards: int = 4) -> Place:
    """Return an empty place of a kind."""
    if kind == "sqlite":
        return SQLitePlace(directory)
    if kind == "cluster":
        return RedisPlace(request.getfixturevalue("redis_clusters")(server), shards)
    return RedisPlace(request.getfixturevalue("redis_servers")[server], shards)


def other_kind(place: Place) -> str:
    """Return the kind of a store that a place is not of."""
    return "redis" if place.kind == "sqlite" else "sqlite"


@pytest.fixture
def asked() -> Registry:
    return registry(expires=utc_today() + timedelta(days=101))


@pytest.fixture
def store(place: Place, asked: Registry) -> Store:
    return place.make(asked)


@pytest.fixture
def server(redis_servers: tuple[RedisServer, RedisServer]) -> RedisServer:
    """One that every test finds empty and leaves as it was."""
    with closing(redis_servers[0].client()) as client:
        client.flushall()
    return redis_servers[0]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """One that a test may kill, spoil and start again."""
    with running_redis(tmp_path / "redis") as started:
        yield started
