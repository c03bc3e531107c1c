"""Kept readings: what was read of sealed days, so that no request reads it again.

All of it can be made again from the tallies: a backup and a dump leave it out, and a new dither asks for it anew.
"""

from abc import abstractmethod
from collections.abc import Sequence

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import KeptReading

READINGS_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes that a store keeps of them. The oldest go first."""
READING_BYTES_MAX = READINGS_BYTES_MAX // 16
"""A longer one is not kept."""


class Readings(Opened):
    """Entries by their keys. Nothing that is counted depends on them, and a lost one is made again."""

    @abstractmethod
    def kept_reading(self, key: str) -> KeptReading | None:
        """Return an entry; None where there is none."""

    @abstractmethod
    def keep_readings(self, entries: Sequence[KeptReading]) -> None:
        """Keep entries, each in the place of another of its key.

        One of days whose tallies were given up is not kept: no reading outlives its reports.
        """

    @abstractmethod
    def open_readings(self) -> list[KeptReading]:
        """Return the entries in whose place no reading is yet: of one that is being made, or that could not be."""
