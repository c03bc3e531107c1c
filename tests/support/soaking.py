"""How long tests go on, and over how many cases: a short while and few in `make test`, more in `make soak`."""

import os
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

SOAK = bool(os.environ.get("SOAK_TESTS"))
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A directory where nothing waits for a disk, or None for the usual place of temporary files."""


def scaled(short: int, long: int) -> int:
    """Return how often to do something: `short` in `make test`, `long` in `make soak`."""
    return long if SOAK else short


def thinned(cases: Sequence[_T], *places: int) -> Sequence[_T]:
    """Return cases to try: those at some places in `make test`, all of them in `make soak`."""
    return cases if SOAK else [cases[place] for place in places]


def exceed(flags: Iterable[bool], most: float) -> bool:
    """Tell whether more than `most` flags are set, as soon as so many are: the other ones are not drawn."""
    return any(count > most for count in accumulate(flags))
