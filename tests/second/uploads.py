"""Uploads: written as a device writes them, and read with every limit (shared/wire.md, "The upload")."""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.second.plans import Document, cells_of, digest, part_of
from tests.second.randomizers import Report
from tests.second.shapes import BadReport, from_wire, to_wire

Plans = Mapping[tuple[str, str], Document]
"""By metric and digest."""
WIRE_BYTES_MAX, INFLATED_BYTES_MAX = 256 * 1024, 1024 * 1024


@dataclass
class Group:
    """Reports of one plan, and of one of its cells."""

    plan: Document
    cell: int
    reports: Sequence[Report]


@dataclass
class Upload:
    """An upload that was read: its groups, and for each one that was refused its place, the reason, the reports."""

    id: str
    groups: list[Group] = field(default_factory=list)
    refused: list[tuple[int, str, int]] = field(default_factory=list)


class Refused(Exception):
    """A whole upload that is refused: the end of the problem's type."""


class GroupRefused(Exception):
    """A group that is refused: the reason."""


# Writing.


def write(upload_id: str, groups: Sequence[Group]) -> bytes:
    """Return the body, padded."""
    entries = sorted(map(_entry, groups), key=lambda entry: (entry["metric"], entry["plan"]))
    document = {"v": 1, "upload": upload_id, "groups": entries}
    body = json.dumps(document, separators=(",", ":")).encode("ascii")
    symbols = [report for entry in entries for report in entry["reports"] if not isinstance(report, str)]
    cells = [entry["cell"] for entry in entries if "cell" in entry]
    needed = len(body) + sum(7 - len(f"{symbol}") for symbol in symbols) + sum(5 - len(f"{cell}") for cell in cells)
    size = 512
    while size < needed:
        size *= 2
    return body + b" " * (size - len(body))


def _entry(group: Group) -> dict[str, Any]:
    part = part_of(group.plan, group.cell)
    reports = [to_wire(part, report) for report in group.reports]
    entry = {"metric": group.plan["metric"], "plan": digest(group.plan), "reports": reports}
    return {**entry, "cell": group.cell} if cells_of(group.plan) > 1 else entry


# Reading.


def read(body: bytes, plans: Plans, *, zipped: bool = False) -> Upload:
    """Read a body as it came; raise Refused where nothing of it is taken."""
    if len(body) > WIRE_BYTES_MAX:
        raise Refused("too-large")
    body = _inflate(body) if zipped else body
    if sum(map(body.count, (b",", b"[", b"{"))) > 16_000:
        raise Refused("too-large")
    document = _json(body)
    if not isinstance(document, dict) or document.keys() != {"v", "upload", "groups"}:
        raise Refused("malformed")
    upload_id, entries = document["upload"], document["groups"]
    if type(document["v"]) is not int or document["v"] != 1 or not _is(upload_id, "[A-Za-z0-9_-]{21}[AQgw]"):
        raise Refused("malformed")
    if not isinstance(entries, list) or not 1 <= len(entries) <= 50:
        raise Refused("malformed")
    if sum(map(_count, entries)) > 2_000:
        raise Refused("too-large")
    upload = Upload(upload_id)
    for place, entry in enumerate(entries):
        try:
            upload.groups.append(_group(entry, plans))
        except GroupRefused as refused:
            upload.refused.append((place, str(refused), _count(entry)))
        except BadReport:
            upload.refused.append((place, "bad-report", _count(entry)))
    return upload


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        inflated = stream.decompress(body, INFLATED_BYTES_MAX + 1)
    except zlib.error:
        raise Refused("malformed") from None
    if len(inflated) > INFLATED_BYTES_MAX:
        raise Refused("too-large")
    if not stream.eof or stream.unused_data:
        raise Refused("malformed")
    return inflated


def _json(body: bytes) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        return json.loads(body.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Refused("malformed") from None


def _is(value: object, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _count(entry: object) -> int:
    reports = entry.get("reports") if isinstance(entry, dict) else None
    return len(reports) if isinstance(reports, list) else 0


def _group(entry: Any, plans: Plans) -> Group:
    if not isinstance(entry, dict) or entry.keys() - {"cell"} != {"metric", "plan", "reports"}:
        raise GroupRefused("malformed")
    metric, plan, reports = entry["metric"], entry["plan"], entry["reports"]
    if not _is(metric, "[a-z][a-z0-9_]{0,62}") or not _is(plan, "[0-9a-f]{16}") or not _count(entry):
        raise GroupRefused("malformed")
    if (metric, plan) not in plans:
        raise GroupRefused("unknown-plan" if metric in {name for name, _ in plans} else "unknown-metric")
    document = plans[metric, plan]
    cells, cell = cells_of(document), entry.get("cell", 0)
    if cells == 1 and "cell" in entry:
        raise GroupRefused("malformed")
    if type(cell) is not int or not 0 <= cell < cells or (cells > 1 and "cell" not in entry):
        raise GroupRefused("bad-report")
    part = part_of(document, cell)
    return Group(document, cell, [from_wire(part, report) for report in reports])
