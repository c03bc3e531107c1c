"""The records that a store takes and hands out: receipts, log groups, segments, tallies and the ledger."""

import hashlib
import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np

from dither_aggregator.counting import BadTally, Counts, fold_cells
from dither_shared.errors import DitherError
from dither_shared.mechanisms import Cells

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
    def missing(self) -> int:
        """How many accepted reports are nowhere; below 0 how many are somewhere twice."""
        return self.accepted - self.folded - self.pending - self.quarantined

    @property
    def balanced(self) -> bool:
        """Whether every accepted report is somewhere, and nowhere twice."""
        return not self.missing

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
    """The count vector of a plan and epoch, cell after cell (`counting.tables`), with the number of reports."""

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


# The bytes that both stores keep: an upload's entry in the log, a count vector, and what an upload is known again by.
#
# From what waits in a log to segments it is one step, `fold_read`: reports that cannot be counted are found by halving,
# and kept apart.
#
#     entry    u32 day since 1970 | for each group: u32 plan, cell, n, length; the packed reports
#     id       the first 12 bytes of the keyed digest of an upload's id, to the first 4 of that of its body
#     counts   u8 form, u8 bytes a count, u32 size | zlib of the counts, or of u32 places and the counts at them
#
# All little-endian. A count vector is kept in whichever form is shorter: of the few reports of one fold most places of
# a large space are zero.


_DAY = struct.Struct("<I")
_GROUP = struct.Struct("<IIII")
ID_BYTES, BODY_BYTES = 12, 4
"""The bytes of the digests that an upload is known again by: counting.md has how likely two are the same."""
_COUNTS = struct.Struct("<BBI")
HEAD_BYTES = _COUNTS.size
_DENSE, _SPARSE = 0, 1
_new = tuple.__new__
"""Makes a named tuple in half the time that its own class takes."""
_EPOCH_0 = date(1970, 1, 1).toordinal()
DAY_S, HOUR_S = 86_400, 3_600
ATTEMPTS = 2
"""How often a group by itself must fail before it is poison."""

_reports = itemgetter(LogGroup._fields.index("reports"))
ByCell = dict[int, list[LogGroup]]


class DamagedEntry(StoreError):
    """An entry of a log that cannot be unpacked."""

    def __init__(self, how: str) -> None:
        super().__init__(
            f"an entry of the log is damaged: {how}. It and what is behind it wait: `dither fsck` names it, "
            "`dither quarantine aside` sets it apart"
        )
        self.how = how


def day_number(day: date) -> int:
    """Return a day as the number of days since 1970."""
    return day.toordinal() - _EPOCH_0


@lru_cache(maxsize=1024)
def day_of(number: int) -> date:
    """Return the day that is so many days after the first of 1970."""
    return date.fromordinal(number + _EPOCH_0)


