"""The store for several machines: shards in one Redis, every effect one script.

A write is durable if Redis has written and synced it before it answers: `appendonly yes` and `appendfsync always`,
which is checked when the store is opened and again with its state.

`redis_store.py` has it at work, `moving.py` dumps, fills and erases it, `client.py` its connections, `scripts.py`
every script, `layout.py` every key and the bytes.
"""

from dither_aggregator.store.redis.moving import RedisStore

__all__ = ["RedisStore"]
