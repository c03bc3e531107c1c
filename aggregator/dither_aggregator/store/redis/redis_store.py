"""A Redis store at work: it is made and opened, uploads go in, are folded and forgotten, and everything is read.

Every effect of a shard is one script, and none of them is sent twice by itself.
"""

import hashlib
import secrets
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from dither_aggregator.health.capacity import FreeSpace, Trouble
from dither_aggregator.store.contract import (
    DEDUPE,
    DEDUPE_DAYS_MIN,
    READ_BYTES_MAX,
    READ_UPLOADS_MAX,
    READINGS_BYTES_MAX,
    REFUSED_DAYS,
    SHARDS,
    Prepared,
    Store,
    with_pending,
)
from dither_aggregator.store.document_kinds import Document
from dither_aggregator.store.documents import KINDS, News, misplaced
from dither_aggregator.store.dump import Identity
from dither_aggregator.store.records import (
    Batch,
    Counted,
    Final,
    KeptReading,
    LogEntry,
    LogRead,
    OtherLayout,
    Poison,
    RefusedCount,
    RefusedKey,
    Segment,
    ShardStatus,
    StoreError,
    StoreUnavailable,
    TallyKey,
    Unmerged,
    day_at,
    day_number,
    day_of,
    sum_refused,
    unpack_entry,
)
from dither_aggregator.store.redis import layout, scripts
from dither_aggregator.store.redis.client import Client, Command, call, connect
from dither_aggregator.store.redis.layout import (
    BUCKETS_MIN,
    MARK_BYTES,
    batch_name,
    bucket_of,
    buckets_of,
    count_marked,
    ledger_of,
    pack_batch,
    pack_final,
    pack_refused,
    pack_segment,
    pairs,
    poison_arguments,
    refused_of,
    segment_head,
    tally_name,
    tally_of,
    unpack_batch,
    unpack_final,
    unpack_poison,
    unpack_segment,
)
from dither_shared.safe_output import visible

SHARDS_MAX = 1024
APPEND_UPLOADS_MAX = 500
"""How many uploads one script takes: what it hands to one Redis command has a limit, and others wait for it."""
READ_REDIS_BYTES_MAX = min(READ_BYTES_MAX, 8 * 1024 * 1024)
"""A script that reads holds up every other."""
INSTANT_ATTEMPTS = 10
"""How often what must be of one instant is read before it is given up, or read at once at any price."""
PLANS_AT_ONCE = 100
SEGMENTS_AT_ONCE = 1_024
"""Lists of segments, one for each shard and day, that are asked for in one round trip."""
SCAN_ITEMS = FORGET_ITEMS = 500
"""How many items of a long collection one script looks at, about: it holds up every other."""
SORT_BUCKETS = 16
"""How many buckets of ids one script sorts: about as long as it takes to scan SCAN_ITEMS."""
ADDED_ITEMS = 1_000
"""How many numbered documents one script reads or writes."""
KNOWN_FOR_S = 3_600.0
"""How long a process goes on with the plans and keys that it knows while the node that has them is away."""
START_AGAIN = (
    "unless it is being filled now, empty it (redis-cli FLUSHDB, with its address and database) and make it again"
)
_FIRST = struct.Struct("<i")
_Item = TypeVar("_Item")


class Settled(NamedTuple):
    """A shard's rows that were read in pieces: of the days that it had sealed, and of those still open."""

    day: int
    sealed: int
    taken: int
    seen: dict[bytes, bytes]
    tallies: int
    rows: dict[TallyKey, Counted]
    open_days: list[int]


