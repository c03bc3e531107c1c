"""Every refusal leaves as a problem document (RFC 9457) with a stable `type`."""

import json
import logging
import traceback
from html import escape

from flask import Flask, Response, has_request_context, render_template, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.ingest import process_counters
from dither_aggregator.store import StoreError
from dither_aggregator.web.http_messages import HttpAnswer
from dither_shared.wire.reading import Problem

CONTENT_TYPE = "application/problem+json"
NOSNIFF = ("X-Content-Type-Options", "nosniff")
RETRY_AFTER_S = 60
RETRIED = (429, 503, 507)
"""Statuses that ask for the same request again later. `retry_after_s` in the document says when, if it is there."""
WAITING_RETRY_AFTER_S = 3_600
"""For devices whose key waits. They keep to it when their app is updated meanwhile: so it is far less than six days."""
REFRESH_S = 5
"""So often a page that waits for a part of it asks again."""
NOT_COMPUTED_RETRY_AFTER_S = 600
API, DOCUMENT = "/v1/", "/openapi.json"

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",  # frame-ancestors, for browsers that do not know it
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
EMBED_HEADERS = {
    **{name: value for name, value in PAGE_HEADERS.items() if name != "X-Frame-Options"},
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors *"
    ),
}
"""The same of what other sites show in a frame."""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · dither</title>
<link rel="stylesheet" href="{root}/static/dither.css">
</head>
<body>
<main id="main">
<h1>{title}</h1>
<p class="headline"><bdi>{detail}</bdi></p>
<p><a href="{root}/">All metrics</a></p>
</main>
</body>
</html>
"""

_log = logging.getLogger("dither_aggregator")


def render(problem: Problem) -> bytes:
    """Return the document's bytes."""
    return json.dumps(problem.to_document()).encode("ascii") + b"\n"


def refusal(problem: Problem) -> HttpAnswer:
    """Return the answer to a request that is refused."""
    headers = [(name.lower().encode(), value.encode()) for name, value in headers_of(problem)]
    return HttpAnswer(problem.status, headers, render(problem))


def note_refused(problem: Problem) -> None:
    """Count a request that is refused as a whole; the log says no more of it than the kind of problem."""
    process_counters.request_refused(problem.slug)
    _log.debug("a request was refused: %s", problem.slug)


def headers_of(problem: Problem) -> list[tuple[str, str]]:
    """Return the headers of the answer, the length left out."""
    headers = [("Content-Type", CONTENT_TYPE), NOSNIFF]
    if problem.status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    if problem.status in RETRIED:
        usual_s = WAITING_RETRY_AFTER_S if problem.slug == "key-waiting" else RETRY_AFTER_S
        headers.append(("Retry-After", str(problem.extra.get("retry_after_s", usual_s))))
    return headers


def respond(problem: Problem) -> Response:
    """Answer a refused request as a Flask view does: a page's refusal is a page."""
    if not has_request_context() or request.path.startswith((API, DOCUMENT)):
        return Response(render(problem), problem.status, headers_of(problem))
    headers = [(name, value) for name, value in headers_of(problem) if name != "Content-Type"]
    return Response(render_template("problem.html", problem=problem), problem.status, headers)


def bare_page(problem: Problem, root: str) -> tuple[list[tuple[str, str]], bytes]:
    """Return headers and content of a page that says why there is no other, where nothing draws pages.

    `root` is the path of the site below which all addresses stand.
    """
    message = [(name, value) for name, value in headers_of(problem) if name != "Content-Type"]
    content = _PAGE.format(root=root, title=escape(problem.title), detail=escape(problem.detail))
    return [("Content-Type", "text/html; charset=utf-8"), *PAGE_HEADERS.items(), *message], content.encode("utf-8")


def failed() -> Problem:
    """Return the answer to a request that failed for a reason that nobody foresaw."""
    return Problem("failed", "the log of the aggregator says where")


def failure(error: BaseException) -> Problem:
    """Log why a request failed, and return the answer to it: it is no fault of the request's.

    A request that failed by a fault of the store's may come again. The log says where anything else failed, and not
    why: an exception's own words may hold what was sent.
    """
    if isinstance(error, StoreError):
        _log.error("a request failed: %s", error)
        return Problem("unavailable", "the store cannot be used now")
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("a request failed with %s:\n%s", type(error).__name__, frames.rstrip())
    return failed()


def nowhere(root: str) -> Problem:
    """Return the answer to an unknown address below a path of the site."""
    return Problem(
        "not-found",
        f"no page and no part of the API is here: {root}/ has all metrics, {root}{DOCUMENT} all addresses of the API",
    )


def _respond_http(error: HTTPException) -> Response | HTTPException:
    """Answer what Flask itself refuses in our own words; leave redirects alone."""
    status = error.code or 500
    if status >= 500:  # Flask has logged it
        return respond(failed())
    if status < 400:
        return error
    response = respond(nowhere(request.script_root) if status == 404 else _refused(error, status))
    response.headers.extend((name, value) for name, value in error.get_headers() if name == "Allow")
    return response


def _refused(error: HTTPException, status: int) -> Problem:
    if isinstance(error, MethodNotAllowed):
        taken = sorted(set(error.valid_methods or ()) - {"HEAD", "OPTIONS"})
        return Problem("method-not-allowed", f"it takes {' and '.join(taken)} alone")
    return Problem("too-large" if status == 413 else "malformed", error.description or error.name)


def _respond_gone(error: TallyGone) -> Response:
    return respond(Problem("gone", str(error), **({"snapshot": error.snapshot} if error.snapshot else {})))


def not_ready(error: NotReady) -> Problem:
    """Return the answer where a reading is not there."""
    slug, again_s = ("not-computed", NOT_COMPUTED_RETRY_AFTER_S) if error.failed else ("being-computed", REFRESH_S)
    return Problem(slug, error.words, retry_after_s=again_s, done=error.done, of=error.of)


def respond_store(error: StoreError) -> Response:
    """Answer that the store cannot be used now."""
    return respond(Problem("read-failed" if request.method == "GET" else "unavailable", str(error)))


def register(app: Flask) -> None:
    """Answer errors with problem documents."""
    app.register_error_handler(Problem, respond)
    app.register_error_handler(BadTally, lambda error: respond(Problem("bad-tally", str(error))))
    app.register_error_handler(TallyGone, _respond_gone)
    app.register_error_handler(NotReady, lambda error: respond(not_ready(error)))
    app.register_error_handler(StoreError, respond_store)
    app.register_error_handler(HTTPException, _respond_http)
