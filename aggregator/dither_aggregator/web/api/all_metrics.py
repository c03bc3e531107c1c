"""The estimates of all metrics in one window, for a spreadsheet or a report: one request, one table."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dither_aggregator.analysis.estimands import estimand_of, read
from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.reading import EstimateRow, Window, default_window
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import FirstDay, LastDay, LeftOut, Provisional, SnapshotId, says
from dither_aggregator.analysis.significance import Verdict
from dither_aggregator.analysis.tables.rows import Verdict as TableVerdict
from dither_aggregator.counting.folding import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.api.estimates import told_rows
from dither_aggregator.web.api.listings import AppMeta
from dither_aggregator.web.api.rowsets import RowsAsked, RowSet, Unit
from dither_aggregator.web.long_lists import too_long
from dither_aggregator.web.query_parameters import LevelAsked, QueryParameters, WindowAsked, asked_window
from dither_shared.wire.problems import Problem

ROWS_MAX = 200_000
"""Rows of one answer: a row is about 500 bytes."""
Missing = Literal["no reports", "being computed", "not computed", "too many candidates", "gone", "damaged", "too few"]


class AllAsked(WindowAsked, LevelAsked, RowsAsked):
    """The days that are asked for, of all metrics."""


class AllMeta(AppMeta):
    """The metrics that the rows are of."""

    level: Annotated[int, says("how sure the intervals are, in percent: all of one metric at once")]
    metrics: Annotated[int, says("how many there are, those without estimates counted")]
    metrics_missing: Annotated[int, says("how many of them have no estimates: each has a row that says why")]


class AllRow(msgspec.Struct, frozen=True):
    """One value's number with its error, or a metric without any."""

    metric: str
    rev: int
    first: FirstDay = msgspec.field(name="from")
    last: LastDay = msgspec.field(name="to")
    value: Annotated[str | None, says("null where the metric has no estimates")]
    n: Annotated[int | None, says("reports; null where they are not read")]
    estimate: Annotated[float | None, says("a share; a mean or a quantile in the unit; null if untold")]
    std_error: Annotated[float | None, says("null where the interval does not reach as far to both sides")]
    lower: Annotated[float | None, says("the interval's lower end")]
    upper: Annotated[float | None, says("its upper end")]
    error_of: Annotated[ErrorOf, says("the devices that error and interval are of")]
    verdict: Annotated[Verdict | TableVerdict | Literal["untold"] | None, says("as among the metric's own estimates")]
    provisional: Provisional
    snapshot: SnapshotId
    left_out: LeftOut
    unit: Unit
    missing: Annotated[
        Missing | None,
        says(
            "why a metric has no estimates, else null. Ask again soon if it is being computed; gone are counts that "
            "are no longer kept, and damaged ones cannot be those of any reports"
        ),
    ]


def all_estimates(store: Store, asked: QueryParameters) -> RowSet[AllMeta, AllRow]:
    """Return the estimates of each metric's newest plan, as its page opens; one without any is a row that says why."""
    newest: dict[str, StoredPlan] = {}
    for stored in store.plans():
        newest.setdefault(stored.plan.metric, stored)
    window, level = asked_window(store, asked), int(asked["level"])
    rows: list[AllRow] = []
    for stored in newest.values():
        rows += _rows_of(store, stored, window or default_window(store, stored), level / 100)
        if len(rows) > ROWS_MAX:
            raise Problem("malformed", f"these are more than {ROWS_MAX:,} rows: ask for one metric at a time")
    missing = sum(row.missing is not None for row in rows)
    days = f"{window.first}-{window.last}" if window else f"{store.sealed()}"
    return RowSet(
        {"app": store.app, "level": level, "metrics": len(newest), "metrics_missing": missing},
        AllRow,
        rows,
        f"{store.app}-{days}",
    )


def _rows_of(store: Store, stored: StoredPlan, window: Window, confidence: float) -> Iterator[AllRow]:
    missing: Missing
    n: int | None = None
    if too_long(stored):
        missing = "too many candidates"
    else:
        try:
            reading = read(store, stored, window.last, estimand_of(stored.plan).opening(window.days, confidence))
        except TallyGone:
            missing = "gone"
        except BadTally:
            missing = "damaged"
        except NotReady as error:
            missing = "not computed" if error.failed else "being computed"
        else:
            if told := told_rows(reading, reading.significance()):
                yield from (_row(row, stored.plan.domain.unit) for row in reading.table(told))
                return
            n, missing = reading.n, "too few" if reading.n or reading.left_out != 0 else "no reports"
    of = (stored.plan.metric, stored.plan.rev, window.first, window.last)
    open_ = window.last > store.sealed()
    yield AllRow(
        *of, None, n, None, None, None, None, "population", None, open_, None, None, stored.plan.domain.unit, missing
    )


def _row(row: EstimateRow, unit: str) -> AllRow:
    names = set(EstimateRow.__struct_fields__) & set(AllRow.__struct_fields__)
    return AllRow(**{name: getattr(row, name) for name in names}, unit=unit, missing=None)
