"""One connection: clients that are slow, hostile or gone."""

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from select import select

import pytest

from dither_aggregator.web import http_messages
from dither_aggregator.web import http_server as serving
from dither_aggregator.web.endpoints import in_words
from dither_aggregator.web.http_messages import App, HttpAnswer, Scope
from dither_aggregator.web.process_messages import ReadAnswer, ReadingApp, ReadRequest
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem
from tests.support.aggregators import http_server
from tests.support.http import GET, HEAD, Connection, Served, passes, running, slug, until, upload


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with running() as made:
        yield made


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    """One server for all tests: each finds it without connections, and its application as new."""
    with ExitStack() as opened:
        yield shared.anew(opened)
    until(lambda: not shared.connections())


def test_a_request_that_takes_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_WITHIN_S", 0.4)
    with running() as served:
        begun = (HEAD[:1], HEAD[:10], HEAD, upload(5) + b"ab", upload(0) + b"\r\n")
        connected = [served.connect(each) for each in begun]
        assert connected[-1].answer()[0] == 200
        connected[-1].send(b"\r\n")  # a blank line after a request begins another one
        assert all(one.closed() for one in connected)


def test_who_never_said_anything_costs_the_server_nothing(served: Served) -> None:
    def files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    first = served.connect(GET)  # and stays: by its answer the server's loop has all the files that it opens
    assert first.answer()[0] == 200
    silent = [served.connect() for _ in range(50)]
    before = files()
    begun = [served.connect(HEAD[:1]) for _ in range(50)]
    until(lambda: files() == before + 2 * len(begun))  # this process has both ends of those, and one of the silent
    silent[7].send(GET)
    assert silent[7].answer()[0] == 200
    assert files() == before + 2 * len(begun) + 1


def test_drops_do_not_put_the_deadline_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_WITHIN_S", 0.4)
    with running() as served:
        made = served.connect(upload(700))
        with suppress(OSError):
            while not select([made.socket], [], [], 0.05)[0]:  # the server's end of it
                made.send(b"x")
        assert served.echo.came == []


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_WITHIN_S", 0.2)
    with running() as served:
        served.echo.waits = True
        made = served.connect(upload(3) + b"abc")
        assert served.connect(HEAD).closed()  # what has begun later is over its time
        served.echo.waits = False
        assert made.answer()[0] == 200


def test_a_client_that_has_left_is_no_trouble(served: Served) -> None:
    served.echo.waits = True
    served.connect(upload(3) + b"abc").socket.close()
    served.connect(upload(3) + b"a").socket.close()
    until(lambda: served.echo.came)
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
    until(lambda: served.echo.came)
    made.send(b"NONSENSE\r\n\r\n")
    assert made.closed()
    served.echo.waits = False


def test_a_few_requests_may_be_sent_ahead(served: Served) -> None:
    made = served.connect(GET * serving.PIPELINED_MAX)
    assert [made.answer()[0] for _ in range(serving.PIPELINED_MAX)] == [200] * serving.PIPELINED_MAX


def test_who_sends_more_requests_ahead_is_cut_off(served: Served) -> None:
    made = served.connect(upload(3) + b"abc" + GET * 1_000)
    with suppress(ConnectionError):
        while made.socket.recv(65536):
            pass
    assert len(served.echo.came) <= 2
    assert passes(served)


@pytest.mark.parametrize("begun", [upload(700) + b"x", b"GET / HTTP/1.1\r\nX: "], ids=["body", "head"])
def test_what_is_half_sent_behind_a_request_has_a_deadline_too(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_WITHIN_S", 0.4)
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
    monkeypatch.setattr(serving, "STALLED_FOR_S", 0.3)
    with running() as served:
        made = slow_reader(served)
        until(lambda: not served.connections())
        assert read_to_the_end(made) < 20_000_000


def test_an_answer_that_is_read_slowly_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ANSWERED_WITHIN_S", 0.5)
    with running() as served:
        made, lengths = slow_reader(served), list[int]()

        def read_some() -> bool:
            lengths.append(len(made.socket.recv(20_000)))
            return not lengths[-1]

        with suppress(ConnectionError):
            until(read_some)
        assert sum(lengths) < 20_000_000


def test_an_answer_that_is_read_comes_whole(served: Served) -> None:
    served.echo.answer = b"x" * 20_000_000
    made = served.connect(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert read_to_the_end(made) > 20_000_000


def test_who_expects_to_be_told_to_go_on_is_told(served: Served) -> None:
    made = served.connect(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert made.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    made.send(b"abc")
    assert made.answer()[0] == 200


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

    monkeypatch.setattr(serving.BoundedConnection, "_answer_next", broken)
    status, document = served.connect(upload(3) + b"abc").answer()
    assert (status, slug(document)) == (500, "failed")


@pytest.mark.parametrize("length", [2, 4])
def test_an_answer_that_is_not_as_long_as_it_says_closes_its_connection(length: int) -> None:
    async def lie(scope: Scope, body: bytes) -> HttpAnswer:
        return HttpAnswer(200, [], parts=[b"ab", b"c"], length=length)

    with answering(lie) as made:
        made.send(GET + GET)
        data = b"".join(iter(lambda: made.socket.recv(65536), b""))
        assert data.partition(b"\r\n\r\n")[2] == b"abc"[: 2 + length // 4]


def test_a_header_that_would_be_two_is_not_sent() -> None:
    async def split(scope: Scope, body: bytes) -> HttpAnswer:
        return HttpAnswer(200, [(b"location", b"/\r\nset-cookie: a=b")], b"{}")

    with answering(split) as made:
        made.send(GET)
        assert made.closed()


def test_an_answer_has_the_time_of_its_making(served: Served) -> None:
    before = int(time.time())
    made = served.connect(GET)
    made.answer()
    assert before <= parsedate_to_datetime(made.fields[b"date"].decode("ascii")).timestamp() <= time.time()


def test_who_wants_another_protocol_is_answered_in_this_one(served: Served) -> None:
    made = served.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert made.answer()[0] == 200


def test_an_answer_to_a_reader_is_held_until_it_is_sent_or_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "ANSWER_BYTES_MAX", 1_000)

    async def answer(asked: ReadRequest) -> ReadAnswer:
        return ReadAnswer(200, [], b"x" * 700)

    app = ReadingApp(answer)
    with answering(app) as made:
        for method in ("GET", "HEAD", "GET"):
            made.send(f"{method} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert made.content(bare=method == "HEAD")[0] == 200

    async def hold() -> None:
        scope = {"method": "GET", "path": "/", "query_string": b"", "headers": [], "client": ("127.0.0.1", 1)}
        held = await app({**scope, "over": asyncio.Event()}, b"")
        with pytest.raises(Problem, match="too much is being read"):
            await app({**scope, "over": asyncio.Event()}, b"")
        held.sent()
        assert (await app({**scope, "over": asyncio.Event()}, b"")).length == 700

    asyncio.run(hold())


@contextmanager
def answering(app: App) -> Iterator[Connection]:
    """Yield a connection to a server of this application alone."""
    server = http_server(in_words(app))
    with server.in_background():
        made = Connection(int(server.url.rsplit(":", 1)[1]))
        with made.socket:
            yield made
