"""The ledger: where the accepted reports of each plan and epoch are."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import Counted, LedgerRow, TallyKey
from dither_shared.plan import Plan


class Ledger(Opened):
    """Reports by where they are."""

    def ledger(self) -> list[LedgerRow]:
        """Return where the reports of each metric, plan and epoch are, by metric, epoch and plan."""
        totals: dict[TallyKey, Counted] = {}
        for shard in range(self.shards):
            for key, counted in self.shard_ledger(shard).items():
                totals[key] = totals.get(key, Counted()) + counted
        rows = [
            LedgerRow(*self._names_of(id_), epoch.isoformat(), **vars(total))
            for (id_, epoch), total in sorted(totals.items(), key=lambda item: item[0])
            if total != Counted()
        ]
        return sorted(rows, key=lambda row: (row.metric, row.epoch))

    def _names_of(self, id_: int) -> tuple[str, str]:
        """Return a plan's metric and digest; what a damaged log or ledger says may be of a plan there is not."""
        try:
            plan = self.plan_by_id(id_).plan
        except KeyError:
            return "unknown", f"plan {id_}"
        return plan.metric, plan.digest

    @abstractmethod
    def shard_ledger(self, shard: int) -> dict[TallyKey, Counted]:
        """Return where a shard's reports are, by plan and epoch, all at one instant. `pending` is counted."""

    @abstractmethod
    def epochs(self, plan: Plan) -> list[date]:
        """Return the days on which reports of the plan were accepted, latest first."""

    @abstractmethod
    def all_epochs(self) -> dict[int, list[date]]:
        """Return the same of each plan that has any, by its id, at once."""


def with_pending(kept: Mapping[TallyKey, Counted], pending: Mapping[TallyKey, int]) -> dict[TallyKey, Counted]:
    """Return a ledger as it is kept with what was counted in the log at the same instant."""
    return {key: replace(kept.get(key, Counted()), pending=pending.get(key, 0)) for key in kept.keys() | pending.keys()}
