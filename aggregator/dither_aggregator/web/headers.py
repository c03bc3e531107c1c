"""The headers of a request."""

from dither_aggregator.web.answers import Scope


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by name; those that came twice are one, which is rarely a good one."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        headers[name] = headers[name] + b"," + value if name in headers else value
    return headers
