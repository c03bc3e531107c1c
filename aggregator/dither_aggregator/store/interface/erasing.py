"""Erasing: what the tallies of a merged day were made of leaves the store's files."""

from abc import abstractmethod
from datetime import date

from dither_aggregator.store.interface.opened import Opened


class Erasing(Opened):
    """The bytes of log entries and segments, which files keep for a while when a store holds them no more."""

    @abstractmethod
    def erased(self) -> date:
        """Return the latest epoch that is erased: neither uploads nor segments before merging are in the store's files.

        What waits in quarantine is, whatever its epoch.
        """

    @abstractmethod
    def erase(self) -> str:
        """Erase what is merged, as far as that can be done now; cheap when nothing is left to do.

        It may take several calls, of any processes, with any time between them. Return why it cannot be done on this
        store, as words for the operator, when that is new; else "".
        """
