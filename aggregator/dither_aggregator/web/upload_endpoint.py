"""`POST /v1/reports`: an upload in, a receipt out once it is durable.

Nearly all requests are uploads, and they come in thousands: the loop reads them itself, and an upload waits for its
commit without a thread. All that come meanwhile share the next commit.
"""

import asyncio
from collections import deque
from contextlib import suppress

import msgspec

from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest.service import Service, Submitted
from dither_aggregator.store import Receipt
from dither_aggregator.web.allowed_hosts import KEY_IN_BODY, taken_apart
from dither_aggregator.web.authentication import Authentication
from dither_aggregator.web.http_messages import JSON, HttpAnswer, Scope, headers_of, list_of, media_type
from dither_shared.wire import WIRE_BYTES_MAX, reading
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
