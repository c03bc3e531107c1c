"""Rows: the attributes of every estimate of a reading, how columns are declared, and which rows stand out.

A column is declared once, as an annotated field of a class: its name, its type and its description. JSON, CSV and the
API's own description are made of that.

**Significance.** Some values stand out from the noise; all others are the rest.

The largest of many noisy estimates are mostly noise. A value stands out where its interval, of those that hold all
together, lies above zero. Its rank is told as far as these intervals tell it: behind every value whose interval lies
above its own, before every one whose interval lies below. All others are without an order.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from math import isnan
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from msgspec import Meta
from scipy.special import ndtr, ndtri, stdtrit

from dither_aggregator.analysis.inference import Floats, beyond_zero


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


# Rows of tables.


Statistic = Literal["share", "mean", "cell", "rate", "difference", "association"]
_MARKS = (" = ", " & ", " | ", ", less ")
"""These join the parts of names."""


TableVerdict = Literal["higher", "lower", "associated", "cannot be told"]


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
    verdict: TableVerdict | None = None
    """Whether a difference from all others, or an association, is more than noise. None while more reports may come."""
    p_value: Annotated[
        float | None,
        says("for differences and associations: how often noise and sampling alone make as much; null for others"),
    ] = None

    @property
    def told_error(self) -> float | None:
        """None for an association, whose size is no sum that could be off to both sides."""
        return None if self.statistic == "association" else super().told_error


def difference_verdict(told: bool, lower: float, upper: float) -> TableVerdict:
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


# Many tests at once: which of some p-values are called true, so that as few are called so wrongly as is said.
#
# Benjamini and Hochberg (1995): of those called true a share of alpha is wrong on average. If only a part of all tests
# are nulls, that part of alpha is, and `adaptive` divides alpha by it. Holm (1979): with 1 - alpha none is. Benjamini
# and Yekutieli (2005): of the intervals of R called true out of S, each of level 1 - alpha R / S, at most a share of
# alpha misses on average. Over families of tests both are combined (Benjamini and Bogomolov 2014): a family has one
# p-value, R of M families are chosen by Benjamini and Hochberg, and within each of these tests are made at alpha R / M.
#
# How many are nulls, nobody can read off: what a few have is told from nothing in no single test. Many tests together
# say it, as nulls' scores are normal and those of all others lie higher. The share of nulls is the mean over all pairs
# of a share and a law of the others' effects, by how well each pair explains the scores (the two groups' model: Efron
# 2008). Effects have a lognormal law here. One that makes them too small to be seen beside nulls is not among these, so
# effects that small count as nulls.
#
# `adaptive` calls anything true in at most a share of alpha of families that are nulls alone: that is Benjamini's and
# Hochberg's proof, for tests that are independent or go together. Very many that are a little above zero are told by
# their sum, though none by itself says so: `family` takes it if nulls' sum gets so far once in millions of times, where
# they are independent. The sum tells nothing of scores that go together: with all correlations .01, of 10,000 nulls
# .058 are called true in place of .05, and with .05 .105. Scores of texts are nearly independent: sums of lists that
# nobody has had standard deviations of .6 to 1.5 of independent ones', and means below zero, far below with few
# cohorts. In other families a benchmark measures that a share of alpha is wrong on average (`tests/benchmarks`, section
# `missed`); it is not proved. All of this, Holm's proof too, is for p-values that are uniform under the null, or
# larger. The p-values of memoized texts are nearly so (`decoder.py`).


# Significance.


Mask = npt.NDArray[np.bool_]

FALSE_SHARE_MIN, FALSE_SHARE_MAX = 0.001, 0.5
"""The ends of the shares that a reader may ask `adaptive` for."""
FAR = 5.0
"""Scores from here on are no nulls'. They do not say how many nulls there are, so the others are taken alone."""
SURE = 1e-7
"""The sum of all scores counts where nulls' is so large as rarely as that, in a normal law."""
_STEP = 0.2
_SHARES = 30
_MEDIANS = np.geomspace(0.5, 7.4, 28)
"""Medians of the others' effects, in standard errors. Smaller ones would look like nulls."""
_SPREADS = (0.02, 0.1, 0.25, 0.5, 1.0, 1.6)
"""The standard deviations of the effects' logarithms."""


def benjamini_hochberg(p_values: Floats, alpha: float) -> Mask:
    """Call the i smallest true, for the largest i whose p-value is at most i alpha / G."""
    ordered = np.sort(p_values)
    below = np.flatnonzero(ordered <= alpha * np.arange(1, len(ordered) + 1) / max(len(ordered), 1))
    return p_values <= (ordered[below[-1]] if len(below) else -1.0)


