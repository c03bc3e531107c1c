"""A list of which a page shows no more than the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Capped(Generic[T]):
    """The first of a list, and how many more there are."""

    shown: Sequence[T]
    left: int

    @classmethod
    def of(cls, rows: Sequence[T], most: int) -> Self:
        """Return at most so many of them."""
        return cls(rows[:most], max(len(rows) - most, 0))
