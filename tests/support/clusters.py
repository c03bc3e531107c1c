"""Aggregators of several processes for the tests: each has a name, can be killed and started again, and ends at last.

    with one_machine(directory, registry) as cluster:       # "serve", on SQLite
    with several_machines(directory, registry) as cluster:  # "data", "broker", "api-0", "worker-0", "beat-0", ...
        cluster["api-0"].kill()
        cluster["api-0"].start()

The processes' output is in files, and is shown when a test fails.
"""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import requests

from dither_aggregator.operations.fork_server import FORK_SERVER_NAME
from dither_aggregator.store import Store, create_store, open_store
from dither_aggregator.store.sqlite import kept_key
from dither_shared.registry import Registry
from tests.support import waiting
from tests.support.aggregators import ENVIRONMENT, nursery
from tests.support.failing import ENVIRONMENT_NAME, Orders
from tests.support.keys import write_key
from tests.support.nursery import Born
from tests.support.ports import free_port
from tests.support.redis_servers import RedisServer

READY_WITHIN_S = 60
END_WITHIN_S = 60
LOG_SHOWN = 6_000
"""Characters of each log that are shown when a test fails, its last ones."""
SERVE, DATA, BROKER = "serve", "data", "broker"


def wait_until(condition: Callable[[], object], what: str, within_s: float = 60) -> None:
    """Wait until something is so; fail with these words when it takes too long."""
    waiting.wait_until(condition, within_s, what)


def stands_by(pid: int) -> bool:
    """Tell whether a process does no work itself: the fork server of readers."""
    return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").rstrip("\n") == FORK_SERVER_NAME


