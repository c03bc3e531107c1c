"""The page that answers questions: a field, help with the grammar, examples of the registry, answers with a chart."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from flask import render_template
from marshmallow import fields, validate

from dither_aggregator.analysis.estimands import Point
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.tables.regression import INTERCEPT
from dither_aggregator.ask.answering import ALL_OF, HOLDS_WITH, Asking, QueryAnswer
from dither_aggregator.ask.dashboard import Name, SavedQuestion, analyses, examples, names
from dither_aggregator.ask.fleets import NEEDED_MAX, needed, told
from dither_aggregator.ask.language import CHARACTERS_MAX, BadQuestion, Query
from dither_aggregator.store import Store
from dither_aggregator.web.charts import SHARES, Measure, SeriesChart, Tick, draw_series
from dither_aggregator.web.forest_plots import Plot, SmallRow, Weeks, draw, draw_rows, draw_weeks
from dither_aggregator.web.pages.presentation import FormField, as_typed, count, form, lagging, sentence_of
from dither_aggregator.web.queries import answered, lines, parsed, saved
from dither_aggregator.web.query_parameters import LEVEL, LevelAsked, about, asked_confidence, one_of, query_parameters
from dither_shared.wire.reading import Problem

INVITATION = "Ask in one line; any question costs no privacy, and its interval holds whatever you ask next."
FLEETS = "Nothing was asked: these are the smallest fleets that would tell something."
STEP_DAYS = {"day": 1, "week": 7, "month": 31}
"""Points that are at most so many days apart have no period between them."""


class AskAsked(LevelAsked):
    """The parameters of the page."""

    q = fields.String(
        load_default="",
        validate=validate.Length(max=CHARACTERS_MAX),
        metadata=about("the question, or several, a line each"),
    )
    fleet = one_of(("false", "true"), "true says from how many devices on it would tell something, and asks nothing")


MODEL_DIGITS = 30
"""An estimate without an interval is rounded as one with an error of so small a part of it: to three digits."""
ROWS_OPEN = 14
"""A table of more rows is opened on demand."""


@dataclass(frozen=True)
class Points(Measure):
    """Differences of shares, in percentage points with their sign."""

    def precise(self, number: float, std_error: float) -> str:
        """Return a difference with the digits that its error leaves it."""
        return self.points(number, std_error)

    def end(self, number: float, std_error: float) -> str:
        """Return the end of its interval."""
        return self.end_in_points(number, std_error)

    def about(self, estimate: float, lower: float, upper: float, finer: int = 0) -> str:
        """Return a difference and its interval, as +5.1 (4 to 6 points)."""
        return f"{self.points(estimate, _error(lower, upper))} ({self.ends(lower, upper, finer=finer)})"

    def ticks(
        self, low: float, high: float, step: float, x: Callable[[float], float], *, signed: bool = True
    ) -> tuple[Tick, ...]:
        """Return a tick at each multiple of a step."""
        return super().ticks(low, high, step, x, signed=True)


@dataclass(frozen=True)
class Multiples(Measure):
    """Multiples and sums of shares, in percent, which may be above all of them: no end of theirs is cut."""

    def _ends_of(self, lower: float, upper: float) -> tuple[float, float]:
        """Return an interval in percent, as it was found."""
        return 100 * lower, 100 * upper


def _error(lower: float, upper: float) -> float:
    """Return the error by which a number of an interval is rounded."""
    return (upper - lower) / 4


@dataclass(frozen=True)
class Answered:
    """A question with its answers, and how these are written."""

    question: Query
    answers: Sequence[QueryAnswer]
    measure: Measure
    name: str
    """Its name beside others."""

    @property
    def each(self) -> str:
        """The thing that an answer is of, where there are several."""
        if self.question.analysis and self.question.analysis.by_period:
            return self.question.analysis.span
        return "row" if self.question.analysis else self.question.step or "answer"

    @property
    def told(self) -> list[Row]:
        """The rows of what can be told, but for an intercept: it is no difference, as a regression's others are."""
        return [row for answer in self.answers if not self.is_intercept(answer) and (row := self.row(answer))]

    def is_intercept(self, answer: QueryAnswer) -> bool:
        """Tell whether an answer is what a regression says of devices in none of its groups."""
        analysis = self.question.analysis
        return analysis is not None and analysis.kind in ("regress", "logistic") and answer.name == INTERCEPT

    def row(self, answer: QueryAnswer) -> Row | None:
        """Return an answer as a row, None where nothing can be told."""
        if answer.estimate is None or answer.lower is None or answer.upper is None:
            return None
        error = _error(answer.lower, answer.upper)
        return Row(answer.name or self.name, answer.estimate, error, answer.lower, answer.upper)

    def words(self, answer: QueryAnswer) -> str:
        """Return an answer with its interval, or that it cannot be told."""
        row, measure = self.row(answer), self.measure
        if isinstance(measure, Points) and self.is_intercept(answer):
            measure = SHARES
        if answer.unit is not None:
            measure = Measure(answer.unit)
        if answer.estimate is None:
            return f"This cannot be told: {answer.untold}"
        if row is None and answer.lower is not None:
            return f"at least {count(int(answer.lower), 'device')}"
        if row is None:
            return measure.precise(answer.estimate, abs(answer.estimate) / MODEL_DIGITS)
        return measure.about(row.estimate, row.lower, row.upper)


