"""Listening sockets, and the connections of each.

A connection at a full door displaces one that waits for its client. So clients that keep many open, or send slowly,
make room for those that have something to say.
"""

import errno
import ipaddress
import socket
from itertools import chain
from typing import Protocol

from dither_aggregator.ingest import process_counters
from dither_aggregator.web.addresses import BasePath, Origins
from dither_aggregator.web.http_messages import BACKLOG, SENT_BYTES, SILENT_S, Bound, Peers, Scope
from dither_shared.errors import ConfigurationError
from dither_shared.wire.reading import Problem


class Listener:
    """A listening socket. Raises ConfigurationError when the address cannot be had; port 0 is any free one."""

    def __init__(self, host: str, port: int, option: str = "--port") -> None:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a host's name"
            raise ConfigurationError(f"cannot listen on {host}: {reason}") from None
        try:
            self.socket = socket.create_server(address[:2], family=family, backlog=BACKLOG)
            # Its connections inherit both. An answer goes out in parts, which must not wait for one another.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            if hasattr(socket, "TCP_DEFER_ACCEPT"):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_S)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigurationError(f"cannot listen on {host}: this machine has no such address") from None
            raise ConfigurationError(
                f"cannot listen on {host} port {port}: {reason}; name another {option}, or 0 for any free one"
            ) from None
        bound, self.port = self.socket.getsockname()[:2]
        ip = ipaddress.ip_address(bound)
        self.reachable_from_elsewhere = not ip.is_loopback
        if ip.is_unspecified:  # this machine reaches it under its own name
            ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
        self.url = f"http://[{ip}]:{self.port}" if ip.version == 6 else f"http://{ip}:{self.port}"


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
            process_counters.limit_hit("connections")
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
            process_counters.limit_hit("bodies")
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
