"""The publisher of an API process: tasks for the shards that got reports, and for pages that wait to be computed."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import date
from itertools import islice

from dither_aggregator.health.capacity import Trouble
from dither_aggregator.health.checks import LAG_MAX_S
from dither_aggregator.ingest.service import MAINTAIN_EVERY_S
from dither_aggregator.operations import computing_process, maintenance
from dither_aggregator.operations.computing_process import Address
from dither_aggregator.store import Store, StoreUnavailable
from dither_aggregator.store.records import ShardStatus
from dither_aggregator.workers.tasks import ESTIMATE, FOLD, MAINTAIN, PAGES_MAX, READ, BrokerError, Task

PUBLISH_EVERY_S = 3.0
"""How long reports may gather once a shard has a task. A task costs 2 ms in all, a fold a commit and its vectors."""
RETRY_MAX_S = 30.0
STOP_WITHIN_S = 2.0

_log = logging.getLogger("dither_aggregator")


class Publisher:
    """Publishes tasks from a thread of its own, so that neither a slow broker nor a lost one is felt. Use as a context
    manager.

    It keeps tasks that it cannot publish until the broker is back; the watchdog makes up for any that it never
    publishes.
    """

    def __init__(self, publish: Callable[[Sequence[Task]], None], every_s: float = PUBLISH_EVERY_S) -> None:
        self._publish = publish
        self._every_s = every_s
        self._lock = threading.Lock()
        self._shards: set[int] = set()
        self._pages: set[Address] = set()
        self._came = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Publish tasks for what came, unless the broker is slow or lost, and stop."""
        self._stopping.set()
        self._came.set()
        self._thread.join(STOP_WITHIN_S)

    def reports_came(self, shards: Collection[int]) -> None:
        """Take notice that shards have reports to fold; return at once."""
        with self._lock:
            self._shards.update(shards)
        self._came.set()

    def want(self, page: Address) -> None:
        """Take notice of a page of which a part is not computed yet; return at once. It asks again by itself."""
        with self._lock:
            if len(self._pages) < PAGES_MAX:
                self._pages.add(page)
        self._came.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._came.wait()
            self._came.clear()
            self._try()
            self._stopping.wait(min(self._every_s * 2**self._failures, RETRY_MAX_S))
        if not self._failures:
            self._try()

    def _try(self) -> None:
        with self._lock:
            shards, self._shards = self._shards, set()
            pages, self._pages = self._pages, set()
        if not (shards or pages):
            return
        try:
            self._publish(
                [*(Task(FOLD, shard) for shard in sorted(shards)), *(Task(READ, str(page)) for page in pages)]
            )
        except BrokerError as error:
            if not self._failures:
                _log.error("%s; beat publishes tasks for what waits until it does again", error)
            self._failures += 1
            self.reports_came(shards)
        else:
            if self._failures:
                _log.warning("the broker takes tasks again")
            self._failures = 0


# The watchdog of `dither beat`: tasks for whatever waits, and notices when nobody comes.
#
# It looks at the store itself and does not ask a worker to: when all workers are gone, it must not be gone with them.


LOOK_EVERY_S = 3.0
ASK_PAUSE_MAX_S = 3_600.0
PAGES_AT_ONCE = 20
"""Pages of the last sealed day that get tasks at a time, until they are computed."""


class Watchdog:
    """Any number of them may watch one store: doubled tasks change nothing."""

    def __init__(
        self, store: Store, publish: Callable[[Sequence[Task]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._publish = publish
        self._clock = clock
        self._maintain_at = float("-inf")
        self._merged: date | None = None
        self._ask_at = float("inf")
        """When to ask again what is not finalized: at once when a day was merged, never when nothing is missing."""
        self._ask_pause_s = 0.0
        self._trouble: dict[str, str] = {}

    def look(self) -> None:
        """Publish tasks for what there is to do now. Raises StoreError when the store is not the one that was
        opened."""
        try:
            tasks = self._tasks()
        except StoreUnavailable as error:
            return self._notice(Trouble.STORE, str(error))
        self._notice(Trouble.STORE, "")
        try:
            self._publish(tasks)  # also none: queues that others have flooded are emptied on the way
        except BrokerError as error:
            self._notice("broker", str(error))
        else:
            self._notice("broker", "")

    def _tasks(self) -> list[Task]:
        self._store.refresh()
        status = self._store.status()
        self._notice_lag(status)
        tasks = [Task(FOLD, shard.shard) for shard in status if shard.backlog]
        now = self._clock()
        if now >= self._maintain_at:
            tasks += [Task(MAINTAIN, shard.shard) for shard in status]
            tasks += [Task(READ, str(page)) for page in islice(computing_process.unmade(self._store), PAGES_AT_ONCE)]
            self._maintain_at = now + MAINTAIN_EVERY_S
        tasks += [Task(ESTIMATE, metric) for metric in self._unfinalized(min(shard.merged for shard in status), now)]
        return tasks

    def _unfinalized(self, merged: date, now: float) -> list[str]:
        """Return the metrics that need a task: those with a merged epoch that is not finalized, ever more rarely.

        An estimate may take long, and another task for it would have another process make it too.
        """
        if merged != self._merged:
            self._merged, self._ask_at, self._ask_pause_s = merged, now, MAINTAIN_EVERY_S
        if now < self._ask_at:
            return []
        metrics = maintenance.unfinalized(self._store)
        self._ask_at = now + self._ask_pause_s if metrics else float("inf")
        self._ask_pause_s = min(2 * self._ask_pause_s, ASK_PAUSE_MAX_S)
        return metrics

    def _notice_lag(self, status: Sequence[ShardStatus]) -> None:
        late = [shard for shard in status if shard.waiting_s > LAG_MAX_S]
        self._notice(
            Trouble.FOLDING,
            f"{sum(shard.backlog for shard in late):,} uploads wait in {len(late)} of {len(status)} shards, and none "
            f"of them was folded for {LAG_MAX_S:.0f} seconds: are workers running?"
            if late
            else "",
        )

    def _notice(self, kind: str, trouble: str) -> None:
        """Log a kind of trouble when it begins and when it ends."""
        if trouble and not self._trouble.get(kind):
            _log.error("%s: %s", kind, trouble)
        elif self._trouble.get(kind) and not trouble:
            _log.warning("%s: as it must be again", kind)
        self._trouble[kind] = trouble
