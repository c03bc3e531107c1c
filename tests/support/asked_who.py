"""Processes that answer who they are: an application for the tests of their parent, without what it takes to test."""

import asyncio
import logging
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dither_aggregator.operations.signal_handling import answer_signals
from dither_aggregator.store import StoreError
from dither_aggregator.web.http_messages import HttpAnswer, Scope
from dither_aggregator.web.listeners import Admitting, Listener
from dither_aggregator.web.process_supervisor import HttpProcesses, Opened
from dither_shared.wire import PATH

WORKERS = 2


@dataclass
class Who:
    """An application that answers which process it is; each leaves a file when it ends as it should."""

    directory: Path
    slow_s: float
    parent: int

    def open(self, opened: ExitStack) -> Opened:
        if (self.directory / "fail").exists():
            raise StoreError("there is no store")
        opened.callback(lambda: (self.directory / f"ended-{os.getpid()}").touch())
        return Opened(self.answer, Admitting(), self.close)

    async def answer(self, scope: Scope, body: bytes) -> HttpAnswer:
        if scope["path"] == PATH:
            (self.directory / "came").touch()
            await asyncio.sleep(self.slow_s)
        return HttpAnswer(200, [], b"%d" % os.getpid())

    async def close(self) -> None:
        (self.directory / f"closed-{os.getpid()}").touch()


def main(directory: Path, slow_s: float) -> None:
    """Run processes that answer who they are."""
    logging.basicConfig(format="%(message)s")
    answer_signals()
    listener = Listener("127.0.0.1", 0)
    processes = HttpProcesses(Who(directory, slow_s, os.getpid()), listener, None, WORKERS)
    processes.serve(lambda: print(listener.url, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
