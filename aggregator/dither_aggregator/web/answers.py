"""Requests and answers of the ASGI application."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dither_aggregator.web import problems
from dither_shared.wire.problems import Problem

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application for HTTP, to which every request comes whole: in the first message that it receives."""


JSON = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
"""The headers of an answer that is JSON."""


@dataclass(frozen=True)
class HttpAnswer:
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes

    async def send(self, send: Send) -> None:
        """Send it."""
        length = [] if self.status == 204 else [(b"content-length", b"%d" % len(self.content))]
        headers = [*self.headers, *length]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.content})


def refusal(problem: Problem) -> HttpAnswer:
    """Return the answer to a request that is refused."""
    headers = [(name.lower().encode(), value.encode()) for name, value in problems.headers_of(problem)]
    return HttpAnswer(problem.status, headers, problems.render(problem))


class RefusesUnread:
    """An application that refuses a request without reading its body, after a while."""

    def __init__(self, problem: Problem, after_s: float) -> None:
        self._problem = problem
        self._after_s = after_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse it."""
        await asyncio.sleep(self._after_s)
        await refusal(self._problem).send(send)
