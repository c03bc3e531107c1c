"""Answers to questions: an estimate, an interval that holds however many questions follow, and what it was made of.

**Intervals hold together.** A reader asks again because of what came out, so an interval must hold whichever is
asked. By default each is one of a family that was fixed before any count was read, and each family has a third of
alpha:

    single     each name that the registry fixes, over each window of whole days
    pair       each difference, sum or ratio of two of them: in one window, or of one name in two windows
    free       all weighted sums and ratios of one metric's listed values (Scheffe), for each metric and window

Questions that were all written before the first answer pay for their own number alone (Bonferroni).

**Terms are added.** Values of one metric in one window are one functional, with the exact law of their error. Terms of
different windows or metrics may be of the same devices, whose answers go together or alternate: the worst of it is in
the interval (`functional.apart`). Parts that ranges leave open add up, and are never squared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import isnan, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import chdtri, ndtr

from dither_aggregator.analysis.estimands import estimand_of, read, tally_of
from dither_aggregator.analysis.functional import Functionals
from dither_aggregator.analysis.inference import CONFIDENCE, Floats, effective
from dither_aggregator.analysis.numbers import MEAN, QUANTILES
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.reading import columns_of
from dither_aggregator.analysis.tables.rows import mean_name, rate_name, share_name
from dither_aggregator.analysis.windows import Window, default_window, reports_max
from dither_aggregator.ask.language import BadQuestion, Condition, Expression, Figure, Period, Query, WeightedSum, steps
from dither_aggregator.counting.folding import BadTally, TallyGone
from dither_aggregator.store import Store, StoredPlan
from dither_shared.domains import Columns
from dither_shared.domains.number_ranges import NumberDomain
from dither_shared.plan import Plan

WINDOW_DAYS_MAX = 366
WINDOWS = WINDOW_DAYS_MAX * (WINDOW_DAYS_MAX + 1) // 2
"""All windows of whole days of a year."""
FAMILIES = 3
ALPHA_MIN = 1e-290
"""Floats have no smaller chances that are exact: those of about 1,100 values by Scheffé's method."""
ROW_ALPHA_MIN = 1e-12
"""Readings are asked for a confidence, and 1 less a smaller chance is not exact; intervals of smaller ones are such
that are stretched as those of a normal law are."""
WORK_MAX = 400
"""Parts of all answers that are made at once: each takes about two milliseconds."""
RATE_PARTS = 10
"""A rate in a table counts as so many: it takes about a tenth of a second."""
Family = Literal["single", "pair", "free", "asked"]
HOLDS_WITH: Mapping[Family, str] = {
    "single": "all questions of one name together",
    "pair": "all questions of two names together",
    "free": "all questions of one metric's values together",
    "asked": "the questions that were asked together",
}
"""The questions that the intervals of a family hold for, in words."""


class Guard(NamedTuple):
    """How sure one interval must be, for all of its family to hold together."""

    family: Family
    alpha: float
    """The chance that this one interval misses."""
    together: int | None = None
    """How many intervals the family has; None where it has all sums that there are."""


@dataclass(frozen=True)
class Term:
    """A part of an answer: an estimate, and how far its interval reaches."""

    estimate: float
    below: float
    above: float
    window: Window
    n: int
    devices: int
    """At least so many sent these reports."""
    answers_part: float = 1.0
    """How much of its error devices' answers are at most: 1 where that is not known."""
    is_open: bool = False
    """Whether ranges leave something open, which is the same in every term."""

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
    together: int | None = None
    """How many intervals hold at once; None for all sums of a metric's values, in all metrics and windows."""
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
    """The value, or the estimate, by its name in the metric."""
    weight: float


