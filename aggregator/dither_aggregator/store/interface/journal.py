"""The journal: who asked for which change, and when. It is only ever added to."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.keys import masked
from dither_aggregator.store.records import JournalEntry
from dither_shared.harmless import visible

JOURNAL_MAX = 100_000
"""How many entries are kept: about 15 MB. The oldest go first."""
WHAT_CHARACTERS_MAX = 500


class Journal(Opened):
    """The acts of operators, over HTTP and on the command line."""

    def note(self, actor: str, action: str, what: str) -> None:
        """Add an entry, of now. To be called before the change itself: no change is without one."""
        at = datetime.fromtimestamp(int(self._now_s()), UTC)
        self._add_entries([JournalEntry(at, actor, action, visible(masked(what))[:WHAT_CHARACTERS_MAX])])

    @abstractmethod
    def journal(self, limit: int = JOURNAL_MAX) -> list[JournalEntry]:
        """Return the last entries, the oldest of them first."""

    @abstractmethod
    def _add_entries(self, entries: Sequence[JournalEntry]) -> None:
        """Add entries, and let go of those beyond JOURNAL_MAX."""
