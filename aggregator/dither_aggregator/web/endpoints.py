"""The application of a server's process: uploads, health, changes by admin keys, and who answers the rest.

**Uploads**, `POST /v1/reports`: an upload in, a receipt out once it is durable.
Nearly all requests are uploads, and they come in thousands: the loop reads them itself, and an upload waits for its
commit without a thread. All that come meanwhile share the next commit.

**Health**: the addresses for monitors, at a listener of their own.
Nothing here asks the store: a store that hangs holds no monitor up. No answer names a path or an address.

**Changes** are answered in a thread of the server's own process: readers write nothing.
"""

import asyncio
import json
import platform
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version

import msgspec
from flask import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from dither_aggregator.health.checks import HealthFinding, Observed, Teller, findings, without_addresses
from dither_aggregator.health.status import Audit, StoreStatus
from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest.service import Service, Submitted
from dither_aggregator.store import Receipt, StoreError, StoreUnavailable
from dither_aggregator.web import problems
from dither_aggregator.web.addresses import (
    KEY_IN_BODY,
    PREFLIGHT,
    check_monitor,
    check_reader,
    is_known,
    is_preflight,
    taken_apart,
)
from dither_aggregator.web.authentication import ADMINISTRATION, Authentication, unstored
from dither_aggregator.web.http_messages import JSON, App, HttpAnswer, Scope, headers_of, list_of, media_type
from dither_aggregator.web.listeners import HEALTH
from dither_aggregator.web.problems import refusal
from dither_aggregator.web.process_messages import ACTOR, ReadAnswer, ReadingApp, ReadRequest
from dither_aggregator.web.public_site import PublicSite
from dither_shared.errors import DitherError
from dither_shared.wire import PATH, REASONS, WIRE_BYTES_MAX, reading
from dither_shared.wire.reading import FindPlan, Problem, Upload, inflate

# Reading an upload with a JSON parser in C: `dither_shared.wire.reading` reads the same with Python's own.


_DECODER = msgspec.json.Decoder()


def parse_upload(body: bytes, find_plan: FindPlan) -> Upload:
    """Read an inflated body as `reading.parse_upload` does, in less time."""
    return reading.parse_upload(body, find_plan, parse_json)


