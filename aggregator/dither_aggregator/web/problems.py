"""Every refusal leaves as a problem document (RFC 9457) with a stable `type`."""

import json

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from dither_aggregator.fold import BadTally
from dither_shared.wire import Problem

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_S = 60

_SLUGS = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}


def render(problem: Problem) -> bytes:
    """Return the document's bytes."""
    return json.dumps(problem.to_document()).encode("ascii") + b"\n"


def respond(problem: Problem) -> Response:
    """Return the answer to a refused request."""
    response = Response(render(problem), problem.status, content_type=CONTENT_TYPE)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if problem.status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _respond_http(error: HTTPException) -> Response | HTTPException:
    """Answer what Flask itself refuses in our own words; leave redirects and server errors alone."""
    status = error.code or 500
    if not 400 <= status < 500:
        return error
    response = respond(Problem(_SLUGS.get(status, "malformed"), error.description or error.name))
    response.headers.extend((name, value) for name, value in error.get_headers() if name == "Allow")
    return response


def _respond_bad_tally(error: BadTally) -> Response:
    return respond(Problem("bad-tally", str(error)))


def register(app: Flask) -> None:
    """Answer errors with problem documents."""
    app.register_error_handler(Problem, respond)
    app.register_error_handler(BadTally, _respond_bad_tally)
    app.register_error_handler(HTTPException, _respond_http)
