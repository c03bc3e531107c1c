"""A loopback server that answers as a script says: what a device must survive."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dither.testing import Request
from dither.testing import aggregator as loopback
from dither_shared.wire import PROBLEM_PREFIX

__all__ = ["Reply", "Request", "accepted", "problem", "scripted"]


@dataclass
class Reply:
    """One answer: sent after `delay_s`, each byte after `drip_s`, cut short of its stated length by `cut` bytes."""

    status: int = 202
    body: bytes | Callable[[bytes], bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: int = 0
    drip_s: float = 0.0


def accepted(body: bytes) -> bytes:
    """Return the receipt of an upload."""
    return json.dumps(
        {"upload": json.loads(body)["upload"], "accepted": 1, "duplicate": False, "rejected": []}
    ).encode()


def problem(status: int, slug: str, **headers: str) -> Reply:
    """Return a problem document of ours."""
    return Reply(status, json.dumps({"type": PROBLEM_PREFIX + slug}).encode(), headers)


@contextmanager
def scripted(*replies: Reply) -> Iterator[tuple[str, list[Request]]]:
    """Serve the replies in turn, the last one for ever; yield the address and the requests so far."""
    requests: list[Request] = []

    def answer(request: Request) -> loopback.Reply:
        requests.append(request)
        if request.method != "POST":
            return loopback.Reply(404)
        reply = replies[min(len(requests), len(replies)) - 1]
        time.sleep(reply.delay_s)
        content = reply.body if isinstance(reply.body, bytes) else reply.body(request.body)
        return loopback.Reply(reply.status, content, reply.headers, reply.cut, reply.drip_s)

    with loopback.Loopback(answer) as server:
        yield server.url, requests
