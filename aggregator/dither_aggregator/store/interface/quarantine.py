"""Quarantine: accepted reports that could not be counted wait for an operator, who replays or drops them."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import LogEntry, Poison, Quarantined


class Quarantine(Opened):
    """Groups of reports that a fold has set apart."""

    @abstractmethod
    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine, oldest first within each shard."""

    @abstractmethod
    def log_entries(self, shard: int) -> Iterator[LogEntry]:
        """Yield the entries of a shard's log, oldest first and damaged or not, in pieces.

        Entries that are folded meanwhile are left out; entries that come meanwhile may be.
        """

    @abstractmethod
    def set_apart(
        self, shard: int, oldest: LogEntry, others: Mapping[LogEntry, bytes], poisons: Sequence[Poison]
    ) -> bool:
        """Take entries out of a shard's log, and put what was in them into the quarantine; return whether.

        *If the cursor is still before `oldest`, and all of them are those that were read*: the cursor moves beyond it,
        so that others who read it commit nothing; in the place of each other one comes the entry that is given.
        """

    @abstractmethod
    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log, in today's epoch; return whether it was there.

        If its own epoch was another, the reports leave that one's accepted and quarantined in the same step.
        """

    @abstractmethod
    def drop(self, id_: str) -> bool:
        """Give a quarantined group up; return whether it was there. It stays counted as quarantined, and as dropped."""
