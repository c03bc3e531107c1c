"""The names in the figures of a question: a plan, in a table the column, and the values, ranges or cells to sum.

Names that are not there, and conditions that a metric cannot tell, are refused here, with what can be asked instead.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from dither_aggregator.analysis.channel import places_of
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.functional import Sums
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numbers import MEAN, QUANTILES
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.rows import mean_name, rate_name, share_name
from dither_aggregator.analysis.tables.pairs import CellSums, Columned
from dither_aggregator.analysis.tables.reading import columns_of
from dither_aggregator.ask.language import BadQuestion, Condition, Figure, Untold
from dither_aggregator.store import StoredPlan
from dither_shared.domains import NONE, OTHER, Buckets, Columns, Domain, Range
from dither_shared.domains.columns import HIGH, LOW
from dither_shared.domains.number_ranges import NumberDomain
from dither_shared.plan import Plan

VALUES_SHOWN = 5


class CountedAt(NamedTuple):
    """Reports that are counted together: of a metric, a window and, in some tables, a value of the public column."""

    metric: str
    days: Window
    arm: str = ""


@dataclass(frozen=True)
class TableAsked:
    """A table that is asked: which symbols of its columns are meant, and which devices count."""

    stored: StoredPlan

    @cached_property
    def domain(self) -> Columns:
        """Its columns."""
        return columns_of(self.stored.plan)

    def column(self, name: str, at: int | None = None) -> int:
        """Return the place of a column, by its name or by TABLE.COLUMN; raise BadQuestion for the public one.

        `at` is the place of the name in the question, where that is not where the figure stands.
        """
        own = self._within(name, at)
        if own in self.domain.public[:1]:
            raise BadQuestion(f"{own} is sent in the clear: it may only stand behind |", at)
        return self.domain.names.index(own)

    def _within(self, name: str, at: int | None) -> str:
        """Return a column's name without the table's; raise BadQuestion where that is another one's."""
        table, _, own = name.rpartition(".")
        if table not in ("", metric := self.stored.plan.metric):
            raise BadQuestion(f"{name} is no column of {metric}, which the question is of", at)
        return own

    def has(self, condition: Condition) -> Floats:
        """Return 1 for each symbol of its column that a condition means, else 0; raise BadQuestion for none."""
        column = self.column(condition.name, condition.at)
        self.check_told(condition.name, condition.at)
        labels = self.domain.labels(column)
        if condition.number is not None:
            return self._beyond(column, condition)
        try:
            found = condition.among(tuple(labels))
        except BadQuestion as error:
            raise error.beside(condition.value_at) from None
        if not found:
            few = f"{condition.name} has no value that {condition} means; it has {listed(labels)}"
            raise BadQuestion(few, condition.value_at)
        return np.isin(np.array(labels, dtype=object), found).astype(np.float64)

    def _bare(self, name: str) -> str:
        return self.domain.names[self.column(name)]

    def check_told(self, name: str, at: int) -> None:
        """Raise BadQuestion, with a place, for a column whose values are not told."""
        if isinstance(domain := self.domain.domains[self.column(name, at)], Range):
            few = f"coins round {name} to one of two ends, so that only its mean is told"
            raise BadQuestion(f"{few}: {_column_line(self._bare(name), domain)} in its place would tell shares", at)

    def _beyond(self, column: int, condition: Condition) -> Floats:
        domain, labels = self.domain.domains[column], self.domain.labels(column)
        if not isinstance(domain, Buckets):
            few = f"{condition.name} is told by its values: ask {condition.name} in one of {listed(labels)}"
            raise BadQuestion(few, condition.value_at)
        if condition.unit not in ("", domain.unit):
            few = f"{condition.name} is in {domain.unit or 'no unit'}, not in {condition.unit}"
            raise BadQuestion(few, condition.unit_at)
        edges = [domain.in_unit(edge) for edge in domain.edges]
        at = next((at for at, edge in enumerate(edges) if Fraction(edge) == Fraction(condition.number or 0)), None)
        if at is None:
            few = f"{condition.name} is told apart at {listed(edges)}: ask for one of these"
            raise BadQuestion(few, condition.value_at)
        above = np.arange(len(labels)) > at
        above[-1] = False  # "other" is no number
        below = np.arange(len(labels)) <= at
        return np.asarray(above if condition.above else below, dtype=np.float64)

    def together(self, conditions: Iterable[Condition]) -> Columned:
        """Return which cells all of some conditions mean."""
        of_columns: dict[int, Floats] = {}
        for condition in conditions:
            column, has = self.column(condition.name, condition.at), self.has(condition)
            _narrow(of_columns, column, has, condition.name, condition.at)
        return of_columns

    def cells(self, of_columns: Columned, arm: str = "") -> dict[str, float]:
        """Return the number before each cell of some columns, by the cell's name; of the devices of an arm."""
        sides = [
            [
                (share_name(self.domain.names[column], label), number)
                for label, number in zip(labels, numbers.tolist(), strict=True)
                if number
            ]
            for column, numbers in of_columns.items()
            for labels in [self.domain.labels(column)]
        ]
        of = share_name(self.domain.public[0], arm) if arm else ""
        named = {" & ".join(name for name, _ in cell): prod(by for _, by in cell) for cell in product(*sides)}
        return {rate_name(name, of) if of else name: number for name, number in named.items()}

    # A share, a rate or a mean.

    def arm(self, asked: Figure) -> str:
        """Return the value of the public column that devices must have, or ""; raise BadQuestion for none."""
        public, *values = self.domain.public or ("",)
        found = [each for each in _given(asked) if self._within(each.name, each.at) == public]
        if not found:
            return ""
        meant = [value for value in values if all(each.among((value,)) for each in found)]
        if len(meant) != 1 or found[0].number is not None:
            raise BadQuestion(f"{public} is asked for one value: {listed(values)}", found[0].value_at)
        return meant[0]

    def given(self, asked: Figure) -> Columned:
        """Return the cells of the devices that count; {} of all."""
        whole = dict(self.together(each for each in _given(asked) if self._own(each)))
        if asked.statistic == "mean":
            column = self.column(asked.metric)
            domain = self.domain.domains[column]
            if not isinstance(domain, Range):
                few = f"{asked.metric} is told by its ranges or values, of which no mean is measured"
                line = _column_line(self._bare(asked.metric), domain, mean=True)
                raise BadQuestion(f"{few}: {line} in its place would" if isinstance(domain, NumberDomain) else few)
            whole[column] = _on(self._size(column), {LOW: 1.0, HIGH: 1.0})
        return whole

    def part(self, asked: Figure) -> Columned:
        """Return the cells of what is asked among these, each with its number; raise BadQuestion where none is."""
        if asked.statistic == "quantile":
            few = f"{asked.metric} is a column of {self.stored.plan.metric}, of which no quantile is measured"
            raise BadQuestion(f"{few}: a metric of its own with edges would tell them")
        part = dict(self.given(asked))
        if asked.statistic == "mean":
            column = self.column(asked.metric)
            domain = self.domain.domains[column]
            assert isinstance(domain, Range)
            low, high = (float(domain.in_unit(edge)) for edge in domain.edges)
            return {**part, column: _on(self._size(column), {LOW: low, HIGH: high})}
        own = [each for each in _asked(asked) if self._own(each)]
        if len(own) < len(_asked(asked)):
            at = next(each.at for each in _asked(asked) if each not in own)
            raise BadQuestion(f"{self.domain.public[0]} is sent in the clear: it may only stand behind |", at)
        for column, has in self.together(own).items():
            _narrow(part, column, has, self.domain.names[column], own[0].at)
        return part

    def sides(self, asked: Figure, sums: CellSums) -> tuple[Floats, Floats] | None:
        """Return the weights of what is asked and of the devices that count; None where too few reports tell them."""
        part, whole = self.part(asked), self.given(asked)
        weights = sums.of(part)
        of_whole = sums.of(whole, [*part]) if whole else sums.of({})
        return None if weights is None or of_whole is None else (weights, of_whole)

    def is_whole(self, asked: Figure) -> bool:
        """Whether all devices count."""
        return not self.domain.hidden and not self.given(asked)

    def name(self, asked: Figure) -> str:
        """Return what is asked, in words; raise BadQuestion where it cannot be."""
        self.part(asked)
        self.arm(asked)
        if asked.statistic == "mean":
            what = mean_name(asked.metric.rpartition(".")[2])
        else:
            what = " & ".join(map(self.shown, _asked(asked)))
        return rate_name(what, " & ".join(map(self.shown, _given(asked)))) if _given(asked) else what

    def freedom(self, asked: Figure) -> int:
        """Return how many numbers decide all sums of the columns that are asked for."""
        return prod(self._size(column) for column in {*self.part(asked), *self.given(asked)}) - 1

    def _own(self, condition: Condition) -> bool:
        return condition.name.rpartition(".")[2] in self.domain.names

    def _size(self, column: int) -> int:
        return len(self.domain.labels(column))

    def shown(self, condition: Condition) -> str:
        """Return a condition as names have it."""
        column = condition.name.rpartition(".")[2]
        if len(condition.patterns) == 1 and condition.is_single:
            return share_name(column, condition.patterns[0].replace("[*]", "*").replace("[?]", "?").replace("[[]", "["))
        return str(condition)


