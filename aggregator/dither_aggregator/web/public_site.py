"""The site that `dither publish` wrote, at /public, for everybody: the files that its manifest names, and nothing else.

An address is looked up in the manifest, never on the disk, so no spelling of it leads out of the directory. A file
leaves only with the digest that the manifest has for it: one that was changed, or put in its place, does not.
"""

import asyncio
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from dither_aggregator.web import http_messages
from dither_aggregator.web.http_messages import Bound, HttpAnswer, Scope, headers_of, list_of, peers_of
from dither_aggregator.web.problems import NOSNIFF, PAGE_HEADERS, refusal
from dither_shared.wire.reading import Problem

# The names of a site's files: known without all that makes them.


MANIFEST, ABOUT, STYLE, AUDIT, FEED = "manifest.json", "about.json", "style.css", "audit.html", "feed.xml"
FILE_BYTES_MAX = 1 << 22
PART = re.compile(r"([a-z][a-z0-9_]{0,62}/)?[A-Za-z0-9_-]+(\.counts)?\.(css|csv|html|json|svg|xml)")
"""The path of a file of a site. No other one is removed, or served (`web/public_site.py`)."""


PUBLIC = "/public"
MANIFEST_BYTES_MAX = 1 << 24
KEPT_S = 300
"""So long browsers and proxies may show a file without asking again: a new release need not be seen at once."""
TYPES = {
    "css": "text/css; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "xml": "application/atom+xml",
}
PAGES = ("html", "css")
"""Everything else is data and pictures, which other sites may show and read."""
_POLICY = (
    "default-src 'none'; style-src {}; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class _Manifest:
    """The content of a manifest, as long as it is this file."""

    place: tuple[int, int, int]
    content: bytes
    digests: dict[str, str]


class PublicSite:
    """The files of a directory, which may be written again at any time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._manifest: _Manifest | None = None
        self._held = Bound(http_messages.ANSWER_BYTES_MAX)

    @staticmethod
    def has(path: str) -> bool:
        """Tell whether an address is of the site, whether or not something is there."""
        return path == PUBLIC or path.startswith(f"{PUBLIC}/")

    async def answer(self, scope: Scope) -> HttpAnswer:
        """Answer a request, whoever asks; raise Problem where nothing is there, or cannot be shown now."""
        if scope["method"] not in ("GET", "HEAD"):
            answer = refusal(Problem("method-not-allowed", "it takes GET alone"))
            answer.headers.append((b"allow", b"GET, HEAD"))
            return answer
        if scope["path"] == PUBLIC:
            return HttpAnswer(308, [(b"location", f"{scope['root_path']}{PUBLIC}/".encode("ascii"))])
        name = scope["path"].removeprefix(f"{PUBLIC}/") or "index.html"
        content, tag = await asyncio.to_thread(self._read, name)
        headers = _headers(name, tag)
        known = list_of(headers_of(scope).get(b"if-none-match", b""))
        if tag in known or b"W/" + tag in known or known == [b"*"]:
            return HttpAnswer(304, headers, parts=())
        peers, held = peers_of(scope["client"][0]) if scope["client"] else (), len(content)
        if not self._held.add(peers, held):
            self._held.remove(peers, held)
            raise Problem("read-failed", "too much is being read at a time")
        return HttpAnswer(200, headers, content, sent=lambda: self._held.remove(peers, held))

    def _read(self, name: str) -> tuple[bytes, bytes]:
        """Return a file and its tag; raise Problem."""
        manifest = self._latest()
        if name == MANIFEST:
            return manifest.content, _tag(manifest.content)
        digest = manifest.digests.get(name)
        if digest is None:
            raise Problem("not-found", "the published site has no such file")
        content = _bytes_of(self._directory / name, FILE_BYTES_MAX)
        if hashlib.sha256(content).hexdigest() != digest:
            raise _unreadable()
        return content, _tag(content)

    def _latest(self) -> _Manifest:
        """Return the manifest, read again where it was written again."""
        path = self._directory / MANIFEST
        try:
            found = path.stat()
        except OSError:
            raise Problem("not-found", "nothing is published yet") from None
        place = (found.st_mtime_ns, found.st_size, found.st_ino)
        kept = self._manifest
        if kept is None or kept.place != place:
            content = _bytes_of(path, MANIFEST_BYTES_MAX)
            kept = self._manifest = _Manifest(place, content, _digests_in(content))
        return kept


def _digests_in(content: bytes) -> dict[str, str]:
    try:
        digests = json.loads(content)
    except (ValueError, RecursionError):
        raise _unreadable() from None
    if not isinstance(digests, dict) or ABOUT not in digests or not all(map(PART.fullmatch, digests)):
        raise _unreadable()
    return digests


def _bytes_of(path: Path, most: int) -> bytes:
    try:
        # Not what a link leads to; and nobody is waited for who would write into a pipe in its place.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content: bytes = file.read(most + 1)
    except OSError:
        raise _unreadable() from None
    if len(content) > most:
        raise _unreadable()
    return content


def _unreadable() -> Problem:
    return Problem("read-failed", "the published site is being written, or was changed")


def _tag(content: bytes) -> bytes:
    return b'"%s"' % hashlib.sha256(content).hexdigest()[:32].encode("ascii")


def _headers(name: str, tag: bytes) -> list[tuple[bytes, bytes]]:
    kind = name.rpartition(".")[2]
    headers = {
        **PAGE_HEADERS,
        "Content-Type": TYPES[kind],
        NOSNIFF[0]: NOSNIFF[1],
        # The page of an audit has its style in it.
        "Content-Security-Policy": _POLICY.format("'unsafe-inline'" if name == AUDIT else "'self'"),
        "Cache-Control": f"public, max-age={KEPT_S}",
        "Cross-Origin-Resource-Policy": "same-origin" if kind in PAGES else "cross-origin",
        **({} if kind in PAGES else {"Access-Control-Allow-Origin": "*"}),
    }
    return [*((said.lower().encode(), value.encode()) for said, value in headers.items()), (b"etag", tag)]
