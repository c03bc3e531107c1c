"""A part of many rows: those with a text in them, the first of these, and those behind."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypedDict, TypeVar

from dither_aggregator.analysis.rows import says
from dither_aggregator.web.api.rowsets import next_address
from dither_aggregator.web.query_parameters import Parameters, QueryParameters, Value, Whole

ROWS_MAX = 1_000_000

R = TypeVar("R")


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


def with_part(rows: Sequence[R], part: str, text: Callable[[R], str]) -> Sequence[R]:
    """Return the rows whose text has a part in it, whatever the case; all of them where there is no part."""
    wanted = part.casefold()
    return [row for row in rows if wanted in text(row).casefold()] if wanted else rows


def page_of(rows: Sequence[R], asked: QueryParameters) -> tuple[Sequence[R], PagedMeta]:
    """Return the rows from the offset on, `top` at most, with how many there are and where the next ones are."""
    end = asked["offset"] + asked.get("top", len(rows))
    following = next_address(end) if end < len(rows) else None
    return rows[asked["offset"] : end], {"rows_total": len(rows), "next": following}
