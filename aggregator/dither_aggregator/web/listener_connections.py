"""The connections of each listener.

One at a full door displaces one that waits for its client. So clients that keep many open, or send slowly, make room
for those that have something to say.
"""

from itertools import chain
from typing import Protocol

from dither_aggregator.ingest import counters
from dither_aggregator.web.addresses import BasePath
from dither_aggregator.web.answers import Scope
from dither_aggregator.web.bounds import Bound, Peers
from dither_aggregator.web.origins import Origins
from dither_shared.wire.problems import Problem

HEALTH = "health"
"""Stands in the state of a request that came through health's door."""


class Waiting(Protocol):
    """A connection that waits for its client."""

    peers: Peers
    buffered: int

    def displace(self) -> None:
        """Close at once, and let go of what is held."""


class Door:
    """The connections of one listener, and what they have sent of requests that are not whole."""

    def __init__(self, connections: int, body_bytes: int) -> None:
        self._connections = Bound(connections)
        self._bytes = Bound(body_bytes)
        self._new: dict[Waiting, None] = {}
        self._known: dict[Waiting, None] = {}
        """Those that wait for a client's first request, and for another one: those that have waited longest first."""

    def enter(self, connection: Waiting) -> bool:
        """Count a new connection; return whether there is room, made if need be by closing one that waits."""
        fits = self._connections.add(connection.peers, 1)
        if not fits:
            counters.limit_hit("connections")
            fits = self._displace(connection, self._connections)
        self._new[connection] = None
        return fits

    def leave(self, connection: Waiting) -> None:
        """Count a connection no longer."""
        self.release(connection)
        self.serve(connection)
        self._connections.remove(connection.peers, 1)

    def wait(self, connection: Waiting) -> None:
        """Let a connection whose client was answered wait for its next request."""
        self._known[connection] = None

    def serve(self, connection: Waiting) -> None:
        """Keep a connection whose client waits for us."""
        self._new.pop(connection, None)
        self._known.pop(connection, None)

    def buffer(self, connection: Waiting, length: int) -> bool:
        """Count so many bytes of bodies; return whether there is room, made if need be by closing others that wait."""
        fits = self._bytes.add(connection.peers, length - connection.buffered)
        connection.buffered = length
        if not fits:
            counters.limit_hit("bodies")
        while not fits and self._displace(connection, self._bytes):
            fits = self._bytes.add(connection.peers, 0)
        return fits

    def release(self, connection: Waiting) -> None:
        """Count the bytes of a connection's bodies no longer."""
        if connection.buffered:
            self._bytes.remove(connection.peers, connection.buffered)
            connection.buffered = 0

    def _displace(self, newest: Waiting, bound: Bound) -> bool:
        """Close the connection that has waited longest; return whether there was one.

        Connections that never asked anything come first. A peer over its share loses its own oldest connection.
        """
        own = bound.over(newest.peers)
        for other in chain(self._new, self._known):
            holds = other.buffered or bound is self._connections
            if other is not newest and holds and (not own or own in other.peers):
                self.serve(other)
                self.release(other)
                other.displace()
                return True
        return False


class Admitting:
    """Says which requests are read at all, and below which path: every one, at the root of a site."""

    base_path = BasePath()
    origins = Origins()

    def admit(self, scope: Scope) -> Problem | None:
        """Return why a request is not to be read, given its head; else None. Never waits."""
        return None

    def look(self) -> None:
        """Do what is to be done now and then."""
