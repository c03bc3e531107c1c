"""Symbols: a report is one of so many numbers."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from dither_shared.shapes.shape import BadReport, ReportShape

_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The letter of `struct` for an integer of so many bytes."""


class Symbols(ReportShape):
    """One of `size` symbols, 0 to size - 1."""

    raises = 1
    """A symbol raises one count, its own."""

    @cached_property
    def width(self) -> int:
        """1, 2, 4 or 8: a width that numpy reads without copying."""
        needed = (self.bits + 7) // 8
        return next(width for width in (1, 2, 4, 8) if width >= needed)

    @property
    def bits(self) -> int:
        """ceil(log2(size))."""
        return (self.size - 1).bit_length()

    def to_wire(self, report: int) -> int:
        """Return the symbol."""
        return report

    def from_wire(self, value: object) -> int:
        """Accept an integer (no bool, no float) in range."""
        if type(value) is not int:
            raise BadReport(f"a report must be an integer, got {type(value).__name__}")
        if not 0 <= value < self.size:
            raise BadReport(f"a report must be a symbol from 0 to {self.size - 1}")
        return value

    def read_column(self, values: list[Any]) -> bytes:
        """Check the types, then the least and the greatest; of one value, the value."""
        if len(values) == 1:
            return self.from_wire(values[0]).to_bytes(self.width, "little")
        if set(map(type, values)) != {int}:
            raise BadReport("a report must be an integer")
        if min(values) < 0 or max(values) >= self.size:
            raise BadReport(f"a report must be a symbol from 0 to {self.size - 1}")
        if self.width == 1:
            return bytes(values)
        import struct  # not for a device

        return struct.pack(f"<{len(values)}{_FORMATS[self.width]}", *values)

    def members(self, report: int) -> list[int]:
        """Return the symbol."""
        return [report]

    def unpack(self, packed: bytes) -> Sequence[int]:
        """Return the symbols that stand back to back."""
        if self.width == 1:
            return packed
        import struct

        return struct.unpack(f"<{len(packed) // self.width}{_FORMATS[self.width]}", packed)
