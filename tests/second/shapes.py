"""The form of a report on the wire, by its mechanism (shared/wire.md, "Reports")."""

import base64
import binascii
import re
from typing import Any

from tests.second.plans import Document, integers_of
from tests.second.randomizers import Report, count_points


class BadReport(Exception):
    """No report of the mechanism."""


def to_wire(part: Document, report: Report) -> int | str:
    """Return a report as it is in `reports`."""
    if isinstance(report, int):
        return report
    return base64.urlsafe_b64encode(pack(part, report)).rstrip(b"=").decode()


def pack(part: Document, report: frozenset[int]) -> bytes:
    """Return the bytes of a report that is no symbol."""
    size, _, width = _packing(part)
    if width:
        return b"".join(member.to_bytes(width, "little") for member in sorted(report))
    return sum(1 << bit for bit in report).to_bytes((size + 7) // 8, "little")


def from_wire(part: Document, value: Any) -> Report:
    """Return the report that an entry of `reports` is; raise BadReport."""
    symbols = count_symbols(part)
    if symbols:
        if type(value) is not int or not 0 <= value < symbols:
            raise BadReport(value)
        return value
    size, weight, width = _packing(part)
    packed = _base64url(value)
    if len(packed) != (weight * width if width else (size + 7) // 8):
        raise BadReport(value)
    number = int.from_bytes(packed, "little")
    held = [bit for bit in range(8 * len(packed)) if number >> bit & 1]
    if width:
        held = [int.from_bytes(packed[at : at + width], "little") for at in range(0, len(packed), width)]
    if held != sorted(set(held)) or any(one >= size for one in held) or (weight and len(held) != weight):
        raise BadReport(value)
    return frozenset(held)


def count_symbols(part: Document) -> int:
    """Return how many symbols there are; 0 where a report is none."""
    integers = integers_of(part)
    match part["mechanism"]:
        case "grr":
            return int(integers["d"])
        case "pgr":
            return count_points(integers["order"], integers["dimension"])
        case "window":
            return int(integers["d"] + 2 * integers["reach"])
    return 0


def _packing(part: Document) -> tuple[int, int, int]:
    """Return how many bits there are; the weight, 0 of any; and the bytes of each member, 0 where bits are sent."""
    integers = integers_of(part)
    if part["mechanism"] not in ("ss", "privset"):
        return integers["k" if part["mechanism"] == "rappor" else "d"], 0, 0
    size, weight = integers["d"] + integers.get("ticks", 0), integers["weight"]
    width = 1 if size <= 2**8 else 2 if size <= 2**16 else 4
    return size, weight, width if 8 * width * weight < size else 0


def _base64url(value: Any) -> bytes:
    if not isinstance(value, str) or not re.fullmatch("[A-Za-z0-9_-]*", value) or len(value) % 4 == 1:
        raise BadReport(value)
    try:
        packed = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except binascii.Error:
        raise BadReport(value) from None
    if base64.urlsafe_b64encode(packed).rstrip(b"=").decode() != value:
        raise BadReport(value)
    return packed
