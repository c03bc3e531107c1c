"""A Redis store as records: read while it is in use, each shard as it is at one instant; written in pieces.

The parts of a shard that can still change are read in one transaction. The rest is read in pieces: before that the
ledger of sealed days, the refused groups of past days, the names of the tallies and nearly all of the log; after it
sealed tallies and the ids of past days.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dither_aggregator.store.dump import (
    BatchesRecord,
    FinalRecord,
    Identity,
    JournalRecord,
    MarksRecord,
    PlanRecord,
    Record,
    SeenRecord,
    ShardRecord,
    TallyRecord,
)
from dither_aggregator.store.interface.log import READ_UPLOADS_MAX
from dither_aggregator.store.interface.moving import Moving
from dither_aggregator.store.interface.refused import REFUSED_DAYS
from dither_aggregator.store.packing import day_number, day_of, sum_segments
from dither_aggregator.store.records import (
    Counted,
    RefusedCount,
    RefusedKey,
    Segment,
    StoreUnavailable,
    TallyKey,
    sum_refused,
)
from dither_aggregator.store.redis import key_names, shard_scripts, store_scripts
from dither_aggregator.store.redis.batches import RedisBatches
from dither_aggregator.store.redis.calls import INSTANT_ATTEMPTS, chunks
from dither_aggregator.store.redis.client import Command
from dither_aggregator.store.redis.epochs import RedisEpochs
from dither_aggregator.store.redis.journal import RedisJournal
from dither_aggregator.store.redis.keyring import RedisKeyring
from dither_aggregator.store.redis.ledger import RedisLedger, Settled
from dither_aggregator.store.redis.log import READ_REDIS_BYTES_MAX
from dither_aggregator.store.redis.marks import RedisMarks
from dither_aggregator.store.redis.packing import (
    MARK_BYTES,
    ledger_fields,
    pack_poison,
    pack_segment,
    pairs,
    refused_fields,
    refused_of,
    tally_name,
    tally_of,
    unpack_poison,
)
from dither_aggregator.store.redis.tallies import RedisTallies

FILL_ITEMS = 1_000
"""How many items of a long collection are read or written by one command."""


class _Instant(NamedTuple):
    """The parts of a shard that can still change, as they were at one instant."""

    record: ShardRecord
    seen: dict[bytes, bytes]
    """The answers of the shard's day."""
    past_days: list[int]
    names: list[bytes]
    """The names of all its tallies."""
    still_open: Mapping[bytes, list[bytes]]
    """The segments of those whose day is not sealed."""


