"""The moment when a connection stands: nothing of a request is sent before it."""

import errno
import socket
import sqlite3
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import RemoteDisconnected

import pytest
import requests
import urllib3

from dither.sending.connection import Connection, _Exchange, _Socket
from dither.sending.route import Route
from dither.sending.transport import HEADERS, Answer, HttpTransport, Outcome
from tests.support.certificates import Certificate
from tests.support.peers import HANG_S, Aggregator, Proxy, running
from tests.support.posting import BODY, ID, RECEIPT, nothing
from tests.support.servers import accepted


@dataclass
class Road:
    """A transport, and the servers on its way."""

    transport: HttpTransport
    aggregator: Aggregator
    events: list[str]
    opening: list[str]
    """The events of a new connection before it stands."""
    threads: list[int] = field(default_factory=list)

    def stands(self) -> None:
        """Note that the connection stands, and that nothing has arrived on it."""
        self.threads.append(threading.get_ident())
        self.events.append("stands")
        self.aggregator.expect_nothing()

    def post(self, then: Callable[[], None] = nothing) -> Answer:
        """Post an upload; after the connection stands do something else."""

        def stands() -> None:
            self.stands()
            then()

        return self.transport.post(ID, BODY, stands)


@contextmanager
def road(way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch, keep: int = 99) -> Iterator[Road]:
    """Yield a transport whose aggregator is reached over plain HTTP, over TLS, or over TLS in a proxy's tunnel."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted.authority))
    events: list[str] = []
    with ExitStack() as stack:
        context = None if way == "plain" else trusted.server_context()
        aggregator = stack.enter_context(running(Aggregator(events, accepted, context, keep)))
        url = f"{'http' if way == 'plain' else 'https'}://127.0.0.1:{aggregator.port}"
        if way.endswith("tunnel"):
            of_proxy = None if way == "tunnel" else context
            proxy = stack.enter_context(running(Proxy(events, aggregator.port, context=of_proxy)))
            monkeypatch.setenv("HTTPS_PROXY", f"{'https' if of_proxy else 'http'}://127.0.0.1:{proxy.port}")
            url = f"https://telemetry.invalid:{aggregator.port}"
        transport = HttpTransport(url, "k")
        stack.callback(aggregator.leave)
        stack.callback(transport.idle)
        yield Road(transport, aggregator, events, ["CONNECT"] if way.endswith("tunnel") else [])


ROADS = ("plain", "tls", "tunnel", "tls-tunnel")
WAYS = pytest.mark.parametrize("way", ROADS)


@WAYS
@pytest.mark.usefixtures("_beyond")
def test_the_connection_stands_before_anything_of_a_request_is_sent(
    way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with road(way, trusted, monkeypatch) as sending:
        assert sending.post() == Answer(Outcome.ACCEPTED, "accepted")
    assert sending.events == [*sending.opening, "stands", "request"]
    assert sending.threads == [threading.get_ident()]
    (requests_seen,) = sending.aggregator.connections
    assert [request.endswith(BODY) for request in requests_seen] == [True]


@WAYS
@pytest.mark.usefixtures("_beyond")
def test_a_connection_that_is_used_again_stands_again(
    way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with road(way, trusted, monkeypatch) as sending:
        assert [sending.post().outcome for _ in range(3)] == [Outcome.ACCEPTED] * 3
    assert sending.events == [*sending.opening, *["stands", "request"] * 3]
    assert [len(seen) for seen in sending.aggregator.connections] == [3]


RAISED = [
    RuntimeError("as it is"),
    OSError("as it is"),
    OSError(errno.EPIPE, "as it is"),
    OSError(errno.ECONNRESET, "as it is"),
    TimeoutError("as it is"),
    ssl.SSLError("as it is"),
    sqlite3.OperationalError("database is locked"),
    RemoteDisconnected("as it is"),
    requests.ConnectionError("as it is"),
    urllib3.exceptions.ProtocolError("as it is"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize(
    ("way", "example"), [*(("plain", error) for error in RAISED), *((way, RAISED[0]) for way in ROADS[1:])], ids=str
)
@pytest.mark.usefixtures("_beyond")
def test_what_stands_raises_leaves_as_it_is_and_nothing_is_sent(
    example: BaseException, way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = type(example)(*example.args)
    cause, context = ValueError("a cause"), KeyError("a context")

    def refuse() -> None:
        try:
            raise context
        except KeyError:
            raise error from cause

    with road(way, trusted, monkeypatch) as sending:
        for _ in range(2):  # on a new connection, and on one that has been used
            with pytest.raises(type(error)) as caught:
                sending.post(refuse)
            assert caught.value is error
            assert error.__cause__ is cause
            assert error.__context__ is context
            assert sending.aggregator.left.acquire(timeout=HANG_S)  # the connection was closed
            assert sending.post().outcome is Outcome.ACCEPTED
    attempt = ["stands", *sending.opening, "stands", "request"]
    assert sending.events == [*sending.opening, *attempt, *attempt]
    assert [len(seen) for seen in sending.aggregator.connections] == [0, 1, 1]


def test_the_connection_alone_passes_on_what_stands_raises() -> None:
    error = BrokenPipeError(errno.EPIPE, "as it is")

    def refuse() -> None:
        aggregator.expect_nothing()
        raise error

    with running(Aggregator([], accepted)) as aggregator:
        connection = Connection(Route(f"http://127.0.0.1:{aggregator.port}/v1/reports"), HEADERS, "k")
        with pytest.raises(BrokenPipeError) as caught:
            connection.post(BODY, refuse)
        assert caught.value is error
        status, _, content = connection.post(BODY, aggregator.expect_nothing)
        assert (status, content) == (202, RECEIPT)
        connection.close()
    assert [len(seen) for seen in aggregator.connections] == [0, 1]


@WAYS
@pytest.mark.usefixtures("_beyond")
def test_a_connection_that_the_server_has_closed_meanwhile_is_opened_again(
    way: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with road(way, trusted, monkeypatch, keep=1) as sending:
        for _ in range(2):
            assert sending.post().outcome is Outcome.ACCEPTED
            assert sending.aggregator.left.acquire(timeout=HANG_S)
            if way.endswith("tunnel"):  # the end comes over the proxy, later
                sending.transport.idle()
    assert sending.events == [*sending.opening, "stands", "request"] * 2
    assert [len(seen) for seen in sending.aggregator.connections] == [1, 1]


@WAYS
@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.usefixtures("_beyond")
def test_a_connection_that_breaks_after_it_stood_is_not_tried_again(
    way: str, used: int, trusted: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood: list[int] = []

    def stands() -> None:
        stood.append(1)
        sending.aggregator.hang_up()

    with road(way, trusted, monkeypatch) as sending:
        for _ in range(used):
            sending.post()
        answer = sending.transport.post(ID, BODY, stands)
    assert (answer.outcome, answer.connected) == (Outcome.KEPT, True)
    assert stood == [1]
    assert [len(seen) for seen in sending.aggregator.connections] == [used]


def test_the_names_that_an_upload_has_of_urllib3_and_http_client_still_mean_what_they_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of two addresses answers nothing: options are read for each, and then there is a socket."""
    seen: list[str] = []

    def note(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def noted(*given: object) -> object:
            seen.append(name)
            return original(*given)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in ((_Exchange, "may_try"), (_Exchange, "watch"), (_Exchange, "ask"), (_Socket, "makefile")):
        note(owner, name)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        refuses = gone.getsockname()
    with running(Aggregator([], accepted)) as aggregator:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", at) for at in (refuses, ("127.0.0.1", aggregator.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        connection = Connection(Route(f"http://localhost:{aggregator.port}/v1/reports"), HEADERS, "k")
        assert connection.post(BODY, aggregator.expect_nothing)[0] == 202
        connection.close()
    assert seen == ["may_try", "may_try", "watch", "watch", "ask", "makefile"], (
        "urllib3 makes its connections otherwise (ConnectionCls, socket_options, sock), or http.client reads its "
        "answers otherwise (makefile): an upload would be bounded neither in time nor in size"
    )
