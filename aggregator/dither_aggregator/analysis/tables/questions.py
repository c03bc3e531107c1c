"""The reports of one question, folded to the table of some of its columns: raw shares with their exact covariance."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import (
    CellLaw,
    Functionals,
    PairedCells,
    PointCells,
    answers_covariance,
    answers_variance,
)
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.counting.folding import Counts
from dither_aggregator.counting.supports import places_of_points, support_counts
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.pgr import points


@dataclass(frozen=True)
class QuestionTally:
    """The question to the devices of one cell of a plan, and the counts of their answers."""

    columns: tuple[int, ...]
    """The places of the columns that it asks for."""
    shape: tuple[int, ...]
    """How many symbols each has."""
    hidden: bool
    """Whether the last symbol is that of a device with nothing to say."""
    mechanism: PureMechanism
    counts: Counts
    """The tally's counts of these reports."""
    n: int
    """How many they are, at least one."""
    repeats: int = 1
    """How many of them one device may have sent, with fresh noise."""
    prime: int = 0
    """In plans of before 0.1.0 it scattered cells over symbols, as it does the points of a geometry today."""
    count_noise: float = 0.0
    """The variance of the noise on each count, of counts that were published; n is made of these."""

    def table(self, columns: Sequence[int]) -> "CellTable":
        """Return the table of some of its columns, in this order; all others are summed over. Raises BadTally."""
        axes = [self.columns.index(column) for column in columns]
        shape = tuple(self.shape[axis] for axis in axes)
        held = np.unravel_index(np.argsort(places_of_points(prod(self.shape), self.prime)), self.shape)
        cells = np.ravel_multi_index(tuple(held[axis] for axis in axes), shape)
        if self.hidden:
            cells = np.append(cells, prod(shape))
        return CellTable(self, shape, cells)

    @cached_property
    def raw(self) -> Floats:
        """The unbiased share of each symbol, float64[d]."""
        if self.count_noise:
            return Functionals(self.mechanism, self.counts, self.n).shares
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        return np.asarray((support_counts(self.mechanism, self.counts, self.n) / self.n - q) / (p - q))


@dataclass(frozen=True)
class CellTable:
    """The shares of the cells of some columns, the last fastest; then, where presence is hidden, of nothing to say."""

    question: QuestionTally
    shape: tuple[int, ...]
    cells: npt.NDArray[np.intp]
    """The cell of each symbol."""

    @property
    def size(self) -> int:
        """How many cells, that of nothing to say counted."""
        return prod(self.shape) + self.question.hidden

    @property
    def everybody(self) -> tuple[Floats, float]:
        """A sum of cells, float64[size], and a constant: the share of those with something to say is both together."""
        functional = np.zeros(self.size)
        functional[prod(self.shape) :] = -1.0
        return functional, 1.0

    @cached_property
    def shares(self) -> Floats:
        """Raw and unbiased, of all reports, float64[size]."""
        return np.bincount(self.cells, self.question.raw, self.size).astype(np.float64)

    @cached_property
    def variances(self) -> Floats:
        """The variance of each share, float64[size]: that of a share of zero at least, also where no report came."""
        repeated = (self.question.repeats - 1) * answers_variance(self.shares)
        designed = self.law.variances / self.question.n
        least = float(self.question.mechanism.noise_variance) / self.question.n
        own = np.maximum(designed, least) + repeated / self.question.n
        return np.asarray(own + self._published_variances if self.question.count_noise else own)

    def covariances(self, functionals: Floats) -> Floats:
        """Return the covariance of weighted sums of cells, float64[F, size], with each cell: float64[F, size]."""
        own = self.law.covariances(functionals) / self.question.n + self._repeated(
            functionals, np.maximum(self.shares, 0.0)
        )
        return own + self._published(functionals) if self.question.count_noise else own

    def covariance(self, shares: Floats) -> Floats:
        """Return the covariance of all cells, float64[size, size], where their true shares are these."""
        return self.law.covariance(shares) / self.question.n + self._repeated(np.eye(self.size), shares)

    @property
    def steepness(self) -> float:
        """How much a variance grows with the share of a cell, beside (1 - 2 share) of it: see `ratios`.

        Exact for GRR of two cells; otherwise as if a report's supports were independent.
        """
        p, q = float(self.question.mechanism.p), float(self.question.mechanism.q)
        return ((1 - 2 * q) / (p - q) + self.question.repeats - 1) / self.question.n

    @cached_property
    def law(self) -> CellLaw:
        """How cells vary together in the population, if every report is another device's."""
        question = self.question
        if question.mechanism.geometry is not None:
            # Noise of a release may make a count negative: a histogram has none.
            return PointCells(question.mechanism, self.cells, self.size, np.maximum(question.counts, 0))
        sizes = np.bincount(self.cells, minlength=self.size).astype(np.float64)
        return PairedCells(question.mechanism, sizes, self.shares)

    @cached_property
    def _moves(self) -> tuple[Floats, Floats, int, int]:
        """How a share moves with each count y, times n (p - q): by S(y) - k, see `_published`.

        S(y) is how many symbols of the cell a count supports. Returned are M, the symbols of each cell; k; by how many
        counts a symbol is supported; and two symbols.
        """
        mechanism = self.question.mechanism
        p, q, named = float(mechanism.p), float(mechanism.q), mechanism.shape.raises
        assert named is not None  # counts of bits are not published
        symbols = np.bincount(self.cells, minlength=self.size).astype(np.float64)
        one, two = 1, 0
        if mechanism.geometry is not None:
            order, dimension, _ = mechanism.geometry
            one, two = points(order, dimension - 1), points(order, dimension - 2)
        return symbols, (self.shares * (p - q) + q * symbols) / named, one, two

    def _published(self, functionals: Floats) -> Floats:
        """Return what noise on each count adds to the covariance of weighted sums of cells with each cell.

        It is the noise's variance times the sum over counts of (S_a - k_a)(S_b - k_b), over (n (p - q))^2. The sum of
        S_a S_b is over pairs of symbols, which are supported together by `two` counts, or by `one` where they are one.
        """
        symbols, k, one, two = self._moves
        all_, mean = (functionals @ symbols)[:, np.newaxis], (functionals @ k)[:, np.newaxis]
        products = (one - two) * functionals * symbols + two * all_ * symbols - one * (all_ * k + mean * symbols)
        return np.asarray((products + self.question.mechanism.shape.size * mean * k) * self._published_scale)

    @property
    def _published_variances(self) -> Floats:
        """The same of each cell alone."""
        symbols, k, one, two = self._moves
        squares = (one - two) * symbols + two * symbols**2 - 2 * one * symbols * k
        return np.asarray((squares + self.question.mechanism.shape.size * k**2) * self._published_scale)

    @property
    def _published_scale(self) -> float:
        apart = float(self.question.mechanism.p) - float(self.question.mechanism.q)
        return self.question.count_noise / (self.question.n * apart) ** 2

    def _repeated(self, functionals: Floats, shares: Floats) -> Floats:
        return (self.question.repeats - 1) / self.question.n * answers_covariance(functionals, shares)
