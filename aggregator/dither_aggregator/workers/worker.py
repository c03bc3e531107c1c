"""A worker: processes that answer tasks until they are told to stop.

The parent consumes from the broker and touches no store; each of its processes has a connection of its own to it.
Processes end with their parent, also when it is killed.

This is the one file of the aggregator with names that their libraries do not document: `should_stop` in Celery's
`worker.state`, and billiard's bound on how often a process looks whether its results were read. Tried with Celery 5.7.0
and billiard 4.3.2; aggregator/pyproject.toml bounds both.
"""

import logging
import mmap
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import redis
from billiard import pool
from celery import Celery, signals
from celery.worker import WorkController, state

from dither_aggregator.operations.signal_handling import say_stacks_by_a_thread
from dither_aggregator.store import Store
from dither_aggregator.workers.brokers import address
from dither_aggregator.workers.candidate_jobs import run_job
from dither_aggregator.workers.handlers import TaskHandlers
from dither_aggregator.workers.intake import Intake
from dither_aggregator.workers.tasks import ESTIMATE, FOLD, LOOK, MAINTAIN, READ, TIME_LIMIT_S, TaskQueue, make_app

RESULTS_READ_WITHIN_TRIES = 5
"""One each tenth of a second."""
ENDED_WELL = "WorkerLostError('Worker exited prematurely: exitcode 0 "
"""In the words of billiard: a process that has ended, and whose last result was not read in time."""
CANNOT_CONNECT = "consumer: Cannot connect to %s: %s"
"""In those of Celery: the broker's address, and why."""
_NOT_FOR_PROCESSES = {signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

_log = logging.getLogger("dither_aggregator")

# A task may come while a worker ends, and be given back: kombu would warn about it each time.
logging.getLogger("kombu.transport.virtual").setLevel(logging.ERROR)


def work(
    open_: Callable[[], Store],
    data: str,
    generation: str,
    broker: str,
    secret: bytes,
    processes: int,
    queues: Sequence[str],
    ready: Callable[[], None],
) -> int:
    """Answer tasks until SIGTERM or SIGINT; return the exit code: 1 when it cannot use the store any more.

    `secret` is that of the store by which long lists are asked for.

    The first signal lets the steps that have begun end, the second ends at once: whatever a step was at, the store is
    made for that.
    """
    app = make_app(broker)
    orders = _Orders()
    handlers = TaskHandlers(open_, generation, TaskQueue(app).publish, orders.stopping, orders.give_up, data)
    _add_tasks(app, handlers, partial(run_job, data, generation, broker, secret))
    intake = Intake()
    app.steps["consumer"].add(intake.step())
    _connect_signals(handlers, orders)
    _filter_logs(address(broker), orders.stopping)
    # A process that ends waits for its parent to read its last results: up to 30 s, though nobody needs them.
    pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = RESULTS_READ_WITHIN_TRIES
    worker: Any = WorkController(
        app=app,
        hostname="dither",
        concurrency=processes,
        pool_cls="prefork",
        queues=list(queues),
        loglevel=logging.WARNING,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
        ready_callback=lambda _: ready(),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, orders.on_signal)
    worker.start()
    intake.say()
    return 1 if orders.gone or worker.exitcode else 0


class _Orders:
    """The orders and answers between parent and processes: two bytes of memory that they share."""

    def __init__(self) -> None:
        self._parent = os.getpid()
        self._shared = mmap.mmap(-1, 2)

    def stopping(self) -> bool:
        """Whether to begin nothing new."""
        return self._shared[0] != 0

    @property
    def gone(self) -> bool:
        """Whether a process found that it cannot use the store any more: another one, or one of a later dither."""
        return self._shared[1] != 0

    @property
    def orphaned(self) -> bool:
        """Whether the parent of this process, one of the worker's, is no more."""
        return os.getppid() != self._parent

    def give_up(self) -> None:
        """Stop the worker, from one of its processes."""
        if not self.gone:
            self._shared[1] = 1
            _log.critical("this worker cannot use the store any more, as the error before says: it stops")
            os.kill(self._parent, signal.SIGTERM)

    def on_signal(self, *_: object) -> None:
        """Let the parent's loop end; at once, when that was asked for before."""
        if os.getpid() != self._parent:
            return  # a process that has only begun, and has this from its parent
        if self.stopping():
            os._exit(1)
        self._shared[0] = 1
        state.should_stop = 0  # type: ignore[assignment]  # which raises it as the exit code


def _add_tasks(app: Celery, handlers: TaskHandlers, run_candidate_job: Callable[[object], None]) -> None:
    @app.task(name=FOLD, time_limit=TIME_LIMIT_S[FOLD])
    def fold(shard: object) -> None:
        handlers.fold(shard)

    @app.task(name=ESTIMATE, time_limit=TIME_LIMIT_S[ESTIMATE])
    def estimate(metric: object) -> None:
        handlers.estimate(metric)

    @app.task(name=MAINTAIN, time_limit=TIME_LIMIT_S[MAINTAIN])
    def maintain(shard: object) -> None:
        handlers.maintain(shard)

    @app.task(name=READ, time_limit=TIME_LIMIT_S[READ])
    def read(page: object) -> None:
        handlers.read(page)

    @app.task(name=LOOK, time_limit=TIME_LIMIT_S[LOOK])
    def look_for_many(ticket: object) -> None:
        try:
            run_candidate_job(ticket)
        except (redis.RedisError, msgspec.MsgspecError, OSError) as error:
            _log.error("a long list was not looked for: %s", error)


def _connect_signals(handlers: TaskHandlers, orders: _Orders) -> None:
    # billiard would have SIGUSR1 end a process, or be an exception in the middle of a count: there it stays blocked.
    # The others would end a process that has not come to ignore them.
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGUSR1, *_NOT_FOR_PROCESSES}),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, {signal.SIGUSR1, *_NOT_FOR_PROCESSES}),
    )

    def begin(**_: object) -> None:
        # Celery has just asked for a signal when the parent ends. None comes of a parent that had ended before, and
        # processes that hold one another's pipes open would wait for tasks for ever.
        if orders.orphaned:
            os._exit(1)
        # A supervisor may signal all processes: they are to end what they are at, as their parent asks them to.
        for number in _NOT_FOR_PROCESSES:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_PROCESSES)
        say_stacks_by_a_thread()

    def end(exitcode: int, **_: object) -> None:
        handlers.close()
        os._exit(exitcode)  # billiard would sleep for a second, in case that its parent wants to kill who has ended

    def keep_logging(**_: object) -> None:
        """Hear that Celery would set up logging, and so keep it from doing that."""

    signals.worker_process_init.connect(begin, weak=False)
    signals.worker_process_shutdown.connect(end, weak=False)
    signals.setup_logging.connect(keep_logging, weak=False)


def _filter_logs(broker: str, stopping: Callable[[], bool]) -> None:
    """Say in one line what is wrong with the broker, and nothing of processes that ended well as they were told to."""

    def shorten(record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(CANNOT_CONNECT) and isinstance(record.args, tuple):
            record.msg, record.args = "the broker, %s, cannot be reached: %s; trying again", (broker, record.args[1])
        if record.exc_info and isinstance(record.exc_info[1], redis.ConnectionError | OSError):
            record.exc_info = None  # a task that could not be acknowledged, because the broker was restarted
        return not (stopping() and ENDED_WELL in record.getMessage())

    for handler in logging.getLogger().handlers:
        handler.addFilter(shorten)
