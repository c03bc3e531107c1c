"""Tasks without a broker: who publishes when, and what is done with each."""

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import pytest

from dither_aggregator.health.checks import LAG_MAX_S
from dither_aggregator.ingest.service import MAINTAIN_EVERY_S, Service
from dither_aggregator.operations import maintenance
from dither_aggregator.operations.fork_server import Address, unmade
from dither_aggregator.store import SQLiteStore, Store, StoreError, StoreUnavailable
from dither_aggregator.store.records import KeptReading
from dither_aggregator.workers import worker as handlers_module
from dither_aggregator.workers.tasks import (
    ESTIMATE,
    FOLD,
    MAINTAIN,
    READ,
    BrokerError,
    Publisher,
    Task,
    Watchdog,
    check_broker,
)
from dither_aggregator.workers.worker import TaskHandlers
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Registry
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.support.aggregators import NOT_NICE, sqlite_store
from tests.support.clocks import Clock
from tests.support.registries import registry
from tests.support.waiting import wait_until

EXPIRES = date(2026, 11, 20) + timedelta(days=100)
"""A hundred days after the clock starts."""


class FakeBroker:
    """A broker that writes down what was published, and is down, or hangs, when it is told to."""

    def __init__(self) -> None:
        self.published: list[Task] = []
        self.times: list[float] = []
        """When something was published."""
        self.down = False
        self.free = threading.Event()
        self.free.set()

    def publish(self, tasks: Sequence[Task]) -> None:
        self.free.wait()
        if self.down:
            raise BrokerError("the broker, redis at nowhere, takes no tasks: refused")
        self.times.append(time.monotonic())
        self.published += tasks


# The publisher.


def test_the_shards_that_got_reports_have_tasks_at_once_and_then_together() -> None:
    broker, every_s = FakeBroker(), 0.3
    broker.free.clear()  # the first task is held until all others have come, however long that takes
    with Publisher(broker.publish, every_s=every_s) as publisher:
        publisher.reports_came({3})
        wait_until(lambda: not publisher._shards)
        for shard in (5, 3, 5, 5, 4):
            publisher.reports_came({shard})
        broker.free.set()
        wait_until(lambda: len(broker.published) > 1)
    assert broker.published == [Task(FOLD, shard) for shard in (3, 3, 4, 5)]
    first, then = broker.times
    assert then - first > 0.9 * every_s


def test_what_came_last_has_a_task_when_the_publisher_ends() -> None:
    broker = FakeBroker()
    with Publisher(broker.publish, every_s=60) as publisher:
        publisher.reports_came({1})
        wait_until(lambda: broker.published)
        publisher.reports_came({2})
    assert broker.published == [Task(FOLD, 1), Task(FOLD, 2)]


def test_a_broker_that_is_down_is_named_once_and_gets_tasks_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker()
    broker.down = True
    with Publisher(broker.publish, every_s=0.01) as publisher:
        publisher.reports_came({1})
        wait_until(lambda: publisher._failures >= 3)
        publisher.reports_came({2})
        broker.down = False
        wait_until(lambda: broker.published)
        publisher.reports_came({7})
        wait_until(lambda: Task(FOLD, 7) in broker.published)
    assert set(broker.published) == {Task(FOLD, 1), Task(FOLD, 2), Task(FOLD, 7)}
    assert [record.getMessage() for record in caplog.records] == [
        "the broker, redis at nowhere, takes no tasks: refused; "
        "beat publishes tasks for what waits until it does again",
        "the broker takes tasks again",
    ]


def test_a_broker_that_hangs_is_neither_felt_nor_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dither_aggregator.workers.tasks.STOP_WITHIN_S", 0.1)
    broker = FakeBroker()
    broker.free.clear()
    with Publisher(broker.publish) as publisher:
        for _ in range(1_000):
            publisher.reports_came({1, 2})
    broker.free.set()


def test_a_service_says_which_shards_got_reports(tmp_path: Path) -> None:
    asked = registry()
    told: list[set[int]] = []
    with (
        sqlite_store(asked, tmp_path) as store,
        Service(store, lambda shards: told.append(set(shards))) as service,
    ):
        store.shards = 16
        bodies = [body_of(asked, [1]) for _ in range(40)]
        expected = set()
        for body in bodies:
            upload = parse_upload(body, store.find_plan)
            service.submit(upload, body)
            expected.add(store.shard_of(store.digest(upload.id.encode())))
        wait_until(lambda: set().union(*told) == expected)
        assert len(expected) > 8


