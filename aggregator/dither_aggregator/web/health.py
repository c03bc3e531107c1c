"""`/livez` and `/readyz`, for monitors: how the process is, in words that name no path and no address."""

import json

from dither_aggregator.service import Service
from dither_aggregator.web.answers import JSON, Answer, Scope, refusal
from dither_shared.wire.problems import Problem


def answer_health(service: Service, scope: Scope) -> Answer:
    """Answer a monitor."""
    if scope["method"] not in ("GET", "HEAD"):
        return refusal(Problem("method-not-allowed", "a monitor only asks"))
    if scope["path"] == "/livez":
        return _answer(200, {"status": "alive"})
    if scope["path"] != "/readyz":
        return refusal(Problem("not-found", "there is /livez, and there is /readyz"))
    trouble = service.trouble()
    status = "ready" if not trouble else "not ready"
    return _answer(503 if trouble else 200, {"status": status, "trouble": trouble, "backlog": service.backlog})


def _answer(status: int, document: dict[str, object]) -> Answer:
    return Answer(status, JSON, json.dumps(document).encode("ascii") + b"\n")
