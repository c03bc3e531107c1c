"""Devices that send an oracle's uploads to an aggregator, each until it is answered; and what must be true then."""

import http.client
import json
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from itertools import combinations
from typing import Any
from urllib.parse import urlsplit

from dither_aggregator.store import Store
from dither_aggregator.store.invariants import check as fsck
from dither_shared.registry import Registry, utc_today
from dither_shared.wire import PATH, PROBLEM_PREFIX
from tests.faults.aggregator.editions import APP, METRICS
from tests.faults.aggregator.oracle import Oracle
from tests.support.clusters import Cluster, wait_until
from tests.support.soaking import SOAK

ANSWER_WITHIN_S = 30
SETTLED_WITHIN_S = 90
RETRY_S = 0.05
PAUSE_S = 0.0 if SOAK else 0.02
"""For a device that is only to keep an aggregator busy: so long between two uploads, hundreds a second of all devices.

While a test waits for something else, as a process that starts, they make few."""
AGAIN = 0.1
"""How often what was answered is sent once more."""


def registry_text(metrics: dict[str, str] = METRICS, revs: dict[str, int] | None = None) -> str:
    """Return a registry of these metrics, each given by its lines."""
    expires = utc_today() + timedelta(days=300)
    tables = [
        f"[metric.{name}]\n{lines}\nrev = {(revs or {}).get(name, 1)}\nexpires = {expires}\n"
        'question = "What?"\npresence = "public"\nperiod = "1d"\nowners = ["team@example.org"]\nsensitivity = "low"\n'
        + ("" if "memoize" in lines else 'schedule = "early"\n')
        for name, lines in metrics.items()
    ]
    return f'[registry]\napp = "{APP}"\ndevice_epsilon = 100\nquiet_days = 0\n' + "\n".join(tables)


REGISTRY_TEXT = registry_text()
REGISTRY = Registry.parse(REGISTRY_TEXT)


class Answer:
    """The answer to one attempt: status 0 when nothing came back."""

    def __init__(self, status: int = 0, content: bytes = b"") -> None:
        self.status = status
        self.document: dict[str, Any] = {}
        with suppress(ValueError):
            self.document = json.loads(content) if content else {}

    def __repr__(self) -> str:
        return f"{self.status} {self.document}"


