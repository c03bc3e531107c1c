"""From what waits in a log to segments: reports that cannot be counted are found by halving, and kept apart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from operator import itemgetter

import numpy as np

from dither_aggregator.counting.folding import Counts, fold_cells
from dither_aggregator.store.packing import pack_counts
from dither_aggregator.store.records import LogGroup, LogRead, Poison, Segment, StoreError, TallyKey
from dither_shared.cells import Cells

ATTEMPTS = 2
"""How often a group by itself must fail before it is poison."""

_reports = itemgetter(LogGroup._fields.index("reports"))
ByCell = dict[int, list[LogGroup]]


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
