"""Every invariant of a store, tried on what it holds.

    ledger       each row balances, and no number is negative; the log is what is pending, the tallies are what is
                 folded, the quarantine is what is quarantined and not dropped
    log          without a gap, of known plans, whole reports that can be counted, days in order and none of them sealed
    tallies      counts that so many reports can have; segments in order, disjoint, none beyond the cursor
    epochs       what was finalized is sealed and merged, its tally still has the digest that was recorded, and in each
                 shard all tallies of its day are one segment, of one range
    snapshots    each has the content that its id is the digest of, and the tally that was recorded; none is missing of
                 a day behind one that has its own
    plans        no rev and no digest twice
    documents    those of each kind can be read, stand under their ids, and are not too many; marks have texts that can
                 be shown
    ids          they have the digests' lengths, are of days that were, and as many as is written of each
    batches      of so many reports as lie between them at least, none that the tally lacks
    refused      no number is negative, reasons are the wire's, metrics the store's, and no day is to come

A store may be checked while it is in use: the check compares one instant of each shard. It cannot see all that may
change in a store: counting.md lists the rest.

**Damaged entries** of a log are set apart, so that what is behind them is folded. An operator asks for it.
An entry is damaged when it cannot be unpacked, or names a plan that the store does not have. Its reports cannot be
read, but the ledger knows how many they are: those accepted and not folded, not in quarantine, and in no sound entry.
No fold and no append changes that difference, so it can be computed before the step that uses it.

Such reports go into the quarantine, a group for each plan and epoch, with the damaged entries as they are on the disk.
The ledger balances again. The reports can be dropped, and not be replayed: nothing is left to count. If several entries
of a shard are damaged at once, nobody knows which held what: they are set apart together.
"""

import hashlib
import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import islice, takewhile
from typing import NamedTuple

from dither_aggregator.counting import BadTally, impossible
from dither_aggregator.store.contract import BATCH_MIN, Store
from dither_aggregator.store.documents import KINDS
from dither_aggregator.store.dump import FinalRecord, Identity, SeenRecord, ShardRecord, TallyRecord
from dither_aggregator.store.records import (
    BODY_BYTES,
    ID_BYTES,
    NO_CELL,
    Counted,
    DamagedEntry,
    Final,
    LogEntry,
    LogGroup,
    LogRead,
    Poison,
    StoreError,
    StoreUnavailable,
    TallyKey,
    count_pending,
    day_number,
    entry_day,
    fold_read,
    pack_entry,
    unpack_counts,
    unpack_entry,
)
from dither_shared.wire import REASONS


def check(store: Store) -> Iterator[str]:
    """Yield a sentence for everything that is not as it must be."""
    yield from store.integrity()
    yield from _check_documents(store)
    yield from _check_batches(store)
    checked = _Checked(store)
    try:
        for record in store.dump():
            match record:
                case Identity():
                    checked.tallies_from = record.tallies_from
                case ShardRecord():
                    yield from checked.shard(record)
                case SeenRecord():
                    yield from checked.seen(record)
                case TallyRecord():
                    yield from checked.tally(record)
                case FinalRecord():
                    yield from checked.final(record)
        yield from checked.end()
    except (BadTally, StoreError, KeyError, sqlite3.Error) as error:
        yield f"the rest was not checked, it cannot be read: {error}"


def _check_documents(store: Store) -> Iterator[str]:
    for kind in KINDS:
        try:
            kept = store.documents(kind)
        except StoreError as error:
            yield str(error)
            continue
        if kind.most is not None and len(kept) > kind.most:
            yield f"{kind.kind}: there are {len(kept):,}, and {kind.most:,} are the most"
        yield from (f"{kind.kind}: {fault}" for fault in kind.faults(kept))


def _check_batches(store: Store) -> Iterator[str]:
    """Check batches against each other, and against tallies that are read after them."""
    _, batches = store.batches()
    n = {(one.plan, one.epoch, one.shown): one.n for one in batches}
    for one in batches:
        where = f"batches: plan {one.plan} on {one.epoch}"
        try:
            plan = store.plan_by_id(one.plan).plan
            faults = list(impossible(plan.cells, unpack_counts(one.packed, plan.cells.tally_size), one.n))
        except (BadTally, KeyError) as error:
            yield f"{where}: {error}"
            continue
        yield from (f"{where}: {fault}" for fault in faults)
        if one.n - (0 if one.shown else n.get((one.plan, one.epoch, True), 0)) < BATCH_MIN:
            yield f"{where}: one of {one.n} reports follows too few others"
        if one.shown and (one.plan, one.epoch, False) not in n:
            yield f"{where}: what is shown is the last cut"
        if (now := store.tally(plan, one.epoch).n) < one.n and one.epoch >= store.tallies_from():
            yield f"{where}: one is of {one.n} reports, and the tally of {now}"


