"""A store from a dump: restored, copied, and with its day brought back.

Filling a fresh store with the dump of another, whichever kind each is and however many shards it has.

A shard's folded reports become one segment per tally, over as many places of the new log as the old cursor had passed;
pending uploads come behind it, oldest day first. If shards come together, their sealed days are merged anew. Answered
uploads go to the shard of their digest, so that a copy that arrives later is known. Shards that come together keep
their latest day used and their earliest day sealed: nothing enters a sealed day.

A store that moves from one machine to several takes reports in one place at every moment. The directory is held, so
that nobody serves it; the new store stays unfinished, so that nobody can open it. Once all is in it and the ledgers are
the same, the directory is marked as moved, and only then the new store is finished. Cut off before the mark, the new
store is emptied by hand and the copy made anew; behind it, running it again finishes it.

**Resetting**: the way back where the day of the store, which never goes back, leapt ahead with its machine's clock.
    sealed days beyond    with ledger, tallies, snapshots and quarantine they go into a file, of which `dither restore`
                          makes a store. Nothing enters a sealed day, so none is joined to another
    open days beyond      nobody has read them as closed days: what is of them counts on the day that is open then
    ids of uploads        stay known, as if they had come on that day: no copy of an upload is taken twice
    refused groups        count on that day too

The store first notes what is about to be done, and the file is whole before anything leaves the store. So a reset that
was cut off is finished by the same command.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import date, timedelta
from itertools import chain
from operator import itemgetter
from pathlib import Path

from dither_aggregator.store import create_store, dump, is_redis, open_store
from dither_aggregator.store.clock import DayReset, named
from dither_aggregator.store.contract import Store
from dither_aggregator.store.document_kinds import COMMAND_LINE, Key, Retention
from dither_aggregator.store.documents import KINDS, StoredPlan
from dither_aggregator.store.dump import (
    BatchesRecord,
    DocumentsRecord,
    FinalRecord,
    Identity,
    Record,
    SeenRecord,
    ShardRecord,
    TallyRecord,
)
from dither_aggregator.store.records import (
    Counted,
    LedgerRow,
    Segment,
    StoreError,
    TallyKey,
    entry_day,
    pack_counts,
    sum_refused,
    unpack_counts,
)
from dither_aggregator.store.sqlite import SQLiteStore, exclusive
from dither_shared.errors import reason_of


def restore(store: Store, records: Iterable[Record]) -> None:
    """Fill a store that was made `unfinished`, and make it usable."""
    fill(store, records)
    store.finish()


def fill(store: Store, records: Iterable[Record]) -> None:
    """Fill a store that was made `unfinished`. `store.finish()` then makes it usable."""
    shards: dict[int, list[ShardRecord]] = {}
    passed: Counter[int] = Counter()  # by how many places of the new log, in each shard
    ranges: dict[int, tuple[int, int]] = {}
    for record in records:
        match record:
            case Identity():
                store.fill_identity(record)
            case DocumentsRecord():
                store.fill_documents(record)
            case BatchesRecord():
                store.fill_batches(record.hour, record.batches)
            case ShardRecord():
                place = record.shard % store.shards
                low = passed[place]
                passed[place] = low + record.cursor
                ranges[record.shard] = (low, passed[place])
                shards.setdefault(place, []).append(record)
            case SeenRecord():
                store.fill_seen(record)
            case TallyRecord():
                _fill_tally(store, record, *ranges[record.shard])
            case FinalRecord():
                store.fill_final(record)
    if not shards:
        raise StoreError("the dump has no shard in it")
    _fill_shards(store, shards)
    for shard in range(store.shards):
        store.sort_ids(shard)
        store.merge(shard)


def _fill_tally(store: Store, record: TallyRecord, low: int, high: int) -> None:
    counts = unpack_counts(record.counts, store.plan_by_id(record.plan).plan.cells.tally_size)
    segment = Segment(record.plan, record.epoch, low, high, record.n, pack_counts(counts))
    store.fill_segments(record.shard % store.shards, [segment])


def _fill_shards(store: Store, shards: Mapping[int, Sequence[ShardRecord]]) -> None:
    every = [record for records in shards.values() for record in records]
    days = max(record.day for record in every), min(record.sealed for record in every)
    for place in range(store.shards):
        records = shards.get(place)
        store.fill_shard(_merged(place, records) if records else ShardRecord(place, *days, cursor=0, entries=()))


def _merged(place: int, records: Sequence[ShardRecord]) -> ShardRecord:
    """Return the records that come to one place as one. All at once: a file may have any number of them."""
    ledger: dict[TallyKey, Counted] = defaultdict(Counted)
    for key, row in chain.from_iterable(record.ledger.items() for record in records):
        ledger[key] += row
    dated = sorted(chain.from_iterable(_dated(record.entries) for record in records), key=itemgetter(0))
    return ShardRecord(
        place,
        max(record.day for record in records),
        min(record.sealed for record in records),
        sum(record.cursor for record in records),
        tuple(entry for _, entry in dated),
        dict(ledger),
        tuple(chain.from_iterable(record.quarantine for record in records)),
        sum_refused(record.refused for record in records),
    )


def _dated(entries: Iterable[bytes]) -> Iterator[tuple[date, bytes]]:
    """Yield entries with their days; a damaged one keeps its place behind the one before it."""
    day = date.min
    for entry in entries:
        with suppress(StoreError):
            day = max(day, entry_day(entry))
        yield day, entry


# Moving.


def copy_redis(name: str, target: str, shards: int, *, allow_lossy_store: bool = False) -> tuple[list[LedgerRow], str]:
    """Move the store in a Redis to a new one, as `copy` does; all others are refused from the beginning.

    One that was cut off is begun again, on an empty target. The old store stays refused when the copy is whole.
    """
    from dither_aggregator.store.redis import RedisStore, layout  # and with it redis: only where it is used

    with closing(RedisStore(name, allow_lossy_store=True, moving=True)) as source:
        made = create_store(target, source.app, shards, allow_lossy_store=allow_lossy_store, unfinished=True)
        with closing(made):
            source.hold(layout.MOVED)
            try:
                fill(made, source.dump())
                _compare(source, made)
            except BaseException:
                source.release()
                raise
            made.finish()
            return made.ledger(), made.generation


def copy(directory: Path, target: str, shards: int, *, allow_lossy_store: bool = False) -> tuple[list[LedgerRow], str]:
    """Move the store in a directory to a new one; return its ledger and its generation.

    Raises StoreError when the directory is being served, and when the target is not empty.
    """
    with exclusive(directory), closing(SQLiteStore(directory, moved=True)) as source:
        if source.moved_to:
            with closing(open_store(target, allow_lossy_store=allow_lossy_store, unfinished=True)) as made:
                if made.generation != source.moved_to:
                    raise StoreError(
                        f"{directory} was copied to the store {source.moved_to}; {target} holds another one"
                    )
                made.finish()
                return made.ledger(), made.generation
        with closing(
            create_store(target, source.app, shards, allow_lossy_store=allow_lossy_store, unfinished=True)
        ) as made:
            fill(made, source.dump())
            _compare(source, made)
            source.mark_moved(made.generation)
            made.finish()
            return made.ledger(), made.generation


def _compare(source: Store, made: Store) -> None:
    rows = source.ledger()
    if rows != made.ledger():
        raise StoreError("the copy's ledger is not the same: nothing was changed; run `dither fsck` on the directory")
    for kind in KINDS:
        if source.documents(kind) != made.documents(kind):
            raise StoreError(f"the copy's {kind.kind} are not the same: nothing was changed; run it again")
    for stored in source.plans():
        for epoch in source.epochs(stored.plan):
            if source.tally(stored.plan, epoch).digest != made.tally(stored.plan, epoch).digest:
                raise StoreError(
                    f"the copy's tally of {stored.plan.metric} on {epoch} is not the same: nothing was changed; "
                    "run `dither fsck` on the directory"
                )


# Resetting the day.


ACTION = "clock reset"


def foresee(store: Store, to: date, file: Path | None = None) -> DayReset:
    """Return what a reset to a day would do now. Raises StoreError for a day that the machine's clock is beyond."""
    clock, sealed, before = store.clock_day(), store.sealed(), store.today()
    if to < clock:
        raise StoreError(
            f"the clock of the store's machine says {clock}, and the next report would count on that day again: "
            "name it if that clock is right, and set the clock first if it is not"
        )
    accepted: dict[date, int] = {}
    for (_, epoch), row in sorted(store.counted().items(), key=lambda item: item[0][1]):
        if row != Counted():
            accepted[epoch] = accepted.get(epoch, 0) + row.accepted
    day = to + timedelta(days=1) if to <= sealed and to in accepted else to
    found = DayReset(to, day, before, sealed, file=str(file.absolute()) if file else "")
    if not found.changes:
        return found
    aside = {epoch.isoformat(): n for epoch, n in accepted.items() if found.is_aside(epoch)}
    joined = {epoch.isoformat(): n for epoch, n in accepted.items() if found.is_joined(epoch)}
    return replace(found, aside=aside, joined=joined)