@dataclass(frozen=True)
class Asking:
    """A store that is asked: which names its registry fixes, and so how sure each interval must be."""

    store: Store
    confidence: float = CONFIDENCE

    @cached_property
    def plans(self) -> Mapping[str, StoredPlan]:
        """The newest plan of each metric."""
        found: dict[str, StoredPlan] = {}
        for stored in self.store.plans():
            found.setdefault(stored.plan.metric, stored)
        return found

    @cached_property
    def names(self) -> int:
        """How many names the registry fixes, over all metrics: a table's rates by group counted."""
        return max(1, sum(_names(stored) for stored in self.plans.values()))

    @cached_property
    def largest(self) -> int:
        """The most that one metric has."""
        return max([1, *(_names(stored) for stored in self.plans.values())])

    def guard(self, expression: Expression, alone: int | None) -> Guard:
        """Return how sure an interval must be: of so many that were all fixed before, or whatever is asked next."""
        alpha = 1 - self.confidence
        if alone is not None:
            return Guard("asked", alpha / alone, alone)
        singles = [asked for asked in expression.asked if asked.condition is None or _is_single(asked.condition)]
        if len(singles) == len(expression.asked) <= 2:
            pairs = self.names * (self.largest * WINDOWS + WINDOWS**2)
            family: Family = "single" if len(singles) == 1 else "pair"
            together = self.names * WINDOWS if family == "single" else pairs
            return Guard(family, alpha / FAMILIES / together, together)
        free = max([1, *(self._freedom(asked) for asked in expression.asked)])
        z = sqrt(float(chdtri(free, alpha / FAMILIES / (len(self.plans) * WINDOWS))))
        both = 2 * float(ndtr(-z))  # Python's own law says 0 from 8.3 standard errors on
        if both < ALPHA_MIN:
            few = f"sums of {free + 1:,} values do not hold all at once: name two values at most"
            raise BadQuestion(f"{few}, or fix the questions before any answer")
        return Guard("free", both)

    def _freedom(self, asked: Figure) -> int:
        return len(self.resolve(asked).plan.values) - 1 if self.resolve(asked).listed else 1

    # Which metric is meant.

    def resolve(self, asked: Figure) -> "Resolved":
        """Return the plan that something is asked of; raise BadQuestion, which says what there is, for none."""
        if stored := self.plans.get(asked.metric):
            return Resolved(stored)
        table, _, column = asked.metric.rpartition(".")
        tables = {
            name: stored
            for name, stored in self.plans.items()
            if isinstance(stored.plan.domain, Columns) and table in ("", name)
        }
        holding = {name: stored for name, stored in tables.items() if column in _column_names(stored)}
        given = asked.given.name.rpartition(".")[2] if asked.given else None
        both = {name: stored for name, stored in holding.items() if given in (None, *_column_names(stored))}
        if len(both) == 1:
            ((_, stored),) = both.items()
            return Resolved(stored, column)
        if both:
            raise BadQuestion(f"{' and '.join(sorted(both))} have a column {column!r}: write TABLE.{column}")
        if holding:
            raise BadQuestion(
                f"{column} and {given} were never asked together: a metric of kind table with both columns would"
            )
        raise BadQuestion(f"there is no metric or column {asked.metric!r}; there are {_listed(sorted(self.plans))}")

    # Answers.

    def answer_all(self, questions: Sequence[Query], *, fixed: bool) -> list[list[QueryAnswer]]:
        """Return the answers of questions, which may all have been `fixed` before any of them was answered.

        Raises BadQuestion before any count is read: for one that cannot be asked, and for too much work.
        """
        answers = [len(self.windows(question)) for question in questions]
        parts = [self.work(question) for question in questions]
        if sum(parts) > WORK_MAX:
            most = questions[parts.index(max(parts))]
            asked = f"{sum(answers):,} answers" if len(questions) == 1 else f"{len(questions):,} questions"
            few = f"{asked} of {sum(parts):,} parts in all are too many at once: {WORK_MAX} are answered"
            raise BadQuestion(f"{few}; ask by week, or of fewer days").placed(most.text, len(most.text))
        alone = sum(answers) if fixed else None
        for question in questions:
            try:
                self.guard(question.expression, alone)
            except BadQuestion as error:
                raise error.placed(question.text, 0) from None
        return [list(self.answer(question, alone)) for question in questions]

    def work(self, question: Query) -> int:
        """Return how many parts all answers of a question have."""
        rates = [RATE_PARTS if asked.given else 1 for asked in question.expression.asked]
        return len(self.windows(question)) * sum(rates)

    def unit(self, expression: Expression) -> str:
        """Return the unit of an answer: "" for shares, "1" for a number without one, such as a ratio."""
        units = {
            "" if asked.statistic == "share" else self.resolve(asked).unit
            for factor, asked in expression.sum.terms
            if factor
        }
        shares_alone = units == {""} and not expression.sum.constant
        return "1" if expression.ratios or len(units) != 1 or (units == {""} and not shares_alone) else units.pop()

    def answer(self, question: Query, alone: int | None = None) -> Iterator[QueryAnswer]:
        """Yield the answer, or one for each step; `alone` is the number of intervals that were fixed beforehand."""
        for each in self.windows(question):
            yield self._answer(question.expression, each, alone)

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
            raise BadQuestion(f"a period has at most {WINDOW_DAYS_MAX} days, {window.first} to {window.last} are more")
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
        z = -NormalDist().inv_cdf(guard.alpha / 2)
        terms: list[Term] = []
        untold = ""
        try:
            terms.extend(self._sum(expression.sum, window, guard.alpha))
            for factor, part, whole in expression.ratios:
                terms.append(self._ratio(part, whole, window, guard.alpha).times(float(factor)))
        except _Untold as why:
            untold = str(why)
            terms = [why.term] if why.term else []
        except (BadTally, TallyGone) as error:
            untold, terms = str(error), []
        days = [term.window for term in terms] or [window or default_window(self.store, self._first(expression))]
        first, last = min(each.first for each in days), max(each.last for each in days)
        counted = min((term.n for term in terms), default=0), min((term.devices for term in terms), default=0)
        bare = QueryAnswer(Window(first, last), *counted, guard.family, z, untold=untold, together=guard.together)
        if untold:
            return bare
        added = _added(terms)
        estimate = added.estimate + float(expression.sum.constant)
        return replace(bare, estimate=estimate, lower=estimate - added.below, upper=estimate + added.above)

    def weights(self, question: Query) -> Iterator[Weight]:
        """Yield what an answer is made of: numbers before the values of metrics, or before other estimates."""
        expression = question.expression
        sums: list[tuple[Part, int, Fraction, WeightedSum]] = [("sum", 0, Fraction(1), expression.sum)]
        for at, (factor, part, whole) in enumerate(expression.ratios, 1):
            sums += [("numerator", at, factor, part), ("denominator", at, Fraction(1), whole)]
        for side, at, times, each in sums:
            if each.constant:
                yield Weight(side, at, "", "", float(times * each.constant))
            for factor, asked in each.terms:
                resolved = self.resolve(asked)
                names, flipped = resolved.names(asked)
                sign = -1 if flipped else 1
                if flipped:
                    yield Weight(side, at, "", "", float(times * factor))
                for name in names:
                    yield Weight(side, at, resolved.plan.metric, name, float(sign * times * factor))

    def _first(self, expression: Expression) -> StoredPlan:
        return self.resolve(expression.asked[0]).stored

    def _window(self, asked: Figure, stored: StoredPlan, window: Window | None) -> Window:
        if asked.period:
            return self._days(asked.period)
        return window or default_window(self.store, stored)

    def _sum(self, of: WeightedSum, window: Window | None, alpha: float) -> Iterator[Term]:
        """Yield the terms of a sum: one for all listed values of a metric in a window, one for anything else."""
        listed: dict[tuple[str, Window], Floats] = {}
        for factor, asked in of.terms:
            resolved = self.resolve(asked)
            days = self._window(asked, resolved.stored, window)
            if not resolved.listed:
                yield self._row(resolved, asked, days, alpha).times(float(factor))
                continue
            weights = float(factor) * resolved.weights(asked)
            at = resolved.plan.metric, days
            listed[at] = listed[at] + weights if at in listed else weights
        for (metric, days), weights in listed.items():
            yield self._functional(self.plans[metric], weights, days, alpha)

    def _functionals(self, stored: StoredPlan, days: Window) -> Functionals:
        tally = tally_of(self.store, stored, days)
        if not tally.n:
            raise _Untold(f"no report of {stored.plan.metric} in {_days(days)}")
        functionals = estimand_of(stored.plan).functionals(stored, tally, days.days)
        assert functionals is not None
        return functionals

    def _functional(self, stored: StoredPlan, weights: Floats, days: Window, alpha: float) -> Term:
        functionals = self._functionals(stored, days)
        devices = _devices(stored, functionals.n, days)
        bare = Term(0.0, 0.0, 0.0, days, functionals.n, devices)
        if not weights.any():
            return bare
        ends = functionals.interval(weights, alpha)
        if ends is None:
            few = f"{functionals.n:,} reports of {stored.plan.metric} may be of only {devices:,} devices"
            raise _Untold(f"{few}: too few for an interval that holds", bare)
        estimate, variance = functionals.estimate(weights), functionals.variance(weights)
        answers = max(0.0, variance - functionals.variance(weights, "reports"))
        part = sqrt(answers / variance) if variance > 0 else 1.0
        return replace(bare, estimate=estimate, below=estimate - ends[0], above=ends[1] - estimate, answers_part=part)

    def _row(self, resolved: "Resolved", asked: Figure, days: Window, alpha: float) -> Term:
        """Return a term that is one row of a reading."""
        (name,), flipped = resolved.names(asked)
        told = max(alpha, ROW_ALPHA_MIN)
        view = View(days=days.days, confidence=1 - told, values=(name,))
        stored = resolved.stored
        reading = read(self.store, stored, days.last, view)
        bare = Term(0.0, 0.0, 0.0, days, reading.n, _devices(stored, reading.n, days))
        row = next((each for each in reading.rows if each.value == name and not isnan(each.estimate)), None)
        if row is None:
            raise _Untold(reading.nothing_to_show or f"{name} cannot be told of {reading.n:,} reports", bare)
        farther = NormalDist().inv_cdf(alpha / 2) / NormalDist().inv_cdf(told / 2)
        own = Term(
            row.estimate,
            farther * (row.estimate - row.lower),
            farther * (row.upper - row.estimate),
            days,
            bare.n,
            bare.devices,
            reading.answers_part(row),
            asked.statistic != "share",
        )
        return replace(own.times(-1), estimate=1 - own.estimate) if flipped else own

    def _ratio(self, part: WeightedSum, whole: WeightedSum, window: Window | None, alpha: float) -> Term:
        """Return one sum over another: Fieller's of one metric and window, else from the ends of both."""
        at = {
            (self.resolve(asked).plan.metric, self._window(asked, self.resolve(asked).stored, window))
            for each in (part, whole)
            for _, asked in each.terms
        }
        if len(at) == 1 and all(self.resolve(asked).listed for each in (part, whole) for _, asked in each.terms):
            ((metric, days),) = at
            stored = self.plans[metric]
            resolved, functionals = Resolved(stored), self._functionals(stored, days)
            over = [self._weights(resolved, each) for each in (part, whole)]
            bare = Term(0.0, 0.0, 0.0, days, functionals.n, _devices(stored, functionals.n, days))
            if any(functionals.interval(weights, alpha) is None for weights in over if weights.any()):
                raise _Untold(f"{functionals.n:,} reports may be of too few devices", bare)
            found = functionals.ratio(over[0], over[1], alpha)
            if found is None:
                raise _Untold("the denominator cannot be told from zero, or these are too few reports", bare)
            return replace(
                bare, estimate=found.estimate, below=found.estimate - found.lower, above=found.upper - found.estimate
            )
        above, below = (_added(list(self._sum(each, window, alpha / 2)), each.constant) for each in (part, whole))
        ends = below.estimate - below.below, below.estimate + below.above
        shown = replace(above, n=min(above.n, below.n), devices=min(above.devices, below.devices))
        if ends[0] <= 0 <= ends[1]:
            raise _Untold("the denominator cannot be told from zero", shown)
        corners = [
            one / other for one in (above.estimate - above.below, above.estimate + above.above) for other in ends
        ]
        estimate = above.estimate / below.estimate
        return replace(
            shown,
            estimate=estimate,
            below=estimate - min(corners),
            above=max(corners) - estimate,
            answers_part=1.0,
            is_open=above.is_open or below.is_open,
        )

    @staticmethod
    def _weights(resolved: "Resolved", of: WeightedSum) -> Floats:
        """Return the weights of a sum of one metric's values; a number alone is that number of all values together."""
        weights = np.full(len(resolved.plan.values), float(of.constant))
        for factor, asked in of.terms:
            weights += float(factor) * resolved.weights(asked)
        return weights


