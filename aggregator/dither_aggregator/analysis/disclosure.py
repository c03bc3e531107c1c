"""A read key is told windows of sealed days, batches of today, and no cell of a few reports.

    day      one that is not sealed is told in batches (`store/contract.py`); a sealed one of fewer than
             BATCH_MIN reports only together with others; that it has any reports is told
    cell     one that has fewer than CELL_MIN reports in a window is left out of it, with its reports; of memoized
             answers one of which fewer than CELL_MIN devices are known to have reported, as one device repeats its memo

A report's cell is drawn without a look at the answer, so estimates from the other cells stay unbiased. Values of a
public column are set by the app: where the rarest are left out, totals are of the devices with the others, and say so.

This holds off somebody who reads and sends nothing. A reader who uploads can surround a report with reports of their
own, and two windows can be subtracted from each other. Epsilon holds against all of that: shared/threats.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

import numpy as np

from dither_aggregator.analysis.inference import effective
from dither_aggregator.analysis.windows import Window, reports_max
from dither_aggregator.counting.folding import Counts, tables
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.document_kinds import Document
from dither_aggregator.store.packing import unpack_counts
from dither_shared.cells import Cells
from dither_shared.plan import Plan

CELL_MIN = 20
"""With fewer reports, or devices that repeat their memo, a cell is left out."""


@dataclass(frozen=True)
class Pooled:
    """The counts of a window's days, added up."""

    window: Window
    tally: Tally
    days: int
    """How many of its days have reports."""
    largest: Counts
    """The most reports of one day that each cell has, int64[cells]."""

    @classmethod
    def of(cls, stored: StoredPlan, window: Window, tallies: Iterable[Tally]) -> "Pooled":
        """Add up the tallies of a window's days."""
        cells = stored.plan.cells
        n, days = 0, 0
        counts, largest = np.zeros(cells.tally_size, dtype=np.int64), np.zeros(cells.count, dtype=np.int64)
        for tally in tallies:
            n, days = n + tally.n, days + (tally.n > 0)
            counts += tally.counts
            np.maximum(largest, sizes(cells, tally.counts), out=largest)
        return cls(window, Tally(n, counts), days, largest)


def sizes(cells: Cells, counts: Counts) -> Counts:
    """Return how many reports each cell has, int64[cells]."""
    return np.concatenate([table[:, 0] for _, table, _ in tables(cells, counts)], dtype=np.int64)


def crowded(stored: StoredPlan, pooled: Pooled) -> Counts:
    """Return which cells of a window have enough reports, bool[cells]; one without any has."""
    cells = stored.plan.cells
    reports = sizes(cells, pooled.tally.counts)
    enough = reports
    if cells.memoized:
        most = reports_max(stored, pooled.window.days)
        of_days = np.ceil(effective(reports.astype(np.float64), most, permanent=True))
        enough = np.maximum(-(-pooled.largest // reports_max(stored, 1)), of_days)
    kept: Counts = (enough >= CELL_MIN) | (reports == 0)
    return kept


def without_few(stored: StoredPlan, pooled: Pooled) -> Tally:
    """Return the counts of a window without its cells of a few reports, and how many reports these had."""
    if pooled.days == 1 and pooled.tally.n < BATCH_MIN:
        return Tally(0, np.zeros_like(pooled.tally.counts), left_out=None)
    cells, kept = stored.plan.cells, crowded(stored, pooled)
    if kept.all():
        return pooled.tally
    counts = pooled.tally.counts.copy()
    for _, table, first in tables(cells, counts):
        table[~kept[first : first + len(table)]] = 0
    n = int(sizes(cells, counts).sum())
    return Tally(n, counts, left_out=pooled.tally.n - n)


def visible_tally(store: Store, stored: StoredPlan, pooled: Pooled) -> Tally:
    """Return what is read of a window's counts: all, or what a read key is told."""
    return pooled.tally if sees_all(store) else without_few(stored, pooled)


def sees_all(store: Store) -> bool:
    """Whether live figures and raw counts are told: to an admin key, and to the operator at loopback without keys."""
    return not isinstance(store, _Readers)


def for_readers(store: Store) -> Store:
    """Return a store as a read key sees it. It has nothing but what pages and API ask of it."""
    return cast("Store", _Readers(store))


_AS_THEY_ARE = frozenset(
    {
        *("app", "lossy", "plans", "stored", "plan_by_id", "today", "sealed", "tallies_from", "finals"),
        *("snapshot", "keeper"),
    }
)
"""Parts of a store that tell a read key no more than it may know: days, plans, and what is recorded of sealed days."""


class _Readers:
    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name not in _AS_THEY_ARE:
            raise AttributeError(f"a read key is not told {name!r} of a store")
        return getattr(self._store, name)

    @property
    def generation(self) -> str:
        """Another than the store's: what is kept of readings of all counts is not told."""
        return f"{self._store.generation} read"

    def documents(self, kind: type[Document]) -> list[Document]:
        """Return all documents of a kind that readers may know."""
        if not kind.public:
            raise AttributeError(f"a read key is not told the {kind.kind} of a store")
        return self._store.documents(kind)

    def backlog(self) -> int:
        """Tell of no upload that waits."""
        return 0

    def epochs(self, plan: Plan, first: date = date.min, last: date = date.max) -> list[date]:
        """Return the sealed days on which reports of the plan were accepted, and those of which a batch is shown."""
        days = self._store.epochs(plan, first, last)
        return self._visible_days({self._store.stored(plan).id: days})[self._store.stored(plan).id]

    def all_epochs(self) -> dict[int, list[date]]:
        """Return the same of each plan that has any."""
        return {id_: days for id_, days in self._visible_days(self._store.all_epochs()).items() if days}

    def _visible_days(self, epochs: dict[int, list[date]]) -> dict[int, list[date]]:
        sealed, shown = self._store.sealed(), self._store.shown()
        return {id_: [day for day in days if day <= sealed or (id_, day) in shown] for id_, days in epochs.items()}

    def tally(self, plan: Plan, epoch: date) -> Tally:
        """Return the tally of a sealed day, to be added up and then `told`; of another one what is shown of it."""
        if epoch <= self._store.sealed():
            return self._store.tally(plan, epoch)
        batch = self._store.shown_batch((self._store.stored(plan).id, epoch))
        size = plan.cells.tally_size
        if batch is None:
            return Tally(0, np.zeros(size, dtype=np.int64))
        return Tally(batch.n, unpack_counts(batch.packed, size))
