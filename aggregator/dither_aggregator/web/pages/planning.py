"""Plans of a metric: of reports, epsilon, and detectable share, width or effect, two give the third."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from math import ceil
from typing import Any, Generic

from flask import render_template

from dither_aggregator.analysis import planning
from dither_aggregator.analysis.advice import ASKS, KIND, NumberQuestion, advice
from dither_aggregator.analysis.installs import (
    INSTALLS_MAX,
    WEEK_DAYS,
    YEAR_DAYS,
    Change,
    Installs,
    Outlook,
    changes,
    outlook_of,
    reports_of,
)
from dither_aggregator.analysis.numbers import QUANTILES
from dither_aggregator.analysis.planning import (
    ARMS_MAX,
    ARMS_MIN,
    D_MAX,
    ENGLISH,
    LISTED,
    N_MAX,
    TEXT,
    WORDS,
    Planned,
    Q,
    ShareQuestion,
    TableQuestion,
    TextQuestion,
    Unplannable,
    neighbours,
    plan,
    registry_lines,
)
from dither_aggregator.analysis.reading import WINDOWS
from dither_aggregator.analysis.tables.reading import REPORTS_MIN
from dither_aggregator.store import Store
from dither_aggregator.web.charts import rough, rough_in_points
from dither_aggregator.web.pages.presentation import FormField, as_typed, form
from dither_aggregator.web.query_parameters import Exact, Parameters, QueryParameters, Whole, one_of, query_parameters
from dither_shared.domains.columns import COLUMNS_MAX, COLUMNS_MIN
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN
from dither_shared.frozen import replaced
from dither_shared.installed import Installed
from dither_shared.kinds.listed import TICKS_MAX
from dither_shared.kinds.number import BUCKETS_MAX
from dither_shared.kinds.precision import USUAL_BITS
from dither_shared.registry import REPORTS_MAX, Metric, Registry
from dither_shared.wire.reading import Problem
from dither_shared.words.alphabets import ALPHABETS
from dither_shared.words.code import PROPOSED

EXPIRES_AFTER = timedelta(days=364)
"""The expiry in the registry's lines that are printed: within its limit of a year, wherever it is already tomorrow."""
PERCENT_MIN = Decimal("0.00000001")


def _percent(says: str, label: str) -> Exact:
    return Exact(PERCENT_MIN, Decimal(100), 8, says, label)


SHARE = {"share_percent": "detectable share in %"}


class Planner(ABC, Generic[Q]):
    """How a kind is planned: the question that a request asks, and its answer."""

    template = "planning_figures.html"
    """The file that draws the answer."""

    @abstractmethod
    def question(self, asked: QueryParameters) -> Q:
        """Return the question of a request. Fields for other kinds do not count."""

    def labels(self, kind: str) -> Mapping[str, str]:
        """Return the labels of the fields that a kind has and others do not; by default those of a share among d."""
        return SHARE | {"d": "values"}

    @abstractmethod
    def shows(self, answer: Planned[Q]) -> str:
        """Return what the reports of an answer show, in words that follow their number and epsilon."""


class ListedPlanner(Planner[ShareQuestion]):
    """Listed values, or the two of a flag."""

    template = "planning_share.html"

    def question(self, asked: QueryParameters) -> ShareQuestion:
        """Return the question of one share among d."""
        kind = asked["kind"]
        return ShareQuestion(
            kind,
            2 if kind == "flag" else asked["d"],
            asked.get("epsilon_permanent"),
            int(asked["days"]),
            asked["ticks"] if kind == "choices" else None,
        )

    def labels(self, kind: str) -> Mapping[str, str]:
        """Return those of values, unless these are yes and no."""
        values = {} if kind == "flag" else {"d": "values, “other” included"}
        return SHARE | values | ({"ticks": "values of an answer, at most"} if kind == "choices" else {})

    def shows(self, answer: Planned[ShareQuestion]) -> str:
        """Return the share that stands out."""
        if answer.told is None:
            return "even a value that everybody has stands out from the noise less than four times in five."
        share = rough(answer.told)
        if answer.question.kind == "flag":
            return f"a “yes” of {share} is told from zero at least four times in five."
        return f"a value that {share} have stands out from the noise four times in five."


class TextPlanner(Planner[TextQuestion]):
    """Texts among candidates, or words without a list."""

    template = "planning_share.html"

    def question(self, asked: QueryParameters) -> TextQuestion:
        """Return the question of one text."""
        kind = asked["kind"]
        permanent, days = asked.get("epsilon_permanent"), int(asked["days"])
        if kind == WORDS:
            return TextQuestion(kind, PROPOSED, permanent, days, asked["alphabet"])
        return TextQuestion(kind, asked["d"], permanent, days)

    def labels(self, kind: str) -> Mapping[str, str]:
        """Return that of candidates, unless there is no list."""
        return SHARE | ({"alphabet": "alphabet"} if kind == WORDS else {"d": "candidates"})

    def shows(self, answer: Planned[TextQuestion]) -> str:
        """Return the share that is found."""
        told = "text on the list"
        if answer.question.kind == WORDS:
            english = answer.question.alphabet == ENGLISH
            told = "word of seven letters" if english else f"word whose code has {USUAL_BITS} bits"
        if answer.told is None:
            return f"even a {told} that everybody has is found less than four times in five."
        return f"a {told} that {rough(answer.told)} have is found four times in five."


