"""Readings are made ahead of those who ask: a process that nobody waits for computes pages, and what it reads is kept.

The process is a reader (`web/reader_process.py`) that hands over each reading as soon as it is made. Killed at any
moment it loses the one that it was at; that one is tried again later, and the others go on at once.
"""

import logging
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from dither_aggregator.analysis import reading_cache
from dither_aggregator.operations.registry_process import COMPUTING_NICENESS, give_way
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.records import KeptReading
from dither_aggregator.web.process_messages import LENGTH, Computed, Place, ReadRequest, encode

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The environment of a reader. BLAS spins on threads of its own for longer than a page takes."""
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


def command() -> Sequence[str]:
    """Return the command line of a reader."""
    return sys.executable, "-P", "-m", "dither_aggregator.web.reader_process"


def environment() -> dict[str, str]:
    """Return the environment of a reader."""
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


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
        self._process: subprocess.Popen[bytes] | None = None
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

    def close(self) -> None:
        """End the process, whatever it is at."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.communicate()

    def _computed(self, address: Address, stopping: Callable[[], bool]) -> bool:
        """Compute a page; return False where the process ended over it."""
        process = self._process = self._process or self._start()
        asked = ReadRequest("GET", address.path, address.query.encode("latin-1"), [], b"", live=address.live)
        try:
            _write(process, encode(asked))
            while not stopping():
                made = self._next(process)
                if readings := [one for one in made if one is not None]:
                    self._keep(readings)
                if len(readings) < len(made):
                    return True
        except (EOFError, OSError):
            self._ended(process)
        except StoreError:
            self.close()
            raise
        if stopping():
            self.close()
        return False

    def _start(self) -> subprocess.Popen[bytes]:
        self._read.clear()
        self._begun = None
        process = subprocess.Popen(  # noqa: S603 - our own module
            command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), process_group=0
        )
        give_way(COMPUTING_NICENESS, process.pid)
        _write(process, encode(self._place))
        return process

    def _next(self, process: subprocess.Popen[bytes]) -> list[KeptReading | None]:
        """Return what came meanwhile; wait a while for it. Raises EOFError when the process has ended."""
        assert process.stdout
        if not select.select([process.stdout], [], [], LOOK_EVERY_S)[0]:
            return []
        come = os.read(process.stdout.fileno(), _READ_BYTES)
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

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        """Note over which reading the process ended."""
        self.close()
        begun, self._begun = self._begun, None
        _log.error("the process that computes readings ended with %s", process.returncode)
        if begun:
            self._store.keep_readings([reading_cache.failed(begun, _describe_end(process.returncode))])


def _write(process: subprocess.Popen[bytes], message: bytes) -> None:
    assert process.stdin
    process.stdin.write(message)
    with suppress(BrokenPipeError):  # reading tells that it has ended
        process.stdin.flush()


def _describe_end(code: int) -> str:
    return "it takes too long" if code == -signal.SIGXCPU else "its process was ended"