class Device:
    """A connection that is kept, to one address after another."""

    def __init__(
        self, urls: Callable[[], Sequence[str]], key: str, seed: object, trusted: ssl.SSLContext | None = None
    ) -> None:
        self._urls = urls
        self._trusted = trusted
        self._key = key
        self._rng = random.Random(f"device {seed}")
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes) -> Answer:
        """Send an upload once."""
        try:
            if self._connection is None:
                place = urlsplit(self._rng.choice(list(self._urls())))
                self._connection = self._connected(str(place.hostname), place.port)
            headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
            self._connection.request("POST", PATH, body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return Answer()
        if response.will_close or response.status >= 500:
            self.close()
        return Answer(response.status, content)

    def _connected(self, host: str, port: int | None) -> http.client.HTTPConnection:
        if self._trusted:
            return http.client.HTTPSConnection(host, port, timeout=ANSWER_WITHIN_S, context=self._trusted)
        return http.client.HTTPConnection(host, port, timeout=ANSWER_WITHIN_S)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Load:
    """Devices, each on a thread of its own, that send new uploads until told to stop. Use as a context manager.

    An upload without a definite answer is sent again with the same bytes until it has one, so that in the end nothing
    is open. Answered uploads are sent again now and then.
    """

    def __init__(
        self, oracle: Oracle, cluster: Cluster, devices: int = 8, pause_s: float = 0.0, *, floor: bool = False
    ) -> None:
        self.oracle = oracle
        self._floor = floor
        """Whether the store's room may come to an end: what is refused for that is not stored."""
        self.answers: Counter[int] = Counter()
        self.lock = threading.Lock()
        """Held while the oracle is told something."""
        self.refusing: set[tuple[str, str]] = set()
        """Plans that may just be refused: what was not answered may lack them."""
        self.sent: dict[str, float] = {}
        """When an upload was first sent."""
        self.acknowledged: dict[str, float] = {}
        """When the first receipt of an upload came."""
        self._cluster = cluster
        self._key = cluster.key
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._giving_up = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._live, args=(number,), daemon=True) for number in range(devices)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *exc_info: object) -> None:
        """Let each device settle what it has begun."""
        self._stopping.set()
        if kind is None:
            deadline = time.monotonic() + SETTLED_WITHIN_S
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            self.check()
            assert not any(thread.is_alive() for thread in self._threads), f"not all was answered: {self.answers}"

    def give_up(self) -> None:
        """Let what is not answered be: the oracle knows that nobody knows whether it is stored."""
        self._giving_up.set()
        self._stopping.set()

    def check(self) -> None:
        """Raise what went wrong in a device."""
        for failure in self._failures:
            raise failure

    def wait_for(self, uploads: int, within_s: float = 60) -> None:
        """Wait until so many more uploads were acknowledged."""
        enough = self.answers[202] + uploads

        def are_there() -> bool:
            self.check()
            return self.answers[202] >= enough

        wait_until(are_there, f"{uploads} more acknowledged uploads ({dict(self.answers)})", within_s)

    def send_again(self, id_: str) -> None:
        """Send an upload of before once more, until it is answered."""
        with closing(Device(lambda: self._cluster.urls, self._key, id_, self._cluster.trusted)) as device:
            self._settle(device, id_, self.oracle.body(id_))

    def _live(self, number: int) -> None:
        device = Device(lambda: self._cluster.urls, self._key, number, self._cluster.trusted)
        rng = random.Random(f"load {number}")
        try:
            while not self._stopping.is_set():
                with self.lock:
                    id_, body = self.oracle.upload(groups_max=5)
                    self.sent[id_] = time.monotonic()
                self._settle(device, id_, body)
                if rng.random() < AGAIN:
                    self._settle(device, id_, body)
                time.sleep(self._pause_s)
        except BaseException as error:
            self._failures.append(error)
        finally:
            device.close()

    def _settle(self, device: Device, id_: str, body: bytes) -> None:
        """Send an upload until it is answered."""
        until: float | None = None
        while not self._tell(id_, device.post(body)) and not self._giving_up.is_set():
            if self._stopping.is_set():
                until = until or time.monotonic() + SETTLED_WITHIN_S
                assert time.monotonic() < until, f"upload {id_} was not answered: {self.answers}"
            time.sleep(RETRY_S)

    def _tell(self, id_: str, answer: Answer) -> bool:
        """Tell the oracle what came of an attempt; return whether that settles the upload."""
        with self.lock:
            self.answers[answer.status] += 1
            match answer.status:
                case 202:
                    self.oracle.acknowledged(id_, answer.document)
                    self.acknowledged.setdefault(id_, time.monotonic())
                case 410 | 422:
                    self.oracle.refused(id_, answer.document)
                case 0 | 503:
                    assert not answer.status or answer.document["type"] == f"{PROBLEM_PREFIX}unavailable", answer
                    self._tell_unknown(id_)
                    return False
                case 507 if self._floor:
                    assert answer.document["type"] == f"{PROBLEM_PREFIX}disk-full", answer
                    return False
                case _:
                    raise AssertionError(f"upload {id_} was answered with {answer}")
        return True

    def _tell_unknown(self, id_: str) -> None:
        """An upload without an answer, if stored, may lack the groups of any of the plans that may be refused."""
        groups = self.oracle.sent(id_).groups
        plans = sorted({group.plan for group in groups} & self.refusing)
        for number in range(len(plans) + 1):
            for refused in combinations(plans, number):
                places = [place for place, group in enumerate(groups) if group.plan in refused]
                self.oracle.unknown(id_, refused=places)


def wait_folded(cluster: Cluster, within_s: float = 60) -> None:
    """Wait until nothing waits to be folded."""
    with closing(cluster.open()) as store:
        wait_until(lambda: store.backlog() == 0, "all folded", within_s)


def check_all(oracle: Oracle, cluster: Cluster, *, folded: bool = True) -> None:
    """End every process, and check that the store holds exactly what was acknowledged, once, and is sound."""
    if folded:
        wait_folded(cluster)
    cluster.kill_all()
    with closing(cluster.open()) as store:
        check_store(oracle, store)
        if folded:
            assert store.backlog() == 0


def check_now(oracle: Oracle, cluster: Cluster) -> None:
    """Check what an aggregator holds that goes on, while nobody sends it anything."""
    wait_folded(cluster)
    with closing(cluster.open()) as store:
        check_store(oracle, store)


def check_store(oracle: Oracle, store: Store) -> None:
    """Check a store that nobody changes."""
    oracle.check(store)
    assert list(fsck(store)) == []
    assert store.trouble().keys() <= {"settings", "clock"}, store.trouble()
