"""Folding: packed reports in, an integer count vector out. Everything that is counted is counted here.

A count vector has one entry for each symbol or bit of the mechanism's reports. Counts add, so reports may be folded
in any order and any grouping.
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from dither_shared.reports import ReportShape, Symbols

Counts = npt.NDArray[np.int64]

_BLOCK = 255
"""Reports whose bits are summed in one byte a bit before the sums are widened."""


def fold(shape: ReportShape, reports: bytes) -> Counts:
    """Count how often each symbol was sent, or each bit set, in reports packed by `ReportShape.pack`.

    Returns int64[size]. Raises ValueError when the bytes are not whole, valid reports: a store that hands out such
    bytes is damaged, and a wrong count would be worse than none.
    """
    if len(reports) % shape.width:
        raise ValueError(f"packed reports must be a multiple of {shape.width} bytes, got {len(reports)}")
    counts = _count_symbols(shape, reports) if isinstance(shape, Symbols) else _count_bits(shape, reports)
    if len(counts) > shape.size and counts[shape.size :].any():
        raise ValueError(f"a packed report lies beyond the mechanism's {shape.size} symbols or bits")
    return counts[: shape.size]


def _count_symbols(shape: ReportShape, reports: bytes) -> Counts:
    symbols = np.frombuffer(reports, dtype=f"<u{shape.width}")
    return cast("Counts", np.bincount(symbols, minlength=shape.size).astype(np.int64, copy=False))


def _count_bits(shape: ReportShape, reports: bytes) -> Counts:
    rows = np.frombuffer(reports, dtype=np.uint8).reshape(-1, shape.width)
    counts = np.zeros(shape.width * 8, dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        bits = np.unpackbits(rows[start : start + _BLOCK], axis=1, bitorder="little")
        counts += bits.sum(axis=0, dtype=np.uint8)
    return counts
