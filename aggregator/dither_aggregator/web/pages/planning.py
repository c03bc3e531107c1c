"""The page that plans a metric: of reports, epsilon and detectable share give two, get the third."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flask import render_template

from dither_aggregator.analysis.planning import KINDS, Planned, Unplannable, neighbours, registry_lines
from dither_aggregator.store import Store
from dither_aggregator.web.asking import WINDOWS, Given, given
from dither_aggregator.web.charts.scale import rough
from dither_aggregator.web.planned import EXPIRES_AFTER, GIVEN, PlanningAsked, planned

EXAMPLE = {"n": "12000", "epsilon": "1.0"}
"""What the form holds before anything is asked."""


@dataclass(frozen=True)
class PlanningPage:
    """All that the template shows of a plan."""

    controls: Mapping[str, str]
    """What the form holds, by the parameters' names."""
    headline: str
    planned: Planned | None = None
    neighbours: Sequence[Planned] = ()
    lines: str = ""
    """The registry's."""
    kinds: Sequence[str] = KINDS
    windows: Sequence[int] = WINDOWS


def show(store: Store) -> tuple[str, int]:
    """Return the page that a request asks for, and its status: 400 for a question that has no answer."""
    asked = given(PlanningAsked)
    controls = {name: f"{value:f}" if name == "share_percent" else f"{value}" for name, value in asked.items()}
    if not any(name in asked for name in GIVEN):
        page = PlanningPage({**controls, **EXAMPLE}, "Give two of reports, epsilon and share: the third is computed.")
        return render_template("planning.html", page=page), 200
    try:
        page = _planned(store, asked, controls)
    except Unplannable as error:
        page = PlanningPage(controls, f"{error}")
    return render_template("planning.html", page=page), 200 if page.planned else 400


def _planned(store: Store, asked: Given, controls: Mapping[str, str]) -> PlanningPage:
    answer = planned(asked)
    lines = registry_lines(answer, store.app, store.today() + EXPIRES_AFTER)
    return PlanningPage(controls, _headline(answer), answer, neighbours(answer), lines)


def _headline(answer: Planned) -> str:
    reports = f"{answer.n:,} reports" if answer.n > 1 else "one report"
    start = f"With {reports} at epsilon {answer.epsilon:f}, "
    if answer.share is None:
        return f"{start}even a value that everybody has stands out from the noise less than four times in five."
    share = rough(answer.share)
    if answer.question.kind == "flag":
        return f"{start}a “yes” of {share} is told from zero at least four times in five."
    return f"{start}a value that {share} have stands out from the noise four times in five."