class RedisMoving(RedisBatches, RedisLedger, RedisTallies, RedisEpochs, RedisMarks, RedisKeyring, RedisJournal, Moving):
    """Dumps without holding the store up; fills one that nobody else can open."""

    def dump(self) -> Iterator[Record]:
        """Yield everything, each shard as it is at one instant."""
        app, secret, digest_key, tallies_from = self._run_global(
            store_scripts.GET, "app", "secret", "digest_key", "tallies_from"
        )
        first = day_of(int(tallies_from))
        self.refresh()
        keys = tuple(sorted(self._keys.by_id.values(), key=lambda key: key.id))
        yield Identity(app.decode(), keys, secret, digest_key, self.generation, self.retention(), first)
        yielded: set[int] = set()
        yield from self._dump_plans(yielded)
        if marks := self.marks():
            yield MarksRecord(tuple(marks))
        hour, batches = self.batches()
        if hour is not None and batches:
            yield BatchesRecord(hour, tuple(batches))
        for entries in chunks(self.journal(), FILL_ITEMS):
            yield JournalRecord(tuple(entries))
        # An epoch that is final by now is sealed in every shard, so the shards' dumps hold all of it.
        finals = [(plan, epoch, final) for plan in sorted(yielded) for epoch, final in self._finals(plan).items()]
        for shard in range(self.shards):
            yield from self._dump_shard(shard, yielded)
        for plan, epoch, final in finals:
            yield FinalRecord(plan, epoch, final, self.snapshot(final.snapshot))
        if self.tallies_from() != first:
            raise self._given_up()

    def _dump_plans(self, yielded: set[int]) -> Iterator[PlanRecord]:
        self.refresh()
        for id_, item in self._plans.by_id.items():
            if id_ not in yielded:
                yielded.add(id_)
                yield PlanRecord(item.to_document())

    def _dump_shard(self, shard: int, yielded: set[int]) -> Iterator[Record]:
        """Yield a shard: first, of one instant, the parts that can still change, then the rest."""
        read = self._read_instant(shard)
        yield from self._dump_plans(yielded)
        yield read.record
        yield SeenRecord(read.record.day, read.seen)
        for past in read.past_days:
            yield from self._dump_seen(shard, past)
        for name in read.names:
            yield self._dump_tally(shard, name, read.still_open)
        self._run(shard_scripts.OUTLINE, shard)  # what was read was still this store's

    def _read_instant(self, shard: int) -> _Instant:
        for _ in range(INSTANT_ATTEMPTS):
            settled = self._settled(shard)
            names = sorted({name for names in self._scan(shard_scripts.NAMES, shard) for name in names})
            still_open = [name for name in names if day_number(tally_of(name)[1]) > settled.sealed]
            low, ahead = self._read_ahead(shard)
            refused = self._refused_before(shard, settled.day)
            now, outline, log, quarantine, refused_now, seen, *tallies = self._client.read_at_once(
                [
                    self._ledger_now(shard, settled),
                    self._call(shard_scripts.OUTLINE, shard),
                    self._call(shard_scripts.READ, shard, low + len(ahead), 1 << 52, 1 << 52),
                    self._call(shard_scripts.QUARANTINE, shard),
                    self._call(shard_scripts.REFUSED, shard, settled.day),
                    ("HGETALL", key_names.seen_key(shard, settled.day)),
                    *(("LRANGE", key_names.tally_key(shard, name.decode()), 0, -1) for name in still_open),
                ],
            )
            ledger = self._rows_of(settled, now)
            entries = _log_at(now, low, ahead, log)
            if ledger is not None and entries is not None and _are_all(names, ledger, settled, outline):
                refused |= refused_of(day_of(settled.day), pairs(refused_now))
                record = _shard_record(shard, outline, now, ledger, entries, quarantine, refused)
                past_days = [past for past in settled.seen_days if past != settled.day]
                return _Instant(record, seen, past_days, names, dict(zip(still_open, tallies, strict=True)))
        raise self._too_fast(shard)

    def _refused_before(self, shard: int, day: int) -> dict[RefusedKey, RefusedCount]:
        """Return what a shard refused on the days before one that are kept: nothing changes them any more."""
        days = range(day - REFUSED_DAYS + 1, day)
        replies = self._client.run_each([self._call(shard_scripts.REFUSED, shard, past) for past in days])
        return sum_refused(refused_of(day_of(past), pairs(of_day)) for past, of_day in zip(days, replies, strict=True))

    def _read_ahead(self, shard: int) -> tuple[int, list[bytes]]:
        """Return the log in pieces, up to its end or nearly: from where on, and its entries."""
        low, _, _, *entries = self._run(shard_scripts.READ, shard, "", READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
        more = entries
        while more:
            place = low + len(entries)
            _, _, _, *more = self._run(shard_scripts.READ, shard, place, READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
            entries += more
        return low, entries

    def _dump_seen(self, shard: int, day: int) -> Iterator[SeenRecord]:
        cursor = None
        while cursor != 0:
            cursor, answers = self._client.run(
                "HSCAN", key_names.seen_key(shard, day), cursor or 0, "COUNT", FILL_ITEMS
            )
            if answers:
                yield SeenRecord(day_of(day), answers)

    def _dump_tally(self, shard: int, name: bytes, still_open: Mapping[bytes, list[bytes]]) -> TallyRecord:
        packed = still_open[name] if name in still_open else self._run(shard_scripts.SEGMENTS, shard, name)
        if not packed:
            raise self._given_up()
        plan, epoch = tally_of(name)
        total = sum_segments(self._unpack_segments(plan, epoch, packed))
        return TallyRecord(shard, plan, epoch, total.n, total.packed)

    def _given_up(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._client.name}: old tallies were given up while they were read; try again")

    # Filling.

    def fill_identity(self, identity: Identity) -> None:
        """Take over what devices and copies of uploads are recognised by."""
        first = day_number(identity.tallies_from)
        known_by = ("app", identity.app, "secret", identity.secret, "digest_key", identity.digest_key)
        self._run_global(store_scripts.SET, *known_by, "tallies_from", first)
        self.set_retention(identity.retention)
        self.app, self._digest_key, self._secret = identity.app, identity.digest_key, identity.secret
        self._save_keys(identity.keys, self._keys.version)
        self.refresh()

    def fill_seen(self, record: SeenRecord) -> None:
        """Remember answered uploads, each in the shard of its digest."""
        by_shard: dict[int, list[tuple[bytes, bytes]]] = {}
        for digest, answer in record.answers.items():
            by_shard.setdefault(self.shard_of(digest), []).append((digest, answer))
        for shard, answers in by_shard.items():
            for chunk in chunks(answers, FILL_ITEMS):
                self._run(
                    shard_scripts.FILL_SEEN, shard, day_number(record.day), *(part for pair in chunk for part in pair)
                )

    def fill_segments(self, shard: int, segments: Sequence[Segment]) -> None:
        """Add segments to a shard."""
        mark = secrets.token_bytes(MARK_BYTES)
        commands: list[Command] = []
        for one in segments:
            name = tally_name(one.plan, one.epoch)
            commands.append(("RPUSH", key_names.tally_key(shard, name), pack_segment(one, mark)))
            commands.append(("ZINCRBY", key_names.tallies_key(shard), 1, name))
        self._client.run_each(commands)

    def fill_shard(self, record: ShardRecord) -> None:
        """Set a shard's days, cursor, log, ledger, quarantine and counts of refused groups."""
        shard, mark = record.shard, secrets.token_bytes(MARK_BYTES)
        for entries in chunks(record.entries, FILL_ITEMS):
            self._client.run("RPUSH", key_names.log_key(shard), *(mark + entry for entry in entries))
        commands: list[Command] = []
        for (plan, epoch), row in record.ledger.items():
            commands.append(("HSET", key_names.ledger_key(shard, plan), *ledger_fields(epoch, row)))
            commands.append(("SADD", key_names.ledger_key(shard), plan))
        for number, poison in enumerate(record.quarantine, 1):
            commands.append(("HSET", key_names.quarantine_key(shard), number, pack_poison(poison)))
        for key, refused in record.refused.items():
            day = day_number(key.day)
            commands.append(("HSET", key_names.refused_key(shard, day), *refused_fields(key, refused)))
            commands.append(("ZADD", key_names.refused_key(shard), day, day))
        for chunk in chunks(commands, FILL_ITEMS):
            self._client.run_each(chunk)
        days = day_number(record.day), day_number(record.sealed)
        rest = record.cursor, len(record.entries), len(record.quarantine)
        self._run(shard_scripts.FILL_SHARD, shard, *days, *rest)

    def fill_final(self, record: FinalRecord) -> None:
        """Add what is kept of a finalized epoch."""
        self._finalize(record.plan, record.epoch, record.final, record.snapshot)


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
