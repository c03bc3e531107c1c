"""The answers of a worker's process to bells."""

import logging
import time
from collections.abc import Callable, Sequence

from dither_aggregator import upkeep
from dither_aggregator.computing import Address, Computer
from dither_aggregator.store import Store, StoreError, StoreUnavailable
from dither_aggregator.workers.bells import FOLD, Bell, BrokerError
from dither_shared.errors import DitherError

FOLD_FOR_S = 10.0
"""How long one bell may keep a process folding while others wait for it."""

COMPUTER_KEPT_S = 60.0
"""How long a process that computes waits for the next page: it takes a second to start."""

_log = logging.getLogger("dither_aggregator")


class Answering:
    """Answers bells in one process, with a store of its own that is opened at the first of them.

    A step that fails is left to the next bell. `gone` is called when no step can be taken any more: the store
    is not the one of this `generation`, or one of a later dither.
    """

    def __init__(
        self,
        open_: Callable[[], Store],
        generation: str,
        ring: Callable[[Sequence[Bell]], None],
        stopping: Callable[[], bool],
        gone: Callable[[], None],
        data: str,
    ) -> None:
        self._open = open_
        self._generation = generation
        self._ring = ring
        self._stopping = stopping
        self._gone = gone
        self._data = data
        self._store: Store | None = None
        self._computer: Computer | None = None
        self._computed_at = 0.0
        self._unavailable = False

    def close(self) -> None:
        """Close the store, and end the process that computes."""
        self._end_computer()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def fold(self, shard: object) -> None:
        """Fold what waits in a shard; ring again when that takes long, so that others are answered between."""
        self._answer(shard, self._fold)

    def maintain(self, shard: object) -> None:
        """Seal, compact, forget what a shard need not keep, and merge."""
        self._answer(shard, self._maintain)

    def estimate(self, metric: object) -> None:
        """Finalize the epochs of a metric, each with its snapshot."""
        self._answer(metric, self._estimate)

    def read(self, page: object) -> None:
        """Compute what is missing of a page."""
        self._answer(page, self._read)

    def _read(self, store: Store, page: object) -> None:
        try:
            address = Address.parse(str(page))
        except ValueError:
            raise _UnknownBell(f"{page!r} is no page") from None
        self._computer = self._computer or Computer(store, self._data, alone=False)
        try:
            self._computer.compute(address, self._stopping)
        finally:
            self._computed_at = time.monotonic()

    def _fold(self, store: Store, shard: object) -> None:
        number = _shard(store, shard)
        deadline = time.monotonic() + FOLD_FOR_S
        upkeep.fold_all(store, number, lambda: self._stopping() or time.monotonic() > deadline)
        if time.monotonic() > deadline:
            self._ring([Bell(FOLD, number)])

    def _maintain(self, store: Store, shard: object) -> None:
        number = _shard(store, shard)
        upkeep.maintain(store, number)
        if number == 0 and (refused := upkeep.maintain_whole(store)):  # once a round
            _log.warning("%s", refused)

    def _estimate(self, store: Store, metric: object) -> None:
        if not isinstance(metric, str) or not store.plans(metric):
            raise _UnknownBell(f"there is no metric {metric!r}")
        upkeep.finalize(store, metric)

    def _end_computer(self) -> None:
        computer, self._computer = self._computer, None
        if computer:
            computer.close()

    def _answer(self, about: object, step: Callable[[Store, object], None]) -> None:
        if time.monotonic() - self._computed_at > COMPUTER_KEPT_S:
            self._end_computer()  # bells of every minute give its memory back
        try:
            store = self._opened()
            store.refresh()
            step(store, about)
        except _UnknownBell as error:
            _log.warning("a bell was not for this store")
            _log.debug("%s", error)
        except BrokerError as error:
            _log.warning("%s; beat rings for what is left", error)
        except StoreUnavailable as error:
            if not self._unavailable:
                _log.error("%s; the work is left to the next bells", error)
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
        """Stop the worker when no bell can be answered any more, and not when one shard is damaged."""
        try:
            self._opened().refresh()
        except StoreUnavailable:
            pass
        except StoreError:
            self._gone()


class _UnknownBell(Exception):
    """A bell for a shard or metric there is not: it is dropped."""


def _shard(store: Store, shard: object) -> int:
    if not isinstance(shard, int) or not 0 <= shard < store.shards:
        raise _UnknownBell(f"there is no shard {shard!r}")
    return shard
