"""Answers to questions: an estimate, an interval that holds however many questions follow, and what it was made of.

**Intervals hold together.** A reader asks again because of what came out, so an interval must hold whichever is
asked. By default each is one of a family that was fixed before any count was read, and each family has a third of
alpha:

    single     each name that the registry fixes, over each window of whole days (Bonferroni)
    free       all weighted sums and ratios of one metric's listed values, or of the cells of some columns of a table
               (Scheffe), for each metric, set of columns and window
    regression each coefficient of each regression that can be asked of a table, over each window (Bonferroni)

The intervals of a family hold at once. So a question of several names, or of several metrics and windows, has all that
is possible while each of these lies in its own interval: whichever are chosen, with whichever numbers before them.
The registry alone decides whether names or free sums are planned to be narrower, and so are taken.

Questions that were all written before the first answer pay for their own number alone (Bonferroni).

**Terms of these are added.** Values of one metric in one window are one functional, with the exact law of their error.
Terms of different windows or metrics may be of the same devices, whose answers go together or alternate: the worst of
it is in the interval (`functional.apart`). Errors add up, and are never squared, where ranges leave something open, and
where the same coins may be in both: of windows that overlap, of a memo, of a table and one of its arms.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import isnan, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from scipy.special import chdtri, ndtr

from dither_aggregator.analysis.channel import places_of
from dither_aggregator.analysis.differences import dashboard_of
from dither_aggregator.analysis.estimands import Ahead, days_of, estimand_of, estimate, read, tally_of
from dither_aggregator.analysis.functional import Sums
from dither_aggregator.analysis.inference import CONFIDENCE, Floats, effective
from dither_aggregator.analysis.reading import View, Window, default_window, reports_max
from dither_aggregator.analysis.reading_cache import Codec, once, tell_progress
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.tables.pairs import CellSums, QuestionTally
from dither_aggregator.analysis.tables.reading import REPORTS_MIN, arms_of, columns_of, together
from dither_aggregator.analysis.tables.regression import StepSums
from dither_aggregator.ask import analyses
from dither_aggregator.ask.language import (
    Analysis,
    BadQuestion,
    Expression,
    Figure,
    Groups,
    Period,
    Query,
    Untold,
    WeightedSum,
    steps,
)
from dither_aggregator.ask.resolving import CountedAt, Resolved, TableAsked, columns_line, listed, names_asked
from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.store.document_kinds import ValueGroup
from dither_shared.domains import Buckets, Columns, Domain
from dither_shared.domains.number_ranges import NumberDomain
from dither_shared.kinds.kind import Asked as KindAsked
from dither_shared.kinds.precision import precision_of
from dither_shared.plan import Plan

WINDOW_DAYS_MAX = 366
WINDOWS = WINDOW_DAYS_MAX * (WINDOW_DAYS_MAX + 1) // 2
"""All windows of whole days of a year."""
FAMILIES = 3
ROW_ALPHA_MIN = 1e-12
"""Readings are asked for a confidence, and 1 less a smaller chance is not exact; intervals of smaller ones are such
that are stretched as those of a normal law are."""
WORK_MAX = 400
"""Parts of all answers that are made at once: each takes about two milliseconds."""
BEYOND = "its interval ends at an outermost edge, and may go on beyond"
RATE_PARTS = 2
"""A rate in a table counts as so many."""
ANALYSIS_PARTS = {"top": 10, "regress": 10, "logistic": 10, "clusters": 50, "devices": 10, "stickiness": 50}
"""An analysis counts as so many, at least."""
RANKED_TO_A_PART = 5
"""A top counts as one part for so many values that it ranks: each value takes a few milliseconds."""
T = TypeVar("T")
Family = Literal["single", "free", "regression", "asked"]
HOLDS_WITH: Mapping[Family, str] = {
    "single": "all questions of single names together",
    "free": "all questions of one metric's values together",
    "regression": "all coefficients of regressions together",
    "asked": "the questions that were asked together",
}
"""The questions that the intervals of a family hold for, in words."""


ALL_OF: Mapping[Family, str] = {"free": "all weighted sums at once", "regression": "all that can be asked at once"}
"""The intervals of families that have no number, in words."""


class Guard(NamedTuple):
    """How sure one interval must be, for all of its family to hold together."""

    family: Family
    alpha: float
    """The chance that this one interval misses."""
    together: int | None = None
    """How many intervals the family has; None where it has all sums, or all regressions, that there are."""

    @property
    def z(self) -> float:
        """In how many standard errors a normal interval reaches."""
        return -NormalDist().inv_cdf(self.alpha / 2)


@dataclass(frozen=True)
class Term:
    """A part of an answer: an estimate, and how far its interval reaches."""

    estimate: float
    below: float
    above: float
    at: CountedAt
    n: int
    devices: int
    """At least so many sent these reports."""
    answers_part: float = 1.0
    """How much of its error devices' answers are at most: 1 where that is not known."""
    adds_up: bool = False
    """Whether its error may go together with any other: what ranges leave open, and what is of several places."""
    figures: tuple[tuple[Fraction, Figure], ...] = ()
    """The things that it is a sum of, without their periods; () where it is no sum."""
    beyond: bool = False
    """Whether it may lie beyond its ends: a quantile's that are outermost edges, where ranges are open."""

    def times(self, factor: float) -> "Term":
        """Return it times a number."""
        below, above = (self.below, self.above) if factor >= 0 else (self.above, self.below)
        return replace(self, estimate=factor * self.estimate, below=abs(factor) * below, above=abs(factor) * above)


