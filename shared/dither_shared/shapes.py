"""The shapes of a report: a symbol, a bit string, a subset. Each has one form in memory, on the wire and in the log.

A report is a non-negative integer everywhere inside dither: the symbol itself; the bit string, with bit v standing
for value v; the subset, as a bit string or as its members one after another, whichever is shorter. Packed, for slots
and logs, it is `width` bytes, little-endian. On the wire a symbol is a JSON number and everything else is base64url
without padding, of exactly that packed form.

`from_wire` says what a report is, of one at a time. `read_column` is how the aggregator reads: the same reports,
checked and packed a column at once.

A start writes and reads no bit string, so base64 is loaded when one is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import chain, pairwise
from operator import lt

from dither_shared.errors import DitherError
from dither_shared.frozen import frozen
from dither_shared.light_typing import Any


class BadReport(DitherError, ValueError):
    """A report on the wire that is not one of its mechanism's outputs."""


@frozen
class ReportShape(ABC):
    """The set of possible reports of a mechanism, of `size` symbols, bits or values."""

    size: int

    @property
    def raises(self) -> int | None:
        """How many counts each report raises by one; None where reports differ in it."""
        return None

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

    @abstractmethod
    def members(self, report: int) -> list[int]:
        """Return the symbols, bits or values that a report names."""

    def read_column(self, values: list[Any]) -> bytes:
        """Return the packed reports that one or more JSON values stand for; raise BadReport if any is not exactly one.

        Shapes do the same faster.
        """
        return self.pack([self.from_wire(value) for value in values])

    def pack(self, reports: list[int]) -> bytes:
        """Return reports back to back, `width` bytes each, little-endian."""
        return b"".join(report.to_bytes(self.width, "little") for report in reports)


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


@frozen
class Subsets(Packed):
    """A subset of exactly `weight` of `size` values: a bit string, or the members in order if that is shorter.

    A member is as wide as a symbol: 1, 2 or 4 bytes, so a list of members is read like `weight` reports of one symbol.
    """

    weight: int

    @property
    def raises(self) -> int:
        """How many counts each report raises by one: those of its members."""
        return self.weight

    @cached_property
    def member(self) -> Symbols:
        """The shape of one member."""
        return Symbols(self.size)

    @cached_property
    def listed(self) -> bool:
        """Whether a report lists its members."""
        return self.weight * self.member.width * 8 < self.size

    @cached_property
    def width(self) -> int:
        """Whole bytes."""
        return self.weight * self.member.width if self.listed else (self.size + 7) // 8

    @property
    def bits(self) -> int:
        """The bits of the shorter form."""
        return min(self.size, self.weight * self.member.width * 8)

    def of(self, members: Collection[int]) -> int:
        """Return the report that is the subset of these different members."""
        if self.listed:
            return int.from_bytes(self.member.pack(sorted(members)), "little")
        return sum(1 << member for member in members)

    def members(self, report: int) -> list[int]:
        """Return the members of a report, in ascending order where it is valid."""
        if not self.listed:
            return [value for value in range(report.bit_length()) if report >> value & 1]
        return list(self.member.unpack(report.to_bytes(self.width, "little")))

    def check(self, report: int) -> None:
        """Refuse what is not `weight` different values in ascending order."""
        members = self.members(report)
        ascending = all(one < other for one, other in pairwise(members))
        if len(members) != self.weight or not ascending or members[-1] >= self.size:
            raise BadReport(f"a report must be {self.weight} different values from 0 to {self.size - 1}")

    def check_column(self, packed: bytes) -> None:
        """Compare each listed member with the one behind it; count the ones of each bit string."""
        if len(packed) == self.width and self.listed:
            members = self.member.unpack(packed)
            subsets = members[-1] < self.size and all(map(lt, members, members[1:]))
        elif self.listed:
            members = self.member.unpack(packed)
            ascends = list(map(lt, members, members[1:]))
            del ascends[self.weight - 1 :: self.weight]  # the last of a report and the first of the next
            subsets = all(ascends) and max(members) < self.size
        elif len(packed) == self.width:
            subsets = int.from_bytes(packed, "little").bit_count() == self.weight and not self.beyond(packed)
        else:
            import struct

            reports = chain.from_iterable(struct.iter_unpack(f"{self.width}s", packed))
            weights = set(map(int.bit_count, map(int.from_bytes, reports)))
            subsets = weights == {self.weight} and not self.beyond(packed)
        if not subsets:
            raise BadReport(f"a report must be {self.weight} different values from 0 to {self.size - 1}")
