"""A fake aggregator: it answers as the real one does, and fails when it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import PathLike
from typing import Self

from dither.device import DAY_S
from dither.device.recording import day_number
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.wire import PATH, WIRE_BYTES_MAX
from dither_shared.wire.reading import PROBLEMS, GroupRefused, Problem, all_refused, inflate, parse_upload

# An HTTP server on this machine's loopback, for tests: a function replies to each request.

BODY_BYTES_MAX = 2 * 1024 * 1024
"""A longer body is not read."""
SILENCE_S = 60.0
"""A client that says nothing for so long is left."""


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    """b"" where no length was stated, or too long a one."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    """So many bytes of the body, at its end, are not sent, though the stated length counts them."""
    drip_s: float = 0.0
    """So long a wait before each byte of the body."""


class Loopback:
    """The server, while its context lasts. If `answer` returns None, the connection is closed without a reply."""

    def __init__(self, answer: Callable[[Request], Reply | None]) -> None:
        self._answer = answer
        self._server: ThreadingHTTPServer | None = None
        self._ended = threading.Event()

    @property
    def url(self) -> str:
        """The address, from when the context is entered."""
        if self._server is None:
            name = type(self).__name__
            raise RuntimeError(f"{name} serves within its context: with {name}(...) as server")
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answer))
        self._server.daemon_threads = True
        # Looked at so often, the end of the context does not take the half second of the default.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="loopback", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def _handler(answer: Callable[[Request], Reply | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_S

        def reply(self) -> None:
            with suppress(ConnectionError):  # the client may have left
                stated = self.headers.get("Content-Length", "")
                length = int(stated) if stated.isdecimal() and len(stated) < 10 else 0
                body = self.rfile.read(length) if length <= BODY_BYTES_MAX else b""
                reply = answer(Request(self.command, self.path, dict(self.headers), body))
                if reply is not None:
                    self.write(reply)

        do_CONNECT = do_DELETE = do_GET = do_POST = do_PUT = reply  # noqa: N815  # http.server's names

        def write(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            content = reply.body[: len(reply.body) - reply.cut]
            pieces = [content[place : place + 1] for place in range(len(content))] if reply.drip_s else [content]
            for piece in pieces:
                time.sleep(reply.drip_s)
                self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
            """Say nothing: a test looks at the requests."""

    return Handler


# A fake aggregator: it answers as the real one does, and fails when it is told to.
#
# It counts what it accepts and keeps no report. Other than the real one it forgets no id and takes no chunked body.

GRACE_DAYS = 7
"""How long the reports of an expired metric are still taken."""
RETRY_AFTER_S = 60
HANG_S = 5.0
HUGE_BYTES = 10_000_000
TIMES_MAX = 1_000


class FakeAggregator(Loopback):
    """An aggregator on loopback, while its context lasts, for the metrics of a registry or of its path.

        with FakeAggregator("metrics.toml") as fake:
            telemetry = dither.start("metrics.toml", endpoint=fake.url, key=fake.key, data_dir=":memory:", consent=True)

    Within pytest `start` is silent unless DITHER_TELEMETRY is 1: the fixture `fake_aggregator` sees to that.
    """

    def __init__(
        self,
        registry: Registry | str | PathLike[str],
        *,
        key: str = "the-key-of-the-fake",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(self._answer_or_fail)
        self.key = key
        self._registry = registry if isinstance(registry, Registry) else Registry.load(registry)
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: deque[tuple[str, int | None]] = deque()
        self._uploads: list[Request] = []
        self._receipts: dict[str, tuple[bytes, dict[str, object]]] = {}
        self._reports: Counter[str] = Counter()

    @property
    def uploads(self) -> list[Request]:
        """Every request as it came, whatever became of it."""
        return list(self._uploads)

    @property
    def reports(self) -> dict[str, int]:
        """How many reports were accepted, by metric; those of an upload that came again are counted once."""
        return dict(self._reports)

    def fail_next(self, failure: str, *, retry_after: int | None = None, times: int = 1) -> None:
        """Fail the next requests, after those that are to fail already; `retry_after`, in seconds, is said with it.

            fake.fail_next("close", times=2)
            fake.fail_next("lose-receipt")

        A failure is a key of `dither_shared.wire.reading.PROBLEMS`, or one of these. Nothing is counted with
        "hang" (no answer for HANG_S seconds, and then none), "close" (the connection is closed without an answer),
        "redirect", "captive-portal" (a page that says 200) and "huge" (10 MB of nothing). The upload is counted with
        "lose-receipt" (then the connection is closed) and "truncate" (half of the receipt arrives).
        """
        if failure not in _FAILURES and failure not in PROBLEMS:
            raise ValueError(f"failure must be one of {', '.join([*_FAILURES, *PROBLEMS])}, got {failure!r}")
        if not 1 <= times <= TIMES_MAX:
            raise ValueError(f"times must be from 1 to {TIMES_MAX}, got {times}")
        if retry_after is not None and failure in _WITHOUT_REPLY:
            raise ValueError(f"retry_after must be left out: nothing is replied with {failure!r}")
        self._failures.extend([(failure, retry_after)] * times)

    def _answer_or_fail(self, request: Request) -> Reply | None:
        with self._lock:
            self._uploads.append(request)
            failure, retry_after = self._failures.popleft() if self._failures else ("", None)
        if not failure:
            return self._take(request)
        fail = _FAILURES.get(failure)
        reply = fail(self, request) if fail else _refuse(Problem(failure, "the test asked for this"))
        if reply is None or retry_after is None:
            return reply
        return replace(reply, headers={**reply.headers, "Retry-After": str(retry_after)})

    # The protocol.

    def _take(self, request: Request) -> Reply:
        try:
            self._check_address(request)
            headers = {name.lower(): value for name, value in request.headers.items()}
            self._check_key(headers)
            return _json(202, self._receive(_read_body(headers, request.body)))
        except Problem as problem:
            return _refuse(problem)

    def _check_address(self, request: Request) -> None:
        if request.path != PATH:
            raise Problem("not-found", f"devices send to {PATH}")
        if request.method != "POST":
            raise Problem("method-not-allowed", "devices send with POST")

    def _check_key(self, headers: Mapping[str, str]) -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Problem("key-missing", "send the key as Authorization: Bearer KEY")
        if given.strip() != self.key:
            raise Problem("key-wrong", f"the key of this fake is {self.key}")

    def _receive(self, body: bytes) -> dict[str, object]:
        """Return the receipt of an upload, and count its reports unless it came before; raise Problem."""
        upload = parse_upload(body, self._find_plan)
        with self._lock:
            known, receipt = self._receipts.get(upload.id, (body, None))
            if known != body:
                raise Problem("upload-conflict", "this upload's id was used before with another body")
            if receipt is not None:
                return {**receipt, "duplicate": True}
            if not upload.groups:
                raise all_refused(upload.refused)
            counts = Counter[str]()
            for group in upload.groups:
                counts[group.plan.metric] += group.count
            receipt = {
                "upload": upload.id,
                "accepted": counts.total(),
                "duplicate": False,
                "rejected": [refusal.to_document() for refusal in upload.refused],
            }
            self._receipts[upload.id] = body, receipt
            self._reports += counts
            return receipt

    def _find_plan(self, metric: str, digest: str) -> Plan:
        asked = self._registry.metrics.get(metric)
        if asked is None:
            raise GroupRefused("unknown-metric")
        if asked.plan.digest != digest:
            raise GroupRefused("unknown-plan")
        if self._clock() // DAY_S >= day_number(asked.expires) + GRACE_DAYS:
            raise GroupRefused("expired")
        return asked.plan

    # The failures.

    def _hang(self, request: Request) -> None:
        self._ended.wait(HANG_S)

    def _close(self, request: Request) -> None:
        pass

    def _lose_receipt(self, request: Request) -> None:
        self._take(request)

    def _truncate(self, request: Request) -> Reply:
        reply = self._take(request)
        return replace(reply, cut=len(reply.body) // 2)

    def _redirect(self, request: Request) -> Reply:
        return Reply(307, headers={"Location": f"{self.url}/elsewhere"})

    def _captive_portal(self, request: Request) -> Reply:
        return Reply(200, b"<!doctype html><title>Welcome to the hotel</title>", {"Content-Type": "text/html"})

    def _huge(self, request: Request) -> Reply:
        return Reply(202, b" " * HUGE_BYTES, {"Content-Type": "application/json"})


_WITHOUT_REPLY: dict[str, Callable[[FakeAggregator, Request], None]] = {
    "hang": FakeAggregator._hang,
    "close": FakeAggregator._close,
    "lose-receipt": FakeAggregator._lose_receipt,
}
_FAILURES: dict[str, Callable[[FakeAggregator, Request], Reply | None]] = {
    **_WITHOUT_REPLY,
    "truncate": FakeAggregator._truncate,
    "redirect": FakeAggregator._redirect,
    "captive-portal": FakeAggregator._captive_portal,
    "huge": FakeAggregator._huge,
}


def _read_body(headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the inflated body, within the limits."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem("unsupported-media-type", "Content-Type must be application/json")
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Problem("unsupported-media-type", "Content-Encoding must be gzip or absent")
    length = headers.get("content-length")
    if length is None:
        raise Problem("length-required", "send Content-Length")
    if not length.isdecimal():
        raise Problem("malformed", f"Content-Length must be a number, got {length!r}")
    if len(length) > 9 or int(length) > WIRE_BYTES_MAX:
        raise Problem("too-large", f"the body must have at most {WIRE_BYTES_MAX} bytes, got {length}")
    return inflate(body) if encoding == "gzip" else body


def _refuse(problem: Problem) -> Reply:
    reply = _json(problem.status, problem.to_document(), "application/problem+json")
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_AFTER_S)}}
    return replace(reply, headers={**reply.headers, **headers.get(problem.status, {})})


def _json(status: int, document: Mapping[str, object], content_type: str = "application/json") -> Reply:
    return Reply(status, json.dumps(document).encode("ascii") + b"\n", {"Content-Type": content_type})
