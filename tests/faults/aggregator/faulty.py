"""Stores that fail on order: before an effect, within it, or after it, when only the answer is lost."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from dither_aggregator.store import SQLiteStore, Store, StoreUnavailable
from dither_aggregator.store.redis import RedisStore

EFFECTS = (
    "append",
    "commit_fold",
    "replace_segments",
    "seal",
    "note_merged",
    "erase",
    "finalize",
    "put",
    "forget",
    "forget_snapshots",
    "replay",
    "drop",
    "_save",
)
FAULTS = ("before", "within", "after")


class Faults:
    """The fault that the next effect of any of its stores suffers."""

    def __init__(self) -> None:
        self._next, self._work = "", 0
        self.struck = ""
        """Which fault an effect has suffered since the last order."""

    def order(self, fault: str, work: int = 1) -> None:
        """Let the next effect suffer a fault, "" for none; one within it comes after so much work."""
        self._next, self._work, self.struck = fault, work, ""

    def plant_in(self, store: Store) -> Store:
        """Let a store suffer what is ordered."""
        for name in EFFECTS:
            setattr(store, name, partial(self._do, store, getattr(store, name)))
        return store

    def _do(self, store: Store, effect: Callable[..., Any], *args: Any) -> Any:
        fault, self._next = self._next, ""
        if fault == "before":
            self._strike(fault)
        with self._cut_short(store) if fault == "within" else _nothing():
            result = effect(*args)
        if fault == "after":
            self._strike(fault)
        return result

    def _strike(self, fault: str) -> None:
        self.struck = fault
        raise StoreUnavailable(f"a planted fault, {fault} the effect")

    @contextmanager
    def _cut_short(self, store: Store) -> Iterator[None]:
        """Let a store fail after some work: steps of SQLite's machine, or calls of Redis."""
        work = self._work

        def is_over() -> bool:
            nonlocal work
            work -= 1
            if work == 0:
                self.struck = "within"
            return work == 0

        if isinstance(store, SQLiteStore):
            with _interrupted(store._db, is_over):
                yield
        elif isinstance(store, RedisStore):
            run_each = store._client.run_each

            def run_some(*args: Any, **kwargs: Any) -> list[Any]:
                replies = run_each(*args, **kwargs)
                if is_over():
                    self._strike("within")
                return replies

            store._client.run_each = run_some  # type: ignore[method-assign]
            try:
                yield
            finally:
                store._client.run_each = run_each  # type: ignore[method-assign]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _interrupted(db: sqlite3.Connection, is_over: Callable[[], bool]) -> Iterator[None]:
    """Ask at each step of SQLite's machine within a transaction, once it has begun, whether it is over."""
    within = False

    def note(statement: str) -> None:
        nonlocal within
        within = not statement.startswith("BEGIN")

    db.set_trace_callback(note)
    db.set_progress_handler(lambda: within and db.in_transaction and is_over(), 1)
    try:
        yield
    finally:
        db.set_progress_handler(None, 1)
        db.set_trace_callback(None)
