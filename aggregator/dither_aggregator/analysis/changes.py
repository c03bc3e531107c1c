"""Changes: every metric's last days beside the days before, with a false discovery rate over the metrics.

A metric is one test: so many values times the smallest of their p-values. R of M metrics are chosen by Benjamini and
Hochberg, and within each of them values are called moved by Holm at alpha R / M (`multiplicity`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from dither_aggregator.analysis.differences import Comparison, compare
from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.multiplicity import benjamini_hochberg
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.windows import Window
from dither_aggregator.counting.folding import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan

DAYS = 7


@dataclass(frozen=True)
class Changes:
    """The changes between two windows, metric by metric."""

    before: Window
    after: Window
    moved: Sequence[Comparison]
    """Metrics in which something moved, the surest first, each with its verdicts."""
    still: Sequence[StoredPlan]
    """Metrics in which nothing can be told to have moved."""
    untold: Sequence[StoredPlan]
    """Metrics that have no reports, or no counts any more, in one of the windows."""
    damaged: Sequence[StoredPlan]
    """Metrics whose counts cannot be those of any reports."""
    open: Sequence[tuple[StoredPlan, NotReady]] = ()
    """Metrics that are not computed yet. With them, others may be told to have moved."""


def side_by_side(epochs: Collection[date], sealed: date, kept_from: date) -> tuple[Window, Window]:
    """Return the last sealed days, and as many before them: a week each or, of a younger store, half of its days."""
    there = [epoch for epoch in epochs if kept_from <= epoch <= sealed]
    age = (sealed - min(there, default=sealed)).days + 1
    days = min(DAYS, max(age // 2, 1))
    after = Window.ending(sealed, days)
    return Window.ending(after.first - timedelta(days=1), days), after


def windows_beside(store: Store, plans: Sequence[StoredPlan]) -> tuple[Window, Window]:
    """Return the two windows that changes of some plans are told of."""
    epochs = store.all_epochs()
    days = {day for stored in plans for day in epochs.get(stored.id, [])}
    return side_by_side(days, store.sealed(), store.tallies_from())


def changes(
    store: Store, plans: Sequence[StoredPlan], before: Window, after: Window, alpha: float = 1 - CONFIDENCE
) -> Changes:
    """Compare two windows of some plans, and tell in which metrics something moved."""
    compared: list[Comparison] = []
    untold: list[StoredPlan] = []
    damaged: list[StoredPlan] = []
    missing: list[tuple[StoredPlan, NotReady]] = []
    for stored in plans:
        try:
            one = compare(store, stored, before, after)
        except TallyGone:
            untold.append(stored)
        except BadTally:
            damaged.append(stored)
        except NotReady as error:
            missing.append((stored, error))
        else:
            (compared.append(one) if one.rows else untold.append(stored))
    chosen_by_test, within = tell([one.p_value for one in compared], alpha)
    moved: list[Comparison] = []
    still: list[Comparison] = []
    for one, chosen in zip(compared, chosen_by_test, strict=True):
        try:
            told = compare(store, one.after.stored, before, after, within) if chosen else one
        except NotReady as error:
            missing.append((one.after.stored, error))
        else:
            (moved if chosen and told.moved else still).append(told)
    return Changes(
        before,
        after,
        sorted(moved, key=lambda one: one.p_value),
        [one.after.stored for one in still],
        untold,
        damaged,
        missing,
    )


def tell(p_values: Sequence[float], alpha: float = 1 - CONFIDENCE) -> tuple[Sequence[bool], float]:
    """Return in which metrics something moved, and the alpha at which their values are then told."""
    rejected = benjamini_hochberg(np.array(p_values), alpha)
    return rejected.tolist(), alpha * float(rejected.sum()) / max(len(p_values), 1)
