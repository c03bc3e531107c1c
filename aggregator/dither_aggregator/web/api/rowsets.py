"""Rows, and what holds of all of them: every answer of the API is made of these, as JSON and as CSV alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec
import numpy as np
from flask import Response, request
from marshmallow import fields, validate

from dither_aggregator.web.query_parameters import Parameters, QueryParameters, one_of
from dither_shared.harmless import file_name, to_csv

JSON, CSV = "application/json", "text/csv; charset=utf-8"


class CsvAsked(Parameters):
    """In which form CSV is wanted."""

    bom = fields.String(
        validate=validate.OneOf(("1",), error="must be 1, got {input!r}"),
        metadata={"description": "1 puts the byte order mark before CSV by which Excel knows UTF-8"},
    )


class RowsAsked(CsvAsked):
    """In which form rows are wanted."""

    format = one_of(("json", "csv"), "of the answer; CSV has the rows alone")


@dataclass(frozen=True)
class RowSet:
    """Rows, each a sequence of the columns' values: texts, numbers, truths or None."""

    meta: Mapping[str, object]
    """Facts of all rows together. CSV has none of them."""
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    name: str
    """The name of a file with these rows, without its ending: letters, digits, `_` and `-`."""


def respond(made: RowSet, asked: QueryParameters) -> Response:
    """Return rows as JSON, {"meta": {...}, "rows": [{...}, ...]}, or as a file of CSV."""
    if asked["format"] == "csv":
        return csv_file(made.columns, made.rows, made.name, asked)
    rows = [dict(zip(made.columns, row, strict=True)) for row in made.rows]
    return Response(_encoder.encode({"meta": made.meta, "rows": rows}), content_type=JSON)


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
