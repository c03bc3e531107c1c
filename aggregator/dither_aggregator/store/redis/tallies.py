"""The tallies of the Redis store: a list of segments each."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from dither_aggregator.store.interface.tallies import Tallies
from dither_aggregator.store.records import Segment, TallyKey, Unmerged
from dither_aggregator.store.redis import shard_scripts
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import (
    MARK_BYTES,
    pack_segment,
    segment_head,
    tally_name,
    tally_of,
    unpack_segment,
)


class RedisTallies(RedisOpened, Tallies):
    """Segments, oldest first."""

    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return a shard's segments of a tally."""
        return self._unpack_segments(plan, epoch, self._run(shard_scripts.SEGMENTS, shard, tally_name(plan, epoch)))

    def all_segments(self, plan: int, epoch: date) -> Iterator[Segment]:
        """Yield every shard's segments of a tally, from one round trip."""
        for packed in self._of_each_shard(shard_scripts.SEGMENTS, tally_name(plan, epoch)):
            yield from self._unpack_segments(plan, epoch, packed)

    def _unpack_segments(self, plan: int, epoch: date, packed: Iterable[bytes]) -> list[Segment]:
        size = self.plan_by_id(plan).plan.cells.tally_size
        return [unpack_segment(plan, epoch, one, size) for one in packed]

    def crowded(self, shard: int, segments: int) -> list[TallyKey]:
        """Return the plans and epochs that have at least so many segments."""
        return [tally_of(name) for name in self._run(shard_scripts.CROWDED, shard, segments)]

    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally."""
        name = tally_name(new.plan, new.epoch)
        ends = segment_head(old[0]), segment_head(old[-1])
        packed = pack_segment(new, secrets.token_bytes(MARK_BYTES))
        return bool(self._run(shard_scripts.REPLACE, shard, name, len(old), *ends, packed))

    def note_merged(self, shard: int) -> list[Unmerged]:
        """Note that the sealed days of a shard are merged, if they are, in one script."""
        return [Unmerged(*tally_of(name), low, high) for name, low, high in self._run(shard_scripts.NOTE_MERGED, shard)]
