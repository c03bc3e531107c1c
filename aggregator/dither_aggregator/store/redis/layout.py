"""Every key of the Redis store, and the bytes beneath them.

    dither:{g}                      hash: version, token, app, secret, digest_key, generation, shards, tallies_from,
                                    sure, clock_offset_s, erased, erasing, batches_hour, clock_reset, readings_made,
                                    readings_bytes, and a version of each of the hashes of documents, KIND_version
    dither:{g}:plans                hash: plan -> document
    dither:{g}:keys                 hash: a key's id -> document, which has a hash of its text
    dither:{g}:retention            hash: nothing -> document
    dither:{g}:marks                hash: day and text of an operator's mark -> document
    dither:{g}:journal              list: documents of what operators did, the oldest first
    dither:{g}:finals:PLAN          hash: day -> digest and the snapshot's id, with a space between
    dither:{g}:snapshot:ID          string
    dither:{g}:snapshots            sorted set: ids by day
    dither:{g}:batches              hash: PLAN:DAY:shown or PLAN:DAY:last -> batch
    dither:{g}:readings             hash: a reading's key -> first day and content
    dither:{g}:readings:made        sorted set: their keys, by when they were made
    dither:{g}:readings:first       sorted set: their keys, by first day
    dither:{g}:readings:open        set: the keys of those that are not there yet

    dither:{3}                      hash: sure, token, day, sealed, merged, cursor, written, waiting_since, in_order,
                                    quarantine_last, clock_offset_s
    dither:{3}:log                  list: an entry for each upload above the cursor
    dither:{3}:seen                 hash: DAY:buckets and DAY:ids, of the days whose uploads are remembered
    dither:{3}:seen:DAY:BUCKET      hash: digest of an upload's id -> digest of its body
    dither:{3}:ledger               set: the plans that have a
    dither:{3}:ledger:PLAN          hash: DAY:a accepted, DAY:f folded, DAY:q quarantined, DAY:d dropped of them
    dither:{3}:tallies              sorted set: PLAN:DAY by the number of its segments
    dither:{3}:tally:PLAN:DAY       list: segments, oldest first
    dither:{3}:quarantine           hash: number -> group
    dither:{3}:refused              sorted set: the days on which groups were refused
    dither:{3}:refused:DAY          hash: g:REASON:METRIC groups, n:REASON:METRIC reports in them

A day is the number of days since 1970. The bytes:

    log          8 bytes mark | the entry as store/records.py has it
    segment      8 bytes mark, u64 low, high, n | the packed counts
    quarantined  u32 plan, cell, day, n, length of the reason | the reason | the reports
    batch        u64 n | the packed counts
    ledger       a hash a plan: DAY:a accepted, DAY:f folded, DAY:q quarantined, DAY:d dropped of them
    refused      a hash a day: g:REASON:METRIC groups, n:REASON:METRIC reports in them

All little-endian. A mark is 8 random bytes, new with each step that writes entries or segments. By it a step knows the
last thing that was read before it: in a Redis that came back from a cut file there may be another in the same place.

Redis keeps a hash of up to 128 short fields without pointers. So a day's ids are spread over buckets, of BUCKET_IDS
each if there are as many as on the fullest of the days before. How many buckets is written with the day's first id, by
the same script, and stays. The last four bytes of an id say which one it is in.

The text in braces is the hash slot in a Redis Cluster: an effect is one script on the keys of one slot. A
script's KEYS[1] is the hash that the others are named after, ARGV[1] the token that must stand in it. So a Redis that
came back empty, half filled, or filled by another version is refused before anything is read. KEYS[2] is a key that
never is there, and `sure` a field that only a cluster has: `client.py` says what for.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from dither_aggregator.counting import BadTally
from dither_aggregator.store.records import (
    Batch,
    Counted,
    Final,
    LogGroup,
    Poison,
    RefusedCount,
    RefusedKey,
    Segment,
    StoreError,
    TallyKey,
    check_size,
    count_pending,
    day_number,
    day_of,
)

VERSION = 5
"""The version of this layout. A store of another one is refused."""
GLOBAL = "dither:{g}"
BUCKET_IDS = 64
"""How many ids are to come to a bucket. One of more than 128 takes four times the memory."""
BUCKETS_MIN = 64
"""The buckets of a day with few ids, for a store's first day may be busy. All others have a multiple of them."""
RESETTING = ":resetting"
"""Ends the token of a store whose day is being reset: `moving.py`."""
MOVED = ":moved"
"""Ends the token of a store that is, or was, copied to another."""


def token(generation: str, *, finished: bool = True) -> str:
    """Return what stands in every hash of a store that can be used, or is being made."""
    return f"{VERSION}:{generation}" if finished else f"{VERSION}:{generation}:unfinished"


def shard_key(shard: int, *parts: object) -> str:
    """Return the key of a shard's hash, or of another of its keys, named by the parts behind it."""
    return ":".join([f"dither:{{{shard}}}", *map(str, parts)])


# Bytes.

MARK_BYTES = 8
SEGMENT = struct.Struct("<8sQQQ")
QUARANTINED = struct.Struct("<IIIII")
BATCH = struct.Struct("<Q")


def pack_segment(one: Segment, mark: bytes) -> bytes:
    """Return a segment with a new mark."""
    return SEGMENT.pack(mark, one.low, one.high, one.n) + one.packed


def segment_head(one: Segment) -> bytes:
    """Return how a segment that was read begins."""
    return SEGMENT.pack(one.mark, one.low, one.high, one.n)


