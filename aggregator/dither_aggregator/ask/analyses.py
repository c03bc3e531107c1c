"""Analyses: the largest values with the ranks that intervals tell, clusters of numbers, and regressions.

All are made of noisy sums that any question may ask for (`AnalysisRow.queries` has them), and cost no privacy.

**Devices.** How many are active: lower bounds by period, of the metric that every device answers which is used.

    count(devices active in a week)
    count(devices active in a day) / count(devices active in a month)

They have no noise to remove, but reports come late, or never: `analysis.people` has the bound and what it rests on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import prod
from typing import Protocol, TypeVar

import numpy as np

from dither_aggregator.analysis.functional import Sums
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.people import (
    WEEK_DAYS,
    Active,
    Stickiness,
    active,
    late_of,
    least,
    pairs,
    periods,
    stickiness,
)
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.rows import share_name
from dither_aggregator.analysis.tables import regression
from dither_aggregator.analysis.tables import regression as k_means
from dither_aggregator.analysis.tables.pairs import CellSums, TooFew
from dither_aggregator.analysis.tables.regression import NotTold, Regressor, StepSums
from dither_aggregator.analysis.tables.synthesis import CELLS_MAX, Synthesis, pair_tables, synthesise
from dither_aggregator.ask.language import Analysis, BadQuestion, Condition, Figure, Step, Untold, quoted
from dither_aggregator.ask.resolving import CountedAt, TableAsked, listed
from dither_aggregator.store import Store, StoredPlan
from dither_shared.domains import NONE, OTHER, Buckets
from dither_shared.plan import Plan

SPANS: dict[Step, tuple[int, int]] = {"day": (1, 1), "week": (WEEK_DAYS, WEEK_DAYS), "month": (28, 31)}
"""The shortest and the longest period that is called so, in days."""


def device_note(*spans: Step) -> str:
    """Return what bounds of periods rest on."""
    late = " and ".join(f"{late_of(SPANS[span][0]):.0%} of a {span}'s" for span in spans)
    return f"if at most {late} reports come later, or never, and about as many of each"


def device_plan(store: Store, analysis: Analysis) -> StoredPlan:
    """Return the plan that counts devices by a period; raise BadQuestion, which says what would, where none does."""
    return _counting(store, analysis.span, analysis.at)


def device_parts(store: Store, analysis: Analysis) -> tuple[StoredPlan, StoredPlan]:
    """Return the plans that count devices by the shorter and by the longer period; raise BadQuestion likewise."""
    short, long = (_counting(store, span, analysis.at) for span in (analysis.part, analysis.span))
    if not pairs([short, long]) or short.period_days > long.period_days:
        few = f"{long.period_days} days are no whole number of periods of {short.period_days}"
        raise BadQuestion(f"{few}: ask for a day of a week or month, or a week of a month", analysis.at)
    return short, long


def _counting(store: Store, span: Step, at: int) -> StoredPlan:
    shortest, longest = SPANS[span]
    found = [stored for stored in store.measuring_people() if shortest <= stored.period_days <= longest]
    if not found:
        line = f'measures = "first_month", period = "{shortest}d"'
        raise BadQuestion(f"no metric counts devices by {span}: one with {line} would", at)
    return min(found, key=lambda stored: (min(store.epochs(stored.plan), default=store.sealed()), stored.plan.metric))


def device_windows(store: Store, analysis: Analysis, within: Window | None) -> list[Window]:
    """Return the periods that are told: the last ones, or all within a window."""
    return periods(store, device_plan(store, analysis), within)


def device_bounds(store: Store, analysis: Analysis, within: Window | None, alpha: float) -> list[Active]:
    """Return each period with its bound, which is wrong with a chance of alpha at most."""
    return active(store, device_plan(store, analysis), device_windows(store, analysis, within), 1 - alpha)


def device_shares(store: Store, analysis: Analysis, within: Window | None, alpha: float) -> list[Stickiness]:
    """Return each long period in which it is told how many of its devices a mean short one has; wrong likewise."""
    return stickiness(store, *device_parts(store, analysis), device_windows(store, analysis, within), 1 - alpha)


def reports_needed(span: Step, alpha: float) -> int:
    """Return from how many reports a period on a bound is above zero, if other periods have as many."""
    n, late = 1, late_of(SPANS[span][0])
    while not least(n, [n, n], late, 1 - alpha):
        n += 1
    return n


# The analyses: each is asked, resolved and answered.


COEFFICIENTS_MAX = 5
MODEL_COEFFICIENTS_MAX = 30
"""The most coefficients, but for the intercept: with an interval, and of a fitted table."""
ALPHA_MIN = 1e-290
TIED_SHOWN = 3

T = TypeVar("T")


@dataclass(frozen=True)
class AnalysisRow:
    """One row of an analysis."""

    name: str
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None
    note: str = ""
    untold: str = ""
    unit: str | None = None
    """The unit of this row, such as that of a column; None where it is the question's."""
    window: Window | None = None
    """The days that it is of; None where they are the question's."""
    n: int | None = None
    """Its reports, likewise."""
    queries: Sequence[StepSums] = field(default=(), repr=False)
    weights: Mapping[str, float] = field(default_factory=dict, repr=False)
    """The numbers before values or cells of which it is the sum, or of a coefficient its error; {} of a model."""