class Process:
    """A `dither` command, with the processes that it starts: they are one group of their own."""

    def __init__(
        self,
        directory: Path,
        name: str,
        arguments: Iterable[object],
        orders: Orders | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.orders = orders
        self._environment = environment or {}
        self._arguments = [str(argument) for argument in arguments]
        self._out, self._err = directory / f"{name}.out", directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | Born | None = None
        self._lock = threading.RLock()
        """Held while it is started or killed: tests kill on one thread, and start again on another."""

    def launch(self, *before: str) -> None:
        """Start it behind another command, if one is given, and do not wait."""
        with self._lock:
            self.kill()
            self._launch(before)

    def _launch(self, before: Sequence[str]) -> None:
        module = "tests.support.failing" if self.orders else "dither.cli"
        ordered = {ENVIRONMENT_NAME: self.orders.to_text()} if self.orders else {}
        environment = {**ENVIRONMENT, **self._environment, **ordered}
        if not before:
            self._process = nursery().born(module, self._arguments, environment, self._out, self._err)
            return
        with self._out.open("wb") as out, self._err.open("ab") as err:
            self._process = subprocess.Popen(
                [*before, sys.executable, "-m", module, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )

    def ready(self) -> dict[str, Any]:
        """Wait until it says that it is ready; return what it said. One that a fault ended is started again."""
        deadline = time.monotonic() + READY_WITHIN_S
        while not (said := self._out.read_bytes()).endswith(b"\n"):
            if not self.runs():
                assert self.orders, f"{self.name} ended: {self.written()}"
                assert self.orders.faults, f"{self.name} ended: {self.written()}"
                self.launch()
            assert time.monotonic() < deadline, f"{self.name} is not ready: {self.written()}"
            time.sleep(0.02)
        document: dict[str, Any] = json.loads(said.splitlines()[0])
        return document

    def start(self) -> dict[str, Any]:
        """Start it, anew if it runs, and wait until it is ready."""
        self.launch()
        return self.ready()

    @property
    def pid(self) -> int:
        """The parent's."""
        assert self._process
        return self._process.pid

    def runs(self) -> bool:
        """Whether the parent has not ended."""
        return self._process is not None and self._process.poll() is None

    def code(self, within_s: float = END_WITHIN_S) -> int:
        """Wait until the parent has ended, and return its exit code."""
        assert self._process
        return self._process.wait(within_s)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the parent."""
        assert self._process
        self._process.send_signal(number)

    def stop(self) -> int:
        """End it as an operator does, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.code()

    def kill(self) -> None:
        """Kill the whole group, as far as it is there, and wait until it is not."""
        with self._lock:
            if self._process is None:
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(END_WITHIN_S)
            wait_until(lambda: not self.group(), f"{self.name} being gone")

    def kill_parent(self) -> None:
        """Kill the parent alone."""
        self.signal(signal.SIGKILL)
        self.code()

    def children(self) -> list[int]:
        """Return the processes of the group but for the parent, and for those that stand by."""
        return [pid for pid in self.group() if pid != self.pid and not stands_by(pid)]

    def group(self) -> list[int]:
        """Return the living processes of the group."""
        return self._living(2)

    def session(self) -> list[int]:
        """Return the living processes of the session: the group, and those that it put into groups of their own."""
        return self._living(3)

    def _living(self, field: int) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[field]) == self.pid and fields[0] not in "XZ":
                    found.append(int(path.parent.name))
        return found

    def written(self) -> str:
        """Return the end of what it wrote to stderr."""
        return self._err.read_text(errors="replace")[-LOG_SHOWN:] if self._err.exists() else ""


class Cluster(ABC):
    """An aggregator, and the processes it consists of. All of them end with it."""

    urls: list[str]
    """The addresses that devices send their reports to."""
    health: list[str]
    """The address that monitors ask, for each of them."""
    store_name: str
    trusted: ssl.SSLContext | None = None
    """How devices check who answers, where that is a proxy with TLS."""

    def __init__(self, directory: Path, registry: str, orders: Orders | None = None) -> None:
        self.directory = directory
        self.orders = orders
        self.registry = directory / "metrics.toml"
        directory.mkdir(parents=True, exist_ok=True)
        self.registry.write_text(registry, encoding="utf-8")
        self.processes: dict[str, Process] = {}
        self.servers: dict[str, RedisServer] = {}
        self.urls, self.health = [], []

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    def add(self, name: str, *arguments: object, orders: Orders | None = None) -> Process:
        """Add a command that is to run, without starting it. `orders` come before those of the cluster."""
        process = Process(self.directory, name, arguments, orders or self.orders)
        self.processes[name] = process
        return process

    def remove(self, name: str) -> None:
        """Kill a process, and have it not any more; of an API, the newest."""
        self.processes.pop(name).kill()
        if name.startswith("api"):
            self.urls.pop()
            self.health.pop()

    def place(self) -> tuple[object, ...]:
        """Return the options of one more server, at addresses of its own."""
        port = free_port()
        self.urls.append(f"http://127.0.0.1:{port}")
        self.health.append(f"http://127.0.0.1:{port + 1}")
        return "--port", port, "--health", port + 1

    def ready(self, server: int = 0) -> requests.Response:
        """Return what a server says of its readiness."""
        return requests.get(f"{self.health[server]}/readyz", timeout=30)

    def add_redis(self, name: str, **settings: str) -> RedisServer:
        """Add a Redis, and start it."""
        named = {key.replace("_", "-"): value for key, value in settings.items()}
        server = self.servers[name] = RedisServer(self.directory / name, named)
        server.start()
        return server

    def start(self, *names: str) -> None:
        """Start processes side by side, all of them by default."""
        chosen = [self.processes[name] for name in names or self.processes]
        for process in chosen:
            process.launch()
        for process in chosen:
            process.ready()

    def named(self, kind: str) -> list[Process]:
        """Return the processes of a kind, as `worker`."""
        return [process for name, process in self.processes.items() if name.partition("-")[0] == kind]

    def kill_all(self) -> None:
        """Kill every `dither` process: nobody changes the store any more."""
        for process in self.processes.values():
            process.kill()

    def open(self) -> Store:
        """Open the store as one more process does."""
        return open_store(self.store_name, allow_lossy_store=True)

    @property
    @abstractmethod
    def key(self) -> str:
        """The key that devices show to be let in."""

    @abstractmethod
    def restart_store(self) -> None:
        """Kill what holds the store and start it again."""

    def close(self) -> None:
        """Kill everything."""
        for process in self.processes.values():
            process.kill()
        for server in self.servers.values():
            server.stop()

    def logs(self) -> str:
        """Return what every process wrote."""
        parts = [(name, process.written()) for name, process in self.processes.items()]
        parts += [(name, server.written()[-LOG_SHOWN:]) for name, server in self.servers.items()]
        return "\n".join(f"--- {name}\n{written}" for name, written in parts if written)


class OneMachine(Cluster):
    """`dither serve`: one process on SQLite."""

    def __init__(self, directory: Path, registry: str, orders: Orders | None = None) -> None:
        super().__init__(directory, registry, orders)
        self.data = directory / "store"
        self.store_name = str(self.data)
        self.add(SERVE, "serve", self.registry, "--data", self.data, *self.place(), "--json")

    @property
    def key(self) -> str:
        return kept_key(self.data)

    def restart_store(self) -> None:
        self[SERVE].start()


class SeveralMachines(Cluster):
    """Two Redis, and any number of `dither api`, `worker` and `beat`; one Redis if the store is to be at `data`."""

    def __init__(
        self,
        directory: Path,
        registry: str,
        orders: Orders | None = None,
        *,
        shards: int = 4,
        lossy: bool = False,
        data: str = "",
        **settings: str,
    ) -> None:
        super().__init__(directory, registry, orders)
        self._lossy = ["--allow-lossy-store"] if lossy else []
        self.store_name = data or self.add_redis(DATA, **settings).url
        self.broker = self.add_redis(BROKER, appendonly="no")
        with closing(create_store(self.store_name, self._app(), shards, allow_lossy_store=lossy)) as store:
            store.load(Registry.load(self.registry))
            self._key = write_key(store)

    @property
    def data(self) -> RedisServer:
        """The Redis of the store, where there is one of its own."""
        return self.servers[DATA]

    @property
    def key(self) -> str:
        return self._key

    def _app(self) -> str:
        return Registry.load(self.registry).app

    def add_api(self, processes: int = 1, orders: Orders | None = None) -> Process:
        """Add a `dither api` at an address of its own."""
        name = f"api-{len(self.named('api'))}"
        return self._add(name, "api", *self.place(), "--processes", processes, *self._lossy, orders=orders)

    def add_worker(self, processes: int = 1, orders: Orders | None = None) -> Process:
        """Add a `dither worker`."""
        name = f"worker-{len(self.named('worker'))}"
        return self._add(name, "worker", "--processes", processes, *self._lossy, orders=orders)

    def add_beat(self, orders: Orders | None = None) -> Process:
        """Add a `dither beat`."""
        return self._add(f"beat-{len(self.named('beat'))}", "beat", orders=orders)

    def _add(self, name: str, command: str, *arguments: object, orders: Orders | None) -> Process:
        places = ("--data", self.store_name, "--broker", self.broker.url, "--json")
        return self.add(name, command, *places, *arguments, orders=orders)

    def restart_store(self) -> None:
        self.data.restart()


@contextmanager
def logged(cluster: Cluster) -> Iterator[None]:
    """Show what the processes of a cluster wrote when the block fails."""
    try:
        yield
    except BaseException:
        print(cluster.logs())
        raise


@contextmanager
def running(cluster: Cluster) -> Iterator[None]:
    """End all processes of a cluster with the block; when it fails, show what they wrote."""
    try:
        with logged(cluster):
            yield
    finally:
        cluster.close()


@contextmanager
def one_machine(directory: Path, registry: str, orders: Orders | None = None) -> Iterator[OneMachine]:
    """Run `dither serve`."""
    cluster = OneMachine(directory, registry, orders)
    with running(cluster):
        cluster.start()
        yield cluster


@contextmanager
def several_machines(
    directory: Path,
    registry: str,
    orders: Orders | None = None,
    *,
    apis: int = 1,
    workers: int = 1,
    beats: int = 1,
    processes: int = 1,
    api_processes: int | None = None,
    **options: Any,
) -> Iterator[SeveralMachines]:
    """Run so many of each command, each API and worker with so many `processes`; each API with others if told.

    A process of an API takes half a second of a core to start, as one of several; a worker's is a fork.
    """
    cluster = SeveralMachines(directory, registry, orders, **options)
    with running(cluster):
        for _ in range(apis):
            cluster.add_api(processes if api_processes is None else api_processes)
        for _ in range(workers):
            cluster.add_worker(processes)
        for _ in range(beats):
            cluster.add_beat()
        cluster.start()
        yield cluster
