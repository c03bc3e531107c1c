"""Rows, and what holds of all of them: every answer of the API is made of these, as JSON, CSV and Parquet alike.

A row is a msgspec.Struct: its fields are the columns. `meta`, of all rows, is a TypedDict. The function that answers
names both, and /openapi.json describes them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Annotated, Any, Generic, TypedDict, TypeVar
from urllib.parse import urlencode

import msgspec
import msgspec.inspect as types
import numpy as np
from flask import Response, request
from marshmallow import fields, validate

from dither_aggregator.analysis.rows import says
from dither_aggregator.store import Store, StoredPlan
from dither_aggregator.web.query_parameters import Parameters, QueryParameters, Value, Whole, one_of
from dither_shared.safe_output import file_name, to_csv
from dither_shared.wire.reading import Problem

JSON, CSV, PARQUET = "application/json", "text/csv; charset=utf-8", "application/vnd.apache.parquet"
NO_PARQUET = "format=parquet needs pyarrow beside the aggregator: its operator adds it by `pip install pyarrow`"


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

    format = one_of(
        ("json", "csv", "parquet"),
        "of the answer; CSV has the rows alone, Parquet has `meta` in its metadata, and needs pyarrow",
    )
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
    """Facts of all rows together. CSV has none of them, Parquet has them beside its columns."""
    row: type[R]
    rows: Iterable[R]
    name: str
    """The name of a file with these rows, without its ending: letters, digits, `_` and `-`."""


def respond(made: RowSet[M, R], asked: QueryParameters) -> Response:
    """Return rows as JSON, {"meta": {...}, "rows": [{...}, ...]}, or as a file, with the columns asked for."""
    there = made.row.__struct_encode_fields__
    columns = asked.get("row_fields", there)
    if unknown := [name for name in columns if name not in there]:
        raise Problem("malformed", f"fields: there is no {unknown[0]!r} here, only: {', '.join(there)}")
    places = [there.index(name) for name in columns]
    rows = ([cells[place] for place in places] for cells in map(msgspec.structs.astuple, made.rows))
    if asked["format"] == "csv":
        return csv_file(columns, rows, made.name, asked)
    if asked["format"] == "parquet":
        return _parquet_file(made, columns, rows)
    whole = list(made.rows) if columns == there else [dict(zip(columns, cells, strict=True)) for cells in rows]
    return Response(_encoder.encode({"meta": made.meta, "rows": whole}), content_type=JSON)


def csv_file(columns: Sequence[str], rows: Iterable[Sequence[object]], name: str, asked: QueryParameters) -> Response:
    """Return a file of CSV, called so."""
    return _file("\ufeff" * ("bom" in asked) + to_csv(columns, rows), CSV, name, "csv")


def _parquet_file(made: RowSet[M, R], columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """Return a file of Parquet. Its columns have the types that the rows declare, whatever is in them."""
    try:
        import pyarrow  # 55 MB, and a second: for those who ask for it
        import pyarrow.parquet
    except ImportError:
        raise Problem("malformed", NO_PARQUET) from None
    kinds = _column_types(made.row)
    schema = pyarrow.schema(
        [pyarrow.field(name, pyarrow.type_for_alias(kinds[name])) for name in columns],
        metadata={"dither": _encoder.encode(made.meta)},
    )
    cells = zip(*rows, strict=True) if (rows := list(rows)) else ([] for _ in columns)
    table = pyarrow.Table.from_arrays(
        [
            pyarrow.array((_arrow_cell(cell, kinds[name]) for cell in column), kinds[name])
            for name, column in zip(columns, cells, strict=True)
        ],
        schema=schema,
    )
    pyarrow.parquet.write_table(table, written := BytesIO(), compression="zstd")
    return _file(written.getvalue(), PARQUET, made.name, "parquet")


@cache
def _column_types(row: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the type of each column, as Arrow calls it."""
    declared = types.type_info(row)
    assert isinstance(declared, types.StructType)
    return {field.encode_name: _arrow_type(field.type) for field in declared.fields}


def _arrow_type(declared: types.Type) -> str:
    match declared:
        case types.Metadata():
            return _arrow_type(declared.type)
        case types.UnionType():
            named = {_arrow_type(each) for each in declared.types if not isinstance(each, types.NoneType)}
            return "float64" if named == {"int64", "float64"} else named.pop() if len(named) == 1 else TEXT
    return _ARROW.get(type(declared), TEXT)


TEXT = "string"
_ARROW = {
    types.IntType: "int64",
    types.FloatType: "float64",
    types.BoolType: "bool",
    types.DateType: "date32",
}
"""Arrow's name of each type that columns have; all others are texts, of JSON where a cell is none."""


def _file(content: str | bytes, type_: str, name: str, ending: str) -> Response:
    """Return a file, called so."""
    answer = Response(content, content_type=type_)
    answer.headers["Content-Disposition"] = f'attachment; filename="{file_name(name, ending)}"'
    return answer


def _plain(value: object) -> object:
    """Return a number of numpy's as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _arrow_cell(value: object, kind: str) -> object:
    """Return a cell as its column has it; null for NaN, as in JSON."""
    plain = _plain(value) if isinstance(value, np.generic) else value
    if plain is None or plain != plain:
        return None
    return _encoder.encode(plain).decode() if kind == TEXT and not isinstance(plain, str) else plain


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def next_address(offset: int) -> str:
    """Return the address of this request with another offset."""
    others = [(name, value) for name, value in request.args.items(multi=True) if name != "offset"]
    return request.script_root + request.path + "?" + urlencode([*others, ("offset", offset)])


# A part of many rows: those with a text in them, the first of these, and those behind.


ROWS_MAX = 1_000_000

Paged = TypeVar("Paged")


class PagedMeta(TypedDict):
    """The part of the rows that this is."""

    rows_total: Annotated[int, says("rows that there are, before `offset` and `top`")]
    next: Annotated[str | None, says("the address of the next rows; null where these are the last")]


def top(what: str) -> Whole:
    """Return the parameter that says how many rows are wanted at most."""
    return Whole(1, ROWS_MAX, what)


class PagedAsked(Parameters):
    """The rows that are asked for, of many."""

    search = Value(load_default="", metadata={"description": "a part of a value, in upper or lower case"})
    offset = Whole(0, ROWS_MAX, "so many rows are left out before them", load_default=0)


def with_part(rows: Sequence[Paged], part: str, text: Callable[[Paged], str]) -> Sequence[Paged]:
    """Return the rows whose text has a part in it, whatever the case; all of them where there is no part."""
    wanted = part.casefold()
    return [row for row in rows if wanted in text(row).casefold()] if wanted else rows


def page_of(rows: Sequence[Paged], asked: QueryParameters) -> tuple[Sequence[Paged], PagedMeta]:
    """Return the rows from the offset on, `top` at most, with how many there are and where the next ones are."""
    end = asked["offset"] + asked.get("top", len(rows))
    following = next_address(end) if end < len(rows) else None
    return rows[asked["offset"] : end], {"rows_total": len(rows), "next": following}
