"""The client of a request: the address that speaks to us or, behind a trusted proxy, the one that it speaks for.

Each proxy appends to X-Forwarded-For the address that spoke to it. So addresses that a trusted proxy wrote stand at the
right, and all that a client wrote itself stands left of them. Read from the right, the first address that is no trusted
proxy's is the client's. If nobody is trusted, the header says nothing.
"""

import logging
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from dither_aggregator.ingest.request_limits import Network
from dither_aggregator.web.connection_bounds import Peers, peers_of
from dither_aggregator.web.http_messages import list_of

HOPS_MAX = 16
"""Proxies in a row."""
_FORWARDED_FOR = b"x-forwarded-for"

_log = logging.getLogger("dither_aggregator")


class Clients:
    """Tells clients apart."""

    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        self._trusted = trusted
        self._warned = False

    def client_of(self, address: str, headers: Iterable[tuple[bytes, bytes]]) -> Peers:
        """Return whom a request counts for, as `peers_of` names it. `address` is that of the connection."""
        if not self.trusts(address):
            return peers_of(address)
        hops = list_of(b",".join(value for name, value in headers if name == _FORWARDED_FOR))
        try:
            for hop in reversed(hops[-HOPS_MAX:]):
                ip = _read(hop)
                if not self._trusts(ip):
                    return peers_of(str(ip))
        except ValueError:
            if not self._warned:  # without the header: it has addresses
                self._warned = True
                _log.warning("a trusted proxy sends an X-Forwarded-For that has no addresses; it counts for the proxy")
        return peers_of(address)

    def trusts(self, address: str) -> bool:
        """Tell whether a connection's address is that of a trusted proxy."""
        return bool(self._trusted) and self._trusts(ip_address(address))

    def _trusts(self, ip: IPv4Address | IPv6Address) -> bool:
        return any(ip in network for network in self._trusted)


def _read(hop: bytes) -> IPv4Address | IPv6Address:
    """Read an address, with or without a port; raise ValueError."""
    text = hop.decode("ascii")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    ip = ip_address(text)
    return (isinstance(ip, IPv6Address) and ip.ipv4_mapped) or ip
