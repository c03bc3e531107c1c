"""The marks of the Redis store: one set for all shards."""

from dither_aggregator.store.interface.marks import MARKS_MAX, Marks, too_many
from dither_aggregator.store.records import DayMark
from dither_aggregator.store.redis import store_scripts
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import pack_day_mark, unpack_day_mark


class RedisMarks(RedisOpened, Marks):
    """Marks of the whole store."""

    def marks(self) -> list[DayMark]:
        """Return all marks."""
        return sorted(map(unpack_day_mark, self._run_global(store_scripts.MARKS)))

    def _add_mark(self, mark: DayMark) -> bool:
        """Keep a mark in one script."""
        added: int | None = self._run_global(store_scripts.ADD_MARK, pack_day_mark(mark), MARKS_MAX)
        if added is None:
            raise too_many()
        return bool(added)

    def remove_mark(self, mark: DayMark) -> bool:
        """Remove a mark."""
        return bool(self._run_global(store_scripts.REMOVE_MARK, pack_day_mark(mark)))
