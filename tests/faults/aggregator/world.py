"""An aggregator of several processes in any order of steps, each of which may fail: on a store, with an oracle.

Nothing runs at once here. Instead whoever reads first and writes later, a counter, a compactor, whoever records what is
final, keeps what it read for as many steps of others as it takes: the orderings of real processes, one step at a time.
Each process has its own `Store` and knows of plans and clock what it last refreshed.

After every step the oracle looks at the ledger, the cursors and the days; `check` compares everything.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from unittest import mock

import pytest

from dither_aggregator import upkeep
from dither_aggregator.analysis import snapshots
from dither_aggregator.counting import folding
from dither_aggregator.counting.folding import Counts
from dither_aggregator.counting.folding import fold as fold_reports
from dither_aggregator.store import (
    Receipt,
    Store,
    StoredPlan,
    StoreError,
    StoreUnavailable,
    archive,
)
from dither_aggregator.store.dump import Record
from dither_aggregator.store.folding import fold_read
from dither_aggregator.store.fsck import check as fsck
from dither_aggregator.store.interface import tallies
from dither_aggregator.store.packing import sum_segments
from dither_aggregator.store.plans import GRACE
from dither_aggregator.store.records import LogRead, Poison, Quarantined, Retention, Segment
from dither_aggregator.store.redis import ledger as redis_ledger
from dither_aggregator.store.redis import log as redis_log
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import log as sqlite_log
from dither_shared.registry import Registry
from dither_shared.shapes import ReportShape
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import Group, Upload, parse_upload
from tests.faults.aggregator.editions import contradiction, editions
from tests.faults.aggregator.faulty import Faults
from tests.faults.aggregator.oracle import Oracle
from tests.faults.aggregator.places import FIRST_DAY, Place, Places
from tests.faults.aggregator.uploads import PlanKey, Sent

T = TypeVar("T")
P = ParamSpec("P")

PROCESSES = 3
HELD_MAX = 6
"""The most of a kind that is held: read, and not yet written."""
READ_UPLOADS = 3
CROWDED = 3
"""In place of thousands and dozens, so that the edges are met."""
KINDS = ("sqlite", "redis")


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


@dataclass(frozen=True)
class Known:
    """The terms of a plan at one version of the registry."""

    expires: date
    retired: bool = False


View = dict[PlanKey, Known]


def step(method: Callable[Concatenate["World", P], T], /) -> Callable[Concatenate["World", P], T]:
    """Make a method a step, which an assertion that fails shows; look at the store behind it."""

    @wraps(method)
    def taken(world: "World", /, *args: P.args, **kwargs: P.kwargs) -> T:
        words = ", ".join(str(getattr(word, "__name__", word)) for word in (*args, *kwargs.values()))
        world.steps.append(f"{world.today}: {method.__name__}({words})")
        try:
            result = method(world, *args, **kwargs)
            world.look()
        except Exception as error:
            world.failed = True
            if not hasattr(error, "__notes__"):
                error.add_note(f"{world.place.kind}, the steps:\n  " + "\n  ".join(world.steps[-40:]))
            raise
        return result

    return taken


class World:
    """The store, its processes and the oracle. Which process does what is drawn from `rng`."""

    def __init__(self, places: Places, kind: str, shards: int, rng: random.Random) -> None:
        self._places = places
        self.rng = rng
        self.steps: list[str] = [f"{kind} with {shards} shards"]
        self.editions = editions(FIRST_DAY)
        self.oracle = Oracle(1, *self.editions)
        self.faults = Faults()
        self.marked: set[bytes] = set()
        """Reports that no counter can count at the moment."""
        self.failed = False
        self.met: Counter[str] = Counter()
        """How often each thing happened."""
        self._shard = 0
        self._days = 0
        self._reads: list[HeldRead] = []
        self._merges: list[HeldMerge] = []
        self._finals: list[tuple[StoredPlan, date]] = []
        self._waiting: list[Sent] = []
        self.place = places.new(kind)
        self.place.make(shards).close()
        self._views: dict[int, View] = {}
        self._enter({})
        self.load(0)

    # Processes.

    def _enter(self, view: View) -> None:
        """Open the store that is at the place now, in every process."""
        self.observer = self.place.open()
        self._views = {self.observer._plans.version: view}
        self.observer.set_clock_offset(self.place.offset(self._days))
        self.processes = [self._start() for _ in range(PROCESSES)]
        self._reads, self._merges, self._finals = [], [], []

    def _start(self) -> Store:
        return self.faults.plant_in(self.place.open())

    def close(self) -> None:
        """Close the store in every process, and remove it."""
        for store in (self.observer, *self.processes):
            store.close()
        self._places.leave()

    def any(self) -> Store:
        """Return some process's store."""
        return self.rng.choice(self.processes)

    def shard(self) -> int:
        """Return some shard, often the same: what meets must be there."""
        if self.rng.randrange(4) == 0 or self._shard >= self.observer.shards:
            self._shard = self.rng.randrange(self.observer.shards)
        return self._shard

    @property
    def today(self) -> date:
        """The day by the store's true clock."""
        return FIRST_DAY + timedelta(days=self._days)

    def look(self) -> None:
        """Check what must hold at every instant."""
        self.faults.order("")
        self.observer.refresh()
        self.oracle.check_conservation(self.observer)

    @step
    def check(self) -> None:
        """Check everything."""
        self.observer.refresh()
        self.oracle.check(self.observer)
        for stored in self.observer.plans():
            for epoch in self.observer.finals(stored.plan):
                self.met["given up" if self.oracle.has_given_up(self.observer, stored.id, epoch) else "final"] += 1
        self.oracle.check_ledger([vars(row) for row in self.observer.ledger()])

    def _try(self, effect: Callable[[], T]) -> T | None:
        """Do what may fail because a fault was ordered; return None where it did."""
        try:
            return effect()
        except StoreUnavailable:
            assert self.faults.struck, "the store is unavailable, and nothing was done to it"
            self.met[self.faults.struck] += 1
            return None

    # Uploads.

    @step
    def send(self, number: int) -> None:
        """Append some uploads: new, repeated, with another body under an id that came before, doubled."""
        self._append([self._pick() for _ in range(number)])

    def _pick(self) -> Sent:
        ids = self.oracle.ids()
        unsettled = self.oracle.unsettled()
        what = self.rng.randrange(12) if ids else 11
        if what == 0:
            id_ = self.rng.choice(ids)
            return self.oracle.sent(id_, self.oracle.another_body(id_))
        if what in (1, 5):
            return self.rng.choice(self.oracle.all_of(self.rng.choice(ids)))
        if what in (2, 3):
            return self.rng.choice(self.oracle.all_of(self.rng.choice(unsettled or ids[-3:])))
        if what == 4:
            return self.oracle.note(self.oracle.uploads.damaged())
        id_, _ = self.oracle.upload()
        return self.oracle.sent(id_)

    def send_again_what_is_unsettled(self) -> None:
        """Send the same bytes again of what nobody answered, as devices do."""
        for id_ in self.oracle.unsettled():
            self._append(self.oracle.all_of(id_))

    def _append(self, batch: list[Sent]) -> None:
        store = self.any()
        parsed = [(sent, self._parse(store, sent)) for sent in batch]
        taken = [(sent, upload) for sent, upload in parsed if upload]
        before = {status.shard: status.day for status in self.observer.status()}
        answers = self._try(lambda: store.append([(upload, sent.body) for sent, upload in taken]))
        after = {status.shard: status.day for status in self.observer.status()}
        for place, (sent, upload) in enumerate(taken):
            shard = store.shard_of(store.digest(sent.id.encode()))
            epoch = after[shard]
            days = {max(before[shard], clock) for clock in (store.clock_day(), self.today)}
            assert epoch in {before[shard], *days}, f"an upload counts on {epoch}, and it is {days}"
            if answers is None:
                refused = [refusal.group for refusal in upload.refused]
                self.oracle.unknown(sent.id, body=sent.body, refused=refused, epoch=epoch)
            else:
                self._answered(sent, answers[place], epoch, latest=max(epoch, *days))

    def _parse(self, store: Store, sent: Sent) -> Upload | None:
        """Read an upload as this process does; one that is damaged is put together. None where no plan is known."""
        if not sent.damaged:
            upload = parse_upload(sent.body, store.find_plan)
            self._check_reading(store, sent, upload)
            return upload
        plans = {(stored.plan.metric, stored.plan.digest): stored.plan for stored in store.plans()}
        if not all(group.plan in plans for group in sent.groups):
            return None
        return Upload(
            sent.id, tuple(Group(plans[group.plan], group.cell, group.packed, group.n) for group in sent.groups), ()
        )

    def _check_reading(self, store: Store, sent: Sent, upload: Upload) -> None:
        """Compare why groups are refused with what this process knows of the plans."""
        view, today = self._views[store._plans.version], store.clock_day()
        metrics = {metric for metric, _ in view}
        expected = {}
        for place, group in enumerate(sent.groups):
            known = view.get(group.plan)
            if known is None:
                expected[place] = "unknown-plan" if group.plan[0] in metrics else "unknown-metric"
            elif known.retired:
                expected[place] = "retired"
            elif today >= known.expires + GRACE:
                expected[place] = "expired"
            elif group.fault:
                expected[place] = group.fault
        refused = {refusal.group: refusal.reason for refusal in upload.refused}
        assert refused == expected, f"of {sent.id} {refused} were refused, and {expected} should be"

    def _answered(self, sent: Sent, answer: Receipt | Problem, epoch: date, latest: date) -> None:
        """Account for an answer. A copy or a refusal did not move the day, and was looked for on the latest."""
        if isinstance(answer, Receipt):
            self.met["copy" if answer.duplicate else "new"] += 1
            self.oracle.acknowledged(sent.id, answer, body=sent.body, epoch=latest if answer.duplicate else epoch)
        else:
            self.met[answer.slug] += 1
            self.oracle.refused(sent.id, answer, body=sent.body, epoch=latest)

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

    # Epochs.

    @step
    def seal(self) -> None:
        """Close the days that are over."""
        shard, store = self.shard(), self.any()
        before = self.observer.status()[shard]
        sealed = self._try(lambda: store.seal(shard))
        after = self.observer.status()[shard]
        if sealed is None:
            return
        assert sealed == after.sealed, f"shard {shard} says that {sealed} is sealed, and {after.sealed} is"
        pending = [epoch for (_, epoch), row in self.observer.shard_ledger(shard).items() if row.pending]
        due = max(before.sealed, min([after.day, *pending]) - timedelta(days=1))
        assert sealed == due, f"shard {shard} has sealed {sealed}, and could {due}"

    @step
    def merge_days(self) -> None:
        """Merge what is sealed."""
        shard, store = self.shard(), self.any()
        store.refresh()
        if self._try(lambda: store.merge(shard)) is None and not self.faults.struck:
            self.met["days merged"] += 1

    @step
    def erase(self) -> None:
        """Erase what is merged."""
        self._try(self.any().erase)

    @step
    def record(self) -> None:
        """Record what is final of a metric, with a snapshot."""
        store = self.any()
        metrics = upkeep.unfinalized(store)
        if metrics:
            self._try(lambda: upkeep.finalize(store, self.rng.choice(metrics)))

    @step
    def choose_final(self) -> None:
        """Let somebody see that an epoch is final, and record it later."""
        store, merged = self.any(), self.observer.merged()
        found = [(stored, epoch) for stored in store.plans() for epoch in store.epochs(stored.plan) if epoch <= merged]
        if found:
            self._finals = [*self._finals, self.rng.choice(found)][-HELD_MAX:]

    @step
    def take(self) -> None:
        """Record an epoch that somebody saw to be final, however long ago, or for the second time."""
        if not self._finals:
            self.choose_final()
        if self._finals:
            stored, epoch = self.rng.choice(self._finals)
            store = self.any()
            store.refresh()
            if self.oracle.has_given_up(self.observer, stored.id, epoch):
                return  # then nobody would begin to
            # Another release writes other snapshots; what was recorded stays.
            with mock.patch.object(snapshots, "FORMAT", self.rng.choice([snapshots.FORMAT, 99])):
                self._try(lambda: snapshots.take(store, stored, epoch))

    @step
    def keep_for(self, tallies: int | None, snapshots: int | None) -> None:
        """Change how many days tallies and snapshots are kept."""
        store = self.any()
        self._try(lambda: store.set_retention(Retention(tallies, snapshots)))

    @step
    def forget(self) -> None:
        """Forget what need not be kept."""
        shard, store = self.shard(), self.any()
        self.oracle.remember(self.observer)
        if self.rng.randrange(3):
            self._try(lambda: store.forget(shard))
        else:
            self._try(store.forget_snapshots)

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

    # Plans.

    @step
    def load(self, edition: int) -> None:
        """Load an edition of the registry."""
        self._load(self.any(), edition)

    @step
    def load_late(self, edition: int, change: Callable[["World"], None]) -> None:
        """Let a process load an edition, and another change the plans just before it stores them."""
        store = self.any()
        save = store._save_plans

        def save_late(*args: Any) -> bool:
            store._save_plans = save  # type: ignore[method-assign]
            change(self)
            return save(*args)

        store._save_plans = save_late  # type: ignore[assignment,method-assign]
        self._load(store, edition)

    def _load(self, store: Store, edition: int) -> None:
        registry = self.editions[edition]
        self._change_plans(lambda: store.load(registry), lambda: self._view() | self._loaded(registry))

    def _view(self) -> View:
        return self._views[max(self._views)]

    def _loaded(self, registry: Registry) -> View:
        loaded = {}
        for metric in registry.metrics.values():
            key = (metric.name, metric.plan.digest)
            known = self._view().get(key)
            loaded[key] = Known(metric.expires, retired=known is not None and known.retired)
        return loaded

    @step
    def retire(self, retired: bool) -> None:
        """Refuse the reports of a plan, or take them again."""
        store = self.any()
        key = self.rng.choice(sorted(self._view()))
        rev = self.oracle.uploads.plans[key].rev
        expires = self._view()[key].expires
        self._change_plans(
            lambda: store.retire(key[0], rev, retired), lambda: self._view() | {key: Known(expires, retired)}
        )

    def _change_plans(self, effect: Callable[[], object], view: Callable[[], View]) -> None:
        struck = self._try(lambda: [effect()]) is None
        self.observer.refresh()
        version, before = self.observer._plans.version, max(self._views)
        assert version == before + 1 or (struck and version == before), f"version {version} came behind {before}"
        if version != before:
            self._views[version] = view()
        stored = self.observer.plans()
        there = {(one.plan.metric, one.plan.digest): Known(one.expires, one.retired) for one in stored}
        assert there == self._view(), f"the plans are {there}, and should be {self._view()}"

    @step
    def contradict(self) -> None:
        """Load a registry that means something else by the same rev: it is refused."""
        store = self.any()
        with pytest.raises(StoreError, match="was loaded before with another meaning"):
            store.load(contradiction(FIRST_DAY))

    # Time and processes.

    @step
    def travel(self, days: int) -> None:
        """Move the clock. Only one process knows at once."""
        self._days += days
        self.observer.set_clock_offset(self.place.offset(self._days))
        self.any().refresh()

    @step
    def refresh(self) -> None:
        """Let a process take up what others changed."""
        self.any().refresh()

    @step
    def restart(self) -> None:
        """End a process and start it again."""
        number = self.rng.randrange(PROCESSES)
        if self.rng.randrange(2):
            self.processes[number].close()
        self.processes[number] = self._start()

    # The whole.

    @step
    def move(self, kind: str, shards: int) -> None:
        """Dump the store, perhaps into a file, and go on with another one, filled with the dump."""
        store = self.any()
        store.refresh()
        records = list(store.dump())
        if self.rng.randrange(2):
            backup = self._places.directory / "backup"
            archive.write(backup, records)
            records = list(archive.read(backup))
        view = self._view()
        place = self._places.new(kind)
        self._restored(place, shards, records).close()
        for process in (self.observer, *self.processes):
            process.close()
        self.place.leave()
        self.place = place
        self._enter(view)
        self.oracle.check(self.observer)

    def _restored(self, place: Place, shards: int, records: list[Record]) -> Store:
        made = place.make(shards, unfinished=True)
        restore(made, records)
        return made

    @step
    def back_up(self, kind: str, shards: int, seen: int) -> None:
        """Dump the store while others use it; fill another with it, and check that."""
        store = self.any()
        store.refresh()
        oracle, records = self.oracle.copy(), []
        dump = store.dump()
        for record in dump:
            records.append(record)
            if len(records) == seen:
                self._go_on(oracle)
        place = self._places.new(kind)
        copied = self._restored(place, shards, records)
        try:
            oracle.check(copied)
        finally:
            copied.close()
            place.leave()

    def _go_on(self, oracle: Oracle) -> None:
        """Do what others do meanwhile. An upload that is sent now may be in the dump."""
        id_, _ = self.oracle.upload(groups_max=3)
        sent = oracle.note(self.oracle.sent(id_))
        self._append([sent])
        for option in self.oracle.ways(id_):
            refused = set(range(len(sent.groups))) - option.places
            oracle.unknown(id_, refused=refused, epoch=option.epoch)
        for shard in range(self.observer.shards):
            self.any().fold(shard)
            self.any().seal(shard)
            self.any().refresh()
            self.any().compact(shard)
            self.any().refresh()
            self.any().merge(shard)

    def settle(self) -> None:
        """Send again, fold, seal, record: then nothing is pending, and all that can be final is."""
        self.faults.order("")
        self.marked.clear()
        for store in self.processes:
            store.refresh()
        self.send_again_what_is_unsettled()
        self.oracle.remember(self.observer)
        for shard in range(self.observer.shards):
            upkeep.fold_all(self.any(), shard)
            upkeep.maintain(self.any(), shard)
        store = self.any()
        for metric in upkeep.unfinalized(store):
            upkeep.finalize(store, metric)
        self.look()
        assert not self.observer.backlog(), "something is still pending"
        assert not upkeep.unfinalized(self.observer), "something that is merged is not finalized"
        findings = list(fsck(self.observer))
        assert not findings, f"fsck says: {findings}"


@contextmanager
def worlds(memory: str | None) -> Iterator[Callable[[str, int, random.Random], Any]]:
    """Yield what makes new worlds, each of them within a `with`; directories and a Redis are theirs together."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(dir=memory)))
        places = Places(directory)
        stack.callback(places.close)
        stack.enter_context(mock.patch.object(tallies, "COMPACT_SEGMENTS", CROWDED))
        for module in (sqlite_log, redis_log, redis_ledger):
            stack.enter_context(mock.patch.object(module, "READ_UPLOADS_MAX", READ_UPLOADS))

        @contextmanager
        def made(kind: str, shards: int, rng: random.Random) -> Iterator[World]:
            world = World(places, kind, shards, rng)
            with mock.patch.object(folding, "fold", world._fold):
                try:
                    yield world
                finally:
                    world.close()

        yield made
