"""Questions in the language of `dither ask`: a row an answer."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, TypedDict

import msgspec
from flask import request
from marshmallow import fields, validate

from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.rows import says
from dither_aggregator.ask import fleets
from dither_aggregator.ask.answering import Asking, Family, Part
from dither_aggregator.ask.language import CHARACTERS_MAX, BadQuestion
from dither_aggregator.store import Store
from dither_aggregator.web.api.rowsets import RowsAsked, RowSet, Unit
from dither_aggregator.web.queries import QUESTIONS_MAX, answered, lines, saved
from dither_aggregator.web.query_parameters import (
    Body,
    LevelAsked,
    QueryParameters,
    about,
    asked_confidence,
    asked_level,
    body_parameters,
    one_of,
)
from dither_shared.wire.reading import Problem


class QueryAsked(LevelAsked, RowsAsked):
    """How sure intervals are, and in which form answers are wanted."""

    weights = one_of(("false", "true"), "true adds to meta the weights that each answer is made with")


class QuestionAsked(QueryAsked):
    """A question, or several."""

    q = fields.String(
        required=True,
        validate=validate.Length(1, CHARACTERS_MAX, error=f"must have 1 to {CHARACTERS_MAX:,} characters"),
        metadata=about('the question, such as share(dark = "yes") by week; or several, a line each'),
    )


class QuestionsBody(Body):
    """Questions that were all fixed before any of them was answered."""

    questions = fields.List(
        fields.String(
            validate=validate.Length(1, CHARACTERS_MAX, error=f"must be texts of 1 to {CHARACTERS_MAX:,} characters"),
            error_messages={"invalid": "must be texts"},
        ),
        required=True,
        validate=validate.Length(1, QUESTIONS_MAX, error=f"must be 1 to {QUESTIONS_MAX} questions"),
        error_messages={"invalid": "must be a list of questions"},
    )
    weights = fields.Boolean(
        load_default=False,
        truthy={True},
        falsy={False},
        error_messages={"invalid": "must be true or false"},
        metadata={"description": "true adds to meta the weights that each answer is made with"},
    )


class WeightRow(msgspec.Struct, frozen=True):
    """A number before an estimate, of which an answer is made."""

    question: Annotated[int, says("which question, counted from 1")]
    part: Annotated[Part, says("the part of the question: the sum, or a side of one of its ratios")]
    ratio: Annotated[int, says("which of its ratios, counted from 1; 0 for the sum beside them")]
    metric: Annotated[str, says('the metric; "" for a number alone')]
    value: Annotated[str, says("the value, the cell or the estimate, by its name in the metric")]
    weight: float
    name: Annotated[str, says('of an analysis: the row that it makes; else ""')]


class AnswerMeta(TypedDict):
    """The questions, and what their intervals hold for."""

    app: str
    questions: list[str]
    level: Annotated[float, says("how sure the intervals are, in percent, for all of their family together")]
    needed: Annotated[
        str, says('from how many devices on it would tell something, where a question tells nothing; else ""')
    ]
    weights: Annotated[list[WeightRow] | None, says("the weights; null if they were not asked for")]


class AnswerRow(msgspec.Struct, frozen=True):
    """One answer: of a period, or of one of its days, weeks or months."""

    question: str
    first: Annotated[date, says("the first day (UTC)")] = msgspec.field(name="from")
    last: Annotated[date, says("the last day (UTC)")] = msgspec.field(name="to")
    n: Annotated[int, says("reports, of the part of the question that has the fewest")]
    devices: Annotated[int, says("at least so many devices sent them")]
    estimate: Annotated[float | None, says("raw and unbiased, of devices the lower end; null where it cannot be told")]
    lower: Annotated[float | None, says("the interval's lower end")]
    upper: Annotated[float | None, says("its upper end; null of devices, which are told at least")]
    unit: Annotated[Unit, says('"1" for other numbers without a unit, such as ratios')]
    error_of: Annotated[ErrorOf, says("the devices that the interval is of")]
    family: Annotated[
        Family,
        says(
            "what holds together: all questions of a single name, of a pair of names, or free sums of one metric's "
            "values or columns, all coefficients of regressions; asked: those fixed together before any answer"
        ),
    ]
    together: Annotated[
        int | None, says("how many intervals these are; null for free sums, which have no number: all of them hold")
    ]
    z: Annotated[
        float, says("in how many standard errors a normal interval of that level reaches, where there is an interval")
    ]
    untold: Annotated[str, says('why nothing can be told; "" where it can')]
    name: Annotated[str, says('of an analysis: the value, coefficient or centre that the row is of; else ""')]
    note: Annotated[
        str,
        says(
            "ranks, what a bound rests on, that an estimate is a model without an interval, or that a quantile may lie "
            "beyond its interval"
        ),
    ]


class SavedMeta(TypedDict):
    """The aggregator, and how sure the intervals are."""

    app: str
    level: Annotated[int, says("how sure the intervals are, in percent")]


class SavedRow(msgspec.Struct, frozen=True):
    """An answer of a question that the operator's dashboard names; or, without days, why there is none."""

    title: Annotated[str, says("the question's name in the dashboard")]
    question: str
    fixed: Annotated[
        bool,
        says(
            "whether it was written before the first report of what it asks: then its intervals hold together with "
            "those of all such questions alone"
        ),
    ]
    first: Annotated[date | None, says("the first day (UTC)")] = msgspec.field(name="from")
    last: Annotated[date | None, says("the last day (UTC)")] = msgspec.field(name="to")
    n: Annotated[int, says("reports, of the part of the question that has the fewest")]
    estimate: Annotated[float | None, says("raw and unbiased; null where it cannot be told")]
    lower: Annotated[float | None, says("the interval's lower end")]
    upper: Annotated[float | None, says("its upper end")]
    unit: Annotated[Unit, says('"1" for other numbers without a unit, such as ratios')]
    verdict: Annotated[
        str, says('rose or fell, since as many days before as /changes compares; "" where it cannot be told to have')
    ]
    change: Annotated[float | None, says("how far it moved; null where its days are its own")]
    change_lower: Annotated[float | None, says("the lower end of the interval of that")]
    change_upper: Annotated[float | None, says("its upper end")]
    untold: Annotated[str, says('why nothing can be told; "" where it can')]
    name: Annotated[str, says('the row of an analysis; "" of another question')]
    note: Annotated[str, says("the same as of /v1/query")]