@dataclass
class _Checked:
    """The part of a dump that was read so far."""

    store: Store
    tallies_from: date = date.min
    days: list[date] = field(default_factory=list)
    """The day on which reports count, of each shard."""
    sealed: list[date] = field(default_factory=list)
    folded: dict[tuple[int, TallyKey], int] = field(default_factory=dict)
    """By shard, plan and epoch: reports that the ledger counts as folded, and no tally was read of."""
    cursors: dict[int, int] = field(default_factory=dict)
    ranges: dict[tuple[int, date], set[tuple[int, int]]] = field(default_factory=dict)
    """By shard and epoch: the ranges of all segments."""
    finals: list[tuple[int, date, Final]] = field(default_factory=list)
    without: list[tuple[date, str]] = field(default_factory=list)
    """The finals of which no snapshot was read: those of the earliest days are given up first."""
    snapshots_from: date = date.max

    def shard(self, record: ShardRecord) -> Iterator[str]:
        where = f"shard {record.shard}"
        self.days.append(record.day)
        self.sealed.append(record.sealed)
        self.cursors[record.shard] = record.cursor
        if record.sealed >= record.day:
            yield f"{where}: it has sealed {record.sealed}, and reports still count on {record.day}"
        pending: Counter[TallyKey] = Counter()
        yield from self._log(where, record, pending)
        waiting: Counter[TallyKey] = Counter()
        for poison in record.quarantine:
            waiting[poison.group.plan, poison.group.epoch] += poison.group.n
        for key in sorted({*record.ledger, *pending, *waiting}):
            row = replace(record.ledger.get(key, Counted()), pending=pending[key])
            yield from self._row(where, key, row, waiting[key])
            if row.folded and key[1] >= self.tallies_from:
                self.folded[record.shard, key] = row.folded
        yield from self._refused(where, record)

    def seen(self, record: SeenRecord) -> Iterator[str]:
        """Check what is remembered of the uploads of a day."""
        if record.day > max(self.days):
            yield f"ids: there are some of {record.day}, and reports count on {max(self.days)}"
        if any((len(id_), len(body)) != (ID_BYTES, BODY_BYTES) for id_, body in record.bodies.items()):
            yield f"ids: of {record.day}: one is damaged: it has another length"

    def _refused(self, where: str, record: ShardRecord) -> Iterator[str]:
        """Check the counts of refused groups."""
        metrics = {"", *(stored.plan.metric for stored in self.store.plans())}
        for (day, metric, reason), one in record.refused.items():
            what = f"{where}, refused on {day}"
            if one.groups < 1 or one.reports < 0:
                yield f"{what}: {one.groups} groups with {one.reports} reports cannot be"
            if reason not in REASONS:
                yield f"{what}: nothing is refused because of {reason!r}"
            if metric not in metrics:
                yield f"{what}: the store has no plan of {metric!r}"
            if day > record.day:
                yield f"{what}: reports count on {record.day}"

    def _log(self, where: str, record: ShardRecord, pending: Counter[TallyKey]) -> Iterator[str]:
        """Check what waits to be folded, and count it."""
        last = date.min
        for place, entry in enumerate(record.entries, record.cursor + 1):
            try:
                groups = unpack_entry(entry)
            except StoreError as error:
                yield f"{where}, log {place}: {error}"
                continue
            for group in groups:
                yield from self._group(f"{where}, log {place}", group)
                pending[group.plan, group.epoch] += group.n
            epoch = entry_day(entry)
            if epoch < last or epoch > record.day:
                yield f"{where}, log {place}: it is of {epoch}, behind one of {last}, and the shard is on {record.day}"
            if epoch <= record.sealed:
                yield f"{where}, log {place}: it is of {epoch}, which is sealed"
            last = max(last, epoch)

    def _row(self, where: str, key: TallyKey, row: Counted, waiting: int) -> Iterator[str]:
        what = f"{where}, ledger of {self._name(key)}"
        if min(row.kept) < 0:
            yield f"{what}: it has a negative number, {row.kept}"
        if row.accepted != row.folded + row.pending + row.quarantined:
            yield (
                f"{what}: {row.accepted} accepted are not {row.folded} folded + {row.pending} pending "
                f"+ {row.quarantined} quarantined"
            )
        if row.quarantined - row.dropped != waiting:
            yield f"{what}: {waiting} reports are in quarantine, {row.quarantined - row.dropped} should be"

    def _group(self, where: str, group: LogGroup) -> Iterator[str]:
        try:
            cells = self.store.plan_by_id(group.plan).plan.cells
        except KeyError:
            yield (
                f"{where}: it is of plan {group.plan}, which the store does not have; `dither quarantine aside` sets "
                "it apart"
            )
            return
        _, poisons = fold_read(LogRead(0, 1, [group]), {group.plan: cells})
        for poison in poisons:
            yield f"{where}: it cannot be counted and will be quarantined: {poison.reason}"

    def tally(self, record: TallyRecord) -> Iterator[str]:
        key = record.plan, record.epoch
        where = f"shard {record.shard}, tally of {self._name(key)}"
        try:
            cells = self.store.plan_by_id(record.plan).plan.cells
            counts = unpack_counts(record.counts, cells.tally_size)
        except (BadTally, KeyError) as error:
            yield f"{where}: {error}"
            return
        folded = self.folded.pop((record.shard, key), 0)
        if folded != record.n and record.epoch >= self.tallies_from:
            yield f"{where}: it holds {record.n} reports, the ledger says {folded}"
        yield from (f"{where}: {fault}" for fault in impossible(cells, counts, record.n))
        yield from self._segments(where, record)

    def _segments(self, where: str, record: TallyRecord) -> Iterator[str]:
        last = 0
        for segment in self.store.segments(record.shard, record.plan, record.epoch):
            self.ranges.setdefault((record.shard, record.epoch), set()).add((segment.low, segment.high))
            if not last <= segment.low < segment.high:
                yield f"{where}: a segment goes from {segment.low} to {segment.high}, behind one that ends at {last}"
            last = segment.high
        cursor = self.store.status()[record.shard].cursor
        if last > cursor:
            yield f"{where}: a segment ends at {last}, beyond the cursor {cursor}"

    def final(self, record: FinalRecord) -> Iterator[str]:
        """Check a snapshot; what was recorded is compared with the tally at the end, for nothing can change it."""
        where = f"final {self._name((record.plan, record.epoch))}"
        self.finals.append((record.plan, record.epoch, record.final))
        if record.snapshot is None:
            self.without.append((record.epoch, where))
            return
        self.snapshots_from = min(self.snapshots_from, record.epoch)
        try:
            whole = zlib.decompressobj()
            content = whole.decompress(record.snapshot) * (whole.eof and not whole.unused_data)
        except zlib.error:
            content = b""
        if hashlib.sha256(content).hexdigest() != record.final.snapshot:
            yield f"{where}: the content of snapshot {record.final.snapshot} is not what it was"
        elif json.loads(content)["tally"]["digest"] != record.final.digest:
            yield f"{where}: the snapshot is of another tally"

    def end(self) -> Iterator[str]:
        for (shard, key), folded in self.folded.items():
            yield f"shard {shard}, tally of {self._name(key)}: there is none, the ledger says {folded} reports"
        yield from self._unmerged()
        shards = self.store.status()
        sealed, merged = min(self.sealed), min(shard.merged for shard in shards)
        yield from (f"{where}: its snapshot is missing" for epoch, where in self.without if epoch > self.snapshots_from)
        for one in shards:
            if one.merged > one.sealed:
                yield f"shard {one.shard}: {one.merged} is merged, and only {one.sealed} is sealed"
        for plan, epoch, final in self.finals:
            where = f"final {self._name((plan, epoch))}"
            if epoch > sealed:
                yield f"{where}: it is recorded, and only {sealed} is sealed"
            elif epoch > merged:
                yield f"{where}: it is recorded, and only {merged} is merged"
            digest = self.store.tally(self.store.plan_by_id(plan).plan, epoch).digest
            if digest != final.digest and epoch >= self.store.tallies_from():
                yield f"{where}: the tally is not the one that was recorded"

    def _unmerged(self) -> Iterator[str]:
        final = {epoch for _, epoch, _ in self.finals}
        for (shard, epoch), ranges in self.ranges.items():
            if epoch in final and len(ranges) > 1:  # two segments of a tally lie side by side
                yield f"shard {shard}: {epoch} is final, and its tallies are not one segment each, of one range"

    def _name(self, key: TallyKey) -> str:
        plan, epoch = key
        try:
            found = self.store.plan_by_id(plan).plan
        except KeyError:
            return f"plan {plan} on {epoch}"
        return f"{found.metric}, plan {found.digest}, on {epoch}"


