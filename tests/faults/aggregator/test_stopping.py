"""SIGTERM under load: what was acknowledged is counted, what was half read is not answered with 202, the code is 0."""

import json
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest

from dither_aggregator.workers.tasks import FOLD, Task, TaskQueue, make_app
from dither_shared.wire import PATH
from tests.faults.aggregator.clustered import REDIS, SQLITE, aggregator, both, orders
from tests.faults.aggregator.load import PAUSE_S, REGISTRY, REGISTRY_TEXT, Load, check_all
from tests.faults.aggregator.oracle import Oracle, sound
from tests.support.clusters import Cluster, SeveralMachines, running, wait_until
from tests.support.http import was_read
from tests.support.soaking import SOAK, scaled

pytestmark = pytest.mark.slow

STOPS = scaled(1, 60)
WAITED_FOR_RESULTS_S = 30.0
"""So long would a process of a worker wait for its parent to read its results, if it were let."""
ENDS_WITHIN_S = 5.0
"""From SIGTERM to the end of taking requests, though some are half sent."""
AT_ONCE_S = 10.0
"""More for a busy machine, and for folding what was accepted."""
HURRIED: dict[str, object] = {} if SOAK else {"web.http_server.LINGER_S": 1.5}
"""How long a request that is half sent is waited for, in the place of 3 s."""


def half_sent(cluster: Cluster, key: str, body: bytes) -> socket.socket:
    """Return a connection on which half an upload was sent."""
    place = urlsplit(cluster.urls[0])
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    connection = socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=30)
    connection.sendall(head + body[: len(body) // 2])
    return connection


def answer_on(connection: socket.socket) -> bytes:
    """Return all that comes on a connection until it ends."""
    received = b""
    with suppress(ConnectionError):
        while chunk := connection.recv(65_536):
            received += chunk
    return received


@both
def test_sigterm_with_requests_half_read_and_in_flight_loses_nothing(home: Path, kind: str) -> None:
    oracle = Oracle("stop", REGISTRY)
    with aggregator(kind, home, orders(home, settings=HURRIED)) as cluster:
        server = cluster.named("serve" if kind == SQLITE else "api")[0]
        key, finishes = cluster.key, 0
        with Load(oracle, cluster, devices=6, pause_s=PAUSE_S) as load:
            for _ in range(STOPS):
                load.wait_for(50)
                with ExitStack() as opened, load.lock:
                    slow, finished = (sound(oracle, lambda: oracle.upload(groups_max=3)) for _ in range(2))
                    connections = [opened.enter_context(half_sent(cluster, key, body)) for _, body in (slow, finished)]
                    wait_until(lambda: all(map(was_read, connections)), "both being half read")  # noqa: B023
                    began = time.monotonic()
                    server.signal(signal.SIGTERM)
                    connections[1].sendall(finished[1][len(finished[1]) // 2 :])
                    refused, answered = map(answer_on, connections)
                    assert b" 202 " not in refused
                    for id_, _ in (slow, finished):
                        oracle.unknown(id_)
                    if b" 202 " in answered:
                        finishes += 1
                        oracle.acknowledged(finished[0], json.loads(answered.partition(b"\r\n\r\n")[2]))
                assert server.code() == 0
                assert time.monotonic() - began < ENDS_WITHIN_S + AT_ONCE_S
                wait_until(lambda: not server.group(), "all its processes being gone")
                server.start()
                for id_, _ in (slow, finished):
                    load.send_again(id_)
            assert finishes
            for process in cluster.processes.values():
                process.signal(signal.SIGTERM)
            assert {process.code() for process in cluster.processes.values()} == {0}
            cluster.start()
        check_all(oracle, cluster)
        assert "Traceback" not in server.written()


def seconds_to_stop(home: Path, settings: Mapping[str, object] = MappingProxyType({})) -> float:
    """Stop a worker as its processes begin to answer tasks; return how long it took to end."""
    cluster = SeveralMachines(home, REGISTRY_TEXT, orders(home, settings=settings))
    with running(cluster):
        with closing(TaskQueue(make_app(cluster.broker.url))) as task_queue:
            task_queue.publish([Task(FOLD, number % 4) for number in range(400)])
        worker = cluster.add_worker(processes=8)
        worker.start()
        began = time.monotonic()
        assert worker.stop() == 0
        stopped_s = time.monotonic() - began
        assert "Traceback" not in worker.written()
        return stopped_s


def test_a_worker_that_is_stopped_as_it_begins_waits_for_no_result(home: Path) -> None:
    """One that waits has results that nobody reads in one of two tries: a soak sees that, half a minute a try."""
    for number in range(scaled(1, 20)):
        assert seconds_to_stop(home / f"{number}") < WAITED_FOR_RESULTS_S
    if SOAK:
        waits = {"workers.worker.RESULTS_READ_WITHIN_TRIES": 300}  # as it would be by itself
        assert any(seconds_to_stop(home / f"{number}", waits) >= WAITED_FOR_RESULTS_S for number in range(20, 40))


def test_an_api_whose_processes_cannot_start_says_why_and_ends_with_2(home: Path) -> None:
    cluster = SeveralMachines(home, REGISTRY_TEXT, orders(home, settings={"web.process_supervisor.create_app": None}))
    with running(cluster):
        api = cluster.add_api(processes=2)
        api.launch()
        assert api.code() == 2
        assert "'NoneType' object is not callable" in api.written()
        assert "a server process could not start; what it said stands above" in api.written()
        wait_until(lambda: not api.group(), "all its processes being gone")


def test_an_api_whose_parent_is_killed_serves_no_longer(home: Path) -> None:
    with aggregator(REDIS, home, orders(home)) as cluster:
        api = cluster["api-0"]
        api.kill_parent()
        wait_until(lambda: not api.group(), "all its processes being gone")
