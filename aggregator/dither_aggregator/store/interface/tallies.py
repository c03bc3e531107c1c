"""Tallies: the segments that folds leave, whose sum is the tally of a plan and epoch."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import date

import numpy as np

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.packing import add_counts, sum_segments
from dither_aggregator.store.records import Segment, StoreUnavailable, Tally, TallyKey, Unmerged
from dither_shared.plan import Plan

COMPACT_SEGMENTS = 16
"""How many segments of a tally are left side by side in a shard. Readers unpack and add up those of all shards."""
MERGE_ATTEMPTS = 10


class Tallies(Opened):
    """Integer counts by plan and epoch, each the sum of segments."""

    def tally(self, plan: Plan, epoch: date) -> Tally:
        """Return the tally of a plan and epoch: n = 0 and zeros where nothing was folded."""
        stored = self._plans.get(plan)
        n, counts = 0, np.zeros(plan.cells.tally_size, dtype=np.int64)
        for one in self.all_segments(stored.id, epoch):
            n += one.n
            add_counts(counts, one.packed)
        return Tally(n, counts)

    @abstractmethod
    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return a shard's segments of a tally, in the order of the log. Raises BadTally for one of another size."""

    def all_segments(self, plan: int, epoch: date) -> Iterator[Segment]:
        """Yield every shard's segments of a tally: all of them at a time may be large."""
        for shard in range(self.shards):
            yield from self.segments(shard, plan, epoch)

    def compact(self, shard: int) -> int:
        """Replace the many segments of a tally by their sum; return in how many tallies that was done."""
        crowded = self.crowded(shard, COMPACT_SEGMENTS)
        for plan, epoch in crowded:
            segments = self.segments(shard, plan, epoch)
            if len(segments) > 1:
                self.replace_segments(shard, segments, sum_segments(segments))
        return len(crowded)

    @abstractmethod
    def crowded(self, shard: int, segments: int) -> list[TallyKey]:
        """Return the plans and epochs of which a shard has at least so many segments, two or more."""

    @abstractmethod
    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally *if they are still those*; return whether."""

    def merge(self, shard: int) -> None:
        """Merge the sealed days of a shard: each tally becomes one segment over all that its day has of the log.

        Then no upload can be told apart by its segment, nor matched across metrics by its range. Nothing enters a
        sealed day, so any number of processes may merge it at once, and go on where another was cut off.
        """
        for _ in range(MERGE_ATTEMPTS):
            unmerged = self.note_merged(shard)
            if not unmerged:
                return
            for one in unmerged:
                self._merge_tally(shard, one)
        raise StoreUnavailable(f"the tallies of shard {shard} are being changed all the time; try again")

    def _merge_tally(self, shard: int, one: Unmerged) -> None:
        segments = self.segments(shard, one.plan, one.epoch)
        if segments:  # else it was given up meanwhile
            self.replace_segments(shard, segments, sum_segments(segments)._replace(low=one.low, high=one.high))

    @abstractmethod
    def note_merged(self, shard: int) -> list[Unmerged]:
        """Note that the sealed days of a shard are merged, *if they are*; else return the tallies that are not.

        Reads no counts; nothing at all where this was noted before.
        """
