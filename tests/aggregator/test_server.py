"""The HTTP server itself: clients that are slow, many, hostile or gone."""

import asyncio
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.web import bounds, connection, in_words, server
from dither_aggregator.web.answers import HttpAnswer, Receive, Scope, Send
from dither_aggregator.web.doors import HEALTH
from dither_aggregator.web.server import HttpServer
from dither_shared.wire import PATH, PROBLEM_PREFIX
from tests.support.aggregators import http_server

HEAD = b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\n"


class Echo:
    """An application that says what came, when it may."""

    def __init__(self) -> None:
        self.waits = False
        self.came: list[tuple[str, bytes]] = []
        self.cancelled = self.left = 0
        self.answer = b"{}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, body = scope["path"], (await receive())["body"]
        self.came.append((path, body))
        if body == b"bug":
            raise RuntimeError("secret words")
        left = asyncio.ensure_future(receive())
        try:
            while self.waits and not left.done():
                await asyncio.sleep(0.01)
            self.left += left.done()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            left.cancel()
        hosts = [name for name, _ in scope["headers"]].count(b"host")
        said = {"body": body.decode(), "health": HEALTH in scope["state"], "big": path == "/big", "hosts": hosts}
        content = self.answer if path == "/big" else json.dumps(said).encode()
        await HttpAnswer(200, [], content).send(send)


class Connection:
    """One connection, byte by byte if need be."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._rest = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Read one answer."""
        data = self._rest
        while b"\r\n\r\n" not in data:
            chunk = self.socket.recv(65536)
            assert chunk, f"closed after {data!r}"
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        while len(body) < length:
            body += self.socket.recv(65536)
        self._rest = body[length:]
        return int(head.split()[1]), json.loads(body[:length])

    def closed(self) -> bool:
        """Wait for the server to close the connection without another word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Served:
    """A running server and its application."""

    def __init__(self, echo: Echo, http: HttpServer, opened: ExitStack) -> None:
        self.echo, self.opened = echo, opened
        assert http.health
        self.port, self.health = (int(url.rsplit(":", 1)[1]) for url in (http.url, http.health))

    def connect(self, data: bytes = b"", port: int = 0) -> Connection:
        made = Connection(port or self.port)
        self.opened.callback(made.socket.close)
        made.send(data)
        return made

    def ask(self, path: str = "/") -> tuple[int, dict[str, Any]]:
        return self.connect(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).answer()

    def ask_health(self) -> tuple[int, dict[str, Any]]:
        return self.connect(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", self.health).answer()


@contextmanager
def running() -> Iterator[Served]:
    echo = Echo()
    http = http_server(in_words(echo))
    with http.in_background(), ExitStack() as opened:
        yield Served(echo, http, opened)


@pytest.fixture
def served() -> Iterator[Served]:
    with running() as made:
        yield made


def upload(length: int) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % length


def slug(document: dict[str, Any]) -> str:
    return str(document["type"]).removeprefix(PROBLEM_PREFIX)


def test_a_bug_in_taking_an_upload_keeps_it_on_the_device(served: Served) -> None:
    for data, status in ((b"bug", 503), (b"abc", 200)):
        assert served.connect(upload(3) + data).answer()[0] == status


def test_slow_clients_take_no_thread_from_others(served: Served) -> None:
    for _ in range(100):
        served.connect(upload(700) + b"x")
        served.connect(HEAD)
    started = time.monotonic()
    for _ in range(20):
        assert served.connect(upload(3) + b"abc").answer()[0] == 200
    assert time.monotonic() - started < 5
    assert {body for _, body in served.echo.came} == {b"abc"}


@pytest.mark.parametrize("begun", [b"", HEAD[:10], HEAD, upload(5) + b"ab", upload(0) + b"\r\n"])
def test_a_request_that_takes_too_long_is_closed(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_WITHIN_S", 0.4)
    with running() as served:
        connecting = served.connect(begun)
        if begun.startswith(upload(0)):  # a blank line after a request begins another one
            assert connecting.answer()[0] == 200
            connecting.send(b"\r\n")
        assert connecting.closed()


def test_drops_do_not_put_the_deadline_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_WITHIN_S", 0.4)
    with running() as served:
        made = served.connect(upload(700))
        started = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - started < 10:
                made.send(b"x")
                time.sleep(0.05)
        assert time.monotonic() - started < 5
        assert served.echo.came == []


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_WITHIN_S", 0.2)
    with running() as served:
        served.echo.waits = True
        made = served.connect(upload(3) + b"abc")
        time.sleep(0.5)
        served.echo.waits = False
        assert made.answer()[0] == 200


@contextmanager
def ended_before_its_connections(echo: Echo) -> Iterator[Served]:
    http = http_server(in_words(echo))
    with ExitStack() as opened, http.in_background():
        yield Served(echo, http, opened)


def test_a_connection_that_was_being_made_when_the_server_ended_does_not_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not among those that are told to end at first, and its client goes on asking."""
    told = connection.BoundedConnection.shutdown
    late = iter([lambda _: None])
    monkeypatch.setattr(connection.BoundedConnection, "shutdown", lambda self: next(late, told)(self))
    answered: list[float] = []

    def go_on(made: Connection) -> None:
        with suppress(AssertionError, OSError):
            while True:
                made.send(upload(3) + b"abc")
                made.answer()
                answered.append(time.monotonic())

    with ExitStack() as waiting:
        with ended_before_its_connections(Echo()) as served:
            asking = threading.Thread(target=go_on, args=[served.connect()], daemon=True)
            asking.start()
            waiting.callback(asking.join, 10)
            while not answered:
                time.sleep(0.01)
            ended = time.monotonic()
        assert time.monotonic() - ended < 5
    assert not asking.is_alive()


