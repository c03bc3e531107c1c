"""Marks: the operator names a release or another event, and a metric's days are shown with it."""

from abc import abstractmethod

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import DayMark, StoreError

MARKS_MAX = 1_000
"""How many marks a store keeps: every reader of a metric's days reads them all."""


class Marks(Opened):
    """Days with a few words each. Nothing that is counted depends on them."""

    @abstractmethod
    def marks(self) -> list[DayMark]:
        """Return all marks, by day and then by text."""

    def add_mark(self, mark: DayMark) -> bool:
        """Keep a mark; return whether it is new.

        Raises StoreError for a text that cannot be shown, and for a new mark beyond MARKS_MAX.
        """
        if mark.fault:
            raise StoreError(mark.fault)
        return self._add_mark(mark)

    @abstractmethod
    def _add_mark(self, mark: DayMark) -> bool:
        """Keep a mark with a sound text; return whether it is new. Raises StoreError (`too_many`) beyond MARKS_MAX."""

    @abstractmethod
    def remove_mark(self, mark: DayMark) -> bool:
        """Remove a mark; return whether it was there."""


def too_many() -> StoreError:
    """Return the answer to a new mark where MARKS_MAX are kept."""
    return StoreError(f"a store keeps at most {MARKS_MAX:,} marks; `dither mark remove DAY` makes room")
