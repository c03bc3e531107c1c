"""Other methods for pair tables, as plain code; and the full product, which asks every device for all at once."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from itertools import combinations
from math import prod

import numpy as np

from dither_aggregator.analysis.tables.pairs import PairTable, combined_margin, norm_sub
from dither_aggregator.counting import support_counts
from dither_shared.mechanisms import choose
from tests.benchmarks.peers import ask
from tests.benchmarks.tables.census import Counts, Floats, margin
from tests.support.tallies import draw_tally

Pairs = tuple[PairTable, ...]

ROUNDS = 100
"""Rounds of proportional fitting: noisy tables contradict each other, and have no fixed point."""
MBI_ITERATIONS = 1_000
"""Its own default."""


def proportional(pairs: Pairs) -> Floats:
    """Return uniform weights, fitted proportionally to each pair in turn after Norm-Sub (Deming, Stephan 1940)."""
    sizes = {column: size for pair in pairs for column, size in zip(pair.columns, pair.shares.shape, strict=True)}
    shape = [sizes[column] for column in sorted(sizes)]
    weights = np.full(shape, 1 / prod(shape))
    targets = [norm_sub(pair.shares.ravel()).reshape(pair.shares.shape) for pair in pairs]
    for _ in range(ROUNDS):
        for pair, target in zip(pairs, targets, strict=True):
            now = margin(weights, pair.columns)
            factor = np.divide(target, now, out=np.zeros_like(now), where=now > 0)
            weights = weights * aligned(factor, pair.columns, len(shape))
    return np.asarray(weights / weights.sum())


def independent(pairs: Pairs) -> Floats:
    """Return the product of the one-way tables."""
    columns = sorted({column for pair in pairs for column in pair.columns})
    return reduce(np.multiply.outer, [norm_sub(combined_margin(pairs, column)[0]) for column in columns])


def product(devices: Counts, epsilon: str, rng: np.random.Generator) -> Floats:
    """Return what all devices' reports of their whole cell say, after Norm-Sub."""
    mechanism, n = choose(devices.size, Decimal(epsilon)), int(devices.sum())
    support = support_counts(mechanism, draw_tally(mechanism, devices.ravel(), rng), n)
    p, q = float(mechanism.p), float(mechanism.q)
    return norm_sub((support / n - q) / (p - q)).reshape(devices.shape)


def ask_mbi(tables: list[tuple[Pairs, int]], shape: tuple[int, ...], timeout_s: float = 3600) -> list[Floats]:
    """Return the models of mbi, in an environment of its own, of pair tables of so many devices.

    It takes one standard error for all cells of a pair: we give it the root of their mean variance.
    """
    questions = [
        {
            "sizes": list(shape),
            "n": n,
            "iterations": MBI_ITERATIONS,
            "pairs": [
                {
                    "columns": list(pair.columns),
                    "shares": pair.shares.ravel().tolist(),
                    "std_error": float(np.sqrt(pair.variance.mean())),
                }
                for pair in pairs
            ],
        }
        for pairs, n in tables
    ]
    return [np.array(answer["weights"]).reshape(shape) for answer in ask("mbi", questions, timeout_s)]


OF_PAIRS: Mapping[str, Callable[[Pairs], Floats]] = {"Norm-Sub + IPF": proportional, "independence": independent}


# The synthesis, naively: a pass over all cells for each pair.


def margins(weights: Floats) -> dict[tuple[int, int], Floats]:
    """Return all two-way margins."""
    return {columns: margin(weights, columns) for columns in combinations(range(weights.ndim), 2)}


def spread(tables: Mapping[tuple[int, int], Floats], shape: tuple[int, ...]) -> Floats:
    """Return, for each cell, the sum of the entries of the pairs' tables that it falls in."""
    sums = np.zeros(shape)
    for columns, table in tables.items():
        sums += aligned(table, columns, len(shape))
    return sums


def aligned(table: Floats, columns: tuple[int, int], dimensions: int) -> Floats:
    """Return a pair's table with an axis for each column of all, of length one for the others."""
    return np.expand_dims(table, tuple(set(range(dimensions)) - set(columns)))
