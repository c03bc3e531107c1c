"""Pages and API: from a whole request to an answer, which is held compressed and sent as fast as it is read."""

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable, Iterator
from io import BytesIO
from typing import Any, cast

from a2wsgi.wsgi import build_environ
from flask import Flask
from werkzeug.http import parse_accept_header
from werkzeug.wrappers import Response

from dither_aggregator.store import Store
from dither_aggregator.web import api, bounds, pages, problems
from dither_aggregator.web.answers import Receive, Scope, Send
from dither_aggregator.web.bounds import Bound, peer_of
from dither_aggregator.web.exchange import ACTOR, LONG, SESSION, ReadAnswer, ReadRequest
from dither_aggregator.web.long_lists import LongList
from dither_shared.wire import PATH
from dither_shared.wire.problems import Problem

PACKED_FROM = 1_024
"""Bytes of an answer from which on it is compressed."""
PACKED_LEVEL = 4
ANSWER_BYTES_MAX = 128 * 1024 * 1024
CHUNK_BYTES = 64 * 1024


class ReadingApp:
    """An ASGI application of pages and API. `answer` answers a request; it is cancelled when nobody waits for it."""

    def __init__(self, answer: Callable[[ReadRequest], Awaitable[ReadAnswer]]) -> None:
        self._answer = answer
        self._held = Bound(bounds.ANSWER_BYTES_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        asked = ReadRequest.of(scope, (await receive())["body"])
        peer = peer_of(scope["client"][0]) if scope["client"] else ""
        answering = asyncio.ensure_future(self._answer(asked))
        left = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({answering, left}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await self._send(answering.result(), peer, _accepts_gzip(scope), send)
        finally:
            answering.cancel()
            left.cancel()

    async def _send(self, answered: ReadAnswer, peer: str, packed: bool, send: Send) -> None:
        try:
            if not self._held.add(peer, len(answered.content)):
                raise Problem("unavailable", "too much is being read at a time")
            headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answered.headers]
            length = len(answered.content) if packed or answered.length is None else answered.length
            if answered.status != 304:  # whose length would be that of what the reader of it has already
                headers.append((b"content-length", b"%d" % length))
            if answered.length is not None:
                headers += [(b"content-encoding", b"gzip")] if packed else []
            if answered.length is not None or answered.status == 304:
                headers.append((b"vary", b"accept-encoding"))
            await send({"type": "http.response.start", "status": answered.status, "headers": headers})
            for chunk in _chunks(answered, packed):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._held.remove(peer, len(answered.content))


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


# The answer itself, in whatever process or thread.


def reading_app(store: Store, candidates_max: int | None = None) -> Flask:
    """Return the WSGI application of pages and API. Lists of more than `candidates_max` raise LongList."""
    app = bare_app()
    app.add_url_rule(PATH, "reports", methods=["POST"])  # never comes here; other methods are told so
    api.register(app, store, candidates_max=candidates_max)
    problems.register(app)  # after the API: flask-smorest has words of its own for errors
    pages.register(app, store)
    return app


def bare_app() -> Flask:
    """Return a WSGI application without an address."""
    app = Flask("dither_aggregator.web")
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of the default provider; keys read best as written
    app.url_map.strict_slashes = app.url_map.merge_slashes = False  # no address is another one's
    app.after_request(pages.guard)
    return app


def respond(app: Flask, asked: ReadRequest) -> ReadAnswer:
    """Answer a request; LONG where its list of candidates is too long for here."""
    scope: Any = {
        "type": "http",
        "http_version": "1.1",
        "method": asked.method,
        "path": asked.path,
        "query_string": asked.query,
        "headers": asked.headers,
    }
    try:
        environ = cast("dict[str, Any]", build_environ(scope, cast("Any", BytesIO(asked.body))))
        environ |= {SESSION: asked.session, ACTOR: asked.actor}
        return pack(Response.from_app(app, environ, buffered=True))
    except LongList:
        return LONG
    except Exception as error:
        return pack(problems.respond(problems.failure(error)))


def pack(response: Response) -> ReadAnswer:
    """Return an answer, compressed if that is worth while."""
    content = response.get_data()
    if len(content) > ANSWER_BYTES_MAX:
        return pack(problems.respond(Problem("unavailable", "the answer is too long")))
    headers = [(name, value) for name, value in response.headers if name.lower() not in ("content-length", "date")]
    if len(content) < PACKED_FROM:
        return ReadAnswer(response.status_code, headers, content)
    return ReadAnswer(response.status_code, headers, gzip.compress(content, PACKED_LEVEL, mtime=0), len(content))


def in_threads(store: Store) -> ReadingApp:
    """Return pages and API that are made in threads of this process: for trials."""
    app = reading_app(store)
    return ReadingApp(lambda asked: asyncio.to_thread(respond, app, asked))