def parse_json(body: bytes) -> object:
    """Return the document of a JSON body; raise Problem.

    The parser in C refuses what Python's takes in one place of a document: half of a surrogate pair, a number beyond a
    double's. Such a value spoils its group and not the others, so what C refuses is read once more.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return reading.parse_json(body)


ACKNOWLEDGE_WITHIN_S = 20.0
HEAVY_BYTES = 16 * 1024
"""An upload from here on, or in gzip, has a turn of the loop to itself."""
HEAVY_WAITING_MAX = 256


class Ingest:
    """Takes uploads for a running service."""

    def __init__(self, service: Service, authentication: Authentication) -> None:
        self._service = service
        self._authentication = authentication
        self._heavy = asyncio.Lock()
        self._heavy_waiting = 0
        self._wake = _Wake()

    async def answer(self, scope: Scope, body: bytes) -> HttpAnswer:
        """Answer an upload that came whole; raise Problem where it is not taken."""
        headers = headers_of(scope)
        if check_rate := scope["state"].get(KEY_IN_BODY):
            key, body = taken_apart(body)
            check_rate(self._authentication.upload(b"Bearer " + key))
            headers[b"content-type"] = b"application/json"
        else:
            self._authentication.upload(headers.get(b"authorization", b""))
        gzip = check_head(headers, len(body))
        if gzip or len(body) > HEAVY_BYTES:  # a kilobyte of gzip may be a megabyte of JSON
            await self._take_turn()
        plain = inflate(body) if gzip else body
        submitted = self._service.submit(parse_upload(plain, self._service.store.find_plan), plain)
        receipt = await self._committed(submitted)
        return HttpAnswer(202, JSON, msgspec.json.encode(receipt.to_document()) + b"\n")

    async def _take_turn(self) -> None:
        """Wait for a turn of the loop in which no other heavy upload is read: everything else has its own between."""
        if self._heavy_waiting >= HEAVY_WAITING_MAX:
            process_counters.limit_hit("parsing")
            raise Problem("unavailable", "too much is being read at a time")
        self._heavy_waiting += 1
        try:
            async with self._heavy:
                await asyncio.sleep(0)
        finally:
            self._heavy_waiting -= 1

    async def _committed(self, submitted: Submitted) -> Receipt:
        """Return the receipt once there is one; raise Problem when there is none in time."""
        try:
            await self._wake.when_done(submitted, ACKNOWLEDGE_WITHIN_S)
        except asyncio.CancelledError:
            submitted.cancel()  # nobody waits for it any more
            raise
        if submitted.cancel():
            raise Problem("unavailable", "the store is slow; nothing was stored")
        if not submitted.done():
            raise Problem("unavailable", "the store is slow; nothing is known to be stored")
        result = submitted.result()
        if isinstance(result, Problem):
            raise result
        return result


class _Wake:
    """Wakes the loop from other threads, once for all that is done: a commit is there for many."""

    def __init__(self) -> None:
        self._done: deque[asyncio.Future[None]] = deque()
        self._wakes = False
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        """Until when each is waited for. They are done about in the order in which they came."""
        self._watched = False

    async def when_done(self, submitted: Submitted, within_s: float) -> None:
        """Wait until it is done, or until that takes too long."""
        loop = asyncio.get_running_loop()
        there: asyncio.Future[None] = loop.create_future()
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
        self._waiting.append((loop.time() + within_s, there))
        if not self._watched:
            self._watch(loop)
        submitted.add_done_callback(lambda _: self._tell(loop, there))
        await there

    def _tell(self, loop: asyncio.AbstractEventLoop, there: "asyncio.Future[None]") -> None:
        self._done.append(there)
        if not self._wakes:
            self._wakes = True
            with suppress(RuntimeError):  # the loop has been closed: it did not wait for this one any longer
                loop.call_soon_threadsafe(self._settle_done)

    def _settle_done(self) -> None:
        self._wakes = False  # first: any that comes from now on wakes the loop again
        while self._done:
            _settle(self._done.popleft())

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Settle what is late; look again when the next one may be."""
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= loop.time()):
            _settle(self._waiting.popleft()[1])
        self._watched = bool(self._waiting)
        if self._watched:
            loop.call_at(self._waiting[0][0], self._watch, loop)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def check_head(headers: dict[bytes, bytes], length: int) -> bool:
    """Refuse a body that is not JSON, or too long; return whether it is in gzip."""
    if media_type(headers.get(b"content-type", b"")) != b"application/json":
        raise Problem("unsupported-media-type", "Content-Type must be application/json")
    codings = [each.lower() for each in list_of(headers.get(b"content-encoding", b""))]
    packed = [coding for coding in codings if coding != b"identity"]
    if packed not in ([], [b"gzip"], [b"x-gzip"]):
        raise Problem("unsupported-media-type", "Content-Encoding must be gzip or absent")
    if b"content-length" not in headers and b"transfer-encoding" not in headers:
        raise Problem("length-required", "send Content-Length, or the body in chunks")
    if length > WIRE_BYTES_MAX:
        raise Problem("too-large", f"the body must have at most {WIRE_BYTES_MAX} bytes")
    return bool(packed)


# `/metrics`: the numbers of health for Prometheus, whose naming they follow. aggregator/health.md explains each.
#
# Totals come from the store, so all servers of a store show the same ones and a restart loses none; every server shows
# all of them, so sum over none. The counts of a server's own are in `ingest/process_counters.py`. No label has a value
# that anybody sends, and there is none by metric: pages and API have that.


# Health, for monitors: `/livez`, `/readyz`, `/version` and `/metrics`.


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


