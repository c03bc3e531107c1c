"""Making and opening a Redis store; its plans, its clock, and how far each shard is."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import date
from threading import Lock
from typing import Self

from dither_aggregator.health.capacity import FreeSpace
from dither_aggregator.store.interface import SHARDS
from dither_aggregator.store.keys import Key, Keys
from dither_aggregator.store.packing import day_of
from dither_aggregator.store.plans import Plans, StoredPlan
from dither_aggregator.store.records import OtherLayout, ShardStatus, StoreError, StoreUnavailable
from dither_aggregator.store.redis import key_names, shard_scripts, store_scripts
from dither_aggregator.store.redis.calls import RedisCalls
from dither_aggregator.store.redis.client import Client
from dither_aggregator.store.redis.making import START_AGAIN, begin, check_sound
from dither_aggregator.store.redis.packing import tally_of

SHARDS_MAX = 1024


class RedisOpened(RedisCalls):
    """The base of every role of a Redis store."""

    kind = "Redis"
    layout = key_names.VERSION

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        *,
        allow_lossy_store: bool = False,
        unfinished: bool = False,
        resetting: bool = False,
    ) -> None:
        super().__init__(url)
        self._clock, self._refreshing = clock, Lock()
        self._allow_lossy = allow_lossy_store
        try:
            self._open(unfinished, resetting)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        url: str,
        app: str,
        shards: int = SHARDS,
        clock: Callable[[], float] = time.time,
        *,
        allow_lossy_store: bool = False,
        unfinished: bool = False,
    ) -> Self:
        """Make the store of an app in an empty Redis, and open it; `unfinished` until it is restored."""
        if not 1 <= shards <= SHARDS_MAX:
            raise StoreError(f"a store has 1 to {SHARDS_MAX} shards, got {shards}")
        client = Client(url)
        try:
            check_sound(client, allow_lossy_store)
            begin(client, app, shards)
        finally:
            client.close()
        store = cls(url, clock, allow_lossy_store=allow_lossy_store, unfinished=True)
        if not unfinished:
            store.finish()
        return store

    def finish(self) -> None:
        """Make the store usable: the shards, and at last the whole."""
        token = key_names.token(self.generation)
        self._of_each_shard(store_scripts.FINISH, token)
        self._run_global(store_scripts.FINISH, token)
        self._token = token

    def _open(self, unfinished: bool, resetting: bool) -> None:
        name = self._client.name
        # In a Cluster no transaction spans slots; elsewhere one saves a sync for each of an append's shards.
        self._one_node = not self._client.information().get("cluster_enabled")
        self.lossy = check_sound(self._client, self._allow_lossy)
        state = {key.decode(): value for key, value in self._client.run("HGETALL", key_names.GLOBAL).items()}
        if not state:
            raise StoreError(f"{name} holds no store; `dither init` makes one, `dither restore` one of a backup")
        version = state.get("version", b"0").decode()
        if version != str(key_names.VERSION):
            older = version.isdigit() and int(version) < key_names.VERSION
            next_step = (
                "`dither backup` by the dither that wrote it, then `dither restore` into an empty Redis by this one"
            )
            raise OtherLayout(
                f"{name} holds a store of version {version}; this dither reads {key_names.VERSION}: "
                f"{next_step if older else 'use the dither that wrote it'}",
                newer=not older,
            )
        self.app = state["app"].decode()
        self.generation = state["generation"].decode()
        self.shards = int(state["shards"])
        self._digest_key, self._secret = state["digest_key"], state["secret"]
        self._token = state["token"].decode()
        if self._token.endswith(key_names.RESETTING):
            if not resetting:
                raise StoreError(
                    f"{name} holds a store whose day is being reset: `dither store reset-clock` again if it was cut off"
                )
        elif self._token != key_names.token(self.generation) and not unfinished:
            raise StoreError(f"{name} holds a store that was not filled to its end; {START_AGAIN}")
        self.refresh()
        if not (unfinished or resetting):  # one that was nearly finished is finished in some of its shards
            self.status()

    # Plans and time.

    def _refresh(self) -> None:
        plans = self._plans.version if hasattr(self, "_plans") else -1
        keys = self._keys.version if hasattr(self, "_keys") else -1
        before = self._clock()
        now, plans_version, plans_now, keys_version, keys_now = self._run_global(store_scripts.REFRESH, plans, keys)
        self._ahead_s = float(now) - (before + self._clock()) / 2
        if plans_now is not None:
            stored = [StoredPlan.from_json(document) for document in plans_now]
            self._plans = Plans(sorted(stored, key=lambda item: item.id), int(plans_version))
        if keys_now is not None:
            known = [Key.from_document(json.loads(document)) for document in keys_now]
            self._keys = Keys(known, int(keys_version), self._secret)

    def _save_plans(self, plans: Sequence[StoredPlan], version: int) -> bool:
        documents = [value for item in plans for value in (item.id, json.dumps(item.to_document()))]
        return bool(self._run_global(store_scripts.SAVE, "plans", version, *documents))

    def _now_s(self) -> float:
        """Return the time by Redis's clock, as far as it was ahead of this process's at the last refresh."""
        return self._clock() + self._ahead_s

    def set_clock_offset(self, seconds: float) -> None:
        """Move the clock of every shard."""
        self._of_each_shard(store_scripts.SET, "clock_offset_s", repr(seconds))
        self._run_global(store_scripts.SET, "clock_offset_s", repr(seconds))
        self.refresh()

    # How it is.

    def status(self) -> list[ShardStatus]:
        """Return how far each shard is."""
        floors = self._seen_written()
        statuses = []
        for shard, reply in enumerate(self._of_each_shard(shard_scripts.STATUS)):
            written, cursor, backlog, day, clock_day, sealed, merged, waiting_s = reply
            self._saw_written(floors, shard, written)
            statuses.append(
                ShardStatus(
                    shard=shard,
                    written=written,
                    cursor=cursor,
                    backlog=backlog,
                    day=day_of(day),
                    clock_day=day_of(clock_day),
                    sealed=day_of(sealed),
                    merged=day_of(int(merged)) if merged else date.min,
                    waiting_s=max(0.0, float(waiting_s)) if backlog else 0.0,
                )
            )
        return statuses

    def left(self) -> FreeSpace | None:
        """Return what is left of `maxmemory`, as Redis counts it; None where there is none, or Redis does not tell."""
        memory = self._client.information()
        most = int(str(memory.get("maxmemory", 0)))
        used = int(str(memory.get("used_memory", 0))) - int(str(memory.get("mem_not_counted_for_evict", 0)))
        return FreeSpace("memory", max(most - used, 0), most) if most else None

    def _trouble(self) -> dict[str, str]:
        trouble = {}
        try:
            self._client.check()
        except StoreUnavailable:
            raise
        except StoreError as error:
            trouble["store"] = str(error)
        reason = self._client.lossy()
        if self._allow_lossy:
            self.lossy = reason
        elif reason:
            trouble["settings"] = reason
        if self._lost:
            trouble["lost"] = f"it has lost {self._lost} uploads that it had acknowledged"
        return trouble

    def integrity(self) -> list[str]:
        """Return what is wrong with the lengths of logs and tallies."""
        wrong = [
            f"shard {one.shard}: the log holds {one.backlog} uploads, and {one.written - one.cursor} are to be folded"
            for one in self.status()
            if one.backlog != one.written - one.cursor
        ]
        for shard in range(self.shards):
            found = {name for names in self._scan(shard_scripts.LENGTHS, shard) for name in names}
            for plan, epoch in sorted(map(tally_of, found)):
                wrong.append(f"shard {shard}: the tally of plan {plan} on {epoch} lacks segments, or has too many")
        return wrong
