"""How long the tests of faults go on: a short while in `make test`, much longer in `make soak`."""

import os
from pathlib import Path

SOAK = bool(os.environ.get("SOAK_TESTS"))
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A directory where nothing waits for a disk, or None for the usual place of temporary files."""


def scaled(short: int, long: int) -> int:
    """Return how often to do something: `short` in `make test`, `long` in `make soak`."""
    return long if SOAK else short
