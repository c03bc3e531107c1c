"""The records that a store takes and hands out: receipts, log groups, segments, tallies and the ledger."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cached_property
from typing import NamedTuple, TypeVar

from dither_aggregator.counting.folding import Counts
from dither_shared.errors import DitherError

TallyKey = tuple[int, date]
"""A plan's id and an epoch: what a tally, and a row of a shard's ledger, is known by."""

_Key = TypeVar("_Key")


class StoreError(DitherError):
    """A store that cannot be opened or used, with the next step to take."""


class OtherLayout(StoreError):
    """A store whose layout is not the one that this dither reads."""

    def __init__(self, message: str, *, newer: bool, serve_brings: str = "") -> None:
        super().__init__(message)
        self.newer = newer
        self.serve_brings = serve_brings
        """From which layout to which `dither serve` brings it, in words; "" where that refuses it, too."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written now: the same call may work later. The call may have been carried out."""


class StoreLoading(StoreUnavailable):
    """The store answers that it is reading its own files, as after a restart. The call was not carried out."""


class Receipt(NamedTuple):
    """The answer to one upload, and to copies until its day is sealed: later ones are told counts of 0."""

    upload: str
    accepted: int
    duplicate: bool
    rejected: Sequence[dict[str, object]]

    def to_document(self) -> dict[str, object]:
        """Return the body of a 202."""
        return {
            "upload": self.upload,
            "accepted": self.accepted,
            "duplicate": self.duplicate,
            "rejected": list(self.rejected),
        }


class LogGroup(NamedTuple):
    """Reports of one plan, cell and epoch, packed back to back, as an upload brought them."""

    plan: int
    cell: int
    epoch: date
    n: int
    reports: bytes


class LogRead(NamedTuple):
    """The uploads that a counter read behind a shard's cursor: above `low` up to `high`."""

    low: int
    high: int
    groups: Sequence[LogGroup]
    mark: bytes = b""
    """Random tag of the last entry; the commit checks that it is unchanged."""


class LogEntry(NamedTuple):
    """An upload in a shard's log, as it is kept."""

    place: int
    """How many uploads were ever logged, with this one."""
    entry: bytes
    mark: bytes = b""
    """Random tag of the entry; a step checks that it is unchanged."""


class Segment(NamedTuple):
    """The counts of one plan and epoch from the log's entries above `low` up to `high`. A tally is the sum of these."""

    plan: int
    epoch: date
    low: int
    high: int
    n: int
    packed: bytes
    """The counts, as `pack_counts` has them: only their sum is unpacked."""
    mark: bytes = b""
    """Random tag of the segment; a step checks that it is unchanged."""


class Unmerged(NamedTuple):
    """A tally of a sealed day that is not one segment over `low` to `high`: all that the day has of a shard's log."""

    plan: int
    epoch: date
    low: int
    high: int


class KeptReading(NamedTuple):
    """A reading of some sealed days, packed (`analysis/reading_cache.py`), or how far that is."""

    key: str
    first: date
    """The earliest day whose tally it was read of: it goes with that."""
    open: bool
    """Whether it stands in the place of a reading that is not there yet."""
    content: bytes


class Poison(NamedTuple):
    """Reports that could not be counted, and why."""

    group: LogGroup
    reason: str


NO_CELL = 2**32 - 1
"""The cell of reports that were in damaged entries of a log: what is kept of them is those entries, whole."""


@dataclass(frozen=True)
class Quarantined:
    """Accepted reports that could not be counted and wait for an operator."""

    id: str
    """SHARD-NUMBER, the same in no other group of this store."""
    plan: int
    cell: int
    epoch: date
    n: int
    reason: str
    reports: bytes

    @property
    def damaged(self) -> bool:
        """Whether the reports themselves are lost, and only the damaged entries that held them are kept."""
        return self.cell == NO_CELL

    @classmethod
    def of(cls, id_: str, poison: Poison) -> "Quarantined":
        """Return a group that could not be counted as it waits under an id."""
        plan, cell, epoch, n, reports = poison.group
        return cls(id_, plan, cell, epoch, n, poison.reason, reports)