def body_of(asked: Registry, bits: list[int]) -> bytes:
    return encode_upload(new_upload_id(random.getrandbits), [("dark", asked.metrics["dark"].plan.digest, bits)])


# The watchdog.


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asked() -> Registry:
    return registry(expires=EXPIRES)


@pytest.fixture
def store(tmp_path: Path, clock: Clock, asked: Registry) -> Iterator[SQLiteStore]:
    with sqlite_store(asked, tmp_path / "store", clock) as made:
        yield made


def append(store: Store, asked: Registry, bits: list[int]) -> None:
    body = body_of(asked, bits)
    store.append([(parse_upload(body, store.find_plan), body)])


class Watched:
    """A watchdog, its broker, and the seconds it goes by."""

    def __init__(self, store: Store) -> None:
        self.broker = FakeBroker()
        self.seconds = 1_000.0
        self.dog = Watchdog(store, self.broker.publish, lambda: self.seconds)

    def look(self, after_s: float = 3) -> list[Task]:
        self.seconds += after_s
        self.broker.published.clear()
        self.dog.look()
        return list(self.broker.published)


def test_the_watchdog_rings_for_what_waits_and_for_upkeep_every_minute(store: Store, asked: Registry) -> None:
    watched = Watched(store)
    assert watched.look() == [Task(MAINTAIN, 0)]
    assert watched.look() == []
    append(store, asked, [1, 0])
    assert watched.look() == watched.look() == [Task(FOLD, 0)]
    store.fold_all(0)
    assert watched.look() == []
    assert watched.look(MAINTAIN_EVERY_S) == [Task(MAINTAIN, 0)]


