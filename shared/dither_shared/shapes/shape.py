"""The set of possible reports of a mechanism, and what is not one of them."""

from abc import ABC, abstractmethod
from typing import Any

from dither_shared.errors import DitherError
from dither_shared.frozen import frozen


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
