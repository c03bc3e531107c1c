"""Folding: packed reports in, an integer count vector out. Everything that is counted is counted here.

A count vector has one entry for each symbol, bit or member of the mechanism's reports. Counts add, so reports may be
folded in any order and any grouping.
"""

import numpy as np
import numpy.typing as npt

from dither_shared.errors import DitherError
from dither_shared.reports import CohortBits, ReportShape, Subsets, Symbols

Counts = npt.NDArray[np.int64]

_BYTE_MAX = 255
"""Rows whose bits can be summed in one byte a bit."""
_BLOCK_ROWS = 1 << 20
"""Rows that are added up at once: it bounds the memory, at about twice their size."""


class BadTally(DitherError, ValueError):
    """A tally that no n reports of its mechanism can have, or too large to be decoded: nothing is estimated."""


def fold(shape: ReportShape, reports: bytes) -> Counts:
    """Count how often each symbol was sent, each bit set, or each member named, in reports packed back to back.

    Returns int64[tally_size]. Raises ValueError when the bytes are not whole, valid reports: a store that hands out
    such bytes is damaged, and a wrong count would be worse than none.
    """
    if len(reports) % shape.width:
        raise ValueError(f"packed reports must be a multiple of {shape.width} bytes, got {len(reports)}")
    if isinstance(shape, CohortBits):
        return _count_cohorts(shape, reports)
    if isinstance(shape, Symbols):
        counts = _count_symbols(shape, reports)
    elif isinstance(shape, Subsets) and shape.listed:
        counts = _count_symbols(shape.member, reports)
    else:
        counts = _count_bits(shape.width, reports)
    if len(counts) > shape.size and counts[shape.size :].any():
        raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} symbols or bits")
    if isinstance(shape, Subsets) and counts.sum() != len(reports) // shape.width * shape.weight:
        raise ValueError(f"packed reports must name {shape.weight} values each")
    return counts[: shape.size]


def _count_symbols(shape: Symbols, reports: bytes) -> Counts:
    symbols = np.frombuffer(reports, dtype=f"<u{shape.width}")
    if len(symbols) and symbols.max() >= shape.size:  # before a count as long as the largest is made
        raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} symbols")
    counts: Counts = np.bincount(symbols, minlength=shape.size).astype(np.int64, copy=False)
    return counts


def _count_cohorts(shape: CohortBits, reports: bytes) -> Counts:
    """Count, for each cohort, its reports and then each of their bits."""
    rows = np.frombuffer(reports, dtype=np.uint8).reshape(-1, shape.width)
    numbers = np.bincount(rows[:, -1], minlength=shape.cohorts)
    if len(numbers) > shape.cohorts:
        raise ValueError(f"a packed report lies beyond the {shape.cohorts} cohorts")
    counts = np.zeros((shape.cohorts, shape.size + 1), dtype=np.int64)
    counts[:, 0] = numbers
    bits = rows[np.argsort(rows[:, -1], kind="stable"), :-1]
    ends = np.cumsum(numbers)
    for cohort in np.flatnonzero(numbers):
        ones = _count_bits(shape.wire_width, bits[ends[cohort] - numbers[cohort] : ends[cohort]].tobytes())
        if ones[shape.size :].any():
            raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} bits")
        counts[cohort, 1:] = ones[: shape.size]
    return counts.ravel()


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
