"""A worker: processes that answer tasks until they are told to stop.

The parent consumes from the broker and touches no store; each of its processes has a connection of its own to it.
Processes end with their parent, also when it is killed.

This is the one file of the aggregator with names that their libraries do not document: `should_stop` in Celery's
`worker.state`, and billiard's bound on how often a process looks whether its results were read. Tried with Celery 5.7.0
and billiard 4.3.2; aggregator/pyproject.toml bounds both.
"""

import base64
import fcntl
import json
import logging
import mmap
import os
import re
import secrets
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import redis
from billiard import pool
from celery import Celery, bootsteps, signals
from celery.worker import WorkController, state

from dither_aggregator.operations import maintenance
from dither_aggregator.operations.fork_server import Address, Computer, unmade
from dither_aggregator.operations.signal_handling import say_stacks_by_a_thread
from dither_aggregator.store import Store, StoreError, StoreUnavailable
from dither_aggregator.workers.candidate_jobs import run_job
from dither_aggregator.workers.tasks import (
    ESTIMATE,
    FOLD,
    LOOK,
    MAINTAIN,
    READ,
    TIME_LIMIT_S,
    BrokerError,
    Task,
    TaskQueue,
    address,
    make_app,
)
from dither_shared.errors import DitherError

# The intake of a worker: of all that lies in its queues it takes tasks, and drops whatever else is there.
#
# Celery and its transport trust a broker: a message that is no JSON, or whose headers have another shape, ends a
# worker; one for a later time holds a place for ever; others are logged with all that they hold. Many may be able to
# write to a broker, and no message is worth anything, so none of them is handed on: a task is read out of it, within
# bounds, and a message of ours is made of the task.
#
# Redis's answers come by here before the transport sees them, by the client's own means for that. An answer that is
# none is what the transport gets when its wait was over, and it waits again.


MESSAGE_BYTES_MAX = 4_096
"""A task of ours has about 800, most of them Celery's headers."""
SHARD_MAX = 65_535
LOG_EVERY_S = 60.0
_READS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys((FOLD, MAINTAIN), lambda about: type(about) is int and 0 <= about <= SHARD_MAX),
    **dict.fromkeys(
        (ESTIMATE, LOOK), lambda about: isinstance(about, str) and bool(re.fullmatch("[a-z0-9_]{1,64}", about))
    ),
    READ: lambda about: isinstance(about, str) and _is_page(about),
}
"""By kind, whether there may be a shard of that number, or a metric or ticket of that name."""

_log = logging.getLogger("dither_aggregator")


class _Headers(msgspec.Struct):
    task: str


class _Message(msgspec.Struct):
    """The parts of Celery's message that say what a task says."""

    body: str
    headers: _Headers


_decode_message = msgspec.json.Decoder(_Message).decode
_decode_body = msgspec.json.Decoder(tuple[tuple[int | str], Any, Any]).decode


def _is_page(text: str) -> bool:
    try:
        return Address.parse(text).is_short
    except ValueError:
        return False


def read_task(queue: str, message: bytes) -> Task:
    """Read the task that a message in a queue says. Raises ValueError for any other message, with what it is."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise ValueError("too long")
    try:
        decoded = _decode_message(message)
        (about,), _, _ = _decode_body(base64.b64decode(decoded.body, validate=True))
    except (ValueError, RecursionError):  # msgspec's and base64's own are among them
        raise ValueError("not a message of Celery's with one argument") from None
    if decoded.headers.task != queue or not _READS[queue](about):
        raise ValueError("for another queue, or about what there cannot be")
    return Task(queue, about)


def write_task(task: Task) -> bytes:
    """Return the message that Celery is handed: none of it but the task comes from the broker."""
    id_ = secrets.token_hex(16)
    body = json.dumps([[task.about], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    message = {
        "body": base64.b64encode(body.encode("ascii")).decode("ascii"),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": task.kind, "id": id_, "root_id": id_, "retries": 0, "ignore_result": True},
        "properties": {
            "correlation_id": id_,
            "delivery_tag": id_,
            "delivery_info": {"exchange": "", "routing_key": task.kind},
            "body_encoding": "base64",
        },
    }
    return json.dumps(message).encode("ascii")


class Intake:
    """Reads what the broker answers, and counts what it drops."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.dropped: Counter[str] = Counter()
        """How many messages were dropped, by what they were."""
        self._clock = clock
        self._logged = 0
        self._say_at = clock()

    def take(self, answer: Sequence[bytes] | None, **_: object) -> tuple[bytes, bytes] | None:
        """Return the queue and message that Redis answered, made anew; None where there is none, or no task."""
        if not answer:
            return None
        queue, message = answer
        try:
            return queue, write_task(read_task(queue.decode("utf-8"), message))
        except ValueError as error:
            self.dropped[str(error)] += 1
        if self._clock() >= self._say_at:
            self.say()
        return None

    def say(self) -> None:
        """Log how many messages were dropped so far, if there are more than were said."""
        if (total := self.dropped.total()) > self._logged:
            reason = "; ".join(f"{n:,} {what}" for what, n in self.dropped.items())
            _log.warning("dropped %s messages of the broker that are no tasks: %s", f"{total:,}", reason)
            self._logged, self._say_at = total, self._clock() + LOG_EVERY_S

    def step(self) -> type[bootsteps.StartStopStep]:
        """Return the step by which a worker's consumer takes all that it hears by here, after each connection."""
        intake = self

        class BellsAlone(bootsteps.StartStopStep):
            requires = ("celery.worker.consumer.tasks:Tasks",)

            def start(self, c: Any) -> None:
                c.task_consumer.channel.client.set_response_callback("BRPOP", intake.take)

        return BellsAlone