def day_at(time_s: float) -> date:
    """Return the day on which a time falls, given in seconds since 1970."""
    return day_of(int(time_s // DAY_S))


_COUNT_BYTES_MAX = 12
"""A count takes up to eight bytes, and its place four."""

pack_head = _GROUP.pack
"""Returns what stands before a group's reports, of plan, cell, n and length."""


def pack_groups(groups: Iterable[tuple[int, int, int, bytes]]) -> bytes:
    """Return an entry without its day, which the store puts before it, from (plan, cell, n, packed reports)."""
    return b"".join([pack_head(plan, cell, n, len(reports)) + reports for plan, cell, n, reports in groups])


def pack_entry(day: int, groups: bytes) -> bytes:
    """Return a whole entry."""
    return _DAY.pack(day) + groups


def unpack_entry(entry: bytes) -> list[LogGroup]:
    """Return the groups of an entry; raise DamagedEntry when it is none."""
    groups: list[LogGroup] = []
    try:
        (day,) = _DAY.unpack_from(entry)
        epoch = day_of(day)
        place, end = _DAY.size, len(entry)
        while place < end:
            plan, cell, n, length = _GROUP.unpack_from(entry, place)
            start = place + _GROUP.size
            place = start + length
            groups.append(_new(LogGroup, (plan, cell, epoch, n, entry[start:place])))
    except (struct.error, OverflowError, ValueError) as error:
        raise DamagedEntry(str(error)) from None
    if place != end:
        raise DamagedEntry("it is cut off")
    return groups


def entry_day(entry: bytes) -> date:
    """Return the day of an entry, which may have no groups; raise DamagedEntry when it is none."""
    try:
        return day_of(*_DAY.unpack_from(entry))
    except (struct.error, OverflowError, ValueError) as error:
        raise DamagedEntry(str(error)) from None


def count_pending(entries: Iterable[bytes]) -> dict[TallyKey, int]:
    """Return how many reports of each plan and epoch are in entries of a log; a damaged one counts as none."""
    pending: dict[TallyKey, int] = {}
    for entry in entries:
        with suppress(DamagedEntry):
            for group in unpack_entry(entry):
                key = group.plan, group.epoch
                pending[key] = pending.get(key, 0) + group.n
    return pending


def pack_counts(counts: Counts) -> bytes:
    """Return a count vector's bytes."""
    head, data = plain_counts(counts)
    return head + zlib.compress(data, level=1)


def plain_counts(counts: Counts) -> tuple[bytes, bytes]:
    """Return how these bytes begin, and what of them is compressed: the same with every zlib."""
    width = next(width for width in (1, 2, 4, 8) if int(counts.max(initial=0)) < 1 << 8 * width)
    places = np.flatnonzero(counts)
    dense = len(places) * (4 + width) >= len(counts) * width
    body = counts if dense else counts[places]
    data = body.astype(f"<u{width}").tobytes()
    if not dense:
        data = places.astype("<u4").tobytes() + data
    return _COUNTS.pack(_DENSE if dense else _SPARSE, width, len(counts)), data


def unpack_counts(packed: bytes, size: int) -> Counts:
    """Return the count vector, int64[size]; raise BadTally for anything else."""
    counts = np.zeros(size, dtype=np.int64)
    add_counts(counts, packed)
    return counts


def add_counts(counts: Counts, packed: bytes) -> None:
    """Add a packed count vector of the same size, in place; raise BadTally for anything else, and add nothing.

    If it is kept by its places, only those are touched: a fold of few reports costs no more in a large space.
    """
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(packed[_COUNTS.size :], _COUNT_BYTES_MAX * len(counts) + 1)
    except (zlib.error, TypeError) as error:
        raise BadTally(f"a stored tally cannot be read: {error}") from None
    if not inflater.eof:
        raise BadTally("a stored tally cannot be read: it is cut off, or has more counts than it says")
    add_plain(counts, packed[: _COUNTS.size], data)


def add_plain(counts: Counts, head: bytes, data: bytes) -> None:
    """Add what `plain_counts` returns, as `add_counts` does."""
    form, width, size = _COUNTS.unpack(check_size(head, len(counts)))
    number = size if form == _DENSE else len(data) // (4 + width)
    try:
        places = None if form == _DENSE else np.frombuffer(data, "<u4", number)
        values = np.frombuffer(data, f"<u{width}", offset=0 if form == _DENSE else 4 * number).astype(np.int64)
    except (TypeError, ValueError) as error:
        raise BadTally(f"a stored tally cannot be read: {error}") from None
    if len(values) != number or (places is not None and places.max(initial=0) >= size):
        raise BadTally(f"a stored tally cannot be read: it tells {len(values)} counts at {number} places")
    if places is None:
        counts += values
    else:
        counts[places] += values


def check_size(packed: bytes, size: int) -> bytes:
    """Return a packed count vector of this size; raise BadTally for another, before so many are made room for."""
    if len(packed) < _COUNTS.size:
        raise BadTally("a stored tally cannot be read: it is cut off")
    _, _, length = _COUNTS.unpack_from(packed)
    if length != size:
        raise BadTally(f"a stored tally has {length} counts in place of {size}")
    return packed


def sum_segments(segments: Sequence[Segment]) -> Segment:
    """Return the segment that stands for several of one tally. Raises BadTally for damaged ones."""
    first = segments[0]
    counts = unpack_counts(first.packed, _COUNTS.unpack_from(first.packed)[2])
    for one in segments[1:]:
        add_counts(counts, one.packed)
    low, high = min(one.low for one in segments), max(one.high for one in segments)
    return Segment(first.plan, first.epoch, low, high, sum(one.n for one in segments), pack_counts(counts))


# From a log to segments.


def fold_read(read: LogRead, plans: Mapping[int, Cells]) -> tuple[list[Segment], list[Poison]]:
    """Count what was read, given each plan's cells: one segment a plan and epoch, and apart what could not be counted.

    Raises StoreError for a plan that this process does not know: another process may.
    """
    by_tally: defaultdict[TallyKey, ByCell] = defaultdict(dict)
    for (plan, cell, epoch), groups in _sorted_out(read.groups).items():
        by_tally[plan, epoch][cell] = groups
    segments: list[Segment] = []
    poisons: list[Poison] = []
    for (plan, epoch), by_cell in by_tally.items():
        if plan not in plans:
            raise StoreError(f"the log has reports of plan {plan}, which this process does not know")
        n = sum([group.n for groups in by_cell.values() for group in groups])
        counts, poisoned = _count(plans[plan], by_cell)
        for poison in poisoned:
            n -= poison.group.n
        if n:
            segments.append(Segment(plan, epoch, read.low, read.high, n, pack_counts(counts)))
        poisons += poisoned
    return segments, poisons


def _sorted_out(groups: Iterable[LogGroup]) -> dict[tuple[int, int, date], list[LogGroup]]:
    """Return groups by plan, cell and epoch: what they begin with."""
    found: defaultdict[tuple[int, int, date], list[LogGroup]] = defaultdict(list)
    for group in groups:
        found[group[:3]].append(group)
    return found


def _count(cells: Cells, by_cell: ByCell, attempt: int = 1) -> tuple[Counts, list[Poison]]:
    """Count groups together; where that fails, each half by itself, down to the single groups that are to blame."""
    try:
        return fold_cells(cells, {cell: _joined(cells, cell, groups) for cell, groups in by_cell.items()}), []
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged or unforeseen report does to the arithmetic
        groups = [group for of_cell in by_cell.values() for group in of_cell]
        if len(groups) == 1 and attempt == ATTEMPTS:
            return np.zeros(cells.tally_size, dtype=np.int64), [Poison(groups[0], f"{type(error).__name__}: {error}")]
    if len(groups) == 1:
        return _count(cells, by_cell, attempt + 1)
    middle = len(groups) // 2
    first, poisons = _count(cells, _by_cell(groups[:middle]))
    second, more = _count(cells, _by_cell(groups[middle:]))
    return first + second, poisons + more


def _by_cell(groups: Sequence[LogGroup]) -> ByCell:
    return {cell: of_cell for (_, cell, _), of_cell in _sorted_out(groups).items()}


def _joined(cells: Cells, cell: int, groups: Sequence[LogGroup]) -> bytes:
    """Return the reports of one cell, if each group has as many as it says."""
    width = cells.mechanism_of(cell).shape.width
    for group in groups:
        if len(group.reports) != group.n * width:
            raise ValueError(f"{len(group.reports)} bytes are not {group.n} reports of {width}")
    return b"".join(map(_reports, groups))
