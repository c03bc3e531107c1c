"""When a device answers: days, periods, and the periods drawn in advance.

A device knows whole UTC days only, counted from 1 January 1970. A period of k days starts on the days divisible by k,
so it starts on the same day for everybody.
"""

from datetime import date
from typing import Protocol

from dither_shared.rng import Rng

EPOCH = date(1970, 1, 1)
YEAR_DAYS = 365
GRACE_DAYS = 7
"""For so long after a metric expires an aggregator takes its reports: one that leaves later is not made."""


class Scheduled(Protocol):
    """The part of a metric that decides when it is answered."""

    @property
    def schedule(self) -> str:
        """Return "spread" or "early"."""

    @property
    def charges(self) -> int:
        """Return the most reports, or, memoized, different answers."""

    @property
    def period_days(self) -> int:
        """Return the length of a period."""

    @property
    def expires(self) -> date:
        """Return the first day on which it has expired."""

    @property
    def hidden(self) -> bool:
        """Tell whether its reports leave when their period has closed."""


def day_number(day: date) -> int:
    """Return the days from 1 January 1970 to `day`."""
    return (day - EPOCH).days


def period_start(day: int, period_days: int) -> int:
    """Return the first day of the period that `day` is in."""
    return day - day % period_days


def end_of_period(metric: Scheduled, today: int) -> int:
    """Return the first day after the period that today is in."""
    return period_start(today, metric.period_days) + metric.period_days


def silent_from(metric: Scheduled, today: int) -> int:
    """Return the first day on which a metric is silent because it expires; a hidden one, whose report would be late."""
    expires = day_number(metric.expires)
    late = metric.hidden and end_of_period(metric, today) >= expires + GRACE_DAYS
    return min(expires, today) if late else expires


def answers_always(metric: Scheduled) -> bool:
    """Tell whether the device answers in each of its periods while it may, with nothing to draw."""
    return metric.schedule == "early" or metric.charges >= len(_periods(metric))


def draw_periods(metric: Scheduled, rng: Rng) -> list[int]:
    """Return the first days of `metric.charges` periods of the year before the metric expires, as they were drawn.

    The whole year is drawn from, whenever the device came: those before it came are lost, so that a device that has
    been there for a month has answered in as many of its days as one that has been there for a year. Nothing drawn
    depends on an answer.
    """
    candidates = _periods(metric)
    drawn = []
    for _ in range(min(metric.charges, len(candidates))):
        drawn.append(candidates.pop(rng.uniform(len(candidates))))
    return drawn


def _periods(metric: Scheduled) -> list[int]:
    last = day_number(metric.expires) - 1
    first = period_start(last - YEAR_DAYS + 1, metric.period_days)
    return list(range(first, last + 1, metric.period_days))
