"""Requests that are refused when their head is there: the answer comes at once, and the body is let by."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from dither_aggregator.web import http_messages, http_server
from dither_aggregator.web.http_messages import Scope
from dither_aggregator.web.listeners import Admitting
from dither_shared.wire.reading import Problem
from tests.support.http import GET, HEAD, Connection, Served, running, slug, until, upload

UNWANTED = HEAD + b"X-Unwanted: 1\r\n"


class Turnstile(Admitting):
    """Refuses what says that it is to be refused."""

    def admit(self, scope: Scope) -> Problem | None:
        if any(name == b"x-unwanted" for name, _ in scope["headers"]):
            return Problem("too-many", "too many", limit="address", retry_after_s=7)
        return None


@pytest.fixture
def served() -> Iterator[Served]:
    with running(Turnstile()) as made:
        yield made


def unwanted(length: int, more: bytes = b"") -> bytes:
    return UNWANTED + more + b"Content-Length: %d\r\n\r\n" % length


def refused(made: Connection) -> bool:
    status, document = made.answer()
    return (status, slug(document), document["limit"], made.fields[b"retry-after"]) == (
        429,
        "too-many",
        "address",
        b"7",
    )


def test_the_answer_comes_before_the_body_and_the_connection_goes_on_behind_it(served: Served) -> None:
    made = served.connect(unwanted(100_000))
    assert refused(made)
    for _ in range(100):
        made.send(b"x" * 1_000)
    made.send(upload(3) + b"abc")
    assert made.answer()[0] == 200
    assert [body for _, body in served.echo.came] == [b"abc"]


@pytest.mark.parametrize(
    "body", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
def test_it_comes_once_where_the_body_is_there_already(served: Served, body: bytes) -> None:
    made = served.connect((UNWANTED + body) * 2 + GET)
    assert [refused(made), refused(made), made.answer()[0]] == [True, True, 200]


def test_a_client_that_is_sent_away_with_more_is_cut_off(served: Served) -> None:
    made = served.connect(unwanted(http_server.BODY_BYTES_MAX))
    assert refused(made)
    with suppress(ConnectionError):  # how much the system takes before it says so is the system's to choose
        made.send(b"x" * http_server.BODY_BYTES_MAX + GET)
    assert made.closed()


def test_nothing_of_the_body_is_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "BODY_BYTES_MAX", 1_000)
    with running(Turnstile()) as narrow:
        made = narrow.connect(unwanted(100_000) + b"x" * 99_999)
        assert refused(made)
        made.send(b"x" + GET)
        assert made.answer()[0] == 200


@pytest.mark.parametrize("begun", [b"", b"x" * 10])
def test_the_rest_of_the_body_has_the_deadline_of_any(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_WITHIN_S", 0.4)
    with running(Turnstile()) as served:
        made = served.connect(unwanted(1_000) + begun)
        assert refused(made)
        assert made.closed()


def test_who_wanted_the_connection_closed_reads_the_answer_first(served: Served) -> None:
    made = served.connect(unwanted(100_000, b"Connection: close\r\n"))
    assert refused(made)
    made.send(b"x" * 100_000)
    assert made.socket.recv(1) == b""  # in order, and not reset
    whole = served.connect(unwanted(3, b"Connection: close\r\n") + b"abc")
    assert refused(whole)
    assert whole.fields[b"connection"] == b"close"
    assert whole.socket.recv(1) == b""


def test_who_waits_to_be_told_to_go_on_is_told_to_go(served: Served) -> None:
    made = served.connect(unwanted(3, b"Expect: 100-continue\r\n"))
    assert refused(made)
    assert made.closed()


def test_it_is_answered_in_its_turn(served: Served) -> None:
    served.echo.waits = True
    made = served.connect(upload(3) + b"abc" + unwanted(3) + b"def" + upload(3) + b"ghi" + unwanted(5) + b"j")
    until(lambda: served.echo.came)
    served.echo.waits = False
    assert [made.answer()[0], refused(made), made.answer()[0], refused(made)] == [200, True, 200, True]
    made.send(b"klmn" + GET)
    assert made.answer()[0] == 200
    assert [body for _, body in served.echo.came] == [b"abc", b"ghi", b""]


def test_nonsense_in_the_body_is_not_answered_twice(served: Served) -> None:
    made = served.connect(UNWANTED + b"Transfer-Encoding: chunked\r\n\r\n")
    assert refused(made)
    made.send(b"nonsense\r\n")
    assert made.closed()


def test_a_full_house_makes_room_by_closing_one_that_was_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "CONNECTIONS_MAX", 4)
    with running(Turnstile()) as served:
        held = [served.connect(unwanted(1_000)) for _ in range(3)]
        assert all(refused(each) for each in held)
        assert served.connect(GET).answer()[0] == 200
        assert held[0].closed()
