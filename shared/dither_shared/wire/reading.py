"""Reading an upload, in the aggregator: what is not exactly one is refused.

A fault of the whole upload raises a `Problem`. A fault of one group refuses that group, with a reason, and its
neighbours are kept.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

from dither_shared.errors import DitherError
from dither_shared.frozen import frozen
from dither_shared.plan import Plan
from dither_shared.shapes import BadReport
from dither_shared.toml_tables import METRIC_NAME
from dither_shared.wire import GROUPS_MAX, INFLATED_BYTES_MAX, PROBLEM_PREFIX, REPORTS_MAX, VERSION

# The refusals of the aggregator, as problem documents (RFC 9457).


PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The request is not what this address takes"),
    "key-missing": (401, "A key is needed"),
    "key-wrong": (401, "The key is not one that this aggregator knows"),
    "key-scope": (403, "The key is not for this"),
    "origin-not-allowed": (403, "No page of this origin may send reports"),
    "link-refused": (403, "This link shows nothing"),
    "not-found": (404, "There is nothing at this address"),
    "method-not-allowed": (405, "This address does not take this method"),
    "upload-conflict": (409, "This id came before with another body"),
    "expired": (410, "Every group's metric has expired"),
    "retired": (410, "Every group's plan is retired"),
    "gone": (410, "This is no longer kept"),
    "length-required": (411, "The request must state its length"),
    "too-large": (413, "The request is too large"),
    "unsupported-media-type": (415, "The body must be application/json, as it is or in gzip"),
    "host-not-allowed": (421, "Nobody may read under this name"),
    "refused": (422, "Every group was refused"),
    "not-done": (422, "The change cannot be made"),
    "headers-too-large": (431, "The request's headers are too large"),
    "too-many": (429, "Too many requests came; send the same bytes again later"),
    "failed": (500, "A fault of the aggregator's own kept it from answering"),
    "bad-tally": (500, "The stored counts are not those of any reports"),
    "backlog-full": (503, "Too many uploads are not counted yet; send the same bytes again later"),
    "disk-full": (507, "The store has no room to spare; send the same bytes again later"),
    "being-computed": (503, "This is being computed; ask again soon"),
    "not-computed": (503, "This could not be computed"),
    "read-failed": (503, "This cannot be shown now; ask again in a minute"),
    "key-waiting": (503, "This key waits for the app's next one; send the same bytes again later"),
    "unavailable": (503, "The aggregator cannot store reports now; send the same bytes again later"),
}
"""Every answer that is not a success: the stable end of its `type`, its status, its title."""


class Problem(DitherError):
    """A request that is refused as a whole. `slug` is a key of PROBLEMS, `detail` a sentence for people."""

    def __init__(self, slug: str, detail: str, **extra: object) -> None:
        super().__init__(detail)
        self.slug = slug
        self.status, self.title = PROBLEMS[slug]
        self.detail = detail
        self.extra = extra

    def to_document(self) -> dict[str, object]:
        """Return the problem document (RFC 9457)."""
        return {
            "type": PROBLEM_PREFIX + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
        }


VALUES_MAX = 8 * REPORTS_MAX
"""The most commas and opening brackets, in texts too: they bound the cost of parsing a body before it is known to be an
upload."""

_ID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")  # 22 characters; the last carries two bits and four zeros
_PLAN = re.compile(r"[0-9a-f]{16}")
_every_group_has = itemgetter("metric", "plan", "reports")
_new = tuple.__new__
"""Makes a named tuple in half the time that its own class takes."""

FindPlan = Callable[[str, str], Plan]


class GroupRefused(DitherError):
    """Why a group is not taken before its reports are looked at: one of REASONS but bad-report."""


class Group(NamedTuple):
    """Valid reports of one metric under one plan, of one cell, packed back to back."""

    plan: Plan
    cell: int
    reports: bytes
    count: int  # type: ignore[assignment]  # a tuple's own is of no use here


@frozen
class Refusal:
    """A group that was not taken: its place in the upload, why, and how many reports it held."""

    group: int
    reason: str
    count: int
    metric: str = ""
    """The name that the group gives, which may be of no metric; "" for anything that is no name."""

    def to_document(self) -> dict[str, object]:
        """Return the entry of a receipt's `rejected`."""
        return {"group": self.group, "reason": self.reason, "count": self.count}


class Upload(NamedTuple):
    """An upload as read from the wire."""

    id: str
    groups: tuple[Group, ...]
    refused: tuple[Refusal, ...]


def all_refused(refused: Sequence[Refusal]) -> Problem:
    """Return the answer to an upload of which no group was taken."""
    reasons = sorted({refusal.reason for refusal in refused})
    return Problem(
        reasons[0] if reasons in (["expired"], ["retired"]) else "refused",
        f"no group was accepted: {', '.join(reasons)}",
        rejected=[refusal.to_document() for refusal in refused],
    )