# The answers of a worker's process to tasks.


FOLD_FOR_S = 10.0
"""How long one task may keep a process folding while others wait for it."""
COMPUTE_FOR_S = 10.0
"""How long it may keep one computing pages. A page that takes longer is computed to its end."""

COMPUTER_KEPT_S = 60.0
"""How long a process that computes waits for the next page: it takes a second to start."""


class _Turn:
    """Whose turn it is to compute: one process of a worker, so that the others are there for what uploads need.

    Made before the processes are forked. It ends with the process that has it, however that ends.
    """

    def __init__(self) -> None:
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the worker
        self._wanted, self._want = os.pipe()
        for end in (self._wanted, self._want):
            os.set_blocking(end, False)

    def want(self, page: Address) -> None:
        """Have whoever has the turn, or takes it next, compute a page; it may be forgotten where many are wanted."""
        with suppress(BlockingIOError):
            os.write(self._want, f"{page}\n".encode())

    def wanted(self) -> list[Address]:
        """Return the pages that are wanted, once."""
        try:
            return [Address.parse(page) for page in os.read(self._wanted, 1 << 16).decode().splitlines()]
        except BlockingIOError:
            return []

    def take(self) -> bool:
        """Take the turn, if nobody has it."""
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def give_back(self) -> None:
        """Let another process take it."""
        fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give back what it holds of the system, in this process."""
        self._lock.close()
        for end in (self._wanted, self._want):
            os.close(end)


class TaskHandlers:
    """Answers tasks in one process, with a store of its own that is opened at the first of them.

    A step that fails is left to the next task. `gone` is called when no step can be taken any more: the store
    is not the one of this `generation`, or one of a later dither.
    """

    def __init__(
        self,
        open_: Callable[[], Store],
        generation: str,
        publish: Callable[[Sequence[Task]], None],
        stopping: Callable[[], bool],
        gone: Callable[[], None],
        data: str,
    ) -> None:
        self._open = open_
        self._generation = generation
        self._publish = publish
        self._stopping = stopping
        self._gone = gone
        self._data = data
        self._store: Store | None = None
        self._turn = _Turn()
        self._computer: Computer | None = None
        self._computed_at = 0.0
        self._unavailable = False
        self._unknown, self._say_unknown_at = 0, time.monotonic()

    def close(self) -> None:
        """Close the store, and end the process that computes."""
        self._end_computer()
        self._turn.close()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def fold(self, shard: object) -> None:
        """Fold what waits in a shard; publish another task when that takes long, so that others are answered
        between."""
        self._answer(shard, self._fold)

    def maintain(self, shard: object) -> None:
        """Seal, compact, forget what a shard need not keep, and merge."""
        self._answer(shard, self._maintain)

    def estimate(self, metric: object) -> None:
        """Finalize the epochs of a metric, each with its snapshot."""
        self._answer(metric, self._estimate)

    def read(self, page: object) -> None:
        """Have what is missing of a page computed, and then what nobody has asked for yet; by one process at a time.

        Publish more tasks when that takes long, so that others are answered between.
        """
        self._answer(page, self._read)

    def _read(self, store: Store, page: object) -> None:
        try:
            self._turn.want(Address.parse(str(page)))
        except ValueError:
            raise _UnknownTask(f"{page!r} is no page") from None
        if not self._turn.take():
            return
        deadline = time.monotonic() + COMPUTE_FOR_S
        try:
            pages: dict[Address, None] = {}
            ahead = unmade(store)
            while pages := self._pages(pages, ahead):
                if self._stopping() or time.monotonic() > deadline:
                    break
                self._compute(store, pages.popitem()[0])
        finally:
            self._turn.give_back()
        pages |= dict.fromkeys(self._turn.wanted())  # of a process that has just found the turn taken
        if pages and not self._stopping():
            self._publish([Task(READ, str(page)) for page in pages])

    def _pages(self, pages: dict[Address, None], ahead: Iterator[Address]) -> dict[Address, None]:
        """Return the pages to compute, the next one last: what was wanted latest, or what nobody wanted yet."""
        wanted = {**pages, **dict.fromkeys(self._turn.wanted())}
        return wanted or dict.fromkeys(islice(ahead, 1))

    def _compute(self, store: Store, page: Address) -> None:
        self._computer = self._computer or Computer(store, self._data, alone=False)
        try:
            self._computer.compute(page, self._stopping)
        finally:
            self._computed_at = time.monotonic()

    def _fold(self, store: Store, shard: object) -> None:
        number = _shard(store, shard)
        deadline = time.monotonic() + FOLD_FOR_S
        store.fold_all(number, lambda: self._stopping() or time.monotonic() > deadline)
        if time.monotonic() > deadline:
            self._publish([Task(FOLD, number)])

    def _maintain(self, store: Store, shard: object) -> None:
        number = _shard(store, shard)
        maintenance.maintain(store, number)
        if number == 0 and (refused := maintenance.maintain_whole(store)):  # once a round
            _log.warning("%s", refused)

    def _estimate(self, store: Store, metric: object) -> None:
        if not isinstance(metric, str) or not store.plans(metric):
            raise _UnknownTask(f"there is no metric {metric!r}")
        maintenance.finalize(store, metric)

    def _end_computer(self) -> None:
        computer, self._computer = self._computer, None
        if computer:
            computer.close()

    def _answer(self, about: object, step: Callable[[Store, object], None]) -> None:
        if time.monotonic() - self._computed_at > COMPUTER_KEPT_S:
            self._end_computer()  # tasks of every minute give its memory back
        try:
            store = self._opened()
            store.refresh()
            step(store, about)
        except _UnknownTask as error:
            self._unknown += 1
            if time.monotonic() >= self._say_unknown_at:
                _log.warning("tasks that were not for this store: %s", f"{self._unknown:,}")
                self._say_unknown_at = time.monotonic() + LOG_EVERY_S
            _log.debug("%s", error)
        except BrokerError as error:
            _log.warning("%s; beat publishes tasks for what is left", error)
        except StoreUnavailable as error:
            if not self._unavailable:
                _log.error("%s; the work is left to the next tasks", error)
            self._unavailable = True
        except StoreError as error:
            _log.error("%s", error)
            self._see_whether_it_is_gone()
        except DitherError as error:
            _log.error("%s", error)
        else:
            if self._unavailable:
                _log.warning("the store can be used again")
            self._unavailable = False

    def _opened(self) -> Store:
        if self._store is None:
            store = self._open()
            if store.generation != self._generation:
                store.close()
                raise StoreError("another store was put in the place of the one that this worker was started on")
            self._store = store
        return self._store

    def _see_whether_it_is_gone(self) -> None:
        """Stop the worker when no task can be answered any more, and not when one shard is damaged."""
        try:
            self._opened().refresh()
        except StoreUnavailable:
            pass
        except StoreError:
            self._gone()


class _UnknownTask(Exception):
    """A task for a shard, a metric or a page there is not: it is dropped."""


def _shard(store: Store, shard: object) -> int:
    if not isinstance(shard, int) or not 0 <= shard < store.shards:
        raise _UnknownTask(f"there is no shard {shard!r}")
    return shard


RESULTS_READ_WITHIN_TRIES = 5
"""One each tenth of a second."""
ENDED_WELL = "WorkerLostError('Worker exited prematurely: exitcode 0 "
"""In the words of billiard: a process that has ended, and whose last result was not read in time."""
CANNOT_CONNECT = "consumer: Cannot connect to %s: %s"
"""In those of Celery: the broker's address, and why."""
_NOT_FOR_PROCESSES = {signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


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
