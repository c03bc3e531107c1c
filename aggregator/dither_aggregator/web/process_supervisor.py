"""Several processes that answer on one address, and their parent, which replaces those that end.

A connection waits, and is not refused, while a process is being replaced. A process ends on SIGTERM, after the requests
that have begun; it sends that to itself when its parent is gone, however that ended.

Processes are forks of their parent, which has no thread, store or connection: so they have its programs at once.
"""

import gc
import logging
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple, Protocol

from dither_aggregator.health.capacity import Capacity
from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest.service import Service
from dither_aggregator.operations.fork_server import Address, Computer
from dither_aggregator.operations.signal_handling import say_stacks_on_sigusr1, set_up_logging
from dither_aggregator.store import StoreError, open_store
from dither_aggregator.web.addresses import BasePath
from dither_aggregator.web.endpoints import create_app
from dither_aggregator.web.http_messages import App
from dither_aggregator.web.http_server import DRAIN_WITHIN_S, Close, HttpServer
from dither_aggregator.web.listeners import Admitting, Listener
from dither_aggregator.web.process_messages import ReadingApp
from dither_aggregator.web.reader_pool import Readers
from dither_aggregator.web.request_admission import Admission
from dither_aggregator.web.request_limits import Limits
from dither_aggregator.workers.candidate_jobs import CandidateJobs, secret_of
from dither_aggregator.workers.tasks import Publisher, TaskQueue, make_app
from dither_shared.errors import ConfigurationError, DitherError
from dither_shared.safe_output import visible

KILL_AFTER_S = DRAIN_WITHIN_S + 10
"""From asking a process to end to ending it."""
LOOK_EVERY_S = 0.05
"""How long a signal or the end of a process may go unnoticed."""

_log = logging.getLogger("dither_aggregator")
_fork = multiprocessing.get_context("fork")
_ENDING = {signal.SIGINT, signal.SIGTERM}


class Opened(NamedTuple):
    """The application of one process, the admission before it, and a function that ends what may take long."""

    app: App
    admission: Admitting
    close: Close


class ServedApp(Protocol):
    """An application, to be opened in each process."""

    def open(self, opened: ExitStack) -> Opened:
        """Open it; what is to be closed goes on the stack. Raises DitherError."""


class HttpProcess(NamedTuple):
    """A server process, and a pipe that says when it answers."""

    process: BaseProcess
    ready: Connection

    def is_ready(self) -> bool:
        """Tell whether it has said that it answers; one that has ended says nothing more."""
        try:
            return self.ready.poll() and bool(self.ready.recv_bytes())
        except EOFError:
            return False


class HttpProcesses:
    """Processes that answer on one address. Raises as Listener does; connections wait from then on.

    To be made after `answer_signals`: processes inherit that SIGHUP does nothing, and look every second for what has
    changed. Signals by which other servers start and end processes do nothing either.
    """

    def __init__(self, app: ServedApp, public: Listener, health: Listener | None, processes: int) -> None:
        self._app, self._public, self._health = app, public, health
        self._processes, self._counted = processes, process_counters.shared_rows(processes)
        self._ending = False
        self._alive = os.pipe()
        """Its end that is written to is this process's alone: the other one hears when this is no more."""
        for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def serve(self, announce: Callable[[], None] = lambda: None) -> None:
        """Look after the processes until SIGINT or SIGTERM; call `announce` once all are ready.

        Raises ConfigurationError when one ends before that.
        """
        gc.freeze()  # else each process would copy all that is here, to look for garbage among it
        processes = [self._started(place) for place in range(self._processes)]
        failed = False
        waiting = list(processes)
        while not (self._ending or failed):
            time.sleep(LOOK_EVERY_S)
            for place, (process, _) in enumerate(processes):
                if process.is_alive():
                    continue
                failed = failed or bool(waiting)
                if not failed:
                    _log.error(
                        "server process %d ended with %d; another one takes its place", process.pid, process.exitcode
                    )
                    processes[place] = self._started(place)
            if waiting and not failed:
                waiting = [each for each in waiting if not each.is_ready()]
                if not waiting:
                    announce()
        self._end_all([process for process, _ in processes])
        if failed:
            raise ConfigurationError("a server process could not start; what it said stands above")

    def _end(self, *_: object) -> None:
        self._ending = True

    def _end_all(self, processes: list[BaseProcess]) -> None:
        """Ask the processes to end, wait for them, and kill those that do not."""
        for process in processes:
            process.terminate()
        for listener in (self._public, self._health):
            if listener:
                listener.socket.close()  # the processes close theirs: who comes now is refused, and need not wait
        deadline = time.monotonic() + KILL_AFTER_S
        for process in processes:
            process.join(max(deadline - time.monotonic(), 0))
            if process.is_alive():
                _log.error("server process %d had to be killed", process.pid)
                process.kill()
                process.join()

    def _started(self, place: int) -> HttpProcess:
        ready, says = _fork.Pipe(duplex=False)
        shared = process_counters.Shared(self._counted, place)
        process = _fork.Process(target=_serve, args=(self._app, self._public, self._health, shared, self._alive, says))
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until the process has handlers of its own
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        says.close()
        return HttpProcess(process, ready)


