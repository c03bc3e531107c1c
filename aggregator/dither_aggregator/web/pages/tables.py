"""The part of a metric's page that shows a table: which columns go together, then the rates of one by groups.

The pair that is shown first is the one with the clearest association. Whichever pair somebody chooses, the intervals
hold at once over all pairs, and a verdict is one among all groups and outcomes of its pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from marshmallow import fields

from dither_aggregator.analysis.closed_days import Snapshot
from dither_aggregator.analysis.differences import Comparison
from dither_aggregator.analysis.inference import beyond_zero
from dither_aggregator.analysis.rows import TableRow
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.analysis.tables.reading import TablesReading, columns_of
from dither_aggregator.store import Store
from dither_aggregator.web.charts import SHARES, Measure, shorten
from dither_aggregator.web.forest_plots import Plot, draw, reach
from dither_aggregator.web.pages.presentation import (
    SHARES_BY_DAY,
    SHARES_MOVED,
    Cited,
    FormField,
    Presentation,
    ReadingAnswer,
    form,
    reach_in_words,
)
from dither_aggregator.web.query_parameters import Parameters, QueryParameters, about
from dither_shared.domains import OTHER, Values
from dither_shared.safe_output import visible
from dither_shared.wire.reading import Problem

DRAWN_MAX = 48
"""Groups that are drawn, of all outcomes together: those with the clearest differences first. The table has more."""
GROUPS_MAX = 16
"""Groups that are drawn of one outcome."""
OPEN_MAX = 16
"""Lines of a table that is open at first."""
LINES_MAX = 100
"""Lines of the table; CSV has all."""
DIFFERENCES_TOLD = 2
"""Differences by the public column that a sentence tells, each of another column."""
CLEAREST_MAX = 10
"""Pairs of columns that are named beside the matrix."""
QUIET = ("no", *UNLISTED)
"""Labels that say less than the others of their column."""
YES_OR_NO = frozenset(("no", "yes", OTHER))
"""The values of a column that says whether something happened."""
LABEL_EM = 24.0
"""How wide a label in the table may be; CSV has it whole."""


@dataclass(frozen=True)
class Together:
    """The association of two columns."""

    row: TableRow
    associated: bool


@dataclass(frozen=True)
class Multiple:
    """The rates of one outcome, or means, a row a group."""

    title: str
    plot: Plot
    left_out: int
    """Groups that are not drawn."""


@dataclass(frozen=True)
class RateLine:
    """A group's rate of an outcome, and how it differs from all others'."""

    group: str
    outcome: str
    row: TableRow
    verdict: str


class PairAsked(Parameters):
    """The two columns of a table that are shown."""

    of = fields.String(metadata=about("for a table: the column whose rates are shown", "show"))
    by = fields.String(metadata=about("for a table: the column that makes the groups", "by"))


@dataclass(frozen=True)
class TablesPart:
    """The part of the page for tables."""

    columns: Sequence[str]
    groupings: Sequence[str]
    """The columns, and the public one, by which devices can be grouped."""
    matrix: Mapping[tuple[str, str], Together]
    """By two columns, in both orders."""
    clearest: Sequence[TableRow]
    """The associations that are told, the clearest first."""
    of: str
    by: str
    """Empty where no other column groups."""
    two: bool
    """Whether there are two groups."""
    untested: bool
    """Whether the matrix has a place without a number."""
    multiples: Sequence[Multiple]
    lines: Sequence[RateLine]
    lines_left_out: int
    measure: Measure
    asked: Sequence[tuple[str, int]]
    """The columns that were asked together, each with its number of reports."""
    shares: Sequence[TableRow]
    shares_left_out: int
    form: Sequence[FormField]
    """The choice of two columns."""
    is_open: bool
    """Whether the table of rates is open at first."""
    template: str = "tables.html"
    intervals: str = "Intervals are of"


def tables_part(reading: TablesReading, asked: QueryParameters) -> TablesPart:
    """Return what a page shows of a reading that has rows; raise Problem for a column that the table does not have."""
    columns = columns_of(reading.stored.plan).names
    matrix = _matrix(reading)
    of, by = _pair(reading, asked, matrix)
    rates = [
        row for row in reading.rows if (row.column, row.group_column) == (of, by) and row.statistic in ("rate", "mean")
    ]
    verdicts = {
        (row.group, row.label): row for row in reading.of("difference") if (row.column, row.group_column) == (of, by)
    }
    measure = _measure_of(reading, rates[0]) if rates else SHARES
    two = _two_arms(reading, by)
    lines = [
        RateLine(_cut(row.group), _cut(row.label), row, _verdict(verdicts.get((row.group, row.label)), two=two))
        for row in rates
    ]
    return TablesPart(
        columns,
        reading.groupings,
        matrix,
        _associated(reading)[:CLEAREST_MAX],
        of,
        by,
        two,
        any((one, other) not in matrix for one in columns for other in columns if one != other),
        _multiples(of, rates, verdicts, measure),
        lines[:LINES_MAX],
        max(len(lines) - LINES_MAX, 0),
        measure,
        reading.asked,
        reading.distinct[:LINES_MAX],
        max(len(reading.distinct) - LINES_MAX, 0),
        form(PairAsked, {"of": of, "by": by}, {"of": columns, "by": reading.groupings}),
        len(lines) <= OPEN_MAX,
    )


def answer_of_tables(reading: TablesReading) -> ReadingAnswer:
    """Return the clearest differences of groups from all others, and which columns can be told to go together."""
    if reading.provisional:
        return ReadingAnswer(reading.n, "More reports may come. Nothing is called found yet.")
    clearest = _clearest(reading)
    sentences = [difference_in_words(reading, *told) for told in clearest]
    public = columns_of(reading.stored.plan).public[:1]
    if public and not (clearest and clearest[0][0].group_column == public[0]):
        sentences.append(f"No column can be told to differ by “{visible(public[0])}”.")
    if public or not clearest or len(reading.of("association")) > 1:  # a difference of the only two says that they are
        sentences.append(_together(reading.of("association"), _associated(reading), public=bool(public)))
    if not clearest:
        return ReadingAnswer(reading.n, " ".join(sentences))
    _, rate = clearest[0]
    row = replace(rate, value=f"{rate.group_column} {rate.group}")
    return ReadingAnswer(reading.n, " ".join(sentences), (row,), measure=_measure_of(reading, rate))


def _measure_of(reading: TablesReading, rate: TableRow) -> Measure:
    return Measure(reading.unit_of(rate.column)) if rate.statistic == "mean" else SHARES


def _clearest(reading: TablesReading) -> list[tuple[TableRow, TableRow]]:
    """Return the clearest difference whose interval does not hold zero, with its rate; none where there is none.

    Differences by the public column come first, and then there may be one of each of a few columns. A column that says
    yes or no is told by the other of its pair, as crashes by version, and of the group that has more. Intervals hold at
    once over all pairs of columns, so they may be chosen by a look at all.
    """
    columns = columns_of(reading.stored.plan)
    public = columns.public[:1]
    rated = [*reading.of("rate"), *reading.of("mean")]
    rates = {(row.column, row.label, row.group_column, row.group): row for row in rated}
    told = [
        (row, rates[row.column, row.label, row.group_column, row.group])
        for row in reading.of("difference")
        if row.verdict in ("higher", "lower") and beyond_zero(row.lower, row.upper)
    ]

    def order(pair: tuple[TableRow, TableRow]) -> tuple[object, ...]:
        less, _ = pair  # a yes or no differs in both, and two groups differ alike: yes is said, and not of the control
        control = less.group == columns.public[1] if less.group_column in public else less.estimate > 0
        return less.group_column not in public, less.p_value, less.label in QUIET, control

    told.sort(key=order)
    domains = dict(zip(columns.names, columns.domains, strict=True))
    events = {name for name, each in domains.items() if isinstance(each, Values) and {*each.values} == YES_OR_NO}
    by_public = [pair for pair in told if pair[0].group_column in public]
    by_public.sort(key=lambda pair: pair[0].column in events and pair[0].label in QUIET)
    of_each = list({pair[0].column: pair for pair in reversed(by_public)}.values())
    if of_each or not told:
        return sorted(of_each, key=order)[:DIFFERENCES_TOLD]
    two = {told[0][0].column, told[0][0].group_column}

    def reads(pair: tuple[TableRow, TableRow]) -> tuple[object, ...]:
        more, is_event = pair[0], pair[0].column in events
        return more.group_column in events, not is_event, is_event and (more.label in QUIET or more.estimate < 0)

    return sorted((pair for pair in told if {pair[0].column, pair[0].group_column} == two), key=reads)[:1]


def difference_in_words(reading: TablesReading, less: TableRow, rate: TableRow) -> str:
    """Return a group's rate beside that of all others, with the interval of their difference."""
    measure = _measure_of(reading, rate)
    group, column = visible(f"{_cut(less.group_column)} “{_cut(less.group)}”"), _cut(rate.column)
    ours, theirs = (
        measure.rounded(each, each + less.lower - less.estimate, each + less.upper - less.estimate)
        for each in (rate.estimate, rate.estimate - less.estimate)
    )
    least, most = sorted((abs(less.lower), abs(less.upper)))
    by = measure.ends(least, most)
    against = f"against {theirs} {_others(reading, less)}"
    if rate.label is None:
        way = "higher" if less.estimate > 0 else "lower"
        return f"With {group} the mean of “{column}” is {ours}, {against} ({by} {way})."
    way = "more" if less.estimate > 0 else "less"
    return f"With {group}, “{column}” is “{_cut(rate.label)}” in {ours}, {against} ({by} {way})."


