"""The two shapes of a report: a symbol, or a bit string. Each has one form in memory, on the wire and in the log.

A report is a non-negative integer everywhere inside dither: the symbol itself, or the bit string with bit v standing
for value v. Packed, for slots and logs, it is `width` bytes, little-endian. On the wire a symbol is a JSON number
and a bit string is base64url without padding, of exactly that packed form.
"""

import base64
import binascii
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dither_shared.errors import DitherError


class BadReport(DitherError, ValueError):
    """A report on the wire that is not one of its mechanism's outputs."""


@dataclass(frozen=True)
class ReportShape(ABC):
    """The set of possible reports of a mechanism, of `size` symbols or bits."""

    size: int

    @property
    @abstractmethod
    def width(self) -> int:
        """Bytes of a packed report."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits that a report needs, before any encoding."""

    @abstractmethod
    def to_wire(self, report: int) -> int | str:
        """Return the JSON value of a report."""

    @abstractmethod
    def from_wire(self, value: object) -> int:
        """Return the report that a JSON value stands for; raise BadReport if it is not exactly one."""

    def pack(self, reports: list[int]) -> bytes:
        """Return reports back to back, `width` bytes each, little-endian."""
        return b"".join(report.to_bytes(self.width, "little") for report in reports)


class Symbols(ReportShape):
    """One of `size` symbols, 0 to size - 1."""

    @property
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


class Bits(ReportShape):
    """A string of `size` bits, one for each value."""

    @property
    def width(self) -> int:
        """Whole bytes."""
        return (self.size + 7) // 8

    @property
    def bits(self) -> int:
        """One bit a value."""
        return self.size

    def to_wire(self, report: int) -> str:
        """Return the packed bytes as base64url without padding."""
        return base64.urlsafe_b64encode(report.to_bytes(self.width, "little")).rstrip(b"=").decode("ascii")

    def from_wire(self, value: object) -> int:
        """Accept canonical base64url of exactly `width` bytes whose spare bits are zero."""
        if type(value) is not str:
            raise BadReport(f"a report must be a base64url string, got {type(value).__name__}")
        length = (self.width * 8 + 5) // 6
        if len(value) != length:
            raise BadReport(f"a report must have {length} base64url characters, got {len(value)}")
        try:
            packed = base64.b64decode(value + "=" * (-length % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise BadReport("a report must be base64url without padding") from None
        report = int.from_bytes(packed, "little")
        if report >> self.size or self.to_wire(report) != value:
            raise BadReport(f"a report must have {self.size} bits, with every spare bit zero")
        return report
