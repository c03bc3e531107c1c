"""Rows, and what holds of all of them: every answer of the API is made of these, as JSON and as CSV alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec
import numpy as np
from flask import Response, request

from dither_aggregator.web.asking import Parameters, one_of
from dither_shared.harmless import file_name, to_csv

JSON, CSV = "application/json", "text/csv; charset=utf-8"


class RowsAsked(Parameters):
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


def respond(made: RowSet, form: str) -> Response:
    """Return rows as `json`, {"meta": {...}, "rows": [{...}, ...]}, or as a `csv` file."""
    if form == "csv":
        answer = Response(to_csv(made.columns, made.rows), content_type=CSV)
        answer.headers["Content-Disposition"] = f'attachment; filename="{file_name(made.name, "csv")}"'
        return answer
    rows = [dict(zip(made.columns, row, strict=True)) for row in made.rows]
    return Response(_encoder.encode({"meta": made.meta, "rows": rows}), content_type=JSON)


def _plain(value: object) -> object:
    """Return a number of numpy's as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def next_address(offset: int) -> str:
    """Return the address of this request with another offset."""
    others = [(name, value) for name, value in request.args.items(multi=True) if name != "offset"]
    return request.path + "?" + urlencode([*others, ("offset", offset)])