def test_what_is_not_answered_when_the_server_has_waited_long_enough_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "DRAIN_WITHIN_S", 0.3)
    echo = Echo()
    echo.waits = True
    with ended_before_its_connections(echo) as served:
        made = served.connect(upload(3) + b"abc")
        answers: list[tuple[int, dict[str, Any]]] = []
        asking = threading.Thread(target=lambda: answers.append(made.answer()), daemon=True)
        asking.start()
        served.opened.callback(asking.join, 10)  # before its connection is closed
        while not echo.came:
            time.sleep(0.01)
    assert echo.cancelled == 1  # nobody waits for it any more
    ((status, document),) = answers
    assert (status, slug(document)) == (503, "unavailable")


def test_a_client_that_has_left_is_no_trouble(served: Served) -> None:
    served.echo.waits = True
    served.connect(upload(3) + b"abc").socket.close()
    served.connect(upload(3) + b"a").socket.close()
    while not served.echo.came:
        time.sleep(0.01)
    served.echo.waits = False
    assert served.ask()[0] == 200
    assert [body for path, body in served.echo.came if path == PATH] == [b"abc"]


def test_a_half_closed_connection_is_answered(served: Served) -> None:
    made = served.connect(upload(3) + b"abc")
    made.socket.shutdown(socket.SHUT_WR)
    assert made.answer()[0] == 200
    assert made.closed()