def adaptive(p_values: Floats, alpha: float) -> Mask:
    """Call true what Benjamini and Hochberg do at alpha by the share of nulls; none where all may be nulls (`family`).

    P-values are one-sided, and uniform under the null. None from 1/2 on is called true, however much may be false: such
    an estimate is not above zero.
    """
    if family(p_values) > alpha:
        return np.zeros(len(p_values), dtype=np.bool_)
    return benjamini_hochberg(p_values, alpha / null_share(p_values)) & (p_values < 0.5)


def null_share(p_values: Floats) -> float:
    """Return the share of nulls among at least one p-value, above 0 and at most 1.

    It is read high, by one null and by a quarter of its standard deviation: alpha is divided by it, and a number
    divided by an uncertain one comes out too large on average. Without the quarter more than alpha is false in some
    families. At least half a step of the table's shares is added. Very many tests have a smaller standard deviation
    than the table's steps put the mean off: of 30,000 with a tenth of nulls .058 would be false, not .05.
    """
    scores = np.maximum(-ndtri(p_values), -FAR)
    near = scores[scores < FAR]
    worlds = _worlds()
    fit = worlds.log_chances @ np.histogram(near, worlds.edges)[0] + worlds.log_prior
    weight = np.exp(fit - fit.max())
    weight /= weight.sum()
    share = weight @ worlds.nulls
    share += max(np.sqrt(weight @ (worlds.nulls - share) ** 2) / 4, 0.5 / _SHARES)
    return float(min(1.0, (1 + len(near) * share) / len(p_values)))


class _Worlds(NamedTuple):
    """Pairs of a share of nulls and a law of the others' effects: W of them."""

    edges: Floats
    """float64[B + 1], of bins of scores below FAR."""
    log_chances: Floats
    """float64[W, B]: of each bin, given that a score is below FAR."""
    nulls: Floats
    """float64[W]: their share among the scores below FAR."""
    log_prior: Floats
    """float64[W]: many nulls are likelier than few."""


@cache
def _worlds() -> _Worlds:
    edges = np.arange(-FAR, FAR + _STEP / 2, _STEP)
    ends = np.append(-np.inf, edges[1:])
    effects = np.geomspace(0.02, FAR + 3, 150)
    laws = np.array(
        [np.exp(-((np.log(effects / median) / spread) ** 2) / 2) for median in _MEDIANS for spread in _SPREADS]
    )
    laws /= laws.sum(axis=1, keepdims=True)
    null, other = np.diff(ndtr(ends)), laws @ np.diff(ndtr(ends - effects[:, np.newaxis]))
    share = ((np.arange(_SHARES) + 0.5) / _SHARES)[:, np.newaxis, np.newaxis]
    chances = share * null + (1 - share) * other
    below = chances.sum(axis=2)
    return _Worlds(
        edges,
        np.log(chances / below[:, :, np.newaxis]).reshape(-1, len(null)),
        (share[:, :, 0] * null.sum() / below).ravel(),
        np.broadcast_to(np.log(share[:, :, 0]), below.shape).ravel(),
    )


def selected_z(found: int, tests: int, alpha: float, freedom: float) -> float:
    """Return how many standard errors intervals of those found reach to each side, by a t law of such freedom."""
    return -float(stdtrit(freedom, alpha * max(found, 1) / max(tests, 1) / 2))


def holm(p_values: Floats, alpha: float) -> Mask:
    """Call the smallest true, one after the other, while the i-th is at most alpha / (G + 1 - i)."""
    ordered = np.sort(p_values)
    above = np.flatnonzero(ordered > alpha / np.arange(len(ordered), 0, -1))
    return p_values < (ordered[above[0]] if len(above) else 2.0)


def family(p_values: Floats) -> float:
    """Return the p-value of a family of one-sided tests: Simes', or that of the scores' sum where it is below SURE."""
    scores = np.clip(-ndtri(p_values), -FAR, FAR)
    chance = float(ndtr(-scores.sum() / np.sqrt(max(len(scores), 1))))
    return min(simes(p_values), chance) if chance < SURE else simes(p_values)


def simes(p_values: Floats) -> float:
    """Return the p-value of a family: at most alpha just where Benjamini and Hochberg call any of it true."""
    ordered = np.sort(p_values)
    return min(1.0, float((ordered * len(ordered) / np.arange(1, len(ordered) + 1)).min(initial=1.0)))