@dataclass(frozen=True)
class QueryAnswer:
    """One answer, of one window of a question with steps."""

    window: Window
    """From the first day to the last that anything was read of."""
    n: int
    devices: int
    family: Family
    z: float
    """In how many standard errors a normal interval of its level would reach."""
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None
    untold: str = ""
    """Why there is none; "" where there is."""
    name: str = ""
    """The value, coefficient or centre that this row of an analysis is of; "" where the question is the name."""
    note: str = ""
    """Its rank, what a bound rests on, that it is a model without an interval, or that a quantile may lie beyond it."""
    queries: Sequence[StepSums] = field(default=(), repr=False)
    """The noisy sums that an analysis asked for, step after step; of its first row."""
    together: int | None = None
    """How many intervals hold at once; None for all sums of a metric's values, in all metrics and windows."""
    unit: str | None = None
    """The unit of this row of an analysis; None where it is the question's."""
    weights: Mapping[str, float] = field(default_factory=dict, repr=False)
    """The numbers before values or cells that make this row of an analysis."""
    error_of: Literal["population"] = field(default="population", init=False)


Part = Literal["sum", "numerator", "denominator"]


class Weight(NamedTuple):
    """A number before an estimate, in a part of an answer."""

    part: Part
    ratio: int
    """Which of the question's ratios, counted from 1; 0 for the sum beside them."""
    metric: str
    """Or "", where it is a number alone."""
    value: str
    """The value, the cell or the estimate, by its name in the metric."""
    weight: float
    name: str = ""
    """The row of an analysis; "" of a question."""


