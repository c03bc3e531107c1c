"""The wire, version 1: one POST of reports, grouped by metric and plan, under a fresh random id.

    {"v": 1, "upload": "<128 random bits, base64url>",
     "groups": [{"metric": "browser", "plan": "<16 hex digits>", "reports": [17]},
                {"metric": "homepage", "plan": "<16 hex digits>", "cohort": 5, "reports": ["q83vEg"]}]}

The device writes it with `encode_upload`. The aggregator reads it once, here: what is not exactly this is refused.
What spoils the whole upload raises a `Problem`; what spoils one group refuses that group, with a reason, and its
neighbours are kept. `shared/README.md` has the format with its bytes, limits and answers.
"""

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NoReturn

from dither_shared.errors import DitherError
from dither_shared.frozen import frozen
from dither_shared.plan import Plan
from dither_shared.reports import BadReport, CohortBits
from dither_shared.rng import RandBits
from dither_shared.tables import METRIC_NAME

VERSION = 1
PATH = "/v1/reports"

WIRE_BYTES_MAX = 256 * 1024
INFLATED_BYTES_MAX = 1024 * 1024
GROUPS_MAX = 50
REPORTS_MAX = 2_000
VALUES_MAX = 8 * REPORTS_MAX
"""Of commas and opening brackets, in texts too: what a body may cost to parse before it is known to be an upload."""
PADDED_BYTES_MIN = 512
ID_BITS = 128

_ID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")  # 22 characters; the last carries two bits and four zeros
_PLAN = re.compile(r"[0-9a-f]{16}")
_GROUP_FIELDS = ({"metric", "plan", "reports"}, {"metric", "plan", "reports", "cohort"})

PROBLEM_PREFIX = "urn:dither:problem:"

PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The request is not what this address takes"),
    "key-missing": (401, "A key is needed"),
    "key-wrong": (403, "The key is not one that this aggregator knows"),
    "not-found": (404, "There is nothing at this address"),
    "method-not-allowed": (405, "This address does not take this method"),
    "upload-conflict": (409, "This id came before with another body"),
    "expired": (410, "Every group's metric has expired"),
    "retired": (410, "Every group's plan is retired"),
    "gone": (410, "What was here is no longer kept"),
    "length-required": (411, "The request must state its length"),
    "too-large": (413, "The request is too large"),
    "unsupported-media-type": (415, "The body must be application/json, as it is or in gzip"),
    "refused": (422, "Every group was refused"),
    "headers-too-large": (431, "The request's headers are too large"),
    "bad-tally": (500, "The stored counts are not those of any reports"),
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


class GroupRefused(DitherError):
    """Why a group's metric or plan is not taken: unknown-metric, unknown-plan, expired, retired."""


@frozen
class Group:
    """Valid reports of one metric under one plan, packed back to back."""

    plan: Plan
    reports: bytes
    count: int


@frozen
class Refusal:
    """A group that was not taken: its place in the upload, why, and how many reports it held."""

    group: int
    reason: str
    count: int

    def to_document(self) -> dict[str, object]:
        """Return the entry of a receipt's `rejected`."""
        return {"group": self.group, "reason": self.reason, "count": self.count}


@frozen
class Upload:
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


# Writing, on the device.


