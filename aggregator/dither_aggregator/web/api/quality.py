"""Data quality as rows: counts that honest devices hardly ever send, day by day."""

from typing import Literal

from dither_aggregator.analysis.quality.verdict import ALPHA
from dither_aggregator.store import Store
from dither_aggregator.web.api.rowsets import RowsAsked, RowSet
from dither_aggregator.web.queries import asked_quality
from dither_aggregator.web.query_parameters import PlanAsked, QueryParameters, WindowAsked

Verdict = Literal["implausible", "nothing found"]
QUALITY = (
    *("metric", "rev", "epoch", "n", "check", "tests", "of", "observed", "expected_lower", "expected_upper"),
    *("p_value", "verdict"),
)


class QualityAsked(WindowAsked, PlanAsked, RowsAsked):
    """The days of a metric to check."""


def quality(store: Store, asked: QueryParameters, metric: str) -> RowSet:
    """Return a row for each check of each closed day that has reports: the count that is farthest off."""
    stored, window, days = asked_quality(store, metric, asked)
    plan = stored.plan
    rows = [
        (
            *(metric, plan.rev, day.epoch.isoformat(), day.n, one.check, one.tests, one.of, one.observed),
            *(one.low, one.high, one.p_value, _verdict(implausible=one.implausible)),
        )
        for day in days
        for one in day.checks
    ]
    meta = {
        "app": store.app,
        "metric": metric,
        "question": stored.question,
        "plan": plan.digest,
        "rev": plan.rev,
        "from": window.first.isoformat(),
        "to": window.last.isoformat(),
        "days_checked": len(days),
        "days_implausible": sum(day.worst is not None for day in days),
        "false_alarms": ALPHA,
    }
    return RowSet(meta, QUALITY, rows, f"{metric}-quality-{window.first}-{window.last}")


def _verdict(*, implausible: bool) -> Verdict:
    return "implausible" if implausible else "nothing found"