# Damaged entries.


ATTEMPTS = 10
FOLD_UPLOADS_MAX = 500


class Damaged(NamedTuple):
    """An entry that cannot be folded by anybody."""

    one: LogEntry
    reason: str
    day: date
    """The day of the entries around it: its own cannot be trusted."""

    @property
    def kept(self) -> bytes:
        """All of it, as it is on the disk."""
        return self.one.mark + self.one.entry


class SetApart(NamedTuple):
    """The damaged entries of a shard that were set apart."""

    shard: int
    entries: list[Damaged]
    held: dict[TallyKey, int]
    """How many reports were in them, by what the ledger misses."""


def set_apart(store: Store, shard: int) -> SetApart | None:
    """Set the damaged entries of a shard's log apart; None where there are none.

    Raises StoreError where the ledger does not say what they held: then it is damaged as well.
    """
    for _ in range(ATTEMPTS):
        found = find_damaged_entries(store, shard)
        if not found:
            return None
        _fold_before(store, shard, found[0].one)
        held = _held(store, shard, found)
        if not held and find_damaged_entries(store, shard) == found:  # else somebody else has set them apart
            raise StoreError(
                f"shard {shard}: the ledger does not say what the {len(found)} damaged entries of its log held, so it "
                "is damaged as well. Restore a backup: `dither restore`"
            )
        oldest, *others = found
        empty = {each.one: pack_entry(day_number(each.day), b"") for each in others}
        if store.set_apart(shard, oldest.one, empty, list(_poisons(found, held))):
            return SetApart(shard, found, held)
    raise StoreUnavailable(f"the log of shard {shard} changes faster than it can be read; try again")


