"""Several processes that answer on one address: uvicorn's supervisor, which also tells what went wrong.

A connection waits, and is not refused, while a process is being replaced. A process ends on SIGTERM, after the requests
that have begun; it sends that to itself when its parent is gone, however that ended.
"""

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from uvicorn.supervisors.multiprocess import Multiprocess, Process

from dither_aggregator.ingest import counters
from dither_aggregator.operations.signal_handling import answer_signals, say_stacks_on_sigusr1
from dither_aggregator.web.listener import Listener
from dither_aggregator.web.listener_connections import Admitting
from dither_aggregator.web.server import DRAIN_WITHIN_S, Server, configured
from dither_shared.errors import ConfigurationError

KILL_AFTER_S = DRAIN_WITHIN_S + 10
"""From asking a process to end to ending it."""
LOOK_EVERY_S = 0.05
"""How long a signal or the end of a process may go unnoticed, once all are ready.

Until then each look asks every process whether it is.
"""

_log = logging.getLogger("dither_aggregator")


class ServedApp(Admitting, Protocol):
    """An ASGI application that can be pickled; its lifespan opens in each process what that needs."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or live."""

    async def close(self) -> None:
        """End what may take long."""


class HttpProcess(Process):
    """A server process: uvicorn's, with our server in it."""

    health_port: int | None = None
    counted: counters.Shared

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Be a server process."""
        counters.share(self.counted)
        say_stacks_on_sigusr1()
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # a terminal's: the parent hears it too, and ends this one
        threading.Thread(target=_end_with_parent, name="lifeline", daemon=True).start()
        app = cast("ServedApp", self.config.app)
        self._server = Server(self.config, self.health_port, app, app.close)
        super().target(sockets)

    def is_ready(self, timeout: float = 5) -> bool:
        """Tell whether it answers, and its server has started, by its latest answer.

        A process that is still being started answers late, and then all that it was asked meanwhile.
        """
        ready = super().is_ready(timeout)
        with suppress(OSError, EOFError):  # it has ended: who looks after it sees that next
            while self.parent_conn.poll():
                ready = self.parent_conn.recv()
        return ready


class HttpProcesses(Multiprocess):
    """Processes that answer on one address. Raises as Listener does; connections wait from then on.

    SIGHUP ends nothing: a process looks every second for what has changed.
    """

    def __init__(self, app: ServedApp, public: Listener, health: Listener | None, processes: int) -> None:
        listeners = [each for each in (public, health) if each]
        config = configured(app, lifespan="on", workers=processes)
        super().__init__(config, [listener.socket for listener in listeners])
        answer_signals()  # which uvicorn has taken; processes inherit that SIGHUP does nothing
        self._health_port = health.port if health else None
        self._counted = counters.shared_rows(processes)
        self._announce: Callable[[], None] | None = None
        self._failed = False

    def serve(self, announce: Callable[[], None] = lambda: None) -> None:
        """Look after the processes until SIGINT or SIGTERM; call `announce` once all are ready.

        Raises ConfigurationError when one ends before that.
        """
        self._announce = announce
        self.run()
        if self._failed:
            raise ConfigurationError("a server process could not start; what it said stands above")

    def run(self) -> None:
        """Look after the processes until told to end. uvicorn would look twice a second."""
        self.init_processes()
        while not self.should_exit.wait(LOOK_EVERY_S):
            self.handle_signals()
            self.keep_subprocess_alive()
        self.terminate_all()
        self.join_all()

    def init_processes(self) -> None:
        """Start them all."""
        self.processes = [self._started(place) for place in range(self.processes_num)]

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have ended, and announce that all are ready.

        uvicorn would also kill a process that does not answer within seconds, as on a busy machine none does that is
        still being started.
        """
        for place, process in enumerate(self.processes):
            if process.process.is_alive():
                continue
            process.join()
            if self._announce:
                self._failed = True
                self.should_exit.set()
                return
            _log.error("server process %d ended with %d; another one takes its place", process.pid, process.exitcode)
            self.processes[place] = self._started(place)
        if self._announce and all(process.is_ready(timeout=0.1) for process in self.processes):
            announce, self._announce = self._announce, None
            announce()

    def handle_ttin(self) -> None:
        """Start no more: a process of uvicorn's own would not be one of ours."""

    def handle_ttou(self) -> None:
        """End none."""

    def join_all(self) -> None:
        """Wait for the processes that were asked to end, and end those that do not."""
        for listener in self.sockets:
            listener.close()  # the processes close theirs: who comes now is refused, and need not wait
        deadline = time.monotonic() + KILL_AFTER_S
        for process in self.processes:
            process.process.join(max(deadline - time.monotonic(), 0))
            if process.process.is_alive():
                _log.error("server process %d had to be killed", process.pid)
                process.kill()
                process.join()

    def _started(self, place: int) -> HttpProcess:
        process = HttpProcess(self.config, self.sockets)
        process.health_port = self._health_port
        process.counted = counters.Shared(self._counted, place)
        process.start()
        return process


def _end_with_parent() -> None:
    """Ask this process to end when its parent has, and insist after a while."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_AFTER_S)
    os._exit(1)
