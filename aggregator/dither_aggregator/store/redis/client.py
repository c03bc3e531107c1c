"""Connections to Redis: to one, and to the nodes of a cluster.

**One Redis**: its connections, what its errors mean to a store, and whether it keeps what it acknowledges.

**A cluster**: its connections, which node has which key, and when the word of a node may be believed.

A cluster's failover takes back whatever the promoted replica did not have. So nothing is told before the replicas have
it: behind the commands for a node goes a write that changes nothing (`SURE`), and WAIT for its replicas, on the same
connection. WAIT counts the bytes before the connection's last write (redis.io, WAIT; redis/redis#6393), so it covers
the effects of these commands, and of all others that they saw. A node that was cut off, or whose replica is away,
answers nothing: the commands may have run, and are told to have failed. WAITAOF comes behind WAIT if all nodes know it,
for the replicas' disks. Alone it would take a second: a replica that is asked tells what it had synced before the
question, and then again once a second.

`replicas` is how many replicas each primary has, not how many suffice: WAIT is for all of them. If one more could be
elected than was waited for, an election might choose one without the last upload: Redis prefers the replica with the
most data and does not demand it (redis.io, "Redis cluster specification", replica rank and write safety). So more
replicas than `replicas` are refused, and so are settings by which the cluster moves replicas between primaries, elects
one that has never been in touch with its primary, or lets one be empty while it loads.

A replica that was copied to whole (after a failover, or when it was away for long) has no file of it until a rewrite
ends: killed before, it comes back with an older one, and as a primary if it became one meanwhile. So nothing is told
of a primary before its file and those of its replicas were seen to be whole since the last such copy or election. Who
sees it writes it down beside the shards' fields: a process that starts during an ordinary rewrite, when no file looks
whole, finds it there.

A slot that is being moved is refused whole. Each script names two keys of its slot: the hash of a shard, which is
there, and one that never is. Redis answers such a command with TRYAGAIN while the slot is migrated or imported, before
the script begins. An ASK redirection is never followed.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

from dither_aggregator.store.records import StoreError, StoreLoading, StoreUnavailable
from dither_aggregator.store.redis.layout import GLOBAL, MOVED, RESETTING, pairs
from dither_aggregator.store.redis.scripts import DAMAGED, NOT_THIS_STORE, SCRIPTS, Script

CONNECTIONS_MAX = 64
CONNECT_TIMEOUT_S = 5
REPLY_TIMEOUT_S = 10
IDLE_CHECK_S = 30
OPTIONS: dict[str, Any] = {
    "max_connections": CONNECTIONS_MAX,
    "timeout": REPLY_TIMEOUT_S,
    "socket_timeout": REPLY_TIMEOUT_S,
    "socket_connect_timeout": CONNECT_TIMEOUT_S,
    "health_check_interval": IDLE_CHECK_S,
    "decode_responses": False,
    "protocol": 2,
}
"""Every connection to a store has these."""
LOAD_ATTEMPTS = 5
VERSION_MIN = 7

Command = tuple[object, ...]

LATER = ("MISCONF", "BUSY", "NOREPLICAS", "UNKILLABLE")
"""How Redis's errors begin that are nobody's fault and pass; of others redis-py makes classes."""
_UNAVAILABLE = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ExecAbortError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,  # its slot is on its way to another node
    OSError,
)

SOUND = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "aof-load-truncated": "no",
    "maxmemory-policy": "noeviction",
}
"""The settings with which what is acknowledged is on the disk, and stays there, every effect whole or not at all.

