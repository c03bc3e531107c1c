"""The rows of a table's reading: one flat list of shares, cells, rates, means, differences and associations."""

import json
from dataclasses import dataclass
from typing import Literal, get_args

Statistic = Literal["share", "mean", "cell", "rate", "difference", "association"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
Verdict = Literal["higher", "lower", "associated", "cannot be told"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_MARKS = (" = ", " & ", " | ", ", less ")
"""These join the parts of names."""


@dataclass(frozen=True)
class TableRow:
    """One statistic, of the devices that have something to say."""

    value: str
    """A name that no other row has, such as "crashed = yes | version = 157"."""
    estimate: float
    """Raw: a share or rate may be below 0 or above 1. A mean is in the column's unit."""
    std_error: float
    """For an association it is half the width of its interval, over the z of its level."""
    lower: float
    upper: float
    statistic: Statistic
    column: str
    label: str | None = None
    """The column's value or range; None of a mean and an association."""
    group_column: str | None = None
    """The column by which devices are grouped; of a cell and an association the other column."""
    group: str | None = None
    verdict: Verdict | None = None
    """Whether a difference from all others, or an association, is more than noise. None while more reports may come."""
    p_value: float | None = None


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