class ResolvedName(Protocol):
    """The plan that a name is of, and in a table the column (`resolving.Resolved`)."""

    @property
    def plan(self) -> Plan:
        """Return the plan."""

    @property
    def column(self) -> str:
        """Return the column; "" of a metric without columns."""

    @property
    def table(self) -> TableAsked | None:
        """Return the table."""

    @property
    def listed(self) -> bool:
        """Tell whether values are listed."""

    @property
    def stored(self) -> StoredPlan:
        """Return the plan as it is stored."""


class Asks(Protocol):
    """The store that is asked (`answering.Asking`)."""

    def once(
        self, what: str, at: CountedAt, view: Sequence[object], make: Callable[[], T], records: Sequence[type]
    ) -> T:
        """Return what a slow analysis makes of some counts; raise NotReady where it is not made here and now."""

    def tell_progress(self, done: int, of: int) -> None:
        """Tell how much of it is done."""

    @property
    def store(self) -> Store:
        """Return the store."""

    @property
    def plans(self) -> Mapping[str, StoredPlan]:
        """Return each metric's plan, by name."""

    @property
    def tables(self) -> Mapping[str, TableAsked]:
        """Return each table, by name."""

    def counting(self, analysis: Analysis) -> ResolvedName:
        """Return the plan that counts devices; raise BadQuestion for none."""

    def table(self, name: str) -> ResolvedName:
        """Return a table by its name; raise BadQuestion for none."""

    def resolve(self, asked: Figure) -> ResolvedName:
        """Return the plan that something is asked of; raise BadQuestion for none."""

    def never_together(self, names: Sequence[str]) -> str:
        """Say that some columns were never asked together."""

    def sums(self, at: CountedAt) -> Sums:
        """Return all weighted sums of what was counted together; raise Untold for no report."""

    def bare(self, at: CountedAt, n: int) -> object:
        """Return a term of n reports that nothing is told of."""

    def too_few(self, at: CountedAt, n: int) -> Untold:
        """Return that n reports have no interval that holds."""


def family_of(value: str) -> str:
    """Return a value's family: all but its last word, such as "Chrome" of "Chrome 157"."""
    return value.rpartition(" ")[0] or value


def resolved(asking: Asks, analysis: Analysis) -> ResolvedName:
    """Return the plan that an analysis is of."""
    if analysis.kind == "clusters":
        return asking.table(analysis.metric)
    if analysis.by_period:
        return asking.counting(analysis)
    first, *others = analysis.parts or (Condition(analysis.metric),)
    pairs = analysis.kind == "regress" or not others
    try:
        return asking.resolve(Figure("share", first.name, first, also=() if pairs else tuple(others)))
    except BadQuestion:
        if analysis.kind != "logistic":
            raise
    return asking.resolve(Figure("share", first.name, first))


