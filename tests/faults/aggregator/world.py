"""An aggregator of several processes in any order of steps, each of which may fail: on a store, with an oracle.

Nothing runs at once here. Instead whoever reads first and writes later, a counter, a compactor, whoever records what is
final, keeps what it read for as many steps of others as it takes: the orderings of real processes, one step at a time.
Each process has its own `Store` and knows of plans and clock what it last refreshed.

After every step the oracle looks at the ledger, the cursors and the days; `check` compares everything.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from dither_aggregator import counting
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Store, contract, dump
from dither_aggregator.store.dump import Record
from dither_aggregator.store.invariants import check as fsck
from dither_aggregator.store.redis import redis_store as redis_data
from dither_aggregator.store.restoring import restore
from dither_aggregator.store.sqlite import sqlite_store as sqlite_data
from tests.faults.aggregator.oracle import Oracle
from tests.faults.aggregator.places import Place, Places
from tests.faults.aggregator.steps.counting import CountingSteps
from tests.faults.aggregator.steps.days import DaySteps
from tests.faults.aggregator.steps.plans import PlanSteps
from tests.faults.aggregator.steps.processes import step
from tests.faults.aggregator.steps.uploads import UploadSteps

READ_UPLOADS = 3
CROWDED = 3
"""In place of thousands and dozens, so that the edges are met."""
KINDS = ("sqlite", "redis")


class World(UploadSteps, CountingSteps, DaySteps, PlanSteps):
    """The store, its processes and the oracle: all steps, and those that replace the store."""

    def __init__(self, places: Places, kind: str, shards: int, rng: random.Random) -> None:
        super().__init__(places, kind, shards, rng)
        self.load(0)

    @step
    def move(self, kind: str, shards: int) -> None:
        """Dump the store, perhaps into a file, and go on with another one, filled with the dump."""
        store = self.any()
        store.refresh()
        records = list(store.dump())
        if self.rng.randrange(2):
            backup = self._places.directory / "backup"
            dump.write(backup, records)
            records = list(dump.read(backup))
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
            self.any().fold_all(shard)
            maintenance.maintain(self.any(), shard)
        store = self.any()
        for metric in maintenance.unfinalized(store):
            maintenance.finalize(store, metric)
        self.look()
        assert not self.observer.backlog(), "something is still pending"
        assert not maintenance.unfinalized(self.observer), "something that is merged is not finalized"
        findings = list(fsck(self.observer))
        assert not findings, f"fsck says: {findings}"


@contextmanager
def worlds(memory: str | None) -> Iterator[Callable[[str, int, random.Random], Any]]:
    """Yield what makes new worlds, each of them within a `with`; directories and a Redis are theirs together."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(dir=memory)))
        places = Places(directory)
        stack.callback(places.close)
        stack.enter_context(mock.patch.object(contract, "COMPACT_SEGMENTS", CROWDED))
        for module in (sqlite_data, redis_data):
            stack.enter_context(mock.patch.object(module, "READ_UPLOADS_MAX", READ_UPLOADS))

        @contextmanager
        def made(kind: str, shards: int, rng: random.Random) -> Iterator[World]:
            world = World(places, kind, shards, rng)
            with mock.patch.object(counting, "fold", world._fold):
                try:
                    yield world
                finally:
                    world.close()

        yield made
