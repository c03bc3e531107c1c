"""The places of a simulation's stores: empty directories, and empty databases of one Redis."""

import itertools
import os
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import redis

from dither_aggregator.store import SQLiteStore, Store
from dither_aggregator.store.redis import RedisStore
from tests.faults.aggregator.editions import APP
from tests.support.clocks import DAY_S, Clock
from tests.support.redis_servers import RedisServer, running_redis

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)
"""When every simulation begins: at noon, so that only whole days of its own move the day."""
FIRST_DAY = NOON.date()
DATABASES = 4
DIGEST_KEY_BYTES = 32


class Place(ABC):
    """The place of one store."""

    kind: str
    name: str

    def make(self, shards: int, *, unfinished: bool = False) -> Store:
        """Make a store whose ids have the same digests, and so the same shards, in every run."""

        def draw(size: int) -> bytes:
            return b"\x5a" * size if size == DIGEST_KEY_BYTES else os.urandom(size)

        with mock.patch.object(secrets, "token_bytes", draw):
            return self._make(shards, unfinished)

    @abstractmethod
    def _make(self, shards: int, unfinished: bool) -> Store: ...

    @abstractmethod
    def open(self) -> Store:
        """Open the store as one more process does."""

    @abstractmethod
    def offset(self, days: int) -> float:
        """Return the offset of the clock that is so many days after the first noon."""

    @abstractmethod
    def leave(self) -> None:
        """Remove the store."""


class SQLitePlace(Place):
    """A directory."""

    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = str(directory)
        self._clock = Clock(NOON.timestamp())

    def _make(self, shards: int, unfinished: bool) -> Store:
        return SQLiteStore.create(self.directory, APP, self._clock, unfinished=unfinished)

    def open(self) -> Store:
        return SQLiteStore(self.directory, self._clock)

    def offset(self, days: int) -> float:
        return days * DAY_S

    def leave(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class RedisPlace(Place):
    """A database of a Redis, one of those that are free."""

    kind = "redis"

    def __init__(self, server: RedisServer, free: list[int]) -> None:
        self._free, self._number = free, free.pop()
        self.name = f"redis://127.0.0.1:{server.port}/{self._number}"

    def _make(self, shards: int, unfinished: bool) -> Store:
        return RedisStore.create(self.name, APP, shards=shards, unfinished=unfinished)

    def open(self) -> Store:
        return RedisStore(self.name)

    def offset(self, days: int) -> float:
        return NOON.timestamp() - time.time() + days * DAY_S

    def leave(self) -> None:
        with redis.Redis.from_url(self.name, protocol=2) as client:
            client.flushdb()
        if self._number not in self._free:
            self._free.append(self._number)


class Places:
    """Gives out empty places. Its Redis runs until it is closed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._numbers = itertools.count()
        self._databases = list(range(DATABASES))
        self._given: list[Place] = []
        self._running = ExitStack()
        self._server: RedisServer | None = None

    def new(self, kind: str) -> Place:
        """Return an empty place."""
        if kind == "redis" and self._server is None:
            self._server = self._running.enter_context(running_redis(self.directory / "redis"))
        place: Place = SQLitePlace(self.directory / f"store{next(self._numbers)}")
        if self._server and kind == "redis":
            place = RedisPlace(self._server, self._databases)
        self._given.append(place)
        return place

    def leave(self) -> None:
        """Remove every store."""
        while self._given:
            self._given.pop().leave()

    def close(self) -> None:
        """Stop the Redis."""
        self._running.close()