def questions(store: Store, asked: QueryParameters) -> RowSet[SavedMeta, SavedRow]:
    """Return the dashboard's questions with their answers."""
    meta: SavedMeta = {"app": store.app, "level": 95}
    return RowSet(meta, SavedRow, list(_saved_rows(store)), "questions")


def _saved_rows(store: Store) -> Iterator[SavedRow]:
    asking = Asking(store)
    for one in saved(store):
        if one.question is None:
            wrong = one.wrong, "", ""
            yield SavedRow(one.title, one.text, one.fixed, None, None, 0, *_NOTHING, "", "", *_NOTHING, *wrong)
            continue
        change, unit = one.change, asking.unit(one.question)
        moved = (change.estimate, change.lower, change.upper) if change else _NOTHING
        for answer in one.answers:
            yield SavedRow(
                one.title,
                one.text,
                one.fixed,
                answer.window.first,
                answer.window.last,
                answer.n,
                answer.estimate,
                answer.lower,
                answer.upper,
                unit if answer.unit is None else answer.unit,
                one.verdict,
                *moved,
                answer.untold,
                answer.name,
                answer.note,
            )


_NOTHING = (None, None, None)
"""An estimate that there is none of, and its ends."""


def query(store: Store, asked: QueryParameters) -> RowSet[AnswerMeta, AnswerRow]:
    """Answer questions, whatever is asked next."""
    return _rows(store, asked, lines(asked["q"]), fixed=False, weighed=asked["weights"] == "true")


def query_fixed(store: Store, asked: QueryParameters) -> RowSet[AnswerMeta, AnswerRow]:
    """Answer questions that were all fixed before any of them was answered."""
    body = body_parameters(QuestionsBody, request.get_data())
    weighed = body["weights"] or asked["weights"] == "true"
    return _rows(store, asked, body["questions"], fixed=True, weighed=weighed)


def _rows(
    store: Store, asked: QueryParameters, questions: list[str], *, fixed: bool, weighed: bool
) -> RowSet[AnswerMeta, AnswerRow]:
    asking = Asking(store, asked_confidence(asked))
    try:
        found = answered(asking, questions, fixed=fixed)
    except BadQuestion as error:
        several = len(questions) > 1 and error.text in questions
        which = f", question {questions.index(error.text) + 1}" if several else ""
        raise Problem("malformed", f"{'questions' if fixed else 'q'}{which}: {error}") from None
    alone = sum(asking.intervals(question) for question, _ in found) if fixed else None
    needed = fleets.needed(asking, found, alone).values()
    rows = [
        AnswerRow(
            question.text,
            answer.window.first,
            answer.window.last,
            answer.n,
            answer.devices,
            answer.estimate,
            answer.lower,
            answer.upper,
            asking.unit(question) if answer.unit is None else answer.unit,
            answer.error_of,
            answer.family,
            answer.together,
            answer.z,
            answer.untold,
            answer.name,
            answer.note,
        )
        for question, answers in found
        for answer in answers
    ]
    weights = [
        WeightRow(number, *weight)
        for number, (question, answers) in enumerate(found if weighed else (), 1)
        for weight in asking.weights(question, answers)
    ]
    meta: AnswerMeta = {
        "app": store.app,
        "questions": [question.text for question, _ in found],
        "level": asked_level(asked),
        "needed": " ".join(needed),
        "weights": weights if weighed else None,
    }
    return RowSet(meta, AnswerRow, rows, "answer")
