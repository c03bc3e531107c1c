"""Pages of other sites, by origin, that may send uploads from a browser and read what is answered; nothing else (CORS).

A page's upload is a simple request where it can be: plain text, its key in the body. It costs a browser one round trip
less than one with a key in a header, which is asked for first. https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import re
from collections.abc import Collection

from dither_aggregator.ingest import process_counters
from dither_aggregator.web.http_messages import HttpAnswer, Scope, headers_of, media_type
from dither_shared.wire import PATH
from dither_shared.wire.problems import Problem

KEY_IN_BODY = "dither.key-in-body"
"""In a request's state: its key comes in the body. The value checks how often uploads come with it."""
PREFLIGHT_KEPT_S = 86_400
"""A browser may ask again sooner: Chromium does after two hours."""
_BEGIN = re.compile(rb'\{"v":1,"key":"([!#-\[\]-~]{1,200})",')

PREFLIGHT = HttpAnswer(
    204,
    [
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", b"authorization, content-encoding, content-type"),
        (b"access-control-max-age", b"%d" % PREFLIGHT_KEPT_S),
    ],
    parts=(),
)
"""The answer to a browser that asks whether it may send an upload with a key in a header."""


def is_preflight(scope: Scope) -> bool:
    """Whether a browser asks what it may send."""
    names = {name for name, _ in scope["headers"]}
    return scope["method"] == "OPTIONS" and scope["path"] == PATH and b"access-control-request-method" in names


class Origins:
    """The origins whose pages may send uploads: exact ones, as `https://app.example`."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = frozenset(each.encode("ascii") for each in allowed)

    def check(self, scope: Scope) -> None:
        """Refuse what a page of an origin that is not allowed asks or sends; raise Problem."""
        origin = self._origin(scope)
        if origin not in self._allowed:
            process_counters.origin_refused(origin)
            raise Problem("origin-not-allowed", "no page of this origin may send reports; --allow-origin allows it")

    def is_simple(self, scope: Scope) -> bool:
        """Whether a page sends an upload with its key in the body; raise Problem where it may not."""
        headers = headers_of(scope)
        if b"authorization" in headers or media_type(headers.get(b"content-type", b"")) != b"text/plain":
            return False
        if not self._origin(scope):
            return False
        self.check(scope)
        return True

    def headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return what an answer to a request adds, so that a page that may read it can."""
        if not self._allowed or scope["path"] != PATH:
            return []
        vary = (b"vary", b"origin")
        origin = self._origin(scope)
        if origin not in self._allowed:
            return [vary]
        return [
            vary,
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"date, retry-after"),
        ]

    def _origin(self, scope: Scope) -> bytes:
        return headers_of(scope).get(b"origin", b"")


def taken_apart(body: bytes) -> tuple[bytes, bytes]:
    """Return the key that stands in a body, and the upload without it; raise Problem.

    The rest is the upload as every other client sends it: nothing of the key is stored.
    """
    found = _BEGIN.match(body)
    if not found:
        raise Problem("malformed", 'the body of a text/plain upload must begin with {"v":1,"key":"KEY",')
    return found[1], b'{"v":1,' + body[found.end() :]
