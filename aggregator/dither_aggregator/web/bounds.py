"""How much clients may hold, one address and all of them together: connections, and bytes of what they send or read.

A connection at a full door displaces one that waits for its client, the longest of them first. So whoever keeps many
open, or sends slowly, makes room for those that have something to say.
"""

import resource
from collections import Counter
from ipaddress import ip_address
from typing import Protocol

CONNECTIONS_MAX = 2_000
HEALTH_CONNECTIONS_MAX = 32
BACKLOG = 256
"""Connections that the system holds for us, and that one turn of the loop may accept before any is counted."""
OTHER_FILES = BACKLOG + 128
"""Files beside the connections: those accepted and not yet counted, the store's, processes' pipes."""
SENT_BYTES = 64 * 1024
"""Of an answer that the system holds for a connection; it takes twice as much room."""
BODY_BYTES_MAX = 64 * 1024 * 1024
"""Of bodies that are not whole yet, or wait behind another of their connection."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Of answers to readers, compressed, that are not sent yet."""
HEALTH_BODY_BYTES_MAX = 64 * 1024
SHARE = 2
"""One address may hold a half: behind a proxy everybody has the same."""


def connections_max() -> int:
    """Raise this process's soft limit of files as far as it may; return how many connections that allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, max(soft - OTHER_FILES, 16))


def peer_of(address: str) -> str:
    """Return whom an address counts for: an IPv6 network of 64 bits is one client's."""
    if ":" not in address:
        return address
    ip = ip_address(address.partition("%")[0])
    return address if ip.version == 4 else str(int(ip) >> 64)


class Bound:
    """What is held, counted by peer and together."""

    def __init__(self, together: int) -> None:
        self._together = together
        self._each = max(together // SHARE, 1)
        self._held: Counter[str] = Counter()
        self._total = 0

    def over(self, peer: str) -> bool:
        """Tell whether this peer holds more than its share."""
        return self._held[peer] > self._each

    def add(self, peer: str, amount: int) -> bool:
        """Count what is held from now on; return whether that is still within the bounds."""
        self._total += amount
        self._held[peer] += amount
        return self._total <= self._together and self._held[peer] <= self._each

    def remove(self, peer: str, amount: int) -> None:
        """Count what is let go of."""
        self._total -= amount
        self._held[peer] -= amount
        if not self._held[peer]:
            del self._held[peer]


class Waiting(Protocol):
    """A connection that waits for its client."""

    peer: str
    buffered: int

    def displace(self) -> None:
        """Close at once, and let go of what is held."""


class Door:
    """The connections of one listener, and what they have sent of requests that are not whole."""

    def __init__(self, connections: int, body_bytes: int) -> None:
        self._connections = Bound(connections)
        self._bytes = Bound(body_bytes)
        self._waiting: dict[Waiting, None] = {}
        """Those that wait for their clients, the longest of them first."""

    def enter(self, connection: Waiting) -> bool:
        """Count a new connection; return whether there is room, made if need be by closing one that waits."""
        fits = self._connections.add(connection.peer, 1) or self._displace(connection, self._connections)
        self._waiting[connection] = None
        return fits

    def leave(self, connection: Waiting) -> None:
        """Count a connection no longer."""
        self.release(connection)
        self._waiting.pop(connection, None)
        self._connections.remove(connection.peer, 1)

    def wait(self, connection: Waiting) -> None:
        """Put a connection that waits for its client behind those that have waited longer."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def serve(self, connection: Waiting) -> None:
        """Keep a connection whose client waits for us."""
        self._waiting.pop(connection, None)

    def buffer(self, connection: Waiting, length: int) -> bool:
        """Count bytes of a body; return whether there is room, made if need be by closing others that wait."""
        connection.buffered += length
        fits = self._bytes.add(connection.peer, length)
        while not fits and self._displace(connection, self._bytes):
            fits = self._bytes.add(connection.peer, 0)
        return fits

    def release(self, connection: Waiting) -> None:
        """Count the bytes of a connection's bodies no longer."""
        self._bytes.remove(connection.peer, connection.buffered)
        connection.buffered = 0

    def _displace(self, newest: Waiting, bound: Bound) -> bool:
        """Close the connection that has waited longest, of the same peer if it holds too much; tell if one was."""
        own = bound.over(newest.peer)
        for other in self._waiting:
            holds = other.buffered or bound is self._connections
            if other is not newest and holds and (not own or other.peer == newest.peer):
                del self._waiting[other]
                self.release(other)
                other.displace()
                return True
        return False
