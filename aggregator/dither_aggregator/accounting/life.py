"""From metrics to events: what a device says about them in so many days, or ever."""

from collections.abc import Sequence

from dither_aggregator.accounting.events import AllOf, Outputs
from dither_shared.registry import Metric
from dither_shared.terms import periods_touched


def outputs_of(metric: Metric, days: int | None = None) -> Outputs:
    """Return what a device says about a metric in any `days` days in a row, or in its whole life.

    A memoized answer enters once with its permanent epsilon, however often it is repeated.
    """
    times = metric.charges if days is None else min(metric.charges, periods_touched(metric.period_days, days))
    return Outputs(metric.charge, times)


def outputs_of_all(metrics: Sequence[Metric], days: int | None = None) -> AllOf:
    """Return the same of several metrics of one device."""
    return AllOf(tuple(outputs_of(metric, days) for metric in metrics))