def inflate(body: bytes) -> bytes:
    """Return the body of one whole gzip member, never inflating more than the limit."""
    stream = zlib.decompressobj(wbits=31)
    try:
        inflated = stream.decompress(body, INFLATED_BYTES_MAX + 1)
    except zlib.error:
        raise Problem("malformed", "the body is not gzip, though its Content-Encoding says so") from None
    if len(inflated) > INFLATED_BYTES_MAX:
        raise Problem("too-large", f"the body must inflate to at most {INFLATED_BYTES_MAX} bytes")
    if not stream.eof or stream.unused_data:
        raise Problem("malformed", "the body must be exactly one gzip member, whole")
    return inflated


def _no_constants(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constants)


def parse_json(body: bytes) -> object:
    """Return the document of a JSON body; raise Problem. The last of several fields of one name counts."""
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Problem("malformed", "the body must be UTF-8") from None
    except (ValueError, RecursionError):
        raise Problem("malformed", "the body must be JSON (RFC 8259)") from None


def parse_upload(body: bytes, find_plan: FindPlan, decode: Callable[[bytes], object] = parse_json) -> Upload:
    """Read an inflated body. `find_plan(metric, digest)` returns the plan, or raises GroupRefused with the reason.

    It is asked before the names are looked at, so it must know none that is malformed. `decode` does what `parse_json`
    does, perhaps faster.
    """
    commas = body.count(b",")
    if commas + body.count(b"[") + body.count(b"{") > VALUES_MAX:
        raise Problem("too-large", f"the body must have at most {VALUES_MAX} commas and opening brackets")
    document = _object(decode(body), {"v", "upload", "groups"}, "the body")
    if type(document["v"]) is not int or document["v"] != VERSION:
        raise Problem("malformed", f"v must be {VERSION}")
    upload_id = document["upload"]
    if not isinstance(upload_id, str) or not _ID.fullmatch(upload_id):
        raise Problem("malformed", "upload must be 128 bits as 22 base64url characters")
    items = document["groups"]
    if not isinstance(items, list) or not 1 <= len(items) <= GROUPS_MAX:
        raise Problem("malformed", f"groups must be a list of 1 to {GROUPS_MAX} groups")
    # A list has at most one value more than commas, so usually nothing need be counted.
    if commas + len(items) > REPORTS_MAX and sum(map(_count, items)) > REPORTS_MAX:
        raise Problem("too-large", f"an upload must hold at most {REPORTS_MAX} reports")
    groups: list[Group] = []
    refused: list[Refusal] = []
    for place, item in enumerate(items):
        try:
            groups.append(_parse_group(item, find_plan))
        except (GroupRefused, BadReport) as error:
            reason = "bad-report" if isinstance(error, BadReport) else str(error)
            refused.append(Refusal(place, reason, _count(item), _metric(item)))
    return Upload(upload_id, tuple(groups), tuple(refused))


def _parse_group(item: object, find_plan: FindPlan) -> Group:
    if type(item) is not dict or len(item) != 3 + ("cell" in item):
        raise GroupRefused("malformed")
    try:
        metric, digest, reports = _every_group_has(item)
    except KeyError:
        raise GroupRefused("malformed") from None
    if type(metric) is not str or type(digest) is not str or type(reports) is not list or not reports:
        raise GroupRefused("malformed")
    try:
        plan = find_plan(metric, digest)
    except GroupRefused:
        if not METRIC_NAME.fullmatch(metric) or not _PLAN.fullmatch(digest):
            raise GroupRefused("malformed") from None
        raise
    cells = plan.cells
    if cells.several:
        cell = item.get("cell")
        if type(cell) is not int or not 0 <= cell < cells.count:
            raise BadReport(f"cell must be an integer from 0 to {cells.count - 1}")
        shape = cells.mechanism_of(cell).shape
    elif len(item) > 3:
        raise GroupRefused("malformed")
    else:
        cell, shape = 0, cells.parts[0].mechanism.shape
    return _new(Group, (plan, cell, shape.read_column(reports), len(reports)))


def _count(item: object) -> int:
    """Return how many reports a group holds, as far as anybody can tell."""
    reports = item.get("reports") if isinstance(item, dict) else None
    return len(reports) if isinstance(reports, list) else 0


def _metric(item: object) -> str:
    """Return the metric's name that a group gives; "" where that is no name, so that nobody keeps a long text."""
    metric = item.get("metric") if isinstance(item, dict) else None
    return metric if isinstance(metric, str) and METRIC_NAME.fullmatch(metric) else ""


def _object(value: object, keys: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != keys:
        raise Problem("malformed", f"{what} must be an object with exactly the fields {', '.join(sorted(keys))}")
    return value
