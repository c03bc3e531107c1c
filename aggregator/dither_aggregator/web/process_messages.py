"""Requests to pages and API, and their answers, as they go between processes and to clients.

Between processes each is a length, then MessagePack.

In a server a whole request goes to its answerer, another process or `reader_process` in a thread, and the answer, which
is held compressed, is sent as fast as it is read.
"""

import asyncio
import gzip
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from werkzeug.http import parse_accept_header
from werkzeug.wrappers import Response

from dither_aggregator.store.records import KeptReading
from dither_aggregator.web import http_messages, problems
from dither_aggregator.web.http_messages import Bound, HttpAnswer, Peers, Scope, headers_of, peers_of
from dither_aggregator.web.problems import API, DOCUMENT
from dither_shared.wire.reading import Problem

LENGTH = struct.Struct("<Q")
KEPT_HEADERS = (b"content-type", b"if-none-match")
"""A request's headers that are kept: all others are dropped, so that no reader learns more of who asks."""
SESSION, ACTOR, LIVE = "dither.session", "dither.actor", "dither.live"
"""Names in a scope, and in the environment of WSGI: whether somebody is logged in, the id of an admin key, and whether
live figures and raw counts are told."""
HOST = "dither.host"
"""The same of the host that was asked, in that environment alone: no routing and no redirect goes by it."""
BODY = "dither.body"
"""The same of the body in that environment: Flask copies a long one several times, which takes milliseconds."""
ASKED_BYTES_MAX = 64 * 1024
"""A body is no longer, unless its schema has a `body_bytes_max` of its own."""
_encoder = msgspec.msgpack.Encoder()


class Place(msgspec.Struct, frozen=True):
    """The first words to a reader: which store it reads, and how long a list of candidates it may look for."""

    data: str
    generation: str
    candidates_max: int | None
    computes: bool = False
    """Whether it answers nobody, and makes and hands over what is missing of the pages that it is asked for."""
    alone: bool = False
    """Whether no other process does that for this store."""


class ReadRequest(msgspec.Struct, frozen=True):
    """A request. It does not say which reader asks."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    session: bool = False
    """Whether who asks is logged in."""
    actor: str = ""
    """The id of the admin key that asks for a change. No reader is told of any."""
    live: bool = False
    """Whether who asks is told live figures and raw counts."""
    root: str = ""
    """The path of the site below which the path stands."""
    host: str = ""
    """The name, and the port where one is said, under which somebody asks: one that is allowed."""

    @classmethod
    def of(cls, scope: Any, body: bytes) -> "ReadRequest":
        """Return the request of a scope."""
        headers = headers_of(scope)
        kept = [(name, value) for name, value in headers.items() if name in KEPT_HEADERS]
        length = [(b"content-length", b"%d" % len(body))] if body else []
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server leaves the content out
        who = scope.get(SESSION, False), scope.get(ACTOR, ""), scope.get(LIVE, False), scope.get("root_path", "")
        host = headers.get(b"host", b"").decode("latin-1")
        return cls(method, scope["path"], scope["query_string"], kept + length, body, *who, host)


class ReadAnswer(msgspec.Struct, frozen=True):
    """An answer. If `length` says how long the content is, it is in gzip."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes
    length: int | None = None
    is_long: bool = False
    """In place of an answer: it takes a process of its own."""
    wanted: bool = False
    """Whether a part of it is not computed yet, and would be if the page were computed now."""


class Computed(msgspec.Struct, frozen=True):
    """A reading that a process has computed; None at the end of a page."""

    reading: KeptReading | None


LONG = ReadAnswer(503, [], b"", is_long=True)


def encode(message: Place | ReadRequest | ReadAnswer | Computed) -> bytes:
    """Return what goes through a pipe."""
    content = _encoder.encode(message)
    return LENGTH.pack(len(content)) + content


# An answer of a Flask view, packed to be held and to go between processes.


PACKED_FROM = 1_024
"""Bytes of an answer from which on it is compressed."""
PACKED_LEVEL = 4
ANSWER_BYTES_MAX = 128 * 1024 * 1024


def pack(response: Response) -> ReadAnswer:
    """Return an answer, compressed if that is worth while."""
    content = response.get_data()
    if len(content) > ANSWER_BYTES_MAX:
        return pack(problems.respond(Problem("read-failed", "the answer is too long")))
    headers = [(name, value) for name, value in response.headers if name.lower() not in ("content-length", "date")]
    if len(content) < PACKED_FROM:
        return ReadAnswer(response.status_code, headers, content)
    return ReadAnswer(response.status_code, headers, gzip.compress(content, PACKED_LEVEL, mtime=0), len(content))


# A server's side.


CHUNK_BYTES = 64 * 1024


class ReadingApp:
    """An application of pages and API. `answer` answers a request; it is cancelled when nobody waits for it."""

    def __init__(self, answer: Callable[[ReadRequest], Awaitable[ReadAnswer]]) -> None:
        self._answer = answer
        self._held = Bound(http_messages.ANSWER_BYTES_MAX)

    async def __call__(self, scope: Scope, body: bytes) -> HttpAnswer:
        """Answer one request; nobody gets the answer if its client has left."""
        asked = ReadRequest.of(scope, body)
        peers = peers_of(scope["client"][0]) if scope["client"] else ()
        answering = asyncio.ensure_future(self._answer(asked))
        left = asyncio.ensure_future(scope["over"].wait())
        try:
            await asyncio.wait({answering, left}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                return HttpAnswer(503, [])
            return self._held_answer(await _in_words(answering, asked), peers, _accepts_gzip(scope))
        finally:
            answering.cancel()
            left.cancel()

    def _held_answer(self, answered: ReadAnswer, peers: Peers, packed: bool) -> HttpAnswer:
        held = len(answered.content)
        let_go = partial(self._held.remove, peers, held)
        if not self._held.add(peers, held):
            let_go()
            raise Problem("read-failed", "too much is being read at a time")
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answered.headers]
        length = held if packed or answered.length is None else answered.length
        if answered.length is not None:
            headers += [(b"content-encoding", b"gzip")] if packed else []
        if answered.length is not None or answered.status == 304:
            headers.append((b"vary", b"accept-encoding"))
        # A 304 has no length: it would be that of what the reader of it has already.
        said = None if answered.status == 304 else length
        return HttpAnswer(answered.status, headers, parts=_chunks(answered, packed), length=said, sent=let_go)


async def _in_words(answering: Awaitable[ReadAnswer], asked: ReadRequest) -> ReadAnswer:
    """Return the answer or, where a page is asked for and there is none, a page that says why."""
    try:
        return await answering
    except Problem as problem:
        if asked.path.startswith((API, DOCUMENT)):
            raise
        problems.note_refused(problem)
        return ReadAnswer(problem.status, *problems.bare_page(problem, asked.root))


def _accepts_gzip(scope: Scope) -> bool:
    given = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
    return parse_accept_header(given.decode("latin-1"))["gzip"] > 0


def _chunks(answered: ReadAnswer, packed: bool) -> Iterator[bytes]:
    """Yield the content, a little at a time: parts that nobody reads are not unpacked."""
    if packed or answered.length is None:
        for at in range(0, len(answered.content), CHUNK_BYTES):
            yield answered.content[at : at + CHUNK_BYTES]
        return
    stream = zlib.decompressobj(wbits=31)
    rest = answered.content
    while not stream.eof:
        yield stream.decompress(rest, CHUNK_BYTES)
        rest = stream.unconsumed_tail
