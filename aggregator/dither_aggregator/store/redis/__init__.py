"""The store for several machines: shards in one Redis, every effect one script.

A write is durable if Redis has written and synced it before it answers: `appendonly yes` and `appendfsync always`,
which is checked when the store is opened and again with its state.

The roles stand on `opened.py`, and that on `calls.py` and `client.py`; `key_names.py` has every key, `store_scripts.py`
and `shard_scripts.py` every script, `packing.py` the bytes.
"""

from dither_aggregator.store.interface import Store
from dither_aggregator.store.redis.batches import RedisBatches
from dither_aggregator.store.redis.epochs import RedisEpochs
from dither_aggregator.store.redis.erasing import RedisErasing
from dither_aggregator.store.redis.journal import RedisJournal
from dither_aggregator.store.redis.keyring import RedisKeyring
from dither_aggregator.store.redis.ledger import RedisLedger
from dither_aggregator.store.redis.log import RedisLog
from dither_aggregator.store.redis.marks import RedisMarks
from dither_aggregator.store.redis.moving import RedisMoving
from dither_aggregator.store.redis.quarantine import RedisQuarantine
from dither_aggregator.store.redis.readings import RedisReadings
from dither_aggregator.store.redis.refused import RedisRefusing
from dither_aggregator.store.redis.resetting import RedisResetting
from dither_aggregator.store.redis.tallies import RedisTallies

__all__ = ["RedisStore"]


class RedisStore(
    RedisLog,
    RedisQuarantine,
    RedisResetting,
    RedisErasing,
    RedisMoving,
    RedisBatches,
    RedisLedger,
    RedisTallies,
    RedisEpochs,
    RedisReadings,
    RedisMarks,
    RedisKeyring,
    RedisJournal,
    RedisRefusing,
    Store,
):
    """A store in a Redis. Every effect of a shard is one script, and none of them is sent twice by itself."""
