"""One suite for both kinds of store: `place` is either, `store` a store made there with the registry `asked`."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dither_aggregator.store import Store
from dither_shared.registry import Registry, utc_today
from tests.support.redis_servers import RedisServer, running_redis
from tests.support.registries import registry
from tests.support.soaking import MEMORY
from tests.support.stores import Place, RedisPlace, SQLitePlace


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a directory in memory: a store on a disk waits for it at every commit."""
    with TemporaryDirectory(dir=MEMORY) as made:
        yield Path(made)


@pytest.fixture(scope="session")
def redis_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two, so that one store can be copied to another. Every test finds them empty."""
    directory = tmp_path_factory.mktemp("redis")
    with running_redis(directory / "one") as one, running_redis(directory / "other") as other:
        yield one, other


@pytest.fixture(params=["sqlite", "redis"])
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
    return RedisPlace(request.getfixturevalue("redis_servers")[server], shards)


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
