"""How often the intervals of tables hold the truth, and how often a verdict is false, over drawn devices.

Shares of cells are given, so what is true of every row is known. Devices are a sample of them, drawn anew for each
seed, and their reports are drawn from the exact laws of the mechanisms. A row that is not told has no interval.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import permutations

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis import rows
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.rows import TableRow
from dither_aggregator.analysis.tables.statistics import TableStatistics
from dither_shared.domains import OTHER, Columns, Domain, Range, Values
from tests.support.questions import PAIRS, PRODUCT, asked, draw_questions

Floats = npt.NDArray[np.float64]

RATE, MEAN, DIFFERENCE, CELL, SHARE, SIZE = "rate", "mean", "difference", "cell", "share", "association"
LEAST, MOST = 0.93, 0.97
"""The part of intervals of 95 % that are to hold, by case and statistic."""
ALARMS_MAX = 0.05
TOLD_MIN = 300
"""A coverage of fewer intervals says little."""


@dataclass(frozen=True)
class Case:
    """Devices, and how they are asked."""

    name: str
    truth: Floats
    """The shares of all cells, float64[sizes of the columns]."""
    n: int
    epsilon: str
    design: str = PAIRS
    silent: float | None = None
    repeats: int = 1
    ranges: tuple[int, ...] = ()
    """Columns of numbers that coins round to an end: three symbols."""

    @property
    def domain(self) -> Columns:
        """The columns, named c0, c1 and so on, with values 0, 1 and so on."""
        domains: list[Domain] = [
            Range((0, 10), 0, "s") if at in self.ranges else Values((*map(str, range(size - 1)), OTHER))
            for at, size in enumerate(self.truth.shape)
        ]
        names = tuple(f"c{at}" for at in range(self.truth.ndim))
        questions = tuple(asked(self.truth.ndim, self.design))
        return Columns(names, tuple(domains), questions, self.silent is not None)

    def rows(self, seed: int, view: View | None = None) -> list[TableRow]:
        """Return all rows of a seed's devices."""
        rng = np.random.default_rng([seed, self.n, round(1_000 * float(self.epsilon))])
        silent, repeats = self.silent, self.repeats
        questions = draw_questions(
            self.truth, self.n, self.epsilon, rng, design=self.design, silent=silent, repeats=repeats
        )
        statistics = TableStatistics(self.domain, questions, view or View(), provisional=False)
        return [*statistics.of_columns(), *statistics.of_pairs()]

    def true(self) -> dict[str, float]:
        """Return what is true of every row."""
        found: dict[str, float] = {}
        for column in range(self.truth.ndim):
            found |= self._of_column(column)
        for a, b in permutations(range(self.truth.ndim), 2):
            found |= self._of_pair(a, b)
        return found

    def _margin(self, *columns: int) -> Floats:
        others = tuple(set(range(self.truth.ndim)) - set(columns))
        found = self.truth.sum(axis=others)
        return np.asarray(found if list(columns) == sorted(columns) else found.T)

    def _of_column(self, column: int) -> dict[str, float]:
        shares, labels, name = self._margin(column), self.domain.labels(column), f"c{column}"
        if column in self.ranges:
            return {rows.mean_name(name): 10 * float(shares[1] / shares[:2].sum())}
        return {rows.share_name(name, label): float(share) for label, share in zip(labels, shares, strict=True)}

    def _of_pair(self, a: int, b: int) -> dict[str, float]:
        cells, found = self._margin(a, b), {}
        expected = np.outer(cells.sum(axis=1), cells.sum(axis=0))
        size = np.sqrt(((cells - expected) ** 2 / np.maximum(expected, 1e-300)).sum() / (min(cells.shape) - 1))
        found[rows.association_name(f"c{a}", f"c{b}")] = float(size)
        for group, label in enumerate(self.domain.labels(a)):
            of_group = rows.share_name(f"c{a}", label)
            ours, theirs = cells[group], cells.sum(axis=0) - cells[group]
            if b in self.ranges:
                told = [(rows.mean_name(f"c{b}"), 10 * float(each[1] / each[:2].sum())) for each in (ours, theirs)]
                found |= _with_difference(told[0][0], of_group, told[0][1], told[1][1])
                continue
            for outcome, of in enumerate(self.domain.labels(b)):
                what = rows.share_name(f"c{b}", of)
                found[rows.cell_name(of_group, what)] = float(cells[group, outcome])
                rates = [float(each[outcome] / each.sum()) for each in (ours, theirs)]
                found |= _with_difference(what, of_group, *rates)
        return found


