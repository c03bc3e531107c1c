"""Steps that end days: sealing, merging, erasing, recording what is final, and forgetting."""

from datetime import date, timedelta
from unittest import mock

from dither_aggregator.analysis import closed_days
from dither_aggregator.operations import maintenance
from dither_aggregator.store import StoredPlan
from dither_aggregator.store.document_kinds import Retention
from tests.faults.aggregator.instant import Instant
from tests.faults.aggregator.steps.processes import HELD_MAX, Processes, View, step


class DaySteps(Processes):
    """Seal days, record what is final of them, and forget what need not be kept."""

    _finals: list[tuple[StoredPlan, date]]

    def _enter(self, view: View) -> None:
        super()._enter(view)
        self._finals = []

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
        """Cut batches, and erase what is merged, as a round of maintenance does."""
        store = self.any()
        self._try(store.cut_batches)
        self._try(store.erase)

    @step
    def record(self) -> None:
        """Record what is final of a metric, with a snapshot."""
        store = self.any()
        metrics = maintenance.unfinalized(store)
        if metrics:
            self._try(lambda: maintenance.finalize(store, self.rng.choice(metrics)))

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
            if Instant(self.observer).has_given_up(stored.id, epoch):
                return  # then nobody would begin to
            # Another release writes other snapshots; what was recorded stays.
            with mock.patch.object(closed_days, "FORMAT", self.rng.choice([closed_days.FORMAT, 99])):
                self._try(lambda: closed_days.take(store, stored, epoch))

    @step
    def keep_for(self, tallies: int | None, snapshots: int | None) -> None:
        """Change how many days tallies and snapshots are kept."""
        store = self.any()
        self._try(lambda: store.put(Retention(tallies, snapshots)))

    @step
    def forget(self) -> None:
        """Forget what need not be kept."""
        shard, store = self.shard(), self.any()
        self.oracle.remember(self.observer)
        if self.rng.randrange(3):
            self._try(lambda: store.forget(shard))
        else:
            self._try(store.forget_snapshots)