class NumberPlanner(Planner[NumberQuestion]):
    """Numbers."""

    template = "planning_width.html"

    def question(self, asked: QueryParameters) -> NumberQuestion:
        """Return the question of mean and quantiles, or of the mean alone."""
        mean_alone, days = asked["asks"] == ASKS[1], int(asked["days"])
        return NumberQuestion(KIND, asked["d"], asked.get("epsilon_permanent"), days, mean_alone)

    def labels(self, kind: str) -> Mapping[str, str]:
        """Return those of ranges."""
        return {"d": "ranges", "asks": "asked", "width_percent": "width of the interval in %"}

    def shows(self, answer: Planned[NumberQuestion]) -> str:
        """Return how wide the intervals are."""
        question, figures = answer.question, answer.figures
        if answer.n < question.n_min:
            return f"nothing is told: numbers need {question.n_min:,} reports."
        if figures["mean_width"] is None:
            return "nothing is told: how many of them are of numbers is too unsure."
        mean = rough(figures["mean_width"])
        if question.mean_alone:
            return f"the mean is told in an interval {mean} of the range wide."
        if figures["median_width"] is None:
            return (
                "the median is not told: it may lie anywhere in more than a third of the range. "
                f"The interval of the mean is {mean} of the range wide."
            )
        median = rough(figures["median_width"])
        return f"the interval of the median is about {median} of the range wide, that of the mean {mean}."


class TablePlanner(Planner[TableQuestion]):
    """Tables in an experiment."""

    template = "planning_effect.html"

    def question(self, asked: QueryParameters) -> TableQuestion:
        """Return the question of a difference between arms."""
        permanent, days = asked.get("epsilon_permanent"), int(asked["days"])
        return TableQuestion(planning.KIND, asked["d"], permanent, days, asked["columns"], asked["arms"])

    def labels(self, kind: str) -> Mapping[str, str]:
        """Return those of columns and arms."""
        return {
            "d": "values of each column",
            "columns": "columns",
            "arms": "arms of the experiment",
            "effect_percent": "difference between arms in points",
        }

    def shows(self, answer: Planned[TableQuestion]) -> str:
        """Return the difference that is told."""
        n_min = answer.question.n_min(answer.cells.each)
        if answer.n < n_min:
            return f"no difference between arms is told: {n_min:,} reports are needed."
        if answer.told is None:
            return "even the largest difference between arms is told less than four times in five."
        points = rough_in_points(answer.told)
        return f"a difference of {points} points between an arm and all others is told four times in five."


PLANNERS = Installed[Planner[Any]](
    "dither.planners",
    {
        **dict.fromkeys(LISTED, ListedPlanner()),
        KIND: NumberPlanner(),
        planning.KIND: TablePlanner(),
        **dict.fromkeys((TEXT, WORDS), TextPlanner()),
    },
)
"""By kind, how it is planned. Any other is not."""


class PlanningAsked(Parameters):
    """A metric that is planned, and two of n, epsilon and share_percent; installs stand for n.

    In place of the share a number has width_percent, and a table effect_percent.
    """

    kind = one_of(PLANNERS, "the metric's kind", "kind")
    d = Whole(
        2,
        D_MAX,
        "all values, other included; 2 for a flag; for a number the ranges from low to high; for a table those of each "
        "column; for a text the candidates, which are at most as many here",
        "values",
        size=6,
        load_default=30,
    )
    ticks = Whole(
        2,
        TICKS_MAX,
        "for choices: the most values of one answer",
        "ticks",
        size=2,
        load_default=3,
    )
    alphabet = one_of(
        (ENGLISH, *ALPHABETS),
        "for words: the alphabet, as a registry names it, or english for one that names none",
        "alphabet",
    )
    asks = one_of(ASKS, "for a number: mean, quantiles and shape, or the mean alone", "asked")
    columns = Whole(
        COLUMNS_MIN,
        COLUMNS_MAX,
        "for a table: the number of columns",
        "columns",
        size=2,
        load_default=3,
    )
    arms = Whole(
        ARMS_MIN,
        ARMS_MAX,
        "for a table: arms of one size that are compared",
        "arms",
        size=2,
        load_default=2,
    )
    epsilon_permanent = Exact(
        EPSILON_MIN,
        EPSILON_MAX,
        6,
        "the epsilon of memoized answers; fresh noise without it",
        "ε of a memoized answer (empty: fresh noise)",
        size=5,
    )
    days = one_of(
        tuple(map(str, WINDOWS)),
        "days of the window that is read; matters for memoized answers",
        "days read at once (memoized only)",
    )
    n = Whole(1, N_MAX, "reports in the window", "reports, n", size=12)
    epsilon = Exact(EPSILON_MIN, EPSILON_MAX, 6, "the privacy loss of one report", "ε of one report")
    share_percent = _percent(
        "for values, texts and words: a true share to be told from noise",
        "share",
    )
    width_percent = _percent(
        "for a number: the width of the 95 % interval of its median, in percent of low to high",
        "width",
    )
    effect_percent = _percent(
        "for a table: a difference of a value's share between one arm and all others, in percentage points",
        "difference",
    )

    installs = Whole(
        1,
        INSTALLS_MAX,
        "active installs: they stand for the reports that they send in a week",
        "active installs, in place of reports",
        size=9,
    )
    on_percent = Exact(
        PERCENT_MIN,
        Decimal(100),
        8,
        "the percentage of installs in which telemetry is on",
        "telemetry is on in, % of them",
        load_default=100,
    )
    stay_percent = _percent(
        "the percentage of installs that are there a month later; without it nobody comes or goes",
        "there a month later, % of them (if known)",
    )
    smallest_percent = _percent(
        "of installs: the least share that is looked for", "least share that you look for, in % (if any)"
    )
    reports = Whole(
        1,
        REPORTS_MAX,
        "of fresh noise: the most reports in a device's life",
        "reports of a device in its life",
        size=4,
        load_default=1,
    )
    schedule = one_of(
        ("spread", "early"),
        "of fresh noise: on days drawn by lot from a year, or in a device's first periods",
        "schedule",
    )


