"""The day of the Redis store, moved back: one script a shard, then one for what is common to all.

Meanwhile another token stands in every hash, so that no other process of the store reads or writes anything. Each reset
has its own: one that another overtakes is refused like all others.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dither_aggregator.store.interface.resetting import DayReset, Resetting
from dither_aggregator.store.packing import HOUR_S, day_number, day_of
from dither_aggregator.store.records import ShardStatus
from dither_aggregator.store.redis import key_names, shard_scripts, store_scripts
from dither_aggregator.store.redis.client import Command
from dither_aggregator.store.redis.erasing import RedisErasing
from dither_aggregator.store.redis.moving import RedisMoving
from dither_aggregator.store.redis.packing import (
    MARK_BYTES,
    batch_name,
    pack_batch,
    pack_poison,
    pack_segment,
    pairs,
    tally_name,
    tally_of,
    unpack_poison,
)

_BEGUN = "clock_reset"


class RedisResetting(RedisErasing, RedisMoving, Resetting):
    """Days of all shards."""

    def hold(self) -> None:
        """Refuse the store to all others, until it is released; also one that was held when its process ended."""
        free = key_names.token(self.generation)
        held = f"{free}:{secrets.token_hex(8)}{key_names.RESETTING}"
        self._run_global(store_scripts.FINISH, held)
        self._token = free
        self._of_each_shard(store_scripts.HOLD, held)
        self._token = held

    def release(self) -> None:
        """Let others use it again."""
        free = key_names.token(self.generation)
        self._of_each_shard(store_scripts.FINISH, free)
        self._run_global(store_scripts.FINISH, free)
        self._token = free

    def begun_reset(self) -> str:
        """Return the reset that was begun."""
        (text,) = self._run_global(store_scripts.GET, _BEGUN)
        return text.decode() if text else ""

    def begin_reset(self, text: str) -> None:
        """Keep what a reset is about to do."""
        self._run_global(store_scripts.SET, _BEGUN, text)

    def reset_day(self, reset: DayReset) -> None:
        """Do it shard by shard, but for those of which it is done: their day is not beyond any more."""
        for shard in self.status():
            if shard.day <= reset.day:
                continue
            past = self._read_seen_days(shard.shard, reset)
            for day in past:
                for record in self._dump_seen(shard.shard, day):
                    self.fill_seen(replace(record, day=reset.day))
            commands = (*self._of_days(shard, reset), *self._of_shard(shard.shard, reset, past))
            self._run(store_scripts.APPLY, shard.shard, *_words(commands))
        self._run_global(store_scripts.APPLY, *_words(self._of_store(reset)))

    def _read_seen_days(self, shard: int, reset: DayReset) -> list[int]:
        _, _, _, days, *_ = self._run(shard_scripts.OUTLINE, shard)
        return [int(day) for day in days if int(day) > day_number(reset.day)]

    def _of_days(self, shard: ShardStatus, reset: DayReset) -> Iterator[Command]:
        at = key_names.shard_key(shard.shard)
        (bare,) = self._run(store_scripts.GET, shard.shard, "bare")
        sealed = {"sealed": shard.sealed, "merged": shard.merged, **({"bare": day_of(int(bare))} if bare else {})}
        fields = {"day": min(shard.day, reset.day), **{name: min(day, reset.sealed) for name, day in sealed.items()}}
        yield ("HSET", at, *(part for name, day in fields.items() for part in (name, day_number(day))))
        yield ("HINCRBY", at, "quarantine_last", 1)  # the ledger of sealed days is another: who reads it begins anew

    def _of_shard(self, shard: int, reset: DayReset, past: list[int]) -> Iterator[Command]:
        day = day_number(reset.day)
        for each in past:
            yield ("DEL", key_names.seen_key(shard, each))
            yield ("ZREM", f"{key_names.shard_key(shard)}:seen", each)
        yield from self._of_tallies(shard, reset)
        for (plan, epoch), row in self.shard_ledger(shard).items():
            key = key_names.ledger_key(shard, plan)
            if reset.is_joined(epoch):
                yield from (("HINCRBY", key, f"{day}:{name}", n) for name, n in zip("afqd", row.kept, strict=True))
            if reset.is_joined(epoch) or reset.is_aside(epoch):
                yield ("HDEL", key, *(f"{day_number(epoch)}:{name}" for name in "afqd"))
        for number, packed in pairs(self._run(shard_scripts.QUARANTINE, shard)).items():
            poison = unpack_poison("", packed)
            if reset.is_aside(poison.group.epoch):
                yield ("HDEL", key_names.quarantine_key(shard), number)
            elif reset.is_joined(poison.group.epoch):
                moved = poison._replace(group=poison.group._replace(epoch=reset.day))
                yield ("HSET", key_names.quarantine_key(shard), number, pack_poison(moved))
        refused = key_names.refused_key(shard)
        for each in self._client.run("ZRANGEBYSCORE", refused, f"({day}", "+inf"):
            of_day = key_names.refused_key(shard, int(each))
            for column, n in self._client.run("HGETALL", of_day).items():
                yield ("HINCRBY", key_names.refused_key(shard, day), column, n)
            yield from (("DEL", of_day), ("ZREM", refused, each), ("ZADD", refused, day, day))

    def _of_tallies(self, shard: int, reset: DayReset) -> Iterator[Command]:
        names = {name for names in self._scan(shard_scripts.NAMES, shard) for name in names}
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
                yield ("RPUSH", key_names.tally_key(shard, new), pack_segment(one, secrets.token_bytes(MARK_BYTES)))
                yield ("ZADD", key_names.tallies_key(shard), 1, new)

    def _give_up(self, shard: int, name: bytes) -> Iterator[Command]:
        yield ("DEL", key_names.tally_key(shard, name.decode()))
        yield ("ZREM", key_names.tallies_key(shard), name)

    def _of_store(self, reset: DayReset) -> Iterator[Command]:
        for plan, epoch in self.all_finals():
            if reset.is_aside(epoch):
                yield ("HDEL", f"{key_names.GLOBAL}:finals:{plan}", day_number(epoch))
        snapshots = f"{key_names.GLOBAL}:snapshots"
        first, last = day_number(reset.to), day_number(reset.through)
        for id_ in self._client.run("ZRANGEBYSCORE", snapshots, f"({first}", last):
            yield ("DEL", f"{key_names.GLOBAL}:snapshot:{id_.decode()}")
            yield ("ZREM", snapshots, id_)
        readings = f"{key_names.GLOBAL}:readings"  # none outlives its reports, and the others can be made again
        yield ("DEL", readings, *(f"{readings}:{part}" for part in ("made", "first", "open")))
        yield ("HDEL", key_names.GLOBAL, "readings_bytes")
        hour, batches = self.batches()
        if batches:
            yield ("DEL", f"{key_names.GLOBAL}:batches")
            for one in reset.join_batches(batches):
                name = batch_name(one.plan, one.epoch, one.shown)
                yield ("HSET", f"{key_names.GLOBAL}:batches", name, pack_batch(one))
        if hour is not None:
            yield ("HSET", key_names.GLOBAL, "batches_hour", min(hour, int(self._now_s() // HOUR_S)))
        bounds = {"tallies_from": min(self.tallies_from(), reset.day), "erased": min(self.erased(), reset.sealed)}
        yield ("HSET", key_names.GLOBAL, *(part for name, day in bounds.items() for part in (name, day_number(day))))
        yield ("HDEL", key_names.GLOBAL, "erasing", _BEGUN)


def _words(commands: Iterable[Command]) -> Iterator[object]:
    for command in commands:
        yield from (len(command), *command)
