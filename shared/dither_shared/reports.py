"""The shapes of a report: a symbol, a bit string, a subset. Each has one form in memory, on the wire and in the log.

A report is a non-negative integer everywhere inside dither: the symbol itself; the bit string, with bit v standing
for value v; the subset, as a bit string or as its members one after another, whichever is shorter. Packed, for slots
and logs, it is `width` bytes, little-endian. On the wire a symbol is a JSON number and everything else is base64url
without padding, of exactly that packed form.
"""

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Collection
from itertools import pairwise

from dither_shared.errors import DitherError
from dither_shared.frozen import frozen


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


class _Packed(ReportShape):
    """A report that travels as the base64url of its packed bytes."""

    def to_wire(self, report: int) -> str:
        """Return the packed bytes as base64url without padding."""
        return base64.urlsafe_b64encode(report.to_bytes(self.wire_width, "little")).rstrip(b"=").decode("ascii")

    @property
    def wire_width(self) -> int:
        """Bytes of a report on the wire."""
        return self.width

    def from_wire(self, value: object) -> int:
        """Accept canonical base64url of exactly `wire_width` bytes that hold one of the reports."""
        if type(value) is not str:
            raise BadReport(f"a report must be a base64url string, got {type(value).__name__}")
        length = (self.wire_width * 8 + 5) // 6
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


class Bits(_Packed):
    """A string of `size` bits, one for each value."""

    @property
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

    @property
    def width(self) -> int:
        """Whole bytes of bits, and one for the cohort."""
        return self.wire_width + 1

    @property
    def wire_width(self) -> int:
        """Whole bytes of bits."""
        return (self.size + 7) // 8

    def of_cohort(self, bits: int, cohort: int) -> int:
        """Return the report that these bits are in a cohort."""
        return bits | cohort << 8 * self.wire_width


@frozen
class Subsets(_Packed):
    """A subset of exactly `weight` of `size` values: a bit string, or the members in order if that is shorter.

    A member is as wide as a symbol: 1, 2 or 4 bytes, so a list of members is read like `weight` reports of one symbol.
    """

    weight: int

    @property
    def member(self) -> Symbols:
        """The shape of one member."""
        return Symbols(self.size)

    @property
    def listed(self) -> bool:
        """Whether a report lists its members."""
        return self.weight * self.member.width * 8 < self.size

    @property
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
        width = self.member.width
        packed = report.to_bytes(self.width, "little")
        return [int.from_bytes(packed[at : at + width], "little") for at in range(0, len(packed), width)]

    def check(self, report: int) -> None:
        """Refuse what is not `weight` different values in ascending order."""
        members = self.members(report)
        ascending = all(one < other for one, other in pairwise(members))
        if len(members) != self.weight or not ascending or members[-1] >= self.size:
            raise BadReport(f"a report must be {self.weight} different values from 0 to {self.size - 1}")
