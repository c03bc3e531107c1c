"""The parameters of a request for a plan, for the page and the API alike."""

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from marshmallow import ValidationError, fields

from dither_aggregator.analysis import planning_numbers, planning_tables, planning_texts
from dither_aggregator.analysis.planning import N_MAX, Planned, Question, plan
from dither_aggregator.analysis.planning_numbers import ASKS, NumberQuestion
from dither_aggregator.analysis.planning_shares import D_MAX, ShareQuestion
from dither_aggregator.analysis.planning_shares import KINDS as LISTED
from dither_aggregator.analysis.planning_tables import ARMS_MAX, ARMS_MIN, TableQuestion
from dither_aggregator.analysis.planning_texts import TextQuestion
from dither_aggregator.web.asking import WINDOWS, Given, Parameters, Whole, one_of
from dither_shared.domains.columns import COLUMNS_MAX, COLUMNS_MIN
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN
from dither_shared.kinds.choices import TICKS_MAX
from dither_shared.words.groups import PROPOSED

KINDS = (*LISTED, planning_numbers.KIND, planning_tables.KIND, planning_texts.TEXT, planning_texts.WORDS)
EXPIRES_AFTER = timedelta(days=180)
"""The expiry in the registry's lines that are printed: within its limit of a year."""
PERCENT_MIN = Decimal("0.00000001")


class Exact(fields.Decimal):
    """A number of so many decimals at most, written with digits and a point, in [least, most]."""

    def __init__(self, least: Decimal, most: Decimal, decimals: int, **how: Any) -> None:
        super().__init__(**how)
        self._least, self._most = least, most
        self._written = re.compile(rf"[0-9]{{1,3}}(\.[0-9]{{1,{decimals}}})?")
        self._says = f"must be a number from {least:f} to {most:f} with at most {decimals} decimals"

    def _deserialize(self, value: object, attr: str | None, data: Mapping[str, Any] | None, **how: object) -> Decimal:
        text = str(value)
        if not (self._written.fullmatch(text) and self._least <= Decimal(text) <= self._most):
            raise ValidationError(f"{self._says}, got {text!r}")
        return Decimal(text)


def _percent(says: str) -> Exact:
    return Exact(PERCENT_MIN, Decimal(100), 8, metadata={"description": says})


class PlanningAsked(Parameters):
    """A metric that is planned, and two of n, epsilon and share_percent.

    In place of the share a number has width_percent, and a table effect_percent.
    """

    kind = one_of(KINDS, "the metric's kind")
    d = Whole(
        2,
        D_MAX,
        load_default=30,
        metadata={
            "description": "all values, other included; 2 for a flag; for a number the ranges from low to high; for a "
            "table those of each column; for a text the candidates, which are at most as many here"
        },
    )
    ticks = Whole(2, TICKS_MAX, load_default=3, metadata={"description": "for choices: the most values of one answer"})
    asks = one_of(ASKS, "for a number: mean, quantiles and shape, or the mean alone")
    columns = Whole(
        COLUMNS_MIN, COLUMNS_MAX, load_default=3, metadata={"description": "for a table: the number of columns"}
    )
    arms = Whole(
        ARMS_MIN, ARMS_MAX, load_default=2, metadata={"description": "for a table: arms of one size that are compared"}
    )
    epsilon_permanent = Exact(
        EPSILON_MIN, EPSILON_MAX, 6, metadata={"description": "the epsilon of memoized answers; fresh noise without it"}
    )
    days = one_of(tuple(map(str, WINDOWS)), "days of the window that is read; matters for memoized answers")
    n = Whole(1, N_MAX, metadata={"description": "reports in the window"})
    epsilon = Exact(EPSILON_MIN, EPSILON_MAX, 6, metadata={"description": "the privacy loss of one report"})
    share_percent = _percent("for values, texts and words: a true share to be told from noise")
    width_percent = _percent("for a number: the width of the 95 % interval of its median, in percent of low to high")
    effect_percent = _percent(
        "for a table: a difference of a value's share between one arm and all others, in percentage points"
    )


GIVEN = ("n", "epsilon", "share_percent", "width_percent", "effect_percent")
"""Two of these are given: of the first two and the one for the kind."""


def planned(asked: Given) -> Planned:
    """Return what a request asks to plan; raise Unplannable.

    Fields for other kinds do not count.
    """
    question = _question(asked)
    percent = asked.get(f"{question.third_name}_percent")
    made: Planned = plan(question, asked.get("n"), asked.get("epsilon"), percent and float(percent / 100))
    return made


def _question(asked: Given) -> Question[Any]:
    match asked["kind"]:
        case planning_numbers.KIND:
            return _numbers(asked)
        case planning_tables.KIND:
            return _tables(asked)
        case planning_texts.TEXT | planning_texts.WORDS:
            return _texts(asked)
    return _listed(asked)


def _listed(asked: Given) -> ShareQuestion:
    kind = asked["kind"]
    return ShareQuestion(
        kind,
        2 if kind == "flag" else asked["d"],
        asked.get("epsilon_permanent"),
        int(asked["days"]),
        asked["ticks"] if kind == "choices" else None,
    )


def _numbers(asked: Given) -> NumberQuestion:
    mean_alone = asked["asks"] == ASKS[1]
    return NumberQuestion(
        planning_numbers.KIND, asked["d"], asked.get("epsilon_permanent"), int(asked["days"]), mean_alone
    )


def _tables(asked: Given) -> TableQuestion:
    permanent, days = asked.get("epsilon_permanent"), int(asked["days"])
    return TableQuestion(planning_tables.KIND, asked["d"], permanent, days, asked["columns"], asked["arms"])


def _texts(asked: Given) -> TextQuestion:
    kind = asked["kind"]
    d = PROPOSED if kind == planning_texts.WORDS else asked["d"]
    return TextQuestion(kind, d, asked.get("epsilon_permanent"), int(asked["days"]))
