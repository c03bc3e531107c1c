"""Rows, and what holds of all of them: every answer of the API is made of these, as JSON and as CSV alike.

A row is a msgspec.Struct: its fields are the columns. `meta`, of all rows, is a TypedDict. The function that answers
names both, and /openapi.json describes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypedDict, TypeVar
from urllib.parse import urlencode

import msgspec
import numpy as np
from flask import Response, request
from marshmallow import fields, validate

from dither_aggregator.analysis.rows import says
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.query_parameters import Parameters, QueryParameters, one_of
from dither_shared.safe_output import file_name, to_csv
from dither_shared.wire.problems import Problem

JSON, CSV = "application/json", "text/csv; charset=utf-8"


class CsvAsked(Parameters):
    """In which form CSV is wanted."""

    bom = fields.String(
        validate=validate.OneOf(("1",), error="must be 1, got {input!r}"),
        metadata={"description": "1 puts the byte order mark before CSV by which Excel knows UTF-8"},
    )


class ColumnNames(fields.String):
    """Names of columns with commas between them: none has a comma."""

    def _deserialize(self, value: object, attr: str | None, data: Mapping[str, Any] | None, **how: object) -> Any:
        return tuple(dict.fromkeys(str(value).split(",")))


class RowsAsked(CsvAsked):
    """In which form rows are wanted."""

    format = one_of(("json", "csv"), "of the answer; CSV has the rows alone")
    row_fields = ColumnNames(
        data_key="fields",
        metadata={"description": "the columns to return, with commas between them; by default all"},
    )


Unit = Annotated[str, says('the unit of numbers; "" for shares')]
PlanDigest = Annotated[str, says("the digest of the plan")]
EpsilonOfOne = Annotated[float, says("the epsilon of one report")]
MechanismName = Annotated[str, says("the mechanism that randomized the answers on the devices")]
EpsilonOfMemo = Annotated[float | None, says("the epsilon of all reports of a memo; null for fresh noise")]
EpsilonOfLife = Annotated[float, says("the epsilon of all reports of a device's life")]


class MetricMeta(TypedDict):
    """The metric."""

    app: str
    metric: str
    question: str


class StoredPlanMeta(MetricMeta):
    """The metric, and the plan of the reports."""

    plan: PlanDigest
    rev: int


def meta_of(store: Store, stored: StoredPlan) -> StoredPlanMeta:
    """Return the metric and the plan of rows."""
    plan = stored.plan
    return {
        "app": store.app,
        "metric": plan.metric,
        "question": stored.question,
        "plan": plan.digest,
        "rev": plan.rev,
    }


M = TypeVar("M")
R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True)
class RowSet(Generic[M, R]):
    """Rows with texts, numbers, truths, days or None."""

    meta: M
    """Facts of all rows together. CSV has none of them."""
    row: type[R]
    rows: Iterable[R]
    name: str
    """The name of a file with these rows, without its ending: letters, digits, `_` and `-`."""


def respond(made: RowSet[M, R], asked: QueryParameters) -> Response:
    """Return rows as JSON, {"meta": {...}, "rows": [{...}, ...]}, or as a file of CSV, with the columns asked for."""
    there = made.row.__struct_encode_fields__
    columns = asked.get("row_fields", there)
    if unknown := [name for name in columns if name not in there]:
        raise Problem("malformed", f"fields: there is no {unknown[0]!r} here, only: {', '.join(there)}")
    places = [there.index(name) for name in columns]
    rows = ([cells[place] for place in places] for cells in map(msgspec.structs.astuple, made.rows))
    if asked["format"] == "csv":
        return csv_file(columns, rows, made.name, asked)
    whole = list(made.rows) if columns == there else [dict(zip(columns, cells, strict=True)) for cells in rows]
    return Response(_encoder.encode({"meta": made.meta, "rows": whole}), content_type=JSON)


def csv_file(columns: Sequence[str], rows: Iterable[Sequence[object]], name: str, asked: QueryParameters) -> Response:
    """Return a file of CSV, called so."""
    answer = Response("\ufeff" * ("bom" in asked) + to_csv(columns, rows), content_type=CSV)
    answer.headers["Content-Disposition"] = f'attachment; filename="{file_name(name, "csv")}"'
    return answer


def _plain(value: object) -> object:
    """Return a number of numpy's as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def next_address(offset: int) -> str:
    """Return the address of this request with another offset."""
    others = [(name, value) for name, value in request.args.items(multi=True) if name != "offset"]
    return request.script_root + request.path + "?" + urlencode([*others, ("offset", offset)])
