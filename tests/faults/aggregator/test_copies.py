"""One upload, many times; one id, two bodies; answers that never arrive: counted once."""

import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import pytest

from dither_shared.wire import PATH
from tests.faults.aggregator.clustered import REDIS, SQLITE, aggregator, orders
from tests.faults.aggregator.load import REGISTRY, Answer, Device, Load, check_now
from tests.faults.aggregator.oracle import Oracle, sound
from tests.support.clusters import Cluster, logged
from tests.support.soaking import MEMORY, scaled

pytestmark = pytest.mark.slow

THREADS = 32
COPIES = 1_000
CONFLICTS = scaled(100, 2_000)
LOST = scaled(75, 3_000)


def side_by_side(cluster: Cluster, bodies: Sequence[bytes], threads: int) -> list[tuple[bytes, Answer]]:
    """Send bodies from several threads at a time; return each with its answer, in the order of the answers."""
    waiting, answered = list(reversed(bodies)), []
    lock, go, key = threading.Lock(), threading.Barrier(threads), cluster.key

    def send(number: int) -> None:
        with closing(Device(lambda: cluster.urls, key, number)) as device:
            go.wait(60)
            while True:
                with lock:
                    if not waiting:
                        return
                    body = waiting.pop()
                answer = device.post(body)
                with lock:
                    answered.append((body, answer))

    running = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(120)
    assert len(answered) == len(bodies)
    return answered


@pytest.fixture(scope="module", params=[SQLITE, REDIS])
def ran(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Oracle]]:
    """Run an aggregator for all of these tests, with one account of all that is sent to it."""
    with TemporaryDirectory(dir=MEMORY) as directory, ExitStack() as running:
        options: dict[str, Any] = {"apis": 2} if request.param == REDIS else {}
        cluster = running.enter_context(aggregator(request.param, Path(directory), orders(Path(directory)), **options))
        yield cluster, Oracle("copies", REGISTRY)


def test_an_upload_that_comes_a_thousand_times_is_counted_once(ran: tuple[Cluster, Oracle]) -> None:
    cluster, oracle = ran
    with logged(cluster):
        id_, body = sound(oracle, lambda: oracle.upload(groups_max=5))
        answered = side_by_side(cluster, [body] * COPIES, THREADS)
        assert Counter(answer.status for _, answer in answered) == {202: COPIES}
        assert Counter(answer.document["duplicate"] for _, answer in answered) == {False: 1, True: COPIES - 1}
        for _, answer in sorted(answered, key=lambda one: bool(one[1].document["duplicate"])):
            oracle.acknowledged(id_, answer.document)
        check_now(oracle, cluster)


def test_of_two_bodies_under_one_id_one_is_counted(ran: tuple[Cluster, Oracle]) -> None:
    cluster, oracle = ran
    with logged(cluster):
        bodies: list[bytes] = []
        of: dict[bytes, str] = {}
        for _ in range(CONFLICTS):
            id_, body = sound(oracle, lambda: oracle.upload(groups_max=3))
            _, other = sound(oracle, lambda id_=id_: (id_, oracle.another_body(id_)))  # type: ignore[misc]
            of[body] = of[other] = id_
            bodies += [body, other, body, other]
        won: dict[str, bytes] = {}
        answered = side_by_side(cluster, bodies, 8)
        for body, answer in answered:
            assert answer.status in (202, 409), answer
            if answer.status == 202:
                assert won.setdefault(of[body], body) == body, f"both bodies of {of[body]} were accepted"
        assert won.keys() == set(of.values())
        for body, answer in sorted(answered, key=lambda one: (one[1].status, one[1].document.get("duplicate", False))):
            if answer.status == 202:
                oracle.acknowledged(of[body], answer.document, body=body)
            else:
                oracle.refused(of[body], answer.document, body=body)
        check_now(oracle, cluster)


def send_and_leave(url: str, key: str, body: bytes, rng: random.Random) -> None:
    """Send an upload, or nearly all of it, and close the connection instead of reading the answer."""
    place = urlsplit(url)
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=10) as connection:
        connection.sendall((head + body)[: -1 if rng.random() < 0.2 else None])
        if rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end


def test_an_upload_whose_answer_was_lost_is_counted_once(ran: tuple[Cluster, Oracle]) -> None:
    (cluster, oracle), rng = ran, random.Random(1)
    key = cluster.key
    with logged(cluster):
        with Load(oracle, cluster, devices=2) as load, closing(Device(lambda: cluster.urls, key, "lost")) as device:
            for _ in range(LOST):
                with load.lock:
                    id_, body = sound(oracle, lambda: oracle.upload(groups_max=3))
                for _ in range(rng.randint(1, 3)):
                    send_and_leave(rng.choice(cluster.urls), key, body, rng)
                    with load.lock:
                        oracle.unknown(id_)
                answer = device.post(body)
                assert answer.status == 202, answer
                with load.lock:
                    oracle.acknowledged(id_, answer.document)
        check_now(oracle, cluster)
