"""From what waits in a log to segments: reports that cannot be counted are found by halving, and kept apart."""

from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np

from dither_aggregator.counting.folding import Counts, fold_cells
from dither_aggregator.store.records import LogGroup, LogRead, Poison, Segment, StoreError
from dither_shared.cells import Cells

ATTEMPTS = 2
"""How often a group by itself must fail before it is poison."""


def fold_read(read: LogRead, plans: Mapping[int, Cells]) -> tuple[list[Segment], list[Poison]]:
    """Count what was read, given each plan's cells: one segment a plan and epoch, and apart what could not be counted.

    Raises StoreError for a plan that this process does not know: another process may.
    """
    by_tally: dict[tuple[int, date], list[LogGroup]] = {}
    for group in read.groups:
        by_tally.setdefault((group.plan, group.epoch), []).append(group)
    segments: list[Segment] = []
    poisons: list[Poison] = []
    for (plan, epoch), groups in by_tally.items():
        if plan not in plans:
            raise StoreError(f"the log has reports of plan {plan}, which this process does not know")
        counts, poisoned = _count(plans[plan], groups)
        n = sum(group.n for group in groups) - sum(poison.group.n for poison in poisoned)
        if n:
            segments.append(Segment(plan, epoch, read.low, read.high, n, counts))
        poisons += poisoned
    return segments, poisons


def _count(cells: Cells, groups: Sequence[LogGroup], attempt: int = 1) -> tuple[Counts, list[Poison]]:
    """Count groups together; where that fails, each half by itself, down to the single groups that are to blame."""
    try:
        return _fold(cells, groups), []
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged or unforeseen report does to the arithmetic
        if len(groups) == 1 and attempt == ATTEMPTS:
            return np.zeros(cells.tally_size, dtype=np.int64), [Poison(groups[0], f"{type(error).__name__}: {error}")]
    if len(groups) == 1:
        return _count(cells, groups, attempt + 1)
    middle = len(groups) // 2
    first, poisons = _count(cells, groups[:middle])
    second, more = _count(cells, groups[middle:])
    return first + second, poisons + more


def _fold(cells: Cells, groups: Sequence[LogGroup]) -> Counts:
    by_cell: dict[int, list[LogGroup]] = {}
    for group in groups:
        by_cell.setdefault(group.cell, []).append(group)
    return fold_cells(cells, {cell: _joined(cells, cell, of_cell) for cell, of_cell in by_cell.items()})


def _joined(cells: Cells, cell: int, groups: Sequence[LogGroup]) -> bytes:
    """Return the reports of one cell, if each group has as many as it says."""
    width = cells.mechanism_of(cell).shape.width
    for group in groups:
        if len(group.reports) != group.n * width:
            raise ValueError(f"{len(group.reports)} bytes are not {group.n} reports of {width}")
    return b"".join([group.reports for group in groups])
