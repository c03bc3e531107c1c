"""What a store does. The docstrings are the contract: SQLite and Redis keep it, and one suite of tests tries both.

A store is a number of shards. A shard has a log of accepted uploads, a cursor up to which they are folded, the
segments that came of it, the ids of the uploads of the last seven days, a ledger and a quarantine. Every effect is
atomic within its shard:

    append   ids, log and `accepted` move together: an acknowledged upload is in the log, and a copy of it is known
    commit   *if the cursor is still where it was read*: segments, ledger, quarantine, cursor and the trimmed log move
             together, else nothing does
    seal     what is over and has nothing pending is closed for ever

Whoever was killed, late or doubled changes nothing, and at every instant, for each plan and epoch,

    accepted = folded + pending + quarantined

where `pending` is counted from the log itself, not kept: the equation can fail, and the ledger shows it if it does.

Time is the store's own, and within a shard the day never goes back. Any number of processes may use a store at once,
each with a `Store` of its own; one `Store` may be used by any number of threads.
"""

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

from dither_aggregator.store.dump import FinalRecord, Identity, Record, SeenRecord, ShardRecord
from dither_aggregator.store.folding import fold_read
from dither_aggregator.store.packing import pack_answer, pack_groups, unpack_answer
from dither_aggregator.store.plans import Plans, StoredPlan
from dither_aggregator.store.records import (
    Final,
    LedgerRow,
    LogRead,
    Poison,
    Quarantined,
    Receipt,
    Retention,
    Segment,
    ShardStatus,
    StoreError,
    Tally,
)
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import Upload, all_refused

DEDUPE = timedelta(days=7)
"""How long an upload's id is remembered. A device gives an upload up a day earlier."""
DEDUPE_DAYS_MIN = 8
"""Of how many days with uploads the ids are remembered at least: a clock that leaps ahead and back forgets none."""
READ_UPLOADS_MAX = 5_000
READ_BYTES_MAX = 32 * 1024 * 1024
"""What a folder takes at once: it bounds the memory."""
COMPACT_SEGMENTS = 16
"""How many segments of a tally are left side by side in a shard. Readers unpack and add up those of all shards."""
SAVE_ATTEMPTS = 10


class Prepared(NamedTuple):
    """An upload as a store takes it."""

    digest: bytes
    """Of its id: what a copy is known by."""
    answer: bytes
    groups: bytes
    """Its entry of the log but for the day; empty when no group was accepted."""
    counts: list[tuple[int, int]]
    """(plan, n) of each group."""
    result: Receipt | Problem
    """What is answered when it is new."""


