"""Erasing: the bytes of which a merged day's tallies were made leave the store's files."""

from abc import abstractmethod
from datetime import date

from dither_aggregator.store.interface.opened import Opened


class Erasing(Opened):
    """Log entries and segments that the store has given up, and whose bytes its files still keep."""

    @abstractmethod
    def erased(self) -> date:
        """Return the latest epoch that is erased: of it the store's files hold the merged tallies, and no more.

        Reports that wait in quarantine are held whatever their epoch, and answered ids for as long as they are known.
        """

    @abstractmethod
    def erase(self) -> str:
        """Erase what is merged, as far as that can be done now; cheap when nothing is left to do.

        It may take several calls, of any processes, with any time between them. Return why it cannot be done on this
        store, as words for the operator, when that is new; else "".
        """
