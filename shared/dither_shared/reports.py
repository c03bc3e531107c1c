"""The shapes of a report: a symbol, a bit string, a subset. Each has one form in memory, on the wire and in the log.

A report is a non-negative integer everywhere inside dither: the symbol itself; the bit string, with bit v standing
for value v; the subset, as a bit string or as its members one after another, whichever is shorter. Packed, for slots
and logs, it is `width` bytes, little-endian. On the wire a symbol is a JSON number and everything else is base64url
without padding, of exactly that packed form.

`from_wire` says what a report is, of one at a time. `read_column` is how the aggregator reads: the same reports,
checked and packed a column at once.
"""

import base64
import binascii
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cached_property
from itertools import chain, pairwise
from operator import lt
from typing import Any

from dither_shared.errors import DitherError
from dither_shared.frozen import frozen

_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""What `struct` calls an integer of so many bytes."""
_FROM_BASE64URL = bytes.maketrans(b"-_+/=", b"+/!!!")
"""Base64url as base64; what only base64 has becomes invalid."""


class BadReport(DitherError, ValueError):
    """A report on the wire that is not one of its mechanism's outputs."""


@frozen
class ReportShape(ABC):
    """The set of possible reports of a mechanism, of `size` symbols, bits or values."""

    size: int
    cohorts = 0
    """The cohorts that devices are in; 0 where there are none."""

    @property
    def tally_size(self) -> int:
        """The entries of a tally: one for each symbol, bit or value."""
        return self.size

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

    def read_column(self, values: list[Any]) -> bytes:
        """Return the packed reports that one or more JSON values stand for; raise BadReport if any is not exactly one.

        Shapes do the same faster.
        """
        return self.pack([self.from_wire(value) for value in values])

    def pack(self, reports: list[int]) -> bytes:
        """Return reports back to back, `width` bytes each, little-endian."""
        return b"".join(report.to_bytes(self.width, "little") for report in reports)


class Symbols(ReportShape):
    """One of `size` symbols, 0 to size - 1."""

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
        """Check the types, then the least and the greatest."""
        if set(map(type, values)) != {int}:
            raise BadReport("a report must be an integer")
        if min(values) < 0 or max(values) >= self.size:
            raise BadReport(f"a report must be a symbol from 0 to {self.size - 1}")
        return struct.pack(f"<{len(values)}{_FORMATS[self.width]}", *values)

    def unpack(self, packed: bytes) -> tuple[int, ...]:
        """Return the symbols that stand back to back."""
        return struct.unpack(f"<{len(packed) // self.width}{_FORMATS[self.width]}", packed)


class _Packed(ReportShape):
    """A report that travels as the base64url of its packed bytes."""

    def to_wire(self, report: int) -> str:
        """Return the packed bytes as base64url without padding."""
        return base64.urlsafe_b64encode(report.to_bytes(self.wire_width, "little")).rstrip(b"=").decode("ascii")

    @cached_property
    def wire_width(self) -> int:
        """Bytes of a report on the wire."""
        return self.width

    @cached_property
    def wire_length(self) -> int:
        """Characters of a report on the wire."""
        return (self.wire_width * 8 + 5) // 6

    def from_wire(self, value: object) -> int:
        """Accept canonical base64url of exactly `wire_width` bytes that hold one of the reports."""
        if type(value) is not str:
            raise BadReport(f"a report must be a base64url string, got {type(value).__name__}")
        length = self.wire_length
        if len(value) != length:
            raise BadReport(f"a report must have {length} base64url characters, got {len(value)}")
        try:
            packed = base64.b64decode(value + "=" * (-length % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
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
        """Decode one text of all the values, as a table whose rows end where they must.

        Each row is filled with 1 to 4 "A", whose bits are zeros, to whole groups of four characters. So its spare bits
        become the first byte behind the report, which must be zero.
        """
        count, length = len(values), self.wire_length
        end = "\n" + "A" * (4 - length % 4)
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
        except binascii.Error:
            raise BadReport("a report must be base64url without padding") from None
        row = len(table) // count
        if table[self.wire_width :: row] != bytes(count):
            raise BadReport("a report must be canonical base64url: its spare bits are zero")
        for column in range(row - 1, self.width - 1, -1):
            del table[column :: column + 1]
        packed = bytes(table)
        self.check_column(packed)
        return packed

    @abstractmethod
    def check_column(self, packed: bytes) -> None:
        """Raise BadReport unless each of these packed reports is one."""

    def beyond(self, packed: bytes) -> bool:
        """Say whether any of these packed bit strings has a bit beyond the last one."""
        return self.size % 8 != 0 and max(packed[self.wire_width - 1 :: self.width]) >> self.size % 8 != 0


class Bits(_Packed):
    """A string of `size` bits, one for each value."""

    @cached_property
    def width(self) -> int:
        """Whole bytes."""
        return (self.size + 7) // 8

    @property
    def bits(self) -> int:
        """One bit a value."""
        return self.size

    def check(self, report: int) -> None:
        """Refuse bits beyond the last value's."""
        if report >> self.size:
            raise BadReport(f"a report must have {self.size} bits, with every spare bit zero")

    def check_column(self, packed: bytes) -> None:
        """Refuse bits beyond the last value's."""
        if self.beyond(packed):
            raise BadReport(f"a report must have {self.size} bits, with every spare bit zero")


@frozen
class CohortBits(Bits):
    """A string of `size` bits from a device of one of `cohorts` cohorts.

    On the wire the cohort is said once a group; packed, it is the byte behind the bits. A tally has a row a cohort: the
    number of its reports, then the count of each bit.
    """

    cohorts: int

    @property
    def tally_size(self) -> int:
        """A number and `size` counts for each cohort."""
        return self.cohorts * (self.size + 1)

    @cached_property
    def width(self) -> int:
        """Whole bytes of bits, and one for the cohort."""
        return self.wire_width + 1

    @cached_property
    def wire_width(self) -> int:
        """Whole bytes of bits."""
        return (self.size + 7) // 8

    def of_cohort(self, bits: int, cohort: int) -> int:
        """Return the report that these bits are in a cohort."""
        return bits | cohort << 8 * self.wire_width

    def column_of_cohort(self, packed: bytes, cohort: int) -> bytes:
        """Return the packed reports that these, of cohort 0, are in a cohort."""
        table = bytearray(packed)
        table[self.wire_width :: self.width] = bytes([cohort]) * (len(packed) // self.width)
        return bytes(table)


@frozen
class Subsets(_Packed):
    """A subset of exactly `weight` of `size` values: a bit string, or the members in order if that is shorter.

    A member is as wide as a symbol: 1, 2 or 4 bytes, so a list of members is read like `weight` reports of one symbol.
    """

    weight: int

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
        if self.listed:
            members = self.member.unpack(packed)
            ascends = list(map(lt, members, members[1:]))
            del ascends[self.weight - 1 :: self.weight]  # the last of a report and the first of the next
            subsets = all(ascends) and max(members) < self.size
        else:
            reports = chain.from_iterable(struct.iter_unpack(f"{self.width}s", packed))
            weights = set(map(int.bit_count, map(int.from_bytes, reports)))
            subsets = weights == {self.weight} and not self.beyond(packed)
        if not subsets:
            raise BadReport(f"a report must be {self.weight} different values from 0 to {self.size - 1}")
