"""Pair tables as dither does them, for the comparison: the one place to plug it in."""

from dither_aggregator.analysis.tables.pairs import PairTable
from dither_aggregator.analysis.tables.synthesis import synthesise
from tests.benchmarks.tables.census import Floats


def ours(pairs: tuple[PairTable, ...]) -> Floats:
    """Return the shares of all cells."""
    return synthesise(pairs).weights