def _others(reading: TablesReading, less: TableRow) -> str:
    """Return whom a group is compared with: of two arms the other one by its name. Other columns have an "other"."""
    if not _two_arms(reading, less.group_column or ""):
        return "of all others"
    other = next(arm for arm in columns_of(reading.stored.plan).public[1:] if arm != less.group)
    return f"with “{visible(_cut(other))}”"


def _associated(reading: TablesReading) -> list[TableRow]:
    associated = (row for row in reading.of("association") if row.verdict == "associated")
    return sorted(associated, key=lambda row: (row.p_value or 0.0, -row.estimate))


def _together(pairs: Sequence[TableRow], associated: Sequence[TableRow], *, public: bool) -> str:
    """Return how many pairs of columns are related: without the `public` column, where there is one."""
    of = f"{len(pairs)} pairs of {'the other ' if public else ''}columns"
    if not pairs:
        return "Shares of single columns can be told; associations of columns cannot."
    if not associated and len(pairs) == 1:
        return f"{_names(pairs[0])} cannot be told to be related."
    if not associated:
        return f"None of {of} can be told to be related."
    if len(pairs) == 1:
        return f"{_names(pairs[0])} are related."
    if len(associated) == len(pairs):
        return f"All {of} are related, most clearly {_names(associated[0])}."
    few = "is" if len(associated) == 1 else "are"
    return f"{len(associated)} of {of} {few} related, most clearly {_names(associated[0])}."


