"""The keys of the Redis store: one hash for all shards."""

import json
from collections.abc import Sequence

from dither_aggregator.store.interface.keyring import Keyring
from dither_aggregator.store.keys import Key
from dither_aggregator.store.redis import store_scripts
from dither_aggregator.store.redis.opened import RedisOpened


class RedisKeyring(RedisOpened, Keyring):
    """Keys of the whole store."""

    def _save_keys(self, keys: Sequence[Key], version: int) -> bool:
        documents = [value for key in keys for value in (key.id, json.dumps(key.to_document()))]
        return bool(self._run_global(store_scripts.SAVE, "keys", version, *documents))
