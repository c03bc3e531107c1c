"""The journal of the Redis store: one list for all shards."""

import json
from collections.abc import Sequence

from dither_aggregator.store.interface.journal import JOURNAL_MAX, Journal
from dither_aggregator.store.records import JournalEntry
from dither_aggregator.store.redis import store_scripts
from dither_aggregator.store.redis.calls import chunks
from dither_aggregator.store.redis.opened import RedisOpened

PIECE = 1_000
"""How many entries one script reads or writes: it holds up every other."""


class RedisJournal(RedisOpened, Journal):
    """Entries of the whole store."""

    def journal(self, limit: int = JOURNAL_MAX) -> list[JournalEntry]:
        """Return the last entries, read from the newest on: one that is added meanwhile may double one."""
        found: list[bytes] = []
        while len(found) < limit:
            last = -1 - len(found)
            first = last - min(PIECE, limit - len(found)) + 1
            piece = self._run_global(store_scripts.JOURNAL, first, last)
            if not piece:
                break
            found[:0] = piece
        return [JournalEntry.from_document(json.loads(entry)) for entry in found]

    def _add_entries(self, entries: Sequence[JournalEntry]) -> None:
        for piece in chunks([json.dumps(entry.to_document()) for entry in entries], PIECE):
            self._run_global(store_scripts.NOTE, JOURNAL_MAX, *piece)