INSTALLS = ("installs", "on_percent", "stay_percent", "smallest_percent", "reports", "schedule")
"""The fields of installs."""
OF_KINDS = ("d", "ticks", "alphabet", "asks", "columns", "arms", "share_percent", "width_percent", "effect_percent")
"""Fields that some kinds have: `Planner.labels` says which."""
GIVEN = ("n", "epsilon", "share_percent", "width_percent", "effect_percent")
"""Two of these are given: of the first two and the one for the kind."""


@dataclass(frozen=True)
class InstallsPlan:
    """The registry's lines of a plan, with what so many installs' reports of them show."""

    lines: str
    needed_week: int
    """How many installs send the plan's reports in a week."""
    needed_year: int
    """How many send as many in a year."""
    outlook: Outlook | None = None
    """The reports of those that were asked for; None if none were."""
    changes: Sequence[Change] = ()
    advice: Sequence[str] = ()


def of_installs(asked: QueryParameters, app: str, expires: date) -> tuple[Planned[Any], InstallsPlan]:
    """Return a plan whose reports are those of so many installs in a week, where no others are given."""
    question = PLANNERS[asked["kind"]].question(asked)
    life = question.life(expires, asked["reports"], asked["schedule"])
    stay, smallest = (each and float(each / 100) for each in (asked.get("stay_percent"), asked.get("smallest_percent")))
    one = Installs(1, float(asked["on_percent"] / 100), stay, smallest)
    week, year = (reports_of(life, one, QUIET_DAYS, days) for days in (WEEK_DAYS, YEAR_DAYS))
    installs = replaced(one, count=asked["installs"]) if "installs" in asked else None
    if installs and "n" not in asked and sum(name in asked for name in GIVEN) == 1:
        n = int(installs.count * week)
        if n < 1:
            raise Unplannable(f"{installs.count:,} installs send less than one report a week: ask for more reports.")
        asked = {**asked, "n": min(n, N_MAX)}
    answer = planned(asked)
    lines = registry_lines(answer, app, life)
    plan_alone = InstallsPlan(lines, ceil(answer.n / week), ceil(answer.n / year))
    if not installs:
        return answer, plan_alone
    text = _listed(lines)
    now = outlook_of(Registry.parse(text).metrics["planned"], installs, QUIET_DAYS)

    def reread(changed: Mapping[str, object]) -> Metric:
        return Registry.changed(text, "planned", changed)

    others, lines_of_advice = changes(now, QUIET_DAYS, reread), advice(now, QUIET_DAYS, reread)
    return answer, replace(plan_alone, outlook=now, changes=tuple(others), advice=tuple(lines_of_advice))


def _listed(lines: str) -> str:
    """Return a registry's lines with lists in place of the files that they name."""
    return _FILE.sub(
        lambda named: f"{named[1]} = {[f'value {number}' for number in range(1, int(named[2].replace(',', '')) + 1)]}",
        lines,
    )


_FILE = re.compile(r'^(values|candidates)_file = "[a-z.]+"  # ([0-9,]+) lines.*$', re.MULTILINE)
QUIET_DAYS = 1
"""A registry that does not say `quiet_days` has so many."""


def planned(asked: QueryParameters) -> Planned[Any]:
    """Return what a request asks to plan; raise Unplannable."""
    question = PLANNERS[asked["kind"]].question(asked)
    percent = asked.get(f"{question.target_name}_percent")
    made: Planned[Any] = plan(question, asked.get("n"), asked.get("epsilon"), percent and float(percent / 100))
    return made


# The page.


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
