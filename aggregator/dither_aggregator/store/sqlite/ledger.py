"""The ledger of the SQLite store."""

from datetime import date
from itertools import groupby
from operator import itemgetter

from dither_aggregator.store.interface.ledger import Ledger, with_pending
from dither_aggregator.store.packing import HOUR_S, count_pending
from dither_aggregator.store.records import Counted, TallyKey
from dither_aggregator.store.sqlite.opened import SQLiteOpened
from dither_aggregator.store.sqlite.rows import SELECT_LEDGER, ledger_of
from dither_shared.plan import Plan


class SQLiteLedger(SQLiteOpened, Ledger):
    """A row a plan and epoch, without what is pending."""

    def shard_ledger(self, shard: int) -> dict[TallyKey, Counted]:
        """Return the ledger with what is pending, at one instant."""
        with self._instant() as db:
            pending = count_pending(entry for (entry,) in db.execute("SELECT entry FROM log"))
            rows = db.execute(SELECT_LEDGER).fetchall()
        return with_pending(dict(ledger_of(*row) for row in rows), pending)

    def epochs(self, plan: Plan) -> list[date]:
        """Return the days on which reports of the plan were accepted."""
        rows = self._rows(
            "SELECT epoch FROM ledger WHERE plan = ? AND accepted > 0 ORDER BY epoch DESC", self._plans.get(plan).id
        )
        return [date.fromisoformat(epoch) for (epoch,) in rows]

    def all_epochs(self) -> dict[int, list[date]]:
        """Return the days on which reports of each plan were accepted."""
        rows = self._rows("SELECT plan, epoch FROM ledger WHERE accepted > 0 ORDER BY plan, epoch DESC")
        return {
            plan: [date.fromisoformat(epoch) for _, epoch in of_plan] for plan, of_plan in groupby(rows, itemgetter(0))
        }

    def _enter(self, epoch: date, counts: dict[int, int]) -> None:
        """Within a transaction: count reports as accepted."""
        self._db.executemany(
            "INSERT INTO ledger (plan, epoch, accepted) VALUES (?, ?, ?) "
            "ON CONFLICT (plan, epoch) DO UPDATE SET accepted = accepted + excluded.accepted",
            [(plan, epoch.isoformat(), n) for plan, n in counts.items()],
        )

    def _begin_to_wait(self) -> None:
        """Within a transaction, before something is put into the log: note the time if nothing waits yet."""
        if not self._db.execute("SELECT 1 FROM log LIMIT 1").fetchone():
            self._set_state("waiting_since", self._now_s())

    def _wait_on(self) -> None:
        """Within a transaction, after something left the log: note the time, to the hour if nothing waits any more."""
        now = self._now_s()
        waits = self._db.execute("SELECT 1 FROM log LIMIT 1").fetchone()
        self._set_state("waiting_since", now if waits else now - now % HOUR_S)

    def _move(self, column: str, plan: int, epoch: date, n: int) -> None:
        """Within a transaction: add to a column of the ledger."""
        self._db.execute(
            f"UPDATE ledger SET {column} = {column} + ? WHERE plan = ? AND epoch = ?",  # noqa: S608 - our own words
            (n, plan, epoch.isoformat()),
        )
