"""Every key of the Redis store.

    dither:{g}                      hash: version, token, app, secret, digest_key, generation, shards, plans_version,
                                    keys_version, tallies_days, snapshots_days, tallies_from, clock_offset_s, erased,
                                    erasing, batches_hour, clock_reset, readings_made, readings_bytes
    dither:{g}:plans                hash: plan -> document
    dither:{g}:keys                 hash: a key's id -> document, which has a hash of its text
    dither:{g}:journal              list: documents of what operators did, the oldest first
    dither:{g}:finals:PLAN          hash: day -> digest and the snapshot's id, with a space between
    dither:{g}:snapshot:ID          string
    dither:{g}:snapshots            sorted set: ids by day
    dither:{g}:batches              hash: PLAN:DAY:shown or PLAN:DAY:last -> batch
    dither:{g}:readings             hash: a reading's key -> first day and content
    dither:{g}:readings:made        sorted set: their keys, by when they were made
    dither:{g}:readings:first       sorted set: their keys, by first day
    dither:{g}:readings:open        set: the keys of those that are not there yet
    dither:{g}:marks                set: an operator's mark each

    dither:{3}                      hash: token, day, sealed, merged, cursor, written, waiting_since, bare,
                                    quarantine_last, clock_offset_s
    dither:{3}:log                  list: an entry for each upload above the cursor
    dither:{3}:seen                 sorted set: the days whose uploads are remembered
    dither:{3}:seen:DAY             hash: digest of an upload's id -> answer
    dither:{3}:ledger               set: the plans that have a
    dither:{3}:ledger:PLAN          hash: DAY:a accepted, DAY:f folded, DAY:q quarantined, DAY:d dropped of them
    dither:{3}:tallies              sorted set: PLAN:DAY by the number of its segments
    dither:{3}:tally:PLAN:DAY       list: segments, oldest first
    dither:{3}:quarantine           hash: number -> group
    dither:{3}:refused              sorted set: the days on which groups were refused
    dither:{3}:refused:DAY          hash: g:REASON:METRIC groups, n:REASON:METRIC reports in them

`packing.py` beside it has the bytes of all these; a day is the number of days since 1970.

The text in braces is the hash slot in a Redis Cluster: an effect is one script on the keys of one slot. A
script's KEYS[1] is the hash that the others are named after, ARGV[1] the token that must stand in it. So a Redis that
came back empty, half filled, or filled by another version is refused before anything is read.
"""

VERSION = 3
"""The version of this layout. A store of another one is refused."""
GLOBAL = "dither:{g}"
RESETTING = ":resetting"
"""Ends the token of a store whose day is being reset: `resetting.py`."""


def token(generation: str, *, finished: bool = True) -> str:
    """Return what stands in every hash of a store that can be used, or is being made."""
    return f"{VERSION}:{generation}" if finished else f"{VERSION}:{generation}:unfinished"


def shard_key(shard: int) -> str:
    """Return the key of a shard's hash, after which its other keys are named."""
    return f"dither:{{{shard}}}"


def log_key(shard: int) -> str:
    """Return the key of a shard's log."""
    return f"{shard_key(shard)}:log"


def ledger_key(shard: int, plan: int | None = None) -> str:
    """Return the key of a plan's part of a shard's ledger, or of the set of the plans that have one."""
    return f"{shard_key(shard)}:ledger" + ("" if plan is None else f":{plan}")


def tallies_key(shard: int) -> str:
    """Return the key of the names of a shard's tallies."""
    return f"{shard_key(shard)}:tallies"


def quarantine_key(shard: int) -> str:
    """Return the key of what a shard has in quarantine."""
    return f"{shard_key(shard)}:quarantine"


def seen_key(shard: int, day: int) -> str:
    """Return the key of the uploads that a shard answered on one day."""
    return f"{shard_key(shard)}:seen:{day}"


def refused_key(shard: int, day: int | None = None) -> str:
    """Return the key of what a shard refused on one day, or of the set of the days that have one."""
    return f"{shard_key(shard)}:refused" + ("" if day is None else f":{day}")


def tally_key(shard: int, name: str) -> str:
    """Return the key of a tally's segments."""
    return f"{shard_key(shard)}:tally:{name}"
