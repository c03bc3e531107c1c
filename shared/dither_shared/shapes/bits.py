"""Bit strings: a report has a bit for each value. Like every report longer than a symbol it travels as base64url.

A start writes and reads none, so base64 is loaded when one is.
"""

from abc import abstractmethod
from functools import cached_property
from typing import Any

from dither_shared.shapes.shape import BadReport, ReportShape

_TO_BASE64URL = bytes.maketrans(b"+/", b"-_")
_FROM_BASE64URL = bytes.maketrans(b"-_+/=", b"+/!!!")
"""Base64url as base64; what only base64 has becomes invalid."""


def to_base64url(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    import binascii

    return binascii.b2a_base64(data, newline=False).translate(_TO_BASE64URL).rstrip(b"=").decode("ascii")


class Packed(ReportShape):
    """A report that travels as the base64url of its packed bytes."""

    def to_wire(self, report: int) -> str:
        """Return the packed bytes as base64url without padding."""
        return to_base64url(report.to_bytes(self.width, "little"))

    @cached_property
    def wire_length(self) -> int:
        """Characters of a report on the wire."""
        return (self.width * 8 + 5) // 6

    def from_wire(self, value: object) -> int:
        """Accept canonical base64url of exactly `width` bytes that hold one of the reports."""
        if type(value) is not str:
            raise BadReport(f"a report must be a base64url string, got {type(value).__name__}")
        import base64

        length = self.wire_length
        if len(value) != length:
            raise BadReport(f"a report must have {length} base64url characters, got {len(value)}")
        try:
            packed = base64.b64decode(value + "=" * (-length % 4), altchars=b"-_", validate=True)
        except ValueError:
            raise BadReport("a report must be base64url without padding") from None
        report = int.from_bytes(packed, "little")
        if self.to_wire(report) != value:
            raise BadReport("a report must be canonical base64url: its spare bits are zero")
        self.check(report)
        return report

    @abstractmethod
    def check(self, report: int) -> None:
        """Raise BadReport unless these bytes are one of the reports."""

    def read_column(self, values: list[Any]) -> bytes:
        """Decode one value by itself and several as a table, and check at once whatever they are."""
        packed = self._decode(values[0]) if len(values) == 1 else self._decode_table(values)
        self.check_column(packed)
        return packed

    @cached_property
    def _fill(self) -> str:
        """The "A"s, whose bits are zeros, that fill a report on the wire to whole groups of four characters."""
        return "A" * (4 - self.wire_length % 4)

    def _decode(self, value: Any) -> bytes:
        """Decode one value. Its fill makes its spare bits the first byte behind the report, which must be zero."""
        import binascii

        if type(value) is not str or len(value) != self.wire_length:
            raise BadReport(f"a report must be a text of {self.wire_length} base64url characters")
        try:
            text = (value + self._fill).encode("ascii").translate(_FROM_BASE64URL)
            row = binascii.a2b_base64(text, strict_mode=True)
        except ValueError:
            raise BadReport("a report must be base64url without padding") from None
        if row[self.width]:
            raise BadReport("a report must be canonical base64url: its spare bits are zero")
        return row[: self.width]

    def _decode_table(self, values: list[Any]) -> bytes:
        """Decode one text of all the values, as a table whose rows end where they must.

        Each row is filled to whole groups of four characters, so that its spare bits become the first byte behind the
        report, which must be zero.
        """
        import binascii

        count, length = len(values), self.wire_length
        end = "\n" + self._fill
        try:
            text = bytearray((end.join(values) + end).encode("ascii"))
        except (TypeError, UnicodeEncodeError):
            raise BadReport("a report must be a base64url string") from None
        step = length + len(end)
        if len(text) != count * step:
            raise BadReport(f"a report must have {length} base64url characters")
        del text[length::step]  # a line end that is left is not where it must be: refused like all that is no base64
        try:
            table = bytearray(binascii.a2b_base64(text.translate(_FROM_BASE64URL), strict_mode=True))
        except ValueError:
            raise BadReport("a report must be base64url without padding") from None
        row = len(table) // count
        if table[self.width :: row] != bytes(count):
            raise BadReport("a report must be canonical base64url: its spare bits are zero")
        for column in range(row - 1, self.width - 1, -1):
            del table[column :: column + 1]
        return bytes(table)

    @abstractmethod
    def check_column(self, packed: bytes) -> None:
        """Raise BadReport unless each of these packed reports is one."""

    def beyond(self, packed: bytes) -> bool:
        """Say whether any of these packed bit strings has a bit beyond the last one."""
        return self.size % 8 != 0 and max(packed[self.width - 1 :: self.width]) >> self.size % 8 != 0


class Bits(Packed):
    """A string of `size` bits, one for each value."""

    @cached_property
    def width(self) -> int:
        """Whole bytes."""
        return (self.size + 7) // 8

    @property
    def bits(self) -> int:
        """One bit a value."""
        return self.size

    def members(self, report: int) -> list[int]:
        """Return the values whose bits are set."""
        return [value for value in range(report.bit_length()) if report >> value & 1]

    def check(self, report: int) -> None:
        """Refuse bits beyond the last value's."""
        if report >> self.size:
            raise BadReport(f"a report must have {self.size} bits, with every spare bit zero")

    def check_column(self, packed: bytes) -> None:
        """Refuse bits beyond the last value's."""
        if self.beyond(packed):
            raise BadReport(f"a report must have {self.size} bits, with every spare bit zero")
