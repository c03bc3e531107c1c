"""The contract of a store: SQLite and Redis keep what the docstrings say, and one suite tries both.

A store is a number of shards. A shard has a log of accepted uploads, a cursor up to which they are folded, the
segments that came of it, the ids of the uploads of the last seven days, a ledger and a quarantine. Every effect is
atomic within its shard:

    append   ids, log, `accepted` and the counts of refused groups move together: an acknowledged upload is in the log,
             and a copy of it is known
    commit   *if the cursor is still where it was read*: segments, ledger, quarantine, cursor and the trimmed log move
             together, else nothing does
    aside    *if they are still those that were read*, and so is the cursor: damaged entries move from the log into the
             quarantine
    seal     what is over and has nothing pending is closed for ever
    merge    *if they are still those that were read*: the segments of a sealed tally become one, tally by tally

A process that was killed, late or doubled changes nothing, and at every instant, for each plan and epoch,

    accepted = folded + pending + quarantined

where `pending` is counted from the log itself, not kept: the equation can fail, and the ledger shows it if it does.

Time is the store's own, and within a shard the day never goes back, but by a reset. Any number of processes may use a
store at once, each with a `Store` of its own; one `Store` may be used by any number of threads.
"""

import hashlib
import hmac
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

from dither_aggregator.counting import BadTally
from dither_aggregator.health.capacity import FreeSpace, Trouble
from dither_aggregator.store.clock import DayReset, WrongClock, is_behind, judge
from dither_aggregator.store.documents import Documents
from dither_aggregator.store.dump import DocumentsRecord, FinalRecord, Identity, Record, SeenRecord, ShardRecord
from dither_aggregator.store.records import (
    BODY_BYTES,
    HOUR_S,
    ID_BYTES,
    Batch,
    Counted,
    Final,
    KeptReading,
    LedgerRow,
    LogEntry,
    LogRead,
    Poison,
    Quarantined,
    Receipt,
    RefusedCount,
    RefusedKey,
    Segment,
    ShardStatus,
    StoreUnavailable,
    Tally,
    TallyKey,
    Unmerged,
    add_counts,
    fold_read,
    pack_counts,
    pack_head,
    sum_refused,
    sum_segments,
)
from dither_shared.plan import Plan
from dither_shared.wire.reading import Problem, Upload, all_refused

