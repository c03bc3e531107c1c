"""Resetting: the way back where the day of the store, which never goes back, leapt ahead with the clock of its machine.

    sealed days beyond    with ledger, tallies, snapshots and quarantine they go into a file, of which `dither restore`
                          makes a store. Nothing enters a sealed day, so none is joined to another
    open days beyond      nobody has read them as closed days: what is of them counts on the day that is open then
    ids of uploads        stay known, as if they had come on that day: no copy of an upload is taken twice
    refused groups        count on that day too

The store first notes what is about to be done, and the file is whole before anything leaves the store. So a reset that
was cut off is finished by the same command.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

from dither_aggregator.store import dump
from dither_aggregator.store.clock import DayReset, named
from dither_aggregator.store.contract import Store
from dither_aggregator.store.document_kinds import COMMAND_LINE, Key, Retention
from dither_aggregator.store.documents import StoredPlan
from dither_aggregator.store.dump import DocumentsRecord, FinalRecord, Identity, Record, ShardRecord, TallyRecord
from dither_aggregator.store.opening import is_redis
from dither_aggregator.store.records import Counted, StoreError
from dither_aggregator.store.sqlite import SQLiteStore, exclusive
from dither_shared.errors import reason_of

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