class RedisData(Store):
    """A store in a Redis, with the token of the one that was opened."""

    kind = "Redis"
    layout = layout.VERSION
    id_bytes = 26
    _token: str

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.time,
        *,
        allow_lossy_store: bool = False,
        unfinished: bool = False,
        resetting: bool = False,
        moving: bool = False,
    ) -> None:
        super().__init__(clock)
        self._lock = threading.Lock()
        self._floors: dict[int, int] = {}
        self._lost = 0
        self._statuses: dict[int, ShardStatus] = {}
        self._away = self._apart = ""
        """Which shards, and what is global, could not be read at the last look, and why."""
        self._refreshed_s = -KNOWN_FOR_S
        self._client = connect(url)
        self._allow_lossy = allow_lossy_store
        try:
            self._open(unfinished, resetting, moving)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        url: str,
        app: str,
        clock: Callable[[], float] = time.time,
        *,
        shards: int = SHARDS,
        allow_lossy_store: bool = False,
        unfinished: bool = False,
    ) -> Self:
        """Make the store of an app in an empty Redis, and open it; `unfinished` until it is restored."""
        if not 1 <= shards <= SHARDS_MAX:
            raise StoreError(f"a store has 1 to {SHARDS_MAX} shards, got {shards}")
        client = connect(url)
        try:
            client.check_sound(allow_lossy_store)
            _begin(client, app, shards)
        finally:
            client.close()
        store = cls(url, clock, allow_lossy_store=allow_lossy_store, unfinished=True)
        if not unfinished:
            store.finish()
        return store

    def finish(self) -> None:
        """Make the store usable: the shards, and at last the whole."""
        token = layout.token(self.generation)
        self._of_each_shard(scripts.FINISH, token)
        self._run_global(scripts.FINISH, token)
        self._token = token

    def _open(self, unfinished: bool, resetting: bool, moving: bool) -> None:
        name = self._client.name
        self.lossy = self._client.check_sound(self._allow_lossy)
        state = {key.decode(): value for key, value in self._client.run("HGETALL", layout.GLOBAL).items()}
        if not state:
            raise StoreError(f"{name} holds no store; `dither init` makes one, `dither restore` one of a backup")
        version = state.get("version", b"0").decode()
        if version != str(layout.VERSION):
            older = version.isdigit() and int(version) < layout.VERSION
            next_step = (
                "`dither backup` by the dither that wrote it, then `dither restore` into an empty Redis by this one"
            )
            raise OtherLayout(
                f"{name} holds a store of version {version}; this dither reads {layout.VERSION}: "
                f"{next_step if older else 'use the dither that wrote it'}",
                newer=not older,
            )
        self.app = state["app"].decode()
        self.generation = state["generation"].decode()
        self.shards = int(state["shards"])
        self._digest_key, self._secret = state["digest_key"], state["secret"]
        self._token = state["token"].decode()
        if self._token.endswith(layout.RESETTING):
            if not resetting:
                raise StoreError(
                    f"{name} holds a store whose day is being reset: `dither store reset-clock` again if it was cut off"
                )
        elif self._token.endswith(layout.MOVED):
            if not moving:
                raise StoreError(
                    f"{name} holds a store that was copied to another: serve that one, or `dither store copy` again if "
                    "it was cut off"
                )
        elif self._token != layout.token(self.generation) and not unfinished:
            raise StoreError(f"{name} holds a store that was not filled to its end; {START_AGAIN}")
        self.refresh()
        if not (unfinished or resetting or moving):  # one that was nearly finished is finished in some of its shards
            self.last_status()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # Scripts run on a shard, on each of them, and on what is common to all.

    def _call(self, script: scripts.Script, shard: int, *arguments: object) -> Command:
        return call(script, layout.shard_key(shard), self._token, *arguments)

    def _run(self, script: scripts.Script, shard: int, *arguments: object) -> Any:
        return self._client.run(*self._call(script, shard, *arguments))

    def _of_each_shard(self, script: scripts.Script, *arguments: object) -> list[Any]:
        return self._client.run_each([self._call(script, shard, *arguments) for shard in range(self.shards)])

    def _call_global(self, script: scripts.Script, *arguments: object) -> Command:
        return call(script, layout.GLOBAL, self._token, *arguments)

    def _run_global(self, script: scripts.Script, *arguments: object) -> Any:
        return self._client.run(*self._call_global(script, *arguments))

    def _field(self, name: str) -> bytes | None:
        """Return a field of the hash that all shards share."""
        value: bytes | None
        (value,) = self._run_global(scripts.GET, name)
        return value

    def _scan(self, script: scripts.Script, shard: int, *arguments: object) -> Iterator[list[Any]]:
        """Yield a long collection in pieces: an element that is in it all the time comes once, or more often."""
        cursor: object = 0
        while cursor != b"0":
            cursor, items = self._run(script, shard, *arguments, cursor, SCAN_ITEMS)
            yield items

    # How many uploads each shard is known to have had: fewer later on are a loss.

    def _seen_written(self) -> dict[int, int]:
        with self._lock:
            return dict(self._floors)

    def _saw_written(self, floors: dict[int, int], shard: int, written: int) -> None:
        """Take notice of how many uploads a shard has, asked for when it was known to have had `floors`."""
        with self._lock:
            if written < floors.get(shard, 0):
                self._lost += floors[shard] - written
                self._floors[shard] = written
            else:
                self._floors[shard] = max(written, self._floors.get(shard, 0))

    # Appending: the uploads of each shard in one script, all with one sync.

    def _append(self, prepared: Sequence[Prepared]) -> list[bytes | StoreUnavailable | None]:
        by_shard: dict[int, list[int]] = {}
        for place, item in enumerate(prepared):
            by_shard.setdefault(self.shard_of(item.id), []).append(place)
        calls: list[Command] = []
        places: list[tuple[int, Sequence[int]]] = []
        for shard, of_shard in by_shard.items():
            for chunk in chunks(of_shard, APPEND_UPLOADS_MAX):
                taken: list[object] = []
                for item in (prepared[place] for place in chunk):
                    taken += item.id, item.body, item.groups, pack_refused(item.refused)
                calls.append(self._call(scripts.APPEND, shard, secrets.token_bytes(MARK_BYTES), *taken))
                places.append((shard, chunk))
        floors = self._seen_written()
        before: list[bytes | StoreUnavailable | None] = [None] * len(prepared)
        # A transaction, which no slots of a cluster can share, saves a sync for each of the shards.
        replies = self._client.run_some(calls, together=self._client.one_node)
        failed = [reply for reply in replies if isinstance(reply, StoreError)]
        if failed and (len(failed) == len(replies) or not all(isinstance(one, StoreUnavailable) for one in failed)):
            raise failed[0]
        for (shard, chunk), reply in zip(places, replies, strict=True):
            if isinstance(reply, StoreUnavailable):
                for place in chunk:
                    before[place] = reply
                continue
            written, *bodies = reply
            self._saw_written(floors, shard, written)
            for place, body in zip(chunk, bodies, strict=True):
                before[place] = body
        return before

    # Folding.

    def read_log(self, shard: int) -> LogRead:
        """Return the oldest entries of the log."""
        floors = self._seen_written()
        reply = self._run(scripts.READ, shard, "", READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
        cursor, written, length, *entries = reply
        self._saw_written(floors, shard, written)
        if length != written - cursor:
            raise StoreError(
                f"{self._client.name} is damaged: the log of shard {shard} holds {length} uploads of {written - cursor}"
            )
        groups = [group for entry in entries for group in unpack_entry(entry[MARK_BYTES:])]
        return LogRead(cursor, cursor + len(entries), groups, entries[-1][:MARK_BYTES] if entries else b"")

    def commit_fold(self, shard: int, read: LogRead, segments: Sequence[Segment], poisons: Sequence[Poison]) -> bool:
        """Store a fold in one script."""
        mark = secrets.token_bytes(MARK_BYTES)
        stored: list[object] = []
        for one in segments:
            stored += [one.plan, day_number(one.epoch), one.n, pack_segment(one, mark)]
        for poison in poisons:
            stored += poison_arguments(poison)
        return bool(self._run(scripts.COMMIT, shard, read.low, read.high, read.mark, len(segments), *stored))

    # Tallies: a list of segments each, oldest first.

    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return a shard's segments of a tally."""
        return self._unpack_segments(plan, epoch, self._run(scripts.SEGMENTS, shard, tally_name(plan, epoch)))

    def all_segments(self, plan: int, epochs: Sequence[date]) -> Iterator[Segment]:
        """Yield every shard's segments of some tallies, those of SEGMENTS_AT_ONCE from one round trip."""
        for some in chunks([(epoch, shard) for epoch in epochs for shard in range(self.shards)], SEGMENTS_AT_ONCE):
            commands = [self._call(scripts.SEGMENTS, shard, tally_name(plan, epoch)) for epoch, shard in some]
            for (epoch, _), packed in zip(some, self._client.run_each(commands), strict=True):
                yield from self._unpack_segments(plan, epoch, packed)

    def _unpack_segments(self, plan: int, epoch: date, packed: Iterable[bytes]) -> list[Segment]:
        size = self.plan_by_id(plan).plan.cells.tally_size
        return [unpack_segment(plan, epoch, one, size) for one in packed]

    def crowded(self, shard: int, segments: int) -> list[TallyKey]:
        """Return the plans and epochs that have at least so many segments."""
        return [tally_of(name) for name in self._run(scripts.CROWDED, shard, segments)]

    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally."""
        name = tally_name(new.plan, new.epoch)
        ends = segment_head(old[0]), segment_head(old[-1])
        packed = pack_segment(new, secrets.token_bytes(MARK_BYTES))
        return bool(self._run(scripts.REPLACE, shard, name, len(old), *ends, packed))

    # Days of each shard, and what is recorded of them for all.

    def set_clock_offset(self, seconds: float) -> None:
        """Move the clock of every shard."""
        self._of_each_shard(scripts.SET, "clock_offset_s", repr(seconds))
        self._run_global(scripts.SET, "clock_offset_s", repr(seconds))
        self.refresh()

    def seal(self, shard: int) -> date:
        """Close what is over in one script."""
        return day_of(self._run(scripts.SEAL, shard))

    def note_merged(self, shard: int) -> list[Unmerged]:
        """Note that the sealed days of a shard are merged, if they are, in one script."""
        return [Unmerged(*tally_of(name), low, high) for name, low, high in self._run(scripts.NOTE_MERGED, shard)]

    def _finals(self, plan: int, first: date = date.min, last: date = date.max) -> dict[date, Final]:
        rows = pairs(self._run_global(scripts.FINALS, plan))
        days = [day for day in sorted(map(int, rows)) if first <= day_of(day) <= last]
        return {day_of(day): unpack_final(rows[str(day).encode()]) for day in days}

    def all_finals(self) -> set[TallyKey]:
        """Return the plans and epochs that are finalized."""
        ids = sorted(self._plans.by_id)
        commands = [self._call_global(scripts.FINAL_EPOCHS, *plans) for plans in chunks(ids, PLANS_AT_ONCE)]
        return {tally_of(name) for names in self._client.run_each(commands) for name in names}

    def _finalize(self, plan: int, epoch: date, final: Final, snapshot: bytes | None) -> Final:
        content = [] if snapshot is None else [snapshot]
        arguments = plan, day_number(epoch), pack_final(final), final.snapshot, *content
        return unpack_final(self._run_global(scripts.FINALIZE, *arguments))

    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content."""
        content: bytes | None = self._run_global(scripts.SNAPSHOT, id_)
        return content

    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept."""
        return day_of(int(self._field("tallies_from") or 0))

    def sort_ids(self, shard: int) -> None:
        """Sort the buckets of sealed days, some by each script."""
        sealed, *unsorted = self._run(scripts.UNSORTED, shard)
        for day, buckets in pairs(unsorted).items():
            for first in range(0, buckets, SORT_BUCKETS):
                self._run(scripts.SORT_IDS, shard, day, first, min(first + SORT_BUCKETS, buckets) - 1)
        if unsorted:
            self._run(scripts.SET, shard, "in_order", sealed)

    def ids(self) -> dict[date, int]:
        """Add up what is written of each shard's days."""
        ids: dict[date, int] = {}
        for shard in range(self.shards):
            for field, n in pairs(self._run(scripts.OUTLINE, shard)[3]).items():
                if field.endswith(b":ids"):
                    day = day_of(int(field[:-4]))
                    ids[day] = ids.get(day, 0) + int(n)
        return ids

    def forget(self, shard: int) -> None:
        """Forget old ids and counts, and old tallies that are finalized: that they go is known before they do."""
        today, forgotten = self._run(scripts.FORGET_DAYS, shard, DEDUPE.days, DEDUPE_DAYS_MIN, REFUSED_DAYS)
        for day in forgotten:
            first = 0
            while first := self._run(scripts.FORGET_IDS, shard, day, first, FORGET_ITEMS):
                pass
        days = self.retention().tallies_days
        if days is None:
            return
        first = self._run_global(scripts.TALLIES_FROM, today - days)
        while self._run_global(scripts.FORGET_READINGS, first, FORGET_ITEMS):
            pass
        for names in chunks(self._run(scripts.TALLIES_BEFORE, shard, first), FORGET_ITEMS):
            if final := self._run_global(scripts.ARE_FINAL, *names):
                self._run(scripts.FORGET_TALLIES, shard, *final)

    def _forget_snapshots(self, first: date) -> None:
        while self._run_global(scripts.FORGET_SNAPSHOTS, day_number(first), FORGET_ITEMS):
            pass

    # The ledger: a hash a plan in each shard, without what is pending.
    #
    # The rows of a sealed day can change in one way alone: a group is taken out of the quarantine. So the sealed days,
    # the most of them, are read in pieces, then the open ones in one step, with how often that has happened. A piece
    # holds Redis up for a moment; all of them would for long.

    def shard_ledger(self, shard: int) -> dict[TallyKey, Counted]:
        """Return the ledger as it is at one instant, with what the log held then.

        A long log is read in pieces too: what was in it stays what it was, and is read from its end that is folded
        first. If the counters are faster, all is read again, and at last in one step.
        """
        settled = self._settled(shard)
        for _ in range(INSTANT_ATTEMPTS):
            now = self._client.run(*self._ledger_now(shard, settled))
            rows = self._rows_of(settled, now)
            if rows is None:
                settled = self._settled(shard)
                continue
            _, _, cursor, length, _ = now
            pending = self._pending(shard, cursor, cursor + length)
            if pending is not None:
                return with_pending(rows, pending)
        now, (_, _, _, *entries) = self._client.read_at_once(
            [self._ledger_now(shard, settled), self._call(scripts.READ, shard, "", 1 << 52, 1 << 52)]
        )
        rows = self._rows_of(settled, now)
        if rows is None:
            raise self._too_fast(shard)
        return with_pending(rows, count_marked(entries))

    def _too_fast(self, shard: int) -> StoreUnavailable:
        return StoreUnavailable(f"{self._client.name}: shard {shard} changes faster than it can be read; try again")

    def _settled(self, shard: int) -> Settled:
        day, sealed, taken, seen, tallies, plans = self._run(scripts.OUTLINE, shard)
        rows = ledger_of((plan, fields) for plan in plans for fields in self._scan(scripts.LEDGER, shard, plan))
        days = {day_number(epoch) for _, epoch in rows}
        return Settled(
            day,
            sealed,
            taken,
            pairs(seen),
            tallies,
            {key: row for key, row in rows.items() if day_number(key[1]) <= sealed},
            sorted({day, *(open_ for open_ in days if open_ > sealed)}),
        )

    def _ledger_now(self, shard: int, settled: Settled) -> Command:
        return self._call(scripts.LEDGER_NOW, shard, *settled.open_days)

    def _rows_of(self, settled: Settled, now: Any) -> dict[TallyKey, Counted] | None:
        """Return the whole ledger as it was at the instant `now`; None where what was settled has changed since."""
        day, taken, _, _, rows = now
        if (day, taken) != (settled.day, settled.taken):
            return None
        return settled.rows | ledger_of(zip(rows[::2], rows[1::2], strict=True))

    def _pending(self, shard: int, low: int, high: int) -> dict[TallyKey, int] | None:
        """Count the log above `low` and up to `high`; None where the beginning is not there any more."""
        pending: dict[TallyKey, int] = {}
        while low < high:
            uploads = min(high - low, READ_UPLOADS_MAX)
            _, _, _, *entries = self._run(scripts.READ, shard, low, uploads, READ_REDIS_BYTES_MAX)
            if not entries:
                return None
            low += len(entries)
            for key, n in count_marked(entries).items():
                pending[key] = pending.get(key, 0) + n
        return pending

    def _epochs(self, plans: Sequence[int], first: date = date.min, last: date = date.max) -> dict[int, list[date]]:
        days: dict[int, set[date]] = {}
        for some in chunks(plans, PLANS_AT_ONCE):
            for names in self._of_each_shard(scripts.EPOCHS, *some):
                for plan, epoch in map(tally_of, names):
                    if first <= epoch <= last:
                        days.setdefault(plan, set()).add(epoch)
        return {plan: sorted(found, reverse=True) for plan, found in days.items()}

    def refused(self, first: date, last: date) -> dict[RefusedKey, RefusedCount]:
        """Return what all shards refused on some days, each day of each by itself: together they may be long."""
        days = [first + timedelta(days=after) for after in range((last - first).days + 1)]
        asked = [(shard, day) for shard in range(self.shards) for day in days]
        replies = self._client.run_each([self._call(scripts.REFUSED, shard, day_number(day)) for shard, day in asked])
        of_days = zip(asked, replies, strict=True)
        return sum_refused(refused_of(day, pairs(reply)) for (_, day), reply in of_days)

    # The quarantine: a hash a shard.

    def _quarantine(self) -> Iterator[tuple[int, int, Poison]]:
        for shard, reply in enumerate(self._of_each_shard(scripts.QUARANTINE)):
            held = {int(number): packed for number, packed in pairs(reply).items()}
            for number in sorted(held):
                yield shard, number, unpack_poison(f"{shard}-{number}", held[number])

    def log_entries(self, shard: int) -> Iterator[LogEntry]:
        """Yield the entries of the log."""
        place = 0
        while True:
            cursor, _, _, *entries = self._run(scripts.READ, shard, place, READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
            if not entries and cursor <= place:
                return
            place = max(place, cursor)  # counters may have overtaken us
            for entry in entries:
                place += 1
                yield LogEntry(place, entry[MARK_BYTES:], entry[:MARK_BYTES])

    def set_apart(
        self, shard: int, oldest: LogEntry, others: Mapping[LogEntry, bytes], poisons: Sequence[Poison]
    ) -> bool:
        """Take entries out of the log in one script."""
        mark = secrets.token_bytes(MARK_BYTES)
        taken: list[object] = []
        for one, new in {oldest: b"", **others}.items():
            digest = hashlib.sha1(one.mark + one.entry, usedforsecurity=False).hexdigest()
            taken += [one.place, digest, mark + new]
        stored = [part for poison in poisons for part in poison_arguments(poison)]
        return bool(self._run(scripts.SET_ASIDE, shard, oldest.place - 1, 1 + len(others), *taken, *stored))

    def _replay(self, shard: int, number: int) -> bool:
        return bool(self._run(scripts.REPLAY, shard, number, secrets.token_bytes(MARK_BYTES)))

    def _drop(self, shard: int, number: int) -> bool:
        return bool(self._run(scripts.DROP, shard, number))

    # Batches: one hash for all shards, changed by one script.

    def batches(self) -> tuple[int | None, list[Batch]]:
        """Return the hour of the last cut, and all batches, in one script."""
        hour, fields = self._run_global(scripts.BATCHES)
        found = [unpack_batch(name, packed) for name, packed in sorted(pairs(fields).items())]
        return None if hour is None else int(hour), found

    def _keep_batches(self, last: int | None, hour: int, batches: Collection[Batch]) -> None:
        kept = [part for one in batches for part in (batch_name(one.plan, one.epoch, one.shown), pack_batch(one))]
        self._run_global(scripts.KEEP_BATCHES, "" if last is None else last, hour, *kept)

    def batch_keys(self) -> tuple[int | None, dict[TallyKey, bool]]:
        """Return the hour of the last cut, and of what there are batches, in one script."""
        hour, names = self._run_global(scripts.BATCH_NAMES)
        keys: dict[TallyKey, bool] = {}
        for name in names:
            of_tally, _, which = name.rpartition(b":")
            keys[tally_of(of_tally)] = keys.get(tally_of(of_tally), False) or which == b"shown"
        return None if hour is None else int(hour), keys

    def shown_batch(self, key: TallyKey) -> Batch | None:
        """Return the batch that is shown, without the others."""
        name = batch_name(*key, True)
        packed: bytes | None = self._run_global(scripts.BATCH, name)
        return None if packed is None else unpack_batch(name.encode(), packed)

    # Kept readings: one hash for all shards, changed by one script.

    def kept_reading(self, key: str) -> KeptReading | None:
        """Return an entry."""
        packed, open_ = self._run_global(scripts.READING, key)
        return None if packed is None or len(packed) < _FIRST.size else _reading_of(key, packed, open_=bool(open_))

    def open_readings(self) -> list[KeptReading]:
        """Return the entries of readings that are not there, in one script."""
        found = pairs(self._run_global(scripts.OPEN_READINGS))
        return [_reading_of(key.decode(), packed, open_=True) for key, packed in sorted(found.items())]

    def keep_readings(self, entries: Sequence[KeptReading]) -> None:
        """Keep entries, and let go of the first ones, each entry in one script."""
        for one in entries:
            day = day_number(one.first)
            content = _FIRST.pack(day) + one.content
            self._run_global(scripts.KEEP_READINGS, READINGS_BYTES_MAX, one.key, day, int(one.open), content)

    # Documents: a hash a kind for all shards, or a list where they are numbered.

    def _changes(self, versions: Mapping[str, int]) -> News:
        before = self._clock()
        now, *found = self._run_global(scripts.CHANGES, *_words(versions))
        after = self._clock()
        kinds = zip(versions, found[::2], found[1::2], strict=True)
        changed = {kind: (int(version), texts) for kind, version, texts in kinds if texts is not None}
        return News(float(now) - (before + after) / 2, changed)

    def _save(self, kind: type[Document], put: Iterable[Document], gone: Iterable[str | int], version: int) -> bool:
        texts = {str(one.document_id): one.to_text() for one in put}
        save = scripts.SAVE_ANYWAY if kind.makes_room or not texts else scripts.SAVE
        return bool(self._run_global(save, kind.kind, version, len(texts), *_words(texts), *gone))

    def _add(self, kind: type[Document], documents: Iterable[Document]) -> None:
        for some in chunks([one.to_text() for one in documents], ADDED_ITEMS):
            self._run_global(scripts.ADD, kind.kind, kind.most, *some)

    def _last(self, kind: type[Document], number: int) -> list[bytes]:
        """Read from the newest on: one that is added meanwhile may double one."""
        found: list[bytes] = []
        while len(found) < number:
            last = -1 - len(found)
            first = last - min(ADDED_ITEMS, number - len(found)) + 1
            piece = self._run_global(scripts.LAST, kind.kind, first, last)
            if not piece:
                break
            found[:0] = piece
        return found

    # How it is.

    def _read_status(self) -> list[ShardStatus]:
        """Return how far each shard is."""
        floors = self._seen_written()
        replies = self._of_each_shard(scripts.STATUS)
        self._statuses = {shard: self._status(floors, shard, reply) for shard, reply in enumerate(replies)}
        return list(self._statuses.values())

    def last_status(self) -> list[ShardStatus]:
        """Return the same; of a shard whose node is away, what was known before it was, if anything was."""
        floors, before = self._seen_written(), dict(self._statuses)
        replies = self._client.run_some([self._call(scripts.STATUS, shard) for shard in range(self.shards)])
        away = {shard: reply for shard, reply in enumerate(replies) if isinstance(reply, StoreError)}
        for reply in away.values():
            if len(away) == self.shards or not isinstance(reply, StoreUnavailable):
                raise reply
        self._away = f"{len(away)} of {self.shards} shards: {next(iter(away.values()))}" if away else ""
        self._statuses = before | {
            shard: self._status(floors, shard, reply) for shard, reply in enumerate(replies) if shard not in away
        }
        return list(self._statuses.values())

    def _status(self, floors: dict[int, int], shard: int, reply: Sequence[Any]) -> ShardStatus:
        written, cursor, backlog, day, clock_day, sealed, merged, waiting_s = reply
        self._saw_written(floors, shard, written)
        return ShardStatus(
            shard=shard,
            written=written,
            cursor=cursor,
            backlog=backlog,
            day=day_of(day),
            clock_day=day_of(clock_day),
            sealed=day_of(sealed),
            merged=day_of(int(merged)) if merged else date.min,
            waiting_s=max(0.0, float(waiting_s)) if backlog else 0.0,
        )

    def refresh(self) -> None:
        """Take up what is new; while a node of a cluster is away with it, go on for a while with what is known."""
        try:
            super().refresh()
        except StoreUnavailable as error:
            if self._client.one_node or time.monotonic() > self._refreshed_s + KNOWN_FOR_S:
                raise
            self._apart = f"plans and keys: {error}"
        else:
            self._apart, self._refreshed_s = "", time.monotonic()

    def left(self) -> FreeSpace | None:
        """Return what is left of `maxmemory`, of the fullest node, as Redis counts it; None where none tells of any."""
        found = []
        for memory in self._client.information():
            most = int(str(memory.get("maxmemory", 0)))
            used = int(str(memory.get("used_memory", 0))) - int(str(memory.get("mem_not_counted_for_evict", 0)))
            if most:
                found.append(FreeSpace("memory", max(most - used, 0), most))
        return min(found, key=lambda left: left.free, default=None)

    def _trouble(self) -> dict[Trouble, str]:
        trouble = {}
        try:
            self._client.check()
        except StoreUnavailable:
            raise
        except StoreError as error:
            trouble[Trouble.STORE] = str(error)
        if self._allow_lossy:
            self.lossy = self._client.check_sound(True)
        elif reason := self._client.lossy():
            trouble[Trouble.SETTINGS] = reason
        if self._away or self._apart:
            trouble[Trouble.AWAY] = "; ".join(filter(None, (self._apart, self._away)))
        if self._lost:
            trouble[Trouble.LOST] = f"it has lost {self._lost} uploads that it had acknowledged"
        return trouble

    def integrity(self) -> list[str]:
        """Return what is wrong with the lengths of logs and tallies, and what is not where it must be."""
        wrong = [
            f"shard {one.shard}: the log holds {one.backlog} uploads, and {one.written - one.cursor} are to be folded"
            for one in self.status()
            if one.backlog != one.written - one.cursor
        ]
        if self._client.run_each([("EXISTS", layout.shard_key(self.shards))])[0]:
            wrong.append(f"there is a shard {self.shards}, and the store says that it has {self.shards} alone")
        for shard in range(self.shards):
            found = {name for names in self._scan(scripts.LENGTHS, shard) for name in names}
            for plan, epoch in sorted(map(tally_of, found)):
                wrong.append(f"shard {shard}: the tally of plan {plan} on {epoch} lacks segments, or has too many")
            wrong += _told_twice(partial(self._strays, shard))
        for kind in KINDS:
            if not kind.numbered:
                kept = self._client.run("HGETALL", f"{layout.GLOBAL}:{kind.kind}")
                wrong += misplaced(kind.kind, [(id_.decode(), text) for id_, text in kept.items()])
        return [*wrong, *_told_twice(self._stray_snapshots)]

    # Neither scripts nor transactions: a Redis without memory left takes none that it does not have. So each of these
    # may be told of what is just changing, and is believed if it is told twice.

    def _strays(self, shard: int) -> Iterator[str]:
        """Yield what of a shard no step would find again, or would overwrite."""
        where, key = f"shard {shard}", partial(layout.shard_key, shard)
        status = self.status()[shard]
        day = day_number(status.day)
        around = range(day - DEDUPE_DAYS_MIN - DEDUPE.days, day + 2)
        listed, (last, in_order), waiting = self._client.run_each(
            [("HGETALL", key("seen")), ("HMGET", key(), "quarantine_last", "in_order"), ("HKEYS", key("quarantine"))]
        )
        if in_order and int(in_order) > day_number(status.sealed):
            yield f"{where}: the ids of days that are not sealed count as in order, and would never be put in order"
        buckets = buckets_of(listed)
        unlisted = [each for each in around if not buckets.get(each)]
        there = self._client.run_each(
            [("EXISTS", *(key("seen", each, place) for place in range(BUCKETS_MIN))) for each in unlisted]
        )
        wrong = {each for each, buckets_there in zip(unlisted, there, strict=True) if buckets_there}
        for each in around:
            ids, astray, count = 0, 0, buckets.get(each, 0)
            for some in chunks(range(count), SORT_BUCKETS):
                found = self._client.run_each([("HKEYS", key("seen", each, place)) for place in some])
                ids += sum(map(len, found))
                for place, of_bucket in zip(some, found, strict=True):
                    astray += sum(bucket_of(id_, count) != place for id_ in of_bucket)
            if each in wrong or count % BUCKETS_MIN or astray or ids != int(listed.get(b"%d:ids" % each, 0)):
                yield f"{where}: the ids of {day_of(each)} are not as many as is written, or not where they must be"
        if max(map(int, waiting), default=0) > int(last or 0):
            yield f"{where}: the quarantine has given more numbers than {int(last or 0)}"

    def _stray_snapshots(self) -> Iterator[str]:
        """Yield snapshots that are listed and gone, or listed for another day than they are recorded for."""
        names = f"{layout.GLOBAL}:snapshots"
        listed = {
            id_.decode(errors="replace"): day
            for id_, day in pairs(self._client.run("ZRANGE", names, 0, -1, "WITHSCORES")).items()
        }
        recorded = {
            unpack_final(final).snapshot: int(day)
            for plan in self._plans.by_id
            for day, final in self._client.run("HGETALL", f"{layout.GLOBAL}:finals:{plan}").items()
        }
        there = self._client.run_each([("EXISTS", f"{layout.GLOBAL}:snapshot:{id_}") for id_ in listed])
        for (id_, day), is_there in zip(listed.items(), there, strict=True):
            if recorded.get(id_) != int(day):
                yield f"snapshot {visible(id_)}: it is recorded for no such day"
            if not is_there:
                yield f"snapshot {visible(id_)}: it is listed and gone"


def _told_twice(look: Callable[[], Iterable[str]]) -> list[str]:
    """Return what two looks tell; a second one is taken where the first tells something."""
    first = list(look())
    again = set(look()) if first else set[str]()
    return [told for told in first if told in again]


def _begin(client: Client, app: str, shards: int) -> None:
    """Make an unfinished store in an empty Redis."""
    identity = Identity.drawn(app)
    token = layout.token(identity.generation, finished=False)
    state: dict[str, object] = {
        **vars(identity),
        "tallies_from": day_number(date.min),
        "version": layout.VERSION,
        "token": token,
        "shards": shards,
    }
    others = any(client.everywhere("DBSIZE")) and not client.run("EXISTS", layout.GLOBAL)
    there = b"other keys" if others else client.run(*call(scripts.BEGIN, layout.GLOBAL, *_words(state)))
    if there == b"other keys":
        raise StoreError(f"{client.name} holds other keys: give dither a Redis, or a database of one, of its own")
    if there is not None:
        unfinished = f", not filled to its end; {START_AGAIN}" if there.endswith(b":unfinished") else ""
        raise StoreError(f"{client.name} holds a store already{unfinished}")
    seconds, _ = client.run("TIME")  # by Redis's clock
    today = day_number(day_at(int(seconds)))
    of_shard: dict[str, object] = {
        "token": token,
        "day": today,
        "sealed": today - 1,
        "cursor": 0,
        "written": 0,
        "waiting_since": seconds,
        "quarantine_last": 0,
    }
    client.run_each([("HSET", layout.shard_key(shard), *_words(of_shard)) for shard in range(shards)])


def _words(fields: Mapping[str, object]) -> list[object]:
    return [part for pair in fields.items() for part in pair]


def _reading_of(key: str, packed: bytes, *, open_: bool) -> KeptReading:
    (day,) = _FIRST.unpack_from(packed)
    return KeptReading(key, day_of(day), open_, packed[_FIRST.size :])


def chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Yield items in pieces of so many at most."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
