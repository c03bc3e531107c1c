"""The HTTP server itself: clients that are slow, many, hostile or gone."""

import json
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from dither_aggregator.web import gateway, server
from dither_aggregator.web.later import Later
from dither_aggregator.web.server import HttpServer
from dither_shared.wire import PATH, PROBLEM_PREFIX

WITHIN_S = 20.0
HEAVY_S = 0.05
HEAD = b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\n"


NOW: Future[None] = Future()
NOW.set_result(None)


class Echo:
    """An application that says what came, uploads only when it may, and slow pages too."""

    def __init__(self) -> None:
        self.may = NOW
        self.begin = threading.Event()
        self.begin.set()
        self.came: list[tuple[str, bytes]] = []

    def wait(self) -> None:
        self.may = Future()

    def go_on(self) -> None:
        if not self.may.done():  # cancelled: nobody waits for it any more
            self.may.set_result(None)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path, body = environ["PATH_INFO"], environ["wsgi.input"].read()
        self.came.append((path, body))
        if body.startswith(b"heavy"):
            self.begin.wait(20)
            until = time.thread_time() + HEAVY_S
            while time.thread_time() < until:
                pass
        if path == "/bug" or body == b"bug":
            raise RuntimeError("secret words")

        def render(may: Future[None]) -> Iterable[bytes]:
            text = {key: value for key, value in environ.items() if isinstance(value, str)}
            start_response("200 OK" if may.done() else "503 LATE", [("Content-Type", "application/json")])
            return [json.dumps({**text, "body": body.decode()}).encode()]

        return Later(self.may, WITHIN_S, render) if path in (PATH, "/slow") else render(NOW)


class Connection:
    """One connection, byte by byte if need be."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Read one answer."""
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = self.socket.recv(65536)
            assert chunk, f"closed after {data!r}"
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields[b"content-length"]):
            body += self.socket.recv(65536)
        return int(head.split()[1]), json.loads(body)

    def closed(self) -> bool:
        """Wait for the server to close the connection without another word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Served:
    """A running server and its application."""

    def __init__(self, echo: Echo, port: int, opened: ExitStack) -> None:
        self.echo, self.port, self.opened = echo, port, opened

    def connect(self, data: bytes = b"") -> Connection:
        made = Connection(self.port)
        self.opened.callback(made.socket.close)
        made.send(data)
        return made

    def ask(self, path: str = "/") -> tuple[int, dict[str, Any]]:
        return self.connect(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).answer()


@contextmanager
def running() -> Iterator[Served]:
    echo = Echo()
    http = HttpServer(echo, "127.0.0.1", 0)
    with http.in_background(), ExitStack() as opened:
        yield Served(echo, int(http.url.rsplit(":", 1)[1]), opened)


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
    monkeypatch.setattr(server, "REQUEST_WITHIN_S", 0.4)
    with running() as served:
        connection = served.connect(begun)
        if begun.startswith(upload(0)):  # a blank line after a request begins another one
            assert connection.answer()[0] == 200
            connection.send(b"\r\n")
        assert connection.closed()


def test_drops_do_not_put_the_deadline_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_WITHIN_S", 0.4)
    with running() as served:
        connection = served.connect(upload(700))
        started = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - started < 10:
                connection.send(b"x")
                time.sleep(0.05)
        assert time.monotonic() - started < 5
        assert served.echo.came == []


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_WITHIN_S", 0.2)
    with running() as served:
        served.echo.wait()
        connection = served.connect(upload(3) + b"abc")
        time.sleep(0.5)
        served.echo.go_on()
        assert connection.answer()[0] == 200


def test_everything_else_is_answered_while_uploads_wait_for_the_store(served: Served) -> None:
    served.echo.wait()
    waiting = [served.connect(upload(3) + b"%03d" % number) for number in range(200)]
    while len(served.echo.came) < 200:
        time.sleep(0.01)
    assert served.ask("/livez")[0] == 200
    assert served.ask("/")[0] == 200
    served.echo.go_on()
    answers = [connection.answer() for connection in waiting]
    assert [(status, document["body"]) for status, document in answers] == [(200, f"{n:03d}") for n in range(200)]


@pytest.mark.parametrize(("length", "encoding"), [(5, b"gzip"), (60_000, b"")])
def test_everything_else_is_answered_while_heavy_uploads_are_read(length: int, encoding: bytes) -> None:
    """Not after all of them. A small one may be heavy: a kilobyte of gzip is a megabyte of JSON."""
    with running() as served:
        fields = b"Content-Encoding: " + encoding + b"\r\n" if encoding else b""
        head = HEAD + fields + b"Content-Length: %d\r\n\r\n" % length
        served.echo.begin.clear()
        waiting = [served.connect(head + b"heavy".ljust(length)) for _ in range(40)]
        health = served.connect(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        served.echo.begin.set()
        assert health.answer()[0] == 200
        read_before = len(served.echo.came)
        assert {connection.answer()[0] for connection in waiting} == {200}
        assert read_before < 20


def test_an_upload_for_which_the_store_takes_too_long_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WITHIN_S", 0.2)
    served.echo.wait()
    connection = served.connect(upload(3) + b"abc")
    assert connection.answer()[0] == 503
    served.echo.go_on()  # and nobody is left to be told
    connection.send(upload(3) + b"abc")
    assert connection.answer()[0] == 200


def test_pages_that_wait_for_a_thread_for_too_long_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "THREAD_WITHIN_S", 0.1)
    served.echo.wait()
    asking = [served.connect(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(gateway.THREADS + 5)]
    while len(served.echo.came) < gateway.THREADS:
        time.sleep(0.01)
    assert served.ask("/livez")[0] == 200
    time.sleep(0.2)
    served.echo.go_on()
    answers = [connection.answer() for connection in asking]
    assert [status for status, _ in answers].count(200) == gateway.THREADS
    assert {slug(document) for status, document in answers if status == 503} == {"unavailable"}


@contextmanager
def ended_before_its_connections(echo: Echo) -> Iterator[Served]:
    http = HttpServer(echo, "127.0.0.1", 0)
    with ExitStack() as opened, http.in_background():
        yield Served(echo, int(http.url.rsplit(":", 1)[1]), opened)


def test_a_connection_that_was_being_made_when_the_server_ended_does_not_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not among those that are told to end at first, and its client goes on asking."""
    told = server._Protocol.shutdown
    late = iter([lambda _: None])
    monkeypatch.setattr(server._Protocol, "shutdown", lambda self: next(late, told)(self))
    answered: list[float] = []

    def go_on(connection: Connection) -> None:
        with suppress(AssertionError, OSError):
            while True:
                connection.send(upload(3) + b"abc")
                connection.answer()
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
    echo.wait()
    with ended_before_its_connections(echo) as served:
        connection = served.connect(upload(3) + b"abc")
        answers: list[tuple[int, dict[str, Any]]] = []
        asking = threading.Thread(target=lambda: answers.append(connection.answer()), daemon=True)
        asking.start()
        served.opened.callback(asking.join, 10)  # before its connection is closed
        while not echo.came:
            time.sleep(0.01)
    assert echo.may.cancelled()  # nobody waits for it any more
    ((status, document),) = answers
    assert (status, slug(document)) == (503, "unavailable")


