"""The log of the Redis store: a list a shard, an entry an upload."""

import secrets
from collections.abc import Sequence

from dither_aggregator.store.interface.log import READ_BYTES_MAX, READ_UPLOADS_MAX, Log, Prepared
from dither_aggregator.store.packing import day_number, unpack_entry
from dither_aggregator.store.records import LogRead, Poison, Receipt, Segment, StoreError
from dither_aggregator.store.redis import shard_scripts
from dither_aggregator.store.redis.calls import chunks
from dither_aggregator.store.redis.client import Command
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import MARK_BYTES, pack_refused, pack_segment, poison_arguments
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import Upload

APPEND_UPLOADS_MAX = 500
"""How many uploads one script takes: what it hands to one Redis command has a limit, and others wait for it."""
READ_REDIS_BYTES_MAX = min(READ_BYTES_MAX, 8 * 1024 * 1024)
"""A script that reads holds up every other."""


class RedisLog(RedisOpened, Log):
    """Appended by one script a shard for the uploads that come together, all with one sync."""

    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads, those of each shard in one script, all with one sync."""
        prepared = [self._prepare(upload, body) for upload, body in uploads]
        calls: list[Command] = []
        places: list[tuple[int, Sequence[int]]] = []
        for shard, of_shard in self._by_shard(prepared).items():
            for chunk in chunks(of_shard, APPEND_UPLOADS_MAX):
                taken = [part for place in chunk for part in _arguments(prepared[place])]
                calls.append(self._call(shard_scripts.APPEND, shard, secrets.token_bytes(MARK_BYTES), *taken))
                places.append((shard, chunk))
        floors = self._seen_written()
        answers: list[Receipt | Problem] = [item.result for item in prepared]
        replies = self._client.run_each(calls, together=self._one_node)
        for (shard, chunk), (written, *before) in zip(places, replies, strict=True):
            self._saw_written(floors, shard, written)
            for place, answer in zip(chunk, before, strict=True):
                if answer is not None:
                    answers[place] = self._repeated(uploads[place][0], prepared[place], answer)
        return answers

    def _by_shard(self, prepared: Sequence[Prepared]) -> dict[int, list[int]]:
        by_shard: dict[int, list[int]] = {}
        for place, item in enumerate(prepared):
            by_shard.setdefault(self.shard_of(item.digest), []).append(place)
        return by_shard

    def read_log(self, shard: int) -> LogRead:
        """Return the oldest entries of the log."""
        floors = self._seen_written()
        reply = self._run(shard_scripts.READ, shard, "", READ_UPLOADS_MAX, READ_REDIS_BYTES_MAX)
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
        return bool(self._run(shard_scripts.COMMIT, shard, read.low, read.high, read.mark, len(segments), *stored))


def _arguments(item: Prepared) -> tuple[object, ...]:
    """Return an upload as the script takes it."""
    return item.digest, item.answer, item.groups, pack_refused(item.refused)
