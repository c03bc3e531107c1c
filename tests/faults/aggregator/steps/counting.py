"""Steps of counters, of compactors, and of whoever looks after the quarantine."""

from collections.abc import Callable
from typing import NamedTuple

from dither_aggregator.counting import Counts
from dither_aggregator.counting import fold as fold_reports
from dither_aggregator.store import Store
from dither_aggregator.store.records import LogRead, Poison, Quarantined, Segment, fold_read, sum_segments
from dither_shared.shapes import ReportShape
from tests.faults.aggregator.steps.processes import HELD_MAX, Processes, View, step


class HeldRead(NamedTuple):
    """A counter that has counted and not committed."""

    shard: int
    read: LogRead
    segments: list[Segment]
    poisons: list[Poison]


class HeldMerge(NamedTuple):
    """A compactor that has added up and not replaced."""

    shard: int
    old: list[Segment]
    new: Segment


class CountingSteps(Processes):
    """Count the log, add segments up, and decide on groups that nobody could count."""

    _reads: list[HeldRead]
    _merges: list[HeldMerge]

    def _enter(self, view: View) -> None:
        super()._enter(view)
        self._reads, self._merges = [], []

    # Counters and compactors.

    @step
    def fold(self) -> None:
        """Let a counter read and commit in one go."""
        shard, store = self.shard(), self.any()
        waits = self.observer.status()[shard].backlog > 0
        folded = self._try(lambda: store.fold(shard))
        assert folded in (None, waits), f"shard {shard} had something to fold, {waits}, and said {folded}"

    @step
    def read(self) -> None:
        """Let a counter read and count, and commit later."""
        shard, store = self.shard(), self.any()
        store.refresh()
        read = store.read_log(shard)
        cells = {stored.id: stored.plan.cells for stored in store.plans()}
        if read.high > read.low:
            self._reads = [*self._reads, HeldRead(shard, read, *fold_read(read, cells))][-HELD_MAX:]

    @step
    def commit(self) -> None:
        """Let a counter commit that has read, however long ago, or for the second time."""
        if not self._reads:
            return self.read.__wrapped__(self)  # type: ignore[attr-defined,no-any-return]
        number = self.rng.randrange(len(self._reads))
        held = self._reads.pop(number) if self.rng.randrange(3) else self._reads[number]
        in_place = self.observer.status()[held.shard].cursor == held.read.low
        store = self.any()
        done = self._try(lambda: store.commit_fold(held.shard, held.read, held.segments, held.poisons))
        self.met["committed" if done else "overtaken"] += done is not None
        self.met["poison"] += bool(done and held.poisons)
        assert done in (None, in_place), f"a commit says {done}; that the cursor was in its place is {in_place}"
        return None

    def _fold(self, shape: ReportShape, reports: bytes) -> Counts:
        if any(mark in reports for mark in self.marked):
            raise ValueError("a marked report")
        return fold_reports(shape, reports)

    @step
    def merge(self) -> None:
        """Let a compactor add up some segments, or all of a sealed tally, and replace them later."""
        shard, store = self.shard(), self.any()
        store.refresh()
        crowded = store.crowded(shard, 2)
        unmerged = self._try(lambda: store.note_merged(shard)) if self.rng.randrange(2) else None
        if unmerged:
            plan, epoch, low, high = self.rng.choice(unmerged)
            old = store.segments(shard, plan, epoch)
            new = sum_segments(old)._replace(low=low, high=high)
        elif crowded:
            old = store.segments(shard, *self.rng.choice(sorted(crowded)))
            old = old[: self.rng.randint(2, len(old))]
            new = sum_segments(old)
        else:
            return
        self._merges = [*self._merges, HeldMerge(shard, old, new)][-HELD_MAX:]

    @step
    def replace(self) -> None:
        """Let a compactor replace what it has read, however long ago."""
        if not self._merges:
            return self.merge.__wrapped__(self)  # type: ignore[attr-defined,no-any-return]
        held = self._merges.pop(self.rng.randrange(len(self._merges)))
        there = self.observer.segments(held.shard, held.new.plan, held.new.epoch)[: len(held.old)]
        same = [one[:5] for one in there] == [one[:5] for one in held.old]
        store = self.any()
        done = self._try(lambda: store.replace_segments(held.shard, held.old, held.new))
        self.met["merged" if done else "merged too late"] += done is not None
        assert done in (None, same), f"a compactor says {done}; that the segments were in their place is {same}"
        return None

    @step
    def compact(self) -> None:
        """Let a compactor do all at once."""
        shard, store = self.shard(), self.any()
        self._try(lambda: store.compact(shard))

    # Quarantine.

    @step
    def mark(self) -> None:
        """Let a group that waits be one that no counter can count."""
        groups = self.observer.read_log(self.shard()).groups
        if groups:
            self.marked.add(self.rng.choice(groups).reports)

    @step
    def repair(self) -> None:
        """Let counters count everything again."""
        self.marked.clear()

    @step
    def replay(self) -> None:
        """Put a quarantined group back into the log."""
        self._decide(lambda store, id_: store.replay(id_), self._note_replayed)

    @step
    def drop(self) -> None:
        """Give a quarantined group up."""
        self._decide(lambda store, id_: store.drop(id_), self._note_dropped)

    def _decide(self, effect: Callable[[Store, str], bool], note: Callable[[Quarantined], None]) -> None:
        """Do something to one of the quarantined groups, or to one that is not there."""
        waiting = {held.id: held for held in self.observer.quarantined()}
        id_ = self.rng.choice([*waiting, *waiting, *waiting, "0-999"])
        store = self.any()
        done = self._try(lambda: effect(store, id_))
        assert done in (None, id_ in waiting), f"{id_} was in quarantine, {id_ in waiting}, and the answer is {done}"
        gone = id_ not in {held.id for held in self.observer.quarantined()}
        assert gone or not done, f"{id_} is still in quarantine"
        if id_ in waiting and gone:
            note(waiting[id_])

    def _note_replayed(self, held: Quarantined) -> None:
        shard = int(held.id.split("-")[0])
        self.met["replayed"] += 1
        self.oracle.replayed(self.observer.plan_by_id(held.plan).plan, held, self.observer.status()[shard].day)

    def _note_dropped(self, held: Quarantined) -> None:
        self.met["dropped"] += 1
        self.oracle.dropped(self.observer.plan_by_id(held.plan).plan, held)