@dataclass(frozen=True)
class AskPage:
    """All that the template shows of questions and answers."""

    q: str
    headline: str
    examples: Sequence[str]
    names: Sequence[Name]
    state: Sequence[str] = ()
    wrong: tuple[str, str, str] | None = None
    """The question before the place of what is wrong, the word there, and all behind it."""
    found: Sequence[Answered] = ()
    fleets: Mapping[str, str] = field(default_factory=dict)
    """From how many devices on a question would tell something, by the question."""
    plot: Plot | None = None
    series: Sequence[tuple[Answered, SeriesChart]] = ()
    rows_open: int = ROWS_OPEN
    holds_with: Mapping[Any, str] = field(default_factory=lambda: HOLDS_WITH)
    all_of: Mapping[Any, str] = field(default_factory=lambda: ALL_OF)
    characters_max: int = CHARACTERS_MAX
    level: Decimal = LEVEL
    """How sure intervals are, in percent."""
    usual: Decimal = LEVEL
    """The level that no link needs to name."""

    @property
    def form(self) -> Sequence[FormField]:
        """The fields beside the question."""
        return form(AskAsked, {"level": self.level})

    @property
    def families(self) -> Sequence[QueryAnswer]:
        """An answer of each family that there is an interval of."""
        told = [one for each in self.found for one in each.answers if one.lower is not None]
        return list({(one.family, one.z): one for one in told}.values())

    @property
    def rows(self) -> int:
        """How many answers there are."""
        return sum(len(each.answers) for each in self.found)

    @property
    def drawn(self) -> Answered:
        """A question whose measure the plot has."""
        return next(each for each in self.found if not each.question.step)


def show(store: Store) -> tuple[str, int]:
    """Return the page that a request asks for, and its status: 400 for a question that cannot be asked."""
    asking = Asking(store)
    page, status = AskPage("", INVITATION, [*examples(asking), *analyses(asking)], names(asking), lagging(store)), 400
    try:
        asked = query_parameters(AskAsked)
        asking, page = Asking(store, asked_confidence(asked)), replace(page, q=asked["q"], level=asked["level"])
        if asked["q"].strip():
            page = _fleets(asking, page) if asked["fleet"] == "true" else _answered(asking, page)
        status = 200
    except BadQuestion as error:
        page = replace(page, headline=f"This cannot be asked: {error.why}.", wrong=_wrong(error))
    except NotReady as error:
        page, status = replace(page, headline=sentence_of(error)), 200
    except Problem as problem:  # the form stays, to be mended
        page = replace(page, q=as_typed(AskAsked)["q"], headline=problem.detail)
    return render_template("asking.html", page=page), status


def _wrong(error: BadQuestion) -> tuple[str, str, str] | None:
    if error.at is None:
        return None
    before, after = error.around
    word = re.match(r"\w+|.?", after)
    assert word
    return before, word[0], after[word.end() :]


def _fleets(asking: Asking, page: AskPage) -> AskPage:
    """Say from how many devices on questions would tell something; no count is read."""
    questions = parsed(asking, lines(page.q))
    if len(questions) > NEEDED_MAX:
        raise BadQuestion(f"fleets are computed of at most {NEEDED_MAX} questions at once, got {len(questions)}")
    said = {question.text: told(asking, question) for question in questions}
    return replace(page, headline=FLEETS, fleets=said)


def _answered(asking: Asking, page: AskPage) -> AskPage:
    made = answered(asking, lines(page.q), fixed=False)
    found = [presented(asking, question, answers) for question, answers in made]
    rows = [row for each in found if not each.question.step for row in each.told]
    measures = {each.measure for each in found if not each.question.step}
    plot = _plot(rows, measures.pop()) if rows and len(measures) == 1 else None
    series = [(each, chart) for each in found if each.question.step and (chart := _series(each))]
    said = needed(asking, made)
    return replace(page, headline=_headline(found), found=found, fleets=said, plot=plot, series=series)


