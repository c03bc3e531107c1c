"""The troubles that a store may have, and how much it may still take: by its backlog, and by its disk or memory."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dither_shared.errors import ConfigurationError
from dither_shared.wire.reading import Problem

BACKLOG_UPLOADS_MAX = 1_000_000
"""A quarter of the day's uploads of a million devices that send four a day."""
DAYS_OF_IDS = 8
"""Ids of uploads are kept for seven days and the one that is not over."""
RETRY_AFTER_S = 600
"""Capacity does not come back within seconds."""
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(%|[KMGT]?B)", re.IGNORECASE)


class Trouble(StrEnum):
    """The kinds of what may be wrong with a store. Each has a health check that tells it."""

    STORE = "store"
    AWAY = "away"
    SETTINGS = "settings"
    LOST = "lost"
    CLOCK = "clock"
    FOLDING = "folding"
    BACKLOG_FULL = "backlog-full"
    DISK_FULL = "disk-full"


@dataclass(frozen=True)
class FreeSpace:
    """The space that a store has left, in bytes: on its disk, or in its Redis's memory."""

    what: str
    """`disk` or `memory`."""
    free: int
    total: int


def days_until_full(ids: Sequence[int], bytes_each: int, free: int) -> int | None:
    """Return within how many days the ids of uploads fill what is free, if each day has as many as the busiest.

    Given those of each day that is kept, of which the first goes when one comes; None where they never do.
    """
    busiest = max(ids, default=0)
    for days in range(1, DAYS_OF_IDS + 1):
        kept = [*ids, *[busiest] * days][-DAYS_OF_IDS:]
        if (sum(kept) - sum(ids)) * bytes_each > free:
            return days
    return None


@dataclass(frozen=True)
class CapacityProblem:
    """Why a store takes nothing now: a slug of PROBLEMS, too, and a sentence for the operator."""

    slug: Trouble
    message: str

    def problem(self) -> Problem:
        """Return the answer to an upload, which does not say how large the store is."""
        return Problem(self.slug, "nothing was stored", retry_after_s=RETRY_AFTER_S)


@dataclass(frozen=True)
class FreeSpaceFloor:
    """How many bytes are to stay free: the least of some bytes and a share of all there are. 0 is none."""

    text: str
    bytes: float = float("inf")
    share: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "FreeSpaceFloor":
        """Read `5%`, `1GB`, or the lesser of both, `5%,1GB`; `off` is none. Raises ConfigurationError."""
        if text == "off":
            return cls(text, 0)
        bytes_, share = float("inf"), 1.0
        for part in text.split(","):
            found = _PART.fullmatch(part.strip())
            if not found:
                raise ConfigurationError("a floor must be like 5%, 1GB, or 5%,1GB for the lesser of both, or off")
            if found[2] == "%":
                share = min(share, float(found[1]) / 100)
            else:
                bytes_ = min(bytes_, float(found[1]) * _UNITS[found[2].upper()])
        if bytes_ == float("inf") and share >= 1:
            raise ConfigurationError("a floor must be below 100%")
        return cls(text, bytes_, share)

    def of(self, total: int) -> int:
        """Return how many of so many bytes are to stay free."""
        return int(min(self.bytes, self.share * total))


@dataclass(frozen=True)
class Capacity:
    """The least that a store must have left to take uploads."""

    backlog_max: int | None = BACKLOG_UPLOADS_MAX
    floor: FreeSpaceFloor = FreeSpaceFloor("5%,1GB", 1e9, 0.05)

    def lacking(self, backlog: int, left: FreeSpace | None) -> CapacityProblem | None:
        """Return why a store with this backlog, and so much left, is to take nothing now; None where it may."""
        if self.backlog_max is not None and backlog >= self.backlog_max:
            message = f"{backlog} uploads wait to be counted, and {self.backlog_max} may"
            return CapacityProblem(Trouble.BACKLOG_FULL, message)
        if left and left.free < (floor := self.floor.of(left.total)):
            return CapacityProblem(
                Trouble.DISK_FULL, f"{left.free} of {left.total} bytes are free, and {floor} are to stay free"
            )
        return None
