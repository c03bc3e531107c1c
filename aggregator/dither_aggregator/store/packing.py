"""The bytes that both stores keep: an upload's entry in the log, a count vector, and what an upload is known again by.

From what waits in a log to segments it is one step, `fold_read`: reports that cannot be counted are found by halving,
and kept apart.

    entry    u32 day since 1970 | for each group: u32 plan, cell, n, length; the packed reports
    id       the first 12 bytes of the keyed digest of an upload's id, to the first 4 of that of its body
    counts   u8 form, u8 bytes a count, u32 size | zlib of the counts, or of u32 places and the counts at them

All little-endian. A count vector is kept in whichever form is shorter: of the few reports of one fold most places of
a large space are zero.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from operator import itemgetter

import numpy as np

from dither_aggregator.counting.folding import BadTally, Counts, fold_cells
from dither_aggregator.store.records import LogGroup, LogRead, Poison, Segment, StoreError, TallyKey
from dither_shared.cells import Cells

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
