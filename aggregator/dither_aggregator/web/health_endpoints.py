"""The addresses for monitors, at a listener of their own: `/livez`, `/readyz`, `/version` and `/metrics`.

Nothing here asks the store: a store that hangs holds no monitor up. No answer names a path or an address.
"""

import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from dither_aggregator.health.checks import HealthFinding, Observed, Teller, findings, without_addresses
from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest.service import Service
from dither_aggregator.web import metrics_endpoint
from dither_aggregator.web.http_messages import JSON, HttpAnswer, Scope, refusal
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
    return metrics_endpoint.answer(service, health_findings(service), versions(service))


def _ready(service: Service) -> HttpAnswer:
    """Say 503 where no upload should come; what needs a look and holds none up is in `checks` alone."""
    unready = without_addresses(service.unready())
    document = {
        "status": "not ready" if unready else "ready",
        "trouble": unready,
        "backlog": service.backlog,
        "keys": {"wrong": sum(process_counters.refused_keys()), "taken": process_counters.taken()},
        "checks": [finding.to_document() for finding in health_findings(service)],
    }
    return _answer(503 if unready else 200, document)


def health_findings(service: Service) -> list[HealthFinding]:
    """Return what health checks find of a server and its store, as far as they were looked at."""
    audit = service.audit
    total = audit.total if audit else None
    return findings(
        Teller.SERVER, Observed(service.store_status, service.store_trouble, total, audit, service.own_trouble())
    )


def versions(service: Service) -> dict[str, str]:
    """Return which software answers, and which kind of store it has."""
    return {**_software(), "store": service.store.kind, "layout": str(service.store.layout)}


@cache
def _software() -> dict[str, str]:
    return {"dither": version("dither"), "python": platform.python_version()}


def _answer(status: int, document: Mapping[str, object]) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(document).encode("ascii") + b"\n")
