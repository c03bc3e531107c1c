"""Batches: the counts of a day that is not over, as far as who reads with a key is told of it."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from dither_aggregator.counting.folding import BadTally
from dither_aggregator.store.interface.epochs import Epochs
from dither_aggregator.store.interface.ledger import Ledger
from dither_aggregator.store.interface.tallies import Tallies
from dither_aggregator.store.packing import HOUR_S, pack_counts
from dither_aggregator.store.records import Batch, TallyKey

BATCH_MIN = 100
"""The least number of reports between any two figures of a metric that are ever shown of one day."""


class Batches(Ledger, Tallies, Epochs):
    """The counts of open days as they were cut at full hours, of all metrics at once.

    Each plan and day has the last cut and the one that is shown, which is at least BATCH_MIN reports older. So the
    sealed day differs by as many from all that was shown of it.
    """

    def cut_batches(self) -> None:
        """Cut the batches of an hour (UTC) that has begun; else only give up those of days that are sealed."""
        hour, sealed, (last, keys) = int(self._now_s() // HOUR_S), self.sealed(), self.batch_keys()
        if last is not None and hour <= last and all(epoch > sealed for _, epoch in keys):
            return
        last, kept = self.batches()
        still_open = [one for one in kept if one.epoch > sealed]
        if last is None:  # what was counted so far was at no full hour
            self._keep_batches(None, hour, [])
        elif hour > last:
            self._keep_batches(last, hour, list(self._cut(still_open)))
        elif len(still_open) < len(kept):
            self._keep_batches(last, last, still_open)

    def _cut(self, kept: Sequence[Batch]) -> Iterator[Batch]:
        """Yield the batches that are kept from now on, given those of before."""
        before = {(one.plan, one.epoch, one.shown): one for one in kept}
        sealed = self.sealed()
        for id_, days in self.all_epochs().items():
            for epoch in days:
                if epoch > sealed:
                    shown, last = before.get((id_, epoch, True)), before.get((id_, epoch, False))
                    with suppress(BadTally, KeyError):  # a damaged one holds up no other
                        tally = self.tally(self.plan_by_id(id_).plan, epoch)
                        if tally.n - (last.n if last else 0) >= BATCH_MIN:
                            shown = replace(last, shown=True) if last else None
                            last = Batch(id_, epoch, False, tally.n, pack_counts(tally.counts))
                    yield from (one for one in (shown, last) if one)

    @abstractmethod
    def batches(self) -> tuple[int | None, list[Batch]]:
        """Return the hour of the last cut, in hours since 1970, and all batches at one instant; None before any."""

    @abstractmethod
    def _keep_batches(self, last: int | None, hour: int, batches: Collection[Batch]) -> None:
        """Put these in the place of all batches *if the last cut is still that of `last`*, in one step."""

    def fill_batches(self, hour: int, batches: Collection[Batch]) -> None:
        """Take over the batches of another store."""
        self._keep_batches(None, hour, batches)

    def shown(self) -> set[TallyKey]:
        """Return the plans and open days of which a batch is shown."""
        _, keys = self.batch_keys()
        return {key for key, shown in keys.items() if shown}

    @abstractmethod
    def batch_keys(self) -> tuple[int | None, dict[TallyKey, bool]]:
        """Return the hour of the last cut, and whether a batch is shown of each plan and day that has any."""

    @abstractmethod
    def shown_batch(self, key: TallyKey) -> Batch | None:
        """Return the batch that is shown of a plan and day."""