def _serve(
    served: ServedApp,
    public: Listener,
    health: Listener | None,
    shared: process_counters.Shared,
    alive: tuple[int, int],
    says: Connection,
) -> None:
    """Be a server process."""
    process_counters.share(shared)
    say_stacks_on_sigusr1()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGQUIT):  # a terminal's: the parent hears them too, and ends this one
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    parent, parents_own = alive
    os.close(parents_own)
    threading.Thread(target=_end_with, args=(parent,), name="lifeline", daemon=True).start()
    with ExitStack() as stack:
        try:
            opened = served.open(stack)
        except DitherError as error:
            print(f"dither: {visible(str(error))}", file=sys.stderr, flush=True)
            sys.exit(1)
        except Exception:
            _log.exception("a server process failed")
            sys.exit(1)
        server = HttpServer(opened.app, public, health, opened.admission, opened.close)
        signal.signal(signal.SIGTERM, lambda *_: server.stop())
        server.serve(lambda: says.send_bytes(b"ready"))


def _end_with(parent: int) -> None:
    """Ask this process to end when its parent has, and insist after a while."""
    poll = select.poll()
    poll.register(parent, 0)  # hears of the other end's close alone
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_AFTER_S)
    os._exit(1)


# A store in Redis, served: what each process of `dither api` has a copy of, and opens for itself.


READERS = 1
"""A process: there are several."""


@dataclass
class ServedStore:
    """Opens what one process needs of its own; that publishes tasks for what it wrote last before it is closed.

    A process that is started again takes up no other store: it would refuse the keys of this one for good.
    """

    data: str
    broker: str | None
    generation: str
    allow_lossy_store: bool
    hosts: tuple[str, ...]
    reachable: bool
    limits: Limits = field(default_factory=Limits)
    """The part of one process."""
    capacity: Capacity = field(default_factory=Capacity)
    base_path: BasePath = field(default_factory=BasePath)

    def open(self, opened: ExitStack) -> Opened:
        """Open what one process needs of its own."""
        set_up_logging()
        store = opened.enter_context(closing(open_store(self.data, allow_lossy_store=self.allow_lossy_store)))
        if store.generation != self.generation:
            raise StoreError("another store was put in the place of the one that this was started on: restart it")
        if self.broker:
            task_queue = opened.enter_context(closing(TaskQueue(make_app(self.broker))))
            publisher = opened.enter_context(Publisher(task_queue.publish))
            service = opened.enter_context(Service(store, publisher.reports_came, self.capacity))
            want: Callable[[Address], None] = publisher.want
        else:
            computer = Computer(store, self.data, alone=False)
            service = opened.enter_context(Service(store, capacity=self.capacity, computer=computer))
            want = service.want
        look_for_many = None
        if self.broker:
            jobs_queue = opened.enter_context(closing(TaskQueue(make_app(self.broker))))
            look_for_many = CandidateJobs(self.broker, secret_of(store), jobs_queue.publish).answer
        readers = Readers(self.data, self.generation, READERS, look_for_many, want)
        app = create_app(service, ReadingApp(readers.answer), self.hosts, reachable=self.reachable)
        return Opened(app, Admission(service, self.limits, self.base_path), readers.close)