BINS = 40

Verdict = Literal["stands out", "cannot be told from zero", "cannot be told from another one"]


class JudgedRow(NamedTuple):
    """A row with what can be told of it: a verdict, and the ends of its rank where it stands out."""

    row: Row
    verdict: str | None = None
    rank_lower: int | None = None
    rank_upper: int | None = None


@dataclass(frozen=True)
class Ranked:
    """A row that stands out, with the least and the most that its rank may be; 1 is the largest share."""

    row: Row
    rank_lower: int
    rank_upper: int


@dataclass(frozen=True)
class Bin:
    """How many of the rest's estimates lie from `lower` to below `upper`, and how many of pure noise would."""

    lower: float
    upper: float
    number: int
    expected: float


@dataclass(frozen=True)
class Significance:
    """The rows of a reading by what can be told of them."""

    significant: Sequence[Ranked] = ()
    """The rows that stand out, the largest estimate first. It is empty while more reports may come."""
    unlisted: Sequence[Row] = ()
    """Rows that a page always shows: of answers that are no listed value, or of the answer that a flag asks for."""
    rest: Sequence[Row] = ()
    """All others, in the plan's order."""
    bins: Sequence[Bin] = ()
    """The histogram of the rest's estimates."""
    critical_share: float | None = None
    """The least estimate that stands out; None where none can."""
    detectable_share: float | None = None
    """A true share of this stands out four times in five; None where none does."""
    p_value: float = 1.0
    """How often noise alone makes something stand out as far, where nobody has any of the values."""
    twins: Sequence[Row] = ()
    """Candidates with the same bits as one of the significant or of the rest."""
    scores: bool = False
    """Whether the bins are in standard errors: where each estimate has its own."""
    noun: str = "value"
    """The word for one of them."""
    false_share: float | None = None
    """At most such a share of the significant is expected to be false; None where all hold together."""

    @property
    def too_few(self) -> bool:
        """Whether the reports are too few to tell anything: not even what everybody has is found four times in five."""
        return not self.scores and self.detectable_share is None

    def tell(self, *, provisional: bool) -> list[JudgedRow]:
        """Return every row with its verdict, those that stand out first, the largest of them first.

        Unlisted rows have no verdict; no row has one while more reports may come, or where the reports are too few.
        """
        if provisional or self.too_few:
            ranked = (each.row for each in self.significant)
            return [JudgedRow(row) for row in (*ranked, *self.rest, *self.unlisted, *self.twins)]
        return [
            *(JudgedRow(each.row, "stands out", each.rank_lower, each.rank_upper) for each in self.significant),
            *(JudgedRow(row, "cannot be told from zero") for row in self.rest),
            *(JudgedRow(row) for row in self.unlisted),
            *(JudgedRow(row, "cannot be told from another one") for row in self.twins),
        ]


def rank(significant: Sequence[Row], others: Sequence[Row]) -> tuple[Ranked, ...]:
    """Return rows that stand out in the order of their estimates, ranked among themselves and others.

    With intervals that hold all together, all ranks hold together, too.
    """
    rows = (*significant, *others)
    return rank_among(significant, np.array([row.lower for row in rows]), np.array([row.upper for row in rows]))


def rank_among(significant: Sequence[Row], lower: Floats, upper: Floats) -> tuple[Ranked, ...]:
    """Return the same, given the ends of the intervals of all rows, in whatever order."""
    lower, upper = np.sort(lower), np.sort(upper)
    ordered = sorted(significant, key=lambda row: -row.estimate)
    above = len(lower) - np.searchsorted(lower, [row.upper for row in ordered], side="right")
    below = np.searchsorted(upper, [row.lower for row in ordered], side="left")
    return tuple(
        Ranked(row, 1 + before, len(lower) - behind)
        for row, before, behind in zip(ordered, above.tolist(), below.tolist(), strict=True)
    )


def bin_estimates(estimates: Floats, edges: Floats, below: Callable[[Floats], Floats]) -> tuple[Bin, ...]:
    """Count the rest's estimates between edges; `below` is the share of noise that is at most a number."""
    counted, _ = np.histogram(estimates, edges)
    expected = len(estimates) * np.diff(below(edges))
    return tuple(
        Bin(*numbers)
        for numbers in zip(edges[:-1].tolist(), edges[1:].tolist(), counted.tolist(), expected.tolist(), strict=True)
    )
