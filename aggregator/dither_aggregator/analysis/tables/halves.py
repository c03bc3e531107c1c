"""All two-way margins of a table of weights, and their transpose, in a few passes over its cells.

The columns are cut into two halves, and the weights are a matrix W[L, R] over the cells of each. Let I_L[L, S] have a
row for each cell of the left half, and in it a one for each of the values that the cell holds, and I_R likewise. Then

    I_L' W I_R      holds the margin of every pair with a column of each half
    W 1, W' 1       are the weights of the halves, whose own pairs are found in the same way

The indicators are sparse: k columns and D cells take about k D / 2 additions, where a pass for each pair would take
k^2 D / 2. They are added in a fixed order on one thread, so that equal weights give equal bits.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod

import numpy as np
from scipy.sparse import csc_array, csr_array

from dither_aggregator.analysis.inference import Floats

Pair = tuple[int, int]
"""The places of two columns, the lower one first."""


class ColumnRun:
    """A run of columns that stand side by side, and the cells of all of them, the last column fastest."""

    def __init__(self, sizes: tuple[int, ...], first: int = 0) -> None:
        """Take the number of values of each, and the place of the first."""
        self.sizes, self.cells = sizes, prod(sizes)
        ends = np.cumsum((0, *sizes)).tolist()
        self.places = {first + at: slice(ends[at], ends[at + 1]) for at in range(len(sizes))}
        self._halves: tuple[ColumnRun, ColumnRun] | None = None
        if len(sizes) > 1:
            cut = min(range(1, len(sizes)), key=lambda at: max(prod(sizes[:at]), prod(sizes[at:])))
            self._halves = ColumnRun(sizes[:cut], first), ColumnRun(sizes[cut:], first + cut)

    @cached_property
    def indicators(self) -> csr_array:
        """I, float64[cells, sum of sizes]. Only halves need theirs: those of all cells would be larger than weights."""
        starts = np.cumsum((0, *self.sizes[:-1]))
        held = np.stack(np.unravel_index(np.arange(self.cells), self.sizes), axis=1) + starts
        ends = np.arange(0, held.size + 1, len(self.sizes))
        return csr_array((np.ones(held.size), held.ravel(), ends), shape=(self.cells, sum(self.sizes)))

    @cached_property
    def transposed(self) -> csc_array:
        """I', kept since a fit asks for it at each step."""
        return self.indicators.T

    def margins(self, weights: Floats) -> dict[Pair, Floats]:
        """Return the two-way margins of weights, float64[cells]: float64[A, B] for each pair."""
        if self._halves is None:
            return {}
        left, right = self._halves
        matrix = weights.reshape(left.cells, right.cells)
        sums = left.transposed @ matrix
        cross = (right.transposed @ sums.T).T
        own = {pair: cross[places] for pair, places in _across(left, right)}
        return own | left.margins(matrix.sum(axis=1)) | right.margins(matrix.sum(axis=0))

    def spread(self, tables: Mapping[Pair, Floats]) -> Floats:
        """Return, for each cell, the sum of the entries of the pairs' tables that it falls in: float64[cells]."""
        if self._halves is None:
            return np.zeros(self.cells)
        left, right = self._halves
        cross = np.zeros((sum(left.sizes), sum(right.sizes)))
        for pair, places in _across(left, right):
            if pair in tables:
                cross[places] = tables[pair]
        sums: Floats = left.indicators @ (right.indicators @ cross.T).T
        sums += left.spread(tables)[:, np.newaxis]
        sums += right.spread(tables)
        return sums.ravel()


def _across(left: ColumnRun, right: ColumnRun) -> Iterator[tuple[Pair, tuple[slice, slice]]]:
    """Yield each pair with a column of both, and where it lies in the matrix of all of them."""
    for a, rows in left.places.items():
        for b, columns in right.places.items():
            yield (a, b), (rows, columns)
