"""Whose request it is, behind proxies and without."""

import logging
from collections.abc import Callable
from ipaddress import ip_network

import pytest

from dither_aggregator.web import request_limits
from dither_aggregator.web.http_messages import peers_of
from dither_aggregator.web.request_limits import HOPS_MAX, Clients

TRUSTED = [ip_network(text) for text in ("127.0.0.1", "10.0.0.0/8", "fd00::/8")]
CASES = [
    # the connection's address, X-Forwarded-For, whose it is
    ("127.0.0.1", ["198.51.100.7"], "198.51.100.7"),
    ("127.0.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),  # the client wrote the first one
    ("127.0.0.1", ["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
    ("127.0.0.1", ["203.0.113.9, 198.51.100.7, 10.1.2.3"], "198.51.100.7"),  # over two proxies
    ("10.1.2.3", ["198.51.100.7:4711"], "198.51.100.7"),
    ("fd00::1", ["[2001:db8:1:2::7]:4711"], "2001:db8:1:2::7"),
    ("127.0.0.1", ["2001:db8:1:2::7"], "2001:db8:1:2:ffff::"),
    ("127.0.0.1", ["::ffff:198.51.100.7"], "198.51.100.7"),
    ("198.51.100.8", ["203.0.113.9"], "198.51.100.8"),  # nobody trusts it
    ("127.0.0.1", [], "127.0.0.1"),
    ("127.0.0.1", ["10.1.2.3"], "127.0.0.1"),
    ("127.0.0.1", ["unknown"], "127.0.0.1"),
    ("127.0.0.1", ["198.51.100.7, \xfc"], "127.0.0.1"),
    ("127.0.0.1", [" ,198.51.100.7 ,\t, "], "198.51.100.7"),  # elements of a list may be empty
    ("127.0.0.1", [","], "127.0.0.1"),
    ("127.0.0.1", ["198.51.100.7, " + "10.0.0.1, " * HOPS_MAX + "10.0.0.1"], "127.0.0.1"),
]


def wrong(trusting: Clients) -> int:
    """Return for how many of the cases the answer is another one."""
    return sum(
        trusting.client_of(address, [(b"x-forwarded-for", line.encode("latin-1")) for line in lines]) != peers_of(whose)
        for address, lines, whose in CASES
    )


def test_behind_a_trusted_proxy_it_is_the_last_address_that_is_no_trusted_proxy() -> None:
    assert wrong(Clients(TRUSTED)) == 0


def test_where_nobody_is_trusted_the_header_says_nothing() -> None:
    nobody = Clients()
    for address, lines, _ in CASES:
        headers = [(b"x-forwarded-for", line.encode("latin-1")) for line in lines]
        assert nobody.client_of(address, headers) == peers_of(address)


def _believes_anybody(self: Clients, ip: object, real: Callable[[Clients, object], bool] = Clients._trusts) -> bool:  # type: ignore[assignment]
    return str(ip).startswith("198.51.100.8") or real(self, ip)


def test_believing_anybody_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clients, "_trusts", _believes_anybody)
    assert wrong(Clients(TRUSTED)) > 0


def test_taking_the_leftmost_address_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "reversed", list, raising=False)
    assert wrong(Clients(TRUSTED)) > 0


def test_a_header_without_addresses_is_said_once_and_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    trusting = Clients(TRUSTED)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert trusting.client_of("127.0.0.1", [(b"x-forwarded-for", b"198.51.100.7, secret")]) == ("127.0.0.1",)
    (record,) = caplog.records
    assert "X-Forwarded-For" in record.getMessage()
    assert not any(word in record.getMessage() for word in ("198.51", "secret", "127.0.0.1"))
