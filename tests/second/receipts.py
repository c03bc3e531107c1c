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


class Days:
    """The days on which reports of each metric may have come (shared/wire.md, "One report a day")."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}
        self._ahead_s = 0

    def receipt(self, now: float, date: float) -> None:
        """Take note of a receipt's Date."""
        apart_s = int(date - now)
        self._ahead_s = apart_s if abs(apart_s) > 30 else 0

    def ended(self, metrics: list[str], now: float) -> None:
        """Keep the day of an upload that was sent, and is no more."""
        self._kept |= dict.fromkeys(metrics, self._day(now + 60))

    def may_leave(self, metric: str, now: float) -> bool:
        """Tell whether a report of a metric may leave."""
        today = self._day(now - 60)
        if self._kept.get(metric, 0) > self._day(now + 60) + 1:
            self._kept[metric] = today
        return today > self._kept.get(metric, 0)

    def _day(self, now: float) -> int:
        return int((now + self._ahead_s) // 86_400)


def _object(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