def reset(name: str, to: date, file: Path | None = None) -> DayReset:
    """Bring back the day of a store that nobody uses; sealed days beyond it with reports go into a new file.

    Raises StoreError while somebody serves the directory, for such days where no file is named, and for a log that
    cannot be folded. One that was cut off goes on where it was.
    """
    with _held(name) as store:
        text = store.begun_reset()
        found = DayReset.from_text(text) if text else None
        if not (found and found.written and is_redis(name)):  # a directory is as it was, or others used it since
            found = _begin(store, found, foresee(store, to, file))
        elif found.to != to or Path(found.file) != (file.absolute() if file else Path()):
            words = f"--to {found.to}{f' --move-aside {found.file}' if found.file else ''}"
            raise StoreError(f"a reset was cut off, and has to go on first: {words}")
        elif found.aside and not Path(found.file).exists():
            raise StoreError(f"{found.file} is not there, and only it has what leaves the store: put it back first")
        if found.changes:
            store.bound_key_days(found.day)
            store.forget_told_after(found.day)
            store.reset_day(found)
        return found


def _begin(store: Store, before: DayReset | None, found: DayReset) -> DayReset:
    """Write the file, and return what is to be done now; a reset that was cut off before anything was is `before`."""
    if not found.changes:
        return found
    if found.aside and not found.file:
        raise StoreError(
            f"sealed days after {found.to} hold {named(found.aside)}: name a later day, or with --move-aside a new "
            "file, which keeps them with their counts"
        )
    file = Path(found.file)
    if found.aside and file.exists() and (before is None or before.file != found.file):
        raise StoreError(f"{file} is there already: name a new file")
    for shard in range(store.shards):
        store.fold_all(shard)
        store.merge(shard)
    store.begin_reset(json.dumps(found.to_document()))
    if found.aside:
        try:
            dump.write(file, _aside(store, found))
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {reason_of(error)}; the store is as it was") from None
    store.note(COMMAND_LINE, ACTION, "; ".join(replace(found, file=file.name).sentences(done=True)))
    found = replace(found, written=True)
    store.begin_reset(json.dumps(found.to_document()))
    return found


