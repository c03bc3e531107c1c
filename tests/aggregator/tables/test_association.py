"""Association: nothing and everything, the law of the test beside drawn reports, and the size's interval."""

from decimal import Decimal
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.inference import Floats, Z
from dither_aggregator.analysis.tables import statistics as association_module
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.analysis.tables.statistics import Association, association
from dither_shared.mechanisms import choose
from tests.support.questions import draw_questions, in_symbols
from tests.support.soaking import scaled

NOTHING = np.outer([0.4, 0.3, 0.2, 0.1], [0.5, 0.2, 0.2, 0.1])


def expected(truth: Floats, n: int = 10**9) -> Association | None:
    mechanism = choose(truth.size, Decimal(4), name="grr")
    p, q = float(mechanism.p), float(mechanism.q)
    counts = np.rint(n * (q + in_symbols(truth.ravel()) * (p - q))).astype(np.int64)
    counts[0] += n - counts.sum()
    return association(QuestionTally((0, 1), truth.shape, False, mechanism, counts, n).table((0, 1)), Z)


def drawn(truth: Floats, n: int, epsilon: str, seed: int, silent: float | None = None) -> Association | None:
    (asked,) = draw_questions(truth, n, epsilon, np.random.default_rng([seed, 8]), silent=silent)
    return association(asked.table((0, 1)), Z)


def test_the_size_is_cramers() -> None:
    truth = np.array([[0.3, 0.1], [0.2, 0.4]])
    found = expected(truth)
    assert found is not None
    assert found.size == pytest.approx((0.3 * 0.4 - 0.1 * 0.2) / np.sqrt(0.4 * 0.6 * 0.5 * 0.5), abs=1e-3)
    assert found.lower < found.size < found.upper


def test_where_one_symbol_alone_is_told_nothing_is_said() -> None:
    assert expected(np.array([[0.5, 0.5], [0.0, 0.0]])) is None
    assert drawn(NOTHING, 300, "1", 0) is None


def test_of_too_many_cells_nothing_is_said() -> None:
    with patch.object(association_module, "ASSOCIATION_CELLS_MAX", 15):
        assert expected(NOTHING) is None


SEEDS = scaled(60, 300)


@pytest.mark.parametrize(
    ("n", "epsilon", "silent"), [(5_000, "1", None), (1_000, "4", None), (300, "8", None), (3_000, "4", 0.5)]
)
def test_the_test_alarms_as_often_as_it_says(n: int, epsilon: str, silent: float | None) -> None:
    """More than 5 % of the seeds, by what 2.5e-7 of all seed sets exceed."""
    found = [drawn(NOTHING, n, epsilon, seed, silent) for seed in range(SEEDS)]
    assert sum(each is not None and each.p_value < 0.05 for each in found) <= binom.isf(2.5e-7, SEEDS, 0.05)


def test_a_law_at_what_was_counted_alarms_nearly_always() -> None:
    """The planted bug: variances at the estimate, which are next to none where a cell was not counted."""
    truth = np.outer(np.full(11, 1 / 11), np.full(11, 1 / 11))
    found = [drawn(truth, 300, "6", seed) for seed in range(20)]
    assert sum(each is not None and each.p_value < 0.05 for each in found) <= binom.isf(1e-6, 20, 0.05)
    with patch.object(association_module, "_independent", lambda table: table.shares):
        spoiled = [drawn(truth, 300, "6", seed) for seed in range(20)]
    assert sum(each is not None and each.p_value < 0.05 for each in spoiled) > binom.isf(1e-6, 20, 0.05)


def test_an_association_that_is_there_is_found() -> None:
    truth = 0.8 * NOTHING + 0.2 * np.diag([0.4, 0.3, 0.2, 0.1])
    size = np.sqrt((((truth - NOTHING) ** 2) / np.outer(truth.sum(axis=1), truth.sum(axis=0))).sum() / 3)
    found = [drawn(truth, 4_000, "4", seed) for seed in range(100)]
    assert all(each is not None and each.p_value < 1e-3 for each in found)
    assert sum(each.lower <= size <= each.upper for each in found if each) >= binom.isf(1 - 1e-6, 100, 0.95)
