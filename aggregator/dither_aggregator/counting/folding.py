"""Folding: packed reports in, an integer count vector out. Everything that is counted is counted here, by shape.

The reports of one cell are counted into one entry for each symbol, bit or member. A tally's vector has, cell after
cell, the number of the cell's reports and then these counts. Counts add, so reports may be folded in any order and any
grouping.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from dither_shared.cells import Cells, Part
from dither_shared.errors import DitherError
from dither_shared.shapes import Bits, ReportShape, Subsets, Symbols

Counts = npt.NDArray[np.int64]

_BYTE_MAX = 255
"""Rows whose bits can be summed in one byte a bit."""
_BLOCK_ROWS = 1 << 20
"""Rows that are added up at once: it bounds the memory, at about twice their size."""


class BadTally(DitherError, ValueError):
    """A tally that no n reports of its mechanism can have, or too large to be decoded: nothing is estimated."""


class TallyGone(DitherError):
    """The counts of an epoch are no longer kept: `snapshot` is the id of what was made of them, if that is kept."""

    def __init__(self, epoch: date, snapshot: str | None) -> None:
        where = f"; snapshot {snapshot} has their estimates" if snapshot else ", nor is their snapshot"
        super().__init__(f"the counts of {epoch} are no longer kept{where}")
        self.epoch, self.snapshot = epoch, snapshot


def tables(cells: Cells, counts: Counts) -> Iterator[tuple[Part, Counts, int]]:
    """Yield each part of a plan's cells with its rows of a tally's vector, and the number of its first cell.

    If the app sets a public value, the parts come once for each value.
    The rows, int64[cells, 1 + size], are a view: for each cell the number n of its reports, then their counts.
    """
    first = start = 0
    for part in cells.parts * cells.public:
        width = 1 + part.mechanism.shape.size
        yield part, counts[start : start + part.cells * width].reshape(part.cells, width), first
        first, start = first + part.cells, start + part.cells * width


def fold_cells(cells: Cells, reports: Mapping[int, bytes]) -> Counts:
    """Count packed reports, given by cell, into the vector of a tally: see `tables`. Raises ValueError like `fold`."""
    if not all(0 <= cell < cells.count for cell in reports):
        raise ValueError(f"a packed report lies beyond the {cells.count} cells")
    counts = np.zeros(cells.tally_size, dtype=np.int64)
    for part, table, first in tables(cells, counts):
        shape = part.mechanism.shape
        for cell in reports.keys() & range(first, first + part.cells):
            table[cell - first, 0] = len(reports[cell]) // shape.width
            table[cell - first, 1:] = fold(shape, reports[cell])
    return counts


def fold(shape: ReportShape, reports: bytes) -> Counts:
    """Count how often each symbol was sent, each bit set, or each member named, in reports packed back to back.

    Returns int64[size]. Raises ValueError when the bytes are not whole, valid reports: a store that hands out such
    bytes is damaged, and a wrong count would be worse than none.
    """
    if len(reports) % shape.width:
        raise ValueError(f"packed reports must be a multiple of {shape.width} bytes, got {len(reports)}")
    counts = _count(shape, reports)
    if len(counts) > shape.size and counts[shape.size :].any():
        raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} symbols or bits")
    if shape.raises is not None and counts.sum() != len(reports) // shape.width * shape.raises:
        raise ValueError(f"packed reports must name {shape.raises} values each")
    return counts[: shape.size]


@singledispatch
def _count(shape: ReportShape, reports: bytes) -> Counts:
    raise TypeError(f"reports of {type(shape).__name__} cannot be counted")


@_count.register
def _(shape: Symbols, reports: bytes) -> Counts:
    symbols = np.frombuffer(reports, dtype=f"<u{shape.width}")
    if len(symbols) and symbols.max() >= shape.size:  # before a count as long as the largest is made
        raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} symbols")
    counts: Counts = np.bincount(symbols, minlength=shape.size).astype(np.int64, copy=False)
    return counts


@_count.register
def _(shape: Bits, reports: bytes) -> Counts:
    return _count_bits(shape.width, reports)


@_count.register
def _(shape: Subsets, reports: bytes) -> Counts:
    return _count(shape.member, reports) if shape.listed else _count_bits(shape.width, reports)


def _count_bits(width: int, reports: bytes) -> Counts:
    rows = np.frombuffer(reports, dtype=np.uint8).reshape(-1, width)
    if len(rows) <= _BYTE_MAX:
        return _sum_bytes(rows)
    counts = np.zeros(8 * width, dtype=np.int64)
    for start in range(0, len(rows), _BLOCK_ROWS):
        counts += _positional_popcount(_as_words(rows[start : start + _BLOCK_ROWS]))[: 8 * width]
    return counts


def _as_words(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.unsignedinteger]:
    """Return rows of bytes as rows of the widest words, with zeros behind them where they do not fill one."""
    count, width = rows.shape
    word = width if width in (1, 2, 4) else 8
    padding = -width % word
    if padding:
        padded = np.zeros((count, width + padding), dtype=np.uint8)
        padded[:, :width] = rows
        rows = padded
    words: npt.NDArray[np.unsignedinteger] = rows.view(f"u{word}")
    return words


def _positional_popcount(rows: npt.NDArray[np.unsignedinteger]) -> Counts:
    """Count each bit over rows of words, with carry-save adders.

    An adder takes three rows of the same weight to two, their sum bits and, of twice the weight, their carries: five
    operations on whole words in place of unpacking 64 bits. It is done to thirds of all rows at once, until few enough
    rows of a weight are left to be unpacked. Harley and Seal's method; Mula, Kurz, Lemire 2018.
    """
    counts = np.zeros(rows.shape[1] * rows.itemsize * 8, dtype=np.int64)
    weight = 0
    while True:
        carries = []
        while len(rows) > _BYTE_MAX:
            third = len(rows) // 3
            a, b, c = rows[:third], rows[third : 2 * third], rows[2 * third : 3 * third]
            carry = a ^ b
            sums = np.empty((len(rows) - 2 * third, rows.shape[1]), rows.dtype)
            np.bitwise_xor(carry, c, out=sums[:third])
            sums[third:] = rows[3 * third :]
            carry &= c
            carry |= a & b
            carries.append(carry)
            rows = sums
        counts += _sum_bytes(rows.view(np.uint8)) << weight
        if not carries:
            return counts
        rows = np.concatenate(carries)
        weight += 1


def _sum_bytes(rows: npt.NDArray[np.uint8]) -> Counts:
    """Count each bit over at most 255 rows of bytes."""
    ones: Counts = np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.uint8).astype(np.int64)
    return ones


# Damage: why a tally cannot be that of n reports of a plan's cells.


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
