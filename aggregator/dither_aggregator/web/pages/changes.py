"""What moved: the last sealed week beside the week before, over all metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache
from flask import current_app, render_template

from dither_aggregator.analysis.changes import Changes, changes, default_windows
from dither_aggregator.analysis.differences import Comparison, Difference
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.api import too_long
from dither_aggregator.web.asking import Parameters, given
from dither_aggregator.web.pages.words import count

VALUES_SHOWN = 5
METRICS_SHOWN = 100


@dataclass(frozen=True)
class Moved:
    """What a metric's entry shows."""

    comparison: Comparison
    rows: Sequence[Difference]
    more: int
    """How many values moved that are not shown here."""


def show(store: Store) -> str:
    """Return the page that a request asks for."""
    given(Parameters)
    told, left_out = changed(store)
    moved = [
        Moved(one, one.moved[:VALUES_SHOWN], max(0, len(one.moved) - VALUES_SHOWN))
        for one in told.moved[:METRICS_SHOWN]
    ]
    return render_template("changes.html", told=told, moved=moved, headline=headline(told), left_out=left_out)


def changed(store: Store) -> tuple[Changes, Sequence[StoredPlan]]:
    """Return what moved in the metrics of the registry, and those whose lists of candidates are too long for here."""
    plans = [stored for stored in store.plans() if stored.current]
    long = [stored for stored in plans if too_long(stored)]
    key = default_windows(store), tuple(stored.plan.digest for stored in plans), store.tallies_from()
    kept: LRUCache[object, Changes] = current_app.extensions.setdefault("changes", LRUCache(1))
    told = kept.get(key)
    if told is None:  # sealed days do not change: the page of a day is made once
        told = kept[key] = changes(store, [stored for stored in plans if stored not in long])
    return told, long


def headline(told: Changes) -> str:
    """Return in a sentence what moved."""
    compared = len(told.moved) + len(told.still)
    if not compared:
        return "Nothing can be compared yet: no metric has reports in both weeks."
    if not told.moved:
        return f"Nothing can be told to have moved, in any of {count(compared, 'metric')}."
    return f"Something moved in {len(told.moved):,} of {count(compared, 'metric')}."
