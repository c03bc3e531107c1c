"""The intake of a worker: tasks are taken out of whatever a broker holds, and the rest ends no worker."""

import base64
import json
import logging
import pickle
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from dither_aggregator.workers.tasks import (
    ESTIMATE,
    FLOOD,
    FOLD,
    LOOK,
    MAINTAIN,
    QUEUES,
    READ,
    Task,
    TaskQueue,
    make_app,
)
from dither_aggregator.workers.worker import LOG_EVERY_S, MESSAGE_BYTES_MAX, Intake, read_task, write_task
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import parse_upload
from tests.support.machines import Site
from tests.support.redis_servers import RedisServer
from tests.support.soaking import scaled
from tests.support.waiting import wait_until

SOUND: dict[str, Any] = json.loads(write_task(Task(FOLD, 3)))


def base64_of(content: object) -> str:
    packed = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.b64encode(packed).decode()


def changed(**parts: object) -> bytes:
    """Return a sound message with other parts; those of a dict in place of a dict are merged, ... leaves one out."""
    message = dict(SOUND)
    for name, part in parts.items():
        key = name.replace("_", "-")
        merges = isinstance(part, dict) and isinstance(message[key], dict)
        message[key] = message[key] | part if merges else part
        if part is ...:
            del message[key]
    return json.dumps(message).encode()


ENDED = {
    "no JSON": b"garbage",
    "nothing": b"",
    "no UTF-8": b"\xff\xfe\0",
    "a number": b"3",
    "a list": b"[]",
    "null": b"null",
    "nested": b"[" * 100_000,
    "a huge integer": b"9" * 10_000,
    "properties of another shape": changed(properties=[]),
    "a tag of another shape": changed(properties={"delivery_tag": [1]}),
    "delivery info of another shape": changed(properties={"delivery_info": "x"}),
    "headers of another shape": changed(headers="x"),
    "a task of another shape": changed(headers={"task": [FOLD]}),
    "an id of another shape": changed(headers={"id": [1]}),
    "a content type of another shape": changed(content_type=[1]),
    "bad base64": changed(body="%%%"),
    "a body of another shape": changed(body=[1]),
    "an unknown encoding of the body": changed(properties={"body_encoding": "rot13"}),
    "a body of JSON of another shape": changed(body=base64_of({"a": 1})),
    "a time limit of another shape": changed(headers={"timelimit": "x"}),
    "a time limit of texts": changed(headers={"timelimit": ["x", "y"]}),
}
"""Each of these ended a worker without an intake, or in some cases cut it off."""
BROKE = {
    "an empty object": b"{}",
    "no properties": changed(properties=...),
    "an unknown task": changed(headers={"task": "rm"}),
    "no task": changed(headers={"task": None}),
    "another content type": changed(content_type="text/plain", body=base64_of(b"plain")),
    "pickled": changed(
        content_type="application/x-python-serialize", content_encoding="binary", body=base64_of(pickle.dumps([[0]]))
    ),
    "compressed": changed(headers={"compression": "application/x-gzip"}, body=base64_of(b"\x1f\x8b")),
    "no JSON in the body": changed(body=base64_of(b"garbage")),
    "arguments of another shape": changed(body=base64_of([1, 2, 3])),
    "too many arguments": changed(body=base64_of([[1, 2], {}, {}])),
    "huge": changed(body="HUGE").replace(b"HUGE", b"A" * 20_000_000),
    "for another queue": changed(headers={"task": ESTIMATE}),
    "about no shard": changed(body=base64_of([[-1], {}, {}])),
    "about a text": changed(body=base64_of([["\x1b[7m"], {}, {}])),
    "about a truth": changed(body=base64_of([[True], {}, {}])),
}
"""Each of these was logged with all that it holds, or handed to a process."""
GARBAGE = ENDED | BROKE
HARMLESS = (
    "properties of another shape",
    "a tag of another shape",
    "delivery info of another shape",
    "an id of another shape",
    "a content type of another shape",
    "an unknown encoding of the body",
    "a time limit of another shape",
    "a time limit of texts",
    "no properties",
)
"""A task is read out of these: what ended a worker is not handed on."""


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_task_is_dropped_and_none_of_it_is_handed_on(name: str) -> None:
    intake = Intake()
    taken = intake.take((b"fold", GARBAGE[name]))
    if name in HARMLESS:
        assert taken is not None
        assert taken[0] == b"fold"
        made = json.loads(taken[1])
        assert made.keys() == SOUND.keys()
        assert made["headers"] == SOUND["headers"] | {key: made["headers"][key] for key in ("id", "root_id")}
        assert read_task(FOLD, taken[1]) == Task(FOLD, 3)
    else:
        assert taken is None
    assert intake.dropped.total() == (name not in HARMLESS)


@pytest.mark.parametrize(
    "task",
    [
        Task(FOLD, 0),
        Task(MAINTAIN, 15),
        Task(ESTIMATE, "theme"),
        Task(LOOK, "0af9" * 8),
        Task(READ, "live /compare metric=a&level=99"),
    ],
)
def test_a_task_is_read_as_it_was_written_and_as_celery_writes_it(task: Task) -> None:
    assert read_task(task.kind, write_task(task)) == task
    with pytest.raises(ValueError, match="another queue"):
        read_task(next(kind for kind in QUEUES if kind != task.kind), write_task(task))


def spoiled(chance: random.Random, message: bytes) -> bytes:
    """Return a message with some bytes lost, changed, doubled or swapped for another part of JSON."""
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(message) + 1)
        length = chance.choice((0, 1, 1, 8, 200))
        put = chance.choice(
            (b"", bytes([chance.randrange(256)]), b"[", b"{}", b"null", b"1e999", b'"\\ud800"', b"9" * 99)
        )
        message = message[:place] + put + message[place + length :]
    return message


