"""The addresses for monitors, at a listener of their own: `/livez`, `/readyz`, `/version` and `/metrics`.

Nothing here asks the store: a store that hangs holds no monitor up. No answer names a path or an address.
"""

import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from dither_aggregator.health.checks import HealthFinding, Observed, Teller, findings, without_addresses
from dither_aggregator.health.status import Audit, StoreStatus
from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest.service import Service
from dither_aggregator.web.http_messages import JSON, HttpAnswer, Scope
from dither_aggregator.web.problems import refusal
from dither_shared.wire import REASONS
from dither_shared.wire.reading import Problem

# `/metrics`: the numbers of health for Prometheus, whose naming they follow. aggregator/health.md explains each.
#
# Totals come from the store, so all servers of a store show the same ones and a restart loses none; every server shows
# all of them, so sum over none. The counts of a server's own are in `ingest/process_counters.py`. No label has a value
# that anybody sends, and there is none by metric: pages and API have that.


HEADERS = [
    (b"content-type", CONTENT_TYPE_PLAIN_0_0_4.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
]


def answer(service: Service, findings: Sequence[HealthFinding], versions: Mapping[str, str]) -> HttpAnswer:
    """Return all metrics."""
    registry = CollectorRegistry()
    registry.register(_Read(service.store_status, service.audit, findings, not service.unready(), versions))
    return HttpAnswer(200, HEADERS, generate_latest(registry) + generate_latest(process_counters.REGISTRY))


@dataclass(frozen=True, eq=False)
class _Read(Collector):
    """The numbers that were last read of the store."""

    store_status: StoreStatus | None
    audit: Audit | None
    findings: Sequence[HealthFinding]
    ready: bool
    versions: Mapping[str, str]

    def collect(self) -> Iterator[Metric]:
        yield _labelled("dither_build_info", "The software and its kind of store; always 1.", self.versions)
        yield _gauge("dither_ready", "Whether uploads should come: 1 where /readyz answers 200.", self.ready)
        series = GaugeMetricFamily("dither_check_ok", "Whether a check of /readyz is well.", labels=["check"])
        for finding in self.findings:
            series.add_metric([finding.what], float(finding.well))
        yield series
        for finding in self.findings:
            yield from (_gauge(*gauge) for gauge in finding.gauges)
        if self.store_status:
            yield from _of_store_status(self.store_status)
        if self.audit:
            yield from _of_audit(self.audit)


def _of_store_status(store_status: StoreStatus) -> Iterator[Metric]:
    status = store_status.shards
    yield _gauge(
        "dither_status_age_seconds", "Since the store was last looked at.", time.monotonic() - store_status.read
    )
    yield _counter(
        "dither_uploads_accepted", "Uploads with reports that were accepted.", sum(s.written for s in status)
    )
    yield _counter("dither_uploads_folded", "Accepted uploads that are folded.", sum(s.cursor for s in status))
    if store_status.last_expiry:
        yield _gauge(
            "dither_last_expiry_timestamp_seconds",
            "When the last metric of the registry expires.",
            datetime.combine(store_status.last_expiry, datetime.min.time(), UTC).timestamp(),
        )


def _of_audit(audit: Audit) -> Iterator[Metric]:
    total = audit.total
    yield _counter("dither_reports_accepted", "Reports that were accepted.", total.accepted)
    yield _counter("dither_reports_folded", "Accepted reports that are counted.", total.folded)
    yield _gauge("dither_reports_pending", "Accepted reports that wait to be folded.", total.pending)
    yield _counter("dither_reports_dropped", "Accepted reports that an operator gave up.", total.dropped)
    yield _gauge("dither_questions_moved", "Saved questions whose answers moved.", audit.questions_moved)
    groups = CounterMetricFamily("dither_groups_refused", "Groups refused since midnight (UTC).", labels=["reason"])
    reports = CounterMetricFamily(
        "dither_reports_refused", "Reports in groups refused since midnight (UTC).", labels=["reason"]
    )
    for reason in REASONS:
        groups.add_metric([reason], audit.refused_groups.get(reason, 0))
        reports.add_metric([reason], audit.refused_reports.get(reason, 0))
    yield groups
    yield reports


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def _labelled(name: str, text: str, labels: Mapping[str, str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), 1.0)
    return family


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
    return answer(service, health_findings(service), versions(service))


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
