"""When a device answers: days, periods, and the periods drawn in advance.

A device knows whole UTC days only, counted from 1 January 1970. A period of k days starts on the days divisible by k,
so it starts on the same day for everybody.
"""

from datetime import date

from dither_shared.registry import Metric
from dither_shared.rng import Rng

EPOCH = date(1970, 1, 1)
YEAR_DAYS = 365


def day_number(day: date) -> int:
    """Return the days from 1 January 1970 to `day`."""
    return (day - EPOCH).days


def period_start(day: int, period_days: int) -> int:
    """Return the first day of the period that `day` is in."""
    return day - day % period_days


def answers_always(metric: Metric) -> bool:
    """Tell whether the device answers in each of its periods while it may, with nothing to draw."""
    return metric.schedule == "early" or metric.charges >= len(_periods(metric))


def draw_periods(metric: Metric, rng: Rng) -> list[int]:
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


def _periods(metric: Metric) -> list[int]:
    last = day_number(metric.expires) - 1
    first = period_start(last - YEAR_DAYS + 1, metric.period_days)
    return list(range(first, last + 1, metric.period_days))
