"""Series: a few values of a metric day by day, each plan by itself, with intervals that hold all at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from dither_aggregator.analysis.estimands import estimand_of, read_days
from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.rows import MadeRow
from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan

VALUES_MAX = 5


@dataclass(frozen=True)
class Point(MadeRow):
    """One value on one day: shares of the population that the n reports are a sample of, not percent; or untold."""

    plan: str
    """The plan's digest: points of different plans do not join."""
    rev: int
    epoch: date
    n: int
    provisional: bool
    left_out: int | None = 0
    """Reports of the day that are not among the n."""


def series(
    store: Store, plans: Sequence[StoredPlan], window: Window, values: Sequence[str], confidence: float = CONFIDENCE
) -> list[Point]:
    """Return the points of some values under the plans that know them, by value, then by plan and day.

    Intervals hold together for all days of all plans, and for all values of a plan: a reader chose these few out of
    all.
    """
    days = sum(day in window for stored in plans for day in store.epochs(stored.plan))
    points = []
    for stored in plans:
        known = tuple(value for value in values if estimand_of(stored.plan).knows(stored, value))
        view = View("population", simultaneous=True, confidence=confidence, values=known, together=max(days, 1))
        for reading in read_days(store, stored, window, view) if known else ():
            points += [
                Point(
                    *(row.value, row.estimate, row.std_error, row.lower, row.upper, row.told_error is not None),
                    *(
                        stored.plan.digest,
                        stored.plan.rev,
                        reading.epoch,
                        reading.n,
                        reading.provisional,
                        reading.left_out,
                    ),
                )
                for row in (*reading.rows, *reading.untold)
            ]
    return sorted(points, key=lambda point: values.index(point.value))
