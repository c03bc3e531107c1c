"""Damage: why a tally cannot be that of n reports of a plan's cells."""

from collections.abc import Iterator

from dither_aggregator.counting.folding import Counts, tables
from dither_shared.cells import Cells
from dither_shared.shapes import ReportShape


def impossible(cells: Cells, counts: Counts, n: int) -> Iterator[str]:
    """Yield why so many reports cannot have these counts."""
    if counts.min(initial=0) < 0 or n < 0:
        yield "it has a negative count"
    rows = list(tables(cells, counts))
    total = sum(int(table[:, 0].sum()) for _, table, _ in rows)
    if total != n:
        yield f"its cells have {total} reports in place of {n}"
    for part, table, _ in rows:
        yield from _impossible_rows(part.mechanism.shape, table)


def _impossible_rows(shape: ReportShape, table: Counts) -> Iterator[str]:
    """Yield why cells of one shape cannot have these rows, each n and its counts."""
    if shape.raises is not None:
        for row in table[table[:, 1:].sum(axis=1) != table[:, 0] * shape.raises][:1]:
            yield f"its counts add up to {row[1:].sum()} in place of {row[0] * shape.raises}"
    for row in table[table[:, 1:].max(axis=1) > table[:, 0]][:1]:
        yield f"it has a count of {row[1:].max()} in {row[0]} reports"
