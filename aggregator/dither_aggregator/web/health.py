"""`/livez` and `/readyz`, for monitors: how the process is, in words that name no path and no address."""

import json
from collections.abc import Mapping

from dither_aggregator.service import Service
from dither_aggregator.web.answers import JSON, HttpAnswer, Scope, refusal
from dither_shared.wire.problems import Problem

_HINTS = {
    "writer": "uploads cannot be written",
    "counter": "reports cannot be folded",
    "scheduler": "days that are over cannot be sealed",
    "watcher": "nobody looks after the store",
    "store": "the store cannot be read",
    "settings": "the store may lose what it acknowledges",
}
"""In place of what is said in the log, which may name a path or an address."""
_SAID = {"clock", "folding", "lost"}
"""What is wrong with these is told in days, seconds and uploads."""


def answer_health(service: Service, scope: Scope) -> HttpAnswer:
    """Answer a monitor."""
    if scope["method"] not in ("GET", "HEAD"):
        return refusal(Problem("method-not-allowed", "a monitor only asks"))
    if scope["path"] == "/livez":
        return _answer(200, {"status": "alive"})
    if scope["path"] != "/readyz":
        return refusal(Problem("not-found", "there is /livez, and there is /readyz"))
    trouble = without_addresses(service.trouble())
    status = "ready" if not trouble else "not ready"
    return _answer(503 if trouble else 200, {"status": status, "trouble": trouble, "backlog": service.backlog})


def without_addresses(trouble: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong, by kind, in words that anybody may read."""
    return {
        kind: said if kind in _SAID else f"{_HINTS.get(kind, 'it failed')}; the log says why"
        for kind, said in trouble.items()
    }


def _answer(status: int, document: dict[str, object]) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(document).encode("ascii") + b"\n")
