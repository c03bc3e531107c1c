"""How to read the pages, told by one picture of noise beside the truth, on made-up data.

Value k of the listed ones has a share of the N reports proportional to 1/k (Zipf). With n_v of N reports of a value,

    Binomial(n_v, p) + Binomial(N - n_v, q)

reports support it, by the mechanism that the registry would choose. Each value's are drawn by themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache

import numpy as np
from flask import render_template

from dither_aggregator.analysis.closed_days import ALPHA as QUALITY_ALPHA
from dither_aggregator.analysis.inference import LEVEL_MAX, LEVEL_MIN, SURE_TO_COMPARE
from dither_aggregator.analysis.inference import SURE as GROUP_ERRORS_MIN
from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.analysis.reading import WINDOWS
from dither_aggregator.analysis.shares import ShareRow
from dither_aggregator.analysis.tables.reading import REPORTS_MIN as TABLE_REPORTS_MIN
from dither_aggregator.store import Store
from dither_aggregator.web.forest_plots import ROW_HEIGHT, Mark, Plot, draw
from dither_aggregator.web.query_parameters import Parameters, query_parameters
from dither_shared.kinds.precision import MEANS_MIN, NUMBERS_MIN
from dither_shared.mechanisms import choose

N, D, EPSILON, SEED = 8_000, 300, Decimal(4), 3
"""The seed is a usual one: 60 of them miss 3.9 truths in the mean, and show 5.6 values that are not so common."""
LARGEST = 25
"""So many of the largest estimates are drawn."""


@dataclass(frozen=True)
class Example:
    """The largest estimates of made-up data, each with an interval of its own, beside the truth."""

    plot: Plot
    beside: Sequence[tuple[Mark, ShareRow, float]]
    """Each estimate's mark, its truth as a row, and the place of that in percent of the width."""
    n: int = N
    d: int = D
    epsilon: Decimal = EPSILON

    @property
    def misses(self) -> int:
        """How many intervals do not hold the truth."""
        return sum(not mark.row.lower <= truth.estimate <= mark.row.upper for mark, truth, _ in self.beside)

    @property
    def strangers(self) -> int:
        """How many are not among as many most common values, which are called after their ranks."""
        return sum(int(truth.value.split()[1]) > len(self.beside) for _, truth, _ in self.beside)


@cache
def example() -> Example:
    """Draw the noise: always the same one."""
    mechanism, rng = choose(D, EPSILON), np.random.default_rng(SEED)
    weights = 1 / np.arange(1, D)
    counts = np.rint(N * weights / weights.sum()).astype(np.int64)
    counts[0] += N - counts.sum()  # rounding leaves a few
    support = rng.binomial(counts, float(mechanism.p)) + rng.binomial(N - counts, float(mechanism.q))
    chosen = np.argsort(-support, kind="stable")[:LARGEST]
    estimates = estimate_shares(mechanism, support[chosen], N, error_of="reports")
    names = [f"value {place + 1}" for place in chosen.tolist()]
    columns = (estimates.estimate, estimates.std_error, estimates.lower, estimates.upper)
    rows = [ShareRow(*row) for row in zip(names, *(each.tolist() for each in columns), strict=True)]
    truths = [
        ShareRow(name, share, 0.0, share, share)
        for name, share in zip(names, (counts[chosen] / N).tolist(), strict=True)
    ]
    plot = draw([*rows, *truths], estimates.noise_floor)
    marks, true = plot.marks[:LARGEST], plot.marks[LARGEST:]
    beside = [(mark, truth, place.x) for mark, truth, place in zip(marks, truths, true, strict=True)]
    return Example(replace(plot, marks=marks, height=plot.height - LARGEST * ROW_HEIGHT), beside)


@dataclass(frozen=True)
class ReadingHelpPage:
    """All that the template shows: the picture, and the limits that words name."""

    example: Example
    table_reports_min: int = TABLE_REPORTS_MIN
    group_errors_min: float = GROUP_ERRORS_MIN
    compared_errors_min: float = SURE_TO_COMPARE
    number_reports_min: int = NUMBERS_MIN
    mean_reports_min: int = MEANS_MIN
    quality_days: int = round(1 / QUALITY_ALPHA)
    windows: Sequence[int] = WINDOWS
    level_min: Decimal = LEVEL_MIN
    level_max: Decimal = LEVEL_MAX


def show(store: Store) -> str:
    """Return the page. The store has no part in it: its data are made up."""
    query_parameters(Parameters)
    return render_template("reading_help.html", page=ReadingHelpPage(example()))
