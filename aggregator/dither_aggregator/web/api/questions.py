"""Questions in the language of `dither ask`: a row an answer."""

from datetime import date
from typing import Annotated, TypedDict

import msgspec
from marshmallow import fields, validate

from dither_aggregator.analysis.inference import ErrorOf
from dither_aggregator.analysis.rows import says
from dither_aggregator.ask import fleets
from dither_aggregator.ask.answering import Asking, Family
from dither_aggregator.ask.language import CHARACTERS_MAX, BadQuestion, parse
from dither_aggregator.store import Store
from dither_aggregator.web.api.rowsets import RowsAsked, RowSet
from dither_aggregator.web.query_parameters import QueryParameters, about
from dither_shared.wire.problems import Problem


class QuestionAsked(RowsAsked):
    """A question."""

    q = fields.String(
        required=True,
        validate=validate.Length(1, CHARACTERS_MAX),
        metadata=about('the question, such as share(dark = "yes") by week'),
    )


class AnswerMeta(TypedDict):
    """The question, and what its intervals hold for."""

    app: str
    question: str
    level: Annotated[int, says("how sure the intervals are, in percent, for all of their family together")]
    needed: Annotated[str, says('from how many devices on it would tell something, where it tells nothing; else ""')]


class AnswerRow(msgspec.Struct, frozen=True):
    """One answer: of a period, or of one of its days, weeks or months."""

    first: Annotated[date, says("the first day (UTC)")] = msgspec.field(name="from")
    last: Annotated[date, says("the last day (UTC)")] = msgspec.field(name="to")
    n: Annotated[int, says("reports, of the part of the question that has the fewest")]
    devices: Annotated[int, says("at least so many devices sent them")]
    estimate: Annotated[float | None, says("raw and unbiased; null where it cannot be told")]
    lower: Annotated[float | None, says("the interval's lower end")]
    upper: Annotated[float | None, says("its upper end")]
    error_of: Annotated[ErrorOf, says("the devices that the interval is of")]
    family: Annotated[
        Family,
        says(
            "what holds together: all questions of a single name, of a pair of names, or free sums of one metric's "
            "values or columns, all regressions (model); asked: those that were fixed together before any answer"
        ),
    ]
    z: Annotated[float, says("in how many standard errors a normal interval of that level reaches")]
    untold: Annotated[str, says('why nothing can be told; "" where it can')]
    name: Annotated[str, says('of an analysis: the value, coefficient or centre that the row is of; else ""')]
    note: Annotated[str, says("of an analysis: ranks, or that an estimate is a model without an interval")]


def query(store: Store, asked: QueryParameters) -> RowSet[AnswerMeta, AnswerRow]:
    """Answer a question, whatever is asked next."""
    try:
        question = parse(asked["q"])
        asking = Asking(store)
        answers = list(asking.answer(question))
        needed = fleets.needed(asking, question, answers)
    except BadQuestion as error:
        raise Problem("malformed", f"q: {error}") from None
    rows = [
        AnswerRow(
            answer.window.first,
            answer.window.last,
            answer.n,
            answer.devices,
            answer.estimate,
            answer.lower,
            answer.upper,
            answer.error_of,
            answer.family,
            answer.z,
            answer.untold,
            answer.name,
            answer.note,
        )
        for answer in answers
    ]
    meta: AnswerMeta = {"app": store.app, "question": question.text, "level": 95, "needed": needed}
    return RowSet(meta, AnswerRow, rows, "answer")
