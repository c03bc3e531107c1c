"""Pages and API made in processes of their own, so that no reader, however many or slow, holds an upload up.

A reader process answers one request at a time. A long list of candidates has a process to itself, which ends with the
answer, or when nobody waits for it any more: so its memory is given back. Readers end with the server, however that
ends: their sockets do.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress

import msgspec

from dither_aggregator.ingest import process_counters
from dither_aggregator.operations.fork_server import Address, Child, fork_server
from dither_aggregator.operations.registry_process import (
    COMPUTING_NICENESS,
    READING_NICENESS,
    STARVED_S,
    starves,
)
from dither_aggregator.web.process_messages import ASKED_BYTES_MAX, LENGTH, Place, ReadAnswer, ReadRequest, encode
from dither_shared.wire.reading import Problem

READERS = 2
CANDIDATES_MAX = 2_000
"""More than these are a long list."""
WAITING_MAX = 32
"""Requests that wait for a reader."""
WAIT_WITHIN_S = 45.0
"""For its turn. With FIRST_WITHIN_S it is less than a proxy of deploy/proxy waits for an answer."""
ANSWER_WITHIN_S = 30.0
"""For a reader. One that takes longer is ended, and another takes its place."""
FIRST_WITHIN_S = 90.0
"""For the first answer of a reader. The fork server may have to load a second's worth of programs before it: a reader
that was ended over that, beside busy programs, would be started anew for ever."""
LONG_WITHIN_S = 300.0
READ_BYTES = 1024 * 1024
_log = logging.getLogger("dither_aggregator")
_decoder = msgspec.msgpack.Decoder(ReadAnswer)


class Readers:
    """Has reader processes answer. They are started when they are first needed.

    `look_for_many` answers what is asked with a long list of candidates. `want` is told of each page of which a part is
    not computed yet, and returns at once.
    """

    def __init__(
        self,
        data: str,
        generation: str,
        readers: int = READERS,
        look_for_many: Callable[[ReadRequest], Coroutine[None, None, ReadAnswer]] | None = None,
        want: Callable[[Address], None] = lambda address: None,
    ) -> None:
        self._place = Place(data, generation, CANDIDATES_MAX)
        self._want = want
        self._look_for_many = look_for_many or Alone(data, generation).answer
        self._idle: list[ReaderProcess] = []
        self._asked: set[asyncio.Task[ReadAnswer]] = set()
        self._free = asyncio.Semaphore(readers)
        self._waiting = 0
        self._closed = False

    async def answer(self, asked: ReadRequest) -> ReadAnswer:
        """Answer a request; raise Problem where nobody can."""
        if len(asked.body) > ASKED_BYTES_MAX:
            return await self._begun(self._look_for_many(asked))  # without having a reader look at it first
        if self._waiting >= WAITING_MAX:
            process_counters.limit_hit("readers")
            raise _too_many()
        self._waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), WAIT_WITHIN_S)
        except TimeoutError:
            process_counters.limit_hit("readers")
            raise _too_many() from None
        finally:
            self._waiting -= 1
        # A client that asks and leaves does not end a reader: starting another one takes a second.
        answered = await asyncio.shield(self._begun(self._ask(asked)))
        return await self._begun(self._look_for_many(asked)) if answered.is_long else answered

    async def close(self) -> None:
        """End the readers, whatever they are at; requests that wait for them get an answer."""
        self._closed = True
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)
        while self._idle:
            await self._idle.pop().end()

    def _begun(self, answering: Coroutine[None, None, ReadAnswer]) -> asyncio.Task[ReadAnswer]:
        task = asyncio.create_task(answering)
        self._asked.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[ReadAnswer]) -> None:
        """Forget a request. Why it failed is nobody's if its client has gone: asyncio would log it as never asked."""
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()

    async def _ask(self, asked: ReadRequest) -> ReadAnswer:
        """Ask a reader, and let others have it afterwards."""
        try:
            if self._closed:
                raise Problem("read-failed", "the server is being stopped")
            reader = self._idle.pop() if self._idle else await ReaderProcess.start(self._place)
            answered = await reader.ask(asked, ANSWER_WITHIN_S if reader.has_answered else FIRST_WITHIN_S)
            self._idle.append(reader)
            if answered.wanted:
                self._want(Address.of(asked))
            return answered
        finally:
            self._free.release()