def check(asking: Asks, analysis: Analysis) -> None:
    """Raise BadQuestion for what cannot be asked."""
    if analysis.kind == "top":
        if not _members(asking, analysis):
            raise BadQuestion(f"{analysis.metric} has no saved groups: leave group by saved out")
    elif analysis.kind == "clusters":
        _number_columns(asking, analysis)
    elif analysis.kind == "devices":
        asking.counting(analysis)
    elif analysis.kind == "stickiness":
        device_parts(asking.store, analysis)
    else:
        _groups(asking, analysis)


def intervals(asking: Asks, analysis: Analysis, window: Window | None) -> int:
    """Return how many intervals it asks for in a window."""
    if analysis.kind == "top":
        return len(_members(asking, analysis))
    if analysis.by_period:
        return len(device_windows(asking.store, analysis, window))
    return 1 if analysis.kind == "clusters" else 1 + len(_groups(asking, analysis)[1])


def freedom(asking: Asks, analysis: Analysis) -> int:
    """Return how many numbers decide all sums of what is ranked."""
    return len(_symbols(resolved(asking, analysis))) - 1


def rows(
    asking: Asks, analysis: Analysis, at: CountedAt, window: Window | None, alpha: float
) -> tuple[int, list[AnalysisRow]]:
    """Return the number of reports, and the rows. Raises Untold. `window` is None where the question names no days."""
    if analysis.kind == "devices":
        return _devices(asking, analysis, window, alpha)
    if analysis.kind == "stickiness":
        return _stickiness(asking, analysis, window, alpha)
    if analysis.kind == "top":
        return _top(asking, analysis, at, alpha)
    if analysis.kind == "clusters":
        return _clusters(asking, analysis, at)
    return _regression(asking, analysis, at, alpha)


# Devices.


def _devices(asking: Asks, analysis: Analysis, window: Window | None, alpha: float) -> tuple[int, list[AnalysisRow]]:
    found, note = [], device_note(analysis.span)
    for each in device_bounds(asking.store, analysis, window, alpha):
        row = AnalysisRow("", each.least, each.least, window=each.window, n=each.n)
        missing = "reports of a period before it are missing"
        found.append(replace(row, untold=missing) if each.least is None else replace(row, note=note))
    if not found:
        raise Untold(f"no whole {analysis.span} of which reports are kept")
    return 0, found


def _stickiness(asking: Asks, analysis: Analysis, window: Window | None, alpha: float) -> tuple[int, list[AnalysisRow]]:
    note = f"of the devices that report, {device_note(analysis.part, analysis.span)}"
    found = [
        AnalysisRow("", each.reported, each.lower, each.upper, note, window=each.window, n=each.n)
        for each in device_shares(asking.store, analysis, window, alpha)
    ]
    if not found:
        raise Untold(f"no whole {analysis.span}, with a week after it, in which no reports are missing")
    return 0, found


# The largest values.


def _symbols(of: ResolvedName) -> Sequence[str]:
    """Return the values that are told, "other" among them."""
    return of.table.domain.labels(of.table.column(of.column)) if of.table else of.plan.values


def _members(asking: Asks, analysis: Analysis) -> Mapping[str, tuple[str, ...]]:
    """Return what is ranked, and the values of each."""
    of = resolved(asking, analysis)
    if not (of.listed or of.table):
        raise BadQuestion(f"{analysis.metric} is not of listed values, which alone are ranked")
    if of.table:
        of.table.check_told(of.column, analysis.at)
    values = _symbols(of)
    members: dict[str, tuple[str, ...]] = {}
    for value in values:
        if value not in (OTHER, NONE):
            name = family_of(value) if analysis.grouping == "family" else value
            members[name] = (*members.get(name, ()), value)
    if analysis.grouping == "saved":
        saved = {name: Condition(analysis.metric, each.patterns, group=each) for name, each in analysis.groups.items()}
        members = {name: each.among(tuple(values)) for name, each in saved.items()}
    return {name: own for name, own in members.items() if own}


