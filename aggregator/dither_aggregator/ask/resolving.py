"""The names in the figures of a question: a plan, in a table the column, and the values, ranges or cells to sum.

Names that are not there, and conditions that a metric cannot tell, are refused here, with what can be asked instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.functional import Sums
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.numbers import MEAN, QUANTILES
from dither_aggregator.analysis.numeric.channel import places_of
from dither_aggregator.analysis.tables.pairs import CellSums
from dither_aggregator.ask.language import BadQuestion, Condition, Figure, Untold
from dither_aggregator.ask.table_conditions import TableAsked, listed
from dither_aggregator.store import StoredPlan
from dither_shared.domains import NONE, Buckets, Columns, Range
from dither_shared.domains.number_ranges import NumberDomain
from dither_shared.plan import Plan


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
