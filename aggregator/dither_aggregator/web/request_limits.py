"""How often uploads may come, logins that fail, and long bodies. `web/request_admission.py` keeps to it."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from dither_aggregator.web.http_messages import Peers, list_of, peers_of
from dither_shared.errors import ConfigurationError

SECOND_NS = 1_000_000_000
HOUR_NS = 3_600 * SECOND_NS
BURST_S = 60
"""A burst, unless told otherwise: as much as comes in so many seconds."""
Network = IPv4Network | IPv6Network


@dataclass(frozen=True)
class Rate:
    """A token every `interval_ns`, at most `burst` of them at a time. ConfigurationError for one that is no rate."""

    interval_ns: int
    burst: int

    def __post_init__(self) -> None:
        if self.interval_ns < 1 or self.burst < 1:
            raise ConfigurationError("a rate must be above 0 and at most a thousand million a second, a burst above 0")
        if self.full_after_ns > HOUR_NS:
            raise ConfigurationError("a rate must be such that its burst is there again within an hour")

    @property
    def full_after_ns(self) -> int:
        """How long an empty bucket takes to be full."""
        return self.interval_ns * self.burst

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """Read `20` (a second) or `20:1200` (and at most so many at once); raise ConfigurationError."""
        per_s, colon, burst = text.partition(":")
        try:
            interval_ns = round(SECOND_NS / float(per_s))
            most = int(burst) if colon else max(round(BURST_S * float(per_s)), 1)
        except (ValueError, ArithmeticError):
            raise ConfigurationError(
                "a rate must be like 20 (a second), or 20:1200 (at most so many at once)"
            ) from None
        return cls(interval_ns, most)

    def times(self, more: int) -> "Rate":
        """Return a rate of so many times as much."""
        return Rate(max(self.interval_ns // more, 1), self.burst * more)

    def shared(self, processes: int) -> "Rate":
        """Return the part of one process among several; raise ConfigurationError where that is too slow."""
        try:
            return Rate(self.interval_ns * processes, max(self.burst // processes, 1))
        except ConfigurationError:
            raise ConfigurationError(f"a rate this low cannot be divided among {processes} processes") from None


BY_ADDRESS = Rate.parse("20:1200")
"""By default. Behind a NAT with 10,000 devices, each with four uploads a day, there are .5 a second on average. Ten
times as many in the worst hour, as after an outage, are 5. So this leaves a factor of four, and devices that are told
to wait lose nothing. One address can send 1.7 million uploads a day."""

FAILED_LOGINS = Rate.parse("0.1:10")
"""From one address, in one process: ten, then one in ten seconds. A key has 160 random bits: this spares work."""
ALL_FAILED_LOGINS = Rate.parse("5:300")
LONG_BODIES = Rate.parse("1:5")
"""Registries and long lists of candidates, in one process. Uploads wait some milliseconds for each."""


@dataclass(frozen=True)
class Limits:
    """How often uploads, logins that fail and long bodies may come over all processes of one command.

    Also whose word is taken for who sends them, and which pages may.
    """

    by_key: Rate | None = None
    by_address: Rate | None = BY_ADDRESS
    this_machine: bool = False
    """Whether that holds for loopback, too, while no proxy is trusted. If one passes everything on from there, all
    devices have its address."""
    trusted_proxies: Sequence[Network] = ()
    origins: Sequence[str] = ()
    """The origins whose pages may send uploads."""
    failed_logins: Rate = FAILED_LOGINS
    all_failed_logins: Rate = ALL_FAILED_LOGINS
    long_bodies: Rate = LONG_BODIES

    def shared(self, processes: int) -> "Limits":
        """Return the part of one process; raise ConfigurationError for a rate that cannot be divided so."""
        return replace(
            self,
            by_key=self.by_key and self.by_key.shared(processes),
            by_address=self.by_address and self.by_address.shared(processes),
        )


# The client of a request: the address that speaks to us or, behind a trusted proxy, the one that it speaks for.
#
# Each proxy appends to X-Forwarded-For the address that spoke to it. So addresses that a trusted proxy wrote stand at
# the right, and all that a client wrote itself stands left of them. Read from the right, the first address that is no
# trusted proxy's is the client's. If nobody is trusted, the header says nothing.


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
