"""A Redis store is dumped, filled, erased, and its day is moved back.

A dump is read while the store is in use, each shard as it is at one instant; a store is filled in pieces. The parts of
a shard that can still change are read in one transaction. The rest is read in pieces: before that the ledger of sealed
days, the refused groups of past days, the names of the tallies and nearly all of the log; after it sealed tallies and
the ids of past days.

Erasing concerns what Redis's append-only file still holds of days that are merged: every command since it was last
rewritten. So Redis is asked to rewrite it when a day is merged in all shards; of a cluster each node is, replicas too,
when all are there. Any process may die between asking and hearing of the end, and so may Redis. So what was asked for
stands in the store. Redis numbers the rewrites of a run: those from this number on began after the merging, whoever
asked for them.

The day is moved back by one script a shard, then one for what is common to all. Meanwhile another token stands in every
hash, so that no other process of the store reads or writes anything. Each reset has its own: one that another overtakes
is refused like all others.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

from dither_aggregator.store.clock import DayReset
from dither_aggregator.store.contract import READ_UPLOADS_MAX, REFUSED_DAYS
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
    HOUR_S,
    Counted,
    RefusedCount,
    RefusedKey,
    Segment,
    ShardStatus,
    StoreError,
    StoreUnavailable,
    TallyKey,
    day_number,
    day_of,
    sum_refused,
    sum_segments,
)
from dither_aggregator.store.redis import layout, scripts
from dither_aggregator.store.redis.client import Command
from dither_aggregator.store.redis.layout import (
    BUCKET_IDS,
    MARK_BYTES,
    batch_name,
    buckets_of,
    ledger_fields,
    pack_batch,
    pack_poison,
    pack_segment,
    pairs,
    refused_fields,
    refused_of,
    tally_name,
    tally_of,
    unpack_poison,
)
from dither_aggregator.store.redis.redis_store import INSTANT_ATTEMPTS, READ_REDIS_BYTES_MAX, RedisData, Settled, chunks

FILL_ITEMS = 1_000
"""How many items of a long collection are read or written by one command."""
Information = Mapping[str, object]
"""The facts that Redis tells about itself."""
_BEGUN = "clock_reset"


class _Instant(NamedTuple):
    """The parts of a shard that can still change, as they were at one instant."""

    record: ShardRecord
    seen: SeenRecord
    """The ids of the shard's day."""
    past: dict[int, int]
    """The buckets of the days before."""
    names: list[bytes]
    """The names of all its tallies."""
    still_open: Mapping[bytes, list[bytes]]
    """The segments of those whose day is not sealed."""


class _Rewrite(NamedTuple):
    """A rewrite of each node's file that begins after all days up to one were merged."""

    merged: date
    numbers: Mapping[str, int]
    """By run of a node: a restart of Redis begins another, and numbers from the beginning."""

    @classmethod
    def next_of(cls, nodes: Sequence[Information], merged: date) -> "_Rewrite":
        return cls(merged, {str(one["run_id"]): _begun(one) + 1 for one in nodes})

    @classmethod
    def from_text(cls, text: bytes) -> "_Rewrite":
        day, *numbers = text.decode().split(" ")
        return cls(day_of(int(day)), {run: int(number) for run, number in pairs(numbers).items()})

    def to_text(self) -> str:
        return " ".join([str(day_number(self.merged)), *(f"{run} {number}" for run, number in self.numbers.items())])

    def succeeded(self, nodes: Sequence[Information]) -> bool:
        """Whether it has ended well on each, or a later one has. To be asked when none is in progress."""
        return all(
            _begun(one) >= self.numbers.get(str(one["run_id"]), _begun(one) + 1)
            and one["aof_last_bgrewrite_status"] == "ok"
            for one in nodes
        )


def _begun(information: Information) -> int:
    """Return how many rewrites this run of Redis has begun."""
    return int(str(information["aof_rewrites"]))


