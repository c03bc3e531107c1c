"""An aggregator of several processes, as on several machines: API, workers, beat, and their two Redis."""

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from dither_aggregator.store import LedgerRow, Store, open_store
from dither_shared.registry import Registry
from dither_shared.wire import PATH, encode_upload, new_upload_id
from tests.support import failing
from tests.support.aggregators import dither, start
from tests.support.clusters import stands_by
from tests.support.nursery import Piped
from tests.support.redis_servers import RedisServer
from tests.support.registries import registry_text
from tests.support.soaking import SOAK

READY_WITHIN_S = 60
PAUSE_S = 0.0 if SOAK else 0.05
"""How long each of a crowd's threads rests after five uploads: without that it takes all the processor that it gets."""


@dataclass
class Machine:
    """A running `dither api`, `worker` or `beat`."""

    process: Piped | subprocess.Popen[str]
    said: dict[str, Any] = field(default_factory=dict)
    """The document that it printed when it was ready."""

    def children(self) -> list[int]:
        """Return the process ids of its processes, those that stand by left out."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = []
        for pid in map(int, pids):
            with suppress(ProcessLookupError, FileNotFoundError):  # it ended meanwhile
                found += [] if stands_by(pid) else [pid]
        return found

    def wait_ready(self) -> None:
        """Wait until it says that it is ready."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=30)[1]
        self.said = json.loads(line)

    def hear(self, words: str = "") -> str:
        """Return what it writes to stderr up to the next line with these words, or up to its end."""
        assert self.process.stderr
        heard = ""
        for line in self.process.stderr:
            heard += line
            if words in line:
                break
        return heard

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it; return its exit code and what it wrote to stderr that was not heard."""
        self.process.send_signal(how)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and what it wrote to stderr that was not heard."""
        assert self.process.stderr
        err = self.process.stderr.read()  # `communicate` would not see what `hear` has read ahead
        return self.process.wait(60), err


class Site:
    """Two Redis with a store for a registry, and the commands that work on them, with these values of modules."""

    def __init__(self, directory: Path, registry: str = "", settings: Mapping[str, object] = {}) -> None:
        self._settings = failing.with_settings(settings)
        self.data = RedisServer(directory / "data")
        self.broker = RedisServer(directory / "broker", {"appendonly": "no"})
        self.registry_path = directory / "metrics.toml"
        self.registry_path.write_text(registry or registry_text(), encoding="utf-8")
        self.registry = Registry.load(self.registry_path)
        self.key = ""
        """The key that devices show, once there is a store."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run both, with a store, while the block runs."""
        try:
            self.data.start()
            self.broker.start()
            assert self.init().returncode == 0
            yield
        finally:
            self.data.stop()
            self.broker.stop()

    def init(self, *options: object) -> subprocess.CompletedProcess[str]:
        """Make the store, and take notice of its first write key."""
        done = dither("init", self.registry_path, "--data", self.data.url, *options)
        if found := re.search(r"dither_write_\w+", done.stdout):
            self.key = found[0]
        return done

    @property
    def places(self) -> tuple[str, ...]:
        return ("--data", self.data.url, "--broker", self.broker.url)

    @contextmanager
    def machine(
        self, command: str, *options: object, ready: bool = True, environment: Mapping[str, str] = {}
    ) -> Iterator[Machine]:
        """Run a command; it is killed at the end if it has not ended."""
        one = Machine(start(command, *options, "--json", **self._settings, **environment))
        try:
            if ready:
                one.wait_ready()
            yield one
        finally:
            one.process.kill()
            with suppress(ValueError):  # it was communicated with before
                one.process.communicate()

    def api(self, *options: object, ready: bool = True) -> Any:
        """Run `dither api` on any free port, with the broker unless other places are given."""
        return self.machine("api", *(options or self.places), "--port", 0, "--processes", 1, ready=ready)

    def worker(self, *options: object, ready: bool = True) -> Any:
        """Run `dither worker` with two processes."""
        return self.machine("worker", *self.places, "--processes", 2, *options, ready=ready)

    def beat(self, *, ready: bool = True) -> Any:
        """Run `dither beat`."""
        return self.machine("beat", *self.places, ready=ready)

    @contextmanager
    def all_machines(self, environment: Mapping[str, str] = {}) -> Iterator[list[Machine]]:
        """Run API, worker and beat, started side by side; an environment says where both Redis are."""
        commands = {"api": ("--port", 0, "--processes", 1), "worker": ("--processes", 2), "beat": ()}
        places = () if environment else self.places
        with ExitStack() as running:
            machines = [
                running.enter_context(self.machine(command, *places, *options, ready=False, environment=environment))
                for command, options in commands.items()
            ]
            for one in machines:
                one.wait_ready()
            yield machines

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the store for a look."""
        store = open_store(self.data.url)
        try:
            yield store
        finally:
            store.close()

    def ledger(self) -> dict[str, LedgerRow]:
        """Return the ledger's rows by metric; each metric has reports of one day."""
        with self.store() as store:
            rows = store.ledger()
        assert all(row.balanced for row in rows)
        assert len({row.metric for row in rows}) == len(rows), rows
        return {row.metric: row for row in rows}

    def backlog(self) -> int:
        """Return how many uploads wait to be folded."""
        with self.store() as store:
            return store.backlog()


