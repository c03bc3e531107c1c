"""Who may hold how much: connections and unfinished bodies, by address and together."""

import pytest

from dither_aggregator.web import bounds
from tests.support.http import GET, passes, running, slug, until, upload, was_read


def test_a_full_house_makes_room_by_closing_who_has_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 12)
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
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 4)
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
    monkeypatch.setattr(bounds, "BODY_BYTES_MAX", 130_000)
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
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 6)
    monkeypatch.setattr(bounds, "HEALTH_CONNECTIONS_MAX", 6)
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


def test_a_network_of_one_client_is_one_peer() -> None:
    assert bounds.peer_of("2001:db8:1:2::7") == bounds.peer_of("2001:db8:1:2:ffff::1")
    assert bounds.peer_of("2001:db8:1:2::7") != bounds.peer_of("2001:db8:1:3::7")
    assert bounds.peer_of("192.0.2.7") != bounds.peer_of("192.0.2.8")
