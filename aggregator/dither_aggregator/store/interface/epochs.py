"""Epochs: days are sealed, then finalized, and in the end their tallies and snapshots are given up."""

from abc import abstractmethod
from datetime import date

from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.records import Final, Retention, TallyKey
from dither_shared.plan import Plan


class Epochs(Opened):
    """Days, from the one that is open to those that are forgotten."""

    def today(self) -> date:
        """Return the current epoch: the day by the clock, or the latest day that a shard has used."""
        return max([self.clock_day(), *(shard.day for shard in self.status())])

    def sealed(self) -> date:
        """Return the latest epoch that every shard has sealed: nothing can enter it."""
        return min(shard.sealed for shard in self.status())

    def merged(self) -> date:
        """Return the latest epoch that every shard has sealed, and whose tallies it has merged."""
        return min(shard.merged for shard in self.status())

    @abstractmethod
    def seal(self, shard: int) -> date:
        """Close the days of a shard that are over and have nothing pending; return the latest closed day.

        Nothing enters a closed day: the shard's day moves beyond it in the same step.
        """

    @abstractmethod
    def finals(self, plan: Plan) -> dict[date, Final]:
        """Return what is kept of a plan's finalized epochs."""

    @abstractmethod
    def all_finals(self) -> set[TallyKey]:
        """Return the plans and epochs that are finalized, of all plans at once."""

    @abstractmethod
    def finalize(self, plan: Plan, epoch: date, final: Final, snapshot: bytes) -> Final:
        """Record a merged epoch's final digest with its snapshot, once; return what is recorded, now or from before."""

    @abstractmethod
    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content; None where there is none, or none any more."""

    @abstractmethod
    def retention(self) -> Retention:
        """Return for how long tallies and snapshots are kept."""

    @abstractmethod
    def set_retention(self, retention: Retention) -> None:
        """Change how long the store keeps them. Tallies and snapshots already given up do not come back."""

    @abstractmethod
    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept; those before were given up."""

    @abstractmethod
    def forget_answers(self, shard: int) -> None:
        """Keep of the uploads of a shard's sealed days that they were taken, and not how many reports they held.

        A copy is told "duplicate" then, with counts of 0.
        """

    @abstractmethod
    def forget(self, shard: int) -> None:
        """Forget the upload ids that no device sends any more, and old counts of refused groups and tallies of a shard.

        A tally is given up only when it is finalized.
        """

    @abstractmethod
    def forget_snapshots(self) -> None:
        """Forget the snapshots that need not be kept; what is recorded of their epochs stays."""