def test_whatever_is_spoiled_is_a_task_or_is_dropped() -> None:
    chance, intake, read = random.Random(1), Intake(), 0
    sound = [write_task(task) for task in (Task(FOLD, 3), Task(ESTIMATE, "theme"), Task(LOOK, "0a" * 16))]
    for _ in range(n := scaled(20_000, 2_000_000)):
        queue = chance.choice((b"fold", b"estimate", b"look"))
        taken = intake.take((queue, spoiled(chance, chance.choice(sound))))
        if taken:
            read += 1
            task = read_task(taken[0].decode(), taken[1])
            assert task.kind == queue.decode()
            assert type(task.about) is (int if task.kind == FOLD else str)
    assert 0 < read < n == read + intake.dropped.total()


def test_what_is_dropped_is_counted_and_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    intake = Intake(lambda: now[0])
    for second in range(150):
        now[0] = float(second)
        intake.take((b"fold", b"garbage \x1b[7m"))
        intake.take((b"fold", b"A" * (MESSAGE_BYTES_MAX + 1)))
    intake.say()
    intake.say()
    shapes = "not a message of Celery's with one argument"
    assert caplog.messages == [
        f"dropped 1 messages of the broker that are no tasks: 1 {shapes}",
        f"dropped 121 messages of the broker that are no tasks: 61 {shapes}; 60 too long",
        f"dropped 241 messages of the broker that are no tasks: 121 {shapes}; 120 too long",
        f"dropped 300 messages of the broker that are no tasks: 150 {shapes}; 150 too long",
    ]
    assert intake.take(None) is None
    assert LOG_EVERY_S == 60


# With a real Redis.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("broker"), {"appendonly": "no"})
    server.start()
    yield server
    server.stop()


@pytest.fixture
def app(broker: RedisServer) -> Celery:
    return make_app(broker.url)


@pytest.mark.slow
def test_a_queue_that_others_flood_or_replace_is_emptied_by_the_next_that_rings(
    broker: RedisServer, app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    with broker.client() as client, closing(TaskQueue(app)) as task_queue:
        client.set(MAINTAIN, "no list")
        client.set("_kombu.binding.look", "no set")
        client.sadd("_kombu.binding.fold", "what Kombu keeps")
        client.lpush(ESTIMATE, *[b"garbage"] * FLOOD)
        client.lpush(FOLD, *[write_task(Task(FOLD, 0))] * (FLOOD + 1))
        task_queue.publish([])
        assert [client.exists(key) for key in (FOLD, MAINTAIN, "_kombu.binding.look")] == [0, 0, 0]
        assert client.scard("_kombu.binding.fold") == 1
        assert client.llen(ESTIMATE) == FLOOD
        task_queue.publish([Task(FOLD, 1), Task(MAINTAIN, 2), Task(ESTIMATE, "theme")])
        assert [client.llen(kind) for kind in (FOLD, MAINTAIN, ESTIMATE)] == [1, 1, FLOOD]
        assert read_task(FOLD, client.rpop(FOLD)) == Task(FOLD, 1)
        assert read_task(MAINTAIN, client.rpop(MAINTAIN)) == Task(MAINTAIN, 2)
        client.flushall()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3


def memory_kb(pid: int, what: str) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1])


@pytest.mark.slow
def test_a_worker_outlives_all_that_a_broker_may_hold(tmp_path: Path) -> None:
    """It reads each kind of garbage, a flood of it and keys of another type, and folds what came meanwhile."""
    site = Site(tmp_path)
    plan = site.registry.metrics["dark"].plan
    with (
        site.running(),
        site.broker.client() as broker,
        site.store() as store,
        closing(TaskQueue(make_app(site.broker.url))) as task_queue,
        ExitStack() as running,
    ):
        for kind in QUEUES:  # in the place of what Kombu keeps there: it cannot listen until somebody publishes
            broker.set(f"_kombu.binding.{kind}", "no set")
        worker = running.enter_context(site.worker(ready=False))
        wait_until(lambda: broker.info("commandstats").get("cmdstat_sadd", {}).get("failed_calls", 0))

        def folds() -> None:
            body = encode_upload(new_upload_id(random.getrandbits), [("dark", plan.digest, [1])])
            store.append([(parse_upload(body, store.find_plan), body)])
            task_queue.publish([Task(FOLD, shard) for shard in range(store.shards)])
            wait_until(lambda: store.backlog() == 0)

        folds()
        worker.wait_ready()
        children = worker.children()
        resident = memory_kb(worker.process.pid, "VmRSS")
        for kind in QUEUES:
            broker.lpush(kind, *(message for message in GARBAGE.values() if len(message) < 1_000_000))
        broker.lpush(FOLD, GARBAGE["huge"])
        folds()
        for _ in range(floods := scaled(3, 30)):
            broker.lpush(FOLD, *[b"garbage"] * 1_000)
        wait_until(lambda: not broker.llen(FOLD), 60 * floods)
        assert memory_kb(worker.process.pid, "VmRSS") - resident < 64 * 1024
        broker.set(FOLD, "no list")
        folds()
        assert worker.children() == children
        code, err = worker.stop()
        counts = [line for line in err.splitlines() if "dropped" in line]
        assert code == 0
        assert 1 <= len(counts) <= 3
        dropped = (len(GARBAGE) - 1) * len(QUEUES) - len(HARMLESS) + 1 + floods * 1_000
        assert f"dropped {dropped:,} messages" in counts[-1]