A Redis that loads a file whose end is cut off leaves half of a transaction in it, and does that half when it is started
once more (7.0; valkey-io/valkey#4342). One that refuses is repaired with `redis-check-aof --fix`, which takes away all
of it.
"""


class Client:
    """Connections to one Redis, for any number of threads. No command is ever sent twice by itself."""

    one_node = True
    """Whether all keys are on one node, so that a transaction may have keys of several slots."""
    sound = SOUND

    def __init__(self, url: str) -> None:
        self.name = _without_password(url)
        """The address for people, without a user and password."""
        try:
            pool = redis.BlockingConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), **OPTIONS)
            pool.connection_class(**pool.connection_kwargs)  # not connected: only what the address asks for is tried
        except (ValueError, TypeError, redis.RedisError):
            raise StoreError(f"{self.name} is not the address of a Redis: redis://[:PASSWORD@]HOST:PORT/0") from None
        self._redis = redis.Redis(connection_pool=pool)

    def close(self) -> None:
        """Close the connections."""
        self._redis.connection_pool.disconnect()

    def run(self, *command: object) -> Any:
        """Run one command and return its reply."""
        return self.run_each([command])[0]

    def run_each(self, commands: Sequence[Command], *, together: bool = False) -> list[Any]:
        """Run commands one after another in one round trip; `together`, with nothing between them and one sync.

        Each of them runs once, unless this raises: then any number of them ran.
        """
        return self._checked(self._run_each(commands, together))

    def run_some(self, commands: Sequence[Command], *, together: bool = False) -> list[Any]:
        """Run commands as `run_each` does; the error is in the place of the reply where a node failed alone."""
        replies = self._run_each(commands, together)
        return [self._error(reply) if isinstance(reply, Exception) else reply for reply in replies]

    def everywhere(self, *command: object) -> list[Any]:
        """Run a command that is about a whole Redis, on each node."""
        return [self.run(*command)]

    def away(self) -> int:
        """Return how many of the nodes that there must be cannot be reached."""
        return 0

    def _run_each(self, commands: Sequence[Command], together: bool) -> list[Any]:
        replies = self._send(commands, together)
        missing = _missing(replies)
        if missing:  # a Redis that was restarted; what it lacked, it did not run
            self._load(commands[place] for place in missing)
            for place, reply in zip(missing, self._send([commands[p] for p in missing], together), strict=True):
                replies[place] = reply
        return replies

    def read_at_once(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands that only read, with nothing between them: what they return is of one instant."""
        for _ in range(LOAD_ATTEMPTS):
            replies = self._send(commands, together=True)
            missing = _missing(replies)
            if not missing:
                return self._checked(replies)
            self._load(commands[place] for place in missing)
        raise StoreUnavailable(f"{self.name} forgets its scripts as fast as they are loaded; try again")

    def _checked(self, replies: list[Any]) -> list[Any]:
        for reply in replies:
            if isinstance(reply, Exception):
                raise self._error(reply)
        return replies

    def _send(self, commands: Sequence[Command], together: bool) -> list[Any]:
        try:
            pipeline: Any  # redis-py's own types leave it open whether a reply is awaited
            with self._redis.pipeline(transaction=together) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return list(pipeline.execute(raise_on_error=False))
        except (redis.RedisError, OSError) as error:
            raise self._error(error) from None

    def _load(self, commands: Iterable[Command]) -> None:
        scripts = {SCRIPTS[str(command[1])] for command in commands}
        self._send([("SCRIPT LOAD", script.text) for script in scripts], together=False)

    def _error(self, error: Exception) -> StoreError:
        text = str(error).rpartition("caused error: ")[2]  # before it redis-py quotes what was sent
        if isinstance(error, redis.exceptions.BusyLoadingError):
            return StoreLoading(f"{self.name} is loading what it holds, and can be used when it has")
        if isinstance(error, _UNAVAILABLE) or text.startswith(LATER):
            return StoreUnavailable(f"{self.name} cannot be used now: {text.rstrip('.')}")
        if text.startswith(NOT_THIS_STORE) and text.endswith(RESETTING):
            return StoreUnavailable(f"{self.name} holds a store whose day is being reset; it can be used again then")
        if text.startswith(NOT_THIS_STORE) and text.endswith(MOVED):
            return StoreUnavailable(f"{self.name} holds a store that is copied to another: serve that one")
        if text.startswith(NOT_THIS_STORE):
            return StoreError(
                f"{self.name} is not the store that was opened: it was emptied, or another was put in its place. "
                "Put the Redis with its file back, or restart with the store that is there"
            )
        if text.startswith(DAMAGED):
            return StoreError(f"{self.name} is damaged: {text.removeprefix(DAMAGED).strip()}")
        return StoreError(f"{self.name} cannot be used: {text}")

    # The kind of Redis.

    def check(self) -> None:
        """Raise StoreError for a Redis that is too old, or a replica."""
        (information,) = self.information()
        self._check_version(information)
        if information.get("cluster_enabled"):
            raise StoreError(
                f"{self.name} is a node of a Redis Cluster, which has the other slots elsewhere: use the address "
                "redis+cluster://[:PASSWORD@]HOST:PORT[,HOST:PORT...]"
            )
        if information.get("role") != "master":
            raise StoreError(
                f"{self.name} is a replica, which may lack what was acknowledged: use the master's address"
            )

    def _check_version(self, information: Mapping[str, object]) -> None:
        version = str(information.get("redis_version", "0"))
        if int(version.split(".")[0]) < VERSION_MIN:
            raise StoreError(f"{self.name} is Redis {version}; dither needs {VERSION_MIN} or later")

    def check_sound(self, allow_lossy_store: bool) -> str:
        """Return why a store here may lose what it acknowledges, if that is allowed; else raise StoreError with it."""
        self.check()
        reason = self.lossy()
        if reason and not allow_lossy_store:
            raise StoreError(reason)
        return reason

    def information(self) -> list[Mapping[str, object]]:
        """Return what each node tells about itself."""
        return self.everywhere("INFO")

    def lossy(self) -> str:
        """Return why an acknowledged upload may be lost with this Redis, and what to do; "" when none may be."""
        try:
            replies = [[part.decode() for part in reply] for reply in self.everywhere("CONFIG", "GET", *self.sound)]
        except StoreUnavailable:
            raise
        except StoreError:
            return (
                f"{self.name} does not tell its settings (CONFIG is refused), so nobody knows whether it keeps what it "
                f"acknowledges. They must be: {', '.join(f'{name} {value}' for name, value in self.sound.items())}"
            )
        nodes = list(map(pairs, replies))
        wrong = {
            name: found.get(name) for found in nodes for name, value in self.sound.items() if found.get(name) != value
        }
        if not wrong:
            return ""
        has = ", ".join(f"{name} {value}" for name, value in wrong.items())
        sound = [f"{name} {self.sound[name]}" for name in wrong]
        return (
            f"{self.name} has {has}: acknowledged uploads can be lost. It must have {', '.join(sound)}: "
            f"redis-cli CONFIG SET {' '.join(sound)}, then redis-cli CONFIG REWRITE"
        )


def _missing(replies: Sequence[object]) -> list[int]:
    """Return the places of the scripts that Redis did not know, and so did not run."""
    return [place for place, reply in enumerate(replies) if isinstance(reply, redis.exceptions.NoScriptError)]


def call(script: Script, key: str, *arguments: object) -> Command:
    """Return the command that runs a script on what is named after a key.

    It names a second key, which never is there: a cluster refuses it while the slot of both is being moved.
    """
    return ("EVALSHA", script.sha, 2, key, f"{key}:moving", *arguments)


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
        place = parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError:
        return "this address"
    return f"redis at {place}" + (parts.path.rstrip("/") if parts.scheme != "unix" else "")


# A cluster.


REPLICAS_MAX = 5
SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
REPLICAS = 1
"""How many replicas each primary has, unless told otherwise."""
WAITAOF_FROM = (7, 2)
WAIT_MS = 2_000
"""How long replicas may take to have what a primary did, before it counts as failed."""
REDIRECTS_MAX = 4
"""How often a command goes on to the node that has its slot now."""
CLUSTER_SOUND = {
    **SOUND,
    "cluster-allow-replica-migration": "no",
    "cluster-replica-validity-factor": "10",
    "repl-diskless-load": "disabled",
}
SURE = """#!lua flags=allow-oom
local now = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') ..
    string.match(redis.call('INFO', 'stats'), 'sync_full(:%d+)')
local seen = ''
if redis.call('EXISTS', KEYS[1]) == 1 then
    seen = redis.call('HGET', KEYS[1], 'sure') or ''
    redis.call('HSET', KEYS[1], 'sure', ARGV[1] == now and now or seen)
end
return {now, seen}
"""
"""Write something, and return a text that is another after each election, restart and whole copy to a replica.

The second text is the one with which somebody last saw whole files, and told it here as the argument.
"""


def connect(url: str) -> Client:
    """Return the connections to one Redis, or to a cluster."""
    return ClusterClient(url) if url.partition("://")[0] in SCHEMES else Client(url)


class ClusterClient(Client):
    """Connections to the nodes of a cluster, as `Client` is to one: no command that ran is sent again by itself."""

    one_node = False
    sound = CLUSTER_SOUND

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        self.name = "this cluster"
        try:
            parts = urlsplit(f"{SCHEMES[scheme]}://{rest}")
            user, _, places = parts.netloc.rpartition("@")
            first, *others = places.split(",")
            self._others = [(one.hostname, one.port or 6379) for one in map(urlsplit, (f"//{each}" for each in others))]
            self.name = f"the cluster at {places}"
            asked = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
            (replicas,) = asked.pop("replicas", [str(REPLICAS)])
            self.replicas = int(replicas)
            self._url = f"{parts.scheme}://{user}{'@' if user else ''}{first}"
            redis.ConnectionPool.from_url(self._url)
            sound = first and not asked and not parts.path.strip("/") and 0 <= self.replicas <= REPLICAS_MAX
        except (ValueError, TypeError, redis.RedisError):
            sound = False
        if not sound:
            raise StoreError(
                f"{self.name} is not the address of a cluster: redis+cluster://[:PASSWORD@]HOST:PORT[,HOST:PORT...], "
                f"with --replicas from 0 to {REPLICAS_MAX}"
            )
        self._lock = threading.Lock()
        self._exchanging = 0
        """Threads that talk to nodes now."""
        self._forgotten: list[Any] = []
        """Nodes that left the cluster, whose connections are closed when no thread talks."""
        self._cluster: Any = None
        self._stale = True
        self._waits_for_disks = False
        """Whether all nodes know WAITAOF, and sync what they write before they say that it is written."""
        self._whole: dict[Any, bytes] = {}
        """`SURE` said this of each node when its file, and those of its replicas, were last seen to be whole."""

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()

    # Which node has which key.

    def _known(self) -> Any:
        """Return the cluster as it is known, asked for anew if something was not where it was thought to be."""
        with self._lock:
            if self._cluster is None:
                node_at: Any = ClusterNode  # redis-py's types leave it open
                self._cluster = RedisCluster.from_url(
                    self._url,
                    startup_nodes=[node_at(host, port) for host, port in self._others],
                    require_full_coverage=False,
                    connection_pool_class=redis.BlockingConnectionPool,
                    **OPTIONS,
                )
            elif self._stale:
                before = list(self._cluster.get_nodes())
                self._cluster.nodes_manager.initialize()
                listed = self._cluster.get_nodes()
                # redis-py forgets their connections, and leaves them open; another thread may still talk over one.
                self._forgotten += [each.redis_connection for each in before if each not in listed]
            self._stale = False
            return self._cluster

    def _by_node(self, commands: Sequence[Command], left: Iterable[int], replies: list[Any]) -> dict[Any, list[int]]:
        """Return by node the places of commands; the replies of the others say that no node has their slot."""
        found: dict[Any, list[int]] = {}
        try:
            cluster = self._known()
        except _FAILS as error:
            self._stale = True
            for place in left:
                replies[place] = _cause(error)
            return found
        for place in left:
            try:
                node = cluster.get_node_from_key(_key_of(commands[place]))
                found.setdefault(cluster.get_redis_connection(node), []).append(place)
            except _FAILS as error:
                self._stale = True
                replies[place] = _cause(error)
        return found

    # Commands.

    def _send(self, commands: Sequence[Command], together: bool) -> list[Any]:
        """Return the replies, each an exception where its node did not do it, or where its replicas may lack it."""
        replies: list[Any] = [None] * len(commands)
        left: Sequence[int] = range(len(commands))
        for _ in range(REDIRECTS_MAX):
            by_node = self._by_node(commands, left, replies)
            talks = [
                _Talk(node, [commands[place] for place in places], together, self._wait(node))
                for node, places in by_node.items()
            ]
            for (node, places), talk, found in zip(by_node.items(), talks, self._exchange(talks), strict=True):
                torn = self._torn(node, talk.sure)
                for place, reply in zip(places, found, strict=True):
                    replies[place] = torn if torn and not isinstance(reply, redis.ResponseError) else reply
            self._stale = self._stale or any(isinstance(reply, _ELSEWHERE) for reply in replies)
            left = [place for place in left if isinstance(replies[place], redis.exceptions.MovedError)]
            if not left:
                break
        return replies

    def _exchange(self, talks: Sequence["_Talk"]) -> list[list[Any]]:
        """Send to all nodes, then read the replies of all: they work side by side."""
        with self._lock:
            self._exchanging += 1
        try:
            for talk in talks:
                talk.send()
            return [talk.replies() for talk in talks]
        finally:
            with self._lock:
                self._exchanging -= 1
                while self._forgotten and not self._exchanging:
                    if node := self._forgotten.pop():
                        node.connection_pool.disconnect()

    def _wait(self, node: Any) -> "_Wait | None":
        return _Wait(self.replicas, self._waits_for_disks, self._whole.get(node, b"")) if self.replicas else None

    def _torn(self, node: Any, sure: "_Sure | None") -> Exception | None:
        """Return why what a primary and its replicas acknowledge may not be in their files; None if it is.

        A node that was copied to begins a new file, and until that is whole it would come back with an older one.
        """
        if sure is None or self._whole.get(node) == sure.now:
            return None
        if sure.seen == sure.now:
            self._whole[node] = sure.now
            return None
        try:
            cluster = self._known()
            roles = next(
                each for each in cluster.nodes_manager.slots_cache.values() if each[0].redis_connection is node
            )
        except (*_FAILS, StopIteration):
            return redis.ConnectionError("it was the primary of its slot, and is not any more")
        talks = [_Talk(cluster.get_redis_connection(each), [("INFO", "persistence")]) for each in roles]
        files = [reply for (reply,) in self._exchange(talks)]
        if len(files) != 1 + self.replicas or not all(map(_is_whole, files)):
            self._stale = True
            return redis.ConnectionError("the append-only file of a node is not whole yet")
        self._whole[node] = sure.now
        return None

    def everywhere(self, *command: object) -> list[Any]:
        """Return the reply of each node that can be reached: all others take no part in anything."""
        try:
            cluster = self._known()
            nodes = [cluster.get_redis_connection(node) for node in cluster.get_nodes()]
        except _FAILS as error:
            self._stale = True
            raise self._error(_cause(error)) from None
        replies = [reply for (reply,) in self._exchange([_Talk(node, [command]) for node in nodes])]
        self._stale = self._stale or any(isinstance(reply, _ELSEWHERE) for reply in replies)
        there = [
            reply for reply in replies if not isinstance(reply, redis.ConnectionError | redis.TimeoutError | OSError)
        ]
        return self._checked(there or replies)

    def _load(self, commands: Iterable[Command]) -> None:
        """Load scripts where the keys of these commands are."""
        for node, places in self._by_node(wanted := list(commands), range(len(wanted)), [None] * len(wanted)).items():
            texts = {SCRIPTS[str(wanted[place][1])].text for place in places}
            self._exchange([_Talk(node, [("SCRIPT LOAD", text) for text in texts])])

    # The kind of cluster.

    def check(self) -> None:
        """Raise StoreError for a Redis that is too old, or in no cluster."""
        nodes = self.information()
        for information in nodes:
            self._check_version(information)
            if not information.get("cluster_enabled"):
                raise StoreError(f"{self.name} is none: a single Redis is redis://[:PASSWORD@]HOST:PORT/0")
        self._waits_for_disks = all(_version(information) >= WAITAOF_FROM for information in nodes)

    def check_sound(self, allow_lossy_store: bool) -> str:
        """Return why a store here may lose what it acknowledges, if that is allowed; else raise StoreError with it."""
        reason = super().check_sound(allow_lossy_store)
        if reason or self.replicas or not any(self._replicas().values()):
            return reason
        return f"{self.name} is used with --replicas 0, and has some: a failover loses what its replica lacks"

    def lossy(self) -> str:
        """Return why an acknowledged upload may be lost with this cluster, and what to do; "" when none may be."""
        most = max(self._replicas().values(), default=0)
        if self.replicas and most > self.replicas:
            return (
                f"{self.name} has a primary with {most} replicas, and {self.replicas} are waited for: the cluster may "
                f"elect another. Say --replicas {most}"
            )
        reason = super().lossy()
        self._waits_for_disks = self._waits_for_disks and not reason  # else each commit could wait for a second
        return reason

    def away(self) -> int:
        """Return how many of the nodes that there must be cannot be reached."""
        lacking = len(self._replicas()) * (1 + self.replicas) - len(self.everywhere("PING"))
        self._stale = self._stale or lacking > 0  # a cluster does not list a replica before it has heard of its data
        return max(0, lacking)

    def _replicas(self) -> dict[str, int]:
        """Return how many replicas each primary with slots has, also those that are away and may come back."""
        nodes: Mapping[str, Mapping[str, Any]] = self.everywhere("CLUSTER NODES")[0]
        found = {str(one["node_id"]): 0 for one in nodes.values() if "master" in one["flags"] and one["slots"]}
        for one in nodes.values():
            if one["master_id"] in found and "slave" in one["flags"]:
                found[str(one["master_id"])] += 1
        return found


_FAILS = (redis.RedisError, redis.exceptions.RedisClusterException, OSError)


def _cause(error: Exception) -> Exception:
    """Return why no node was found: none could be reached, none has the slot now, or it is no cluster."""
    if isinstance(error.__cause__, _FAILS):
        return error.__cause__
    uncovered = isinstance(error, redis.exceptions.SlotNotCoveredError)
    return redis.ConnectionError(str(error)) if uncovered else error


_ELSEWHERE = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.AskError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
    OSError,
)
"""After these a slot may be, or soon be, on another node."""