def new_upload_id(randbits: RandBits) -> str:
    """Return a fresh id: 128 random bits as base64url."""
    return base64.urlsafe_b64encode(randbits(ID_BITS).to_bytes(ID_BITS // 8, "big")).rstrip(b"=").decode("ascii")


WireGroup = tuple[str, str, Sequence[int | str]] | tuple[str, str, Sequence[int | str], int | None]
"""A metric, its plan's digest, reports as they are on the wire, and the cohort where the mechanism has cohorts."""


def encode_upload(upload_id: str, groups: Iterable[WireGroup]) -> bytes:
    """Return the body for groups, in the order of the metrics' names.

    Padded with white space to the next power of two, so that its length tells as little as its order.
    """
    body = json.dumps(
        {
            "v": VERSION,
            "upload": upload_id,
            "groups": [_encode_group(*group) for group in sorted(groups, key=itemgetter(0, 1))],
        },
        separators=(",", ":"),
    ).encode("ascii")
    return body.ljust(max(PADDED_BYTES_MIN, 1 << (len(body) - 1).bit_length()))


def _encode_group(metric: str, plan: str, reports: Sequence[int | str], cohort: int | None = None) -> dict[str, object]:
    group: dict[str, object] = {"metric": metric, "plan": plan, "reports": list(reports)}
    return group if cohort is None else {**group, "cohort": cohort}


# Reading, in the aggregator.


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


def parse_upload(body: bytes, find_plan: Callable[[str, str], Plan]) -> Upload:
    """Read an inflated body. `find_plan(metric, digest)` returns the plan, or raises GroupRefused with the reason."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > VALUES_MAX:
        raise Problem("too-large", f"the body must have at most {VALUES_MAX} commas and opening brackets")
    document = _object(parse_json(body), {"v", "upload", "groups"}, "the body")
    if type(document["v"]) is not int or document["v"] != VERSION:
        raise Problem("malformed", f"v must be {VERSION}")
    upload_id = document["upload"]
    if not isinstance(upload_id, str) or not _ID.fullmatch(upload_id):
        raise Problem("malformed", "upload must be 128 bits as 22 base64url characters")
    items = document["groups"]
    if not isinstance(items, list) or not 1 <= len(items) <= GROUPS_MAX:
        raise Problem("malformed", f"groups must be a list of 1 to {GROUPS_MAX} groups")
    counts = [_count(item) for item in items]
    if sum(counts) > REPORTS_MAX:
        raise Problem("too-large", f"an upload must hold at most {REPORTS_MAX} reports")
    groups: list[Group] = []
    refused: list[Refusal] = []
    for place, item in enumerate(items):
        try:
            groups.append(_parse_group(item, find_plan))
        except (GroupRefused, BadReport) as error:
            reason = "bad-report" if isinstance(error, BadReport) else str(error)
            refused.append(Refusal(place, reason, counts[place]))
    return Upload(upload_id, tuple(groups), tuple(refused))


def _parse_group(item: object, find_plan: Callable[[str, str], Plan]) -> Group:
    if not isinstance(item, dict) or item.keys() not in _GROUP_FIELDS:
        raise GroupRefused("malformed")
    metric, digest, reports = item["metric"], item["plan"], item["reports"]
    if not isinstance(metric, str) or not METRIC_NAME.fullmatch(metric):
        raise GroupRefused("malformed")
    if not isinstance(digest, str) or not _PLAN.fullmatch(digest):
        raise GroupRefused("malformed")
    if not isinstance(reports, list) or not reports:
        raise GroupRefused("malformed")
    plan = find_plan(metric, digest)
    shape = plan.mechanism.shape
    packed = shape.read_column(reports)
    if isinstance(shape, CohortBits):
        packed = shape.column_of_cohort(packed, _cohort(item, shape.cohorts))
    elif "cohort" in item:
        raise GroupRefused("malformed")
    return Group(plan, packed, len(reports))


def _cohort(item: dict[str, Any], cohorts: int) -> int:
    cohort = item.get("cohort")
    if type(cohort) is not int or not 0 <= cohort < cohorts:
        raise BadReport(f"cohort must be an integer from 0 to {cohorts - 1}")
    return cohort


def _count(item: object) -> int:
    """Return how many reports a group holds, as far as anybody can tell."""
    reports = item.get("reports") if isinstance(item, dict) else None
    return len(reports) if isinstance(reports, list) else 0


def _object(value: object, keys: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != keys:
        raise Problem("malformed", f"{what} must be an object with exactly the fields {', '.join(sorted(keys))}")
    return value


def parse_json(body: bytes) -> object:
    """Return the document of a JSON body, without duplicate fields or constants beyond JSON; raise Problem."""
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Problem("malformed", "the body must be UTF-8") from None
    except (ValueError, RecursionError):
        raise Problem("malformed", "the body must be JSON (RFC 8259)") from None


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("duplicate field")
    return fields


def _no_constants(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
