"""Requests and answers of the server's applications, and the headers of a request."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dither_aggregator.web import problems
from dither_shared.wire.problems import Problem

Scope = Mapping[str, Any]
"""The head of a request, under the names of ASGI. `over` is an event that is set when its client has left."""

JSON = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
"""The headers of an answer that is JSON."""


@dataclass(frozen=True)
class HttpAnswer:
    """A whole answer, or one whose `parts` are made as fast as they are read: `length` bytes; None says no length."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes = b""
    parts: Iterable[bytes] | None = None
    length: int | None = None
    sent: Callable[[], None] = lambda: None
    """Called once it is sent, or given up."""


App = Callable[[Scope, bytes], Awaitable[HttpAnswer]]
"""Answers a request, given its head and its body."""


def refusal(problem: Problem) -> HttpAnswer:
    """Return the answer to a request that is refused."""
    headers = [(name.lower().encode(), value.encode()) for name, value in problems.headers_of(problem)]
    return HttpAnswer(problem.status, headers, problems.render(problem))


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
