"""How often the intervals of whole readings hold, over drawn devices: the benchmark's cases with fewer seeds."""

from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import t

from dither_aggregator.analysis.tables.pairs import CellTable
from tests.benchmarks.tables.coverage import COVERAGE, NOTHING, Case, Floats, Held, aims_missed, measure
from tests.support.soaking import scaled, thinned

SEEDS = scaled(26, 80)
SIGMAS = float(t.isf(3e-7, SEEDS - 1))
"""Two-sided, the t law of so many seeds passes them with probability 6e-7."""


def scores(case: Case) -> dict[str, float]:
    """Return, by statistic, in how many standard errors of a seed's part the part of intervals that hold misses .95."""
    true, parts = case.true(), dict[str, list[float]]()
    for seed in range(SEEDS):
        held: dict[str, list[bool]] = {}
        for row in case.rows(seed):
            held.setdefault(row.statistic, []).append(row.lower <= true[row.value] <= row.upper)
        for statistic, each in held.items():
            parts.setdefault(statistic, []).append(float(np.mean(each)))
    return {
        statistic: float((np.mean(each) - 0.95) / (np.std(each, ddof=1) / np.sqrt(len(each)) + 1e-3))
        for statistic, each in parts.items()
        if statistic != "association"
    }


def case_of(name: str) -> Case:
    return next(case for case in COVERAGE if case.name.startswith(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    thinned(
        ["pairs of four", "2 x 2, seven", "a mean by 5", "PGR 3", "GRR 7 x 5", "subset selection 5", "product 2 x 3"],
        *range(4),
    ),
)
def test_intervals_of_readings_hold(name: str) -> None:
    """Each of at most five statistics strays for 6e-7 of all sets of seeds."""
    assert all(abs(score) < SIGMAS for score in scores(case_of(name)).values())


@pytest.mark.slow
def test_intervals_without_the_sample_are_seen_to_be_too_narrow() -> None:
    """The planted bug: noise alone, as if the devices that reported were all there are."""
    case = case_of("2 x 2, seven")
    variances, covariances = vars(CellTable)["variances"].func, CellTable.covariances

    def of_once(table: CellTable) -> Floats:
        return np.asarray(variances(table) / table.question.repeats)

    def between(table: CellTable, sums: Floats) -> Floats:
        return np.asarray(covariances(table, sums) / table.question.repeats)

    with patch.object(CellTable, "variances", property(of_once)), patch.object(CellTable, "covariances", between):
        assert scores(case)["rate"] < -SIGMAS


def test_a_case_that_misses_its_aims_is_named() -> None:
    case, found = NOTHING[0], measure(NOTHING[0], 2)
    assert found.seeds == 2
    assert found.told["rate"] == 16
    assert found.coverage("rate") is None
    spoiled = Held(Counter(rate=1_000), Counter(rate=900), 1_000, 80, 70)
    assert [text.split(": ")[1] for text in aims_missed(case, spoiled)] == [
        "0.900 of rate intervals hold",
        "false verdicts on groups with 0.080 of the seeds",
        "false verdicts on associations with 0.070 of the seeds",
    ]
    assert not aims_missed(case, Held(Counter(rate=1_000), Counter(rate=950), 1_000, 50, 50))
