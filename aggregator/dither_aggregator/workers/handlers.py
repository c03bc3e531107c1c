"""The answers of a worker's process to tasks."""

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from dither_aggregator.operations import maintenance
from dither_aggregator.operations.computing_process import Address, Computer, unmade
from dither_aggregator.store import Store, StoreError, StoreUnavailable
from dither_aggregator.workers.intake import LOG_EVERY_S
from dither_aggregator.workers.tasks import FOLD, READ, BrokerError, Task
from dither_shared.errors import DitherError

FOLD_FOR_S = 10.0
"""How long one task may keep a process folding while others wait for it."""
COMPUTE_FOR_S = 10.0
"""How long it may keep one computing pages. A page that takes longer is computed to its end."""

COMPUTER_KEPT_S = 60.0
"""How long a process that computes waits for the next page: it takes a second to start."""

_log = logging.getLogger("dither_aggregator")


class _Turn:
    """Whose turn it is to compute: one process of a worker, so that the others are there for what uploads need.

    Made before the processes are forked. It ends with the process that has it, however that ends.
    """

    def __init__(self) -> None:
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the worker
        self._wanted, self._want = os.pipe()
        for end in (self._wanted, self._want):
            os.set_blocking(end, False)

    def want(self, page: Address) -> None:
        """Have whoever has the turn, or takes it next, compute a page; it may be forgotten where many are wanted."""
        with suppress(BlockingIOError):
            os.write(self._want, f"{page}\n".encode())

    def wanted(self) -> list[Address]:
        """Return the pages that are wanted, once."""
        try:
            return [Address.parse(page) for page in os.read(self._wanted, 1 << 16).decode().splitlines()]
        except BlockingIOError:
            return []

    def take(self) -> bool:
        """Take the turn, if nobody has it."""
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def give_back(self) -> None:
        """Let another process take it."""
        fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give back what it holds of the system, in this process."""
        self._lock.close()
        for end in (self._wanted, self._want):
            os.close(end)


class TaskHandlers:
    """Answers tasks in one process, with a store of its own that is opened at the first of them.

    A step that fails is left to the next task. `gone` is called when no step can be taken any more: the store
    is not the one of this `generation`, or one of a later dither.
    """

    def __init__(
        self,
        open_: Callable[[], Store],
        generation: str,
        publish: Callable[[Sequence[Task]], None],
        stopping: Callable[[], bool],
        gone: Callable[[], None],
        data: str,
    ) -> None:
        self._open = open_
        self._generation = generation
        self._publish = publish
        self._stopping = stopping
        self._gone = gone
        self._data = data
        self._store: Store | None = None
        self._turn = _Turn()
        self._computer: Computer | None = None
        self._computed_at = 0.0
        self._unavailable = False
        self._unknown, self._say_unknown_at = 0, time.monotonic()

    def close(self) -> None:
        """Close the store, and end the process that computes."""
        self._end_computer()
        self._turn.close()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def fold(self, shard: object) -> None:
        """Fold what waits in a shard; publish another task when that takes long, so that others are answered
        between."""
        self._answer(shard, self._fold)

    def maintain(self, shard: object) -> None:
        """Seal, compact, forget what a shard need not keep, and merge."""
        self._answer(shard, self._maintain)

    def estimate(self, metric: object) -> None:
        """Finalize the epochs of a metric, each with its snapshot."""
        self._answer(metric, self._estimate)

    def read(self, page: object) -> None:
        """Have what is missing of a page computed, and then what nobody has asked for yet; by one process at a time.

        Publish more tasks when that takes long, so that others are answered between.
        """
        self._answer(page, self._read)

    def _read(self, store: Store, page: object) -> None:
        try:
            self._turn.want(Address.parse(str(page)))
        except ValueError:
            raise _UnknownTask(f"{page!r} is no page") from None
        if not self._turn.take():
            return
        deadline = time.monotonic() + COMPUTE_FOR_S
        try:
            pages: dict[Address, None] = {}
            ahead = unmade(store)
            while pages := self._pages(pages, ahead):
                if self._stopping() or time.monotonic() > deadline:
                    break
                self._compute(store, pages.popitem()[0])
        finally:
            self._turn.give_back()
        pages |= dict.fromkeys(self._turn.wanted())  # of a process that has just found the turn taken
        if pages and not self._stopping():
            self._publish([Task(READ, str(page)) for page in pages])

    def _pages(self, pages: dict[Address, None], ahead: Iterator[Address]) -> dict[Address, None]:
        """Return the pages to compute, the next one last: what was wanted latest, or what nobody wanted yet."""
        wanted = {**pages, **dict.fromkeys(self._turn.wanted())}
        return wanted or dict.fromkeys(islice(ahead, 1))

    def _compute(self, store: Store, page: Address) -> None:
        self._computer = self._computer or Computer(store, self._data, alone=False)
        try:
            self._computer.compute(page, self._stopping)
        finally:
            self._computed_at = time.monotonic()

    def _fold(self, store: Store, shard: object) -> None:
        number = _shard(store, shard)
        deadline = time.monotonic() + FOLD_FOR_S
        store.fold_all(number, lambda: self._stopping() or time.monotonic() > deadline)
        if time.monotonic() > deadline:
            self._publish([Task(FOLD, number)])

    def _maintain(self, store: Store, shard: object) -> None:
        number = _shard(store, shard)
        maintenance.maintain(store, number)
        if number == 0 and (refused := maintenance.maintain_whole(store)):  # once a round
            _log.warning("%s", refused)

    def _estimate(self, store: Store, metric: object) -> None:
        if not isinstance(metric, str) or not store.plans(metric):
            raise _UnknownTask(f"there is no metric {metric!r}")
        maintenance.finalize(store, metric)

    def _end_computer(self) -> None:
        computer, self._computer = self._computer, None
        if computer:
            computer.close()

    def _answer(self, about: object, step: Callable[[Store, object], None]) -> None:
        if time.monotonic() - self._computed_at > COMPUTER_KEPT_S:
            self._end_computer()  # tasks of every minute give its memory back
        try:
            store = self._opened()
            store.refresh()
            step(store, about)
        except _UnknownTask as error:
            self._unknown += 1
            if time.monotonic() >= self._say_unknown_at:
                _log.warning("tasks that were not for this store: %s", f"{self._unknown:,}")
                self._say_unknown_at = time.monotonic() + LOG_EVERY_S
            _log.debug("%s", error)
        except BrokerError as error:
            _log.warning("%s; beat publishes tasks for what is left", error)
        except StoreUnavailable as error:
            if not self._unavailable:
                _log.error("%s; the work is left to the next tasks", error)
            self._unavailable = True
        except StoreError as error:
            _log.error("%s", error)
            self._see_whether_it_is_gone()
        except DitherError as error:
            _log.error("%s", error)
        else:
            if self._unavailable:
                _log.warning("the store can be used again")
            self._unavailable = False

    def _opened(self) -> Store:
        if self._store is None:
            store = self._open()
            if store.generation != self._generation:
                store.close()
                raise StoreError("another store was put in the place of the one that this worker was started on")
            self._store = store
        return self._store

    def _see_whether_it_is_gone(self) -> None:
        """Stop the worker when no task can be answered any more, and not when one shard is damaged."""
        try:
            self._opened().refresh()
        except StoreUnavailable:
            pass
        except StoreError:
            self._gone()


class _UnknownTask(Exception):
    """A task for a shard, a metric or a page there is not: it is dropped."""


def _shard(store: Store, shard: object) -> int:
    if not isinstance(shard, int) or not 0 <= shard < store.shards:
        raise _UnknownTask(f"there is no shard {shard!r}")
    return shard
