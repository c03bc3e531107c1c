"""The tallies of the SQLite store: a row a segment, in a table of its own once its day is merged."""

from collections.abc import Sequence
from datetime import date

from dither_aggregator.store.interface.tallies import Tallies
from dither_aggregator.store.records import Segment, TallyKey, Unmerged
from dither_aggregator.store.sqlite.opened import SQLiteOpened
from dither_aggregator.store.sqlite.rows import INSERT_SEGMENT, SELECT_OF_TALLY, segment_of, segment_row

_UNMERGED = """
SELECT DISTINCT plan, epoch, whole.low, whole.high FROM segment JOIN
(SELECT epoch, MIN(low) AS low, MAX(high) AS high FROM segment WHERE epoch <= ? GROUP BY epoch) AS whole USING (epoch)
WHERE segment.low > whole.low OR segment.high < whole.high
"""
"""Two segments of an epoch are each shorter than all of it: this finds both of them, and one that is too short."""


class SQLiteTallies(SQLiteOpened, Tallies):
    """Segments by where in the log they begin."""

    def segments(self, shard: int, plan: int, epoch: date) -> list[Segment]:
        """Return the segments of a tally."""
        size = self.plan_by_id(plan).plan.cells.tally_size
        rows = self._rows(SELECT_OF_TALLY, plan, epoch.isoformat())
        return [segment_of(plan, epoch, row, size) for row in rows]

    def crowded(self, shard: int, segments: int) -> list[TallyKey]:
        """Return the plans and epochs that have at least so many segments."""
        rows = self._rows("SELECT plan, epoch FROM segment GROUP BY plan, epoch HAVING COUNT(*) >= ?", segments)
        return [(plan, date.fromisoformat(epoch)) for plan, epoch in rows]

    def replace_segments(self, shard: int, old: Sequence[Segment], new: Segment) -> bool:
        """Put one segment in the place of the first ones of a tally."""
        first_ones = (new.plan, new.epoch.isoformat(), old[-1].high)
        row = segment_row(new)
        with self._transaction() as db:
            rows = db.execute(
                "SELECT low, high FROM segment WHERE plan = ? AND epoch = ? AND high <= ? ORDER BY low", first_ones
            ).fetchall()
            if rows != [(one.low, one.high) for one in old]:
                return False
            db.execute("DELETE FROM segment WHERE plan = ? AND epoch = ? AND high <= ?", first_ones)
            db.execute(INSERT_SEGMENT, row)
        return True

    def note_merged(self, shard: int) -> list[Unmerged]:
        """Move the sealed days into the table of those that are merged, if they are."""
        state = self._states()
        if state.get("merged") == state["sealed"]:
            return []
        with self._transaction() as db:
            sealed = self._day_of("sealed").isoformat()
            rows = db.execute(_UNMERGED, (sealed,)).fetchall()
            if not rows:
                db.execute("INSERT INTO tally SELECT * FROM segment WHERE epoch <= ?", (sealed,))
                db.execute("DELETE FROM segment WHERE epoch <= ?", (sealed,))
                self._rewrite("segment")
                self._set_state("merged", sealed)
        return [Unmerged(plan, date.fromisoformat(epoch), low, high) for plan, epoch, low, high in rows]
