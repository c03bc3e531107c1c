"""A reader: a process that answers what pages and API are asked, one request after the other, and takes no upload.

It is nicer than the server: where both want a processor, the server has it. It ends when its pipe does.
"""

import logging
import os
import select
import sys
import threading
from typing import BinaryIO

import msgspec
from flask import Flask

from dither_aggregator.loading import give_way
from dither_aggregator.log import set_up_logging
from dither_aggregator.store import Store, StoreError, open_store
from dither_aggregator.web import problems
from dither_aggregator.web.exchange import LENGTH, Place, ReadAnswer, ReadRequest, encode
from dither_aggregator.web.packing import pack
from dither_aggregator.web.wsgi import reading_app, respond
from dither_shared.wire.problems import Problem

_log = logging.getLogger("dither_aggregator")


def main() -> None:
    """Answer until nobody asks any more."""
    give_way()
    asking, answering = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints is no answer
    threading.Thread(target=_end_with_server, args=(asking,), name="lifeline", daemon=True).start()
    set_up_logging()
    reader = _Desk(msgspec.msgpack.decode(_read(asking), type=Place))
    decoder = msgspec.msgpack.Decoder(ReadRequest)
    while said := _read(asking):
        answering.write(encode(reader.answer(decoder.decode(said))))
        answering.flush()


def _end_with_server(asking: BinaryIO) -> None:
    """End when nobody asks any more, also in the middle of a long answer."""
    poll = select.poll()
    poll.register(asking, 0)  # hears of the other end's close alone
    poll.poll()
    os._exit(0)


def _read(asking: BinaryIO) -> bytes:
    """Return what is said next, nothing at the end."""
    length = asking.read(LENGTH.size)
    return asking.read(LENGTH.unpack(length)[0]) if len(length) == LENGTH.size else b""


class _Desk:
    """Answers requests out of a store, which is opened at the first of them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._opened: tuple[Store, Flask] | None = None

    def answer(self, asked: ReadRequest) -> ReadAnswer:
        """Answer a request."""
        try:
            store, app = self._opened = self._opened or self._open()
            store.refresh()
        except StoreError as error:
            _log.error("a reader: %s", error)
            return pack(problems.respond(Problem("unavailable", "the store cannot be read")))
        except Exception as error:
            return pack(problems.respond(problems.failure(error)))
        return respond(app, asked)

    def _open(self) -> tuple[Store, Flask]:
        store = open_store(self._place.data, read_only=True, allow_lossy_store=True)
        if store.generation != self._place.generation:
            store.close()
            raise StoreError("another store was put in the place of the one that this was started on")
        return store, reading_app(store, self._place.candidates_max)


if __name__ == "__main__":
    main()
