"""How often the intervals of numbers hold what is true, and how often a difference is told of what is the same.

Each seed draws a tally of a case from the exact laws of its compiled plan and reads it as the API does. The truth comes
from the exact numbers of the population (tests/support/numbers.py). The intervals of shares, and of a mean alone, are
those of least squares, which are quick: GLS_SEEDS of them. The intervals of the mean and of quantiles are bounds, of
BOUND_SEEDS. A quantile that a reading does not tell has no interval: what is counted is of those that are told.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from dither_aggregator.analysis.differences import differences, view_of
from dither_aggregator.analysis.inference import CONFIDENCE, Floats
from dither_aggregator.analysis.numbers import MEAN, QUANTILES, NumberRow, NumbersReading, Statistics, fit_tally
from dither_aggregator.analysis.reading import View
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains.number_ranges import NumberDomain, Range
from tests.benchmarks.numbers.shapes import LATENCY_MS, shapes
from tests.support.drawn_numbers import Population, draw_numbers, population, read_numbers, stored_number

GLS_SEEDS, BOUND_SEEDS, PAIRS = 1_000, 200, 400
PAIRS_OF_A_MEAN = 10
"""Times as many pairs, where a mean is all that is asked: it is quick, and its test is the closest to its level."""
GLS, QUANTILE = "least squares", "quantiles"
POOLED = {GLS: (0.93, 0.98), MEAN: (0.93, 0.98), QUANTILE: (0.93, 1.0)}
"""Between which parts of all cases' intervals must hold the truth."""
CASE_MIN = 0.88
FALSE_MAX = 0.05
"""At most this part of the pairs of samples of one population may have a difference that is told."""
FINE = 8
"""The different numbers in each bucket of a smooth shape."""
SLACK = 1e-9
"""As a part of the axis: bounds are computed, and a truth may lie on one."""
EVEN = "low = 0\nhigh = 100\nbuckets = 62"
RATIOS = 'low = 1\nhigh = 10000\nbuckets = 62\nscale = "log"'
COUNTS = "low = 0\nhigh = 62\nbuckets = 62"
AGES = "low = 17\nhigh = 90\nbuckets = 73"
HOURS = "low = 1\nhigh = 99\nbuckets = 98"
FIRST = {"zeros": 0, "age": 17, "hours": 1}
"""The lowest number of each shape of whole numbers."""

Hits = Mapping[str, list[float]]
"""By the sort of interval, the part of each reading's that hold the truth."""


@dataclass(frozen=True)
class Case:
    """A population, the metric that asks for its numbers, and how many report."""

    shape: str
    n: int
    epsilon: str
    lines: str
    memo: str = ""
    other: float = 0.0
    none: float = 0.0

    @property
    def name(self) -> str:
        """A line that tells it from other cases."""
        form = f"memoized, {self.memo} for life" if self.memo else "mean alone" if "asks" in self.lines else "fresh"
        return f"{self.shape:8} eps {self.epsilon:>3}, n {self.n:7,}, {form}{', hidden' if self.none else ''}"

    @property
    def stored(self) -> StoredPlan:
        """The plan."""
        presence = "hidden" if self.none else "public"
        return stored_number(self.lines, epsilon=self.epsilon, presence=presence, memo=self.memo)

    def draw(self, seed: int) -> Tally:
        """Draw a tally."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        return draw_numbers(self.stored.plan, _places(self), self.n, rng)


CASES = (
    Case("beta", 3_000, "1", EVEN),
    Case("beta", 100_000, "1", EVEN),
    Case("latency", 200_000, "0.5", RATIOS),
    Case("latency", 20_000, "4", RATIOS),
    Case("zeros", 20_000, "2", COUNTS),
    Case("age", 3_000, "4", AGES),
    Case("hours", 50_000, "1", HOURS),
    Case("latency", 100_000, "2", RATIOS, other=0.02, none=0.3),
    Case("beta", 20_000, "1", "low = 0\nhigh = 100", memo="3"),
    Case("latency", 100_000, "2", 'low = 1\nhigh = 10000\nscale = "log"', memo="4"),
    Case("zeros", 3_000, "0.5", 'low = 0\nhigh = 62\nasks = ["mean"]'),
    Case("age", 20_000, "4", 'low = 17\nhigh = 90\nasks = ["mean"]'),
)
COMPARED = (CASES[3], CASES[5], CASES[9], CASES[11])


@cache
def people(case: Case) -> Population:
    """Return the numbers of a case's population."""
    (shape,) = (each for each in shapes() if each.name == case.shape)
    if case.shape in FIRST:
        numbers = np.arange(len(shape.shares), dtype=np.float64) + FIRST[case.shape]
        return population(numbers, shape.shares, other=case.other, none=case.none)
    parts = (np.arange(FINE * len(shape.shares)) + 0.5) / (FINE * len(shape.shares))
    low, high = LATENCY_MS
    numbers = low * (high / low) ** parts if case.shape == "latency" else 100 * parts
    return population(
        np.asarray(numbers, dtype=np.float64), np.repeat(shape.shares, FINE), other=case.other, none=case.none
    )


@cache
def _places(case: Case) -> Floats:
    return people(case).places(case.stored.plan)


# Coverage.


def held_by(case: Case, seed: int, *, bounds: bool) -> Hits:
    """Return which intervals of a seed's reading hold the truth; without `bounds` those of least squares alone."""
    stored, tally = case.stored, case.draw(seed)
    if bounds or isinstance(stored.plan.domain, Range):
        rows = list(read_numbers(stored, tally).rows)
    else:
        rows = list(Statistics(stored.plan, fit_tally(stored, tally, View()), View(), ()).shares())
    hits: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        hits[_sort(row, stored)].append(float(holds(row, case)))
    return {sort: [float(np.mean(each))] if sort == GLS else each for sort, each in hits.items()}