def _with_difference(what: str, group: str, ours: float, theirs: float) -> dict[str, float]:
    name = rows.rate_name(what, group)
    return {name: ours, rows.difference_name(name): ours - theirs}


@dataclass
class Held:
    """Over all seeds, by statistic: how many intervals there were, and how many of them held."""

    told: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    seeds: int = 0
    false_groups: int = 0
    """Seeds with a false verdict on a group of the first column by the second."""
    false_associations: int = 0
    """Seeds with a false verdict on any association."""

    def coverage(self, statistic: str) -> float | None:
        """Return which part of the intervals held; None where there were too few."""
        told = self.told[statistic]
        return self.held[statistic] / told if told >= TOLD_MIN else None


def measure(case: Case, seeds: int) -> Held:
    """Draw a case with so many seeds."""
    found, true = Held(seeds=seeds), case.true()
    for seed in range(seeds):
        drawn = case.rows(seed)
        for row in drawn:
            found.told[row.statistic] += 1
            found.held[row.statistic] += row.lower <= true[row.value] <= row.upper
        found.false_groups += any(_is_false_group(row, true) for row in drawn)
        found.false_associations += any(
            row.verdict == "associated" and true[row.value] < 1e-9 for row in drawn if row.statistic == SIZE
        )
    return found


def _is_false_group(row: TableRow, true: Mapping[str, float]) -> bool:
    """Tell whether a verdict on a group of c0 by c1 is false, its direction included."""
    if row.statistic != DIFFERENCE or row.verdict not in ("higher", "lower"):
        return False
    if (row.group_column, row.column) != ("c0", "c1"):
        return False
    return abs(true[row.value]) < 1e-9 or (true[row.value] > 0) != (row.verdict == "higher")


# Cases.


def joint(sizes: tuple[int, ...], seed: int, groups: int = 3) -> Floats:
    """Return shares of all cells in which columns depend on each other: groups, independent within each."""
    rng = np.random.default_rng(seed)
    total = np.zeros(sizes)
    for weight in rng.dirichlet(np.ones(groups)):
        total += weight * reduce(np.multiply.outer, [rng.dirichlet(np.ones(size)) for size in sizes])
    return total


