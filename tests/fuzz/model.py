"""The wire a second time, as `shared/wire.md` has it and as simply as possible: what the parser must agree with."""

import json
import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from dither_shared.plan import Plan
from dither_shared.shapes import Bits, ReportShape, Subsets, Symbols
from dither_shared.wire.reading import GroupRefused

BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
SIX_BITS = {character: f"{number:06b}" for number, character in enumerate(BASE64URL)}
INFLATED_BYTES_MAX = 1024 * 1024

FindPlan = Callable[[str, str], Plan]


class Reading(NamedTuple):
    """An upload's id; the metric, plan and packed reports of each good group; place, reason and count of the others."""

    id: str
    groups: list[tuple[str, str, int, bytes]]
    refused: list[tuple[int, str, int]]


class Refused(Exception):
    """The end of a problem's type."""


def read_body(headers: dict[str, str], body: bytes) -> bytes:
    """Return the body, inflated where the headers say that it must be."""
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("unsupported-media-type")
    codings = [each.strip() for each in headers.get("Content-Encoding", "").lower().split(",")]
    packed = [each for each in codings if each not in ("", "identity")]
    if packed not in ([], ["gzip"], ["x-gzip"]):
        raise Refused("unsupported-media-type")
    if len(body) > 256 * 1024:
        raise Refused("too-large")
    return inflate(body) if packed else body


def inflate(body: bytes) -> bytes:
    """Inflate a little at a time."""
    stream, inflated = zlib.decompressobj(31), b""
    try:
        while not stream.eof and (body or stream.unconsumed_tail):
            room = INFLATED_BYTES_MAX + 1 - len(inflated)
            inflated += stream.decompress(stream.unconsumed_tail or body, min(room, 1 << 16))
            body = b""
            if len(inflated) > INFLATED_BYTES_MAX:
                raise Refused("too-large")
    except zlib.error:
        raise Refused("malformed") from None
    if not stream.eof or stream.unused_data:
        raise Refused("malformed")
    return inflated


def read(body: bytes, find_plan: FindPlan) -> Reading:
    """Return what an inflated body says, or raise Refused."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > 16_000:
        raise Refused("too-large")
    document = read_json(body)
    if type(document) is not dict or sorted(document) != ["groups", "upload", "v"]:
        raise Refused("malformed")
    version, upload, items = document["v"], document["upload"], document["groups"]
    if type(version) is not int or version != 1:
        raise Refused("malformed")
    if type(upload) is not str or base64url(upload, 16) is None:
        raise Refused("malformed")
    if type(items) is not list or not 1 <= len(items) <= 50:
        raise Refused("malformed")
    if sum(map(count, items)) > 2_000:
        raise Refused("too-large")
    reading = Reading(upload, [], [])
    for place, item in enumerate(items):
        try:
            reading.groups.append(read_group(item, find_plan))
        except GroupRefused as error:
            reading.refused.append((place, str(error), count(item)))
    return reading


def read_json(body: bytes) -> Any:
    """Return the document. The last of several fields of one name counts."""

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        named = {}
        for name, value in pairs:
            named[name] = value
        return named

    def constant(name: str) -> None:
        raise Refused("malformed")

    try:
        return json.loads(str(body, "utf-8"), object_pairs_hook=fields, parse_constant=constant)
    except (ValueError, RecursionError):
        raise Refused("malformed") from None


def count(item: Any) -> int:
    """Return how many reports are in a group."""
    return len(item["reports"]) if type(item) is dict and type(item.get("reports")) is list else 0


def read_group(item: Any, find_plan: FindPlan) -> tuple[str, str, int, bytes]:
    """Return a group's metric, plan, cell and packed reports, or raise GroupRefused."""
    if type(item) is not dict or sorted(item.keys() - {"cell"}) != ["metric", "plan", "reports"]:
        raise GroupRefused("malformed")
    metric, digest, reports = item["metric"], item["plan"], item["reports"]
    if type(metric) is not str or not re.fullmatch("[a-z][a-z0-9_]*", metric) or len(metric) > 63:
        raise GroupRefused("malformed")
    if type(digest) is not str or len(digest) != 16 or set(digest) - set("0123456789abcdef"):
        raise GroupRefused("malformed")
    if type(reports) is not list or reports == []:
        raise GroupRefused("malformed")
    cells = find_plan(metric, digest).cells
    if cells.count == 1 and "cell" in item:
        raise GroupRefused("malformed")
    cell = item.get("cell") if cells.count > 1 else 0
    if type(cell) is not int or cell not in range(cells.count):
        raise GroupRefused("bad-report")
    packed = read_one_by_one(cells.mechanism_of(cell).shape, reports)
    if packed is None:
        raise GroupRefused("bad-report")
    return metric, digest, cell, b"".join(packed)


def read_one_by_one(shape: ReportShape, values: list[Any]) -> list[bytes] | None:
    """Return reports as their bytes, or None if one is no report."""
    packed = [symbol(shape, value) if isinstance(shape, Symbols) else bits(shape, value) for value in values]
    return None if None in packed else [report for report in packed if report is not None]


def width_of(size: int, widths: tuple[int, ...]) -> int:
    """Return the first width that has room for symbols below size."""
    return next(width for width in widths if 256**width >= size)


def symbol(shape: Symbols, value: Any) -> bytes | None:
    """Return a symbol's bytes, or None."""
    if type(value) is not int or value not in range(shape.size):
        return None
    return value.to_bytes(width_of(shape.size, (1, 2, 4, 8)), "little")


def bits(shape: ReportShape, value: Any) -> bytes | None:
    """Return the bytes of a bit string or a subset, or None."""
    member = width_of(shape.size, (1, 2, 4))
    listed = isinstance(shape, Subsets) and shape.weight * member * 8 < shape.size
    width = shape.weight * member if isinstance(shape, Subsets) and listed else -(-shape.size // 8)
    packed = base64url(value, width) if type(value) is str else None
    if packed is None:
        return None
    if listed:
        members = [int.from_bytes(packed[at : at + member], "little") for at in range(0, width, member)]
        if members != sorted(set(members)) or members[-1] >= shape.size:
            return None
    else:
        digits = f"{int.from_bytes(packed, 'little'):b}"
        if "1" in digits[: -shape.size]:
            return None
        if isinstance(shape, Subsets) and digits.count("1") != shape.weight:
            return None
    assert isinstance(shape, Bits | Subsets)
    return packed


def base64url(text: str, width: int) -> bytes | None:
    """Return the bytes that a text is the one form of, six bits a character and zeros behind them, or None."""
    if len(text) != -(-width * 8 // 6) or set(text) - SIX_BITS.keys():
        return None
    bits = "".join(map(SIX_BITS.__getitem__, text))
    if "1" in bits[8 * width :]:
        return None
    return int(bits[: 8 * width], 2).to_bytes(width, "big")