def _sort(row: NumberRow, stored: StoredPlan) -> str:
    if row.statistic == "quantile":
        return QUANTILE
    return MEAN if row.statistic == MEAN and not isinstance(stored.plan.domain, Range) else GLS


def holds(row: NumberRow, case: Case) -> bool:
    """Tell whether a row's interval holds the truth."""
    low, high = _ends(case)
    slack = SLACK * (high - low)
    return row.lower - slack <= truth(row, case) <= row.upper + slack


def truth(row: NumberRow, case: Case) -> float:
    """Return what is true of a row, of the exact numbers."""
    whole, ends = people(case), _ends(case)
    if row.statistic == "mean":
        return whole.mean(*ends)
    if row.statistic == "quantile":
        return float(np.clip(whole.quantile(QUANTILES[row.value]), *ends))
    if row.statistic == "share_of_reports":
        return 1 - case.other - case.none
    if row.value.startswith("above a point") and row.low is not None and row.high is not None:
        return float(whole.weights @ np.clip((whole.numbers - row.low) / (row.high - row.low), 0, 1))
    return whole.share(row.low, row.high)


def _ends(case: Case) -> tuple[float, float]:
    domain = case.stored.plan.domain
    assert isinstance(domain, NumberDomain)
    return domain.edges[0] / 10**domain.decimals, domain.edges[-1] / 10**domain.decimals


def coverage(case: Case, gls_seeds: int, bound_seeds: int) -> Mapping[str, tuple[float, int]]:
    """Return, by the sort of interval, which part holds the truth, and of how many readings or quantiles."""
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(max(gls_seeds, bound_seeds)):
        if seed % 20 == 0:
            print(f"\r  {case.name}: seed {seed}", end="", file=sys.stderr, flush=True)
        for sort, each in held_by(case, seed, bounds=seed < bound_seeds).items():
            found[sort] += each
    print("\r" + " " * 70, end="\r", file=sys.stderr, flush=True)
    return {sort: (float(np.mean(each)), len(each)) for sort, each in found.items()}


def print_coverage(gls_seeds: int, bound_seeds: int) -> list[str]:
    """Print the coverage of all cases; return what is missed."""
    print(f"\n  coverage of intervals of 95 %: {gls_seeds:,} seeds of least squares, {bound_seeds} of bounds")
    print(f"  {'':48}{GLS:>14}{MEAN:>14}{QUANTILE:>18}")
    cases = {case.name: coverage(case, gls_seeds, bound_seeds) for case in CASES}
    for name, found in cases.items():
        print(f"  {name:48}{_part(found, GLS, 14)}{_part(found, MEAN, 14)}{_part(found, QUANTILE, 18)}")
    pooled = {sort: _pool([found[sort] for found in cases.values() if sort in found]) for sort in POOLED}
    print(f"  {'all':48}{_part(pooled, GLS, 14)}{_part(pooled, MEAN, 14)}{_part(pooled, QUANTILE, 18)}")
    return [*_pooled_missed(pooled), *(each for name, found in cases.items() for each in _case_missed(name, found))]


def _pool(parts: list[tuple[float, int]]) -> tuple[float, int]:
    total = sum(count for _, count in parts)
    return sum(part * count for part, count in parts) / total, total


def _part(found: Mapping[str, tuple[float, int]], sort: str, width: int) -> str:
    return f"{f'{found[sort][0]:.3f} of {found[sort][1]:,}' if sort in found else '-':>{width}}"


def _pooled_missed(pooled: Mapping[str, tuple[float, int]]) -> Iterator[str]:
    for sort, (low, high) in POOLED.items():
        if not low <= pooled[sort][0] <= high:
            yield f"of all intervals of {sort} {pooled[sort][0]:.3f} hold, not {low} to {high}"


def _case_missed(name: str, found: Mapping[str, tuple[float, int]]) -> Iterator[str]:
    for sort, (part, _) in found.items():
        if part < CASE_MIN:
            yield f"of the intervals of {sort} of {name} {part:.3f} hold, less than {CASE_MIN}"


# Differences.


def told_falsely(case: Case, pairs: int, days: int = 1) -> int:
    """Return in how many pairs of samples of one population any difference is told."""
    return sum(any(row.verdict for row in differences(*_pair(case, pair, days))) for pair in range(pairs))


def _pair(case: Case, pair: int, days: int) -> tuple[NumbersReading, NumbersReading]:
    view = view_of(days, 1 - CONFIDENCE)
    before, after = (read_numbers(case.stored, case.draw(10_000 + 2 * pair + at), view) for at in (0, 1))
    return before, after


def print_differences(pairs: int) -> list[str]:
    """Print how often a difference of the same is told; return what is missed."""
    print("\n  differences told of pairs of samples of one population, any statistic")
    missed = []
    for case in COMPARED:
        print(f"\r  {case.name}", end="", file=sys.stderr, flush=True)
        number = pairs * PAIRS_OF_A_MEAN if isinstance(case.stored.plan.domain, Range) else pairs
        part = told_falsely(case, number) / number
        print("\r" + " " * 70, end="\r", file=sys.stderr, flush=True)
        print(f"  {case.name:48}{part:8.3f} of {number:5,}")
        if part > FALSE_MAX:
            missed.append(f"of {case.name} {part:.3f} of the pairs have a false difference, not at most {FALSE_MAX}")
    return missed