def _narrow(of_columns: dict[int, Floats], column: int, has: Floats, name: str, at: int) -> None:
    """Leave the symbols of a column that are meant, too; raise BadQuestion for none."""
    of_columns[column] = of_columns[column] * has if column in of_columns else has
    if not of_columns[column].any():
        raise BadQuestion(f"no value of {name} meets all that is asked of it, so no device can", at)


def _asked(asked: Figure) -> Sequence[Condition]:
    return [each for each in (asked.condition, *asked.also) if each]


def _given(asked: Figure) -> Sequence[Condition]:
    return [each for each in (asked.given, *asked.given_also) if each]


def names_asked(asked: Figure) -> list[str]:
    """Return the names of the columns that something is asked of, each once."""
    return list(dict.fromkeys([asked.metric, *(each.name for each in (*_asked(asked), *_given(asked)))]))


def _on(size: int, of_symbols: Mapping[int, float]) -> Floats:
    weights = np.zeros(size)
    weights[list(of_symbols)] = list(of_symbols.values())
    return weights


def columns_line(columns: Mapping[str, Domain | None], mean_of: str = "") -> str:
    """Return the registry's line for columns that are asked together, with the first values of each.

    `mean_of` names the one of which a mean is wanted, or none.
    """
    listed_ = ", ".join(_column_line(name, domain, mean=name == mean_of) for name, domain in columns.items())
    return f"columns = {{ {listed_} }}"


