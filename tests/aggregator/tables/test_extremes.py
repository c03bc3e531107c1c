"""Counts at their extremes: everybody says the same, or nothing; one report; at the least and most epsilon."""

from itertools import product

import numpy as np
import pytest

from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables.pairs import TooFew
from dither_aggregator.analysis.tables.reading import TablesReading
from dither_aggregator.analysis.tables.synthesis import synthesise_table
from dither_aggregator.web.pages.tables import tables_part
from tests.support.drawn_numbers import DAY
from tests.support.drawn_tables import draw_table, shape_of, stored_table
from tests.support.soaking import thinned
from tests.support.tables import LIGHT, table

MANY = 'a = ["x", "y"], b = { edges = [1, 2, 3] }, c = { low = 0, high = 4, asks = ["mean"] }, d = ["p"], e = ["q"]'
MEAN = 'a = ["x"], b = { low = 0, high = 4, asks = ["mean"] }'


CASES = tuple(
    product([0.01, 1, 20], [LIGHT, MANY, MEAN], [("public", ""), ("hidden", ""), ("public", 'arm = ["1", "2"]')])
)
SHORT = (2, 3, 10, 18, 25)
"""Each epsilon, form of columns and presence, and a public column beside the least and most noise."""


@pytest.mark.parametrize(("epsilon", "columns", "how"), thinned(CASES, *SHORT))
def test_everything_said_is_finite_whatever_is_counted(epsilon: float, columns: str, how: tuple[str, str]) -> None:
    """A cell without a report has no variance by its own share, and nothing may be divided by that."""
    presence, public = how
    metric = table(columns, public, epsilon=epsilon, presence=presence)
    stored, size = stored_table(metric), int(np.prod(shape_of(metric.plan)))
    symbols = size + metric.hidden
    for place in {0, size - 1, symbols - 1}:
        shares = np.eye(symbols)[place]
        for n in (1, 299, 400, 12_000):
            arms = metric.cells.public
            tally = draw_table(stored.plan, [shares] * arms, [n] * arms, np.random.default_rng(1))
            reading = estimate(stored, DAY, tally, View(simultaneous=n != 400))
            for row in reading.rows:
                assert np.isfinite([row.estimate, row.std_error, row.lower, row.upper]).all(), row
                assert row.lower <= row.upper, row
            assert isinstance(reading, TablesReading)
            if reading.rows:
                tables_part(reading, {})
            try:
                made = synthesise_table(stored, tally, View(), lambda steps, ratio: None)
            except TooFew:
                continue
            assert made.synthesis.weights.sum() == pytest.approx(1)
