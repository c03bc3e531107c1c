"""Data quality as rows: counts that honest devices hardly ever send, day by day."""

from datetime import date
from typing import Annotated, Literal

import msgspec

from dither_aggregator.analysis.quality import ALPHA, Check
from dither_aggregator.analysis.rows import Days, says
from dither_aggregator.store import Store
from dither_aggregator.web.api.rowsets import RowsAsked, RowSet, StoredPlanMeta, meta_of
from dither_aggregator.web.queries import asked_quality
from dither_aggregator.web.query_parameters import PlanAsked, QueryParameters, WindowAsked


class QualityMeta(Days, StoredPlanMeta):
    """The days that were checked, and their plan."""

    days_checked: Annotated[int, says("closed days with reports whose counts are kept")]
    days_implausible: Annotated[int, says("those with a check that is implausible")]
    false_alarms: Annotated[float, says("at most this part of a sound metric's days is called implausible")]


class QualityRow(msgspec.Struct, frozen=True):
    """One check of one closed day, with the count that is farthest off."""

    metric: str
    rev: int
    epoch: Annotated[date, says("the day (UTC), by itself")]
    n: Annotated[int, says("its reports")]
    check: Annotated[
        Check,
        says(
            "cells are reports by cell or cohort; shares support of a value, a bit or a symbol, between what nobody "
            "and what everybody would give; ones the bits set in all reports; unused the support of values that "
            "nobody can have, each by itself or together"
        ),
    ]
    tests: Annotated[int, says("how many counts it looks at")]
    of: Annotated[str, says("the name of the count, in words that follow the number")]
    observed: Annotated[int, says("the count")]
    expected_lower: Annotated[float, says("the least that is expected, whatever is answered")]
    expected_upper: Annotated[float, says("the most")]
    p_value: Annotated[
        float, says("how often honest devices are so far off at most, in any of the counts of five checks")
    ]
    verdict: Literal["implausible", "nothing found"]


class QualityAsked(WindowAsked, PlanAsked, RowsAsked):
    """The days of a metric to check."""


def quality(store: Store, asked: QueryParameters, metric: str) -> RowSet[QualityMeta, QualityRow]:
    """Return a row for each check of each closed day that has reports: the count that is farthest off."""
    stored, window, days = asked_quality(store, metric, asked)
    rows = [
        QualityRow(
            *(metric, stored.plan.rev, day.epoch, day.n, one.check, one.tests, one.of, one.observed),
            *(one.low, one.high, one.p_value, "implausible" if one.implausible else "nothing found"),
        )
        for day in days
        for one in day.checks
    ]
    meta: QualityMeta = {
        **meta_of(store, stored),
        **window.ends,
        "days_checked": len(days),
        "days_implausible": sum(day.worst is not None for day in days),
        "false_alarms": ALPHA,
    }
    return RowSet(meta, QualityRow, rows, f"{metric}-quality-{window.first}-{window.last}")