class _Untold(Exception):
    """A question cannot be answered, and why."""

    def __init__(self, why: str, term: Term | None = None) -> None:
        super().__init__(why)
        self.term = term


@dataclass(frozen=True)
class Resolved:
    """The plan that is asked, and in a table the column."""

    stored: StoredPlan
    column: str = ""

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return self.stored.plan

    @property
    def unit(self) -> str:
        """The unit of its numbers; "1" without one."""
        domain = self.plan.domain
        if isinstance(domain, Columns) and self.column in domain.names:
            domain = domain.domains[domain.names.index(self.column)]
        return domain.unit or "1"

    @property
    def listed(self) -> bool:
        """Whether values are listed, so that any sum of them is a functional."""
        return estimand_of(self.plan).has_functionals(self.stored)

    def names(self, asked: Figure) -> tuple[tuple[str, ...], bool]:
        """Return the names of what is asked, and whether all others are meant; raise BadQuestion where none is."""
        if self.column:
            return self._of_table(asked), False
        metric = self.plan.metric
        if asked.given:
            raise BadQuestion(
                f"{metric} was never asked together with {asked.given.name}: a metric of kind table with both columns "
                "would"
            )
        known = (*estimand_of(self.plan).names(self.stored), *estimand_of(self.plan).shares(self.stored))
        domain = self.plan.domain
        if asked.statistic == "mean" and MEAN in known:
            return (MEAN,), False
        if asked.statistic != "share":
            if not isinstance(domain, NumberDomain):
                raise BadQuestion(f"{metric} is of values, which have no {asked.statistic}: ask share({metric} = ...)")
            return (_quantile(asked, known),), False
        assert asked.condition is not None
        if asked.condition.number is not None:
            if not isinstance(domain, NumberDomain):
                raise BadQuestion(f"{metric} is of values: ask share({metric} in ...)")
            return (_above(domain, asked.condition, known),), not asked.condition.above
        found = asked.condition.among(known)
        if not found:
            raise BadQuestion(f"{metric} has no value that {asked.condition} means; it has {_listed(known)}")
        if len(found) > 1 and not self.listed:
            raise BadQuestion(f"{metric} tells one value at a time; {asked.condition} means {_listed(found)}")
        return found, False

    def weights(self, asked: Figure) -> Floats:
        """Return 1 for each value that is asked for, and 0 for all others."""
        found, _ = self.names(asked)
        return np.isin(np.array(self.plan.values, dtype=object), found).astype(np.float64)

    def _of_table(self, asked: Figure) -> tuple[str]:
        domain = columns_of(self.plan)
        if asked.statistic == "quantile":
            raise BadQuestion(f"{self.column} is a column of {self.plan.metric}, of which no quantile is measured")
        if asked.statistic == "mean":
            what = mean_name(self.column)
        else:
            assert asked.condition is not None
            what = share_name(self.column, self._label(domain, self.column, asked.condition))
        if asked.given is None:
            return (what,)
        column = asked.given.name.rpartition(".")[2]
        return (rate_name(what, share_name(column, self._label(domain, column, asked.given))),)

    def _label(self, domain: Columns, column: str, condition: Condition) -> str:
        if column in domain.public[:1]:
            labels: Sequence[str] = domain.public[1:]
        else:
            labels = domain.labels(domain.names.index(column))
        if condition.number is not None:
            raise BadQuestion(f"{column} is told by its ranges: ask {column} in one of {_listed(labels)}")
        found = condition.among(tuple(labels))
        if len(found) != 1:
            means = f"means {_listed(found)}" if found else "means none"
            raise BadQuestion(f"a column is asked for one value; {condition} {means} of {_listed(labels)}")
        return found[0]


