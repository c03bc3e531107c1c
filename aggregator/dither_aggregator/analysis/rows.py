"""Rows: the attributes of every estimate of a reading, and how the columns of answers are declared.

A column is declared once, as an annotated field of a class: its name, its type and its description. JSON, CSV and the
API's own description are made of that.
"""

from dataclasses import dataclass
from datetime import date
from math import isnan
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

from msgspec import Meta


def says(description: str, **schema: object) -> Meta:
    """Return the description of a column or of a member of `meta`, with what JSON Schema says of it beside its type."""
    return Meta(description=description, extra_json_schema=schema or None)


EVEN = 1e-9
"""Both sides of an interval are alike to such a part of its width."""

FirstDay = Annotated[date, says("the first day (UTC)")]
LastDay = Annotated[date, says("the last day (UTC)")]
Provisional = Annotated[bool, says("more reports may still come")]
SnapshotId = Annotated[
    str | None,
    says("the id of the finalized day's snapshot; null for a day that is not final, and for several days"),
]
LeftOut = Annotated[
    int | None,
    says(
        "reports of these days that are not among the n, because a read key is not told of cells of a few reports; "
        "null where it is told nothing of a day by itself; 0 with an admin key"
    ),
]
Days = TypedDict("Days", {"from": FirstDay, "to": LastDay})
"""The days that were read as one."""


def described(row: type) -> dict[str, Any]:
    """Return the fields of a class that have a description, with their types: these are columns.

    A field that is described, or None, is a column of some answers only.
    """
    hints = get_type_hints(row, include_extras=True).items()
    named = ((name, part) for name, hint in hints for part in (hint, *get_args(hint)))
    return {name: part for name, part in named if hasattr(part, "__metadata__")}


@dataclass(frozen=True)
class Row:
    """One row of a reading: shares of the n reports, not percent. Each estimand has columns of its own behind these."""

    value: str
    """The thing that it is about, by a name that no other row has."""
    estimate: float
    """Raw and unbiased."""
    std_error: float
    lower: float
    """The ends of its interval."""
    upper: float

    @property
    def untold(self) -> bool:
        """Whether it has no estimate, because its interval says nearly nothing."""
        return isnan(self.estimate)

    @property
    def is_range(self) -> bool:
        """Whether its interval is all that is told: no point of it is its figure."""
        return False

    @property
    def told_error(self) -> float | None:
        """The standard error where the interval reaches as far to both sides; None where it says less than the ends."""
        uneven = abs((self.upper - self.estimate) - (self.estimate - self.lower))
        return self.std_error if uneven <= EVEN * (self.upper - self.lower) else None

    def to_document(self, error_of: str) -> dict[str, object]:
        """Return what documents keep of it, without what is null: an untold row has no estimate, but says so."""
        told = {"estimate": None, "verdict": "untold"} if self.untold else {}
        numbers = {**vars(self), "std_error": self.told_error, "error_of": error_of, **told}
        return {name: number for name, number in numbers.items() if number is not None}


@dataclass(frozen=True)
class MadeRow(Row):
    """A row that is made of rows of readings."""

    has_error: bool
    """Whether these have standard errors: quantiles have none, nor what is made of them."""

    @property
    def told_error(self) -> float | None:
        """None where they have none."""
        return super().told_error if self.has_error else None