@pytest.mark.parametrize(
    ("request_bytes", "status", "problem"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed"),  # TLS
        (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed"),
        (HEAD + b"X: " + b"x" * 20_000, 431, "headers-too-large"),
        (HEAD + b"X: " + b"x" * 20_000 + b"\r\n\r\n", 431, "headers-too-large"),
        (HEAD + b"X: y\r\n" * 4_000 + b"\r\n", 431, "headers-too-large"),
        (b"GET /" + b"x" * 20_000, 431, "headers-too-large"),
        (upload(2**63), 413, "too-large"),
        (HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", 413, "too-large"),
    ],
    ids=lambda value: str(value)[-50:],
)
def test_what_the_server_refuses_by_itself_is_a_problem_document(
    served: Served, request_bytes: bytes, status: int, problem: str
) -> None:
    made = served.connect(request_bytes)
    answered, document = made.answer()
    assert (answered, slug(document)) == (status, problem)
    assert made.closed()


def test_nonsense_behind_a_request_does_not_pass_for_its_answer(served: Served) -> None:
    served.echo.waits = True
    made = served.connect(upload(3) + b"abc")
    while not served.echo.came:
        time.sleep(0.01)
    made.send(b"NONSENSE\r\n\r\n")
    assert made.closed()
    served.echo.waits = False


def until(holds: Callable[[], object], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def passes(served: Served) -> bool:
    """Whether a new client is answered."""
    try:
        return served.ask()[0] == 200
    except (AssertionError, OSError):
        return False


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_few_requests_may_be_sent_ahead(served: Served) -> None:
    made = served.connect(GET * connection.PIPELINED_MAX)
    assert [made.answer()[0] for _ in range(connection.PIPELINED_MAX)] == [200] * connection.PIPELINED_MAX


def test_who_sends_more_requests_ahead_is_cut_off(served: Served) -> None:
    made = served.connect(upload(3) + b"abc" + GET * 1_000)
    with suppress(ConnectionError):
        while made.socket.recv(65536):
            pass
    assert len(served.echo.came) <= 2
    assert passes(served)


@pytest.mark.parametrize("begun", [upload(700) + b"x", b"GET / HTTP/1.1\r\nX: "], ids=["body", "head"])
def test_what_is_half_sent_behind_a_request_has_a_deadline_too(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_WITHIN_S", 0.4)
    with running() as served:
        served.echo.waits = True
        made = served.connect(upload(3) + b"abc" + begun)
        until(lambda: served.echo.came)
        served.echo.waits = False
        assert made.answer()[0] == 200
        assert made.closed()


def test_a_head_behind_a_request_is_bounded_too(served: Served) -> None:
    served.echo.waits = True
    made = served.connect(upload(3) + b"abc" + b"GET /")
    until(lambda: served.echo.came)
    with suppress(ConnectionError):
        for _ in range(1_000):
            made.send(b"x" * 10_000)
    assert made.closed()
    served.echo.waits = False


def slow_reader(served: Served) -> Connection:
    """Return a connection whose client asks for much, and does not read it."""
    served.echo.answer = b"x" * 20_000_000
    made = served.connect()
    made.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: served.echo.came)
    return made


def read_to_the_end(made: Connection) -> int:
    """Return how much there was to read."""
    length = 0
    with suppress(ConnectionError):
        while chunk := made.socket.recv(1_000_000):
            length += len(chunk)
    return length


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED_FOR_S", 0.3)
    with running() as served:
        made = slow_reader(served)
        time.sleep(1.5)
        assert read_to_the_end(made) < 20_000_000


def test_an_answer_that_is_read_slowly_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWERED_WITHIN_S", 0.5)
    with running() as served:
        made, length = slow_reader(served), 0
        started = time.monotonic()
        with suppress(ConnectionError):
            while chunk := made.socket.recv(20_000):
                length += len(chunk)
                time.sleep(0.01)
        assert length < 20_000_000
        assert time.monotonic() - started < 5


def test_an_answer_that_is_read_comes_whole(served: Served) -> None:
    served.echo.answer = b"x" * 20_000_000
    made = served.connect(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert read_to_the_end(made) > 20_000_000


def test_a_full_house_makes_room_by_closing_who_has_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 12)
    with running() as served:
        idle = [served.connect() for _ in range(9)]  # all that one address may have
        idle[0].send(GET)
        assert idle[0].answer()[0] == 200  # so that it is not the first to go
        for _ in range(8):
            served.connect()
        assert all(each.closed() for each in idle[1:9])
        idle[0].send(GET)
        assert idle[0].answer()[0] == 200


def test_who_is_being_answered_is_not_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 4)
    with running() as served:
        served.echo.waits = True
        asking = [served.connect(GET) for _ in range(3)]  # all that one address may have
        until(lambda: len(served.echo.came) == 3)
        refused = served.connect()
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
        time.sleep(0.2)
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
            served.connect(b"", served.health)
        status, document = served.ask_health()
        assert (status, document["health"]) == (200, True)
        until(lambda: passes(served))
        assert served.ask()[1]["health"] is False


def test_who_expects_to_be_told_to_go_on_is_told(served: Served) -> None:
    made = served.connect(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert made.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    made.send(b"abc")
    assert made.answer()[0] == 200


def test_a_network_of_one_client_is_one_peer() -> None:
    assert bounds.peer_of("2001:db8:1:2::7") == bounds.peer_of("2001:db8:1:2:ffff::1")
    assert bounds.peer_of("2001:db8:1:2::7") != bounds.peer_of("2001:db8:1:3::7")
    assert bounds.peer_of("192.0.2.7") != bounds.peer_of("192.0.2.8")


def resident_mib() -> float:
    """Return the memory of this process, in which the server is a thread."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 2**20


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


def test_what_is_behind_a_chunked_body_is_bounded_and_no_header(served: Served) -> None:
    made = served.connect(CHUNKED + b"Host: evil.example\r\nX: y\r\n\r\n")
    assert made.answer() == (200, {"body": "abc", "health": False, "big": False, "hosts": 1})
    for line in (b"X-Trailer: y\r\n", b"x"):
        with pytest.raises(ConnectionError):
            served.connect(CHUNKED + line * (100_000_000 // len(line)))
    assert len(served.echo.came) == 1


def test_a_body_of_many_chunks_may_be_long(served: Served) -> None:
    made = served.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(300):
        made.send(b"400\r\n" + b"x" * 1_024 + b"\r\n")
    made.send(b"0\r\n\r\n")
    assert made.answer()[0] == 200


def test_bodies_of_those_who_left_are_not_kept(served: Served) -> None:
    def leave() -> None:
        made = served.connect(upload(2_000_000) + b"x" * 1_900_000)
        made.socket.close()

    for _ in range(20):
        leave()
    before = resident_mib()
    for _ in range(200):
        leave()
    assert served.ask()[0] == 200
    assert resident_mib() - before < 100


@pytest.mark.parametrize("behind", [b"", GET, b"G", upload(5) + b"ab"], ids=["nothing", "a request", "a byte", "half"])
def test_who_leaves_is_noticed_whatever_they_sent_behind(behind: bytes, served: Served) -> None:
    served.echo.waits = True
    made = served.connect(GET + behind)
    until(lambda: served.echo.came)
    made.socket.close()
    until(lambda: served.echo.left)
    served.echo.waits = False
    assert [path for path, _ in served.echo.came] == ["/"]


def test_a_head_is_answered_without_its_content_and_keeps_the_connection(served: Served) -> None:
    made = served.connect(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
    head = made.socket.recv(65536).partition(b"\r\n\r\n")[0]
    assert b"content-length: " in head.lower()


def test_a_mistake_of_ours_in_reading_a_request_keeps_it_on_the_device(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(connection.BoundedConnection, "_start_asgi_task", broken)
    status, document = served.connect(upload(3) + b"abc").answer()
    assert (status, slug(document)) == (503, "unavailable")
