"""A store while nobody changes it: whatever is asked for again was read once."""

from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property

from dither_aggregator.store import Store
from dither_aggregator.store.records import Counted, Final, Segment, Tally
from tests.faults.aggregator.ledgers import ShardLedger


class Instant:
    """The content of a store at one instant."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._ledgers: dict[int, ShardLedger] = {}
        self._finals: dict[int, Mapping[date, Final]] = {}
        self._segments: dict[tuple[int, int, date], Sequence[Segment]] = {}
        self._tallies: dict[tuple[int, date], Tally] = {}

    @cached_property
    def _tallies_from(self) -> date:
        return self.store.tallies_from()

    def ledger(self, shard: int) -> ShardLedger:
        if shard not in self._ledgers:
            self._ledgers[shard] = self.store.shard_ledger(shard)
        return self._ledgers[shard]

    def finals(self, plan: int) -> Mapping[date, Final]:
        if plan not in self._finals:
            self._finals[plan] = self.store.finals(self.store.plan_by_id(plan).plan)
        return self._finals[plan]

    def segments(self, shard: int, plan: int, epoch: date) -> Sequence[Segment]:
        key = (shard, plan, epoch)
        if key not in self._segments:
            self._segments[key] = self.store.segments(shard, plan, epoch)
        return self._segments[key]

    def tally(self, plan: int, epoch: date) -> Tally:
        if (plan, epoch) not in self._tallies:
            self._tallies[plan, epoch] = self.store.tally(self.store.plan_by_id(plan).plan, epoch)
        return self._tallies[plan, epoch]

    def may_be_given_up(self, plan: int, epoch: date) -> bool:
        """Return whether a tally is old enough, and final."""
        return epoch < self._tallies_from and epoch in self.finals(plan)

    def has_given_up(self, plan: int, epoch: date) -> bool:
        """Return whether a shard's part of a tally is gone, as it may be."""
        return self.may_be_given_up(plan, epoch) and any(
            sum(segment.n for segment in self.segments(shard, plan, epoch))
            < self.ledger(shard).get((plan, epoch), Counted()).folded
            for shard in range(self.store.shards)
        )
