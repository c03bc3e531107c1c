"""Pair tables of devices that report one pair of columns each, drawn from the exact laws of the mechanisms."""

from decimal import Decimal
from itertools import combinations

import numpy as np

from dither_aggregator.analysis.tables.pairs import PairTable, QuestionTally, pair_table
from dither_shared.mechanisms import choose
from tests.support.questions import in_symbols
from tests.support.tallies import Counts, draw_tally


def draw_pairs(devices: Counts, epsilon: str, rng: np.random.Generator) -> tuple[PairTable, ...]:
    """Return the raw pair tables of devices, of which each cell of all columns has so many.

    Each device draws one pair, uniformly, and reports its cell of that by the mechanism that is chosen for so many.
    """
    every = list(combinations(range(devices.ndim), 2))
    parts = rng.multinomial(devices.ravel(), np.full(len(every), 1 / len(every)))
    return tuple(
        _drawn(part.reshape(devices.shape), columns, epsilon, rng) for columns, part in zip(every, parts.T, strict=True)
    )


def _drawn(devices: Counts, columns: tuple[int, int], epsilon: str, rng: np.random.Generator) -> PairTable:
    cells = devices.sum(axis=tuple(set(range(devices.ndim)) - set(columns)))
    mechanism = choose(cells.size, Decimal(epsilon))
    counts = draw_tally(mechanism, in_symbols(cells.ravel()), rng)
    return pair_table(QuestionTally(columns, cells.shape, False, mechanism, counts, int(cells.sum())), columns)
