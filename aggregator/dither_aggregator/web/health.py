"""The addresses for monitors, at a listener of their own: `/livez`, `/readyz`, `/version` and `/metrics`.

Nothing here asks the store: a store that hangs holds no monitor up. No answer names a path or an address.
"""

import json
import platform
import time
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from dither_aggregator.health import checks
from dither_aggregator.health.checks import HealthCheck, without_addresses
from dither_aggregator.ingest.service import Service
from dither_aggregator.web import metrics
from dither_aggregator.web.answers import JSON, HttpAnswer, Scope, refusal
from dither_shared.wire.problems import Problem

ADDRESSES = ("/livez", "/readyz", "/version", "/metrics")


def answer_health(service: Service, scope: Scope) -> HttpAnswer:
    """Answer a monitor."""
    path = scope["path"]
    if path not in ADDRESSES:
        return refusal(Problem("not-found", f"there are {', '.join(ADDRESSES)}, and nothing else for monitors"))
    if scope["method"] not in ("GET", "HEAD"):
        return refusal(Problem("method-not-allowed", "a monitor only asks"))
    match path:
        case "/livez":
            return _answer(200, {"status": "alive"})
        case "/readyz":
            return _ready(service)
        case "/version":
            return _answer(200, versions(service))
    return metrics.answer(service, health_checks(service), versions(service))


def _ready(service: Service) -> HttpAnswer:
    """Say 503 where no upload should come; what needs a look and holds none up is in `checks` alone."""
    trouble = without_addresses(service.trouble())
    document = {
        "status": "not ready" if trouble else "ready",
        "trouble": trouble,
        "backlog": service.backlog,
        "checks": [check.to_document() for check in health_checks(service)],
    }
    return _answer(503 if trouble else 200, document)


def health_checks(service: Service) -> list[HealthCheck]:
    """Return the health checks of a server and its store, as far as they were looked at."""
    return [
        *checks.of_threads(service.own_trouble()),
        *checks.of_store(service.store_status, service.store_trouble),
        *checks.of_ledger(service.audit, time.monotonic()),
    ]


def versions(service: Service) -> dict[str, str]:
    """Return which software answers, and which kind of store it has."""
    return {**_software(), "store": service.store.kind, "layout": str(service.store.layout)}


@cache
def _software() -> dict[str, str]:
    return {"dither": version("dither"), "python": platform.python_version()}


def _answer(status: int, document: Mapping[str, object]) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(document).encode("ascii") + b"\n")