def independent(sizes: tuple[int, ...], seed: int) -> Floats:
    """Return shares of columns that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    return np.asarray(reduce(np.multiply.outer, [rng.dirichlet(np.full(size, 2.0)) for size in sizes]))


EVEN, UNEVEN = np.array([[0.3, 0.1], [0.2, 0.4]]), np.array([[0.02, 0.08], [0.1, 0.8]])

COVERAGE = (
    Case("GRR 2 x 2", EVEN, 4_000, "4"),
    Case("GRR 2 x 2", EVEN, 8_000, "1"),
    Case("GRR 2 x 2, a tenth in a group", UNEVEN, 4_000, "4"),
    Case("GRR 2 x 2, a tenth in a group", UNEVEN, 30_000, "1"),
    Case("GRR 2 x 2, few reports", EVEN, 300, "8"),
    Case("GRR 7 x 5", joint((7, 5), 2), 20_000, "4"),
    Case("subset selection 5 x 5", joint((5, 5), 2), 40_000, "1"),
    Case("PGR 3 x 4", joint((3, 4), 2), 40_000, "1"),
    Case("PGR 11 x 11", joint((11, 11), 2), 100_000, "2"),
    Case("subset selection 11 x 11", joint((11, 11), 2), 20_000, "4"),
    Case("product 2 x 3 x 2", joint((2, 3, 2), 1), 8_000, "4", PRODUCT),
    Case("product 2 x 2 x 2 x 2", joint((2, 2, 2, 2), 1), 20_000, "1", PRODUCT),
    Case("pairs of four columns of 3", joint((3, 3, 3, 3), 1), 20_000, "4"),
    Case("pairs of four columns of 3", joint((3, 3, 3, 3), 1), 60_000, "1"),
    Case("2 x 2, two in five say nothing", EVEN, 8_000, "2", silent=0.4),
    Case("2 x 2, seven reports a device", EVEN, 8_000, "4", repeats=7),
    Case("a mean by 5 groups", joint((5, 3), 4), 20_000, "4", ranges=(1,)),
    Case("a mean by 3 groups", joint((3, 3), 5), 30_000, "1", ranges=(1,)),
    Case("a mean by 3 groups, pairs", joint((3, 3, 3), 6), 30_000, "2", ranges=(1,)),
)
NOTHING = (
    Case("2 x 2", np.outer([0.2, 0.8], [0.1, 0.9]), 4_000, "4"),
    Case("2 x 2", np.outer([0.2, 0.8], [0.1, 0.9]), 8_000, "1"),
    Case("2 x 2, few reports", np.outer([0.2, 0.8], [0.1, 0.9]), 300, "8"),
    Case("5 x 5", independent((5, 5), 1), 5_000, "1"),
    Case("5 x 5", independent((5, 5), 1), 2_000, "4"),
    Case("5 x 5, few reports", independent((5, 5), 1), 300, "8"),
    Case("11 x 11", independent((11, 11), 2), 10_000, "2"),
    Case("11 x 11", independent((11, 11), 2), 2_000, "4"),
    Case("11 x 11, few reports", independent((11, 11), 2), 300, "8"),
    Case("three pairs of 4 x 4", independent((4, 4, 4), 3), 6_000, "2"),
    Case("product 2 x 3 x 2", independent((2, 3, 2), 3), 3_000, "4", PRODUCT),
    Case("5 x 5, half say nothing", independent((5, 5), 1), 5_000, "4", silent=0.5),
    Case("5 x 5, seven reports a device", independent((5, 5), 1), 7_000, "4", repeats=7),
    Case("a mean by 5 groups", independent((5, 3), 4), 5_000, "4", ranges=(1,)),
)


def run(seeds: int) -> list[str]:
    """Print how often intervals hold and verdicts are false; return the aims that are missed, in words."""
    missed = []
    for title, cases in (("intervals of 95 % hold", COVERAGE), ("columns without association", NOTHING)):
        print(f"\n  {title}, {seeds:,} seeds{'':8}n  eps  rate  mean  diff. cell  share    V  false: groups assoc.")
        for case in cases:
            found = measure(case, seeds)
            missed += aims_missed(case, found)
            parts = [found.coverage(statistic) for statistic in (RATE, MEAN, DIFFERENCE, CELL, SHARE, SIZE)]
            told = "".join("    - " if part is None else f"{part:6.3f}" for part in parts)
            alarms = f"{found.false_groups / seeds:8.3f} {found.false_associations / seeds:6.3f}"
            print(f"    {case.name:32}{case.n:8,}{case.epsilon:>4} {told}{alarms}", flush=True)
    return missed


def aims_missed(case: Case, found: Held) -> list[str]:
    """Return what a case misses, in words."""
    missed, where = [], f"{case.name}, n {case.n:,}, eps {case.epsilon}"
    for statistic in (RATE, MEAN, DIFFERENCE, CELL, SHARE):
        coverage = found.coverage(statistic)
        if coverage is not None and not LEAST <= coverage <= MOST:
            missed.append(f"{where}: {coverage:.3f} of {statistic} intervals hold")
    for what, alarms in (("groups", found.false_groups), ("associations", found.false_associations)):
        if alarms > ALARMS_MAX * found.seeds:
            missed.append(f"{where}: false verdicts on {what} with {alarms / found.seeds:.3f} of the seeds")
    return missed
