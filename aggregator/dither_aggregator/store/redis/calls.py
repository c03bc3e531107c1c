"""How the Redis store runs its scripts: on a shard, on each of them, and on what is common to all."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.redis import key_names, scripts
from dither_aggregator.store.redis.client import Client, Command, call

INSTANT_ATTEMPTS = 10
"""How often what must be of one instant is read before it is given up, or read at once at any price."""
PLANS_AT_ONCE = 100
SCAN_ITEMS = 500
"""How many items of a long collection one script looks at, about: it holds up every other."""

_Item = TypeVar("_Item")


class RedisCalls(Opened):
    """Calls with the token of the store that was opened, and what they tell of uploads that are gone."""

    _token: str

    def __init__(self, url: str) -> None:
        self._lock = threading.Lock()
        self._floors: dict[int, int] = {}
        self._lost = 0
        self._client = Client(url)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _call(self, script: scripts.Script, shard: int, *arguments: object) -> Command:
        return call(script, key_names.shard_key(shard), self._token, *arguments)

    def _run(self, script: scripts.Script, shard: int, *arguments: object) -> Any:
        return self._client.run(*self._call(script, shard, *arguments))

    def _call_global(self, script: scripts.Script, *arguments: object) -> Command:
        return call(script, key_names.GLOBAL, self._token, *arguments)

    def _run_global(self, script: scripts.Script, *arguments: object) -> Any:
        return self._client.run(*self._call_global(script, *arguments))

    def _of_each_shard(self, script: scripts.Script, *arguments: object) -> list[Any]:
        return self._client.run_each([self._call(script, shard, *arguments) for shard in range(self.shards)])

    def _scan(self, script: scripts.Script, shard: int, *arguments: object) -> Iterator[list[Any]]:
        """Yield a long collection in pieces: an element that is in it all the time comes once, or more often."""
        cursor: object = 0
        while cursor != b"0":
            cursor, items = self._run(script, shard, *arguments, cursor, SCAN_ITEMS)
            yield items

    def _plan_ids(self) -> list[int]:
        return sorted(self._plans.by_id)

    # How many uploads each shard is known to have had: fewer later on are a loss.

    def _seen_written(self) -> dict[int, int]:
        with self._lock:
            return dict(self._floors)

    def _saw_written(self, floors: dict[int, int], shard: int, written: int) -> None:
        """Take notice of how many uploads a shard has, asked for when it was known to have had `floors`."""
        with self._lock:
            if written < floors.get(shard, 0):
                self._lost += floors[shard] - written
                self._floors[shard] = written
            else:
                self._floors[shard] = max(written, self._floors.get(shard, 0))


def chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Yield items in pieces of so many at most."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