class RedisStore(RedisData):
    """A store in a Redis. Every effect of a shard is one script, and none of them is sent twice by itself."""

    def dump(self) -> Iterator[Record]:
        """Yield everything, each shard as it is at one instant."""
        app, secret, digest_key, tallies_from = self._run_global(
            scripts.GET, "app", "secret", "digest_key", "tallies_from"
        )
        first = day_of(int(tallies_from))
        yield Identity(app.decode(), secret, digest_key, self.generation, first)
        yielded: set[int] = set()
        yield from self._dump_plans(yielded)
        for kind in KINDS:
            if kind is not StoredPlan:
                yield from DocumentsRecord.each(kind, self.documents(kind))
        hour, batches = self.batches()
        if hour is not None and batches:
            yield BatchesRecord(hour, tuple(batches))
        # An epoch that is final by now is sealed in every shard, so the shards' dumps hold all of it.
        finals = [(plan, epoch, final) for plan in sorted(yielded) for epoch, final in self._finals(plan).items()]
        for shard in range(self.shards):
            yield from self._dump_shard(shard, yielded)
        for plan, epoch, final in finals:
            yield FinalRecord(plan, epoch, final, self.snapshot(final.snapshot))
        if self.tallies_from() != first:
            raise self._given_up()

    def _dump_plans(self, yielded: set[int]) -> Iterator[DocumentsRecord]:
        self.refresh()
        new = [item for id_, item in self._plans.by_id.items() if id_ not in yielded]
        yielded.update(item.id for item in new)
        yield from DocumentsRecord.each(StoredPlan, new)

    def _dump_shard(self, shard: int, yielded: set[int]) -> Iterator[Record]:
        """Yield a shard: first, of one instant, the parts that can still change, then the rest."""
        read = self._read_instant(shard)
        yield from self._dump_plans(yielded)
        yield read.record
        yield read.seen
        for day, buckets in read.past.items():
            yield from self._dump_seen(shard, day, buckets)
        for name in read.names:
            yield self._dump_tally(shard, name, read.still_open)
        self._run(scripts.OUTLINE, shard)  # what was read was still this store's

    def _read_instant(self, shard: int) -> _Instant:
        for _ in range(INSTANT_ATTEMPTS):
            settled = self._settled(shard)
            names = sorted({name for names in self._scan(scripts.NAMES, shard) for name in names})
            still_open = [name for name in names if day_number(tally_of(name)[1]) > settled.sealed]
            low, ahead = self._read_ahead(shard)
            refused = self._refused_before(shard, settled.day)
            past = buckets_of(settled.seen)
            today = self._buckets(shard, settled.day, range(past.pop(settled.day, 0)))
            now, outline, log, quarantine, refused_now, *rest = self._client.read_at_once(
                [
                    self._ledger_now(shard, settled),
                    self._call(scripts.OUTLINE, shard),
                    self._call(scripts.READ, shard, low + len(ahead), 1 << 52, 1 << 52),
                    self._call(scripts.QUARANTINE, shard),
                    self._call(scripts.REFUSED, shard, settled.day),
                    *today,
                    *(("LRANGE", layout.shard_key(shard, "tally", name.decode()), 0, -1) for name in still_open),
                ],
            )
            ledger = self._rows_of(settled, now)
            entries = _log_at(now, low, ahead, log)
            begun = buckets_of(pairs(outline[3])).get(settled.day, 0) == len(today)
            if begun and ledger is not None and entries is not None and _are_all(names, ledger, settled, outline):
                refused |= refused_of(day_of(settled.day), pairs(refused_now))
                record = _shard_record(shard, outline, now, ledger, entries, quarantine, refused)
                seen = self._seen_record(settled.day, rest[: len(today)], len(today))
                return _Instant(record, seen, past, names, dict(zip(still_open, rest[len(today) :], strict=True)))
        raise self._too_fast(shard)

    def _refused_before(self, shard: int, day: int) -> dict[RefusedKey, RefusedCount]:
        """Return what a shard refused on the days before one that are kept: nothing changes them any more."""
        days = range(day - REFUSED_DAYS + 1, day)
        replies = self._client.run_each([self._call(scripts.REFUSED, shard, past) for past in days])
        return sum_refused(refused_of(day_of(past), pairs(of_day)) for past, of_day in zip(days, replies, strict=True))

    def _read_ahead(self, shard: int) -> tuple[int, list[bytes]]:
        """Return the log in pieces, up to its end or nearly: from where on, and its entries."""
        low, _, _, *entries = self._run(scripts.READ, shard, "", READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
        more = entries
        while more:
            place = low + len(entries)
            _, _, _, *more = self._run(scripts.READ, shard, place, READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
            entries += more
        return low, entries

    def _dump_seen(self, shard: int, day: int, buckets: int) -> Iterator[SeenRecord]:
        for some in chunks(range(buckets), FILL_ITEMS // BUCKET_IDS):
            found = self._client.run_each(self._buckets(shard, day, some))
            if any(found):
                yield self._seen_record(day, found, buckets)

    def _buckets(self, shard: int, day: int, some: Iterable[int]) -> list[Command]:
        return [("HGETALL", layout.shard_key(shard, "seen", day, place)) for place in some]

    def _seen_record(self, day: int, buckets: Sequence[Mapping[bytes, bytes]], of: int) -> SeenRecord:
        bodies = {id_: body for of_bucket in buckets for id_, body in of_bucket.items()}
        return SeenRecord(day_of(day), bodies, of * BUCKET_IDS * self.shards)

    def _dump_tally(self, shard: int, name: bytes, still_open: Mapping[bytes, list[bytes]]) -> TallyRecord:
        packed = still_open[name] if name in still_open else self._run(scripts.SEGMENTS, shard, name)
        if not packed:
            raise self._given_up()
        plan, epoch = tally_of(name)
        total = sum_segments(self._unpack_segments(plan, epoch, packed))
        return TallyRecord(shard, plan, epoch, total.n, total.packed)

    def _given_up(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._client.name}: old tallies were given up while they were read; try again")

    # Filling.

    def _fill_identity(self, identity: Identity) -> None:
        known_by = ("app", identity.app, "secret", identity.secret, "digest_key", identity.digest_key)
        self._run_global(scripts.SET, *known_by, "tallies_from", day_number(identity.tallies_from))

    def fill_seen(self, record: SeenRecord) -> None:
        """Remember uploads, each in the shard of its id."""
        by_shard: dict[int, list[tuple[bytes, bytes]]] = {}
        for id_, body in record.bodies.items():
            by_shard.setdefault(self.shard_of(id_), []).append((id_, body))
        where = day_number(record.day), record.of // self.shards
        for shard, uploads in by_shard.items():
            for chunk in chunks(uploads, FILL_ITEMS):
                self._run(scripts.FILL_SEEN, shard, *where, *(part for pair in chunk for part in pair))

    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments to a shard."""
        mark = secrets.token_bytes(MARK_BYTES)
        commands: list[Command] = []
        for one in segments:
            name = tally_name(one.plan, one.epoch)
            commands.append(("RPUSH", layout.shard_key(shard, "tally", name), pack_segment(one, mark)))
            commands.append(("ZINCRBY", layout.shard_key(shard, "tallies"), 1, name))
        self._client.run_each(commands)

    def fill_shard(self, record: ShardRecord) -> None:
        """Set a shard's days, cursor, log, ledger, quarantine and counts of refused groups."""
        shard, mark = record.shard, secrets.token_bytes(MARK_BYTES)
        for entries in chunks(record.entries, FILL_ITEMS):
            self._client.run("RPUSH", layout.shard_key(shard, "log"), *(mark + entry for entry in entries))
        commands: list[Command] = []
        for (plan, epoch), row in record.ledger.items():
            commands.append(("HSET", layout.shard_key(shard, "ledger", plan), *ledger_fields(epoch, row)))
            commands.append(("SADD", layout.shard_key(shard, "ledger"), plan))
        for number, poison in enumerate(record.quarantine, 1):
            commands.append(("HSET", layout.shard_key(shard, "quarantine"), number, pack_poison(poison)))
        for key, refused in record.refused.items():
            day = day_number(key.day)
            commands.append(("HSET", layout.shard_key(shard, "refused", day), *refused_fields(key, refused)))
            commands.append(("ZADD", layout.shard_key(shard, "refused"), day, day))
        for chunk in chunks(commands, FILL_ITEMS):
            self._client.run_each(chunk)
        days = day_number(record.day), day_number(record.sealed)
        rest = record.cursor, len(record.entries), len(record.quarantine)
        self._run(scripts.FILL_SHARD, shard, *days, *rest)

    # Erasing.

    def erased(self) -> date:
        """Return the latest epoch that is erased."""
        day = self._field("erased")
        return day_of(int(day)) if day else date.min

    def _erase(self, merged: date) -> str:
        """Note that a rewrite has ended, or ask for one; a later call hears of its end."""
        nodes = self._client.information()
        if self._client.away() or any(one["aof_rewrite_in_progress"] for one in nodes):
            return self._not_erased
        if not any(one["aof_enabled"] for one in nodes):
            return self._note_erased(merged)
        asked = self._field("erasing")
        rewrite = _Rewrite.from_text(asked) if asked else None
        if rewrite and rewrite.merged >= merged and rewrite.succeeded(nodes):
            return self._note_erased(rewrite.merged)
        self._run_global(scripts.SET, "erasing", _Rewrite.next_of(nodes, merged).to_text())
        try:
            self._client.everywhere("BGREWRITEAOF")
        except StoreUnavailable:
            raise
        except StoreError as error:
            if "already in progress" not in str(error):  # that one began after we looked: it is as good
                return (
                    "the append-only file is not rewritten, and uploads of days that are over can still be told apart "
                    f"in it: {error}. Allow the command BGREWRITEAOF"
                )
        return ""

    def _note_erased(self, merged: date) -> str:
        self._run_global(scripts.SET, "erased", day_number(merged))
        return ""

    # Moving the day back.

    def hold(self, why: str = layout.RESETTING) -> None:
        """Refuse the store to all others, until it is released; also one that was held when its process ended."""
        free = layout.token(self.generation)
        held = f"{free}:{secrets.token_hex(8)}{why}"
        self._run_global(scripts.FINISH, held)
        self._token = free
        self._of_each_shard(scripts.HOLD, held)
        self._token = held

    def release(self) -> None:
        """Let others use it again."""
        self.finish()

    def begun_reset(self) -> str:
        """Return the reset that was begun."""
        return (self._field(_BEGUN) or b"").decode()

    def begin_reset(self, text: str) -> None:
        """Keep what a reset is about to do."""
        self._run_global(scripts.SET, _BEGUN, text)

    def reset_day(self, reset: DayReset) -> None:
        """Do it shard by shard, but for those of which it is done: their day is not beyond any more."""
        for shard in self.status():
            if shard.day <= reset.day:
                continue
            past = self._read_seen_days(shard.shard, reset)
            for day, buckets in past.items():
                for record in self._dump_seen(shard.shard, day, buckets):
                    self.fill_seen(replace(record, day=reset.day))
            commands = (*self._of_days(shard, reset), *self._of_shard(shard.shard, reset, past))
            self._run(scripts.APPLY, shard.shard, *_words(commands))
        self._run_global(scripts.APPLY, *_words(self._of_store(reset)))

    def _read_seen_days(self, shard: int, reset: DayReset) -> dict[int, int]:
        _, _, _, seen, *_ = self._run(scripts.OUTLINE, shard)
        return {day: n for day, n in buckets_of(pairs(seen)).items() if day > day_number(reset.day)}

    def _of_days(self, shard: ShardStatus, reset: DayReset) -> Iterator[Command]:
        at = layout.shard_key(shard.shard)
        (last,) = self._run(scripts.GET, shard.shard, "in_order")
        sealed = {"sealed": shard.sealed, "merged": shard.merged, **({"in_order": day_of(int(last))} if last else {})}
        fields = {"day": min(shard.day, reset.day), **{name: min(day, reset.sealed) for name, day in sealed.items()}}
        yield ("HSET", at, *(part for name, day in fields.items() for part in (name, day_number(day))))
        yield ("HINCRBY", at, "quarantine_last", 1)  # the ledger of sealed days is another: who reads it begins anew

    def _of_shard(self, shard: int, reset: DayReset, past: dict[int, int]) -> Iterator[Command]:
        day = day_number(reset.day)
        for each, buckets in past.items():
            yield from (("UNLINK", layout.shard_key(shard, "seen", each, place)) for place in range(buckets))
            yield ("HDEL", layout.shard_key(shard, "seen"), f"{each}:buckets", f"{each}:ids")
        yield from self._of_tallies(shard, reset)
        for (plan, epoch), row in self.shard_ledger(shard).items():
            key = layout.shard_key(shard, "ledger", plan)
            if reset.is_joined(epoch):
                yield from (("HINCRBY", key, f"{day}:{name}", n) for name, n in zip("afqd", row.kept, strict=True))
            if reset.is_joined(epoch) or reset.is_aside(epoch):
                yield ("HDEL", key, *(f"{day_number(epoch)}:{name}" for name in "afqd"))
        for number, packed in pairs(self._run(scripts.QUARANTINE, shard)).items():
            poison = unpack_poison("", packed)
            if reset.is_aside(poison.group.epoch):
                yield ("HDEL", layout.shard_key(shard, "quarantine"), number)
            elif reset.is_joined(poison.group.epoch):
                moved = poison._replace(group=poison.group._replace(epoch=reset.day))
                yield ("HSET", layout.shard_key(shard, "quarantine"), number, pack_poison(moved))
        refused = layout.shard_key(shard, "refused")
        for each in self._client.run("ZRANGEBYSCORE", refused, f"({day}", "+inf"):
            of_day = layout.shard_key(shard, "refused", int(each))
            for column, n in self._client.run("HGETALL", of_day).items():
                yield ("HINCRBY", layout.shard_key(shard, "refused", day), column, n)
            yield from (("DEL", of_day), ("ZREM", refused, each), ("ZADD", refused, day, day))

    def _of_tallies(self, shard: int, reset: DayReset) -> Iterator[Command]:
        names = {name for names in self._scan(scripts.NAMES, shard) for name in names}
        joined: dict[int, list[bytes]] = {}
        for name in sorted(names):
            plan, epoch = tally_of(name)
            if reset.is_aside(epoch):
                yield from self._give_up(shard, name)
            elif epoch >= reset.day:
                joined.setdefault(plan, []).append(name)
        for plan, of_plan in joined.items():
            if any(reset.is_joined(tally_of(name)[1]) for name in of_plan):
                one = reset.join_segments(each for name in of_plan for each in self.segments(shard, *tally_of(name)))
                new = tally_name(plan, reset.day)
                for name in of_plan:
                    yield from self._give_up(shard, name)
                yield (
                    "RPUSH",
                    layout.shard_key(shard, "tally", new),
                    pack_segment(one, secrets.token_bytes(MARK_BYTES)),
                )
                yield ("ZADD", layout.shard_key(shard, "tallies"), 1, new)

    def _give_up(self, shard: int, name: bytes) -> Iterator[Command]:
        yield ("DEL", layout.shard_key(shard, "tally", name.decode()))
        yield ("ZREM", layout.shard_key(shard, "tallies"), name)

    def _of_store(self, reset: DayReset) -> Iterator[Command]:
        for plan, epoch in self.all_finals():
            if reset.is_aside(epoch):
                yield ("HDEL", f"{layout.GLOBAL}:finals:{plan}", day_number(epoch))
        snapshots = f"{layout.GLOBAL}:snapshots"
        first, last = day_number(reset.to), day_number(reset.through)
        for id_ in self._client.run("ZRANGEBYSCORE", snapshots, f"({first}", last):
            yield ("DEL", f"{layout.GLOBAL}:snapshot:{id_.decode()}")
            yield ("ZREM", snapshots, id_)
        readings = f"{layout.GLOBAL}:readings"  # none outlives its reports, and the others can be made again
        yield ("DEL", readings, *(f"{readings}:{part}" for part in ("made", "first", "open")))
        yield ("HDEL", layout.GLOBAL, "readings_bytes")
        hour, batches = self.batches()
        if batches:
            yield ("DEL", f"{layout.GLOBAL}:batches")
            for one in reset.join_batches(batches):
                name = batch_name(one.plan, one.epoch, one.shown)
                yield ("HSET", f"{layout.GLOBAL}:batches", name, pack_batch(one))
        if hour is not None:
            yield ("HSET", layout.GLOBAL, "batches_hour", min(hour, int(self._now_s() // HOUR_S)))
        bounds = {"tallies_from": min(self.tallies_from(), reset.day), "erased": min(self.erased(), reset.sealed)}
        yield ("HSET", layout.GLOBAL, *(part for name, day in bounds.items() for part in (name, day_number(day))))
        yield ("HDEL", layout.GLOBAL, "erasing", _BEGUN)


def _log_at(now: Any, low: int, ahead: list[bytes], log: Any) -> list[bytes] | None:
    """Return the log of the instant `now`, read ahead from `low` on and `log` at last; None where that is not all."""
    _, _, cursor, length, _ = now
    entries = ahead[cursor - low :] + log[3:]
    return entries if cursor >= low and len(entries) == length else None


def _are_all(names: Sequence[bytes], ledger: Mapping[TallyKey, Counted], settled: Settled, outline: Any) -> bool:
    """Whether the tallies are still those: as many, and every one that something of an open day is folded into."""
    open_ = {tally_name(*key).encode() for key, row in ledger.items() if row.folded and key not in settled.rows}
    return len(names) == outline[4] and open_ <= set(names)


def _shard_record(
    shard: int,
    outline: Any,
    now: Any,
    ledger: dict[TallyKey, Counted],
    log: Sequence[bytes],
    quarantine: Any,
    refused: dict[RefusedKey, RefusedCount],
) -> ShardRecord:
    day, sealed, *_ = outline
    held = sorted((int(number), packed) for number, packed in pairs(quarantine).items())
    return ShardRecord(
        shard,
        day_of(day),
        day_of(sealed),
        cursor=now[2],
        entries=tuple(entry[MARK_BYTES:] for entry in log),
        ledger=ledger,
        quarantine=tuple(unpack_poison("", packed) for _, packed in held),
        refused=refused,
    )


def _words(commands: Iterable[Command]) -> Iterator[object]:
    for command in commands:
        yield from (len(command), *command)
