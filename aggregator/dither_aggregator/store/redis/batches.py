"""The batches of the Redis store: one hash for all shards, changed by one script."""

from collections.abc import Collection

from dither_aggregator.store.interface.batches import Batches
from dither_aggregator.store.records import Batch, TallyKey
from dither_aggregator.store.redis import store_scripts
from dither_aggregator.store.redis.epochs import RedisEpochs
from dither_aggregator.store.redis.ledger import RedisLedger
from dither_aggregator.store.redis.packing import batch_name, pack_batch, pairs, tally_of, unpack_batch
from dither_aggregator.store.redis.tallies import RedisTallies


class RedisBatches(RedisLedger, RedisTallies, RedisEpochs, Batches):
    """Batches of the whole store."""

    def batches(self) -> tuple[int | None, list[Batch]]:
        """Return the hour of the last cut, and all batches, in one script."""
        hour, fields = self._run_global(store_scripts.BATCHES)
        found = [unpack_batch(name, packed) for name, packed in sorted(pairs(fields).items())]
        return None if hour is None else int(hour), found

    def _keep_batches(self, last: int | None, hour: int, batches: Collection[Batch]) -> None:
        """Put them in the place of all others in one script."""
        kept = [part for one in batches for part in (batch_name(one.plan, one.epoch, one.shown), pack_batch(one))]
        self._run_global(store_scripts.KEEP_BATCHES, "" if last is None else last, hour, *kept)

    def batch_keys(self) -> tuple[int | None, dict[TallyKey, bool]]:
        """Return the hour of the last cut, and of what there are batches, in one script."""
        hour, names = self._run_global(store_scripts.BATCH_NAMES)
        keys: dict[TallyKey, bool] = {}
        for name in names:
            of_tally, _, which = name.rpartition(b":")
            keys[tally_of(of_tally)] = keys.get(tally_of(of_tally), False) or which == b"shown"
        return None if hour is None else int(hour), keys

    def shown_batch(self, key: TallyKey) -> Batch | None:
        """Return the batch that is shown."""
        name = batch_name(*key, True)
        packed: bytes | None = self._run_global(store_scripts.BATCH, name)
        return None if packed is None else unpack_batch(name.encode(), packed)