def test_a_client_that_has_left_is_no_trouble(served: Served) -> None:
    served.echo.wait()
    served.connect(upload(3) + b"abc").socket.close()
    served.connect(upload(3) + b"a").socket.close()
    while not served.echo.came:
        time.sleep(0.01)
    served.echo.go_on()
    assert served.ask()[0] == 200
    assert [body for path, body in served.echo.came if path == PATH] == [b"abc"]


def test_a_half_closed_connection_is_answered(served: Served) -> None:
    connection = served.connect(upload(3) + b"abc")
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.answer()[0] == 200
    assert connection.closed()


def test_headers_reach_the_application_as_they_must(served: Served) -> None:
    headers = b"Authorization: Bearer k\r\nContent_Length: 9\r\nX-Two: a\r\nX-Two: b\r\nX-Latin: \xe4\r\n"
    _, seen = served.connect(HEAD + headers + b"Content-Length: 2\r\n\r\nhi").answer()
    assert (seen["HTTP_AUTHORIZATION"], seen["HTTP_X_TWO"], seen["HTTP_X_LATIN"]) == ("Bearer k", "a,b", "\xe4")
    assert (seen["CONTENT_LENGTH"], seen["body"]) == ("2", "hi")
    assert "HTTP_CONTENT_LENGTH" not in seen
    _, seen = served.ask("/a%20b%FF?x=%20")
    assert (seen["PATH_INFO"], seen["QUERY_STRING"]) == ("/a b\xff", "x=%20")
    assert "CONTENT_LENGTH" not in seen


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
        (b"GET /bug HTTP/1.1\r\nHost: x\r\n\r\n", 503, "unavailable"),
    ],
    ids=lambda value: str(value)[-50:],
)
def test_what_the_server_refuses_by_itself_is_a_problem_document(
    served: Served, request_bytes: bytes, status: int, problem: str
) -> None:
    connection = served.connect(request_bytes)
    answered, document = connection.answer()
    assert (answered, slug(document)) == (status, problem)
    assert connection.closed()


def test_nonsense_behind_a_request_does_not_pass_for_its_answer(served: Served) -> None:
    served.echo.wait()
    connection = served.connect(upload(3) + b"abc")
    while not served.echo.came:
        time.sleep(0.01)
    connection.send(b"NONSENSE\r\n\r\n")
    assert connection.closed()
    served.echo.go_on()


def test_too_many_connections_are_refused_in_words(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 3)
    held = [served.connect() for _ in range(3)]
    connection = served.connect()
    status, document = connection.answer()
    assert (status, slug(document)) == (503, "unavailable")
    assert connection.closed()
    for each in held:
        each.socket.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert served.ask()[0] == 200
            break
        except AssertionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_too_much_at_a_time_is_refused_in_words(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "BUFFERED_BYTES_MAX", 100_000)
    held = [served.connect(upload(50_000) + b"x" * 40_000) for _ in range(2)]
    time.sleep(0.2)
    status, document = served.connect(upload(50_000) + b"x" * 50_000).answer()
    assert (status, slug(document)) == (503, "unavailable")
    for each in held:
        each.send(b"x" * 10_000)
    assert [each.answer()[0] for each in held] == [200, 200]
    assert served.connect(upload(50_000) + b"x" * 50_000).answer()[0] == 200
