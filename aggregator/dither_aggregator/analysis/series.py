"""Series: a few values of a metric day by day, each plan by itself, with intervals that hold all at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from dither_aggregator.analysis.estimands import estimand_of, read, read_days
from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.reading import WINDOWS, View, Window
from dither_aggregator.analysis.rows import MadeRow, Row
from dither_aggregator.counting.folding import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan

VALUES_MAX = 5
DAYS, WEEKS = WINDOWS[0], 6
"""Days of a week, and the weeks of a card."""


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
    store: Store,
    plans: Sequence[StoredPlan],
    window: Window,
    values: Sequence[str],
    confidence: float = CONFIDENCE,
    together: int = 0,
) -> list[Point]:
    """Return the points of some values under the plans that know them, by value, then by plan and day.

    Intervals hold together for all days of all plans, of `together` days at least, and for all values of a plan: a
    reader chose these few out of all.
    """
    days = max(together, days_shown(store, plans, window))
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


def days_shown(store: Store, plans: Sequence[StoredPlan], window: Window) -> int:
    """Return how many days of some plans a window has."""
    return sum(len(store.epochs(stored.plan, window.first, window.last)) for stored in plans)


def weeks(
    store: Store, stored: StoredPlan, last: date, value: str, *, but_damaged: bool = False
) -> list[tuple[date, Row]]:
    """Return the ends of the last weeks, the last of which ends with a day, each with a value's share or number there.

    Intervals hold together for all of these weeks and all values. A week whose counts are no longer kept is left out,
    and all are of an estimand whose readings take long. Raises BadTally for damaged counts, or leaves them out, too.
    """
    estimand = estimand_of(stored.plan)
    if estimand.slow or not estimand.knows(stored, value):
        return []
    begin = max(min(store.epochs(stored.plan), default=last), store.tallies_from())
    ends = [last - timedelta(days=DAYS * back) for back in range(WEEKS)]
    ends = [end for end in ends if Window.ending(end, DAYS).first >= begin]
    view = View("population", simultaneous=True, values=(value,), days=DAYS, together=max(len(ends), 1))
    rows = []
    for end in reversed(ends):
        try:
            rows += [(end, row) for row in read(store, stored, end, view).rows if row.value == value]
        except TallyGone:
            continue
        except BadTally:
            if not but_damaged:
                raise
    return rows