def _names(pair: TableRow) -> str:
    return f"“{visible(pair.column)}” and “{visible(pair.group_column or '')}”"


def _matrix(reading: TablesReading) -> dict[tuple[str, str], Together]:
    matrix = {}
    for row in reading.of("association"):
        found = Together(row, row.verdict == "associated")
        matrix[row.column, row.group_column or ""] = matrix[row.group_column or "", row.column] = found
    return matrix


def _pair(
    reading: TablesReading, asked: QueryParameters, matrix: Mapping[tuple[str, str], Together]
) -> tuple[str, str]:
    """Return the column that is told and the one that groups: those asked for, else the headline's, or the clearest.

    The second is empty where no other column groups.
    """
    names = columns_of(reading.stored.plan).names
    for name, offered in (("of", names), ("by", reading.groupings)):
        if asked.get(name) and asked[name] not in offered:
            raise Problem("malformed", f"{name} must be one of {', '.join(offered)}, got {asked[name]!r}")
    if asked.get("of") and asked.get("of") == asked.get("by"):
        raise Problem("malformed", "of and by must be two columns")
    clearest = sorted(matrix.items(), key=lambda item: (item[1].row.p_value or 0.0, -item[1].row.estimate))
    pairs = [(rate.column, rate.group_column or "") for _, rate in _clearest(reading)[:1]]  # the headline's first
    pairs += [pair for pair, _ in clearest if pair[1] in reading.groupings]
    pairs += [(of, by) for by in reading.groupings for of in names if of != by]
    fits = (
        pair for pair in pairs if pair[0] == (asked.get("of") or pair[0]) and pair[1] == (asked.get("by") or pair[1])
    )
    return next(fits, (asked.get("of") or names[0], ""))


