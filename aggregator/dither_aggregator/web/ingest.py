"""`POST /v1/reports`: an upload in, a receipt out once it is durable.

Plain WSGI, ahead of Flask: nearly all requests are uploads, and need nothing that a Flask view costs. An upload
waits for its commit without a thread: all that come meanwhile share the next one.
"""

import hmac
import json
from collections.abc import Iterable
from functools import partial
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from dither_aggregator.service import Service, Submitted
from dither_aggregator.store import Receipt
from dither_aggregator.web import problems
from dither_aggregator.web.later import Later
from dither_shared.wire import WIRE_BYTES_MAX
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import inflate, parse_upload

ACCEPTED = "202 ACCEPTED"
ACKNOWLEDGE_WITHIN_S = 20.0


def reports_app(service: Service) -> WSGIApplication:
    """Return the WSGI application that takes uploads for a running service, whatever the address."""

    def take_reports(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            check_key(environ, service.store.key)
            body = read_body(environ)
            submitted = service.submit(parse_upload(body, service.store.find_plan), body)
        except Problem as problem:
            return problems.send(problem, start_response)
        except Exception as error:  # whatever it is, it is no fault of the upload's: the device must keep it
            return problems.send(problems.failure(error), start_response)
        return Later(submitted, ACKNOWLEDGE_WITHIN_S, partial(_answer, start_response))

    return take_reports


def _answer(start_response: StartResponse, submitted: Submitted) -> Iterable[bytes]:
    result = _result(submitted)
    if isinstance(result, Problem):
        return problems.send(result, start_response)
    content = json.dumps(result.to_document(), separators=(",", ":")).encode("ascii") + b"\n"
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content))), problems.NOSNIFF]
    start_response(ACCEPTED, headers)
    return [content]


def _result(submitted: Submitted) -> Receipt | Problem:
    if submitted.cancel():
        return Problem("unavailable", "the store is slow; nothing was stored")
    if not submitted.done():
        return Problem("unavailable", "the store is slow; nothing is known to be stored")
    return submitted.result()


def check_key(environ: WSGIEnvironment, key: str) -> None:
    """Refuse a request without the key, or with another one."""
    scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not given:
        raise Problem("key-missing", "send the key as Authorization: Bearer KEY")
    if not hmac.compare_digest(given.strip().encode(), key.encode()):
        raise Problem("key-wrong", "this is not the key that the aggregator printed when it started")


def read_body(environ: WSGIEnvironment) -> bytes:
    """Return the inflated body, within the limits."""
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem("unsupported-media-type", "Content-Type must be application/json")
    encoding = environ.get("HTTP_CONTENT_ENCODING", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Problem("unsupported-media-type", "Content-Encoding must be gzip or absent")
    length = _content_length(environ)
    body: bytes = environ["wsgi.input"].read(length)
    if len(body) < length:
        # The connection broke off. What reads the answer, if anything does, must not take the upload for bad.
        raise Problem("unavailable", "the body ended before its Content-Length")
    return inflate(body) if encoding == "gzip" else body


def _content_length(environ: WSGIEnvironment) -> int:
    text = environ.get("CONTENT_LENGTH", "")
    if not (text.isascii() and text.isdigit()):
        raise Problem("length-required", "send Content-Length")
    if len(text) > len(str(WIRE_BYTES_MAX)) or int(text) > WIRE_BYTES_MAX:
        raise Problem("too-large", f"the body must have at most {WIRE_BYTES_MAX} bytes")
    return int(text)