def unpack_segment(plan: int, epoch: date, packed: bytes, size: int) -> Segment:
    """Return a segment of `size` counts; raise BadTally for anything else."""
    if len(packed) < SEGMENT.size:
        raise BadTally("a stored tally cannot be read: it is cut off")
    mark, low, high, n = SEGMENT.unpack_from(packed)
    return Segment(plan, epoch, low, high, n, check_size(packed[SEGMENT.size :], size), mark)


def pack_poison(poison: Poison) -> bytes:
    """Return a group with the reason why it could not be counted."""
    group, words = poison.group, poison.reason.encode()
    head = group.plan, group.cell, day_number(group.epoch), group.n, len(words)
    return QUARANTINED.pack(*head) + words + group.reports


def poison_arguments(poison: Poison) -> tuple[object, ...]:
    """Return what a script needs to store a group in quarantine and to move its reports in the ledger."""
    group = poison.group
    return group.plan, day_number(group.epoch), group.n, pack_poison(poison)


def unpack_poison(id_: str, packed: bytes) -> Poison:
    """Return the group in quarantine under an id; raise StoreError for anything else."""
    if len(packed) < QUARANTINED.size:
        raise StoreError(f"the quarantined group {id_} is damaged: it is cut off")
    plan, cell, day, n, length = QUARANTINED.unpack_from(packed)
    reason, reports = packed[QUARANTINED.size :][:length], packed[QUARANTINED.size + length :]
    return Poison(LogGroup(plan, cell, day_of(day), n, reports), reason.decode(errors="replace"))


def tally_name(plan: int, epoch: date) -> str:
    """Return how a tally is called within a shard."""
    return f"{plan}:{day_number(epoch)}"


def tally_of(name: bytes) -> TallyKey:
    """Return the plan and epoch of the tally that is called so."""
    plan, day = name.split(b":")
    return int(plan), day_of(int(day))


def batch_name(plan: int, epoch: date, shown: bool) -> str:
    """Return how the batch of a tally is called that is shown, or that was cut last."""
    return f"{tally_name(plan, epoch)}:{'shown' if shown else 'last'}"


def pack_batch(one: Batch) -> bytes:
    """Return what is kept under a batch's name."""
    return BATCH.pack(one.n) + one.packed


def unpack_batch(name: bytes, packed: bytes) -> Batch:
    """Return the batch that is kept under a name; raise StoreError for anything else."""
    of_tally, _, which = name.rpartition(b":")
    if len(packed) < BATCH.size:
        raise StoreError(f"the batch {name.decode(errors='replace')} is damaged: it is cut off")
    (n,) = BATCH.unpack_from(packed)
    return Batch(*tally_of(of_tally), which == b"shown", n, packed[BATCH.size :])


def pack_final(final: Final) -> str:
    """Return what is kept of a finalized epoch."""
    return f"{final.digest} {final.snapshot}"


def unpack_final(record: bytes) -> Final:
    """Return what a record of a final epoch says."""
    digest, snapshot = record.decode().split(" ")
    return Final(digest, snapshot)


def pairs(reply: Sequence[Any]) -> dict[Any, Any]:
    """Return a hash as a script returns it."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def ledger_fields(epoch: date, row: Counted) -> list[object]:
    """Return the fields and values of what is kept of an epoch, in a plan's ledger."""
    day = day_number(epoch)
    return [part for name, n in zip("afqd", row.kept, strict=True) for part in (f"{day}:{name}", n)]


def ledger_of(fields: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[TallyKey, Counted]:
    """Return what is kept of a shard's ledger, given each plan with some fields and their values, often or not."""
    rows: dict[tuple[bytes, bytes], dict[bytes, int]] = {}
    for plan, reply in fields:
        for field, n in pairs(reply).items():
            day, _, name = field.partition(b":")
            rows.setdefault((plan, day), {})[name] = int(n)
    return {
        (int(plan), day_of(int(day))): Counted.from_kept(*(row.get(name, 0) for name in (b"a", b"f", b"q", b"d")))
        for (plan, day), row in rows.items()
    }


def buckets_of(listed: Mapping[bytes, bytes]) -> dict[int, int]:
    """Return how many buckets each day has, in order, given the hash that lists them."""
    named = [field.partition(b":") for field in listed]
    return {int(day): int(listed.get(day + b":buckets", 0)) for day in sorted({day for day, _, _ in named}, key=int)}


def bucket_of(id_: bytes, buckets: int) -> int:
    """Return in which of a day's buckets an id is."""
    return int.from_bytes(id_[-4:], "big") * buckets >> 32


def pack_refused(refused: Mapping[tuple[str, str], RefusedCount]) -> str:
    """Return what a script takes of what was refused of an upload: REASON:METRIC, groups, reports, and so on."""
    return " ".join(f"{reason}:{metric} {one.groups} {one.reports}" for (metric, reason), one in refused.items())


def refused_fields(key: RefusedKey, refused: RefusedCount) -> list[object]:
    """Return the fields and values of a count, in its day's hash."""
    name = f"{key.reason}:{key.metric}"
    return [f"g:{name}", refused.groups, f"n:{name}", refused.reports]


def refused_of(day: date, fields: Mapping[bytes, bytes]) -> dict[RefusedKey, RefusedCount]:
    """Return what a shard refused on a day."""
    rows: dict[RefusedKey, dict[str, int]] = {}
    for field, n in fields.items():
        column, _, name = field.decode(errors="replace").partition(":")
        reason, _, metric = name.partition(":")
        rows.setdefault(RefusedKey(day, metric, reason), {})[column] = int(n)
    return {key: RefusedCount(row.get("g", 0), row.get("n", 0)) for key, row in rows.items()}


def count_marked(entries: Iterable[bytes]) -> dict[TallyKey, int]:
    """Return how many reports of each plan and epoch are in marked entries of a log."""
    return count_pending(entry[MARK_BYTES:] for entry in entries)
