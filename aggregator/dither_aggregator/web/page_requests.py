"""Pages and API in a server: a whole request goes to its answerer, and the answer is sent as fast as it is read.

It is held compressed. The answerer is another process, or `flask_apps` in a thread.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from werkzeug.http import parse_accept_header

from dither_aggregator.web import http_messages, problems
from dither_aggregator.web.http_messages import Bound, HttpAnswer, Peers, Scope, peers_of
from dither_aggregator.web.problems import API, DOCUMENT
from dither_aggregator.web.process_messages import ReadAnswer, ReadRequest
from dither_shared.wire.reading import Problem

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