def _column_line(name: str, domain: Domain | None, *, mean: bool = False) -> str:
    """Return the registry's entry for a column, of which shares are wanted or its mean."""
    return f"{name} = {_values(domain, mean=mean)}"


def _values(domain: Domain | None, *, mean: bool) -> str:
    if isinstance(domain, NumberDomain):
        unit = f", unit = {json.dumps(domain.unit, ensure_ascii=False)}" if domain.unit else ""
        edges = [*map(domain.in_unit, domain.edges)]
        if mean:
            return f'{{ low = {edges[0]}, high = {edges[-1]}, asks = ["mean"]{unit} }}'
        if isinstance(domain, Range):  # shares need an edge between its ends
            edges.insert(1, domain.in_unit(sum(domain.edges[:: len(domain.edges) - 1]) // 2))
        return f"{{ edges = [{', '.join(edges)}]{unit} }}"
    values = [value for value in getattr(domain, "values", ()) if value != OTHER]
    shown = [json.dumps(value, ensure_ascii=False) for value in values[:VALUES_SHOWN]]
    return f"[{', '.join([*shown, *(['...'] if len(values) > VALUES_SHOWN or not values else [])])}]"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return some names for a sentence, the first of many."""
    given = list(names)
    more = f" and {len(given) - most:,} more" if len(given) > most else ""
    return ", ".join(given[:most]) + more if given else "none"


# Names of any metric.


@dataclass(frozen=True)
class Resolved:
    """The plan that is asked, and in a table the column."""

    stored: StoredPlan
    column: str = ""

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return self.stored.plan

    @property
    def unit(self) -> str:
        """The unit of its numbers; "1" without one."""
        domain = self.plan.domain
        if isinstance(domain, Columns) and self.column in domain.names:
            domain = domain.domains[domain.names.index(self.column)]
        return domain.unit or "1"

    @property
    def listed(self) -> bool:
        """Whether values are listed, so that any sum of them is a functional."""
        return estimand_of(self.plan).has_functionals(self.stored)

    @property
    def has_sums(self) -> bool:
        """Whether any weighted sum is told: of listed values, or of a table's cells. Other names have a row each."""
        return self.listed or bool(self.column)

    @property
    def table(self) -> TableAsked | None:
        """The table, where a column is asked for; None of a metric without columns."""
        return TableAsked(self.stored) if self.column else None

    def names(self, asked: Figure) -> tuple[tuple[str, ...], bool]:
        """Return the names of what is asked, and whether all others are meant; raise BadQuestion where none is."""
        if self.table:
            return (self.table.name(asked),), False
        metric = self.plan.metric
        if asked.given:
            raise BadQuestion(
                f"a share of some values of {metric} is written as share({metric} ...) / share({metric} ...)"
            )
        known = (*estimand_of(self.plan).names(self.stored), *estimand_of(self.plan).shares(self.stored))
        domain = self.plan.domain
        if asked.statistic == "mean" and MEAN in known:
            return (MEAN,), False
        if asked.statistic != "share":
            if not isinstance(domain, NumberDomain):
                raise BadQuestion(f"{metric} is of values, which have no {asked.statistic}: ask share({metric} = ...)")
            return (_quantile(asked, known),), False
        assert asked.condition is not None
        every = (asked.condition, *asked.also)
        if edges := [each for each in every if each.number is not None]:
            if not isinstance(domain, NumberDomain):
                raise BadQuestion(f"{metric} is of values: ask share({metric} in ...)", edges[0].at)
            if asked.also:
                raise BadQuestion(_one_edge(edges), asked.also[0].at)
            return (_above(domain, asked.condition, known),), not asked.condition.above
        if asked.also and self.plan.kind.several:
            several = f"a device may have several values of {metric}, and who has all of some is not told: ask for each"
            raise BadQuestion(several, asked.also[0].at)
        shares = known
        if isinstance(domain, NumberDomain):
            shares = tuple(name for name in known if name != MEAN and name not in QUANTILES)
        found = shares
        for each in every:
            if not each.among(shares):
                numbers = [_written(metric, name) for name in each.among(known) if name not in shares]
                if numbers:
                    raise BadQuestion(f"{each} is no share of devices: ask {listed(numbers)}", each.value_at)
                raise BadQuestion(f"{metric} has no value that {each} means; it has {listed(shares)}", each.value_at)
            found = each.among(found)
        if not found:
            raise BadQuestion(f"no value of {metric} meets all that is asked of it, so no device can", asked.also[0].at)
        if len(found) > 1 and not self.listed:
            raise BadQuestion(f"{metric} tells one value at a time; {asked.condition} means {listed(found)}")
        return found, False

    def weights(self, asked: Figure) -> Floats:
        """Return 1 for each value that is asked for, and 0 for all others."""
        found, _ = self.names(asked)
        return np.isin(np.array(self.plan.values, dtype=object), found).astype(np.float64)

    def functional(self, asked: Figure) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the numbers before values or cells that make what is asked, and those of the devices that count.

        The latter are {} where all count, and "" stands for a number alone.
        """
        names, flipped = self.names(asked)
        domain = self.plan.domain
        if self.table:
            part, given = self.table.part(asked), self.table.given(asked)
            arm, every = self.table.arm(asked), {column: np.ones(len(numbers)) for column, numbers in part.items()}
            own, whole = (self.table.cells(each, arm) for each in (part, {**every, **given}))
            if self.table.is_whole(asked):
                return own, {}
            return own, whole if given else {"": 1.0, NONE: -1.0}
        if names == (MEAN,) and isinstance(domain, Buckets):
            places = places_of(self.plan)
            middle = (places.mean_lower + places.mean_upper) / 2
            return {domain.name_of(at): number for at, number in enumerate(middle.tolist())}, {}
        if flipped:
            return {"": 1.0} | dict.fromkeys(names, -1.0), {}
        return dict.fromkeys(names, 1.0), {}

    def has_parts(self, asked: Figure) -> bool:
        """Whether it is told by weights alone, or over the devices that say anything: not of some of these."""
        if self.table:
            return not self.table.given(asked)
        return self.listed

    def sides(self, asked: Figure, sums: Sums) -> tuple[Floats, Floats | None]:
        """Return the weights of what is asked and, but for all devices, of those that count."""
        if not self.table:
            return self.weights(asked), None
        assert isinstance(sums, CellSums)
        found = self.table.sides(asked, sums)
        if found is None:
            raise Untold(f"too few reports tell {self.table.name(asked)}")
        return found[0], None if self.table.is_whole(asked) else found[1]

    def everybody(self, sums: Sums) -> Floats:
        """Return the weights of all values together."""
        if isinstance(sums, CellSums):
            return sums.everybody
        return np.ones(len(self.plan.values))


def _quantile(asked: Figure, known: Sequence[str]) -> str:
    """Return the name of a quantile."""
    name = next((name for name, at in QUANTILES.items() if Fraction(str(at)) == asked.probability), "")
    if name not in known:
        told = [f"{at:g}".removeprefix("0") for name, at in QUANTILES.items() if name in known]
        if not told:
            raise BadQuestion(f"{asked.metric} tells a mean alone", asked.at)
        raise BadQuestion(f"quantiles are told of {listed(told)}", asked.probability_at)
    return name


def _written(metric: str, name: str) -> str:
    """Return the question for a mean or a quantile."""
    return f"mean({metric})" if name == MEAN else f"quantile({metric}, {QUANTILES[name]:g})"


def _one_edge(conditions: Sequence[Condition]) -> str:
    """Say that a share of numbers has one condition, and what tells the same of two edges."""
    alone = f"a share of {conditions[0].name} has one condition"
    above, below = ([each for each in conditions if each.above is side] for side in (True, False))
    if not (above and below) or len(conditions) > 2:
        return f"{alone}: ask for one edge"
    ((lower,), (upper,)) = above, below
    if (lower.number or 0) >= (upper.number or 0):
        return f"no number meets all that is asked of {lower.name}, so no device can"
    return f"{alone}, of one edge: ask share({lower}) - share({replace(upper, above=True)})"


def _above(domain: NumberDomain, condition: Condition, known: Sequence[str]) -> str:
    """Return the name of the share of numbers from an edge on."""
    if condition.unit not in ("", domain.unit):
        raise BadQuestion(
            f"{condition.name} is in {domain.unit or 'no unit'}, not in {condition.unit}", condition.unit_at
        )
    edges = [domain.in_unit(edge) for edge in domain.edges]
    if isinstance(domain, Range):
        wanted = sorted({*map(Fraction, edges), Fraction(condition.number or 0)})
        line = f"edges = [{', '.join(f'{float(each):g}' for each in wanted)}]"
        raise BadQuestion(
            f"{condition.name} is asked for its mean alone: {line} in the registry would tell shares",
            condition.value_at,
        )
    edge = next((edge for edge in edges if Fraction(edge) == Fraction(condition.number or 0)), None)
    name = f"at least {domain.with_unit(edge)}" if edge is not None else ""
    if name not in known:
        raise BadQuestion(
            f"{condition.name} is told apart at {listed(edges)}: ask for one of these", condition.value_at
        )
    return name
