"""Readings are made ahead of those who ask: a process that nobody waits for computes pages, and what it reads is kept.

The process is a reader (`web/reader_process.py`) that hands over each reading as soon as it is made. Killed at any
moment it loses the one that it was at; that one is tried again later, and the others go on at once.
"""

import logging
import re
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from dither_aggregator.analysis import reading_cache
from dither_aggregator.operations.fork_server import Child, fork_server
from dither_aggregator.operations.registry_process import COMPUTING_NICENESS
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.records import KeptReading
from dither_aggregator.web.process_messages import LENGTH, Computed, Place, ReadRequest, encode

LOOK_EVERY_S = 0.5
ENDS_MAX = 32
"""How often the process may end over one page, each time over another reading."""
CANDIDATES_MAX = 2_000
"""More than these are a long list, which is not computed ahead."""
_READ_BYTES = 1 << 18
_ADDRESS = re.compile(r"(live|read) (/[!-~]{0,200}) ([!-~]{0,1000})")

_log = logging.getLogger("dither_aggregator")
_decoder = msgspec.msgpack.Decoder(Computed)


class Address(NamedTuple):
    """A page, and whether it is for somebody who is told live figures."""

    live: bool
    path: str
    query: str = ""

    @classmethod
    def of(cls, asked: ReadRequest) -> "Address":
        """Return that of a request."""
        return cls(asked.live, asked.path, asked.query.decode("latin-1"))

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return the address of a text; raise ValueError for another one."""
        if not (found := _ADDRESS.fullmatch(text)):
            raise ValueError("this is the address of no page")
        who, path, query = found.groups()
        return cls(who == "live", path, query)

    @property
    def is_short(self) -> bool:
        """Whether a task can carry it."""
        return bool(_ADDRESS.fullmatch(str(self)))

    def __str__(self) -> str:
        return f"{'live' if self.live else 'read'} {self.path} {self.query}"


def unmade(store: Store) -> Iterator[Address]:
    """Give the pages of the last sealed day that were not computed yet, those of all metrics first; each is looked up
    when it is its turn.

    A page that was computed by a dither with another estimator version counts: it is computed again when it is asked
    for.
    """
    sealed, epochs = store.sealed(), store.all_epochs()
    if store.merged() < sealed:
        return  # the digests of its tallies, by which readings are known, come with that
    names = [
        stored.plan.metric
        for stored in store.plans()
        if stored.current and any(day <= sealed for day in epochs.get(stored.id, ()))
    ]
    pages = [("/", ""), ("/changes", "")] if names else []
    for name in names:
        pages += [(f"/metrics/{name}", ""), (f"/metrics/{name}/time", ""), ("/compare", urlencode({"metric": name}))]
    wanted = [Address(live, path, query) for path, query in pages for live in (False, True)]
    yield from (each for each in wanted if not store.kept_reading(_made(store, each)))


def _made(store: Store, address: Address) -> str:
    return f"{address} {store.sealed()}"


class Computer:
    """Computes pages of a store, one after the other, in a process that it starts and ends. For one thread."""

    def __init__(self, store: Store, data: str, *, alone: bool) -> None:
        self._store = store
        self._place = Place(data, store.generation, CANDIDATES_MAX, computes=True, alone=alone)
        self._process: Child | None = None
        self._read = bytearray()
        self._begun: KeptReading | None = None

    def unmade(self) -> list[Address]:
        """Return the pages of the last sealed day that were not computed yet."""
        return list(unmade(self._store))

    def compute(self, address: Address, stopping: Callable[[], bool] = lambda: False) -> None:
        """Compute what is missing of a page, and note that it was computed. Raises StoreError."""
        made = KeptReading(_made(self._store, address), self._store.sealed(), False, b"made")
        for _ in range(ENDS_MAX):
            if self._computed(address, stopping) or stopping():
                break
        if not stopping():
            self._store.keep_readings([made])

    def close(self) -> int | None:
        """End the process, whatever it is at; return how it had ended before, if that is known."""
        process, self._process = self._process, None
        return process.end() if process else None

    def _computed(self, address: Address, stopping: Callable[[], bool]) -> bool:
        """Compute a page; return False where the process ended over it."""
        process = self._process = self._process or self._start()
        asked = ReadRequest("GET", address.path, address.query.encode("latin-1"), [], b"", live=address.live)
        try:
            process.talk.sendall(encode(asked))
            while not stopping():
                made = self._next(process)
                if readings := [one for one in made if one is not None]:
                    self._keep(readings)
                if len(readings) < len(made):
                    return True
        except (EOFError, OSError):
            self._ended()
        except StoreError:
            self.close()
            raise
        if stopping():
            self.close()
        return False

    def _start(self) -> Child:
        self._read.clear()
        self._begun = None
        process = fork_server.fork(COMPUTING_NICENESS)
        with suppress(OSError):  # reading tells that it has ended
            process.talk.sendall(encode(self._place))
        return process

    def _next(self, process: Child) -> list[KeptReading | None]:
        """Return what came meanwhile; wait a while for it. Raises EOFError when the process has ended."""
        poll = select.poll()
        poll.register(process.talk, select.POLLIN)
        if not poll.poll(LOOK_EVERY_S * 1000):
            return []
        come = process.talk.recv(_READ_BYTES)
        if not come:
            raise EOFError
        self._read += come
        made = []
        while len(self._read) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._read)
            if len(self._read) < LENGTH.size + length:
                break
            made.append(_decoder.decode(self._read[LENGTH.size : LENGTH.size + length]).reading)
            del self._read[: LENGTH.size + length]
        return made

    def _keep(self, readings: Sequence[KeptReading]) -> None:
        last = {one.key: one for one in readings}
        self._store.keep_readings(list(last.values()))
        for one in readings:
            if one.open:
                self._begun = one
            elif self._begun and one.key == self._begun.key:
                self._begun = None

    def _ended(self) -> None:
        """Note over which reading the process ended."""
        code = self.close()
        begun, self._begun = self._begun, None
        _log.error("the process that computes readings ended with %s", code)
        if begun:
            self._store.keep_readings([reading_cache.failed(begun, _describe_end(code))])


def _describe_end(code: int | None) -> str:
    return "it takes too long" if code == -signal.SIGXCPU else "its process was ended"
