"""Quarantine: accepted reports that could not be counted wait for an operator, who replays or drops them."""

from abc import abstractmethod

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import Quarantined


class Quarantine(Opened):
    """Groups of reports that a fold has set apart."""

    @abstractmethod
    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine, oldest first within each shard."""

    @abstractmethod
    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log, in today's epoch; return whether it was there.

        Where that is another epoch, the reports leave the old one's accepted and quarantined in the same step.
        """

    @abstractmethod
    def drop(self, id_: str) -> bool:
        """Give a quarantined group up; return whether it was there. It stays counted as quarantined, and as dropped."""