def test_a_day_that_was_sealed_has_tasks_ever_more_rarely_until_it_is_recorded(
    store: Store, asked: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks: list[list[str]] = []
    unfinalized = maintenance.unfinalized

    def ask(store: Store) -> list[str]:
        asks.append(unfinalized(store))
        return asks[-1]

    monkeypatch.setattr(maintenance, "unfinalized", ask)
    watched = Watched(store)
    append(store, asked, [1, 0])
    store.fold_all(0)
    watched.look()
    for _ in range(100):
        assert Task(ESTIMATE, "dark") not in watched.look()
    assert len(asks) == 1  # once when it began
    clock.travel(1)
    maintenance.maintain(store, 0)
    published = [watched.look().count(Task(ESTIMATE, "dark")) for _ in range(200)]  # ten minutes
    assert [place * 3 for place, tasks in enumerate(published) if tasks] == [0, 60, 180, 420]
    maintenance.finalize(store, "dark")
    for _ in range(1_000):
        assert Task(ESTIMATE, "dark") not in watched.look()
    assert len(asks) == 6  # nothing is asked until the next day is over


def test_a_lag_is_warned_of_when_it_begins_and_when_it_ends(
    store: Store, asked: Registry, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(store)
    append(store, asked, [1])
    watched.look()
    clock.now += LAG_MAX_S + 1
    for _ in range(3):
        watched.look()
    store.fold_all(0)
    for _ in range(3):
        watched.look()
    assert [record.getMessage() for record in caplog.records] == [
        "folding: 1 uploads wait in 1 of 1 shards, and none of them was folded for 120 seconds: are workers running?",
        "folding: as it must be again",
    ]


def test_a_broker_or_store_that_is_lost_is_looked_for_again(
    store: Store, asked: Registry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(store)
    append(store, asked, [1])
    watched.broker.down = True
    assert watched.look() == watched.look() == []
    watched.broker.down = False
    assert watched.look() == [Task(FOLD, 0)]
    with monkeypatch.context() as patched:
        patched.setattr(store, "status", lambda: unavailable())
        assert watched.look() == watched.look() == []
    assert watched.look() == [Task(FOLD, 0)]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["broker", "broker", "store", "store"]


def test_another_store_in_the_place_of_this_one_ends_the_watch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(store)
    monkeypatch.setattr(store, "refresh", lambda: other_store())
    with pytest.raises(StoreError, match="another store"):
        watched.look()


def unavailable() -> None:
    raise StoreUnavailable("redis at nowhere cannot be used now")


def other_store() -> None:
    raise StoreError("this is another store")


# Tasks that are received.


class Handling:
    """One process of a worker, with a store that it opens when it needs one."""

    def __init__(self, open_: Callable[[], Store], generation: str, data: str = "") -> None:
        self.broker = FakeBroker()
        self.stopping = False
        self.gone = 0
        self.handlers = TaskHandlers(open_, generation, self.broker.publish, lambda: self.stopping, self._give_up, data)

    def _give_up(self) -> None:
        self.gone += 1


@pytest.fixture
def handling(store: SQLiteStore, tmp_path: Path, clock: Clock) -> Iterator[Handling]:
    made = Handling(lambda: SQLiteStore(tmp_path / "store", clock), store.generation, str(tmp_path / "store"))
    with closing(made.handlers):
        yield made


def test_tasks_fold_maintain_and_finalize(handling: Handling, store: Store, asked: Registry, clock: Clock) -> None:
    plan, today = asked.metrics["dark"].plan, store.today()
    for _ in range(3):
        append(store, asked, [1, 0, 1])
    for _ in range(3):
        handling.handlers.fold(0)
    assert store.backlog() == 0
    assert store.tally(plan, today).counts.tolist() == [9, 3, 6]
    clock.travel(1)
    for _ in range(3):
        handling.handlers.maintain(0)
    assert store.sealed() == today
    for _ in range(3):
        handling.handlers.estimate("dark")
    assert store.finals(plan)[today].digest == store.tally(plan, today).digest
    assert handling.broker.published == []


def test_pages_of_a_sealed_day_have_tasks_until_a_worker_has_computed_them(
    handling: Handling, store: SQLiteStore, asked: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, niceness in NOT_NICE.items():
        monkeypatch.setattr(name, niceness)
    watched, first = Watched(store), Task(READ, "read / ")
    append(store, asked, [1, 0, 1])
    handling.handlers.fold(0)
    clock.travel(1)
    assert first not in watched.look()  # nothing is sealed
    handling.handlers.maintain(0)
    handling.handlers.estimate("dark")
    published = [task.about for task in watched.look(MAINTAIN_EVERY_S) if task.kind == READ]
    assert published == [str(page) for page in unmade(store)]
    assert first in [Task(READ, page) for page in published]
    with monkeypatch.context() as hurried:
        hurried.setattr(handlers_module, "COMPUTE_FOR_S", -1.0)
        handling.handlers.read(first.about)
        assert [str(page) for page in unmade(store)] == published
        assert handling.broker.published == [first]  # others are answered between
    monkeypatch.setattr(handlers_module, "COMPUTE_FOR_S", 600)  # a busy machine may take longer than a task has
    handling.handlers.read(first.about)
    assert store._readings("NOT open")
    assert list(unmade(store)) == []
    assert [task for task in watched.look(MAINTAIN_EVERY_S) if task.kind == READ] == []


def test_one_process_of_a_worker_computes_and_the_others_leave_their_pages_to_it(
    handling: Handling, store: Store, asked: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all would compute, for minutes, and nobody would fold what devices send."""
    computed: list[str] = []
    monkeypatch.setattr(handling.handlers, "_compute", lambda store, page: computed.append(str(page)))
    turn = handling.handlers._turn
    told, tell = os.pipe()
    if not (process := os.fork()):
        os.write(tell, b"y" if turn.take() else b"n")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(told, 1) == b"y"
        for page in ("read / ", "live /changes "):
            handling.handlers.read(page)
        assert computed == []
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(told)
        os.close(tell)
    handling.handlers.read("read /compare ")
    assert computed == ["read /compare ", "live /changes ", "read / "]  # what was wanted last comes first


def test_a_task_looks_each_page_ahead_up_once(
    handling: Handling, store: SQLiteStore, asked: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a store of many metrics would be asked for all of them after each page."""
    append(store, asked, [1, 0, 1])
    handling.handlers.fold(0)
    clock.travel(1)
    handling.handlers.maintain(0)
    pages, kept = list(unmade(store)), SQLiteStore.kept_reading
    looked_up: list[str] = []

    def look_up(self: SQLiteStore, key: str) -> KeptReading | None:
        looked_up.append(key)
        return kept(self, key)

    def compute(store: Store, page: Address) -> None:
        store.keep_readings([KeptReading(f"{page} {store.sealed()}", store.sealed(), False, b"made")])

    monkeypatch.setattr(SQLiteStore, "kept_reading", look_up)
    monkeypatch.setattr(handling.handlers, "_compute", compute)
    handling.handlers.read(str(pages[0]))
    assert len(looked_up) == len(pages) > 5
    assert not any(unmade(store))


@pytest.mark.parametrize(
    ("kind", "about"),
    [(FOLD, 1), (FOLD, -1), (FOLD, "0"), (FOLD, None), (MAINTAIN, 16), (ESTIMATE, "nowhere"), (ESTIMATE, 0)],
)
def test_a_task_for_what_there_is_not_is_dropped(
    handling: Handling, kind: str, about: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="dither_aggregator"):
        for _ in range(2):
            getattr(handling.handlers, kind)(about)
    # A warning without its name, which is anybody's, and once a minute: so may be how many there are.
    named = f"there is no {'metric' if kind == ESTIMATE else 'shard'} {about!r}"
    assert caplog.messages == ["tasks that were not for this store: 1", named, named]
    assert handling.gone == 0


def test_a_task_that_takes_long_is_published_again(
    handling: Handling, store: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers_module, "FOLD_FOR_S", -1.0)
    append(store, asked, [1])
    handling.handlers.fold(0)
    assert store.backlog() == 1
    assert handling.broker.published == [Task(FOLD, 0)]
    handling.broker.down = True
    handling.handlers.fold(0)  # and nothing happens: beat publishes tasks for what is left


def test_a_worker_that_is_to_end_begins_nothing_new(handling: Handling, store: Store, asked: Registry) -> None:
    append(store, asked, [1])
    handling.stopping = True
    handling.handlers.fold(0)
    assert (store.backlog(), handling.broker.published) == (1, [])


def test_a_store_that_is_lost_for_a_while_is_named_once_and_tasks_are_answered_afterwards(
    store: SQLiteStore, asked: Registry, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    lost = True
    handling = Handling(lambda: unavailable() or store if lost else store, store.generation)  # type: ignore[func-returns-value]
    request.addfinalizer(handling.handlers.close)
    append(store, asked, [1])
    for _ in range(5):
        handling.handlers.fold(0)
    assert store.backlog() == 1
    lost = False
    handling.handlers.fold(0)
    handling.handlers.fold(0)
    assert store.backlog() == 0
    assert [record.getMessage() for record in caplog.records] == [
        "redis at nowhere cannot be used now; the work is left to the next tasks",
        "the store can be used again",
    ]
    assert handling.gone == 0


def test_one_damaged_shard_ends_no_worker_and_another_store_does(
    handling: Handling, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SQLiteStore, "fold", lambda self, shard: other_store())
    handling.handlers.fold(0)
    assert handling.gone == 0
    monkeypatch.setattr(SQLiteStore, "refresh", lambda self: other_store())
    handling.handlers.fold(0)
    assert handling.gone == 1


def test_a_store_that_is_another_one_when_a_process_opens_it_ends_the_worker(store: SQLiteStore) -> None:
    handling = Handling(lambda: store, "of another store")
    with closing(handling.handlers):
        handling.handlers.fold(0)
    assert handling.gone == 1


# Which Redis may carry tasks.


@pytest.mark.parametrize(
    ("broker", "says"),
    [
        ("http://127.0.0.1:1", "must be a Redis"),
        ("/var/lib/dither", "must be a Redis"),
        ("redis://127.0.0.1:zwei/0", "is not the address of a Redis"),
        ("redis://:geheim@127.0.0.1:1/7", "is the store's own Redis"),
        ("redis://localhost:1/7", "is the store's own Redis"),
    ],
)
def test_what_cannot_be_a_broker_is_refused(broker: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        check_broker(broker, "redis://127.0.0.1:1/0")
    assert "geheim" not in str(caught.value)


def test_a_broker_need_not_be_reachable() -> None:
    check_broker("redis://127.0.0.1:2/0", "redis://127.0.0.1:1/0")


# The lines of a worker's log that are left out while it stops.
