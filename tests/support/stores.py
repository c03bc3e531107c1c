"""Stores of both kinds on one footing: made, opened again, damaged, and sent through time."""

import random
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from dither_aggregator.store import Receipt, SQLiteStore, Store
from dither_aggregator.store.redis import RedisStore
from dither_aggregator.store.redis.layout import MARK_BYTES, SEGMENT, shard_key, tally_name
from dither_aggregator.store.sqlite import FILE_NAME
from dither_shared.registry import Registry
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import Problem, Upload, parse_upload
from tests.support.clocks import DAY_S
from tests.support.redis_servers import RedisCluster, RedisServer

Change = Callable[[bytes], bytes]
AS_IN_6 = """
CREATE TABLE plan (id INTEGER PRIMARY KEY, document TEXT NOT NULL);
INSERT INTO plan SELECT id, text FROM document WHERE kind = 'plans';
CREATE TABLE key (id TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO key SELECT id, text FROM document WHERE kind = 'keys';
CREATE TABLE journal (seq INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL);
INSERT INTO journal SELECT id, text FROM document WHERE kind = 'journal';
DROP TABLE document;
CREATE TABLE seen (id BLOB PRIMARY KEY, day TEXT NOT NULL, answer BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE taken (id BLOB PRIMARY KEY, day TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 6;
"""
"""Makes a SQLite store without marks what version 6 would have made; the ids of its uploads stay those of today."""


class Place(ABC):
    """A place for a store. Its clock starts at noon of the day after this one, so that a day is whole."""

    kind: str

    def __init__(self) -> None:
        self._opened: list[Store] = []
        tomorrow = datetime.now(UTC).replace(hour=12, minute=0, second=0) + timedelta(days=1)
        self.first = tomorrow.date()
        self._start_s = tomorrow.timestamp() - time.time()
        self._days = 0.0

    def make(self, asked: Registry | None = None, app: str = "example") -> Store:
        """Make the store, with a registry loaded."""
        store = self.keep(self._make(app, unfinished=False))
        self.travel(0)
        if asked:
            store.load(asked)
        return store

    def begin(self, app: str = "example") -> Store:
        """Make an unfinished store."""
        return self.keep(self._make(app, unfinished=True))

    def open(self) -> Store:
        """Open the store once more, as another process does."""
        return self.keep(self._open())

    def keep(self, store: Store) -> Store:
        """Close a store with the others."""
        self._opened.append(store)
        return store

    def travel(self, days: float) -> None:
        """Move the store's clock."""
        self._days += days
        for store in self._opened[:1]:
            store.set_clock_offset(self._start_s + self._days * DAY_S)
        for store in self._opened[1:]:
            store.refresh()

    def day(self, after: int = 0) -> date:
        """Return the first day of the clock, or one so many days after it."""
        return self.first + timedelta(days=after)

    def close(self) -> None:
        """Close every store that was opened."""
        while self._opened:
            self._opened.pop().close()

    @abstractmethod
    def _make(self, app: str, *, unfinished: bool) -> Store: ...

    @abstractmethod
    def _open(self) -> Store: ...

    @abstractmethod
    def change_log(self, change: Change, shard: int = 0) -> None:
        """Change each entry of a shard's log."""

    @abstractmethod
    def lose_log(self, shard: int = 0) -> None:
        """Empty a shard's log."""

    @abstractmethod
    def change_counts(self, change: Change, shard: int = 0) -> None:
        """Change the packed counts of each of a shard's segments."""

    @abstractmethod
    def shorten_ranges(self, plan: int, epoch: date, shard: int = 0) -> None:
        """Let each segment of a merged tally begin one upload later."""

    @abstractmethod
    def content(self) -> bytes:
        """Return everything that is kept, in some order."""


class SQLitePlace(Place):
    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def _make(self, app: str, *, unfinished: bool) -> Store:
        return SQLiteStore.create(self.directory, app, unfinished=unfinished)

    def _open(self) -> Store:
        return SQLiteStore(self.directory)

    def _change(self, table: str, column: str, key: str, change: Change) -> None:
        with closing(sqlite3.connect(self.directory / FILE_NAME)) as db, db:
            for key_, value in db.execute(f"SELECT {key}, {column} FROM {table}").fetchall():
                db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (change(value), key_))

    def change_log(self, change: Change, shard: int = 0) -> None:
        self._change("log", "entry", "seq", change)

    def lose_log(self, shard: int = 0) -> None:
        with closing(sqlite3.connect(self.directory / FILE_NAME)) as db, db:
            db.execute("DELETE FROM log")

    def change_counts(self, change: Change, shard: int = 0) -> None:
        self._change("segment", "counts", "low", change)

    def shorten_ranges(self, plan: int, epoch: date, shard: int = 0) -> None:
        with closing(sqlite3.connect(self.directory / FILE_NAME)) as db, db:
            db.execute("UPDATE tally SET low = low + 1 WHERE plan = ? AND epoch = ?", (plan, epoch.isoformat()))

    def content(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.directory.iterdir())


