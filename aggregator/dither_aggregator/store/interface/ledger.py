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
        return self.named(self.counted())

    def counted(self) -> dict[TallyKey, Counted]:
        """Return the same by plan and epoch, without names: of many plans and days a third of the work."""
        totals: dict[TallyKey, Counted] = {}
        for shard in range(self.shards):
            for key, counted in self.shard_ledger(shard).items():
                totals[key] = totals[key] + counted if key in totals else counted
        return totals

    def named(self, totals: Mapping[TallyKey, Counted]) -> list[LedgerRow]:
        """Return rows by metric, epoch and plan; of a plan and epoch without any report there is none."""
        nothing = Counted()
        rows = [
            LedgerRow(*self._names_of(id_), epoch.isoformat(), **vars(total))
            for (id_, epoch), total in sorted(totals.items(), key=lambda item: item[0])
            if total != nothing
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
    return {**kept, **{key: replace(kept.get(key, Counted()), pending=n) for key, n in pending.items()}}
