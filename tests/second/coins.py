"""Coins out of 2^64, and uniform integers (shared/reports.md, "Coins")."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Coins:
    """Randomness: bits of the operating system, unless a test gives others."""

    bits: Callable[[int], int] = secrets.randbits

    def coin(self, threshold: int) -> bool:
        """Return true with probability threshold / 2^64."""
        return self.bits(64) < threshold

    def uniform(self, size: int) -> int:
        """Return an integer below `size`, each alike."""
        while True:
            drawn = self.bits((size - 1).bit_length())
            if drawn < size:
                return drawn
