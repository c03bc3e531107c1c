"""The page that plans a metric: of reports, epsilon, and detectable share, width or effect, give two, get the third."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flask import render_template

from dither_aggregator.analysis.numbers import QUANTILES
from dither_aggregator.analysis.planning import Planned, Unplannable, neighbours
from dither_aggregator.analysis.tables.arms import REPORTS_MIN
from dither_aggregator.store import Store
from dither_aggregator.web.pages.presentation import FormField, as_typed, form
from dither_aggregator.web.plan_request import (
    EXPIRES_AFTER,
    GIVEN,
    INSTALLS,
    OF_KINDS,
    PLANNERS,
    InstallsPlan,
    PlanningAsked,
    of_installs,
)
from dither_aggregator.web.query_parameters import QueryParameters, query_parameters
from dither_shared.kinds.number import BUCKETS_MAX
from dither_shared.kinds.precision import USUAL_BITS
from dither_shared.wire.reading import Problem

EXAMPLE = {"n": "12000", "epsilon": "1.0"}
"""The form's values before anything is asked."""
NOTHING_GIVEN = (
    "Choose what is asked, and give two of reports, epsilon and what is to be told; the third is computed. "
    "Active installs stand for the reports that they send in a week."
)


@dataclass(frozen=True)
class PlanningPage:
    """All that the template shows of a plan."""

    shown: Mapping[str, Any]
    """The form's values, by the parameters' names."""
    headline: str
    planned: Planned[Any] | None = None
    neighbours: Sequence[Planned[Any]] = ()
    of_installs: InstallsPlan | None = None
    """The registry's lines, and what installs' reports of them show."""
    installs: Sequence[str] = INSTALLS
    """The fields of installs."""
    given: Sequence[str] = GIVEN
    quantiles: int = len(QUANTILES)
    arm_reports_min: int = REPORTS_MIN
    usual_bits: int = USUAL_BITS
    ranges_max: int = BUCKETS_MAX

    @property
    def kind(self) -> str:
        """The kind that is asked for; the first one while none can be."""
        return str(self.shown["kind"]) if self.shown["kind"] in PLANNERS else next(iter(PLANNERS))

    @property
    def kinds(self) -> Sequence[str]:
        """All kinds that can be planned."""
        return list(PLANNERS)

    @property
    def form(self) -> Sequence[FormField]:
        """The form: the fields of the kind alone."""
        labels = PLANNERS[self.kind].labels(self.kind)
        every = form(PlanningAsked, {**self.shown, "kind": None})
        return [
            replace(each, label=labels.get(each.name, each.label))
            for each in every
            if each.name in labels or each.name not in OF_KINDS
        ]

    @property
    def template(self) -> str:
        """The part of the page that shows what is planned."""
        assert self.planned is not None
        return PLANNERS[self.planned.question.kind].template


def show(store: Store) -> tuple[str, int]:
    """Return the page that a request asks for, and its status: 400 for a question that has no answer."""
    try:
        asked = query_parameters(PlanningAsked)
    except Problem as problem:  # the form stays, to be mended
        page = PlanningPage(as_typed(PlanningAsked), problem.detail)
        return render_template("planning.html", page=page), problem.status
    if not any(name in asked for name in (*GIVEN, "installs")):
        page = PlanningPage({**asked, **EXAMPLE}, NOTHING_GIVEN)
        return render_template("planning.html", page=page), 200
    try:
        page = _planned(store, asked)
    except Unplannable as error:
        page = PlanningPage(asked, f"{error}")
    return render_template("planning.html", page=page), 200 if page.planned else 400


def _planned(store: Store, asked: QueryParameters) -> PlanningPage:
    answer, installs = of_installs(asked, store.app, store.today() + EXPIRES_AFTER)
    reports = f"{answer.n:,} reports" if answer.n > 1 else "one report"
    says = f"With {reports} at epsilon {answer.epsilon:f}, {PLANNERS[asked['kind']].shows(answer)}"
    return PlanningPage(asked, says, answer, neighbours(answer), installs)
