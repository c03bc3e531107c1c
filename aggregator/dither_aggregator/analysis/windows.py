"""Windows: ranges of epochs read as one. The tallies of a plan add up; what one device sends twice is no news twice."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Self

from dither_aggregator.analysis.rows import Days
from dither_aggregator.store import Store, StoredPlan
from dither_shared.terms import periods_touched

WINDOWS = (7, 28, 1)
"""How many days the windows on offer have, which end at the last sealed day: the first is the default."""
OVER_THE_EDGES = 2
"""A device is counted in a window for at most so many periods more than it touches: one report is built before the
window, and one waits."""


@dataclass(frozen=True)
class Window:
    """The epochs from `first` to `last`."""

    first: date
    last: date

    @classmethod
    def ending(cls, last: date, days: int) -> Self:
        """Return the window of so many days that ends with one, of fewer at the calendar's begin."""
        return cls(date.fromordinal(max(last.toordinal() - days + 1, 1)), last)

    @property
    def days(self) -> int:
        """How many epochs it has."""
        return (self.last - self.first).days + 1

    def __contains__(self, epoch: date) -> bool:
        return self.first <= epoch <= self.last

    @property
    def ends(self) -> Days:
        """Its ends, by the names that the API has for them."""
        return {"from": self.first, "to": self.last}

    def to_document(self) -> dict[str, object]:
        """Return its one epoch, or its ends."""
        if self.days == 1:
            return {"epoch": self.last.isoformat()}
        return {"from": self.first.isoformat(), "to": self.last.isoformat()}


def default_window(store: Store, stored: StoredPlan) -> Window:
    """Return the last sealed days: as many as the default has or, where fewer are there and kept, these."""
    return default_of(store.epochs(stored.plan), store.sealed(), store.tallies_from())


def default_of(epochs: Collection[date], sealed: date, kept_from: date) -> Window:
    """Return the same of a plan with reports on some days."""
    window = Window.ending(sealed, WINDOWS[0])
    there = min((epoch for epoch in epochs if epoch in window), default=window.first)
    first = window.first if any(epoch < window.first for epoch in epochs) else there
    return Window(min(max(first, kept_from), window.last), window.last)


def reports_max(stored: StoredPlan, days: int) -> int:
    """Return how many reports of one device a window of so many days has at most.

    A single day has 1, for devices send one a day. In plans of before 0.1.0 a device that was away sent a built report,
    a waiting one and today's together.
    """
    most = reports_possible(days, stored.period_days, once_a_day=stored.plan.once_a_day)
    cells = stored.plan.cells
    return most if cells.memoized else min(most, max(stored.reservation // cells.charge, 1))


def reports_possible(days: int, period_days: int, *, once_a_day: bool) -> int:
    """Return how many of its reports a device may have had to wait with or to make in so many days."""
    most = periods_touched(period_days, days) + OVER_THE_EDGES
    return min(most, days) if once_a_day else most


def may_return(stored: StoredPlan) -> bool:
    """Tell whether a device may have reports in two windows that share no day."""
    cells = stored.plan.cells
    return cells.memoized or stored.reservation // cells.charge > 1
