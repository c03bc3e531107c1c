"""All statistics of one set of questions: those of a table's devices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from statistics import NormalDist

import numpy as np

from dither_aggregator.analysis.multiplicity import holm
from dither_aggregator.analysis.ratios import KnownRatio, tell
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.association import Association, association
from dither_aggregator.analysis.tables.columns import Margin, margin, pooled
from dither_aggregator.analysis.tables.comparisons import chances, differences
from dither_aggregator.analysis.tables.fourfold import Fourfold, fourfold, fourfold_of_numbers
from dither_aggregator.analysis.tables.pairs import precision_weights
from dither_aggregator.analysis.tables.questions import QuestionTally
from dither_aggregator.analysis.tables.rows import (
    Statistic,
    TableRow,
    Verdict,
    association_name,
    cell_name,
    difference_name,
    difference_verdict,
    mean_name,
    rate_name,
    share_name,
)
from dither_shared.domains import Columns, Range
from dither_shared.domains.columns import HIGH

ALPHA = 0.05
"""At most so often there is a false verdict: among the groups of two columns, or among all associations."""
CAUTION = 1.25
"""P-values of associations are multiplied by this: their law is a close approximation, not a bound."""
CELLS_MAX = 4_096
"""Two columns with more cells together are told by themselves alone: more would take too long."""
NUMBERS = np.array([True, True, False])
"""Whether each symbol of a column that coins round is a number: its two ends are, and "other" is not."""


@dataclass(frozen=True)
class TableStatistics:
    """The rows of one set of questions."""

    domain: Columns
    questions: Sequence[QuestionTally]
    """Those with enough reports."""
    view: View
    provisional: bool

    def of_columns(self) -> Iterator[TableRow]:
        """Yield the share of each symbol of each column, and the mean of numbers that coins round."""
        for column, found in self._margins.items():
            every = pooled([each for _, each in found])
            if every is None:
                continue
            is_number = column in self._scales
            for ratio in every.ratios.tell(self._z(self._labels)):
                if not is_number:
                    yield self._share(column, ratio)
                elif ratio.place == (HIGH,):
                    name = self.domain.names[column]
                    yield TableRow(mean_name(name), *self._in_unit(column, ratio)[1:], "mean", name)

    def of_pairs(self) -> Iterator[TableRow]:
        """Yield what pairs of columns say: their association, their cells, and each one's rates by the other."""
        yield from self._associations()
        for question, a, b in self._pairs:
            yield from self._of_pair(question, a, b)

    def released(self) -> Iterator[TableRow]:
        """Yield the rows of a release: shares and means of columns, and the cells of each two columns."""
        yield from self.of_columns()
        for question, a, b in self._pairs:
            if a < b and not {a, b} & self._scales.keys():
                yield from self._cells(fourfold(question.table((a, b))), a, b)

    # The questions.

    @cached_property
    def _pairs(self) -> list[tuple[QuestionTally, int, int]]:
        """Each two columns that a question asks for together, in both orders."""
        sizes = [len(self.domain.labels(column)) for column in range(len(self.domain.names))]
        return [
            (question, a, b)
            for question in self.questions
            for a, b in permutations(question.columns, 2)
            if sizes[a] * sizes[b] <= CELLS_MAX
        ]

    @cached_property
    def _scales(self) -> dict[int, tuple[float, float]]:
        """The low end and the width of each range whose numbers coins round: the share of high ends is their mean."""
        scales = {}
        for column, domain in enumerate(self.domain.domains):
            if isinstance(domain, Range):
                low, high = (float(domain.in_unit(edge)) for edge in domain.edges)
                scales[column] = low, high - low
        return scales

    @cached_property
    def _margins(self) -> dict[int, list[tuple[QuestionTally, Margin]]]:
        """The margins of each column, by question: shares of those with an answer or, for a range, with a number."""
        return {
            column: [
                (question, margin(question.table((column,)), NUMBERS if column in self._scales else None))
                for question in self.questions
                if column in question.columns
            ]
            for column in range(len(self.domain.names))
        }

    def telling(self) -> dict[str, float]:
        """Return, by column, how many reports tell its shares: fewer than all, as some weigh more than others."""
        told = {}
        for column, found in self._margins.items():
            if every := pooled([each for _, each in found]):
                weights = precision_weights([float(each.variances.mean()) for _, each in found])
                spread = float(weights**2 @ [1 / question.n for question, _ in found])
                told[self.domain.names[column]] = max(every.whole, 0.0) / spread
        return told

    @cached_property
    def _elsewhere(self) -> dict[tuple[int, tuple[int, ...]], Margin | None]:
        """The margin of all other questions, by a column and the columns of the question that is left out."""
        return {
            (column, question.columns): pooled([found for asked, found in margins if asked is not question])
            for column, margins in self._margins.items()
            for question, _ in margins
        }

    @cached_property
    def _rates(self) -> int:
        """How many rates there may be, of all pairs in both orders."""
        sizes = [dict(zip(question.columns, question.shape, strict=True)) for question, _, _ in self._pairs]
        pairs = zip(sizes, self._pairs, strict=True)
        return sum(size[a] * size[b] for size, (_, a, b) in pairs if a not in self._scales)

    @cached_property
    def _labels(self) -> int:
        """How many symbols all columns have."""
        return sum(len(self.domain.labels(column)) for column in range(len(self.domain.names)))

    def _z(self, together: int) -> float:
        """Return the standard errors of an interval, one of so many: all of one statistic, whichever pair is shown."""
        alpha = (1 - self.view.confidence) / (max(together, 1) * self.view.together if self.view.simultaneous else 1)
        return -NormalDist().inv_cdf(alpha / 2)

    def _judging_z(self, together: int) -> float:
        """Return that of the intervals by which verdicts are given: of all together, whichever are shown."""
        return max(self._z(together), -NormalDist().inv_cdf(ALPHA / max(together, 1) / 2))

    # Rows.

    @cached_property
    def _symbols(self) -> list[list[tuple[str, str]]]:
        """The label of each symbol of each column, and the name of its share."""
        return [
            [(label, share_name(name, label)) for label in self.domain.labels(column)]
            for column, name in enumerate(self.domain.names)
        ]

    def _share(self, column: int, ratio: KnownRatio) -> TableRow:
        label, share = self._symbols[column][ratio.place[0]]
        return TableRow(share, *ratio[1:], "share", self.domain.names[column], label)

    def _in_unit(self, column: int, ratio: KnownRatio, *, difference: bool = False) -> KnownRatio:
        """Return the share of high ends, or a difference of two, in a range's unit."""
        low, width = self._scales[column]
        first = 0.0 if difference else low
        estimate, lower, upper = (first + width * number for number in (ratio.estimate, ratio.lower, ratio.upper))
        return KnownRatio(ratio.place, estimate, width * ratio.std_error, lower, upper)

    @cached_property
    def _tested(self) -> list[tuple[int, int, Association, float, bool]]:
        """Each pair of columns: the two, their association, its p-value, and whether it is told."""
        pairs = [(question, a, b) for question, a, b in self._pairs if a < b]
        levels = self._z(len(pairs)), self._judging_z(len(pairs))
        found = [association(question.table((a, b)), *levels) for question, a, b in pairs]
        p_values = np.array([1.0 if each is None else min(1.0, CAUTION * each.p_value) for each in found])
        true = holm(p_values, ALPHA)
        return [
            (a, b, each, p_value, is_true and each.sure)
            for (_, a, b), each, p_value, is_true in zip(pairs, found, p_values.tolist(), true.tolist(), strict=True)
            if each is not None
        ]

    @cached_property
    def _associated(self) -> frozenset[tuple[int, int]]:
        """The pairs of columns that can be told to go together, in both orders."""
        return frozenset(pair for a, b, _, _, is_true in self._tested if is_true for pair in ((a, b), (b, a)))

    def _associations(self) -> Iterator[TableRow]:
        z = self._z(sum(a < b for _, a, b in self._pairs))
        for a, b, each, p_value, is_true in self._tested:
            one, other = self.domain.names[a], self.domain.names[b]
            numbers = (each.size, (each.upper - each.lower) / 2 / z, each.lower, each.upper)
            judged = self._judged("associated" if is_true else "cannot be told", p_value)
            yield TableRow(association_name(one, other), *numbers, "association", one, None, other, None, *judged)

    def _judged(self, verdict: Verdict, p_value: float) -> tuple[Verdict, float] | tuple[()]:
        """Return the end of a row: its verdict and p-value, if there may be any."""
        return () if self.provisional else (verdict, p_value)

    def _of_pair(self, question: QuestionTally, a: int, b: int) -> Iterator[TableRow]:
        """Yield what is told of the column b by groups of the column a. Coins are no groups."""
        if a in self._scales:
            return
        table = question.table((a, b))
        if b in self._scales:
            found = fourfold_of_numbers(table, HIGH, NUMBERS)
        else:
            own = fourfold(table)
            if a < b:
                yield from self._cells(own, a, b)
            found = own.knowing(self._elsewhere[a, question.columns], self._elsewhere[b, question.columns])
        rates = found.rates
        for ratio in rates.tell(self._z(self._rates)):
            yield self._by_group(a, b, ratio)
        yield from self._differences(found, a, b)

    def _cells(self, found: Fourfold, a: int, b: int) -> Iterator[TableRow]:
        cells = found.cells
        for ratio in cells.tell(self._z(self._rates)):
            (first, one), (second, other) = self._symbols[a][ratio.place[0]], self._symbols[b][ratio.place[1]]
            names = self.domain.names
            yield TableRow(cell_name(one, other), *ratio[1:], "cell", names[a], first, names[b], second)

    def _by_group(
        self, a: int, b: int, ratio: KnownRatio, judged: tuple[Verdict, float] | tuple[()] | None = None
    ) -> TableRow:
        """Return the row of a rate or mean of a group, or of its difference from all others', which is judged."""
        (group, share), column, name = self._symbols[a][ratio.place[0]], self.domain.names[a], self.domain.names[b]
        what: str
        label: str | None
        if b in self._scales:
            what, label, ratio = mean_name(name), None, self._in_unit(b, ratio, difference=judged is not None)
        else:
            label, what = self._symbols[b][ratio.place[1]]
        of_group = rate_name(what, share)
        if judged is not None:
            return TableRow(difference_name(of_group), *ratio[1:], "difference", name, label, column, group, *judged)
        statistic: Statistic = "mean" if label is None else "rate"
        return TableRow(of_group, *ratio[1:], statistic, name, label, column, group)

    def _differences(self, found: Fourfold, a: int, b: int) -> Iterator[TableRow]:
        p_values = chances(found)
        true = holm(p_values.ravel(), ALPHA).reshape(p_values.shape)
        against, judging = (differences(found, z(self._rates)) for z in (self._z, self._judging_z))
        for each in tell(against.known, against.estimate, against.std_error, against.lower, against.upper):
            # Readers look at the clearest pair: of many that are noise its groups would often seem to differ.
            told = true[each.place] and (a, b) in self._associated
            verdict = difference_verdict(told, judging.lower[each.place], judging.upper[each.place])
            yield self._by_group(a, b, each, self._judged(verdict, float(p_values[each.place])))
