"""The store: log, tallies, ledger, quarantine and deduplication, where nothing is counted twice or lost.

`contract.py` says what a store does, and does what both kinds do alike; `sqlite/` and `redis/` do the rest.
A store's name says its kind: a directory is SQLite, an address of Redis or of a cluster is Redis.
"""

from pathlib import Path

from dither_aggregator.store.contract import SHARDS, Store, at_one_moment
from dither_aggregator.store.documents import StoredPlan
from dither_aggregator.store.records import LedgerRow, Receipt, StoreError, StoreLoading, StoreUnavailable, Tally
from dither_aggregator.store.sqlite import SQLiteStore

__all__ = [
    "SHARDS",
    "LedgerRow",
    "Receipt",
    "SQLiteStore",
    "Store",
    "StoreError",
    "StoreLoading",
    "StoreUnavailable",
    "StoredPlan",
    "Tally",
    "at_one_moment",
    "create_store",
    "is_redis",
    "open_store",
]
REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://")


def is_redis(name: str) -> bool:
    """Whether a store's name is an address of Redis."""
    return name.startswith(REDIS_SCHEMES)


def open_store(
    name: str, *, read_only: bool = False, allow_lossy_store: bool = False, unfinished: bool = False
) -> Store:
    """Open the store of this name; raise StoreError when there is none or it cannot be used.

    Only the process that fills it opens one that is `unfinished`.
    """
    if not is_redis(name):
        return SQLiteStore(Path(name), read_only=read_only, unfinished=unfinished)
    from dither_aggregator.store.redis import RedisStore  # and with it redis: only where it is used

    return RedisStore(name, allow_lossy_store=allow_lossy_store, unfinished=unfinished)


def create_store(
    name: str, app: str, shards: int = SHARDS, *, allow_lossy_store: bool = False, unfinished: bool = False
) -> Store:
    """Make a store of this name, and open it; raise StoreError when there is one. SQLite has one shard."""
    if not is_redis(name):
        return SQLiteStore.create(Path(name), app, unfinished=unfinished)
    from dither_aggregator.store.redis import RedisStore

    return RedisStore.create(name, app, shards=shards, allow_lossy_store=allow_lossy_store, unfinished=unfinished)