@dataclass(frozen=True)
class Counted:
    """The places of the accepted reports of one plan and epoch. `a + b` counts those of both."""

    accepted: int = 0
    folded: int = 0
    pending: int = 0
    """Never kept: counted from the log, and 0 where only what a store keeps is meant."""
    quarantined: int = 0
    dropped: int = 0
    """Those of the quarantined that an operator gave up."""

    @classmethod
    def from_kept(cls, accepted: int, folded: int, quarantined: int, dropped: int) -> "Counted":
        """Return what a store keeps of a row of its ledger."""
        return cls(accepted, folded, 0, quarantined, dropped)

    @property
    def equation(self) -> str:
        """The ledger's equation with its numbers; of a sum it may hold where a row's does not."""
        return (
            f"{self.accepted:,} accepted = {self.folded:,} folded + {self.pending:,} pending "
            f"+ {self.quarantined:,} quarantined"
        )

    @property
    def balanced(self) -> bool:
        """Whether every accepted report is somewhere, and nowhere twice."""
        return self.accepted == self.folded + self.pending + self.quarantined

    def to_document(self) -> dict[str, int]:
        """Return the terms of the equation by name."""
        return {name: getattr(self, name) for name in ("accepted", "folded", "pending", "quarantined")}

    @property
    def kept(self) -> tuple[int, int, int, int]:
        """The counts that a store keeps, in the order of `from_kept`."""
        return self.accepted, self.folded, self.quarantined, self.dropped

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.accepted + other.accepted,
            self.folded + other.folded,
            self.pending + other.pending,
            self.quarantined + other.quarantined,
            self.dropped + other.dropped,
        )


@dataclass(frozen=True)
class LedgerRow:
    """The reports of one metric, plan and epoch, by where they are."""

    metric: str
    plan: str
    epoch: str
    accepted: int
    folded: int
    pending: int
    quarantined: int
    dropped: int = 0
    """Those of the quarantined that an operator gave up."""

    @property
    def balanced(self) -> bool:
        """Whether every accepted report is somewhere, and nowhere twice."""
        return self.accepted == self.folded + self.pending + self.quarantined


def total_of(rows: Collection[LedgerRow | Counted]) -> Counted:
    """Return where the reports of all these are, together."""
    return Counted(**{column.name: sum(getattr(row, column.name) for row in rows) for column in fields(Counted)})


class RefusedKey(NamedTuple):
    """The day, metric and reason by which refused groups are counted."""

    day: date
    """The epoch (UTC) on which they came."""
    metric: str
    """The one that they name; "" where the store has no plan of it."""
    reason: str
    """One of `wire.REASONS`."""


@dataclass(frozen=True)
class RefusedCount:
    """How many groups were refused, and how many reports they held as far as that could be told. `a + b` adds."""

    groups: int = 0
    reports: int = 0

    def __add__(self, other: "RefusedCount") -> "RefusedCount":
        return RefusedCount(self.groups + other.groups, self.reports + other.reports)


def sum_refused(parts: Iterable[Mapping[_Key, RefusedCount]]) -> dict[_Key, RefusedCount]:
    """Return the sum of several counts."""
    total: dict[_Key, RefusedCount] = {}
    for part in parts:
        for key, refused in part.items():
            total[key] = total.get(key, RefusedCount()) + refused
    return total


@dataclass(frozen=True)
class Tally:
    """The count vector of a plan and epoch, cell after cell (`counting.folding.tables`), with the number of reports."""

    n: int
    counts: Counts
    left_out: int | None = 0
    """Reports that are not among these, as a read key is not told of their cells; None where it is told of none."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex of n and the counts, 64-bit little-endian: the same however they came together."""
        digest = hashlib.sha256(self.n.to_bytes(8, "little"))
        digest.update(self.counts.astype("<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Batch:
    """The counts of a plan and an open day, as they were when an hour began."""

    plan: int
    epoch: date
    shown: bool
    """Whether it is what is shown of the day; else it is the last cut, of which more reports must come before it is."""
    n: int
    packed: bytes
    """The counts, as `pack_counts` has them."""


@dataclass(frozen=True)
class ShardStatus:
    """How far one shard is."""

    shard: int
    written: int
    """Uploads ever logged."""
    cursor: int
    """Uploads of these that are folded."""
    backlog: int
    """Uploads in the log."""
    day: date
    """The latest day that an upload was counted on; the next is not counted on an earlier one."""
    clock_day: date
    """The day by the store's clock."""
    sealed: date
    """The latest day that nothing of this shard can enter any more."""
    merged: date
    """The latest day up to which each tally of this shard is one segment."""
    waiting_s: float
    """For how long something has been in the log without any of it being folded; 0 when nothing is."""


@dataclass(frozen=True)
class Final:
    """The record of an epoch's tally once nothing can enter it."""

    digest: str
    """The tally's."""
    snapshot: str
    """The id of the snapshot that was made of it."""
