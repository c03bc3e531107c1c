"""The threads behind the HTTP ones: a writer, a folder and a scheduler around one store."""

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from dither_aggregator.records import Receipt, StoreError
from dither_aggregator.store import Store
from dither_shared.wire import Problem, Upload

COMMIT_UPLOADS_MAX = 256
"""Uploads that share one commit, and so one wait for the disk."""
ACKNOWLEDGE_WITHIN_S = 20.0
FOLD_EVERY_S = 0.25
"""How long the folder lets reports gather: each fold is a commit of its own."""
RETRY_S = 2.0
MAINTAIN_EVERY_S = 60.0

_log = logging.getLogger("dither_aggregator")

_Submission = tuple[Upload, bytes, "Future[Receipt | Problem]"]


class Service:
    """A store with the threads that write, fold and maintain it. Use as a context manager."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._submitted: queue.SimpleQueue[_Submission | None] = queue.SimpleQueue()
        self._reports_came = threading.Event()
        self._stopping = threading.Event()
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._others = [
            threading.Thread(target=self._fold, name="folder", daemon=True),
            threading.Thread(target=self._maintain, name="scheduler", daemon=True),
        ]
        self._trouble: dict[str, str] = {}

    def __enter__(self) -> "Service":
        self._reports_came.set()  # what an earlier process left behind
        for thread in (self._writer, *self._others):
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write what was submitted, fold what was written, and stop."""
        self._submitted.put(None)
        self._writer.join()
        self._stopping.set()
        self._reports_came.set()
        for thread in self._others:
            thread.join()

    def submit(self, upload: Upload, body: bytes) -> Receipt:
        """Return the receipt of an upload once it is on the disk; raise Problem when it is not taken."""
        answer: Future[Receipt | Problem] = Future()
        self._submitted.put((upload, body, answer))
        try:
            result = answer.result(ACKNOWLEDGE_WITHIN_S)
        except FutureTimeoutError:
            raise Problem("unavailable", "the store is slow; nothing is known to be stored") from None
        if isinstance(result, Problem):
            raise result
        return result

    def trouble(self) -> dict[str, str]:
        """Return what is wrong now, by thread; empty when the service is ready."""
        dead = {thread.name: "has ended" for thread in (self._writer, *self._others) if not thread.is_alive()}
        return {**self._trouble, **dead}

    # The writer: one commit for all that wait.

    def _write(self) -> None:
        more = True
        while more:
            first = self._submitted.get()
            batch = [] if first is None else [first]
            more = first is not None
            while more and len(batch) < COMMIT_UPLOADS_MAX:
                try:
                    item = self._submitted.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    more = False
                else:
                    batch.append(item)
            if batch:
                self._commit(batch)

    def _commit(self, batch: list[_Submission]) -> None:
        try:
            answers = self.store.append([(upload, body) for upload, body, _ in batch])
            self._trouble.pop("writer", None)
        except sqlite3.Error as error:
            _log.error("cannot store uploads: %s", error)
            self._trouble["writer"] = f"cannot store: {error}"
            answers = [Problem("unavailable", "the store cannot be written")] * len(batch)
        for (_, _, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
        self._reports_came.set()

    # The folder and the scheduler.

    def _fold(self) -> None:
        while not self._stopping.is_set():
            self._reports_came.wait()
            self._reports_came.clear()
            while self._try("folder", self.store.fold):
                pass
            self._stopping.wait(RETRY_S if "folder" in self._trouble else FOLD_EVERY_S)
            if "folder" in self._trouble:
                self._reports_came.set()
        while self._try("folder", self.store.fold):
            pass

    def _maintain(self) -> None:
        while not self._stopping.wait(MAINTAIN_EVERY_S):
            self._try("scheduler", self.store.compact)
            self._try("scheduler", self.store.forget_uploads)

    def _try(self, name: str, step: Callable[[], int | None]) -> int | None:
        """Do a step that may fail and be tried again: everything in it is one transaction."""
        try:
            done = step()
        except (sqlite3.Error, StoreError, ValueError) as error:
            _log.error("%s: %s", name, error)
            self._trouble[name] = str(error)
            return 0
        self._trouble.pop(name, None)
        return done