def find_damaged_entries(store: Store, shard: int) -> list[Damaged]:
    """Return the damaged entries of a shard's log, oldest first."""
    found: list[tuple[LogEntry, str, date | None]] = []
    first = last = None
    for one in store.log_entries(shard):
        if reason := _damage(store, one.entry):
            found.append((one, reason, last))
        else:
            last = entry_day(one.entry)
            first = first or last
    today = store.status()[shard].day
    return [Damaged(one, reason, before or first or today) for one, reason, before in found]


def _damage(store: Store, entry: bytes) -> str:
    try:
        for group in unpack_entry(entry):
            store.plan_by_id(group.plan)
    except DamagedEntry as error:
        return error.how
    except KeyError as error:
        return f"it is of plan {error}, which the store does not have"
    return ""


def _fold_before(store: Store, shard: int, oldest: LogEntry) -> None:
    """Fold the sound entries before the oldest damaged one: who counts reads it with them, and gives up."""
    while before := list(
        islice(takewhile(lambda one: one.place < oldest.place, store.log_entries(shard)), FOLD_UPLOADS_MAX)
    ):
        groups = [group for one in before for group in unpack_entry(one.entry)]
        read = LogRead(before[0].place - 1, before[-1].place, groups, before[-1].mark)
        plans = {group.plan: store.plan_by_id(group.plan).plan.cells for group in groups}
        store.commit_fold(shard, read, *fold_read(read, plans))


def _held(store: Store, shard: int, found: Sequence[Damaged]) -> dict[TallyKey, int]:
    """Return how many reports of each plan and epoch the ledger misses; nothing where that cannot be what they held."""
    missing = {key: row.missing for key, row in store.shard_ledger(shard).items()}
    for key, n in count_pending(each.one.entry for each in found).items():  # the ledger took those for sound
        missing[key] = missing.get(key, 0) + n
    held = {key: n for key, n in sorted(missing.items()) if n}
    return held if min(held.values(), default=0) > 0 else {}


def _poisons(found: Sequence[Damaged], held: Mapping[TallyKey, int]) -> Iterator[Poison]:
    which = ", ".join(f"{each.one.place} ({len(each.kept):,} bytes: {each.reason})" for each in found)
    kept = b"".join(each.kept for each in found)
    for (plan, epoch), n in held.items():
        yield Poison(LogGroup(plan, NO_CELL, epoch, n, kept), f"damaged in the log: {which}")
