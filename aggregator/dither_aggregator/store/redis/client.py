"""The connections to a Redis, what its errors mean to a store, and whether it keeps what it acknowledges."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dither_aggregator.store.records import StoreError, StoreLoading, StoreUnavailable
from dither_aggregator.store.redis.layout import MOVED, RESETTING
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
        nodes = [dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies]
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
