"""The end of an attempt: what a device does at each answer (shared/wire.md, "The answers")."""

import json
from typing import Any

PREFIX = "urn:dither:problem:"
FORGET, DROP, STOP, HALVE, KEEP = "forget", "drop", "stop", "halve", "keep"
_BY_STATUS = {413: HALVE, 401: STOP, 403: STOP} | dict.fromkeys((400, 409, 410, 411, 414, 415, 422, 431), DROP)
_WAITS_S = (60, 600, 3_600, 21_600, 86_400)


def next_step(status: int, content: bytes, upload_id: str) -> str:
    """Return what becomes of the upload."""
    document = _object(content)
    if status == 202:
        return FORGET if document.get("upload") == upload_id else KEEP
    return _BY_STATUS.get(status, KEEP) if str(document.get("type")).startswith(PREFIX) else KEEP


def retired_groups(status: int, content: bytes, groups: int) -> list[int]:
    """Return the places of the groups whose metrics are silent for 30 days."""
    document = _object(content)
    if status == 410 and document.get("type") == PREFIX + "retired":
        return list(range(groups))
    return [refused["group"] for refused in document.get("rejected", []) if refused["reason"] == "retired"]


def wait_s(retry_after: str) -> int:
    """Return for how long at least an upload is kept, by the answer's Retry-After."""
    if not (retry_after.isascii() and retry_after.isdigit()):
        return 0
    return next((wait for wait in _WAITS_S if int(retry_after) <= wait), _WAITS_S[-1])


def _object(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