class RedisPlace(Place):
    kind = "redis"

    def __init__(self, server: RedisServer | RedisCluster, shards: int = 4) -> None:
        super().__init__()
        self.server = server
        self.shards = shards
        self.redis = server.client()
        self.redis.flushall()

    def _make(self, app: str, *, unfinished: bool) -> Store:
        return RedisStore.create(self.server.url, app, shards=self.shards, unfinished=unfinished)

    def _open(self) -> Store:
        return RedisStore(self.server.url)

    def close(self) -> None:
        super().close()
        self.redis.close()

    def configure(self, name: str, value: object) -> None:
        """Change a setting of each node."""
        for node in self.server.nodes if isinstance(self.server, RedisCluster) else [self.server]:
            node.ask("CONFIG SET", name, value)

    def change_log(self, change: Change, shard: int = 0) -> None:
        key = shard_key(shard, "log")
        for place, entry in enumerate(self._list(key)):
            self.redis.lset(key, place, entry[:MARK_BYTES] + change(entry[MARK_BYTES:]))

    def lose_log(self, shard: int = 0) -> None:
        self.redis.delete(shard_key(shard, "log"))

    def change_counts(self, change: Change, shard: int = 0) -> None:
        for key in self.redis.scan_iter(f"{shard_key(shard)}:tally:*"):
            for place, packed in enumerate(self._list(key)):
                self.redis.lset(key, place, packed[: SEGMENT.size] + change(packed[SEGMENT.size :]))

    def shorten_ranges(self, plan: int, epoch: date, shard: int = 0) -> None:
        key = shard_key(shard, "tally", tally_name(plan, epoch))
        for place, packed in enumerate(self._list(key)):
            mark, low, high, n = SEGMENT.unpack_from(packed)
            self.redis.lset(key, place, SEGMENT.pack(mark, low + 1, high, n) + packed[SEGMENT.size :])

    def _list(self, key: str) -> list[bytes]:
        entries: list[bytes] = self.redis.lrange(key, 0, -1)
        return entries

    def content(self) -> bytes:
        return b"".join(key + (self.redis.dump(key) or b"") for key in self.redis.scan_iter())


def body_of(asked: Registry, reports: Mapping[str, Sequence[int]], upload_id: str = "") -> bytes:
    """Return an upload's body, with these reports of each metric: in the first cell where there are several."""
    groups = []
    for name, values in reports.items():
        plan = asked.metrics[name].plan
        cell = (0,) if plan.cells.several else ()
        groups.append(
            (name, plan.digest, [plan.cells.mechanism_of(0).shape.to_wire(report) for report in values], *cell)
        )
    return encode_upload(upload_id or new_upload_id(random.getrandbits), groups)


def parsed(store: Store, body: bytes) -> tuple[Upload, bytes]:
    """Return an upload as `append` takes it."""
    return parse_upload(body, store.find_plan), body


def body_in(store: Store, shard: int, asked: Registry, reports: Mapping[str, Sequence[int]]) -> bytes:
    """Return an upload's body that goes to one shard."""
    while True:
        upload_id = new_upload_id(random.getrandbits)
        if store.shard_of(store.digest(upload_id.encode())) == shard:
            return body_of(asked, reports, upload_id)


def answer(store: Store, body: bytes) -> Receipt | Problem:
    """Append one upload and return its answer."""
    return store.append([parsed(store, body)])[0]


def append(store: Store, body: bytes) -> Receipt:
    """Append one upload that is taken."""
    receipt = answer(store, body)
    assert isinstance(receipt, Receipt), receipt
    return receipt


def fold_all(store: Store) -> None:
    """Fold everything that waits."""
    for shard in range(store.shards):
        while store.fold(shard):
            pass


def seal_all(store: Store) -> None:
    """Seal what can be sealed."""
    for shard in range(store.shards):
        store.seal(shard)


def balance(store: Store) -> tuple[int, int, int, int]:
    """Return (accepted, folded, pending, quarantined) of a ledger that balances."""
    rows = store.ledger()
    assert all(row.balanced for row in rows), rows
    return (
        sum(row.accepted for row in rows),
        sum(row.folded for row in rows),
        sum(row.pending for row in rows),
        sum(row.quarantined for row in rows),
    )


def store_on(server: RedisServer, asked: Registry, **options: Any) -> RedisStore:
    """Make a store of four shards on a Redis, with the registry loaded."""
    store = RedisStore.create(server.url, "example", shards=4, **options)
    store.load(asked)
    return store
