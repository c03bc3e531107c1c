"""Tasks: messages that say where to look, and nothing else; the Celery that carries them, and who publishes them.

Nothing depends on a task being received. The watchdog publishes another where something waits, so a task has no expiry,
which would be compared between the clocks of two machines; a full queue gets none instead.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from datetime import date
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis
from celery import Celery
from kombu import Connection, Queue

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.health.checks import LAG_MAX_S
from dither_aggregator.ingest.service import MAINTAIN_EVERY_S
from dither_aggregator.operations import fork_server, maintenance
from dither_aggregator.operations.fork_server import Address
from dither_aggregator.store import Store, StoreUnavailable
from dither_aggregator.store.records import ShardStatus, StoreError
from dither_aggregator.store.redis.client import Client, connect
from dither_shared.errors import ConfigurationError, DitherError

# Any Redis may carry tasks but the store's own.


SCHEMES = ("redis", "rediss")
PORT = 6379


def address(url: str) -> str:
    """Return the address of a Redis as people are told it: without a user and password."""
    with closing(Client(url)) as client:
        return client.name


def check_broker(broker: str, data: str) -> None:
    """Raise ConfigurationError for what cannot be the broker of a store. It need not be reachable.

    Tasks in the store's own Redis would be synced to the disk one by one, and what may fill up or be emptied without
    harm would share the memory of what may not.
    """
    if not broker.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        raise ConfigurationError("the broker must be a Redis: redis://[:PASSWORD@]HOST:PORT/0")
    try:
        name = address(broker)
    except StoreError as error:
        raise ConfigurationError(str(error)) from None
    if _places(broker) & _places(data) or _run_ids(broker) & _run_ids(data):
        raise ConfigurationError(
            f"the broker, {name}, is the store's own Redis: start another redis-server for it. Tasks may be lost and "
            "may fill a Redis; reports must not be, and wait for the disk"
        )


def _places(url: str) -> set[tuple[str, int]]:
    """Return where a Redis listens: every address that its host's name means, with the port."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {(parts.path, 0)}
    places: set[tuple[str, int]] = set()
    for node in map(urlsplit, (f"//{each}" for each in parts.netloc.rpartition("@")[2].split(","))):
        host, port = node.hostname or "localhost", node.port or PORT
        try:
            places |= {(str(found[4][0]), port) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except OSError:
            places.add((host, port))
    return places


def _run_ids(url: str) -> set[str]:
    """Return what a running Redis calls itself, whatever its address; of a cluster, what each node does."""
    try:
        with closing(connect(url)) as client:
            return {str(one["run_id"]) for one in client.information() if "run_id" in one}
    except StoreError:
        return set()


FOLD, ESTIMATE, MAINTAIN, LOOK, READ = "fold", "estimate", "maintain", "look", "read"
QUEUES = (FOLD, ESTIMATE, MAINTAIN, LOOK, READ)
"""Each kind of task has a queue, so that workers can be set apart for one."""
WAITING_MAX = 1_000
"""Tasks of a kind that may wait. More would say the same again, and fill a broker whose workers are down."""
PAGES_MAX = 64
"""Pages that may wait to be computed: whoever reads one that waits asks again every few seconds."""
FLOOD = 10 * WAITING_MAX
"""A queue that is longer was filled by somebody else: ten processes that publish at once stay below it."""

TIME_LIMIT_S = {FOLD: 120, ESTIMATE: 3_600, MAINTAIN: 600, LOOK: 360, READ: 3_600}
"""After which a process is killed, which hurts nothing. There is no soft limit before it: an exception out of nowhere,
while reports are being counted, would look like reports that cannot be counted."""
PROCESS_STARTS_WITHIN_S = 60.0
CONNECT_TIMEOUT_S = 5
REPLY_TIMEOUT_S = 10
IDLE_CHECK_S = 30


_log = logging.getLogger("dither_aggregator")


class Task(NamedTuple):
    """A kind of work, and the shard, metric, ticket or page that it is for."""

    kind: str
    about: int | str


class BrokerError(DitherError):
    """The broker cannot be reached, or takes no tasks. Nothing is lost by it but time."""


def make_app(broker: str) -> Celery:
    """Return the Celery that carries tasks over a Redis."""
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"):
        os.environ.pop(name, None)  # Celery would take them over what was checked
    app = Celery("dither", broker=broker, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_queues=[Queue(name) for name in QUEUES],
        task_default_queue=FOLD,
        task_create_missing_queues=False,
        task_acks_late=True,  # a process takes a task when it is free, not while it is at another
        task_reject_on_worker_lost=False,  # a task that kills its process would do it again at once
        task_send_sent_event=False,
        worker_send_task_events=False,
        worker_proc_alive_timeout=PROCESS_STARTS_WITHIN_S,
        worker_enable_remote_control=False,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=CONNECT_TIMEOUT_S,
        broker_channel_error_retry=True,  # else a key of another type in a queue's place ends a worker
        broker_pool_limit=1,
        broker_transport_options={
            # The broker forgets a task when it hands it out. Kombu's emulated acknowledgements would bring the tasks of
            # a killed worker back after an hour, beat does within seconds; and one that failed, because the broker was
            # restarted, would count as a task in hand for ever: with `prefetch` of them a worker hears nothing more.
            "ack_emulation": False,
            "priority_steps": [0],  # one list a queue
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_timeout": REPLY_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": IDLE_CHECK_S,
        },
    )
    return app


def waiting_in(channel: Any, queue: str) -> int:
    """Return how many tasks wait in a queue. One that others have flooded, or that is no list, is emptied first.

    So is what Kombu keeps beside it, if it is no set: no worker could listen.
    """
    client = channel.client
    for key in (channel.keyprefix_queue, channel.keyprefix_binding_permanent):
        if _size(client.scard, key % queue) is None:
            _empty(client, key % queue)
    waiting = _size(client.llen, queue)
    if waiting is not None and waiting <= FLOOD:
        return waiting
    _empty(client, queue)
    return 0


def _size(count: Callable[[str], Any], key: str) -> int | None:
    """Return how many are in a list or a set; None if it is something else."""
    try:
        return int(count(key))
    except redis.ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return None


def _empty(client: Any, key: str) -> None:
    client.unlink(key)
    _log.warning(
        "emptied the queue %s, which held what no dither publishes; beat publishes tasks again for what waits", key
    )


class TaskQueue:
    """Publishes tasks at a broker. For one thread."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Connection | None = None
        self._channel: Any = None

    def publish(self, tasks: Iterable[Task]) -> None:
        """Publish tasks, but for those of which too many wait; raise BrokerError when the broker does not take them."""
        try:
            self._publish(list(tasks))
        except Exception as error:  # of Redis, of sockets, of what stands between them and us
            self.close()
            raise BrokerError(
                f"the broker, {address(self._app.conf.broker_url)}, takes no tasks: {str(error).rstrip('.')}"
            ) from None

    def _publish(self, tasks: list[Task]) -> None:
        if self._connection is None:
            self._connection = self._app.connection_for_write()
            self._channel = self._connection.channel()
        waiting = {kind: waiting_in(self._channel, kind) for kind in QUEUES}
        producer = self._app.amqp.Producer(self._channel, auto_declare=False)
        for kind, about in tasks:
            if waiting[kind] < (PAGES_MAX if kind == READ else WAITING_MAX):
                self._app.send_task(kind, (about,), queue=kind, producer=producer, retry=False, ignore_result=True)
                waiting[kind] += 1

    def close(self) -> None:
        """Let go of the connection; the next task makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()


# The publisher of an API process: tasks for the shards that got reports, and for pages that wait to be computed.


PUBLISH_EVERY_S = 3.0
"""How long reports may gather once a shard has a task. A task costs 2 ms in all, a fold a commit and its vectors."""
RETRY_MAX_S = 30.0
STOP_WITHIN_S = 2.0


class Publisher:
    """Publishes tasks from a thread of its own, so that neither a slow broker nor a lost one is felt. Use as a context
    manager.

    It keeps tasks that it cannot publish until the broker is back; the watchdog makes up for any that it never
    publishes.
    """

    def __init__(self, publish: Callable[[Sequence[Task]], None], every_s: float = PUBLISH_EVERY_S) -> None:
        self._publish = publish
        self._every_s = every_s
        self._lock = threading.Lock()
        self._shards: set[int] = set()
        self._pages: set[Address] = set()
        self._came = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Publish tasks for what came, unless the broker is slow or lost, and stop."""
        self._stopping.set()
        self._came.set()
        self._thread.join(STOP_WITHIN_S)

    def reports_came(self, shards: Collection[int]) -> None:
        """Take notice that shards have reports to fold; return at once."""
        with self._lock:
            self._shards.update(shards)
        self._came.set()

    def want(self, page: Address) -> None:
        """Take notice of a page of which a part is not computed yet; return at once. It asks again by itself."""
        with self._lock:
            if len(self._pages) < PAGES_MAX:
                self._pages.add(page)
        self._came.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._came.wait()
            self._came.clear()
            self._try()
            self._stopping.wait(min(self._every_s * 2**self._failures, RETRY_MAX_S))
        if not self._failures:
            self._try()

    def _try(self) -> None:
        with self._lock:
            shards, self._shards = self._shards, set()
            pages, self._pages = self._pages, set()
        if not (shards or pages):
            return
        try:
            self._publish(
                [*(Task(FOLD, shard) for shard in sorted(shards)), *(Task(READ, str(page)) for page in pages)]
            )
        except BrokerError as error:
            if not self._failures:
                _log.error("%s; beat publishes tasks for what waits until it does again", error)
            self._failures += 1
            self.reports_came(shards)
        else:
            if self._failures:
                _log.warning("the broker takes tasks again")
            self._failures = 0


# The watchdog of `dither beat`: tasks for whatever waits, and notices when nobody comes.
#
# It looks at the store itself and does not ask a worker to: when all workers are gone, it must not be gone with them.


LOOK_EVERY_S = 3.0
ASK_PAUSE_MAX_S = 3_600.0
PAGES_AT_ONCE = 20
"""Pages of the last sealed day that get tasks at a time, until they are computed."""


class Watchdog:
    """Any number of them may watch one store: doubled tasks change nothing."""

    def __init__(
        self, store: Store, publish: Callable[[Sequence[Task]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._publish = publish
        self._clock = clock
        self._maintain_at = float("-inf")
        self._merged: date | None = None
        self._ask_at = float("inf")
        """When to ask again what is not finalized: at once when a day was merged, never when nothing is missing."""
        self._ask_pause_s = 0.0
        self._trouble: dict[str, str] = {}

    def look(self) -> None:
        """Publish tasks for what there is to do now. Raises StoreError when the store is not the one that was
        opened."""
        try:
            tasks = self._tasks()
        except StoreUnavailable as error:
            return self._notice(Trouble.STORE, str(error))
        self._notice(Trouble.STORE, "")
        try:
            self._publish(tasks)  # also none: queues that others have flooded are emptied on the way
        except BrokerError as error:
            self._notice("broker", str(error))
        else:
            self._notice("broker", "")

    def _tasks(self) -> list[Task]:
        self._store.refresh()
        status = self._store.status()
        self._notice_lag(status)
        tasks = [Task(FOLD, shard.shard) for shard in status if shard.backlog]
        now = self._clock()
        if now >= self._maintain_at:
            tasks += [Task(MAINTAIN, shard.shard) for shard in status]
            tasks += [Task(READ, str(page)) for page in islice(fork_server.unmade(self._store), PAGES_AT_ONCE)]
            self._maintain_at = now + MAINTAIN_EVERY_S
        tasks += [Task(ESTIMATE, metric) for metric in self._unfinalized(min(shard.merged for shard in status), now)]
        return tasks

    def _unfinalized(self, merged: date, now: float) -> list[str]:
        """Return the metrics that need a task: those with a merged epoch that is not finalized, ever more rarely.

        An estimate may take long, and another task for it would have another process make it too.
        """
        if merged != self._merged:
            self._merged, self._ask_at, self._ask_pause_s = merged, now, MAINTAIN_EVERY_S
        if now < self._ask_at:
            return []
        metrics = maintenance.unfinalized(self._store)
        self._ask_at = now + self._ask_pause_s if metrics else float("inf")
        self._ask_pause_s = min(2 * self._ask_pause_s, ASK_PAUSE_MAX_S)
        return metrics

    def _notice_lag(self, status: Sequence[ShardStatus]) -> None:
        late = [shard for shard in status if shard.waiting_s > LAG_MAX_S]
        self._notice(
            Trouble.FOLDING,
            f"{sum(shard.backlog for shard in late):,} uploads wait in {len(late)} of {len(status)} shards, and none "
            f"of them was folded for {LAG_MAX_S:.0f} seconds: are workers running?"
            if late
            else "",
        )

    def _notice(self, kind: str, trouble: str) -> None:
        """Log a kind of trouble when it begins and when it ends."""
        if trouble and not self._trouble.get(kind):
            _log.error("%s: %s", kind, trouble)
        elif self._trouble.get(kind) and not trouble:
            _log.warning("%s: as it must be again", kind)
        self._trouble[kind] = trouble
