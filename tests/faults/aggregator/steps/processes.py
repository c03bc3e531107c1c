"""The processes of one aggregator on a store, of which each knows what it last refreshed; and what a step is."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from dither_aggregator.store import Store, StoreUnavailable
from tests.faults.aggregator.editions import editions
from tests.faults.aggregator.faulty import Faults
from tests.faults.aggregator.instant import Instant
from tests.faults.aggregator.oracle import Oracle
from tests.faults.aggregator.places import FIRST_DAY, Places
from tests.faults.aggregator.uploads import PlanKey

T = TypeVar("T")
P = ParamSpec("P")
W = TypeVar("W", bound="Processes")

PROCESSES = 3
HELD_MAX = 6
"""The most of a kind that is held: read, and not yet written."""


@dataclass(frozen=True)
class Known:
    """The terms of a plan at one version of the registry."""

    expires: date
    retired: bool = False


View = dict[PlanKey, Known]


def step(method: Callable[Concatenate[W, P], T], /) -> Callable[Concatenate[W, P], T]:
    """Make a method a step, which an assertion that fails shows; look at the store behind it."""

    @wraps(method)
    def taken(world: W, /, *args: P.args, **kwargs: P.kwargs) -> T:
        words = ", ".join(str(getattr(word, "__name__", word)) for word in (*args, *kwargs.values()))
        world.steps.append(f"{world.today}: {method.__name__}({words})")
        try:
            result = method(world, *args, **kwargs)
            world.look()
        except Exception as error:
            world.failed = True
            if not hasattr(error, "__notes__"):
                error.add_note(f"{world.place.kind}, the steps:\n  " + "\n  ".join(world.steps[-40:]))
            raise
        return result

    return taken


class Processes:
    """The store, its processes and the oracle. Which process does what is drawn from `rng`."""

    def __init__(self, places: Places, kind: str, shards: int, rng: random.Random) -> None:
        self._places = places
        self.rng = rng
        self.steps: list[str] = [f"{kind} with {shards} shards"]
        self.editions = editions(FIRST_DAY)
        self.oracle = Oracle(1, *self.editions)
        self.faults = Faults()
        self.marked: set[bytes] = set()
        """Reports that no counter can count at the moment."""
        self.failed = False
        self.met: Counter[str] = Counter()
        """How often each thing happened."""
        self._shard = 0
        self._days = 0
        self.place = places.new(kind)
        self.place.make(shards).close()
        self._views: dict[int, View] = {}
        self._enter({})

    def _enter(self, view: View) -> None:
        """Open the store that is at the place now, in every process."""
        self.observer = self.place.open()
        self._views = {self.observer._plans.version: view}
        self.observer.set_clock_offset(self.place.offset(self._days))
        self.processes = [self._start() for _ in range(PROCESSES)]

    def _start(self) -> Store:
        return self.faults.plant_in(self.place.open())

    def close(self) -> None:
        """Close the store in every process, and remove it."""
        for store in (self.observer, *self.processes):
            store.close()
        self._places.leave()

    def any(self) -> Store:
        """Return some process's store."""
        return self.rng.choice(self.processes)

    def shard(self) -> int:
        """Return some shard, often the same: what meets must be there."""
        if self.rng.randrange(4) == 0 or self._shard >= self.observer.shards:
            self._shard = self.rng.randrange(self.observer.shards)
        return self._shard

    @property
    def today(self) -> date:
        """The day by the store's true clock."""
        return FIRST_DAY + timedelta(days=self._days)

    def look(self) -> None:
        """Check what must hold at every instant."""
        self.faults.order("")
        self.observer.refresh()
        self.oracle.check_conservation(self.observer)

    @step
    def check(self) -> None:
        """Check everything."""
        self.observer.refresh()
        self.oracle.check(self.observer)
        instant = Instant(self.observer)
        for stored in self.observer.plans():
            for epoch in instant.finals(stored.id):
                self.met["given up" if instant.has_given_up(stored.id, epoch) else "final"] += 1
        self.oracle.check_ledger([vars(row) for row in self.observer.ledger()])

    def _try(self, effect: Callable[[], T]) -> T | None:
        """Do what may fail because a fault was ordered; return None where it did."""
        try:
            return effect()
        except StoreUnavailable:
            assert self.faults.struck, "the store is unavailable, and nothing was done to it"
            self.met[self.faults.struck] += 1
            return None

    # Time.

    @step
    def travel(self, days: int) -> None:
        """Move the clock. Only one process knows at once."""
        self._days += days
        self.observer.set_clock_offset(self.place.offset(self._days))
        self.any().refresh()

    @step
    def refresh(self) -> None:
        """Let a process take up what others changed."""
        self.any().refresh()

    @step
    def restart(self) -> None:
        """End a process and start it again."""
        number = self.rng.randrange(PROCESSES)
        if self.rng.randrange(2):
            self.processes[number].close()
        self.processes[number] = self._start()
