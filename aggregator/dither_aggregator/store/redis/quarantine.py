"""The quarantine of the Redis store: a hash a shard."""

import secrets

from dither_aggregator.store.interface.quarantine import Quarantine
from dither_aggregator.store.records import Quarantined
from dither_aggregator.store.redis import scripts
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import MARK_BYTES, pairs, unpack_poison


class RedisQuarantine(RedisOpened, Quarantine):
    """Groups by shard and number."""

    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine."""
        return [
            Quarantined.of(id_, unpack_poison(id_, held[str(number).encode()]))
            for shard, reply in enumerate(self._of_each_shard(scripts.QUARANTINE))
            for held in (pairs(reply),)
            for number in sorted(map(int, held))
            for id_ in (f"{shard}-{number}",)
        ]

    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log."""
        place = self._place_of(id_)
        return bool(place and self._run(scripts.REPLAY, *place, secrets.token_bytes(MARK_BYTES)))

    def drop(self, id_: str) -> bool:
        """Give a quarantined group up."""
        place = self._place_of(id_)
        return bool(place and self._run(scripts.DROP, *place))

    def _place_of(self, id_: str) -> tuple[int, int] | None:
        """Return the shard and number of a quarantined group; None where there can be none."""
        numbers = id_.split("-")
        if len(numbers) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in numbers):
            return None
        shard, number = map(int, numbers)
        return (shard, number) if shard < self.shards else None
