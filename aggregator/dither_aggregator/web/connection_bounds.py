"""How much clients may hold, one address and all of them together: connections, and bytes of what they send or read."""

import resource
from collections import Counter
from ipaddress import ip_address

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