def _aside(store: Store, found: DayReset) -> Iterator[Record]:
    """Yield the part of a dump that is of the days which leave the store."""
    for record in store.dump():
        match record:
            case Identity():
                yield record
            case DocumentsRecord() if record.kind in (StoredPlan, Key, Retention):
                yield record
            case ShardRecord():
                ledger = {key: row for key, row in record.ledger.items() if found.is_aside(key[1])}
                held = tuple(poison for poison in record.quarantine if found.is_aside(poison.group.epoch))
                yield replace(record, ledger=ledger, quarantine=held, refused={})
            case TallyRecord() | FinalRecord() if found.is_aside(record.epoch):
                yield record


@contextmanager
def _held(name: str) -> Iterator[Store]:
    """Open a store that nobody else may use meanwhile; a Redis stays refused to others where it is half changed."""
    if not is_redis(name):
        with exclusive(Path(name)), closing(SQLiteStore(Path(name))) as store:
            yield store
        return
    from dither_aggregator.store.redis import RedisStore  # and with it redis: only where it is used

    with closing(RedisStore(name, allow_lossy_store=True, resetting=True)) as store:
        store.hold()
        try:
            yield store
        finally:
            text = store.begun_reset()
            if not (text and DayReset.from_text(text).written):
                store.release()
