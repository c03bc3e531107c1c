"""Moving: everything that a store holds is dumped, and a store that was just made is filled with it.

Only `restoring.fill` may call the methods that fill, on a store that was just made and is unfinished.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from dither_aggregator.store.dump import FinalRecord, Identity, JournalRecord, Record, SeenRecord, ShardRecord
from dither_aggregator.store.interface.journal import Journal
from dither_aggregator.store.interface.keyring import Keyring
from dither_aggregator.store.plans import StoredPlan
from dither_aggregator.store.records import Segment


class Moving(Keyring, Journal):
    """A store as records, out of one and into another."""

    @abstractmethod
    def dump(self) -> Iterator[Record]:
        """Yield everything that makes another store the same, each shard as at one instant.

        The store may be in use: uploads that are accepted meanwhile may or may not be in it.
        """

    @abstractmethod
    def fill_identity(self, identity: Identity) -> None:
        """Take over the app, its keys, and what is hashed and signed by. The generation stays this store's."""

    def fill_journal(self, record: JournalRecord) -> None:
        """Take over entries of the journal."""
        self._add_entries(record.entries)

    def fill_plans(self, plans: Sequence[StoredPlan]) -> None:
        """Take over the plans with their ids."""
        self.refresh()
        self._save_plans(plans, self._plans.version)
        self.refresh()

    @abstractmethod
    def fill_seen(self, record: SeenRecord) -> None:
        """Remember answered uploads, each in the shard of its digest."""

    @abstractmethod
    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments to a shard; of each tally later ones come later."""

    @abstractmethod
    def fill_shard(self, record: ShardRecord) -> None:
        """Set a shard's days, cursor, log, ledger, quarantine and counts of refused groups."""

    @abstractmethod
    def fill_final(self, record: FinalRecord) -> None:
        """Add what is kept of a finalized epoch, and its snapshot."""