@dataclass(frozen=True)
class Asking:
    """A store that is asked: which names its registry fixes, and so how sure each interval must be."""

    store: Store
    confidence: float = CONFIDENCE
    progress: Callable[[int, int], None] = lambda done, of: None
    """Told how much of a slow analysis is done."""
    suppose: Callable[[StoredPlan], Tally] | None = None
    """Gives the counts of a window, in the place of those that were collected."""

    @cached_property
    def plans(self) -> Mapping[str, StoredPlan]:
        """The newest plan of each metric."""
        found: dict[str, StoredPlan] = {}
        for stored in self.store.plans():
            found.setdefault(stored.plan.metric, stored)
        return found

    @cached_property
    def groups(self) -> Groups:
        """The dashboard's groups of values, by metric: a question may name them."""
        found: dict[str, dict[str, ValueGroup]] = {}
        for each in dashboard_of(self.store).groups:
            found.setdefault(each.metric, {})[each.name] = each
        return found

    @cached_property
    def names(self) -> int:
        """How many names the registry fixes, over all metrics: a table's rates by group counted."""
        return max(1, sum(_names(stored) for stored in self.plans.values()))

    def guard(self, expression: Expression, alone: int | None) -> Guard:
        """Return how sure an interval must be: of so many that were all fixed before, or whatever is asked next."""
        if (expression, alone) not in self._guards:
            self._guards[expression, alone] = self._guard(expression, alone)
        return self._guards[expression, alone]

    @cached_property
    def _guards(self) -> dict[tuple[Expression, int | None], Guard]:
        """The guards of earlier windows: all windows of a question have the same."""
        return {}

    def _guard(self, expression: Expression, alone: int | None) -> Guard:
        single = self.single(alone)
        if alone is not None:
            return single
        asked = expression.asked
        sums = [each for each in asked if self.resolve(each).has_sums]  # any other is one name, and has a row
        named = all(map(self._is_single, sums))
        if named and len(asked) == 1:
            return single
        try:
            free = self.free(max([1, *(self._freedom(each, expression) for each in sums)]))
        except BadQuestion:
            if named:
                return single
            raise
        places = Counter((self.resolve(each).plan.metric, each.period, self._arm(each)) for each in sums)
        rows = len(asked) - len(sums)
        planned = free.z * sum(map(sqrt, places.values())) + single.z * rows
        if named and single.z * len(asked) <= planned:
            return single
        return free._replace(alpha=min(free.alpha, single.alpha)) if rows else free

    def free(self, freedom: int) -> Guard:
        """Return how sure an interval of any weighted sum of so many free numbers must be.

        Raises BadQuestion for too many.
        """
        alpha = (1 - self.confidence) / FAMILIES / (sum(map(_column_sets, self.plans.values())) * WINDOWS)
        z = sqrt(float(chdtri(freedom, alpha)))
        own = 2 * float(ndtr(-z))  # Python's own law says 0 from 8.3 standard errors on
        if own < analyses.ALPHA_MIN:
            few = f"sums of {freedom:,} values do not hold all at once: name each value alone"
            raise BadQuestion(f"{few}, or fix the questions before any answer")
        return Guard("free", own)

    def single(self, alone: int | None) -> Guard:
        """Return how sure the interval of one name must be, of so many that were fixed or of all that there are."""
        if alone is not None:
            return Guard("asked", (1 - self.confidence) / alone, alone)
        together = self.names * WINDOWS
        return Guard("single", (1 - self.confidence) / FAMILIES / together, together)

    def regression(self, regressions: float) -> Guard:
        """Return how sure an interval must be, of so many coefficients that can be asked over each window."""
        alpha = (1 - self.confidence) / FAMILIES / (regressions * WINDOWS)
        return Guard("regression", max(alpha, analyses.ALPHA_MIN))

    def _guard_of(self, analysis: Analysis, alone: int | None) -> Guard:
        """Return how sure each interval of an analysis must be."""
        if alone is not None or analysis.by_period or (analysis.kind == "top" and analysis.grouping != "saved"):
            return self.single(alone)
        if analysis.kind == "top":
            return self.free(analyses.freedom(self, analysis))
        return self.regression(max(1, sum(map(analyses.regressions, self.tables.values()))))

    def _is_single(self, asked: Figure) -> bool:
        """Tell whether a name is asked that the registry fixes: of at most two columns, with a value of each."""
        conditions = [asked.condition, asked.given, *asked.also, *asked.given_also]
        given = [each for each in conditions if each]
        return all(each.is_single for each in given) and len(given) + (asked.statistic == "mean") <= 2

    def _freedom(self, asked: Figure, expression: Expression) -> int:
        resolved = self.resolve(asked)
        if not resolved.table:
            return len(resolved.plan.values)  # estimates need not sum to one
        others = [each for each in expression.asked if self.resolve(each).plan.metric == resolved.plan.metric]
        if len({tuple(sorted(names_asked(each))) for each in others}) == 1:
            return resolved.table.freedom(asked)
        domain = resolved.table.domain
        return sum(domain.symbols(question) for question in range(len(domain.questions)))

    # Which metric is meant.

    def resolve(self, asked: Figure) -> Resolved:
        """Return the plan that something is asked of; raise BadQuestion, which says what there is, for none."""
        stored, names = self.plans.get(asked.metric), names_asked(asked)
        if stored and len(names) == 1:
            return Resolved(stored)
        table, _, column = asked.metric.rpartition(".")
        tables = {
            name: stored
            for name, stored in self.plans.items()
            if isinstance(stored.plan.domain, Columns) and table in ("", name)
        }
        wanted = [name.rpartition(".")[2] for name in names]
        holding = {name: stored for name, stored in tables.items() if column in _column_names(stored)}
        both = {name: stored for name, stored in holding.items() if _asks(stored, wanted)}
        if len(both) == 1:
            ((_, stored),) = both.items()
            return Resolved(stored, column)
        if both:
            raise BadQuestion(f"{' and '.join(sorted(both))} have a column {column!r}: write TABLE.{column}")
        if (holding or stored) and asked.statistic == "quantile":
            raise BadQuestion(f"tables have no quantiles: ask quantile({column}, ...) of all, or mean({column} | ...)")
        if holding or stored:
            raise BadQuestion(self.never_together(wanted, column if asked.statistic == "mean" else ""))
        raise BadQuestion(f"there is no metric or column {asked.metric!r}; there are {listed(sorted(self.plans))}")

    @cached_property
    def tables(self) -> Mapping[str, TableAsked]:
        """Each table, by name."""
        return {
            name: TableAsked(stored) for name, stored in self.plans.items() if isinstance(stored.plan.domain, Columns)
        }

    def table(self, name: str) -> Resolved:
        """Return a table by its name; raise BadQuestion for none."""
        if name not in self.tables:
            raise BadQuestion(f"there is no table {name!r}; there are {listed(sorted(self.tables))}")
        stored = self.tables[name].stored
        return Resolved(stored, columns_of(stored.plan).names[0])

    def counting(self, analysis: Analysis) -> Resolved:
        """Return the plan that counts devices; raise BadQuestion for none."""
        return Resolved(analyses.device_plan(self.store, analysis))

    def never_together(self, names: Sequence[str], mean_of: str = "") -> str:
        """Say that some columns or metrics were never asked together, and which registry line would.

        The line tells a mean of one of them, where that is wanted.
        """
        known: dict[str, Domain | None] = dict.fromkeys(names)
        for name, stored in self.plans.items():
            domain = stored.plan.domain
            own = domain.columns if isinstance(domain, Columns) else {name: domain}
            known |= {each: own[each] for each in names if each in own}
        few = "both" if len(names) == 2 else f"these {len(names)}, few enough to be asked at once,"
        listed_ = f"{', '.join(names[:-1])} and {names[-1]}"
        return f"{listed_} were never asked together: a table of {few} would: {columns_line(known, mean_of)}"

    # Answers.

    def intervals(self, question: Query) -> int:
        """Return how many intervals a question asks for: a series and an analysis have several."""
        windows = self.windows(question)
        if question.analysis is None:
            return len(windows)
        return sum(analyses.intervals(self, question.analysis, each) for each in windows)

    def answer_all(self, questions: Sequence[Query], *, fixed: bool) -> list[list[QueryAnswer]]:
        """Return the answers of questions, which may all have been `fixed` before any of them was answered.

        Raises BadQuestion before any count is read: for one that cannot be asked, and for too much work.
        """
        answers = [len(self.windows(question)) for question in questions]
        parts = [self.work(question) for question in questions]
        if sum(parts) > WORK_MAX:
            most = questions[parts.index(max(parts))]
            one = len(questions) == 1
            asked = f"{sum(answers):,} answers" if one else f"{len(questions):,} questions"
            few = f"{asked} of {sum(parts):,} parts in all are too many at once: {WORK_MAX} are answered"
            less = (
                "ask by week, or of fewer days" if one else "ask fewer questions at once, or fewer answers of this one"
            )
            raise BadQuestion(f"{few}; {less}").placed(most.text, len(most.text))
        alone = sum(map(self.intervals, questions)) if fixed else None
        for question in questions:
            try:
                if not question.analysis:
                    self.guard(question.expression, alone)
            except BadQuestion as error:
                raise error.placed(question.text, question.expression.asked[0].at) from None
        return [list(self.answer(question, alone)) for question in questions]

    def work(self, question: Query) -> int:
        """Return how many parts all answers of a question have."""
        if question.analysis:
            parts = ANALYSIS_PARTS[question.analysis.kind]
            if question.analysis.kind == "top":  # any alone is answered
                ranked = -(-self.intervals(question) // RANKED_TO_A_PART)
                parts = min(max(parts, ranked), WORK_MAX)
            return len(self.windows(question)) * parts
        rates = [RATE_PARTS if asked.given or asked.also else 1 for asked in question.expression.asked]
        return len(self.windows(question)) * sum(rates)

    def unit(self, question: Query) -> str:
        """Return the unit of an answer: "" for shares, "1" for a number without one, such as a ratio."""
        expression = question.expression
        if question.analysis:
            if question.analysis.kind == "devices":
                return "devices"
            return "" if question.analysis.kind in ("top", "regress", "stickiness") else "1"
        units = {
            "" if asked.statistic == "share" else self.resolve(asked).unit
            for factor, asked in expression.sum.terms
            if factor
        }
        shares_alone = units == {""} and not expression.sum.constant
        return "1" if expression.ratios or len(units) != 1 or (units == {""} and not shares_alone) else units.pop()

    def answer(self, question: Query, alone: int | None = None) -> Iterator[QueryAnswer]:
        """Yield the answer, or one for each step; `alone` is the number of intervals that were fixed beforehand."""
        windows = self.windows(question)
        for resolved in map(self.resolve, question.expression.asked):
            steps_of = [window for window in windows if window]
            self._ahead[resolved.plan.metric] = Ahead(self.store, resolved.stored, steps_of)
        for each in windows:
            yield from self.answers_in(question, each, alone)

    @cached_property
    def _ahead(self) -> dict[str, Ahead]:
        """It prepares the windows of a question with steps, by metric."""
        return {}

    def answers_in(self, question: Query, window: Window | None, alone: int | None) -> Iterator[QueryAnswer]:
        """Yield the answer in a window, or the rows of an analysis."""
        if question.analysis:
            yield from self._analysis(question.analysis, window, alone)
        else:
            yield self._answer(question.expression, window, alone)

    def asked_plans(self, question: Query) -> list[StoredPlan]:
        """Return the plans that a question is of."""
        if question.analysis:
            return [analyses.resolved(self, question.analysis).stored]
        return [self.resolve(asked).stored for asked in question.expression.asked]

    def _analysis(self, analysis: Analysis, window: Window | None, alone: int | None) -> Iterator[QueryAnswer]:
        """Yield the rows of an analysis."""
        resolved = analyses.resolved(self, analysis)
        at = CountedAt(resolved.plan.metric, window or default_window(self.store, resolved.stored))
        guard = self._guard_of(analysis, alone)
        try:
            n, rows = analyses.rows(self, analysis, at, window, guard.alpha)
            untold = ""
        except (BadTally, TallyGone) as error:
            n, rows, untold = 0, [analyses.AnalysisRow("")], str(error)
        except Untold as why:
            n, rows = why.of.n if isinstance(why.of, Term) else 0, [analyses.AnalysisRow("")]
            untold = str(why)
        for row in rows:
            ends = row.estimate, row.lower, row.upper
            days, reports = row.window or at.days, n if row.n is None else row.n
            yield QueryAnswer(
                days,
                reports,
                int(row.lower)
                if analysis.kind == "devices" and row.lower
                else _devices(resolved.stored, reports, days),
                guard.family,
                guard.z,
                *ends,
                untold or row.untold,
                row.name,
                row.note,
                row.queries,
                guard.together,
                row.unit,
                row.weights,
            )

    def change(self, question: Query, before: Window, after: Window, alone: int | None = None) -> QueryAnswer:
        """Return how far an answer moved from one window to another; of one that names no days."""
        then, now = (question.expression.within(Period(each.first, each.last)) for each in (before, after))
        return self._answer(now.less(then), None, alone)

    def windows(self, question: Query) -> Sequence[Window | None]:
        """Return the window of each answer; None for the usual one of each metric. Raise BadQuestion with its place."""
        for asked in question.expression.asked:
            try:
                self.check(asked)
            except BadQuestion as error:
                raise error.placed(question.text, asked.at) from None
        if question.analysis:
            try:
                analyses.check(self, question.analysis)
            except BadQuestion as error:
                raise error.placed(question.text, question.analysis.at) from None
        if question.period is None and question.step is None:
            return (None,)
        try:
            whole = self._days(question.period) if question.period else self._kept(question)
        except BadQuestion as error:
            raise error.placed(question.text, question.period.at if question.period else 0) from None
        return (*steps(whole, question.step),) if question.step else (whole,)

    def _days(self, period: Period) -> Window:
        window = period.window(self.store.sealed())
        if window.days > WINDOW_DAYS_MAX:
            raise BadQuestion(
                f"a period has at most {WINDOW_DAYS_MAX} days, {window.first} to {window.last} are more", period.at
            )
        return window

    def _kept(self, question: Query) -> Window:
        """Return all days that are kept of what a question with steps asks."""
        plans = [self.resolve(asked).stored.plan for asked in question.expression.asked]
        days = [day for plan in plans for day in self.store.epochs(plan)]
        sealed = self.store.sealed()
        first = max([min([*days, sealed]), self.store.tallies_from(), Window.ending(sealed, WINDOW_DAYS_MAX).first])
        return Window(min(first, sealed), sealed)

    def check(self, asked: Figure) -> None:
        """Raise BadQuestion where something cannot be asked of its metric."""
        self.resolve(asked).names(asked)
        if asked.period:
            self._days(asked.period)

    def _answer(self, expression: Expression, window: Window | None, alone: int | None) -> QueryAnswer:
        guard = self.guard(expression, alone)
        terms: list[Term] = []
        untold = ""
        try:
            if guard.family == "single":
                terms.append(self._of_names(expression, window, guard.alpha))
            else:
                terms.extend(self._sum(expression.sum, window, guard.alpha))
                for factor, part, whole in expression.ratios:
                    terms.append(self._ratio(part, whole, window, guard).times(float(factor)))
                terms[0] = replace(terms[0], estimate=terms[0].estimate + float(expression.sum.constant))
        except Untold as why:
            untold = str(why)
            terms = [why.of] if isinstance(why.of, Term) else []
        except (BadTally, TallyGone) as error:
            untold, terms = str(error), []
        days = self._all_days(expression, window)
        told = self._added(terms, guard) if terms else Term(0.0, 0.0, 0.0, CountedAt("", days), 0, 0)
        bare = QueryAnswer(
            days if untold else told.at.days,
            told.n,
            told.devices,
            guard.family,
            guard.z,
            untold=untold,
            together=guard.together,
        )
        if untold:
            return bare
        if told.beyond:
            if expression.ratios or len(expression.asked) > 1:
                return replace(bare, untold="a quantile in it may lie beyond the outermost edges: ask for it alone")
            bare = replace(bare, note=BEYOND)
        return replace(bare, estimate=told.estimate, lower=told.estimate - told.below, upper=told.estimate + told.above)

    def weights(self, question: Query, answers: Sequence[QueryAnswer] = ()) -> Iterator[Weight]:
        """Yield what an answer is made of: numbers before the values of metrics, cells of tables, or other estimates.

        A rate, or a mean of a table, is a ratio, and has the weights of both its parts. One that is part of another
        ratio is named, without weights. An analysis has its weights in its answers.
        """
        expression = question.expression
        for row in answers if question.analysis else ():
            metric = self.asked_plans(question)[0].plan.metric
            for value, weight in row.weights.items():
                yield Weight("sum", 0, metric if value else "", value, weight, row.name)
        sums: list[tuple[Part, int, Fraction, WeightedSum]] = [("sum", 0, Fraction(1), expression.sum)]
        for at, (factor, part, whole) in enumerate(expression.ratios, 1):
            sums += [("numerator", at, factor, part), ("denominator", at, Fraction(1), whole)]
        ratio = len(expression.ratios)
        for side, at, times, each in sums:
            if each.constant:
                yield Weight(side, at, "", "", float(times * each.constant))
            for factor, asked in each.terms:
                resolved = self.resolve(asked)
                over, under = resolved.functional(asked)
                if under and side == "sum":
                    ratio += 1
                    both: list[tuple[Part, int, float, Mapping[str, float]]] = [
                        ("numerator", ratio, float(times * factor), over),
                        ("denominator", ratio, 1.0, under),
                    ]
                else:
                    names = {resolved.names(asked)[0][0]: 1.0} if under else over
                    both = [(side, at, float(times * factor), names)]
                for own, place, by, numbers in both:
                    for value, number in numbers.items():
                        yield Weight(own, place, resolved.plan.metric if value else "", value, by * number)

    def _all_days(self, expression: Expression, window: Window | None) -> Window:
        """Return the days from the first to the last that are asked of."""
        each = [self._window(asked, self.resolve(asked).stored, window) for asked in expression.asked]
        return Window(min(days.first for days in each), max(days.last for days in each))

    def _window(self, asked: Figure, stored: StoredPlan, window: Window | None) -> Window:
        if asked.period:
            return self._days(asked.period)
        return window or default_window(self.store, stored)

    def _sum(self, of: WeightedSum, window: Window | None, alpha: float) -> Iterator[Term]:
        """Yield the terms of a sum: one for a metric's values or a table's cells in a window, one for any other."""
        found: dict[CountedAt, Sums] = {}
        plain: dict[CountedAt, Floats] = {}
        ratios: dict[CountedAt, list[tuple[float, Floats, Floats]]] = {}
        figures: dict[CountedAt, tuple[tuple[Fraction, Figure], ...]] = {}
        for factor, asked in of.terms:
            resolved = self.resolve(asked)
            at = self._place(asked, window)
            figure = (factor, replace(asked, period=None) if asked.period else asked)
            if not resolved.has_sums:
                row = self._row(resolved, asked, at, alpha)
                yield replace(row if factor == 1 else row.times(float(factor)), figures=(figure,))
                continue
            figures[at] = (*figures.get(at, ()), figure)
            sums = found[at] = found[at] if at in found else self.sums(at)
            part, whole = resolved.sides(asked, sums)
            if whole is None:
                plain[at] = plain[at] + float(factor) * part if at in plain else float(factor) * part
            else:
                ratios.setdefault(at, []).append((float(factor), part, whole))
        for at in {**plain, **ratios}:
            if at in ratios:
                term = self._ratios(at, found[at], ratios[at], plain.get(at), alpha)
            else:
                term = self._functional(at, found[at], plain[at], alpha)
            yield replace(term, figures=figures[at])

    def _of_names(self, expression: Expression, window: Window | None, alpha: float) -> Term:
        """Return all that is possible while each name that is asked lies in its own interval.

        The ends of sums and ratios are where each name is at one of its ends.
        """
        asked = expression.asked
        terms = [term for each in asked for term in self._sum(_alone(each), window, alpha)]
        if len(asked) == 1 and not expression.ratios and expression.sum == _alone(asked[0]):
            return terms[0]
        ends = [[term.estimate - term.below, term.estimate, term.estimate + term.above] for term in terms]
        low, middle, high = np.array([*ends, [1.0, 1.0, 1.0]]).T
        found, shown = np.zeros(3), _of_several(terms)
        for factor, part, whole in ((Fraction(1), expression.sum, _ONE), *expression.ratios):
            over, under = np.array([each.factors(asked) for each in (part, whole)])
            way = np.copysign(1.0, middle @ under)
            possible = _ratio_within(way * over, way * under, low, high)
            if possible is None:
                raise Untold("the denominator cannot be told from zero", shown)
            ratio = (middle @ over) / (middle @ under)
            found += np.sort(np.array([possible[0], ratio, possible[1]]) * float(factor))
        lower, estimate, upper = found.tolist()
        return replace(shown, estimate=estimate, below=estimate - lower, above=upper - estimate)

    def _place(self, asked: Figure, window: Window | None) -> CountedAt:
        resolved = self.resolve(asked)
        return CountedAt(resolved.plan.metric, self._window(asked, resolved.stored, window), self._arm(asked))

    def _arm(self, asked: Figure) -> str:
        table = self.resolve(asked).table
        return table.arm(asked) if table else ""

    def sums(self, at: CountedAt) -> Sums:
        """Return all weighted sums of a metric's values, or of a table's cells, in a window."""
        stored, days = self.plans[at.metric], at.days
        tally = self.suppose(stored) if self.suppose else tally_of(self.store, stored, days)
        if not tally.n:
            raise Untold(f"no report of {at.metric} in {_days(days)}")
        if isinstance(stored.plan.domain, Columns):
            return self._cells(at, arms_of(stored, tally, View(days=days.days)))
        functionals = estimand_of(stored.plan).functionals(stored, tally, days.days)
        assert functionals is not None
        return functionals

    def _cells(self, at: CountedAt, arms: Sequence[Sequence[QuestionTally]]) -> CellSums:
        domain = columns_of(self.plans[at.metric].plan)
        questions = arms[domain.public.index(at.arm, 1) - 1] if at.arm else together(arms)
        enough = [question for question in questions if question.n >= REPORTS_MIN]
        if not enough:
            n = sum(question.n for question in questions)
            few = f"{n:,} reports of {at.metric} are too few: each of {len(domain.questions)} questions needs"
            raise Untold(f"{few} {REPORTS_MIN}", self.bare(at, n))
        return CellSums(enough)

    def bare(self, at: CountedAt, n: int) -> Term:
        """Return a term of n reports that nothing is told of yet."""
        return Term(0.0, 0.0, 0.0, at, n, _devices(self.plans[at.metric], n, at.days))

    def once(
        self, what: str, at: CountedAt, view: Sequence[object], make: Callable[[], T], records: Sequence[type]
    ) -> T:
        """Return what a slow analysis makes of some counts: where readings are kept, the one that is kept.

        Raises NotReady where it is not made here and now.
        """
        if self.suppose:
            return make()
        stored, days = self.plans[at.metric], at.days
        finals = self.store.finals(stored.plan, days.first, days.last)
        with_reports = days_of(self.store, stored, days, finals)
        asked = (days, *view)
        return once(self.store, stored, what, with_reports, asked, make, Codec(records, stored), slow=True, noun=what)

    def tell_progress(self, done: int, of: int) -> None:
        """Tell how much of a slow analysis is done."""
        self.progress(done, of)
        tell_progress(f"fit {done} of {of} done")

    def _functional(self, at: CountedAt, sums: Sums, weights: Floats, alpha: float) -> Term:
        bare = self.bare(at, sums.n)
        if not weights.any():
            return bare
        ends = sums.interval(weights, alpha)
        if ends is None:
            raise self.too_few(at, sums.n)
        estimate, variance = sums.estimate(weights), sums.variance(weights)
        answers = max(0.0, variance - sums.variance(weights, "reports"))
        part = sqrt(answers / variance) if variance > 0 else 1.0
        return replace(bare, estimate=estimate, below=estimate - ends[0], above=ends[1] - estimate, answers_part=part)

    def too_few(self, at: CountedAt, n: int) -> Untold:
        """Return that n reports have no interval that holds."""
        bare = self.bare(at, n)
        of = f"{n:,} reports of {at.metric} may be of only {bare.devices:,} devices"
        again = self.plans[at.metric].plan.cells.memoized and at.days.days > 1
        fewer = "; they answer alike each day, so that one day may tell it" if again else ""
        return Untold(f"{of}: too few for an interval that holds{fewer}", bare)

    def _ratios(
        self,
        at: CountedAt,
        sums: Sums,
        ratios: Sequence[tuple[float, Floats, Floats]],
        beside: Floats | None,
        alpha: float,
    ) -> Term:
        """Return the sum of rates, each as factor, part and whole, and of weights beside them."""
        bare = self.bare(at, sums.n)
        if beside is None and len(ratios) == 1:
            ((factor, part, whole),) = ratios
            found = sums.ratio(part, whole, alpha)
            if found is None:
                raise Untold("too few devices have what stands behind |, or say anything", bare)
            below, above = found.estimate - found.lower, found.upper - found.estimate
            return replace(bare, estimate=found.estimate, below=below, above=above).times(factor)
        if beside is not None:
            everybody = np.zeros_like(beside)
            everybody[0] = 1.0
            ratios = [*ratios, (1.0, beside, everybody)]
        compared = sums.sum_of_ratios(ratios, alpha)
        if compared is None:
            raise Untold("too few devices have what stands behind |, or say anything, to compare them", bare)
        reach = compared.upper - compared.estimate
        return replace(bare, estimate=compared.estimate, below=reach, above=reach)

    def _row(self, resolved: Resolved, asked: Figure, at: CountedAt, alpha: float) -> Term:
        """Return a term that is one row of a reading."""
        if asked not in self._names_of:
            self._names_of[asked] = resolved.names(asked)
        (name,), flipped = self._names_of[asked]
        told = max(alpha, ROW_ALPHA_MIN)
        view = View(days=at.days.days, confidence=1 - told, values=(name,))
        stored = resolved.stored
        if self.suppose and not isinstance(stored.plan.domain, NumberDomain):
            return self._supposed_text(stored, at, alpha)
        last = at.days.last
        reading = (
            estimate(stored, last, self.suppose(stored), view)
            if self.suppose
            else read(self.store, stored, last, view, self._ahead.get(at.metric))
        )
        bare = self.bare(at, reading.n)
        row = next((each for each in reading.rows if each.value == name and not isnan(each.estimate)), None)
        if row is None:
            raise Untold(reading.nothing_to_show or f"{name} cannot be told of {reading.n:,} reports", bare)
        farther = NormalDist().inv_cdf(alpha / 2) / NormalDist().inv_cdf(told / 2)
        own = replace(
            bare,
            estimate=row.estimate,
            below=farther * (row.estimate - row.lower),
            above=farther * (row.upper - row.estimate),
            answers_part=reading.answers_part(row),
            adds_up=asked.statistic != "share",
            beyond=asked.statistic == "quantile" and _reaches_an_outermost_edge(row, resolved.plan),
        )
        return replace(own.times(-1), estimate=1 - own.estimate) if flipped else own

    @cached_property
    def _names_of(self) -> dict[Figure, tuple[tuple[str, ...], bool]]:
        """The names of what is asked, for the windows that follow."""
        return {}

    def _supposed_text(self, stored: StoredPlan, at: CountedAt, alpha: float) -> Term:
        """Return the term of a text that nobody has, if pages would tell it."""
        assert self.suppose
        bare = self.bare(at, self.suppose(stored).n)
        least = precision_of(stored.plan.kind).reports_min(KindAsked(stored.plan.domain, stored.plan.cells))
        if bare.devices < least:
            raise Untold(f"{least:,} devices are needed", bare)
        own = bare.devices if stored.plan.cells.memoized else bare.n
        far = Guard("single", alpha).z * sqrt(
            precision_of(stored.plan.kind).noise_variance(stored.plan.cells) / max(own, 1)
        )
        return replace(bare, below=far, above=far)

    def _ratio(self, part: WeightedSum, whole: WeightedSum, window: Window | None, guard: Guard) -> Term:
        """Return one sum over another: Fieller's of one metric and window, else from the ends of both.

        A number alone is certain: over a sum, it has the ends that the sum has, turned over.
        """
        alpha, asked = guard.alpha, [asked for each in (part, whole) for _, asked in each.terms]
        places = {self._place(each, window) for each in asked}
        if part.terms and len(places) == 1 and all(self.resolve(each).has_parts(each) for each in asked):
            (at,) = places
            sums = self.sums(at)
            over = [self._weights(each, sums) for each in (part, whole)]
            bare = self.bare(at, sums.n)
            if any(sums.interval(weights, alpha) is None for weights in over if weights.any()):
                raise self.too_few(at, sums.n)
            found = sums.ratio(over[0], over[1], alpha)
            if found is None:
                raise Untold("the denominator cannot be told from zero", bare)
            return replace(
                bare, estimate=found.estimate, below=found.estimate - found.lower, above=found.upper - found.estimate
            )
        own = alpha / 2 if part.terms and guard.family == "asked" else alpha
        above_terms, below_terms = (list(self._sum(each, window, own)) for each in (part, whole))
        above = self._added(above_terms or [below_terms[0].times(0.0)], guard, part.constant)
        below = self._added(below_terms, guard, whole.constant)
        ends = below.estimate - below.below, below.estimate + below.above
        shown = _of_several([above, below])
        if ends[0] <= 0 <= ends[1]:
            raise Untold("the denominator cannot be told from zero", shown)
        corners = [
            one / other for one in (above.estimate - above.below, above.estimate + above.above) for other in ends
        ]
        estimate = above.estimate / below.estimate
        return replace(
            shown,
            estimate=estimate,
            below=estimate - min(corners),
            above=max(corners) - estimate,
        )

    def _added(self, terms: Sequence[Term], guard: Guard, constant: Fraction = Fraction(0)) -> Term:
        """Return the sum of terms and a number: all that is possible where intervals hold at once.

        The interval of one that was fixed reaches as far as its error, if each term may be of the same devices as any
        other.
        """
        below = above = 0.0
        for at, one in enumerate(terms):
            below += one.below**2
            above += one.above**2
            for other in terms[:at]:
                opposed = self._opposed(one, other) if guard.family == "asked" else 1.0
                below += 2 * opposed * one.below * other.below
                above += 2 * opposed * one.above * other.above
        estimate = sum(term.estimate for term in terms) + float(constant)
        return replace(_of_several(terms), estimate=estimate, below=sqrt(below), above=sqrt(above))

    def _opposed(self, one: Term, other: Term) -> float:
        """Return how far the errors of two terms may go together: their correlation at most."""
        if one.adds_up or other.adds_up:
            return 1.0
        if one.at.metric == other.at.metric:
            days, others = one.at.days, other.at.days
            arms = one.at.arm and other.at.arm and one.at.arm != other.at.arm
            if arms and days == others:  # one device has one value of the public column in a window
                return 0.0
            overlap = days.first <= others.last and others.first <= days.last and not arms
            again = overlap or self.plans[one.at.metric].plan.cells.memoized
            if again and not _are_opposite(one, other):
                return 1.0
        return one.answers_part * other.answers_part

    def _weights(self, of: WeightedSum, sums: Sums) -> Floats:
        """Return the weights of a sum of one metric's values; a number alone is that number of all values together."""
        first = self.resolve(of.terms[0][1])
        weights = float(of.constant) * first.everybody(sums)
        for factor, asked in of.terms:
            weights = weights + float(factor) * self.resolve(asked).sides(asked, sums)[0]
        return np.asarray(weights)


def _names(stored: StoredPlan) -> int:
    """Return how many names a metric fixes: also families, and of a table each rate or cell of two values."""
    estimand, domain = estimand_of(stored.plan), stored.plan.domain
    known = len(estimand.names(stored)) + len(estimand.shares(stored)) + (stored.measures == "first_month")
    if estimand.has_functionals(stored):
        known += len(set(map(analyses.family_of, stored.plan.values)))
    if isinstance(domain, Columns):
        sides = [2 * len(each.edges) if isinstance(each, Buckets) else 0 for each in domain.domains]
        sizes = [len(domain.labels(column)) + beside + 1 for column, beside in enumerate(sides)] + [len(domain.public)]
        known += 2 * sum(sizes) ** 2
    return known


def _column_sets(stored: StoredPlan) -> int:
    """Return of how many sets of columns all sums may be asked: of one column, of two and so on."""
    domain = stored.plan.domain
    if not isinstance(domain, Columns):
        return 1
    return max(1, len(domain.public)) * (1 + sum(1 << len(question) for question in domain.questions))


def _asks(stored: StoredPlan, names: Sequence[str]) -> bool:
    """Tell whether a question of a table asks for all of some columns; the public one is beside all."""
    domain = columns_of(stored.plan)
    own = {*names} - {*domain.public[:1]}
    if not own <= {*domain.names}:
        return False
    wanted = {domain.names.index(name) for name in own}
    return any(wanted <= {*question} for question in domain.questions)


def _column_names(stored: StoredPlan) -> tuple[str, ...]:
    domain = columns_of(stored.plan)
    return (*domain.names, *domain.public[:1])


def _days(window: Window) -> str:
    return f"{window.first}" if window.days == 1 else f"{window.first} to {window.last}"


def _devices(stored: StoredPlan, n: int, window: Window) -> int:
    """Return how many devices sent n reports of a window, at least."""
    return int(effective(float(n), reports_max(stored, window.days), permanent=True)) if n else 0


_ONE = WeightedSum(constant=Fraction(1))


def _alone(asked: Figure) -> WeightedSum:
    return WeightedSum(((Fraction(1), asked),))


def _of_several(terms: Sequence[Term]) -> Term:
    """Return a term of all days, and of the fewest reports, of which some others are; one alone as it is."""
    if len(terms) == 1:
        return terms[0]
    days = Window(min(term.at.days.first for term in terms), max(term.at.days.last for term in terms))
    n, devices = min(term.n for term in terms), min(term.devices for term in terms)
    beyond = any(term.beyond for term in terms)
    at = terms[0].at._replace(days=days)
    return replace(terms[0], at=at, n=n, devices=devices, adds_up=True, figures=(), beyond=beyond)


def _reaches_an_outermost_edge(row: Row, plan: Plan) -> bool:
    """Tell whether an interval ends at the first or last edge; numbers beyond are counted there."""
    places = places_of(plan)
    return bool(row.lower <= places.mean_lower[0] or row.upper >= places.mean_upper[-1])


def _are_opposite(one: Term, other: Term) -> bool:
    """Tell whether two terms are sums of the same, each times a number, of which one is below zero."""
    if [asked for _, asked in one.figures] != [asked for _, asked in other.figures]:
        return False
    scales = {mine / theirs for (mine, _), (theirs, _) in zip(one.figures, other.figures, strict=True) if theirs}
    return len(scales) == 1 and scales.pop() < 0


def _ratio_within(part: Floats, whole: Floats, low: Floats, high: Floats) -> tuple[float, float] | None:
    """Return the least and the largest of one sum over another, while each number is between its ends.

    None where the denominator may be zero.
    """
    if np.where(whole > 0, low, high) @ whole <= 0:
        return None
    return -_largest_ratio(-part, whole, low, high), _largest_ratio(part, whole, low, high)


def _largest_ratio(part: Floats, whole: Floats, low: Floats, high: Floats) -> float:
    """Return it by Dinkelbach's method (1967).

    With t any ratio, that of the numbers at which part - t whole is largest is larger, unless t is the largest.
    """
    at, ratio = low, -np.inf
    while (further := float(at @ part / (at @ whole))) > ratio:
        ratio = further
        at = np.where(part - ratio * whole > 0, high, low)
    return ratio
