"""The rows of a table's reading: one flat list of shares, cells, rates, means, differences and associations."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from dither_aggregator.analysis.inference import beyond_zero
from dither_aggregator.analysis.rows import Row, says

Statistic = Literal["share", "mean", "cell", "rate", "difference", "association"]
Verdict = Literal["higher", "lower", "associated", "cannot be told"]
_MARKS = (" = ", " & ", " | ", ", less ")
"""These join the parts of names."""


@dataclass(frozen=True)
class TableRow(Row):
    """One statistic, such as "crashed = yes | version = 157", of the devices that have something to say.

    A share or rate may be below 0 or above 1. A mean is in the column's unit. The standard error of an association is
    half the width of its interval, over the z of its level.
    """

    statistic: Annotated[Statistic, says("for a table: what the row is of")]
    column: Annotated[str, says("for a table: the column that the row is of")]
    label: Annotated[str | None, says("its value; null for a mean and for an association")] = None
    group_column: Annotated[str | None, says("the column that makes the groups, or goes with it")] = None
    group: Annotated[
        str | None, says("for a table: which value of group_column the row is of, null for all devices")
    ] = None
    verdict: Verdict | None = None
    """Whether a difference from all others, or an association, is more than noise. None while more reports may come."""
    p_value: Annotated[
        float | None,
        says("for differences and associations: how often noise and sampling alone make as much; null for others"),
    ] = None

    @property
    def told_error(self) -> float | None:
        """None for an association, whose size is no sum that could be off to both sides."""
        return None if self.statistic == "association" else super().told_error


def difference_verdict(told: bool, lower: float, upper: float) -> Verdict:
    """Return the verdict on a difference that a test tells or not, by an interval that holds together with all."""
    way = beyond_zero(lower, upper) if told else 0
    return "higher" if way > 0 else "lower" if way < 0 else "cannot be told"


def share_name(column: str, label: str) -> str:
    """Return the name of a share. A label that reads like a part of another name is in quotes."""
    ambiguous = label.startswith('"') or any(mark in label for mark in _MARKS)
    return f"{column} = {json.dumps(label, ensure_ascii=False) if ambiguous else label}"


def mean_name(column: str) -> str:
    """Return the name of a mean of numbers."""
    return f"mean of {column}"


def cell_name(one: str, other: str) -> str:
    """Return the name of a cell of two shares."""
    return f"{one} & {other}"


def rate_name(what: str, group: str) -> str:
    """Return the name of a share or mean within a group."""
    return f"{what} | {group}"


def difference_name(rate: str) -> str:
    """Return the name of a rate's difference from that of all others."""
    return f"{rate}, less all others"


def association_name(one: str, other: str) -> str:
    """Return the name of what two columns have to do with each other."""
    return f"{one} with {other}"