def _top(asking: Asks, analysis: Analysis, at: CountedAt, alpha: float) -> tuple[int, list[AnalysisRow]]:
    of, sums, members = resolved(asking, analysis), asking.sums(at), _members(asking, analysis)
    places = {value: place for place, value in enumerate(_symbols(of))}
    items = [np.zeros(len(places)) for _ in members]
    for has, own in zip(items, members.values(), strict=True):
        has[[places[value] for value in own]] = 1.0
    names, estimates, ends = list(members), [], []
    for has in items:
        part: Floats | None = has
        whole = None
        if of.table:
            assert isinstance(sums, CellSums)
            part = sums.of({of.table.column(of.column): has})
            whole = sums.everybody if of.table.domain.hidden else None
        told = _interval(sums, part, whole, alpha) if part is not None else None
        if told is None:
            raise asking.too_few(at, sums.n)
        estimates.append(told[0])
        ends.append(told[1:])
    lower, upper = np.array(ends).T
    best = 1 + (lower > upper[:, np.newaxis]).sum(axis=1)
    worst = len(names) - (upper < lower[:, np.newaxis]).sum(axis=1)
    found = []
    for place in np.argsort(-np.array(estimates), kind="stable")[: analysis.count].tolist():
        tied = [
            names[other] for other in range(len(names)) if lower[other] <= upper[place] and lower[place] <= upper[other]
        ]
        tied.remove(names[place])
        note = f"rank {best[place]}"
        if tied:
            note += f" to {worst[place]}: cannot be told from {listed(tied, TIED_SHOWN)}"
        weights = _weights_of(of, items[place])
        least, most = float(lower[place]), float(upper[place])
        found.append(AnalysisRow(names[place], estimates[place], least, most, note, weights=weights))
    return sums.n, found


def _weights_of(of: ResolvedName, has: Floats) -> Mapping[str, float]:
    """Return the number before each value, or symbol of a column, that is summed."""
    if of.table:
        return of.table.cells({of.table.column(of.column): has})
    return {value: 1.0 for value, held in zip(of.plan.values, has.tolist(), strict=True) if held}


def _interval(sums: Sums, part: Floats, whole: Floats | None, alpha: float) -> tuple[float, float, float] | None:
    if whole is not None:
        ratio = sums.ratio(part, whole, alpha)
        return (ratio.estimate, ratio.lower, ratio.upper) if ratio else None
    ends = sums.interval(part, alpha)
    return ends and (sums.estimate(part), *ends)


# Regressions.


def _groups(asking: Asks, analysis: Analysis) -> tuple[Regressor, list[Regressor]]:
    """Return the outcome, and the groups of which each has a coefficient."""
    of = resolved(asking, analysis)
    if not of.table:
        few = f"{analysis.metric} is no column of a table: regressions are of columns asked together"
        names = list(dict.fromkeys(each.name for each in analysis.parts))
        known = len(names) > 1 and all(name in asking.plans for name in names)
        raise BadQuestion(f"{few}; {asking.never_together(names)}" if known else few)
    first, *others = analysis.parts
    outcomes = _groups_of(of.table, first)
    if len(outcomes) != 1:
        raise BadQuestion(f'which values of {first.name} are the outcome? write {first.name} = "..."')
    for each in others:
        _check_column(asking, of.table, first, each)
    of_parts = [(each, _groups_of(of.table, each)) for each in others]
    groups = [group for _, own in of_parts for group in own]
    most = COEFFICIENTS_MAX if analysis.kind == "regress" else MODEL_COEFFICIENTS_MAX
    if len(groups) > most:
        few = f"{len(groups)} coefficients are more than noise leaves apart: at most {most} are told"
        largest, _ = max(of_parts, key=lambda each: len(each[1]))
        raise BadQuestion(f'{few}. Regressor values: {largest.name} in ("one", "another")', largest.at)
    for each, own in of_parts:
        if any(group.column == outcomes[0].column for group in own):
            raise BadQuestion(f"{first.name} is the outcome: it cannot explain itself", each.at)
    _check_apart(of_parts)
    return outcomes[0], groups


