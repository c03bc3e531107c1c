"""The refused groups of the Redis store: a hash a day in each shard."""

from datetime import date, timedelta

from dither_aggregator.store.interface.refused import Refusing
from dither_aggregator.store.packing import day_number
from dither_aggregator.store.records import RefusedCount, RefusedKey, sum_refused
from dither_aggregator.store.redis import shard_scripts
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import pairs, refused_of


class RedisRefusing(RedisOpened, Refusing):
    """Counts of each shard."""

    def refused(self, first: date, last: date) -> dict[RefusedKey, RefusedCount]:
        """Return what all shards refused on some days, each day of each by itself: together they may be long."""
        days = [first + timedelta(days=after) for after in range((last - first).days + 1)]
        asked = [(shard, day) for shard in range(self.shards) for day in days]
        replies = self._client.run_each(
            [self._call(shard_scripts.REFUSED, shard, day_number(day)) for shard, day in asked]
        )
        of_days = zip(asked, replies, strict=True)
        return sum_refused(refused_of(day, pairs(reply)) for (_, day), reply in of_days)
