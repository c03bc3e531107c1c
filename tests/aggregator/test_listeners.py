"""Who may hold how much: connections and unfinished bodies, by address and together."""

import random
from ipaddress import IPv6Address, ip_network
from itertools import product

import pytest

from dither_aggregator.web import http_messages
from dither_aggregator.web.http_messages import peers_of
from dither_aggregator.web.listeners import Door
from tests.support.http import GET, passes, running, slug, until, upload, was_read


def test_a_full_house_makes_room_by_closing_who_has_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "CONNECTIONS_MAX", 12)
    with running() as served:
        idle = [served.connect(GET[:1]) for _ in range(9)]  # all that one address may have
        idle[0].send(GET[1:])
        assert idle[0].answer()[0] == 200  # so that it is not the first to go
        for _ in range(8):
            served.connect(GET[:1])
        assert all(each.closed() for each in idle[1:9])
        idle[0].send(GET)
        assert idle[0].answer()[0] == 200


def test_who_is_being_answered_is_not_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "CONNECTIONS_MAX", 4)
    with running() as served:
        served.echo.waits = True
        asking = [served.connect(GET) for _ in range(3)]  # all that one address may have
        until(lambda: len(served.echo.came) == 3)
        refused = served.connect(GET)
        status, document = refused.answer()
        assert (status, slug(document)) == (503, "unavailable")
        assert refused.closed()
        served.echo.waits = False
        assert [each.answer()[0] for each in asking] == [200] * 3
        until(lambda: passes(served))


def test_bodies_that_are_not_whole_make_room_for_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "BODY_BYTES_MAX", 130_000)
    with running() as served:
        held = [served.connect(upload(50_000) + b"x" * 45_000) for _ in range(2)]
        until(lambda: all(was_read(each.socket) for each in held))
        assert served.connect(upload(50_000) + b"x" * 50_000).answer()[0] == 200  # it came whole
        third = served.connect(upload(50_000) + b"x" * 49_000)
        assert held[0].closed()
        third.send(b"x" * 1_000)
        assert third.answer()[0] == 200
        held[1].send(b"x" * 5_000)
        assert held[1].answer()[0] == 200


def test_health_has_a_door_of_its_own_that_nobody_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "CONNECTIONS_MAX", 6)
    monkeypatch.setattr(http_messages, "HEALTH_CONNECTIONS_MAX", 6)
    with running() as served:
        served.echo.waits = True
        for _ in range(10):
            served.connect(GET)
        until(lambda: len(served.echo.came) >= 3)
        served.echo.waits = False
        for _ in range(10):
            served.connect(GET[:1], served.health)
        status, document = served.ask_health()
        assert (status, document["health"]) == (200, True)
        until(lambda: passes(served))
        assert served.ask()[1]["health"] is False


def test_a_network_is_one_peer_and_so_is_the_site_that_it_is_of() -> None:
    """Drawn addresses, beside Python's own networks."""
    rng = random.Random("peers")
    site = int(IPv6Address("2001:db8:1::"))
    drawn = [IPv6Address(site ^ rng.choice((0, 1 << 64, 1 << 79, 1 << 80)) ^ rng.getrandbits(64)) for _ in range(60)]
    for one, other in product(drawn, drawn):
        narrow, wide = (ip_network((one, bits), strict=False) for bits in (64, 48))
        same = [mine == theirs for mine, theirs in zip(peers_of(str(one)), peers_of(f"{other}%eth0"), strict=True)]
        assert same == [other in narrow, other in wide]
    assert peers_of("192.0.2.7") == peers_of("::ffff:192.0.2.7") == ("192.0.2.7",)
    assert peers_of("192.0.2.7") != peers_of("192.0.2.8")


class Waiter:
    """A connection that waits for its client."""

    buffered = 0

    def __init__(self, address: str) -> None:
        self.peers, self.open = peers_of(address), True

    def displace(self) -> None:
        self.open = False


def test_one_site_holds_three_quarters_however_many_networks_it_has() -> None:
    door, site = Door(100, 1_000), [Waiter(f"2001:db8:1:{network:x}::7") for network in range(200)]
    others = [Waiter(f"2001:db8:{number:x}::7") for number in range(2, 22)]
    for each in others + site:
        door.enter(each)
    assert sum(each.open for each in site) == 75
    assert all(each.open for each in others)
    greedy = [Waiter("2001:db8:1:1::8") for _ in range(100)]
    for each in greedy:  # within the site, what a network has too much is its own
        door.enter(each)
    for each in greedy + site:
        each.open = each.open and door.buffer(each, 20)
    assert sum(each.buffered for each in greedy + site) <= 750
    assert all(door.buffer(each, 12) for each in others)