def _check_column(asking: Asks, table: TableAsked, outcome: Condition, part: Condition) -> None:
    """Raise BadQuestion for a name that is no column which devices answer together with the outcome."""
    name, (public, *arms) = part.name.rpartition(".")[2], table.domain.public or ("",)
    if name in table.domain.names:
        return
    if name == public:
        one, other, *_ = [f"share({outcome.name} ... | {public} = {quoted(arm)})" for arm in arms] * 2
        raise BadQuestion(f"{public} is sent in the clear: groups of it are compared by {one} - {other}", part.at)
    columns = {column for each in asking.tables.values() for column in each.domain.names}
    if name not in columns and name not in asking.plans:
        raise BadQuestion(f"there is no column {part.name!r}; there are {listed(table.domain.names)}", part.at)
    raise BadQuestion(asking.never_together([outcome.name, part.name]), part.at)


def _check_apart(of_parts: Iterable[tuple[Condition, Sequence[Regressor]]]) -> None:
    """Raise BadQuestion for a group that a sum of those before it and of all devices makes: it has no coefficient.

    Groups of different columns never make each other, for any values of these may come together.
    """
    before: dict[int, list[Floats]] = {}
    for part, groups in of_parts:
        for group in groups:
            own = before.setdefault(group.column, [np.ones_like(group.has)])
            own.append(group.has)
            if np.linalg.matrix_rank(np.array(own)) < len(own):
                why = "all devices are in it" if group.has.all() else "those before it decide who is in it"
                raise BadQuestion(f"{group.name} can have no coefficient: {why}", part.at)


def _groups_of(table: TableAsked, part: Condition) -> list[Regressor]:
    """Return the group of a condition, or of a column's name one for each value but the first and "other"."""
    if part.name.rpartition(".")[2] not in table.domain.names:
        raise BadQuestion(f"{part.name} is no column of {table.stored.plan.metric} that devices answer", part.at)
    table.check_told(part.name, part.at)
    column = table.column(part.name)
    if part.patterns or part.number is not None:
        return [Regressor(table.shown(part), column, table.has(part))]
    labels = table.domain.labels(column)
    named = [Condition(part.name, (label,)) for label in labels[1:-1]]
    return [Regressor(table.shown(each), column, np.eye(len(labels))[at]) for at, each in enumerate(named, 1)]


def regressions(table: TableAsked) -> float:
    """Return how many coefficients can be asked of a table: any values of a column make a group, or the outcome."""
    sizes = [len(table.domain.labels(column)) for column in range(len(table.domain.names))]
    groups = sum(2.0 ** min(size, 200) for size in sizes)
    return 2 * (COEFFICIENTS_MAX + 1) * min(groups, 1e40) ** (COEFFICIENTS_MAX + 1)


def _regression(asking: Asks, analysis: Analysis, at: CountedAt, alpha: float) -> tuple[int, list[AnalysisRow]]:
    sums = asking.sums(at)
    assert isinstance(sums, CellSums)
    outcome, groups = _groups(asking, analysis)
    model = ""
    try:
        if analysis.kind == "regress":
            found = regression.linear(sums, outcome, groups)
        elif sums.asking([each.column for each in (outcome, *groups)]) and len(groups) <= COEFFICIENTS_MAX:
            found = regression.logistic(sums, outcome, groups)
        else:
            model = "log odds of a table fitted to pairs: a model, without an interval"
            columns = sorted({each.column for each in (outcome, *groups)})
            fit = _fitted(sums, columns)
            found = regression.logistic_of_fit(fit.weights, columns, outcome, groups)
    except (NotTold, TooFew) as why:
        raise Untold(str(why), asking.bare(at, sums.n)) from None
    rows = []
    for number, each in enumerate(found.coefficients):
        note = model or ("log odds" if analysis.kind == "logistic" else "")
        if each.name == regression.INTERCEPT:
            note = "; ".join(filter(None, [note, f"{outcome.name} among devices in none of these groups"]))
        own = [] if number else found.queries
        if each.weights is None:
            rows.append(AnalysisRow(each.name, each.estimate, note=note, queries=own))
            continue
        ends = sums.interval(each.weights, alpha)
        if ends is None:
            raise asking.too_few(at, sums.n)
        rest = each.estimate - sums.estimate(each.weights)
        weights = _named_cells(asking.tables[at.metric], sums, each.weights)
        rows.append(
            AnalysisRow(each.name, each.estimate, ends[0] + rest, ends[1] + rest, note, queries=own, weights=weights)
        )
    return sums.n, rows


