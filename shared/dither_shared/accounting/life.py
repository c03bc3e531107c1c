"""From metrics to events: what a device says about them in so many days, or ever, and a browser's devices in a year.

Evictions. A budget is for the life of a browser's storage. Safari deletes what a page has kept after seven days of its
use without a visit; the next visit is a new device's. Somebody who visits on L days and stays away for 7, again and
again, is 365 / (L + 7) devices in a year, rounded up. Each is quiet for `quiet_days` and then charged in the periods of
L - `quiet_days` days at most. The L with which all of them may be charged most is what `Evictions` has. A metric whose
periods are drawn ("spread") counts as if each of them could be drawn in each life; the mean is no more than without
evictions, for each device draws each period of the year with the same probability.
"""

from collections.abc import Sequence

from dither_shared.accounting.events import AllOf, Outputs
from dither_shared.frozen import frozen
from dither_shared.registry import Metric, Registry

YEAR_DAYS = 365
AWAY_DAYS = 7
"""Days without a visit after which Safari deletes what a page has kept (WebKit, 24 March 2020)."""


def outputs_of(metric: Metric, days: int | None = None) -> Outputs:
    """Return what a device says about a metric in any `days` days in a row, or in its whole life.

    A memoized answer enters once with its permanent epsilon, however often it is repeated.
    """
    times = metric.charges if days is None else min(metric.charges, periods_touched(metric.period_days, days))
    return Outputs(metric.charge, times)


def outputs_of_all(metrics: Sequence[Metric], days: int | None = None) -> AllOf:
    """Return the same of several metrics of one device."""
    return AllOf(tuple(outputs_of(metric, days) for metric in metrics))


def periods_touched(period_days: int, days: int) -> int:
    """Return the most periods that so many days in a row have a day of: in each a device answers once at most."""
    return (days + period_days - 2) // period_days + 1


@frozen
class Evictions:
    """The most that a person may be charged in a year in which a browser deletes what a page has kept."""

    micro: int
    """Micro-epsilon of all metrics and devices together."""
    devices: int
    """How many devices the person is."""
    days: int
    """On how many days in a row they visit, before they stay away for so long that the storage goes."""


def evictions(registry: Registry) -> Evictions:
    """Return what a year of evictions costs a person at most, over all ways to come and go."""

    metrics = registry.metrics.values()

    def charged(visited: int) -> int:
        days = visited - registry.quiet_days
        return sum(outputs_of(metric, days).micro for metric in metrics) if days > 0 else 0

    def year(visited: int) -> Evictions:
        whole, rest = divmod(YEAR_DAYS, visited + AWAY_DAYS)
        micro = whole * charged(visited) + charged(min(rest, visited))
        return Evictions(micro, whole + (rest > 0), visited)

    return max(map(year, range(1, YEAR_DAYS + 1)), key=lambda one: (one.micro, -one.days))
