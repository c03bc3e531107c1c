"""A store takes uploads while it has room: in its backlog, on its disk, in its memory."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from dither_aggregator.health.capacity import Capacity, FreeSpace, FreeSpaceFloor
from dither_aggregator.ingest.service import Service
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.redis import RedisStore
from dither_shared.errors import ConfigurationError
from tests.support.http import until
from tests.support.redis_servers import running_redis

GB = 10**9


@pytest.mark.parametrize(
    ("text", "total", "free"),
    [
        ("5%", 200 * GB, 10 * GB),
        ("1GB", 200 * GB, GB),
        ("5%,1GB", 200 * GB, GB),
        ("5%, 1 gb", 2 * GB, GB // 10),
        ("0.5MB", GB, 500_000),
        ("100b", GB, 100),
        ("2GB", GB, GB),  # all there is
        ("off", GB, 0),
    ],
)
def test_a_floor_is_bytes_or_a_share_or_the_lesser_of_both(text: str, total: int, free: int) -> None:
    assert FreeSpaceFloor.parse(text).of(total) == free


@pytest.mark.parametrize("text", ["", "5", "GB", "-1GB", "5%;1GB", "1PB", "100%", "nan%", "5%,"])
def test_what_is_no_floor_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a floor must be"):
        FreeSpaceFloor.parse(text)


def test_the_default_floor_is_what_it_says() -> None:
    assert Capacity().floor == FreeSpaceFloor.parse(Capacity().floor.text)


def test_a_store_lacks_room_from_the_limit_on_and_below_the_floor() -> None:
    capacity = Capacity(backlog_max=10, floor=FreeSpaceFloor.parse("1GB"))
    assert capacity.lacking(9, FreeSpace("disk", GB, 10 * GB)) is None
    assert capacity.lacking(9, None) is None
    assert [
        capacity_problem and capacity_problem.slug
        for capacity_problem in (capacity.lacking(10, None), capacity.lacking(0, FreeSpace("disk", GB - 1, 10 * GB)))
    ] == [
        "backlog-full",
        "disk-full",
    ]
    assert Capacity(None, FreeSpaceFloor.parse("off")).lacking(10**12, FreeSpace("disk", 0, GB)) is None


def test_a_directory_has_what_its_disk_has(tmp_path: Path) -> None:
    with closing(SQLiteStore.create(tmp_path, "example")) as store:
        left, disk = store.left(), shutil.disk_usage(tmp_path)
        assert left
        assert left.total == disk.total
        assert abs(left.free - disk.free) < GB


def test_a_redis_has_what_it_may_have_and_recovers_when_there_is_more(tmp_path: Path) -> None:
    with (
        running_redis(tmp_path / "redis") as server,
        closing(RedisStore.create(server.url, "example", shards=1)) as store,
    ):
        assert store.left() is None
        with server.client() as client, Service(store, capacity=Capacity(floor=FreeSpaceFloor.parse("50%"))) as service:
            until(lambda: not service.trouble())
            used = int(client.info("memory")["used_memory"])
            client.config_set("maxmemory", used * 3 // 2)
            until(lambda: list(service.trouble()) == ["disk-full"])
            left = store.left()
            assert left
            assert 0 < left.free < left.total // 2
            client.config_set("maxmemory", used * 100)
            until(lambda: not service.trouble())
