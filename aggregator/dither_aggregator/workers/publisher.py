"""The publisher of an API process: tasks for the shards that got reports, and for pages that wait to be computed."""

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from dither_aggregator.operations.computing_process import Address
from dither_aggregator.workers.tasks import FOLD, PAGES_MAX, READ, BrokerError, Task

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
