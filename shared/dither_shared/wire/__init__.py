"""The wire, version 1: one POST of reports, grouped by metric and plan, under a fresh random id.

    {"v": 1, "upload": "<128 random bits, base64url>",
     "groups": [{"metric": "browser", "plan": "<16 hex digits>", "reports": [17]},
                {"metric": "homepage", "plan": "<16 hex digits>", "cell": 5, "reports": ["q83vEg"]}]}

The device writes it, as below; the aggregator reads it, once (`reading`), and says what it refuses.
`shared/wire.md` has the format with its bytes, limits and answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from dither_shared.light_typing import Any
from dither_shared.rng import RandBits
from dither_shared.shapes import to_base64url

VERSION = 1
PATH = "/v1/reports"
PROBLEM_PREFIX = "urn:dither:problem:"
REASONS = ("malformed", "unknown-metric", "unknown-plan", "expired", "retired", "bad-report")
"""Why a group is refused: there is no other reason."""

WIRE_BYTES_MAX = 256 * 1024
INFLATED_BYTES_MAX = 1024 * 1024
GROUPS_MAX = 50
REPORTS_MAX = 2_000
PADDED_BYTES_MIN = 512
SYMBOL_DIGITS = 7
"""Any symbol has at most so many digits, and takes room for as many in the length of an upload."""
CELL_DIGITS = 5
"""The same of the number of a cell."""
ID_BITS = 128


# Writing an upload, on the device.


def new_upload_id(randbits: RandBits) -> str:
    """Return a fresh id: 128 random bits as base64url."""
    return to_base64url(randbits(ID_BITS).to_bytes(ID_BITS // 8, "big"))


WireGroup = tuple[str, str, Sequence[int | str]] | tuple[str, str, Sequence[int | str], int | None]
"""A metric, its plan's digest, reports as they are on the wire, and the cell where the plan has several."""


def encode_upload(upload_id: str, groups: Iterable[WireGroup]) -> bytes:
    """Return the body for groups, in the order of the metrics' names.

    Padded with white space to the next power of two, so that its length tells as little as its order. Each symbol has
    room for SYMBOL_DIGITS, and a cell for CELL_DIGITS: else a long one alone could take the next power.
    """
    entries = [_encode_group(*group) for group in sorted(groups, key=itemgetter(0, 1))]
    body = json.dumps(
        {
            "v": VERSION,
            "upload": upload_id,
            "groups": entries,
        },
        separators=(",", ":"),
    ).encode("ascii")
    room = len(body) + sum(map(_room, entries))
    return body.ljust(max(PADDED_BYTES_MIN, 1 << (room - 1).bit_length()))


def _room(entry: Mapping[str, Any]) -> int:
    """Return the room that a group's symbols and cell leave empty. All else of a plan's groups is equally long."""
    symbols = sum(SYMBOL_DIGITS - len(str(report)) for report in entry["reports"] if isinstance(report, int))
    return symbols + (CELL_DIGITS - len(str(entry["cell"])) if "cell" in entry else 0)


def _encode_group(metric: str, plan: str, reports: Sequence[int | str], cell: int | None = None) -> dict[str, Any]:
    group: dict[str, Any] = {"metric": metric, "plan": plan, "reports": list(reports)}
    return group if cell is None else {**group, "cell": cell}
