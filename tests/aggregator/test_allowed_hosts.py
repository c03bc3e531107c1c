"""Names and addresses that clients say, however they are spelled, are read at once and raise nothing else."""

import random
from collections.abc import Callable, Collection, Iterator
from ipaddress import ip_address, ip_network

from dither_aggregator.web.addresses import check_monitor, check_reader
from dither_aggregator.web.http_messages import Scope
from dither_aggregator.web.http_server import HEADER_BYTES_MAX
from dither_aggregator.web.request_limits import Clients
from dither_shared.wire.reading import Problem
from tests.support.bounding import bounded
from tests.support.soaking import scaled

PARTS = (
    b"localhost", b"api.example", b"127.0.0.1", b"[::1]", b"::1", b"%eth0", b"2001:db8::7", b"::ffff:10.0.0.1", b".",
    b":", b",", b" ", b"[", b"]", b"@", b"8080", b"attacker", b"xn--", b"\xe9", b"\x00", b"\x1b[7m", b"0x7f.1", b"1",
    b"-", b"f",
)  # fmt: skip
ALLOWED = ("api.example",)
BYTES_MAX = 40 * HEADER_BYTES_MAX


def drawn(number: int) -> Iterator[bytes]:
    """Yield headers: some parts of names and addresses, or one that fills a head."""
    rng = random.Random("hosts")
    for _ in range(number):
        yield b"".join(rng.choices(PARTS, k=rng.randrange(8)))
    for part in PARTS:
        yield part * (HEADER_BYTES_MAX // len(part))


def is_let_in(host: bytes, check: Callable[[Scope, Collection[str]], None]) -> bool:
    try:
        with bounded(BYTES_MAX):
            check({"headers": [(b"host", host)], "query_string": b""}, ALLOWED)
    except Problem:
        return False
    return True


def test_any_name_is_allowed_or_refused_at_once() -> None:
    allowed = 0
    for host in drawn(scaled(2_000, 200_000)):
        let_in = is_let_in(host, check_reader)
        assert is_let_in(host, check_monitor) == let_in
        if let_in:  # beside another reader of names: neither port, nor case, nor a dot at the end counts
            name = host.decode("latin-1").lower()
            name = (name.partition("]")[0][1:] if name.startswith("[") else name.partition(":")[0]).rstrip(".")
            assert name in ("localhost", *ALLOWED) or ip_address(name)
            allowed += 1
    assert allowed > 40


def test_whatever_a_proxy_says_somebody_is_counted() -> None:
    trusting = Clients([ip_network("127.0.0.1"), ip_network("10.0.0.0/8")])
    others = 0
    for said in drawn(scaled(2_000, 200_000)):
        with bounded(BYTES_MAX):
            peers = trusting.client_of("127.0.0.1", [(b"x-forwarded-for", said)])
        assert 1 <= len(peers) <= 2
        assert all(len(peer) <= 40 for peer in peers)
        others += peers != ("127.0.0.1",)
    assert others > 60
