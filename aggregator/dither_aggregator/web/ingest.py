"""`POST /v1/reports`: an upload in, a receipt out once it is on the disk."""

import hmac

from flask import Flask, Request, Response, jsonify, request

from dither_aggregator.service import Service
from dither_shared.wire import PATH, WIRE_BYTES_MAX, Problem, inflate, parse_upload


def register(app: Flask, service: Service) -> None:
    """Add the address that devices send to."""

    @app.post(PATH)
    def take_reports() -> tuple[Response, int]:
        check_key(request, service.store.key)
        body = read_body(request)
        upload = parse_upload(body, service.store.find_plan)
        return jsonify(service.submit(upload, body).to_document()), 202


def check_key(request: Request, key: str) -> None:
    """Refuse a request without the key, or with another one."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not given:
        raise Problem("key-missing", "send the key as Authorization: Bearer KEY")
    if not hmac.compare_digest(given.strip().encode(), key.encode()):
        raise Problem("key-wrong", "this is not the key that the aggregator printed when it started")


def read_body(request: Request) -> bytes:
    """Return the inflated body, within the limits."""
    if request.mimetype != "application/json":
        raise Problem("unsupported-media-type", "Content-Type must be application/json")
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Problem("unsupported-media-type", "Content-Encoding must be gzip or absent")
    if request.content_length is None:
        raise Problem("length-required", "send Content-Length")
    if request.content_length > WIRE_BYTES_MAX:
        raise Problem("too-large", f"the body must have at most {WIRE_BYTES_MAX} bytes, got {request.content_length}")
    body = request.get_data(cache=False)
    return inflate(body) if encoding == "gzip" else body