class Alone:
    """Looks for long lists of candidates in a process of their own, one list at a time.

    The process takes processor time that nobody else wants: beside one that is merely nicer, every hundredth upload
    waits a clock tick longer. If nobody leaves any, a nicer one begins anew.
    """

    def __init__(self, data: str, generation: str) -> None:
        self._place = Place(data, generation, None)
        self._one = asyncio.Semaphore()

    async def answer(self, asked: ReadRequest) -> ReadAnswer:
        """Answer a request; end the process when that is cancelled."""
        if self._one.locked():
            raise Problem("read-failed", "another long list, or words, are being read; ask again in a minute")
        async with self._one:
            try:
                return await self._look(asked, idle=True)
            except _StarvedError:
                return await self._look(asked, idle=False)

    async def _look(self, asked: ReadRequest, idle: bool) -> ReadAnswer:
        reader = await ReaderProcess.start(self._place, COMPUTING_NICENESS, idle)
        answering = asyncio.create_task(reader.ask(asked, LONG_WITHIN_S))
        try:
            while not (await asyncio.wait({answering}, timeout=STARVED_S))[0]:
                if idle and reader.starves():
                    raise _StarvedError
            return answering.result()
        finally:
            answering.cancel()
            await asyncio.wait({answering})
            await reader.end()


class _StarvedError(Exception):
    """A process got next to no processor time."""


class ReaderProcess:
    """A reader process, seen from the server's."""

    def __init__(self, child: Child, answering: asyncio.StreamReader, asking: asyncio.StreamWriter) -> None:
        self._child, self._answering, self._asking = child, answering, asking
        self.has_answered = False

    @classmethod
    async def start(cls, place: Place, niceness: int = READING_NICENESS, idle: bool = False) -> "ReaderProcess":
        """Start one. It is told where its store is through its socket."""
        child = fork_server.fork(niceness, idle)
        reader = cls(child, *await asyncio.open_unix_connection(sock=child.talk, limit=READ_BYTES))
        reader._asking.write(encode(place))
        return reader

    async def ask(self, asked: ReadRequest, within_s: float) -> ReadAnswer:
        """Return its answer. It is ended if there is none, or none in time."""
        try:
            return await asyncio.wait_for(self._exchange(asked), within_s)
        except BaseException as error:
            await self.end()
            if isinstance(error, TimeoutError):
                raise Problem("read-failed", "the answer took too long") from None
            if isinstance(error, OSError | EOFError):
                _log.error("a reader process ended while it was asked; another one takes its place")
                raise Problem("read-failed", "the answer could not be made") from None
            raise

    async def _exchange(self, asked: ReadRequest) -> ReadAnswer:
        self._asking.write(encode(asked))
        await self._asking.drain()
        (length,) = LENGTH.unpack(await self._answering.readexactly(LENGTH.size))
        answered = _decoder.decode(await self._answering.readexactly(length))
        self.has_answered = True
        return answered

    def starves(self) -> bool:
        """Return whether the process gets next to no time."""
        return self._child.pid is not None and starves(self._child.pid)

    async def end(self) -> None:
        """End the process, whatever it is at."""
        self._asking.transport.abort()  # before its socket is closed
        await asyncio.to_thread(self._child.end)
        with suppress(OSError):  # of what it did not read; an error that nobody takes would be logged
            await self._asking.wait_closed()


def _too_many() -> Problem:
    return Problem("read-failed", "too many pages are asked for at a time")
