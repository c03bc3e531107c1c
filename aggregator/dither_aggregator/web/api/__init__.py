"""The reading API: every answer is {meta, rows}, or the rows alone as CSV.

An operation is a function of the store, of what was asked and of what its address names, and returns a RowSet. Its
line here has the schema of its parameters, which checks requests. That schema and the types of `meta` and rows, which
the function's annotation names, make /openapi.json.
"""

from collections.abc import Collection

from flask import Flask

from dither_aggregator.store import Store
from dither_aggregator.web.api import description, tables
from dither_aggregator.web.api.administering import CHANGES
from dither_aggregator.web.api.description import Operation
from dither_aggregator.web.api.estimates import (
    AllAsked,
    CandidatesBody,
    EstimatesAsked,
    GroupsAsked,
    all_estimates,
    estimates,
    estimates_of,
    groups,
)
from dither_aggregator.web.api.listings import (
    QualityAsked,
    ValuesAsked,
    marks,
    metric_snapshots,
    metrics,
    quality,
    snapshot,
    values,
)
from dither_aggregator.web.api.questions import QueryAsked, QuestionAsked, QuestionsBody, query, query_fixed, questions
from dither_aggregator.web.query_parameters import Parameters

__all__ = ["CHANGES", "OPERATIONS", "register"]

OPERATIONS = (
    Operation("/metrics", metrics, "every plan of every metric"),
    Operation("/estimates", all_estimates, "the estimates of all metrics in one window, a table for all", AllAsked),
    Operation("/metrics/<metric>/values", values, "the values that there are estimates of", ValuesAsked),
    Operation(
        "/metrics/<metric>/estimates",
        estimates,
        "the estimated share of each value in a window of days, by default the last sealed ones",
        EstimatesAsked,
    ),
    Operation(
        "/metrics/<metric>/estimates",
        estimates_of,
        "the same of the texts that the body names, in place of the registry's",
        EstimatesAsked,
        body=CandidatesBody,
    ),
    Operation(
        "/metrics/<metric>/groups",
        groups,
        "the share of each group of values or ranges that the operator's dashboard names",
        GroupsAsked,
    ),
    Operation("/metrics/<metric>/snapshots", metric_snapshots, "the snapshot of each final day"),
    Operation(
        "/metrics/<metric>/series",
        tables.series,
        "a few values day by day, with intervals that hold all at once",
        tables.SeriesRowsAsked,
    ),
    Operation(
        "/metrics/<metric>/quality",
        quality,
        "whether the counts of closed days can be those of devices that add noise as they should",
        QualityAsked,
    ),
    Operation(
        "/compare",
        tables.compare,
        "the difference of each value between two windows of a metric",
        tables.CompareRowsAsked,
    ),
    Operation(
        "/changes",
        tables.changes,
        "changes between the last sealed days and as many before, in all metrics: a week each",
    ),
    Operation("/people/active", tables.active, "how many devices were used in each of the last periods, at least"),
    Operation("/people/retention", tables.retention, "how many devices of a cohort are used in later months"),
    Operation("/people/newcomers", tables.newcomers, "the share of reports by new devices, by month"),
    Operation(
        "/people/stickiness",
        tables.stickiness,
        "how many of the devices of a long period are used in a mean short one, such as daily over monthly ones",
    ),
    Operation(
        "/plan",
        tables.plan,
        "the third of reports, epsilon and detectable share, or width of a number's interval, given two",
        tables.PlanRowsAsked,
    ),
    Operation(
        "/query",
        query,
        "the answer to a question, with an interval that holds whatever is asked next",
        QuestionAsked,
    ),
    Operation(
        "/query",
        query_fixed,
        "the answers to questions that were all fixed before any of them, with intervals that hold together alone",
        QueryAsked,
        body=QuestionsBody,
    ),
    Operation("/questions", questions, "the dashboard's questions with their answers, and whether these moved"),
    Operation("/marks", marks, "releases and other events that the operator named, by day"),
    Operation(
        "/snapshots/<id_>",
        snapshot,
        "the content of a snapshot: a day's id is the SHA-256 of these bytes, unless a read key is told less; "
        "a window's ends in that of `of`",
        Parameters,
    ),
)
"""Every address under /v1 that is read with a read key."""


def register(
    app: Flask, store: Store, answered: Collection[Operation] = OPERATIONS, candidates_max: int | None = None
) -> None:
    """Add every address. Those that are not `answered` here are described all the same, and answer that nobody does."""
    app.config["CANDIDATES_MAX"] = candidates_max
    description.register(app, store, (*OPERATIONS, *CHANGES), answered)
