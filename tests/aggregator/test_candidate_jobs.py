"""Long lists that go over a broker: whoever else may write there has nothing read, and answers nobody."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from dither_aggregator.web.process_messages import ReadAnswer, ReadRequest
from dither_aggregator.workers import candidate_jobs
from dither_aggregator.workers.candidate_jobs import ANSWER, JOB_BYTES_MAX, WANTED, CandidateJobs, run_job
from dither_aggregator.workers.tasks import Task
from dither_shared.wire.reading import Problem
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.slow

SECRET, OTHER_SECRET = b"s" * 32, b"o" * 32
ASKED = ReadRequest("POST", "/v1/metrics/color/estimates", b"", [], b"{}", live=True)
ANSWERED = ReadAnswer(200, [("content-type", "text/html"), ("set-cookie", "a=b")], b"<script>")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("broker"), {"appendonly": "no"})
    server.start()
    yield server
    server.stop()


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[ReadRequest]:
    """Return the requests that workers look for; each is answered at once, without a process."""
    found: list[ReadRequest] = []

    class Alone:
        def __init__(self, *_: str) -> None:
            pass

        async def answer(self, asked: ReadRequest) -> ReadAnswer:
            found.append(asked)
            return ANSWERED

    monkeypatch.setattr(candidate_jobs, "Alone", Alone)
    return found


def ask(broker: RedisServer, act: Callable[[Any, str], object]) -> ReadAnswer:
    """Ask for a long list; do something with the broker and the ticket when the task is published."""
    with broker.client() as client:

        def publish(tasks: Sequence[Task]) -> None:
            act(client, str(tasks[0].about))

        async def answer() -> ReadAnswer:
            jobs = CandidateJobs(broker.url, SECRET, publish)
            async with jobs._redis:
                return await jobs.answer(ASKED)

        return asyncio.run(answer())


def work(broker: RedisServer, secret: bytes = SECRET) -> Callable[[Any, str], None]:
    return lambda client, ticket: run_job("", "", broker.url, secret, ticket)


@pytest.mark.parametrize(
    "before",
    [
        lambda client: None,
        lambda client: client.set(WANTED, "x"),
        lambda client: client.set(WANTED, b"x" * (JOB_BYTES_MAX + 9)),
        lambda client: client.rpush(WANTED, "x"),
    ],
    ids=["nothing", "garbage", "much garbage", "a list"],
)
def test_a_list_is_looked_for_whatever_lies_in_its_place(
    broker: RedisServer, asked_for: list[ReadRequest], before: Callable[[Any], object]
) -> None:
    with broker.client() as client:
        before(client)
    assert ask(broker, work(broker)) == ANSWERED
    assert asked_for == [ASKED]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda client, key: client.set(key, msgspec.msgpack.encode(ANSWERED)),
        lambda client, key: client.set(key, client.get(WANTED)),
        lambda client, key: client.set(key, b"\xff" * 1_000_000),
        lambda client, key: client.rpush(key, "x"),
    ],
    ids=["without a signature", "with that of the request", "garbage", "a list"],
)
def test_nobody_else_answers(broker: RedisServer, spoil: Callable[[Any, str], object]) -> None:
    with pytest.raises(Problem, match="no worker can be asked for a long list now"):
        ask(broker, lambda client, ticket: spoil(client, ANSWER.format(ticket)))


def test_an_answer_of_another_list_is_none(broker: RedisServer, asked_for: list[ReadRequest]) -> None:
    kept: list[bytes] = []

    def keep(client: Any, ticket: str) -> None:
        work(broker)(client, ticket)
        kept.append(client.get(ANSWER.format(ticket)))

    ask(broker, keep)
    with pytest.raises(Problem, match="no worker can be asked"):
        ask(broker, lambda client, ticket: client.set(ANSWER.format(ticket), kept[0]))


@pytest.mark.parametrize(
    "job",
    [
        msgspec.msgpack.encode({"ticket": "t", "asked": ASKED}),
        candidate_jobs._signer(OTHER_SECRET, WANTED).sign(msgspec.msgpack.encode({"ticket": "t", "asked": ASKED})),
        candidate_jobs._signer(SECRET, WANTED).sign(msgspec.msgpack.encode([1])),
        b"\xff" * (JOB_BYTES_MAX + 9),
    ],
    ids=["without a signature", "of another store", "of another version", "garbage"],
)
def test_nobody_else_has_a_worker_read(broker: RedisServer, asked_for: list[ReadRequest], job: bytes) -> None:
    with broker.client() as client:
        client.set(WANTED, job)
        work(broker)(client, "t")
        assert not client.exists(ANSWER.format("t"))
        client.delete(WANTED)
    assert asked_for == []
