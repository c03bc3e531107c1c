"""An open store: what it is, its plans, its clock, and how far each of its shards is."""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date
from threading import Lock

from dither_aggregator.health.capacity import FreeSpace
from dither_aggregator.operations.registry_process import another_app
from dither_aggregator.store.keys import Keys
from dither_aggregator.store.packing import DAY_S, day_at, day_number
from dither_aggregator.store.plans import Offered, Plans, StoredPlan
from dither_aggregator.store.records import ShardStatus, StoreError
from dither_shared.plan import Plan
from dither_shared.registry import Registry

SHARDS = 16
"""Shards of a Redis store, unless told otherwise: as many counters can work at once."""
SAVE_ATTEMPTS = 10


def is_behind(clock: date, day: date) -> bool:
    """Whether the machine's clock is behind the day of a store; a single day passes by itself, as after a reset."""
    return (day - clock).days > 1


class Opened(ABC):
    """The base of every role of a store."""

    kind: str
    """The database that it is kept in, for people."""
    layout: int
    """The version of its tables or keys."""
    app: str
    """The app whose reports these are."""
    generation: str
    """Drawn when the store was made. A store that came back empty or from a backup has another one and is refused."""
    shards: int
    lossy: str = ""
    """Why what is acknowledged may be lost all the same, by the operator's choice; "" when it may not."""
    keeper: object = None
    """The way of this process to kept readings (`analysis/reading_cache.py`); None where each is made anew."""
    _digest_key: bytes
    _secret: bytes
    """Hashes keys and signs sessions: all processes of a store know it, and its backups do."""
    _plans: Plans
    _keys: Keys
    _refreshing: Lock

    def shard_of(self, upload_digest: bytes) -> int:
        """Return the shard of an upload: the leading bits of the keyed digest of its id."""
        return int.from_bytes(upload_digest[:8], "big") * self.shards >> 64

    def digest(self, data: bytes) -> bytes:
        """Return the keyed digest under which an id or a body is remembered: 16 bytes."""
        return hashlib.blake2b(data, key=self._digest_key, digest_size=16).digest()

    @abstractmethod
    def finish(self) -> None:
        """Make a store usable that was unfinished: everything is in it, and durable."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections, when no thread uses the store any more."""

    # Plans.

    def plans(self, metric: str | None = None) -> list[StoredPlan]:
        """Return the plans of one metric, or of all: those of the registry first, then the newest."""
        return self._plans.of(metric)

    def stored(self, plan: Plan) -> StoredPlan:
        """Return what is stored of a plan; KeyError where it is not of this store."""
        return self._plans.get(plan)

    def plan_by_id(self, id_: int) -> StoredPlan:
        """Return the plan with this id, which another process may just have loaded; KeyError where there is none."""
        if id_ not in self._plans.by_id:
            self.refresh()
        return self._plans.by_id[id_]

    def find_plan(self, metric: str, digest: str) -> Plan:
        """Return the plan under which an upload's group may be accepted; raise GroupRefused with the reason."""
        return self._plans.accepting(metric, digest, self._now_s())

    def load(self, registry: Registry | Offered) -> None:
        """Store the registry's plans beside the older ones, which stay accepted until they expire or are retired.

        Raises StoreError for another app's registry and for a rev that came before with another plan.
        """
        offered = Offered.of(registry)
        for _ in range(SAVE_ATTEMPTS):
            self.refresh()
            plans = self._plans  # once: another thread may refresh it
            if self._save_plans(self.loading(offered, plans), plans.version):
                return self.refresh()
        raise StoreError("the plans are being changed by somebody else all the time; try again")

    def loading(self, registry: Registry | Offered, plans: Plans | None = None) -> list[StoredPlan]:
        """Return the plans that loading a registry would store; raise StoreError as `load` does."""
        if self.app != registry.app:
            raise StoreError(another_app(self.app, registry.app))
        return (plans or self._plans).loading(Offered.of(registry))

    def retire(self, metric: str, rev: int, retired: bool = True) -> None:
        """Refuse the reports of a plan from now on, or take them again. Raises StoreError for a plan there is not."""
        for _ in range(SAVE_ATTEMPTS):
            self.refresh()
            plans = self._plans
            if self._save_plans(plans.retiring(metric, rev, retired), plans.version):
                return self.refresh()
        raise StoreError("the plans are being changed by somebody else all the time; try again")

    def refresh(self) -> None:
        """Take up what other processes changed: plans, keys, the clock's offset. Cheap; call it every second."""
        with self._refreshing:  # else a thread that read before another one's change could take that back
            self._refresh()

    @abstractmethod
    def _refresh(self) -> None:
        """Read what has changed, and keep it. By one thread at a time."""

    @abstractmethod
    def _save_plans(self, plans: Sequence[StoredPlan], version: int) -> bool:
        """Store all plans *if the stored version is still this one*, with the next; return whether it was."""

    # Keys, as they were at the last refresh. The role Keyring changes them.

    @property
    def keys(self) -> Keys:
        """The keys, as far as this process knows without asking."""
        return self._keys

    def signing_secret(self, purpose: bytes) -> bytes:
        """Return a secret for one purpose, the same in every process of the store: 32 bytes."""
        return hashlib.blake2b(purpose, key=self._secret, digest_size=32, person=b"dither sign").digest()

    # Time.

    @abstractmethod
    def _now_s(self) -> float:
        """Return the time by the store's clock, in seconds since 1970, as far as this process knows without asking."""

    def clock_day(self) -> date:
        """Return the day by the store's clock, as far as this process knows without asking."""
        return day_at(self._now_s())

    def ahead_s(self) -> float:
        """Return by how many seconds the store's clock is ahead of this machine's, as far as this process knows."""
        return self._now_s() - time.time()

    def over_for_s(self, day: date) -> float:
        """Return for how many seconds a day has been over, by the store's clock; 0 while it is not."""
        return max(0.0, self._now_s() - (day_number(day) + 1) * DAY_S)

    @abstractmethod
    def set_clock_offset(self, seconds: float) -> None:
        """Move the store's clock, for all processes, from their next refresh on. For tests alone."""

    # How it is.

    @abstractmethod
    def status(self) -> list[ShardStatus]:
        """Return how far each shard is."""

    def backlog(self) -> int:
        """Return how many accepted uploads are not folded."""
        return sum(shard.backlog for shard in self.status())

    @abstractmethod
    def left(self) -> FreeSpace | None:
        """Return what is left of the disk, or of the memory, that the store may have; None where nothing says."""

    def trouble(self) -> dict[str, str]:
        """Return what is wrong with the store now, by kind; empty when it is as it must be."""
        behind = [shard for shard in self.status() if is_behind(shard.clock_day, shard.day)]
        if not behind:
            return self._trouble()
        clock, day = behind[0].clock_day, max(shard.day for shard in behind)
        return {**self._trouble(), "clock": f"the store's clock says {clock}, and {day} has been: reports count on it"}

    @abstractmethod
    def _trouble(self) -> dict[str, str]:
        """Return what is wrong with this kind of store."""

    def integrity(self) -> list[str]:
        """Return what is wrong with the files beneath, in sentences. May take as long as reading all of them."""
        return []
