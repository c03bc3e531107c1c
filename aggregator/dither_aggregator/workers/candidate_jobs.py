"""Long lists of candidates, looked for by a worker: an API process asks through the broker, and waits.

One list at a time, so that it never holds up more than one process of the workers. The request lies under a key that
lives for seconds, and the process that waits keeps it alive: when it is gone, the work is ended. A task carries the
ticket alone.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

import msgspec
import redis
from redis.asyncio import Redis

from dither_aggregator.web import problems
from dither_aggregator.web.messages import ReadAnswer, ReadRequest
from dither_aggregator.web.packing import pack
from dither_aggregator.web.readers import LONG_WITHIN_S, Alone
from dither_aggregator.workers.tasks import LOOK, REPLY_TIMEOUT_S, BrokerError, Task
from dither_shared.wire.problems import Problem

WANTED_FOR_S = 30
"""How long somebody counts as waiting after they last said so: longer than a slow broker may take for a task."""
ASK_EVERY_S = 1
KEPT_FOR_S = 60
WANTED = "dither:look"
ANSWER = "dither:look:{}"


class _Job(msgspec.Struct, frozen=True):
    """A request, and the ticket of the process that waits."""

    ticket: str
    asked: ReadRequest


class CandidateJobs:
    """Has long lists of candidates looked for by the workers of a broker."""

    def __init__(self, broker: str, publish: Callable[[Sequence[Task]], None]) -> None:
        self._redis = Redis.from_url(broker, socket_timeout=REPLY_TIMEOUT_S)
        self._publish = publish

    async def answer(self, asked: ReadRequest) -> ReadAnswer:
        """Answer a request; tell the worker to stop when that is cancelled. Raises Problem where nobody answers."""
        ticket = secrets.token_hex(16)
        job = msgspec.msgpack.encode(_Job(ticket, asked))
        try:
            if not await self._redis.set(WANTED, job, ex=WANTED_FOR_S, nx=True):
                raise Problem("read-failed", "another long list, or words, are being read; ask again in a minute")
            try:
                await asyncio.to_thread(self._publish, [Task(LOOK, ticket)])
                return await asyncio.wait_for(self._wait(ticket), LONG_WITHIN_S)
            finally:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._want_no_more(job), ASK_EVERY_S)
        except TimeoutError:
            raise Problem("read-failed", "the answer took too long") from None
        except (redis.RedisError, BrokerError):
            raise Problem("read-failed", "no worker can be asked for a long list now") from None

    async def _want_no_more(self, job: bytes) -> None:
        if await self._redis.get(WANTED) == job:  # it may have lapsed, and be somebody else's by now
            await self._redis.delete(WANTED)

    async def _wait(self, ticket: str) -> ReadAnswer:
        while not (message := await self._redis.blpop([ANSWER.format(ticket)], timeout=ASK_EVERY_S)):
            await self._redis.expire(WANTED, WANTED_FOR_S)
        _, answer = message
        assert isinstance(answer, bytes)
        return msgspec.msgpack.decode(answer, type=ReadAnswer)


def run_job(data: str, generation: str, broker: str, ticket: object) -> None:
    """Look for what a ticket stands for, in a process of its own, as long as somebody waits for it."""
    with closing(redis.Redis.from_url(broker, socket_timeout=REPLY_TIMEOUT_S)) as client:

        def wanted() -> ReadRequest | None:
            message = client.get(WANTED)
            job = msgspec.msgpack.decode(message, type=_Job) if isinstance(message, bytes) else None
            return job.asked if job and job.ticket == ticket else None

        asked = wanted()
        answer = asyncio.run(_look(Alone(data, generation), asked, wanted)) if asked else None
        if answer:
            with client.pipeline() as both:
                both.rpush(ANSWER.format(ticket), msgspec.msgpack.encode(answer))
                both.expire(ANSWER.format(ticket), KEPT_FOR_S)
                both.execute()


async def _look(alone: Alone, asked: ReadRequest, wanted: Callable[[], object]) -> ReadAnswer | None:
    """Return the answer, nothing where nobody waits for it any more."""
    running = asyncio.ensure_future(alone.answer(asked))
    while not (await asyncio.wait({running}, timeout=ASK_EVERY_S))[0]:
        if not wanted():
            running.cancel()
            await asyncio.wait({running})
            return None
    try:
        return running.result()
    except Problem as problem:
        return pack(problems.respond(problem))