def _version(information: Mapping[str, object]) -> tuple[int, ...]:
    return tuple(map(int, str(information["redis_version"]).split(".")[:2]))


def _is_whole(file: Any) -> bool:
    writing = isinstance(file, Exception) or file["aof_rewrite_in_progress"] or file["aof_rewrite_scheduled"]
    return not writing and file["aof_enabled"] == 1 and file["aof_last_bgrewrite_status"] == "ok"


class _Sure(NamedTuple):
    """The two texts of `SURE`."""

    now: bytes
    seen: bytes


class _Wait(NamedTuple):
    """The replicas that are waited for behind the commands for a node."""

    replicas: int
    disks: bool
    """Whether theirs, too."""
    whole: bytes
    """The argument of `SURE`."""


class _Talk:
    """Commands for one node on one connection, `together` as one transaction; perhaps its replicas are waited for."""

    def __init__(
        self, node: Any, commands: Sequence[Command], together: bool = False, wait: _Wait | None = None
    ) -> None:
        self._node, self._commands, self._together, self._wait = node, commands, together, wait
        self._connection: Any = None
        self.sure: _Sure | None = None
        """`SURE` returned this where replicas have all that was before it."""
        self._failed: Exception | None = None

    def send(self) -> None:
        """Send all, or keep what it fails with."""
        sent = [("MULTI",), *self._commands, ("EXEC",)] if self._together else list(self._commands)
        sent += self._asking(self._commands[0])
        try:
            self._connection = self._node.connection_pool.get_connection()
            self._connection.send_packed_command(self._connection.pack_commands(sent))
        except (redis.RedisError, OSError) as error:
            self._fail(error)

    def _asking(self, command: Command) -> list[Command]:
        """Return what asks for the word of replicas; it names a key of a command of the same node."""
        if not self._wait:
            return []
        wait: Command = ("WAIT", self._wait.replicas, WAIT_MS)
        disks: Command = ("WAITAOF", 0, self._wait.replicas, WAIT_MS)
        return [("EVAL", SURE, 1, _hash_of(_key_of(command)), self._wait.whole), wait, *[disks] * self._wait.disks]

    def replies(self) -> list[Any]:
        """Return the reply to each command, an exception where it was not done, or where replicas may lack it."""
        try:
            found = [] if self._failed else self._read_all()
        except (redis.RedisError, OSError) as error:
            self._fail(error)
        if self._connection is not None:
            self._node.connection_pool.release(self._connection)
        return [self._failed for _ in self._commands] if self._failed else found

    def _read_all(self) -> list[Any]:
        if self._together:
            queued = [self._read("") for _ in range(1 + len(self._commands))]
            done = self._read("")
            refused = next((reply for reply in queued if isinstance(reply, Exception)), done)
            callbacks = self._node.response_callbacks
            found = (
                [refused for _ in self._commands]
                if isinstance(refused, Exception)
                else [
                    reply if isinstance(reply, Exception) else callbacks.get(str(name), _as_it_is)(reply)
                    for (name, *_), reply in zip(self._commands, done, strict=True)
                ]
            )
        else:
            found = [self._read(str(name)) for name, *_ in self._commands]
        if not self._wait:
            return found
        sure, have = self._read_sure(self._wait)
        done = next((place for place, reply in enumerate(found) if not isinstance(reply, redis.ResponseError)), None)
        if isinstance(sure, redis.exceptions.AskError) and done is not None:
            # The key's slot has moved, or is moving, and that of a command which was done here has not.
            again = self._asking(self._commands[done])
            self._connection.send_packed_command(self._connection.pack_commands(again))
            sure, have = self._read_sure(self._wait)
        if isinstance(sure, Exception) or isinstance(have, Exception) or have < self._wait.replicas:
            few = f"{have} of {self._wait.replicas} replicas have it after {WAIT_MS} ms"
            lacking = redis.ConnectionError(str(sure) if isinstance(sure, Exception) else few)
            # A refused command was not done, and says best why.
            return [reply if isinstance(reply, redis.ResponseError) else lacking for reply in found]
        self.sure = _Sure(*sure)
        return found

    def _read_sure(self, wait: _Wait) -> tuple[Any, Any]:
        """Return the reply of `SURE`, and how many replicas have what was before it, each perhaps an exception."""
        sure, have = self._read(""), self._read("")
        if wait.disks:
            synced = self._read("")
            have = synced if isinstance(synced, Exception) else min(have, synced[1])
        return sure, have

    def _read(self, name: str) -> Any:
        try:
            return self._node.parse_response(self._connection, name)
        except redis.ResponseError as error:
            return error

    def _fail(self, error: Exception) -> None:
        self._failed = error
        if self._connection is not None:
            self._connection.disconnect()


def _as_it_is(reply: Any) -> Any:
    return reply


def _key_of(command: Command) -> str:
    """Return a key of a command's slot: a script's hash, or the only key; what has none goes to the global slot's."""
    if command[0] == "EVALSHA":
        return str(command[3])
    key = str(command[1]) if len(command) > 1 else ""
    return key if key.startswith("dither:{") else GLOBAL


def _hash_of(key: str) -> str:
    """Return the hash that a key is named after."""
    return key[: key.index("}") + 1]
