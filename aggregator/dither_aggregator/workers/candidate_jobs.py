"""Long lists of candidates, looked for by a worker: an API process asks through the broker, and waits.

One list at a time, so that it never holds up more than one process of the workers. The request lies under a key that
lives for seconds, and the process that waits keeps it alive: when it is gone, the work is ended. A task carries the
ticket alone.

Many may be able to write to a broker. So request and answer are signed with a secret of the store's, and read no
further than they may be long: nobody else has a worker read the store, or answers in its place.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from hashlib import sha256

import msgspec
import redis
from itsdangerous import BadSignature, Signer
from redis.asyncio import Redis

from dither_aggregator.store import Store
from dither_aggregator.web import http_messages, problems
from dither_aggregator.web.http_server import BODY_BYTES_MAX
from dither_aggregator.web.process_messages import ReadAnswer, ReadRequest, pack
from dither_aggregator.web.reader_pool import LONG_WITHIN_S, Alone
from dither_aggregator.workers.tasks import LOOK, REPLY_TIMEOUT_S, BrokerError, Task
from dither_shared.wire.reading import Problem

WANTED_FOR_S = 30
"""How long somebody counts as waiting after they last said so: longer than a slow broker may take for a task."""
ASK_EVERY_S = 1
KEPT_FOR_S = 60
WANTED = "dither:look"
ANSWER = "dither:look:{}"
HEADS_BYTES_MAX = 64 * 1024
"""For all that is beside the body of a request, or the content of an answer."""
JOB_BYTES_MAX = BODY_BYTES_MAX + HEADS_BYTES_MAX
PACKED_BYTES_MAX = http_messages.ANSWER_BYTES_MAX + HEADS_BYTES_MAX


class _Job(msgspec.Struct, frozen=True):
    """A request, and the ticket of the process that waits."""

    ticket: str
    asked: ReadRequest


def secret_of(store: Store) -> bytes:
    """Return the secret that the processes of a store share for this."""
    return store.signing_secret(b"long lists")


def _signer(secret: bytes, of: str) -> Signer:
    """Return what signs a request or an answer, by its key: a signature is good for no other one."""
    return Signer(secret, salt=of, digest_method=sha256)


def _read_job(secret: bytes, message: bytes | str) -> _Job | None:
    """Return the job that a message is; None for any that no process of the store wrote."""
    try:
        return msgspec.msgpack.decode(_signer(secret, WANTED).unsign(message), type=_Job)
    except (BadSignature, msgspec.MsgspecError):  # of another version
        return None


class CandidateJobs:
    """Has long lists of candidates looked for by the workers of a broker."""

    def __init__(self, broker: str, secret: bytes, publish: Callable[[Sequence[Task]], None]) -> None:
        self._redis = Redis.from_url(broker, socket_timeout=REPLY_TIMEOUT_S)
        self._secret = secret
        self._publish = publish

    async def answer(self, asked: ReadRequest) -> ReadAnswer:
        """Answer a request; tell the worker to stop when that is cancelled. Raises Problem where nobody answers."""
        ticket = secrets.token_hex(16)
        job = _signer(self._secret, WANTED).sign(msgspec.msgpack.encode(_Job(ticket, asked)))
        try:
            if not await self._redis.set(WANTED, job, ex=WANTED_FOR_S, nx=True):
                if _read_job(self._secret, await self._held()):
                    raise Problem("read-failed", "another long list, or words, are being read; ask again in a minute")
                await self._redis.set(WANTED, job, ex=WANTED_FOR_S)  # in the place of what others have put there
            try:
                await asyncio.to_thread(self._publish, [Task(LOOK, ticket)])
                return await asyncio.wait_for(self._wait(ticket), LONG_WITHIN_S)
            finally:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._want_no_more(job), ASK_EVERY_S)
        except TimeoutError:
            raise Problem("read-failed", "the answer took too long") from None
        except (redis.RedisError, BrokerError, BadSignature):
            raise Problem("read-failed", "no worker can be asked for a long list now") from None

    async def _want_no_more(self, job: bytes) -> None:
        if await self._held() == job:  # it may have lapsed, and be somebody else's by now
            await self._redis.delete(WANTED)

    async def _held(self) -> bytes | str:
        with suppress(redis.ResponseError):  # for a key that holds no text
            return await self._redis.getrange(WANTED, 0, JOB_BYTES_MAX)
        return b""

    async def _wait(self, ticket: str) -> ReadAnswer:
        key = ANSWER.format(ticket)
        while not (message := await self._redis.getrange(key, 0, PACKED_BYTES_MAX)):
            await asyncio.sleep(ASK_EVERY_S / 4)
            await self._redis.expire(WANTED, WANTED_FOR_S)
        return msgspec.msgpack.decode(_signer(self._secret, key).unsign(message), type=ReadAnswer)


def run_job(data: str, generation: str, broker: str, secret: bytes, ticket: object) -> None:
    """Look for what a ticket stands for, in a process of its own, as long as somebody waits for it."""
    with closing(redis.Redis.from_url(broker, socket_timeout=REPLY_TIMEOUT_S)) as client:

        def wanted() -> ReadRequest | None:
            with suppress(redis.ResponseError):  # for a key that holds no text
                job = _read_job(secret, client.getrange(WANTED, 0, JOB_BYTES_MAX))
                return job.asked if job and job.ticket == ticket else None
            return None

        asked = wanted()
        answer = asyncio.run(_look(Alone(data, generation), asked, wanted)) if asked else None
        if answer:
            key = ANSWER.format(ticket)
            client.set(key, _signer(secret, key).sign(msgspec.msgpack.encode(answer)), ex=KEPT_FOR_S)


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