def _named_cells(table: TableAsked, sums: CellSums, weights: Floats) -> Mapping[str, float]:
    """Return the weights of each question's cells by their names; a number alone has none."""
    found = {"": float(weights[0])} if weights[0] else {}
    labels = table.domain.labels
    for question, block in zip(sums.questions, sums.blocks(weights), strict=True):
        cells = list(np.ndindex(*question.shape))
        for cell, weight in zip(question.table(question.columns).cells.tolist(), block.tolist(), strict=True):
            if weight:
                sides = zip(question.columns, cells[cell] if cell < len(cells) else (), strict=False)
                each = [share_name(table.domain.names[column], labels(column)[at]) for column, at in sides]
                found[" & ".join(each) or NONE] = weight
    return found


def _fitted(sums: CellSums, columns: Sequence[int]) -> Synthesis:
    sizes = {column: size for each in sums.questions for column, size in zip(each.columns, each.shape, strict=True)}
    if (cells := prod(sizes[column] for column in columns)) > CELLS_MAX:
        raise NotTold(f"{cells:,} cells of these columns are too many to fit, at most {CELLS_MAX:,} are: name fewer")
    return synthesise(pair_tables(sums.questions, columns))


# Clusters.


def _number_columns(asking: Asks, analysis: Analysis) -> tuple[Sequence[int], Sequence[Buckets]]:
    asking.table(analysis.metric)
    domains = asking.tables[analysis.metric].domain.domains
    found = [(at, each) for at, each in enumerate(domains) if isinstance(each, Buckets)]
    if not 2 <= len(found) <= k_means.COLUMNS_MAX:
        raise BadQuestion(
            f"clusters are of 2 to {k_means.COLUMNS_MAX} columns of numbers told by ranges (edges), "
            f"{analysis.metric} has {len(found)}"
        )
    return [at for at, _ in found], [each for _, each in found]


def _clusters(asking: Asks, analysis: Analysis, at: CountedAt) -> tuple[int, list[AnalysisRow]]:
    columns, domains = _number_columns(asking, analysis)
    sums = asking.sums(at)
    assert isinstance(sums, CellSums)
    names = [asking.tables[analysis.metric].domain.names[column] for column in columns]
    seed = int.from_bytes(sha256(f"{at} {analysis.count} {sums.shares.tobytes()!r}".encode()).digest()[:8], "big")

    def make() -> k_means.Clusters | str:
        """Cluster, or say why that cannot be told."""
        try:
            return k_means.clusters(
                names,
                domains,
                k_means.numbered(sums.questions, columns),
                pair_tables(sums.questions, columns),
                analysis.count,
                np.random.default_rng(seed),
                asking.tell_progress,
            )
        except (NotTold, TooFew, ValueError) as why:
            return str(why)

    found = asking.once("clusters", at, (analysis.count,), make, (k_means.Clusters, k_means.Clustering))
    if isinstance(found, str):
        raise Untold(found, asking.bare(at, sums.n))
    if not found.is_stable:
        moved = 1 - float(np.sort(found.same)[1])
        raise Untold(
            f"noise alone moves {moved:.0%} of the devices into other clusters: ask for fewer, or of more reports",
            asking.bare(at, sums.n),
        )
    return sums.n, list(_centres(found, domains))


def _centres(found: k_means.Clusters, domains: Sequence[Buckets]) -> Iterator[AnalysisRow]:
    places, moved = found.in_unit(found.found.centres), found.in_unit(found.spread, difference=True)
    for cluster, share in enumerate(found.found.shares.tolist()):
        own = found.queries if not cluster else ()
        yield AnalysisRow(
            f"cluster {cluster + 1}: share", share, note="a model, without an interval", queries=own, unit=""
        )
        for name, domain, place, by in zip(found.names, domains, places[cluster], moved[cluster], strict=True):
            note = f"noise moves it by about {domain.with_unit(f'{by:.2g}')}"
            yield AnalysisRow(f"cluster {cluster + 1}: {name}", float(place), note=note, unit=domain.unit or "1")
