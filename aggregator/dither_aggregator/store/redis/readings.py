"""The kept readings of the Redis store: one hash for all shards, changed by one script."""

import struct
from collections.abc import Sequence

from dither_aggregator.store.interface.readings import READINGS_BYTES_MAX, Readings
from dither_aggregator.store.packing import day_number, day_of
from dither_aggregator.store.records import KeptReading
from dither_aggregator.store.redis import store_scripts
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import pairs

_FIRST = struct.Struct("<i")


class RedisReadings(RedisOpened, Readings):
    """Readings of the whole store."""

    def kept_reading(self, key: str) -> KeptReading | None:
        """Return an entry."""
        packed, open_ = self._run_global(store_scripts.READING, key)
        return None if packed is None or len(packed) < _FIRST.size else _unpack(key, packed, open_=bool(open_))

    def open_readings(self) -> list[KeptReading]:
        """Return the entries of readings that are not there, in one script."""
        found = pairs(self._run_global(store_scripts.OPEN_READINGS))
        return [_unpack(key.decode(), packed, open_=True) for key, packed in sorted(found.items())]

    def keep_readings(self, entries: Sequence[KeptReading]) -> None:
        """Keep entries, and let go of the first ones, each entry in one script."""
        for one in entries:
            day = day_number(one.first)
            content = _FIRST.pack(day) + one.content
            self._run_global(store_scripts.KEEP_READINGS, READINGS_BYTES_MAX, one.key, day, int(one.open), content)


def _unpack(key: str, packed: bytes, *, open_: bool) -> KeptReading:
    (day,) = _FIRST.unpack_from(packed)
    return KeptReading(key, day_of(day), open_, packed[_FIRST.size :])