def _is_single(condition: Condition) -> bool:
    """Tell whether a condition names one thing: a number's edge, or a value without a pattern."""
    if condition.number is not None:
        return True
    return len(condition.patterns) == 1 and not any(each in condition.patterns[0].replace("[*]", "") for each in "*?")


def _quantile(asked: Figure, known: Sequence[str]) -> str:
    """Return the name of a quantile."""
    name = next((name for name, at in QUANTILES.items() if Fraction(str(at)) == asked.probability), "")
    if name not in known:
        told = [f"{at:g}".removeprefix("0") for name, at in QUANTILES.items() if name in known]
        raise BadQuestion(f"quantiles are told of {_listed(told)}" if told else f"{asked.metric} tells a mean alone")
    return name


def _above(domain: NumberDomain, condition: Condition, known: Sequence[str]) -> str:
    """Return the name of the share of numbers from an edge on."""
    if condition.unit not in ("", domain.unit):
        raise BadQuestion(f"{condition.name} is in {domain.unit or 'no unit'}, not in {condition.unit}")
    edges = [domain.in_unit(edge) for edge in domain.edges]
    edge = next((edge for edge in edges if Fraction(edge) == Fraction(condition.number or 0)), None)
    name = f"at least {domain.with_unit(edge)}" if edge is not None else ""
    if name not in known:
        raise BadQuestion(f"{condition.name} is told apart at {_listed(edges)}: ask for one of these")
    return name


