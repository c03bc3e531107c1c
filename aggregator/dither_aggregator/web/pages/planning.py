"""The page that plans a metric: of reports, epsilon, and detectable share, width or effect, give two, get the third."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from flask import render_template, request
from marshmallow import missing

from dither_aggregator.analysis.numbers import QUANTILES
from dither_aggregator.analysis.planning import Planned, Unplannable, neighbours, registry_lines
from dither_aggregator.analysis.planning_numbers import ASKS, PlannedNumber
from dither_aggregator.analysis.planning_shares import PlannedShares
from dither_aggregator.analysis.planning_tables import PlannedEffect
from dither_aggregator.analysis.planning_texts import WORDS, PlannedText
from dither_aggregator.analysis.tables.arms import REPORTS_MIN
from dither_aggregator.analysis.words.needed import USUAL_BITS
from dither_aggregator.store import Store
from dither_aggregator.web.asking import WINDOWS, Given, given
from dither_aggregator.web.charts.scale import rough, rough_in_points
from dither_aggregator.web.planned import EXPIRES_AFTER, GIVEN, KINDS, PlanningAsked, planned
from dither_shared.wire.problems import Problem

EXAMPLE = {"n": "12000", "epsilon": "1.0"}
"""The form's values before anything is asked."""
NOTHING_GIVEN = (
    "Give two of reports, epsilon and share; the third is computed. "
    "A number has a width in place of the share, a table a difference."
)


@dataclass(frozen=True)
class PlanningPage:
    """All that the template shows of a plan."""

    controls: Mapping[str, str]
    """The form's values, by the parameters' names."""
    headline: str
    planned: Planned | None = None
    neighbours: Sequence[Planned] = ()
    lines: str = ""
    """The registry's."""
    kinds: Sequence[str] = KINDS
    windows: Sequence[int] = WINDOWS
    asks: Sequence[str] = ASKS
    quantiles: int = len(QUANTILES)
    arm_reports_min: int = REPORTS_MIN
    usual_bits: int = USUAL_BITS

    @property
    def template(self) -> str:
        """The part of the page that shows what is planned."""
        assert self.planned is not None
        return f"planning_{self.planned.question.third_name}.html"


def show(store: Store) -> tuple[str, int]:
    """Return the page that a request asks for, and its status: 400 for a question that has no answer."""
    try:
        asked = given(PlanningAsked)
    except Problem as problem:  # the form stays, to be mended
        return render_template("planning.html", page=PlanningPage(_as_typed(), problem.detail)), problem.status
    controls = {name: f"{value:f}" if name.endswith("_percent") else f"{value}" for name, value in asked.items()}
    if not any(name in asked for name in GIVEN):
        page = PlanningPage({**controls, **EXAMPLE}, NOTHING_GIVEN)
        return render_template("planning.html", page=page), 200
    try:
        page = _planned(store, asked, controls)
    except Unplannable as error:
        page = PlanningPage(controls, f"{error}")
    return render_template("planning.html", page=page), 200 if page.planned else 400


def _as_typed() -> dict[str, str]:
    """Return the form's values as they were sent, and the usual ones of what was left empty."""
    usual = {name: field.load_default for name, field in PlanningAsked().fields.items()}
    return {
        name: request.args.get(name) or ("" if default is missing else f"{default}") for name, default in usual.items()
    }


def _planned(store: Store, asked: Given, controls: Mapping[str, str]) -> PlanningPage:
    answer = planned(asked)
    lines = registry_lines(answer, store.app, store.today() + EXPIRES_AFTER)
    return PlanningPage(controls, _headline(answer), answer, neighbours(answer), lines)


@singledispatch
def _headline(answer: Planned) -> str:
    raise TypeError(f"there are no words for {type(answer).__name__}")


@_headline.register
def _(answer: PlannedShares) -> str:
    if answer.share is None:
        return (
            f"{_start(answer)}even a value that everybody has stands out from the noise less than four times in five."
        )
    share = rough(answer.share)
    if answer.question.kind == "flag":
        return f"{_start(answer)}a “yes” of {share} is told from zero at least four times in five."
    return f"{_start(answer)}a value that {share} have stands out from the noise four times in five."


@_headline.register
def _(answer: PlannedText) -> str:
    words = answer.question.kind == WORDS
    told = "word of seven letters" if words else "text on the list"
    if answer.share is None:
        return f"{_start(answer)}even a {told} that everybody has is found less than four times in five."
    return f"{_start(answer)}a {told} that {rough(answer.share)} have is found four times in five."


@_headline.register
def _(answer: PlannedNumber) -> str:
    question = answer.question
    if answer.n < question.n_min:
        return f"{_start(answer)}nothing is told: numbers need {question.n_min:,} reports."
    if answer.mean_width is None:
        return f"{_start(answer)}nothing is told: how many of them are of numbers is too unsure."
    mean = rough(answer.mean_width)
    if question.mean_alone:
        return f"{_start(answer)}the mean is told in an interval {mean} of the range wide."
    if answer.median_width is None:
        return (
            f"{_start(answer)}the median is not told: it may lie anywhere in more than a third of the range. "
            f"The interval of the mean is {mean} of the range wide."
        )
    return (
        f"{_start(answer)}the interval of the median is about {rough(answer.median_width)} of the range wide, "
        f"that of the mean {mean}."
    )


@_headline.register
def _(answer: PlannedEffect) -> str:
    if answer.n < answer.n_min:
        return f"{_start(answer)}no difference between arms is told: {answer.n_min:,} reports are needed."
    if answer.told is None:
        return f"{_start(answer)}even the largest difference between arms is told less than four times in five."
    points = rough_in_points(answer.told)
    return f"{_start(answer)}a difference of {points} points between an arm and all others is told four times in five."


def _start(answer: Planned) -> str:
    reports = f"{answer.n:,} reports" if answer.n > 1 else "one report"
    return f"With {reports} at epsilon {answer.epsilon:f}, "