def _plot(rows: Sequence[Row], measure: Measure) -> Plot:
    return draw(rows, 0.0, signed=isinstance(measure, Points), measure=measure)


def presented(asking: Asking, question: Query, answers: Sequence[QueryAnswer]) -> Answered:
    """Return how answers are written."""
    unit = asking.unit(question)
    factors = [factor for factor, _ in question.expression.sum.terms if factor]
    regresses = question.analysis is not None and question.analysis.kind == "regress"
    shares = Points() if min(factors, default=0) < 0 or regresses else SHARES if sum(factors) <= 1 else Multiples()
    return Answered(question, answers, Measure(unit) if unit else shares, _name(question))


def _name(question: Query) -> str:
    """Return what a chart calls a question: the values that it asks for, where these are all."""
    figures = question.expression.asked
    condition = figures[0].condition if figures else None
    if len(figures) > 1 or condition is None or figures[0].given or figures[0].also:
        return question.text.strip()
    return f"{condition}".removeprefix(f"{condition.name} in ").strip('"')


def _series(of: Answered) -> SeriesChart | None:
    """Draw the answers of days, weeks or months, each at its middle."""
    points = [
        Point(*_numbers(row), True, "", 0, _middle(answer.window), answer.n, provisional=False)
        for answer in of.answers
        if (row := of.row(answer))
    ]
    if not points or of.question.step is None:
        return None
    window = Window(of.answers[0].window.first, of.answers[-1].window.last)
    return draw_series(points, window, measure=of.measure, joined_days=STEP_DAYS[of.question.step])


def _numbers(row: Row) -> tuple[str, float, float, float, float]:
    return row.value, row.estimate, row.std_error, row.lower, row.upper


def _middle(window: Window) -> date:
    return window.first + timedelta(days=(window.days - 1) // 2)


@dataclass(frozen=True)
class SavedCard:
    """A saved question with its answer in a sentence."""

    saved: SavedQuestion
    says: str
    rows: Sequence[SmallRow] = ()
    weeks: Weeks | None = None
    move: str = ""
    """Which way and how far its answer moved; "" where that cannot be told."""


def saved_cards(store: Store) -> list[SavedCard]:
    """Return a card for each of the dashboard's questions."""
    asking = Asking(store)
    return [_card(asking, one) for one in saved(store)]


def _card(asking: Asking, one: SavedQuestion) -> SavedCard:
    if one.question is None:
        return SavedCard(one, one.wrong)
    shown, change = presented(asking, one.question, one.answers), one.change
    move = ""
    if one.verdict and change and change.lower is not None and change.upper is not None:
        least, most = sorted((abs(change.lower), abs(change.upper)))
        move = f"{one.verdict} by between {shown.measure.ends(least, most, 'and')}"
    says, rows = _headline([shown]), shown.told
    if one.question.step:
        ends = [answer.window.last for answer in one.answers if answer.estimate is not None]
        return SavedCard(one, says, weeks=draw_weeks(list(zip(ends, rows, strict=True)), shown.measure), move=move)
    named = shown.name != one.question.text.strip()  # else it says no more than the answer does
    return SavedCard(one, says, draw_rows(rows, shown.measure, None) if named else (), move=move)


def _headline(found: Sequence[Answered]) -> str:
    answers = [(each, answer) for each in found for answer in each.answers]
    if len(answers) == 1:
        ((one, answer),) = answers
        return f"{one.words(answer)}; {answer.note}" if answer.note else one.words(answer)
    told = sum(answer.estimate is not None for _, answer in answers)
    if not told:
        return f"None of {count(len(answers), 'answer')} can be told."
    one, last = next((each, answer) for each, answer in reversed(answers) if answer.estimate is not None)
    if len(found) > 1:
        return f"{told:,} of {count(len(answers), 'answer')} can be told."
    if one.question.analysis and not one.question.analysis.by_period:
        first = next((answer for answer in one.answers if not one.is_intercept(answer)), answers[0][1])
        return f"{first.name}: {one.words(first)}, the first of {count(told, one.each)}."
    days = f"{last.window.first} to {last.window.last}" if last.window.days > 1 else f"{last.window.last}"
    return f"{one.words(last)} in {days}, the last of {count(told, one.each)} that can be told."
