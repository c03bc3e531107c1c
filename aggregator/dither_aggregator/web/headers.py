"""The headers of a request."""

from dither_aggregator.web.answers import Scope


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by name; those that came twice are one list, of cookies as RFC 6265 has it.

    A header that is no list, and came twice, is rarely a good one.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        comma = b"; " if name == b"cookie" else b","
        headers[name] = headers[name] + comma + value if name in headers else value
    return headers


def list_of(value: bytes) -> list[bytes]:
    """Return the elements of a header that is a list, without those that are empty (RFC 9110, section 5.6.1)."""
    return [element for each in value.split(b",") if (element := each.strip(b" \t"))]


def media_type(value: bytes) -> bytes:
    """Return the type of a Content-Type, in small letters and without its parameters."""
    return value.partition(b";")[0].strip(b" \t").lower()