def _multiples(
    of: str,
    rates: Sequence[TableRow],
    verdicts: Mapping[tuple[str | None, str | None], TableRow],
    measure: Measure,
) -> list[Multiple]:
    """Return a plot for each outcome, all on one axis, those with the clearest differences first."""
    outcomes: dict[str, list[TableRow]] = {}
    for row in rates:
        outcomes.setdefault(row.label or "", []).append(row)

    def clearest(outcome: str) -> float:
        judged = (verdicts.get((row.group, row.label)) for row in outcomes[outcome])
        return min((row.p_value for row in judged if row is not None and row.p_value is not None), default=1.0)

    shown: list[str] = []
    left = DRAWN_MAX
    for outcome in sorted(outcomes, key=lambda outcome: (clearest(outcome), outcome in QUIET)):
        left -= min(len(outcomes[outcome]), GROUPS_MAX)
        if left < 0:
            break
        shown.append(outcome)
    if not shown:
        return []
    ends = reach([row for outcome in shown for row in outcomes[outcome][:GROUPS_MAX]])
    drawn = []
    for outcome in shown:
        rows = outcomes[outcome]
        named = [replace(row, value=row.group or "") for row in rows[:GROUPS_MAX]]
        title = f"{of} = {shorten(outcome, LABEL_EM)}" if outcome else f"mean of {of}"
        drawn.append(Multiple(title, draw(named, 0.0, ends=ends, measure=measure), max(len(rows) - GROUPS_MAX, 0)))
    return drawn


def _cut(label: str | None) -> str:
    return shorten(label or "", LABEL_EM)


def _two_arms(reading: TablesReading, by: str) -> bool:
    """Return whether a column makes two groups: a public one of two arms. Other columns have an "other"."""
    name, *arms = columns_of(reading.stored.plan).public or ("",)
    return by == name and len(arms) == 2


def _verdict(difference: TableRow | None, *, two: bool) -> str:
    if difference is None or difference.verdict is None:
        return ""
    return (
        ""
        if difference.verdict == "cannot be told"
        else f"{difference.verdict} than {'the other' if two else 'all others'}"
    )


class TablesShown(Presentation[TablesReading]):
    """How tables are shown: which columns go together; of two windows, the shares of columns."""

    shows = "estimated shares"

    def part(self, store: Store, reading: TablesReading, asked: QueryParameters) -> TablesPart:
        """Return the pair of columns that is asked for, or the clearest."""
        return tables_part(reading, asked)

    def answer(self, reading: TablesReading) -> ReadingAnswer:
        """Return the clearest difference, and what goes together."""
        return answer_of_tables(reading)

    def cited(self, reading: TablesReading, snapshot: Snapshot) -> Cited:
        """Return the headline: the rates are too many to be shown."""
        return Cited()

    about_days = SHARES_BY_DAY
    about_moves = SHARES_MOVED

    def moved(self, comparison: Comparison) -> str:
        """Return how many shares moved, and how large a move is found."""
        return f"{super().moved(comparison)}{reach_in_words(comparison)}"