class Crowd:
    """Devices that upload known reports and keep each until it is answered with 202."""

    def __init__(self, site: Site, api: Machine, seed: int = 1) -> None:
        self._key = site.key
        self._url = api.said["url"] + PATH
        self._plan = site.registry.metrics["dark"].plan
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.sent = [0, 0]
        """How many reports said 0 and how many 1, of those that were acknowledged."""
        self.slowest_s = 0.0
        self.refused = 0

    @contextmanager
    def at(self, api: Machine) -> Iterator[None]:
        """Send to another API of the site while the block runs."""
        before, self._url = self._url, api.said["url"] + PATH
        try:
            yield
        finally:
            self._url = before

    def upload(self, uploads: int, reports: int = 20) -> None:
        """Send uploads, each until it is taken."""
        with requests.Session() as session:
            for _ in range(uploads):
                with self._lock:
                    bits = [self._random.getrandbits(1) for _ in range(reports)]
                    upload = new_upload_id(self._random.getrandbits)
                body = encode_upload(upload, [("dark", self._plan.digest, bits)])
                began = time.monotonic()
                while (status := self._post(session, body)) != 202:
                    assert status in (0, 503), status
                    self.refused += 1
                    assert time.monotonic() < began + 60, "no 202 within a minute"
                    time.sleep(0.1)
                with self._lock:
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    self.sent[1] += sum(bits)
                    self.sent[0] += reports - sum(bits)

    def _post(self, session: requests.Session, body: bytes) -> int:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            return session.post(self._url, data=body, headers=headers, timeout=30).status_code
        except requests.ConnectionError:
            return 0

    @contextmanager
    def uploading(self, threads: int = 4) -> Iterator[None]:
        """Send uploads as long as the block runs."""
        stopping = threading.Event()

        def run() -> None:
            while not stopping.wait(PAUSE_S):
                self.upload(5)

        running = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
        for thread in running:
            thread.start()
        try:
            yield
        finally:
            stopping.set()
        for thread in running:
            thread.join(120)
            assert not thread.is_alive()

    def check_counted(self, site: Site) -> None:
        """Every acknowledged report is folded once, and the tally is theirs."""
        total = sum(self.sent)
        row = site.ledger()["dark"]
        assert (row.accepted, row.folded, row.pending, row.quarantined) == (total, total, 0, 0)
        with site.store() as store:
            tally = store.tally(self._plan, store.today())
        assert (tally.n, tally.counts.tolist()) == (total, [total, *self.sent])


def is_running(pid: int) -> bool:
    """Tell whether a process does anything: one that nobody has waited for yet still has a number, but no command."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pid: int) -> None:
    """Kill a process of ours."""
    os.kill(pid, signal.SIGKILL)
