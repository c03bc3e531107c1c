"""Several processes that answer on one address, and one that looks after them.

The parent holds the listening socket and forks workers that share it, so that a connection waits, and is not refused,
while a worker is being replaced. A worker ends on SIGTERM, after the requests that have begun. It sends that to itself
when its parent is gone, however that ended: it reads from a pipe whose other end only the parent has.
"""

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NoReturn
from wsgiref.types import WSGIApplication

from dither_aggregator.web.server import DRAIN_WITHIN_S, Listener, ListenerServer
from dither_shared.errors import ConfigurationError, DitherError

KILL_AFTER_S = DRAIN_WITHIN_S + 10
"""From asking a worker to end to ending it."""
RESTART_AFTER_S = 1.0
"""The least time from one start of a worker to that of the one in its place."""

_END = {signal.SIGINT, signal.SIGTERM}
_SIGNALS = {*_END, signal.SIGHUP, signal.SIGCHLD}
_READY = 255
"""What a worker tells its parent, in a byte; signals tell their number."""

_log = logging.getLogger("dither_aggregator")


@dataclass(frozen=True)
class Worker:
    """What a worker process runs: an application, and what it does on SIGHUP, on a thread of its own."""

    app: WSGIApplication
    reload: Callable[[], None]


class HttpProcesses:
    """Workers that answer on one address. Raises as Listener does; connections wait from then on.

    `open_worker` is called in each worker, after the fork: threads and connections belong there. It is closed when the
    worker has answered its last request. The parent must have no threads, and run in its main one.
    """

    def __init__(
        self,
        open_worker: Callable[[], AbstractContextManager[Worker]],
        host: str,
        port: int,
        processes: int,
    ) -> None:
        self._open_worker = open_worker
        self._listener = Listener(host, port)
        self._workers: dict[int, float] = {}
        """When each was started, by its process id, until it is reaped."""
        self._due = [0.0] * processes
        """From when on workers that are missing may be started."""
        self.url = self._listener.url
        self.reachable_from_elsewhere = self._listener.reachable_from_elsewhere

    def run(self, announce: Callable[[], None] = lambda: None) -> None:
        """Look after the workers until SIGINT or SIGTERM; call `announce` once all are ready. SIGHUP is passed on.

        Raises ConfigurationError when a worker ends before that.
        """
        self._lifeline, self._life = os.pipe()
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        try:
            with self._hearing():
                try:
                    self._look_after(announce)
                finally:
                    self._end_all()
        finally:
            for end in (self._lifeline, self._life, self._ear, self._mouth):
                os.close(end)

    def _look_after(self, announce: Callable[[], None]) -> None:
        missing = len(self._due)
        while True:
            self._start_due()
            told = self._listen(min(self._due, default=None))
            if _END.intersection(told):
                return
            if signal.SIGHUP in told:
                self._signal_all(signal.SIGHUP)
            for pid, status in self._reap():
                if missing > 0:
                    raise ConfigurationError("a worker could not start; what it said stands above")
                _log.error("worker %d ended with %d; another one takes its place", pid, status)
            if missing > 0:
                missing -= told.count(_READY)
                if missing <= 0:
                    announce()

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Have signals write into the pipe that workers write into."""
        wakeup = signal.set_wakeup_fd(self._mouth, warn_on_full_buffer=False)
        before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)

    def _listen(self, until: float | None) -> bytes:
        """Return what was told, or nothing when it is time."""
        within_s = None if until is None else max(until - time.monotonic(), 0.0)
        select.select([self._ear], [], [], within_s)
        with suppress(BlockingIOError):
            return os.read(self._ear, 4096)
        return b""

    # Its workers.

    def _start_due(self) -> None:
        now = time.monotonic()
        for due in [due for due in self._due if due <= now]:
            self._due.remove(due)
            self._workers[self._fork()] = now

    def _fork(self) -> int:
        """Start a worker. Signals wait until it knows what to do with them."""
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._work()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return pid

    def _reap(self) -> list[tuple[int, int]]:
        """Return the workers that have ended, with their exit status: that of a signal is negative."""
        ended = []
        for pid in list(self._workers):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                ended.append((pid, os.waitstatus_to_exitcode(status)))
                self._due.append(self._workers.pop(pid) + RESTART_AFTER_S)
        return ended

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._workers:  # not reaped yet, so the number is nobody else's
            os.kill(pid, number)

    def _end_all(self) -> None:
        self._listener.socket.close()  # the workers close theirs: who comes now is refused, and need not wait
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + KILL_AFTER_S
        while self._workers:
            self._listen(deadline)
            self._reap()
            if self._workers and time.monotonic() > deadline:
                _log.error("%d workers had to be killed", len(self._workers))
                self._signal_all(signal.SIGKILL)
                deadline += KILL_AFTER_S

    # A worker.

    def _work(self) -> NoReturn:
        """Be a worker, and end with it: what the parent has begun is not for a worker to finish."""
        status = 1
        try:
            reloads = self._become_worker()
            with self._open_worker() as worker:
                self._serve(worker, reloads)
            status = 0
        except DitherError as error:
            print(f"dither: {error}", file=sys.stderr)
        except Exception:
            _log.exception("a worker failed")
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _become_worker(self) -> "SimpleQueue[None]":
        """Let go of what is the parent's. Until the worker serves, SIGTERM ends it at once."""
        signal.set_wakeup_fd(-1)
        os.close(self._life)
        os.close(self._ear)
        reloads: SimpleQueue[None] = SimpleQueue()
        signal.signal(signal.SIGHUP, lambda *_: reloads.put(None))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent hears it too
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        threading.Thread(target=_end_with_parent, args=(self._lifeline,), name="lifeline", daemon=True).start()
        return reloads

    def _serve(self, worker: Worker, reloads: "SimpleQueue[None]") -> None:
        threading.Thread(target=_reload, args=(worker, reloads), name="reload", daemon=True).start()
        server = ListenerServer(worker.app, self._listener)
        signal.signal(signal.SIGTERM, lambda *_: server.stop())
        os.write(self._mouth, bytes([_READY]))
        os.close(self._mouth)
        server.run()


def _end_with_parent(lifeline: int) -> None:
    """Ask this process to end when the last copy of the lifeline's other end is closed; insist after a while."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_AFTER_S)
    os._exit(1)


def _reload(worker: Worker, reloads: "SimpleQueue[None]") -> None:
    while True:
        reloads.get()
        try:
            worker.reload()
        except Exception:  # the worker goes on with what it has
            _log.exception("cannot load again")
