"""The threads behind the HTTP ones: a writer, and all others that work for the store of a process."""

import gc
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from dither_aggregator.health.capacity import Capacity, CapacityProblem, Trouble
from dither_aggregator.health.checks import LAG_MAX_S
from dither_aggregator.health.status import Audit, Interrupted, StoreStatus
from dither_aggregator.ingest import process_counters
from dither_aggregator.operations import maintenance
from dither_aggregator.store import Receipt, Store, StoreError
from dither_shared.errors import DitherError
from dither_shared.wire.reading import Problem, Upload

if TYPE_CHECKING:
    from dither_aggregator.operations.fork_server import Address, Computer

COMMIT_UPLOADS_MAX = 256
"""Uploads that share one commit, and so one wait for the disk."""
WAITING_UPLOADS_MAX = 4 * COMMIT_UPLOADS_MAX
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of bodies that wait for the writer: a store that hangs costs no more memory."""
COLLECT_AFTER = 50_000
"""Objects that come and stay before a collection looks for circles: uploads leave few."""
REFRESH_EVERY_S = 1.0
FOLD_EVERY_S = 1.0
"""How long the counter lets reports gather: each fold is a commit of its own, with a vector a tally."""
RETRY_S = 2.0
WRITER_FAILED_FOR_S = 30.0
"""How long one failed commit keeps us not ready.

