"""Rows: the attributes of every estimate of a reading."""

from typing import Protocol


class Row(Protocol):
    """One row of a reading: shares of the n reports, not percent."""

    @property
    def value(self) -> str:
        """Return what it is about."""

    @property
    def estimate(self) -> float:
        """Return the raw, unbiased estimate."""

    @property
    def std_error(self) -> float:
        """Return its standard error."""

    @property
    def lower(self) -> float:
        """Return the lower end of its interval."""

    @property
    def upper(self) -> float:
        """Return the upper end."""