class Store(ABC):
    """The state of one aggregator. Open one with `dither_aggregator.store.open_store`; close it when done.

    Every method raises StoreUnavailable while the store cannot be reached or written, and StoreError when it is not,
    or no longer, the store that it was opened as.
    """

    app: str
    """The app whose reports these are."""
    key: str
    """What devices show to be let in."""
    generation: str
    """Drawn when the store was made. A store that came back empty or from a backup has another one and is refused."""
    shards: int
    lossy: str = ""
    """Why what is acknowledged may be lost all the same, by the operator's choice; "" when it may not."""
    _digest_key: bytes
    _plans: Plans

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
        return self._plans.accepting(metric, digest, self.clock_day())

    def load(self, registry: Registry) -> None:
        """Store the registry's plans beside the older ones, which stay accepted until they expire or are retired.

        Raises StoreError for another app's registry and for a rev that came before with another plan.
        """
        if self.app != registry.app:
            raise StoreError(
                f"the store belongs to the app {self.app!r} and the registry to {registry.app!r}; "
                "give each app a store of its own"
            )
        for _ in range(SAVE_ATTEMPTS):
            self.refresh()
            plans = self._plans  # once: another thread may refresh it
            if self._save_plans(plans.loading(registry), plans.version):
                return self.refresh()
        raise StoreError("the plans are being changed by somebody else all the time; try again")

    def retire(self, metric: str, rev: int, retired: bool = True) -> None:
        """Refuse the reports of a plan from now on, or take them again. Raises StoreError for a plan there is not."""
        for _ in range(SAVE_ATTEMPTS):
            self.refresh()
            plans = self._plans
            if self._save_plans(plans.retiring(metric, rev, retired), plans.version):
                return self.refresh()
        raise StoreError("the plans are being changed by somebody else all the time; try again")

    @abstractmethod
    def refresh(self) -> None:
        """Take up what other processes changed: plans, and the offset of the clock. Cheap; call it every second."""

    @abstractmethod
    def _save_plans(self, plans: Sequence[StoredPlan], version: int) -> bool:
        """Store all plans *if the stored version is still this one*, with the next; return whether it was."""

    # Time.

    @abstractmethod
    def clock_day(self) -> date:
        """Return the day by the store's clock, as far as this process knows without asking."""

    @abstractmethod
    def set_clock_offset(self, seconds: float) -> None:
        """Move the store's clock, for all processes, from their next refresh on. For tests alone."""

    def today(self) -> date:
        """Return the current epoch: the day by the clock, or the latest day that a shard has used."""
        return max([self.clock_day(), *(shard.day for shard in self.status())])

    def sealed(self) -> date:
        """Return the latest epoch that is final: every shard has sealed it, and nothing can enter it."""
        return min(shard.sealed for shard in self.status())

    # Accepting.

    @abstractmethod
    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads, given with the body each was read from, and return the answer to each, in order.

        When this returns they are durable. A Problem is the answer to an upload that is not taken: its id came before
        with another body, or no group of it was accepted (then it is not remembered). Where it raises, nothing is
        known to be stored.
        """

    def _prepare(self, upload: Upload, body: bytes) -> Prepared:
        rejected = [refusal.to_document() for refusal in upload.refused]
        groups = [(self._plans.get(group.plan).id, group.count, group.reports) for group in upload.groups]
        accepted = sum(n for _, n, _ in groups)
        answer = pack_answer(self.digest(body), accepted, rejected)
        return Prepared(
            self.digest(upload.id.encode("ascii")),
            answer,
            pack_groups(groups),
            [(plan, n) for plan, n, _ in groups],
            Receipt(upload.id, accepted, duplicate=False, rejected=rejected) if groups else all_refused(upload.refused),
        )

    def _repeated(self, upload: Upload, prepared: Prepared, answer: bytes) -> Receipt | Problem:
        """Return the answer to an upload whose id was answered before."""
        body, accepted, rejected = unpack_answer(answer)
        if not hmac.compare_digest(body, unpack_answer(prepared.answer)[0]):
            return Problem("upload-conflict", "this upload's id was used before with another body")
        return Receipt(upload.id, accepted, duplicate=True, rejected=rejected)

    def shard_of(self, upload_digest: bytes) -> int:
        """Return the shard of an upload: the leading bits of the keyed digest of its id."""
        return int.from_bytes(upload_digest[:8], "big") * self.shards >> 64

    def digest(self, data: bytes) -> bytes:
        """Return the keyed digest under which an id or a body is remembered: 16 bytes."""
        return hashlib.blake2b(data, key=self._digest_key, digest_size=16).digest()

    # Folding.

    def fold(self, shard: int) -> bool:
        """Fold the oldest of what waits in a shard's log; return whether there was anything: then call it again.

        The count happens outside the store; the commit does nothing if another folder was faster. What cannot be
        counted is quarantined, and its neighbours are folded. Raises StoreError for reports of a plan that this
        process cannot read, and for a damaged log.
        """
        read = self.read_log(shard)
        if read.high == read.low:
            return False
        if any(group.plan not in self._plans.by_id for group in read.groups):
            self.refresh()
        shapes = {id_: item.plan.mechanism.shape for id_, item in self._plans.by_id.items()}
        segments, poisons = fold_read(read, shapes)
        self.commit_fold(shard, read, segments, poisons)
        return True

    @abstractmethod
    def read_log(self, shard: int) -> LogRead:
        """Return the oldest uploads of a shard's log, READ_UPLOADS_MAX and about READ_BYTES_MAX at most."""

    @abstractmethod
    def commit_fold(self, shard: int, read: LogRead, segments: Sequence[Segment], poisons: Sequence[Poison]) -> bool:
        """Store what became of a read, and trim the log, *if the cursor is still where it was*; return whether."""

    def compact(self, shard: int) -> int:
        """Replace the many segments of a tally by their sum; return in how many tallies that was done."""
        crowded = self.crowded(shard, COMPACT_SEGMENTS)
        for plan, epoch in crowded:
            segments = self.segments(shard, plan, epoch)
            if len(segments) > 1:
                self.replace_segments(shard, segments, sum_segments(segments))
        return len(crowded)

    @abstractmethod
    def crowded(self, shard: int, segments: int) -> list[tuple[int, date]]:
        """Return the plans and epochs of which a shard has at least so many segments."""

    @abstractmethod
    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally *if they are still those*; return whether."""

    # Epochs.

    @abstractmethod
    def seal(self, shard: int) -> date:
        """Close the days of a shard that are over and have nothing pending; return the latest closed day.

        Nothing enters a closed day: the shard's day moves beyond it in the same step.
        """

    @abstractmethod
    def finals(self, plan: Plan) -> dict[date, Final]:
        """Return what is recorded of the final epochs of a plan."""

    @abstractmethod
    def all_finals(self) -> set[tuple[int, date]]:
        """Return the plans and epochs that are recorded as final, of all plans at once."""

    @abstractmethod
    def finalize(self, plan: Plan, epoch: date, final: Final, snapshot: bytes) -> Final:
        """Record an epoch's final digest with its snapshot, once; return what is recorded, now or from before."""

    @abstractmethod
    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content; None where there is none, or none any more."""

    @abstractmethod
    def retention(self) -> Retention:
        """Return for how long tallies and snapshots are kept."""

    @abstractmethod
    def set_retention(self, retention: Retention) -> None:
        """Change for how long they are kept. What is gone does not come back."""

    @abstractmethod
    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept; those before were given up."""

    @abstractmethod
    def forget(self, shard: int) -> None:
        """Forget the upload ids that no device sends any more, and a shard's tallies that need not be kept.

        A tally is given up only when it is recorded as final.
        """

    @abstractmethod
    def forget_snapshots(self) -> None:
        """Forget the snapshots that need not be kept; what is recorded of their epochs stays."""

    # Reading.

    def tally(self, plan: Plan, epoch: date) -> Tally:
        """Return the tally of a plan and epoch: n = 0 and zeros where nothing was folded."""
        stored = self._plans.get(plan)
        n, counts = 0, np.zeros(plan.mechanism.shape.tally_size, dtype=np.int64)
        for one in self.all_segments(stored.id, epoch):
            n += one.n
            counts += one.counts
        return Tally(n, counts)

    @abstractmethod
    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return a shard's segments of a tally, in the order of the log. Raises BadTally for damaged ones."""

    def all_segments(self, plan: int, epoch: date) -> Iterator[Segment]:
        """Yield every shard's segments of a tally: all of them at a time may be large."""
        for shard in range(self.shards):
            yield from self.segments(shard, plan, epoch)

    @abstractmethod
    def epochs(self, plan: Plan) -> list[date]:
        """Return the days on which reports of the plan were accepted, latest first."""

    @abstractmethod
    def all_epochs(self) -> dict[int, list[date]]:
        """Return the same of each plan that has any, by its id, at once."""

    def ledger(self) -> list[LedgerRow]:
        """Return where the reports of each metric, plan and epoch are, by metric, epoch and plan."""
        totals: dict[tuple[int, date], list[int]] = {}
        for shard in range(self.shards):
            for key, numbers in self.shard_ledger(shard).items():
                total = totals.setdefault(key, [0] * 5)
                total[:] = [a + b for a, b in zip(total, numbers, strict=True)]
        rows = [
            LedgerRow(plan.metric, plan.digest, epoch.isoformat(), *numbers)
            for (id_, epoch), numbers in sorted(totals.items())
            if any(numbers)
            for plan in (self.plan_by_id(id_).plan,)
        ]
        return sorted(rows, key=lambda row: (row.metric, row.epoch))

    @abstractmethod
    def shard_ledger(self, shard: int) -> dict[tuple[int, date], tuple[int, int, int, int, int]]:
        """Return a shard's (accepted, folded, pending, quarantined, dropped) by plan and epoch, all at one instant.

        `pending` is counted from the log.
        """

    @abstractmethod
    def status(self) -> list[ShardStatus]:
        """Return how far each shard is."""

    def backlog(self) -> int:
        """Return how many accepted uploads are not folded."""
        return sum(shard.backlog for shard in self.status())

    def trouble(self) -> dict[str, str]:
        """Return what is wrong with the store now, by kind; empty when it is as it must be."""
        behind = [shard for shard in self.status() if shard.clock_day < shard.day]
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

    # Quarantine.

    @abstractmethod
    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine, oldest first within each shard."""

    @abstractmethod
    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log, in today's epoch; return whether it was there.

        Where that is another epoch, the reports leave the old one's accepted and quarantined in the same step.
        """

    @abstractmethod
    def drop(self, id_: str) -> bool:
        """Give a quarantined group up; return whether it was there. It stays counted as quarantined, and as dropped."""

    # The whole.

    @abstractmethod
    def dump(self) -> Iterator[Record]:
        """Yield everything that makes another store the same, each shard as at one instant.

        The store may be in use: what is accepted meanwhile may or may not be in it.
        """

    # Filling: for `restoring.fill` alone, on a store that was just made and is unfinished.

    @abstractmethod
    def fill_identity(self, identity: Identity) -> None:
        """Take over the app, the key of its devices, and the key of the digests. The generation stays this store's."""

    def fill_plans(self, plans: Sequence[StoredPlan]) -> None:
        """Take over the plans with their ids."""
        self.refresh()
        self._save_plans(plans, self._plans.version)
        self.refresh()

    @abstractmethod
    def fill_seen(self, record: SeenRecord) -> None:
        """Remember answered uploads, each in the shard of its digest."""

    @abstractmethod
    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments to a shard; of each tally later ones come later."""

    @abstractmethod
    def fill_shard(self, record: ShardRecord) -> None:
        """Set a shard's days, cursor, log, ledger and quarantine."""

    @abstractmethod
    def fill_final(self, record: FinalRecord) -> None:
        """Add what is recorded of a final epoch, and its snapshot."""

    @abstractmethod
    def finish(self) -> None:
        """Make the store usable: everything is in it, and durable."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections, when no thread uses the store any more."""


def sum_segments(segments: Sequence[Segment]) -> Segment:
    """Return the segment that stands for several of one tally."""
    first = segments[0]
    counts = np.zeros_like(first.counts)
    for one in segments:
        counts += one.counts
    low, high = min(one.low for one in segments), max(one.high for one in segments)
    return Segment(first.plan, first.epoch, low, high, sum(one.n for one in segments), counts)
