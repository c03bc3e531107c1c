"""Tallies: the segments that folds leave, whose sum is the tally of a plan and epoch."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import date

import numpy as np

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import Segment, Tally, TallyKey, sum_segments
from dither_shared.plan import Plan

COMPACT_SEGMENTS = 16
"""How many segments of a tally are left side by side in a shard. Readers unpack and add up those of all shards."""


class Tallies(Opened):
    """Integer counts by plan and epoch, each the sum of segments."""

    def tally(self, plan: Plan, epoch: date) -> Tally:
        """Return the tally of a plan and epoch: n = 0 and zeros where nothing was folded."""
        stored = self._plans.get(plan)
        n, counts = 0, np.zeros(plan.cells.tally_size, dtype=np.int64)
        for one in self.all_segments(stored.id, epoch):
            n += one.n
            counts += one.counts
        return Tally(n, counts)

    @abstractmethod
    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return a shard's segments of a tally, in the order of the log. Raises BadTally for damaged ones."""

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
        """Return the plans and epochs of which a shard has at least so many segments."""

    @abstractmethod
    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally *if they are still those*; return whether."""