def _names(stored: StoredPlan) -> int:
    """Return how many names a metric fixes."""
    estimand, domain = estimand_of(stored.plan), stored.plan.domain
    known = len(estimand.names(stored)) + len(estimand.shares(stored))
    if isinstance(domain, Columns):
        sizes = [len(domain.labels(column)) for column in range(len(domain.names))] + [len(domain.public)]
        known += sum(sizes) ** 2
    return known


def _column_names(stored: StoredPlan) -> tuple[str, ...]:
    domain = columns_of(stored.plan)
    return (*domain.names, *domain.public[:1])


def _listed(names: Iterable[str], most: int = 8) -> str:
    """Return some names for a sentence, the first of many."""
    given = list(names)
    more = f" and {len(given) - most:,} more" if len(given) > most else ""
    return ", ".join(given[:most]) + more if given else "none"


def _days(window: Window) -> str:
    return f"{window.first}" if window.days == 1 else f"{window.first} to {window.last}"


def _devices(stored: StoredPlan, n: int, window: Window) -> int:
    """Return how many devices sent n reports of a window, at least."""
    return int(effective(float(n), reports_max(stored, window.days), permanent=True)) if n else 0


def _added(terms: Sequence[Term], constant: Fraction = Fraction(0)) -> Term:
    """Return the sum of terms, each of which may be of the same devices as any other."""
    shown = terms[0]
    below = above = 0.0
    for at, one in enumerate(terms):
        below += one.below**2
        above += one.above**2
        for other in terms[:at]:
            together = 1.0 if one.is_open or other.is_open else one.answers_part * other.answers_part
            below += 2 * together * one.below * other.below
            above += 2 * together * one.above * other.above
    return replace(
        shown,
        estimate=sum(term.estimate for term in terms) + float(constant),
        below=sqrt(below),
        above=sqrt(above),
        n=min(term.n for term in terms),
        devices=min(term.devices for term in terms),
        is_open=any(term.is_open for term in terms),
        answers_part=1.0,
    )