HEALTH_ADDRESSES = ("/livez", "/readyz", "/version", "/metrics")


def answer_health(service: Service, scope: Scope) -> HttpAnswer:
    """Answer a monitor."""
    path = scope["path"]
    if path not in HEALTH_ADDRESSES:
        return refusal(Problem("not-found", f"there are {', '.join(HEALTH_ADDRESSES)}, and nothing else for monitors"))
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


# Changes, by admin keys.


LOAD = "/v1/admin/registry/load"


def _respond_not_done(error: DitherError) -> Response:
    return problems.respond(Problem("not-done", str(error)))


def another_is_read() -> Problem:
    """Return why a registry is not taken while another one is read."""
    return Problem("too-many", "another registry is being read; send the same bytes again later")


def changing_app(service: Service) -> ReadingApp:
    """Return the application of the addresses that change something; one change at a time.

    A registry takes up to a minute to be read, for which nothing else waits; another one that comes then is refused.
    """
    one, store = asyncio.Lock(), service.store

    @cache
    def made() -> Callable[[ReadRequest], ReadAnswer]:
        # By the first request, which loads what it needs: most servers are never asked.
        from dither_aggregator.web import api, reader_process

        app = reader_process.bare_app()
        api.register(app, store, api.CHANGES)
        problems.register(app)
        app.register_error_handler(DitherError, _respond_not_done)
        app.register_error_handler(StoreError, _respond_not_done)  # in the place of the reader's, whose fault it is not
        app.register_error_handler(StoreUnavailable, problems.respond_store)
        return partial(reader_process.respond, app)

    def load_alone(asked: ReadRequest) -> ReadAnswer:
        if not service.loading.acquire(blocking=False):  # held by the thread: who asked may have gone
            raise another_is_read()
        try:
            return made()(asked)
        finally:
            service.loading.release()

    async def answer(asked: ReadRequest) -> ReadAnswer:
        if asked.path == LOAD:
            return await asyncio.to_thread(load_alone, asked)
        async with one:
            return await asyncio.to_thread(lambda: made()(asked))

    return ReadingApp(answer)


# The application: who may come in, and who answers.


def create_app(
    service: Service,
    reading: App,
    hosts: Collection[str] = (),
    *,
    reachable: bool = False,
    public: PublicSite | None = None,
) -> App:
    """Return the application around a running service. `reading` answers all that only reads.

    `hosts` are the names, beside localhost, under which somebody may read or monitor; `reachable` says that readers
    may come from beyond this machine, so that each of them needs a key; `public` is what they are shown without one.
    """
    authentication = Authentication(service, reachable=reachable)
    ingest, changing = Ingest(service, authentication), changing_app(service)

    async def answer(scope: Scope, body: bytes) -> HttpAnswer:
        if scope["state"].get(HEALTH):
            check_monitor(scope, hosts)
            return answer_health(service, scope)
        if scope["path"] == PATH and scope["method"] == "POST":
            return await ingest.answer(scope, body)
        if is_preflight(scope):
            return PREFLIGHT
        check_reader(scope, hosts)
        if public and public.has(scope["path"]):
            return await public.answer(scope)
        if scope["path"].startswith(ADMINISTRATION) and is_known(scope["path"]):
            return unstored(await changing({**scope, ACTOR: authentication.administer(scope)}, body))
        return await authentication.enter(scope, body, reading)

    return in_words(answer)


def in_words(app: App) -> App:
    """Return an application that answers as another one does, and in our words where that fails."""

    async def answer(scope: Scope, body: bytes) -> HttpAnswer:
        try:
            return await app(scope, body)
        except Problem as problem:
            refused = problem.with_traceback(None)  # which has this frame, and this frame has the problem: a circle
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            refused = Problem("unavailable", "the server is being stopped")
        except Exception as error:
            refused = problems.failure(error)
        problems.note_refused(refused)
        return refusal(refused)

    return answer
