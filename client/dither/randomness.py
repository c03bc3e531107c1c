"""A device's randomness: it comes from the operating system, and from nowhere else."""

from __future__ import annotations

import os

from dither_shared.rng import Rng


def _randbits(count: int) -> int:
    """Return `count` random bits. As `secrets.randbits`, but for the modules that `secrets` imports."""
    size = (count + 7) // 8
    return int.from_bytes(os.urandom(size), "big") >> (8 * size - count)


SYSTEM = Rng(_randbits)


def jitter(most_s: float) -> float:
    """Return a random number of seconds from 0 to `most_s`."""
    return most_s * SYSTEM.uniform(1 << 32) / (1 << 32)
