"""Requests and answers of the server's applications, and the headers of a request."""

import resource
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

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


# How much clients may hold, one address and all of them together: connections, and bytes of what they send or read.


CONNECTIONS_MAX = 2_000
HEALTH_CONNECTIONS_MAX = 32
BACKLOG = 4_096
"""Connections that the system holds until they are accepted, as far as it may (net.core.somaxconn)."""
SILENT_S = 20
"""How long it holds one whose client has said nothing: many of these cost the server nothing."""
ACCEPTED_AT_ONCE = 32
"""Connections that are accepted in one turn of the loop."""
OTHER_FILES = 4 * ACCEPTED_AT_ONCE + 64
"""Files beside the connections: those accepted and not yet counted, those not quite gone, the store's."""
SENT_BYTES = 64 * 1024
"""The part of an answer that the system holds for a connection; it takes twice as much room."""
BODY_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of bodies that are not whole yet, or wait behind another of their connection."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of answers to readers, compressed, that are not sent yet."""
HEALTH_BODY_BYTES_MAX = 64 * 1024
SHARE = 3 / 4
"""One address or network may hold this part of what all may hold: behind a proxy everybody has the same one."""
Peers = tuple[str, ...]
"""Whom an address counts for, the narrowest first."""


def connections_max() -> int:
    """Raise this process's soft limit of files as far as it may; return how many connections that allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, max(soft - OTHER_FILES, 16))


def peers_of(address: str) -> Peers:
    """Return whom an address counts for.

    An IPv6 network of 64 bits is one client's. One of 48 bits may be one customer's, who then has 65,536 of those.
    """
    if ":" not in address:
        return (address,)
    ip = ip_address(address.partition("%")[0])
    if ip.version == 4 or ip.ipv4_mapped:
        return (str(getattr(ip, "ipv4_mapped", ip)),)
    return f"{int(ip) >> 64:x}/64", f"{int(ip) >> 80:x}/48"


class Bound:
    """A bound on what is held, counted by peer and together."""

    def __init__(self, together: int) -> None:
        self._together = together
        self._each = max(int(together * SHARE), 1)
        self._held: Counter[str] = Counter()
        self._total = 0

    def over(self, peers: Peers) -> str:
        """Return the narrowest of these peers that holds more than its share, or ""."""
        return next((peer for peer in peers if self._held[peer] > self._each), "")

    def add(self, peers: Peers, amount: int) -> bool:
        """Count what is held from now on; return whether that is still within the bounds."""
        self._total += amount
        for peer in peers:
            self._held[peer] += amount
        fits = self._total <= self._together and not self.over(peers)
        for peer in peers:
            if not self._held[peer]:
                del self._held[peer]
        return fits

    def remove(self, peers: Peers, amount: int) -> None:
        """Count what is let go of."""
        self.add(peers, -amount)
