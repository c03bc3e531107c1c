"""The quarantine of the Redis store: a hash a shard."""

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence

from dither_aggregator.store.interface.log import READ_UPLOADS_MAX
from dither_aggregator.store.interface.quarantine import Quarantine
from dither_aggregator.store.records import LogEntry, Poison, Quarantined
from dither_aggregator.store.redis import shard_scripts
from dither_aggregator.store.redis.log import READ_REDIS_BYTES_MAX
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import MARK_BYTES, pairs, poison_arguments, unpack_poison


class RedisQuarantine(RedisOpened, Quarantine):
    """Groups by shard and number."""

    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine."""
        return [
            Quarantined.of(id_, unpack_poison(id_, held[str(number).encode()]))
            for shard, reply in enumerate(self._of_each_shard(shard_scripts.QUARANTINE))
            for held in (pairs(reply),)
            for number in sorted(map(int, held))
            for id_ in (f"{shard}-{number}",)
        ]

    def log_entries(self, shard: int) -> Iterator[LogEntry]:
        """Yield the entries of the log."""
        place = 0
        while True:
            cursor, _, _, *entries = self._run(shard_scripts.READ, shard, place, READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
            if not entries and cursor <= place:
                return
            place = max(place, cursor)  # counters may have overtaken us
            for entry in entries:
                place += 1
                yield LogEntry(place, entry[MARK_BYTES:], entry[:MARK_BYTES])

    def set_apart(
        self, shard: int, oldest: LogEntry, others: Mapping[LogEntry, bytes], poisons: Sequence[Poison]
    ) -> bool:
        """Take entries out of the log in one script."""
        mark = secrets.token_bytes(MARK_BYTES)
        taken: list[object] = []
        for one, new in {oldest: b"", **others}.items():
            digest = hashlib.sha1(one.mark + one.entry, usedforsecurity=False).hexdigest()
            taken += [one.place, digest, mark + new]
        stored = [part for poison in poisons for part in poison_arguments(poison)]
        return bool(self._run(shard_scripts.SET_ASIDE, shard, oldest.place - 1, 1 + len(others), *taken, *stored))

    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log."""
        place = self._place_of(id_)
        return bool(place and self._run(shard_scripts.REPLAY, *place, secrets.token_bytes(MARK_BYTES)))

    def drop(self, id_: str) -> bool:
        """Give a quarantined group up."""
        place = self._place_of(id_)
        return bool(place and self._run(shard_scripts.DROP, *place))

    def _place_of(self, id_: str) -> tuple[int, int] | None:
        """Return the shard and number of a quarantined group; None where there can be none."""
        numbers = id_.split("-")
        if len(numbers) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in numbers):
            return None
        shard, number = map(int, numbers)
        return (shard, number) if shard < self.shards else None
