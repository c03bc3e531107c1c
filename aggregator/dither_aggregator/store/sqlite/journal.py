"""The journal of the SQLite store: a row an entry."""

import json
from collections.abc import Sequence

from dither_aggregator.store.interface.journal import JOURNAL_MAX, Journal
from dither_aggregator.store.records import JournalEntry
from dither_aggregator.store.sqlite.opened import SQLiteOpened


class SQLiteJournal(SQLiteOpened, Journal):
    """Entries of the one file."""

    def journal(self, limit: int = JOURNAL_MAX) -> list[JournalEntry]:
        """Return the last entries."""
        rows = self._rows("SELECT entry FROM journal ORDER BY seq DESC LIMIT ?", limit)
        return [JournalEntry.from_document(json.loads(entry)) for (entry,) in reversed(rows)]

    def _add_entries(self, entries: Sequence[JournalEntry]) -> None:
        with self._transaction() as db:
            rows = [(json.dumps(entry.to_document()),) for entry in entries]
            db.executemany("INSERT INTO journal (entry) VALUES (?)", rows)
            db.execute("DELETE FROM journal WHERE seq <= (SELECT MAX(seq) FROM journal) - ?", (JOURNAL_MAX,))