SHARDS = 16
"""Shards of a Redis store, unless told otherwise: as many counters can work at once."""
DEDUPE = timedelta(days=7)
"""How long an upload's id is remembered. A device gives an upload up a day earlier."""
DEDUPE_DAYS_MIN = 8
"""Always remember ids of the last 8 days that had uploads, even if the clock jumps."""
READ_UPLOADS_MAX = 5_000
READ_BYTES_MAX = 32 * 1024 * 1024
"""The most that a counter takes at once: it bounds the memory."""
COMPACT_SEGMENTS = 16
"""How many segments of a tally are left side by side in a shard. Readers unpack and add up those of all shards."""
REFUSED_DAYS = 32
"""How many days of refused groups are kept, the current one with them: a month and its first day again."""
BATCH_MIN = 100
"""The least number of reports between any two figures of a metric that are ever shown of one day."""
READINGS_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes that a store keeps of readings. The oldest go first."""
READING_BYTES_MAX = READINGS_BYTES_MAX // 16
"""A longer one is not kept."""
MERGE_ATTEMPTS = 10


class Prepared(NamedTuple):
    """An upload as a store takes it."""

    id: bytes
    """The digest of its id, by which a copy is known."""
    body: bytes
    """The digest of its body, by which a copy is told from another upload under its id."""
    groups: bytes
    """Its entry of the log but for the day; empty when no group was accepted."""
    counts: list[tuple[int, int]]
    """(plan, n) of each group."""
    result: Receipt | Problem
    """The answer when it is new."""
    refused: Mapping[tuple[str, str], RefusedCount]
    """The refused groups to count when it is new, by metric and reason."""


_moment: "ContextVar[dict[Store, list[ShardStatus]] | None]" = ContextVar("_moment", default=None)
"""How far the shards of each store are, within `at_one_moment`."""


@contextmanager
def at_one_moment() -> Iterator[None]:
    """Let all that this thread reads be of the same days: how far the shards of a store are is read once.

    For pages and answers, which ask a dozen times and change nothing.
    """
    token = _moment.set({})
    try:
        yield
    finally:
        _moment.reset(token)


class Store(Documents):
    """The state of one aggregator. Open one with `dither_aggregator.store.open_store`; close it when done.

    Every method raises StoreUnavailable while the store cannot be reached or written, and StoreError when it is not,
    or no longer, the store that it was opened as.
    """

    kind: str
    """The database that it is kept in, for people."""
    layout: int
    """The version of its tables or keys."""
    generation: str
    """Drawn when the store was made. A store that came back empty or from a backup has another one and is refused."""
    shards: int
    id_bytes: int
    """The memory or disk that the id of an upload takes, about."""
    lossy: str = ""
    """Why what is acknowledged may be lost all the same, by the operator's choice; "" when it may not."""
    keeper: object = None
    """The way of this process to kept readings (`analysis/reading_cache.py`); None where each is made anew."""
    _digest_key: bytes
    _judged: WrongClock | None = None
    _not_erased = ""
    """Why nothing was erased at the last attempt, so that it is said once."""

    @abstractmethod
    def finish(self) -> None:
        """Make a store usable that was unfinished: everything is in it, and durable."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections, when no thread uses the store any more."""

    # Uploads are appended to the log, and known again by their ids.

    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads, given with the body each was read from, and return the answer to each, in order.

        When this returns they are durable. A Problem is the answer to an upload that is not taken: its id came before
        with another body, no group of it was accepted (then it is not remembered), or its shard cannot be written while
        others can. Groups that are refused are counted (`refused`), unless the id came before. If it raises, nothing is
        known to be stored.
        """
        prepared = [self._prepare(upload, body) for upload, body in uploads]
        answers = [item.result for item in prepared]
        for place, before in enumerate(self._append(prepared)):
            if isinstance(before, StoreUnavailable):
                answers[place] = Problem("unavailable", "the store cannot be written")
            elif before is not None:
                answers[place] = self._repeated(uploads[place][0], prepared[place], before)
        return answers

    @abstractmethod
    def _append(self, prepared: Sequence[Prepared]) -> Sequence[bytes | StoreUnavailable | None]:
        """Store uploads; return the body that each id came with before, also among these, or None where it is new.

        A StoreUnavailable is in the place of those that could not be stored where others could.
        """

    def _prepare(self, upload: Upload, body: bytes) -> Prepared:
        ids = self._plans.ids
        packed: list[bytes] = []
        counts: list[tuple[int, int]] = []
        accepted = 0
        for plan, cell, reports, n in upload.groups:
            id_ = ids[plan.metric, plan.digest]
            packed += (pack_head(id_, cell, n, len(reports)), reports)
            counts.append((id_, n))
            accepted += n
        rejected = [refusal.to_document() for refusal in upload.refused]
        known = self._plans.known
        return Prepared(
            self.digest(upload.id.encode("ascii")),
            self.digest(body, BODY_BYTES),
            b"".join(packed),
            counts,
            Receipt(upload.id, accepted, False, rejected) if counts else all_refused(upload.refused),
            sum_refused({(known(one.metric), one.reason): RefusedCount(1, one.count)} for one in upload.refused)
            if rejected
            else {},
        )

    def _repeated(self, upload: Upload, prepared: Prepared, body: bytes) -> Receipt | Problem:
        """Return the answer to an upload whose id came before: what of it is taken, as its groups are read now."""
        if not hmac.compare_digest(body, prepared.body):
            return Problem("upload-conflict", "this upload's id was used before with another body")
        accepted = sum(n for _, n in prepared.counts)
        return Receipt(upload.id, accepted, duplicate=True, rejected=[one.to_document() for one in upload.refused])

    def digest(self, data: bytes, size: int = ID_BYTES) -> bytes:
        """Return the first bytes of the keyed digest under which an id or a body is remembered."""
        return hashlib.blake2b(data, key=self._digest_key, digest_size=16).digest()[:size]

    def shard_of(self, upload_digest: bytes) -> int:
        """Return the shard of an upload: the leading bits of the keyed digest of its id."""
        return int.from_bytes(upload_digest[:8], "big") * self.shards >> 64

    # The log is read behind the cursor, and folded.

    def fold(self, shard: int) -> bool:
        """Fold the oldest of what waits in a shard's log; return whether there was anything: then call it again.

        The count happens outside the store; the commit does nothing if another counter was faster. Reports that cannot
        be counted are quarantined, and their neighbours are folded. Raises StoreError for reports of a plan that this
        process cannot read, and for a damaged log.
        """
        read = self.read_log(shard)
        if read.high == read.low:
            return False
        for group in read.groups:
            if group.plan not in self._plans.cells:
                self.refresh()
                break
        segments, poisons = fold_read(read, self._plans.cells)
        self.commit_fold(shard, read, segments, poisons)
        return True

    def fold_all(self, shard: int, until: Callable[[], bool] | None = None) -> int:
        """Fold what waits in a shard until nothing does, or until told to stop; return how many steps that took."""
        steps = 0
        while not (until and until()) and self.fold(shard):
            steps += 1
        return steps

    @abstractmethod
    def read_log(self, shard: int) -> LogRead:
        """Return the oldest uploads of a shard's log, READ_UPLOADS_MAX and about READ_BYTES_MAX at most."""

    @abstractmethod
    def commit_fold(self, shard: int, read: LogRead, segments: Sequence[Segment], poisons: Sequence[Poison]) -> bool:
        """Store what became of a read, and trim the log, *if the cursor is still where it was*; return whether."""

    # Segments, whose sum is the tally of a plan and epoch.

    def tally(self, plan: Plan, epoch: date) -> Tally:
        """Return the tally of a plan and epoch: n = 0 and zeros where nothing was folded. Raises BadTally."""
        return self.tallies(plan, [epoch])[epoch]

    def tallies(self, plan: Plan, epochs: Sequence[date]) -> dict[date, Tally]:
        """Return the tallies of several epochs, which are held at once; raise BadTally where any is damaged."""
        n, counts = dict.fromkeys(epochs, 0), np.zeros((len(epochs), plan.cells.tally_size), dtype=np.int64)
        found = dict(zip(epochs, counts, strict=True))
        for one in self.all_segments(self._plans.get(plan).id, epochs):
            n[one.epoch] += one.n
            add_counts(found[one.epoch], one.packed)
        return {epoch: Tally(n[epoch], own) for epoch, own in found.items()}

    @abstractmethod
    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return a shard's segments of a tally, in the order of the log. Raises BadTally for one of another size."""

    @abstractmethod
    def all_segments(self, plan: int, epochs: Sequence[date]) -> Iterator[Segment]:
        """Yield every shard's segments of the tallies of some epochs: all of them at a time may be large."""

    def compact(self, shard: int) -> int:
        """Replace the many segments of a tally by their sum; return in how many tallies that was done."""
        crowded = self.crowded(shard, COMPACT_SEGMENTS)
        for plan, epoch in crowded:
            segments = self.segments(shard, plan, epoch)
            if len(segments) > 1:
                self.replace_segments(shard, segments, sum_segments(segments))
        return len(crowded)

    @abstractmethod
    def crowded(self, shard: int, segments: int) -> list[TallyKey]:
        """Return the plans and epochs of which a shard has at least so many segments, two or more."""

    @abstractmethod
    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally *if they are still those*; return whether."""

    # Days, from the one that is open to those that are forgotten.

    @abstractmethod
    def set_clock_offset(self, seconds: float) -> None:
        """Move the store's clock, for all processes, from their next refresh on. For tests alone."""

    def today(self) -> date:
        """Return the current epoch: the day by the clock, or the latest day that a shard has used."""
        return max([self.clock_day(), *(shard.day for shard in self.status())])

    def sealed(self) -> date:
        """Return the latest epoch that every shard has sealed: nothing can enter it."""
        return min(shard.sealed for shard in self.status())

    def merged(self) -> date:
        """Return the latest epoch that every shard has sealed, and whose tallies it has merged."""
        return min(shard.merged for shard in self.status())

    @abstractmethod
    def seal(self, shard: int) -> date:
        """Close the days of a shard that are over and have nothing pending; return the latest closed day.

        Nothing enters a closed day: the shard's day moves beyond it in the same step.
        """

    def merge(self, shard: int) -> None:
        """Merge the sealed days of a shard: each tally becomes one segment over all that its day has of the log.

        Then no upload can be told apart by its segment, nor matched across metrics by its range. Nothing enters a
        sealed day, so any number of processes may merge it at once, and go on where another was cut off.
        """
        for _ in range(MERGE_ATTEMPTS):
            unmerged = self.note_merged(shard)
            if not unmerged:
                return
            for one in unmerged:
                segments = self.segments(shard, one.plan, one.epoch)
                if segments:  # else it was given up meanwhile
                    merged = sum_segments(segments)._replace(low=one.low, high=one.high)
                    self.replace_segments(shard, segments, merged)
        raise StoreUnavailable(f"the tallies of shard {shard} are being changed all the time; try again")

    @abstractmethod
    def note_merged(self, shard: int) -> list[Unmerged]:
        """Note that the sealed days of a shard are merged, *if they are*; else return the tallies that are not.

        Reads no counts; nothing at all where this was noted before.
        """

    def finals(self, plan: Plan, first: date = date.min, last: date = date.max) -> dict[date, Final]:
        """Return what is kept of a plan's finalized epochs, of those between two days."""
        return self._finals(self._plans.get(plan).id, first, last)

    @abstractmethod
    def _finals(self, plan: int, first: date = date.min, last: date = date.max) -> dict[date, Final]: ...

    @abstractmethod
    def all_finals(self) -> set[TallyKey]:
        """Return the plans and epochs that are finalized, of all plans at once."""

    def finalize(self, plan: Plan, epoch: date, final: Final, snapshot: bytes) -> Final:
        """Record a merged epoch's final digest with its snapshot, once; return what is recorded, now or from before."""
        return self._finalize(self._plans.get(plan).id, epoch, final, snapshot)

    @abstractmethod
    def _finalize(self, plan: int, epoch: date, final: Final, snapshot: bytes | None) -> Final: ...

    @abstractmethod
    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content; None where there is none, or none any more."""

    @abstractmethod
    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept; those before were given up."""

    @abstractmethod
    def sort_ids(self, shard: int) -> None:
        """Put the ids of a shard's sealed days into an order that does not tell which came first."""

    @abstractmethod
    def ids(self) -> dict[date, int]:
        """Return how many uploads of each day are remembered. May take as long as reading them."""

    @abstractmethod
    def forget(self, shard: int) -> None:
        """Forget the upload ids that no device sends any more, and old counts of refused groups and tallies of a shard.

        A tally is given up only when it is finalized.
        """

    def forget_snapshots(self) -> None:
        """Forget the snapshots that need not be kept; what is recorded of their epochs stays."""
        days = self.retention().snapshots_days
        if days is not None:
            self._forget_snapshots(self.today() - timedelta(days=days))

    @abstractmethod
    def _forget_snapshots(self, first: date) -> None:
        """Forget those of days before one."""

    # The ledger: where the accepted reports of each plan and epoch are.

    def ledger(self) -> list[LedgerRow]:
        """Return where the reports of each metric, plan and epoch are, by metric, epoch and plan."""
        return self.named(self.counted())

    def counted(self) -> dict[TallyKey, Counted]:
        """Return the same by plan and epoch, without names: of many plans and days a third of the work."""
        totals: dict[TallyKey, Counted] = {}
        for shard in range(self.shards):
            for key, counted in self.shard_ledger(shard).items():
                totals[key] = totals[key] + counted if key in totals else counted
        return totals

    def named(self, totals: Mapping[TallyKey, Counted]) -> list[LedgerRow]:
        """Return rows by metric, epoch and plan; of a plan and epoch without any report there is none."""
        nothing = Counted()
        rows = [
            LedgerRow(*self._names_of(id_), epoch.isoformat(), **vars(total))
            for (id_, epoch), total in sorted(totals.items(), key=lambda item: item[0])
            if total != nothing
        ]
        return sorted(rows, key=lambda row: (row.metric, row.epoch))

    def _names_of(self, id_: int) -> tuple[str, str]:
        """Return a plan's metric and digest; what a damaged log or ledger says may be of a plan there is not."""
        try:
            plan = self.plan_by_id(id_).plan
        except KeyError:
            return "unknown", f"plan {id_}"
        return plan.metric, plan.digest

    @abstractmethod
    def shard_ledger(self, shard: int) -> dict[TallyKey, Counted]:
        """Return where a shard's reports are, by plan and epoch, all at one instant. `pending` is counted."""

    def epochs(self, plan: Plan, first: date = date.min, last: date = date.max) -> list[date]:
        """Return the days on which reports of the plan were accepted, of those between two days, latest first."""
        id_ = self._plans.get(plan).id
        return self._epochs([id_], first, last).get(id_, [])

    def all_epochs(self) -> dict[int, list[date]]:
        """Return the same of each plan that has any, by its id, at once."""
        return self._epochs(sorted(self._plans.by_id))

    @abstractmethod
    def _epochs(self, plans: Sequence[int], first: date = date.min, last: date = date.max) -> dict[int, list[date]]: ...

    @abstractmethod
    def refused(self, first: date, last: date) -> dict[RefusedKey, RefusedCount]:
        """Return what was refused on a few days, from `first` to `last`, by day, metric and reason.

        Reports of refused groups are stored nowhere, and in no ledger. They are counted in the step that appends the
        upload's other groups, so that a copy that is known counts nothing. An upload of which every group is refused is
        not remembered: each copy of it counts. A request that is refused as a whole, such as one without the key, is
        not counted.

        Strangers choose what they send, so the rows are bounded: reasons are a fixed set, and a metric that no plan is
        of has no name here. A day has at most len(REASONS) rows for each metric of the store, and as many for those
        without a name.
        """

    # The quarantine: accepted reports that could not be counted wait for an operator, who replays or drops them.

    def quarantined(self) -> list[Quarantined]:
        """Return what waits in quarantine, oldest first within each shard."""
        return [Quarantined.of(f"{shard}-{number}", poison) for shard, number, poison in self._quarantine()]

    @abstractmethod
    def _quarantine(self) -> Iterable[tuple[int, int, Poison]]:
        """Yield shard, number and group, in that order."""

    @abstractmethod
    def log_entries(self, shard: int) -> Iterator[LogEntry]:
        """Yield the entries of a shard's log, oldest first and damaged or not, in pieces.

        Entries that are folded meanwhile are left out; entries that come meanwhile may be.
        """

    @abstractmethod
    def set_apart(
        self, shard: int, oldest: LogEntry, others: Mapping[LogEntry, bytes], poisons: Sequence[Poison]
    ) -> bool:
        """Take entries out of a shard's log, and put what was in them into the quarantine; return whether.

        *If the cursor is still before `oldest`, and all of them are those that were read*: the cursor moves beyond it,
        so that others who read it commit nothing; in the place of each other one comes the entry that is given.
        """

    def replay(self, id_: str) -> bool:
        """Put a quarantined group back into the log, in today's epoch; return whether it was there.

        If its own epoch was another, the reports leave that one's accepted and quarantined in the same step.
        """
        place = self._place_of(id_)
        return bool(place and self._replay(*place))

    def drop(self, id_: str) -> bool:
        """Give a quarantined group up; return whether it was there. It stays counted as quarantined, and as dropped."""
        place = self._place_of(id_)
        return bool(place and self._drop(*place))

    def _place_of(self, id_: str) -> tuple[int, int] | None:
        """Return the shard and number of a group; None where the id can be of none."""
        parts = id_.split("-")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            return None
        shard, number = map(int, parts)
        return (shard, number) if shard < self.shards else None

    @abstractmethod
    def _replay(self, shard: int, number: int) -> bool: ...

    @abstractmethod
    def _drop(self, shard: int, number: int) -> bool: ...

    # Batches: the counts of days that are not over, as far as who reads with a key is told of them.

    def cut_batches(self) -> None:
        """Cut the batches of an hour (UTC) that has begun; else only give up those of days that are sealed.

        They are the counts of open days, of all metrics at once. Each plan and day has the last cut and the one that is
        shown, which is at least BATCH_MIN reports older. So the sealed day differs by as many from all that was shown
        of it.
        """
        hour, sealed, (last, keys) = int(self._now_s() // HOUR_S), self.sealed(), self.batch_keys()
        if last is not None and hour <= last and all(epoch > sealed for _, epoch in keys):
            return
        last, kept = self.batches()
        still_open = [one for one in kept if one.epoch > sealed]
        if last is None:  # what was counted so far was at no full hour
            self._keep_batches(None, hour, [])
        elif hour > last:
            self._keep_batches(last, hour, list(self._cut(still_open)))
        elif len(still_open) < len(kept):
            self._keep_batches(last, last, still_open)

    def _cut(self, kept: Sequence[Batch]) -> Iterator[Batch]:
        """Yield the batches that are kept from now on, given those of before."""
        before = {(one.plan, one.epoch, one.shown): one for one in kept}
        sealed = self.sealed()
        for id_, days in self.all_epochs().items():
            for epoch in days:
                if epoch > sealed:
                    shown, last = before.get((id_, epoch, True)), before.get((id_, epoch, False))
                    with suppress(BadTally, KeyError):  # a damaged one holds up no other
                        tally = self.tally(self.plan_by_id(id_).plan, epoch)
                        if tally.n - (last.n if last else 0) >= BATCH_MIN:
                            shown = replace(last, shown=True) if last else None
                            last = Batch(id_, epoch, False, tally.n, pack_counts(tally.counts))
                    yield from (one for one in (shown, last) if one)

    @abstractmethod
    def batches(self) -> tuple[int | None, list[Batch]]:
        """Return the hour of the last cut, in hours since 1970, and all batches at one instant; None before any."""

    @abstractmethod
    def _keep_batches(self, last: int | None, hour: int, batches: Collection[Batch]) -> None:
        """Put these in the place of all batches *if the last cut is still that of `last`*, in one step."""

    def shown(self) -> set[TallyKey]:
        """Return the plans and open days of which a batch is shown."""
        _, keys = self.batch_keys()
        return {key for key, shown in keys.items() if shown}

    @abstractmethod
    def batch_keys(self) -> tuple[int | None, dict[TallyKey, bool]]:
        """Return the hour of the last cut, and whether a batch is shown of each plan and day that has any."""

    def shown_batch(self, key: TallyKey) -> Batch | None:
        """Return the batch that is shown of a plan and day."""
        return next((one for one in self.batches()[1] if one.shown and (one.plan, one.epoch) == key), None)

    # Readings of sealed days, so that no request reads them again. All of it can be made again from the tallies: a
    # backup and a dump leave it out, and a new dither asks for it anew.

    @abstractmethod
    def kept_reading(self, key: str) -> KeptReading | None:
        """Return an entry; None where there is none."""

    @abstractmethod
    def keep_readings(self, entries: Sequence[KeptReading]) -> None:
        """Keep entries, each in the place of another of its key.

        One of days whose tallies were given up is not kept: no reading outlives its reports.
        """

    @abstractmethod
    def open_readings(self) -> list[KeptReading]:
        """Return the entries in whose place no reading is yet: of one that is being made, or that could not be."""

    # Moving: everything that a store holds is dumped, and a store that was just made is filled with it. Only
    # `restoring.fill` may call the methods that fill, on a store that is unfinished.

    @abstractmethod
    def dump(self) -> Iterator[Record]:
        """Yield everything that makes another store the same, each shard as at one instant.

        The store may be in use: uploads that are accepted meanwhile may or may not be in it.
        """

    def fill_identity(self, identity: Identity) -> None:
        """Take over the app, and what is hashed and signed by. The generation stays this store's."""
        self._fill_identity(identity)
        self.app, self._digest_key, self._secret = identity.app, identity.digest_key, identity.secret
        self.refresh()

    @abstractmethod
    def _fill_identity(self, identity: Identity) -> None: ...

    def fill_documents(self, record: DocumentsRecord) -> None:
        """Take over documents with their ids."""
        if record.kind.numbered:
            self._add(record.kind, record.documents)
        else:
            self._change(record.kind, lambda _: record.documents)
        self.refresh()

    def fill_batches(self, hour: int, batches: Collection[Batch]) -> None:
        """Take over the batches of another store."""
        self._keep_batches(None, hour, batches)

    @abstractmethod
    def fill_seen(self, record: SeenRecord) -> None:
        """Remember uploads, each in the shard of its digest."""

    @abstractmethod
    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments to a shard; of each tally later ones come later."""

    @abstractmethod
    def fill_shard(self, record: ShardRecord) -> None:
        """Set a shard's days, cursor, log, ledger, quarantine and counts of refused groups."""

    def fill_final(self, record: FinalRecord) -> None:
        """Add what is kept of a finalized epoch, and its snapshot."""
        self._finalize(record.plan, record.epoch, record.final, record.snapshot)

    # Erasing: the bytes of which a merged day's tallies were made leave the store's files.

    @abstractmethod
    def erased(self) -> date:
        """Return the latest epoch that is erased: of it the store's files hold the merged tallies, and no more.

        Reports that wait in quarantine are held whatever their epoch, and answered ids for as long as they are known.
        """

    def erase(self) -> str:
        """Erase what is merged, as far as that can be done now; cheap when nothing is left to do.

        It may take several calls, of any processes, with any time between them. Return why it cannot be done on this
        store, as words for the operator, when that is new; else "".
        """
        merged = self.merged()
        if merged <= self.erased():
            return ""
        for shard in range(self.shards):
            self.sort_ids(shard)
        why = self._erase(merged)
        new, self._not_erased = why != self._not_erased, why
        return why if new else ""

    @abstractmethod
    def _erase(self, merged: date) -> str:
        """Erase the days up to one, or do a part of it; return why it cannot be done."""

    # Resetting: a day that leapt ahead with the machine's clock is brought back, by `store/restoring.py`.

    def wrong_clock(self, status: Sequence[ShardStatus]) -> WrongClock | None:
        """Return which clock is wrong; None where they agree, or differ by a day, which passes by itself.

        Reads the days of all reports, once for each difference.
        """
        clock = self.clock_day()
        day = max(shard.day for shard in status)
        if not is_behind(clock, day):
            return None
        if self._judged is None or (self._judged.clock, self._judged.day) != (clock, day):
            used = {epoch for epochs in self.all_epochs().values() for epoch in epochs if epoch > clock}
            asked = [stored.expires for stored in self.plans() if stored.current and not stored.retired]
            of_machine, why = judge(clock, day, used, max(asked, default=None))
            sealed = any(epoch <= min(shard.sealed for shard in status) for epoch in used)
            self._judged = WrongClock(clock, day, of_machine, why, sealed)
        return self._judged

    @abstractmethod
    def begun_reset(self) -> str:
        """Return the reset that was begun and not done, as a text; "" where there is none."""

    @abstractmethod
    def begin_reset(self, text: str) -> None:
        """Keep what a reset is about to do."""

    @abstractmethod
    def reset_day(self, reset: DayReset) -> None:
        """Do it, and forget that it was begun. The log is empty, and all that is sealed is merged.

        It may be called again where it was cut off, as often as that happens.
        """

    # How it is.

    def status(self) -> list[ShardStatus]:
        """Return how far each shard is; within `at_one_moment`, as it was when that was asked first."""
        kept = _moment.get()
        if kept is None:
            return self._read_status()
        if self not in kept:
            kept[self] = self._read_status()
        return kept[self]

    @abstractmethod
    def _read_status(self) -> list[ShardStatus]: ...

    def last_status(self) -> list[ShardStatus]:
        """Return the same, for whoever watches: of a shard that is away while others are there, as it last was.

        One that was away when this process began, and has not come back, is left out.
        """
        return self.status()

    def backlog(self) -> int:
        """Return how many accepted uploads are not folded."""
        return sum(shard.backlog for shard in self.status())

    @abstractmethod
    def left(self) -> FreeSpace | None:
        """Return what is left of the disk, or of the memory, that the store may have; None where nothing says."""

    def trouble(self) -> dict[Trouble, str]:
        """Return what is wrong with the store now, by kind; empty when it is as it must be."""
        behind = [shard for shard in self.last_status() if is_behind(shard.clock_day, shard.day)]
        if not behind:
            return self._trouble()
        clock, day = behind[0].clock_day, max(shard.day for shard in behind)
        return self._trouble() | {
            Trouble.CLOCK: f"the store's clock says {clock}, and {day} has been: reports count on it"
        }

    @abstractmethod
    def _trouble(self) -> dict[Trouble, str]:
        """Return what is wrong with this kind of store."""

    def integrity(self) -> list[str]:
        """Return what is wrong with the files beneath, in sentences. May take as long as reading all of them."""
        return []


def with_pending(kept: Mapping[TallyKey, Counted], pending: Mapping[TallyKey, int]) -> dict[TallyKey, Counted]:
    """Return a ledger as it is kept with what was counted in the log at the same instant."""
    return {**kept, **{key: replace(kept.get(key, Counted()), pending=n) for key, n in pending.items()}}