A server that is not ready gets no uploads, so nothing else would show that it recovered.
"""
MAINTAIN_EVERY_S = 60.0
WANTED_MAX = 64
"""Pages that wait to be computed. A page that waits asks again by itself."""
STOPS_UPLOADS = {"writer", "watcher", *(set(Trouble) - {Trouble.FOLDING, Trouble.AWAY})}
"""The troubles with which an upload is not stored, or may be under a wrong day."""
AUDIT_EVERY_S = 5.0
AUDIT_SHARE = 1 / 50
"""The part of its time that reading the ledger may take, at most: a long backlog is read each time."""

RECOVERED = "as it must be again"

_log = logging.getLogger("dither_aggregator")

Submitted = Future[Receipt | Problem]
_Submission = tuple[Upload, bytes, Submitted]


class Service:
    """A store with a thread that writes uploads and one that watches over the store. Use as a context manager.

    Folding is somebody else's: the workers'. `on_reports` is called after each commit with the shards that got reports,
    and must return at once.
    """

    def __init__(
        self,
        store: Store,
        on_reports: Callable[[Collection[int]], None] = lambda shards: None,
        capacity: Capacity | None = None,
        computer: "Computer | None" = None,
    ) -> None:
        self.store = store
        self.store_status: StoreStatus | None = None
        """The status of the store when the watcher last could look."""
        self.audit: Audit | None = None
        """The audit when the auditor last could look."""
        self.capacity_problem: CapacityProblem | None = None
        """Why the store was to take no uploads when the watcher last looked."""
        self.loading = threading.Lock()
        """Held while a registry is being read that came over HTTP."""
        self._capacity = capacity or Capacity()
        self._on_reports = on_reports
        self._submitted: queue.SimpleQueue[_Submission | None] = queue.SimpleQueue()
        self._waiting = threading.Lock()
        self._waiting_bytes = 0
        self._stopping = threading.Event()
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._others = [
            threading.Thread(target=self._watch, name="watcher", daemon=True),
            threading.Thread(target=self._audit, name="auditor", daemon=True),
        ]
        self._computer = computer
        self._wanted: dict[Address, None] = {}
        self._to_compute = threading.Event()
        if computer:
            self._others.append(threading.Thread(target=self._compute, name="computer", daemon=True))
        self._trouble: dict[str, str] = {}
        self.store_trouble: dict[Trouble, str] = {}
        """The store's troubles when the watcher last looked, by kind: one may be that the store could not be read."""
        self._writer_failed_s = 0.0
        self._shown: set[str] = set()
        """Ids of keys that were shown since the watcher last looked."""

    def __enter__(self) -> "Service":
        gc.freeze()  # what is there by now stays: no collection need look at all of it for uploads that come and go
        self._collected_after = gc.get_threshold()
        gc.set_threshold(COLLECT_AFTER, *self._collected_after[1:])
        self._look()  # before anybody asks: no upload is taken, and nothing called ready, that was not looked at
        for thread in (self._writer, *self._others):
            thread.start()
        _log.info("it takes uploads")
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write what was submitted, do what the other threads do at the end, and stop."""
        self._submitted.put(None)
        self._writer.join()
        self._stopping.set()
        self._to_compute.set()
        self._on_reports(())  # wakes what waits for them
        for thread in self._others:
            thread.join()
        self._try("keys", self._remember_keys)
        gc.set_threshold(*self._collected_after)
        gc.unfreeze()
        _log.info("every upload that was taken is written")

    def submit(self, upload: Upload, body: bytes) -> Submitted:
        """Return what will hold the answer to an upload: its receipt once it is durable, or why it is not taken.

        Never waits. Cancelled before its commit begins, it is not stored. Raises Problem when the store may lose what
        it takes, and when too much waits for it.
        """
        if Trouble.SETTINGS in self.store_trouble:
            raise Problem("unavailable", "the store may lose what it acknowledges; nothing was stored")
        if not self._writer.is_alive():
            raise Problem("unavailable", "uploads are not written any more; nothing was stored")
        with self._waiting:
            if self._submitted.qsize() >= WAITING_UPLOADS_MAX or self._waiting_bytes + len(body) > WAITING_BYTES_MAX:
                process_counters.limit_hit("waiting")
                raise Problem("unavailable", "too much waits for the store; nothing was stored")
            self._waiting_bytes += len(body)
        answer: Submitted = Future()
        self._submitted.put((upload, body, answer))
        return answer

    def key_shown(self, id_: str) -> None:
        """Have it remembered that a key was shown today. Never waits: the watcher writes it, once a day."""
        self._shown.add(id_)

    def trouble(self) -> dict[str, str]:
        """Return what is wrong now, by thread or by what the store says of itself; empty when all is well."""
        return {str(kind): words for kind, words in self.store_trouble.items()} | self.own_trouble()

    def unready(self) -> dict[str, str]:
        """Return why an upload that came now would not be stored, or under a wrong day; empty where it would be.

        Reports that wait to be folded, days that are not sealed and a broker that is away hold no upload up. Without
        its watcher nobody knows the store's clock and how much it may still take.
        """
        return {kind: words for kind, words in self.trouble().items() if kind in STOPS_UPLOADS}

    def own_trouble(self) -> dict[str, str]:
        """Return what is wrong with the service's own threads, by their names."""
        dead = {thread.name: "has ended" for thread in (self._writer, *self._others) if not thread.is_alive()}
        return {**self._trouble, **dead}

    @property
    def backlog(self) -> int:
        """Uploads that were not folded when the watcher last could look."""
        return self.store_status.backlog if self.store_status else 0

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

    def _commit(self, taken: list[_Submission]) -> None:
        with self._waiting:
            self._waiting_bytes -= sum(len(body) for _, body, _ in taken)
        batch = [item for item in taken if item[2].set_running_or_notify_cancel()]
        if not batch:
            return
        began = time.perf_counter()
        try:
            answers = self.store.append([(upload, body) for upload, body, _ in batch])
            self._recovered("writer")
        except Exception as error:  # the writer must answer, and go on
            self._say("writer", error)
            self._writer_failed_s = time.monotonic()
            process_counters.commit_failed()
            slug = "unavailable" if isinstance(error, StoreError) else "failed"
            answers = [Problem(slug, "the store cannot be written") for _ in batch]
        else:
            took_s = time.perf_counter() - began
            receipts = [answer for answer in answers if isinstance(answer, Receipt)]
            copies = sum(receipt.duplicate for receipt in receipts)
            process_counters.committed(took_s, len(receipts), copies)
            _log.debug("a commit of %d uploads, %d of them copies, took %.0f ms", len(batch), copies, 1_000 * took_s)
        for (_, _, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
        accepted = [answer.upload for answer in answers if isinstance(answer, Receipt)]
        self._try("tasks", partial(self._tell_of_reports, accepted))

    def _tell_of_reports(self, uploads: list[str]) -> None:
        """Tell of uploads that were accepted, given by their ids."""
        self._on_reports({self.store.shard_of(self.store.digest(id_.encode("ascii"))) for id_ in uploads})

    # The watcher.

    def _watch(self) -> None:
        while not self._stopping.wait(REFRESH_EVERY_S):
            self._look()
            self._try("keys", self._remember_keys)

    def _remember_keys(self) -> None:
        """Write which keys were shown. Those of a write that fails are not forgotten: they are shown again."""
        shown, self._shown = self._shown, set()
        if shown:
            self.store.use_keys(shown)

    def _look(self) -> None:
        """Take up what other processes changed, and see whether the store is as it must be."""
        try:
            self.store.refresh()
            self.store_status = StoreStatus.of(self.store)
            trouble = dict(self.store_status.trouble)
            waiting_s = self.store_status.waiting_s
            self.capacity_problem = self._capacity.lacking(self.store_status.backlog, self.store_status.left)
        except Exception as error:  # the watcher must outlive what one look does not foresee
            # A store that may lose uploads is one until a look has found that it is not.
            trouble = {kind: message for kind, message in self.store_trouble.items() if kind == Trouble.SETTINGS}
            trouble[Trouble.STORE] = str(error) or type(error).__name__
            waiting_s = 0.0
            if (
                not isinstance(error, DitherError | ValueError)
                and self.store_trouble.get(Trouble.STORE) != trouble[Trouble.STORE]
            ):
                _log.exception("the store could not be looked at")
        if waiting_s > LAG_MAX_S:
            trouble[Trouble.FOLDING] = f"reports wait, and none was folded for {waiting_s:.0f} seconds"
        if self.capacity_problem:
            trouble[self.capacity_problem.slug] = self.capacity_problem.message
        for kind in trouble.keys() - self.store_trouble.keys():
            _log.error("%s: %s", kind, trouble[kind])
        for kind in self.store_trouble.keys() - trouble.keys():
            _log.warning("%s: %s", kind, RECOVERED)
        self.store_trouble = trouble
        if time.monotonic() - self._writer_failed_s > WRITER_FAILED_FOR_S:
            self._trouble.pop("writer", None)

    # The auditor.

    def _audit(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            began = time.monotonic()
            try:
                self.audit = Audit.of(self.store, self._stopping.is_set)
            except Interrupted:
                return
            except DitherError:
                pass  # the watcher says it, and the audit's age shows it
            except Exception:  # a thread must outlive what nobody foresaw
                _log.exception("the ledger could not be read")
            pause_s = max(AUDIT_EVERY_S, (time.monotonic() - began) / AUDIT_SHARE)

    # The computer, where there is one.

    def want(self, address: "Address") -> None:
        """Have a page computed of which a part is missing. Never waits."""
        if len(self._wanted) < WANTED_MAX:
            self._wanted[address] = None
            self._to_compute.set()

    def _compute(self) -> None:
        """Compute until told to stop. Nothing of it is an upload's: what fails makes no server unready."""
        assert self._computer
        while not self._stopping.is_set():
            self._to_compute.clear()
            try:
                self._compute_all(self._computer)
            except Exception:
                _log.exception("pages could not be computed ahead")
            self._computer.close()  # its memory is given back
            self._to_compute.wait(MAINTAIN_EVERY_S)

    def _compute_all(self, computer: "Computer") -> None:
        """Compute the pages that were asked for and then, one by one, those of days that were sealed."""
        for unmade in (None, *computer.unmade()):
            while self._wanted and not self._stopping.is_set():
                computer.compute(self._wanted.popitem()[0], self._stopping.is_set)
            if unmade and not self._stopping.is_set():
                computer.compute(unmade, self._stopping.is_set)

    def _try(self, name: str, step: Callable[[], object]) -> bool:
        """Do a step that may fail and be tried again: everything in it is atomic. Return whether it succeeded."""
        try:
            step()
        except Exception as error:  # a thread must outlive what one step does not foresee
            self._say(name, error)
            return False
        self._recovered(name)
        return True

    def _recovered(self, name: str) -> None:
        """Log that a thread can do again what it last could not."""
        if self._trouble.pop(name, None) is not None:
            _log.warning("%s: %s", name, RECOVERED)

    def _say(self, name: str, error: Exception) -> None:
        """Log a thread's failure once; again only when it changes: a full disk is one line."""
        trouble = str(error) or type(error).__name__
        if self._trouble.get(name) == trouble:
            return
        if isinstance(error, StoreError):
            _log.error("%s: %s", name, error)
        else:
            _log.exception("%s failed", name)
        self._trouble[name] = trouble


class WholeService(Service):
    """A service that also folds and maintains its store: all that one machine needs."""

    def __init__(self, store: Store, capacity: Capacity | None = None, computer: "Computer | None" = None) -> None:
        self._reports_came = threading.Event()
        super().__init__(store, lambda shards: self._reports_came.set(), capacity, computer)
        self._others += [
            threading.Thread(target=self._fold, name="counter", daemon=True),
            threading.Thread(target=self._maintain, name="scheduler", daemon=True),
        ]

    def __enter__(self) -> "WholeService":
        self._reports_came.set()  # what an earlier process left behind
        super().__enter__()
        return self

    def _fold(self) -> None:
        while not self._stopping.is_set():
            self._reports_came.wait()
            self._reports_came.clear()
            if self._try("counter", self._fold_all):
                self._stopping.wait(FOLD_EVERY_S)
            else:
                self._stopping.wait(RETRY_S)
                self._reports_came.set()
        self._try("counter", self._fold_all)

    def _fold_all(self) -> None:
        for shard in range(self.store.shards):
            self.store.fold_all(shard)

    def _maintain(self) -> None:
        while not self._stopping.is_set():
            self._try("scheduler", self._maintain_all)
            self._finalize_all()
            self._stopping.wait(MAINTAIN_EVERY_S)

    def _maintain_all(self) -> None:
        for shard in range(self.store.shards):
            maintenance.maintain(self.store, shard)
        if refused := maintenance.maintain_whole(self.store):
            _log.warning("%s", refused)

    def _finalize_all(self) -> None:
        metrics: list[str] = []
        self._try("finalizing", lambda: metrics.extend(maintenance.unfinalized(self.store)))
        for metric in metrics:  # each by itself: one that cannot be read holds up no other
            self._try(f"finalizing of {metric}", partial(maintenance.finalize, self.store, metric))
        self._to_compute.set()
