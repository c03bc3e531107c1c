"""A reader: a process that answers what pages and API are asked, one request after the other, and takes no upload.

It is nicer than the server: where both want a processor, the server has it. It ends when its socket does.
It is forked by `operations/fork_server.py`.

The same program computes what pages need (`operations/computing_process.py`): nicer still, within limits, and nobody
waits for it.
"""

import logging
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

import msgspec
from flask import Flask

from dither_aggregator.analysis.reading_cache import Computing, Kept
from dither_aggregator.store import Store, StoreError, open_store
from dither_aggregator.store.records import KeptReading
from dither_aggregator.web import problems
from dither_aggregator.web.flask_apps import reading_app, respond
from dither_aggregator.web.process_messages import LENGTH, Computed, Place, ReadAnswer, ReadRequest, encode, pack
from dither_aggregator.web.url_paths import is_known
from dither_shared.wire.reading import Problem

PROCESSOR_S = 600
"""For one reading; then the process is ended."""
MEMORY_BYTES_MAX = 3 << 30

_log = logging.getLogger("dither_aggregator")


def answer(talk: socket.socket) -> None:
    """Answer until nobody asks any more. To be called in a process that has nothing else to do."""
    asking, answering = talk.makefile("rb"), talk.makefile("wb")
    threading.Thread(target=_end_with_server, args=(talk,), name="lifeline", daemon=True).start()
    place = msgspec.msgpack.decode(_read(asking), type=Place)

    def say(message: ReadAnswer | Computed) -> None:
        answering.write(encode(message))
        answering.flush()

    desk = _Desk(place, say)
    decoder = msgspec.msgpack.Decoder(ReadRequest)
    while message := _read(asking):
        answered = desk.answer(decoder.decode(message))
        say(Computed(None) if place.computes else answered)


def _end_with_server(talk: socket.socket) -> None:
    """End when nobody asks any more, also in the middle of a long answer."""
    poll = select.poll()
    poll.register(talk, 0)  # hears of the other end's close alone
    poll.poll()
    os._exit(0)


def _read(asking: BinaryIO) -> bytes:
    """Return what is said next, nothing at the end."""
    length = asking.read(LENGTH.size)
    return asking.read(LENGTH.unpack(length)[0]) if len(length) == LENGTH.size else b""


class _Desk:
    """Answers requests out of a store, which is opened at the first of them."""

    def __init__(self, place: Place, say: Callable[[Computed], None]) -> None:
        self._place, self._say = place, say
        self._opened: tuple[Store, Flask] | None = None

    def answer(self, asked: ReadRequest) -> ReadAnswer:
        """Answer a request."""
        try:
            store, app = self._opened = self._opened or self._open()
            store.refresh()
        except StoreError as error:
            _log.error("a reader: %s", error)
            known = is_known(asked.path)
            problem = Problem("read-failed", "the store cannot be read") if known else problems.nowhere(asked.root)
            return pack(problems.respond(problem))
        except Exception as error:
            return pack(problems.respond(problems.failure(error)))
        return respond(app, asked)

    def _open(self) -> tuple[Store, Flask]:
        store = open_store(self._place.data, read_only=True, allow_lossy_store=True)
        if store.generation != self._place.generation:
            store.close()
            raise StoreError("another store was put in the place of the one that this was started on")
        if self._place.computes:
            limit(resource.RLIMIT_AS, MEMORY_BYTES_MAX)
            store.keeper = Computing(store, self._hand_over, alone=self._place.alone)
        elif self._place.candidates_max is not None:  # else somebody waits for this one answer, and nobody else does
            store.keeper = Kept(store)
        return store, reading_app(store, self._place.candidates_max)

    def _hand_over(self, made: KeptReading) -> None:
        """Hand over a reading; each that is begun may take PROCESSOR_S from then on."""
        limit(resource.RLIMIT_CPU, int(time.process_time()) + PROCESSOR_S)
        self._say(Computed(made))


def limit(what: int, most: int) -> None:
    """Move a limit of this process, as far as it may."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
