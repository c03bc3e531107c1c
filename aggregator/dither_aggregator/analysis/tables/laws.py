"""How the cells of a table vary together: the exact design covariance of their estimates, and of sums of them.

A question's reports support symbols (`dither_shared.mechanisms.pure`). A table folds these symbols: its cell i holds
M_i of them, and g_i is how many of these a report supports. With phi_i the share of answers in the cell

    E[g_i] = M_i q + phi_i (p - q)            estimate    m_i = (mean of g_i - M_i q) / (p - q)

Reports are independent, so estimates covary as g does in one report, over n (p - q)^2. The covariance takes E[g_i g_j].
A report's chance to support two symbols may depend only on how many of the two the answer is, O for one and N for none
(`PairLaw`; an answer is never two). Then

    E[g_i g_j] = N M_i M_j + (O - N) (M_i phi_j + M_j phi_i)                                     i and j different
    E[g_i g_i] = N M_i^2 + 2 (O - N) M_i phi_i + E[g_i] - N M_i - 2 (O - N) phi_i

The first line for i = j, too, and what is left on the diagonal is for a symbol with itself. For GRR and subset
selection that is all. It is linear in phi, so with raw shares for phi it is estimated without bias. For a projective
geometry (PGR) the chance depends on which symbols lie on a line: there E is taken over the points that were reported.

    repeats    the same devices with r reports each add (r - 1) / n times the covariance of their answers

The population is in it: devices are a sample, and phi (1 - phi) / n is a part of a cell's variance.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.counting.folding import Counts
from dither_aggregator.counting.supports import lies_on
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.pgr import points
from dither_shared.mechanisms.pure import PairLaw

ENTRIES_MAX = 1 << 23
"""The most entries of a matrix of symbols by points: 64 MiB of them."""
POINTS_MIN = 512


class SupportLaw(ABC):
    """The first two moments of g in one report: how many symbols of each of m cells it supports."""

    @property
    @abstractmethod
    def means(self) -> Floats:
        """E[g_i], float64[m]."""

    @property
    @abstractmethod
    def squares(self) -> Floats:
        """E[g_i^2], float64[m]."""

    @abstractmethod
    def with_sums(self, functionals: Floats) -> Floats:
        """Return E[g_i g_f] for weighted sums f of cells: float64[F, m] in and out."""

    @abstractmethod
    def matrix(self, shares: Floats) -> Floats:
        """Return E[g_i g_j], float64[m, m], where answers in the cells have these shares, float64[m]."""


@dataclass(frozen=True)
class PairedSupports(SupportLaw):
    """The law of pairs, in closed form."""

    mechanism: PureMechanism
    pairs: PairLaw
    sizes: Floats
    """M, float64[m]."""
    shares: Floats
    """phi, float64[m]: raw ones leave the moments without bias."""

    @cached_property
    def means(self) -> Floats:
        """E[g_i]."""
        return self._means(self.shares)

    @cached_property
    def squares(self) -> Floats:
        """E[g_i^2]."""
        one, neither = self._of_two
        return self._own(self.shares) + neither * self.sizes**2 + 2 * one * self.sizes * self.shares

    def with_sums(self, functionals: Floats) -> Floats:
        """Return E[g_i g_f]."""
        return self._with(functionals, self.shares)

    def matrix(self, shares: Floats) -> Floats:
        """Return E[g_i g_j]."""
        return self._with(np.eye(len(shares)), shares)

    def _with(self, functionals: Floats, shares: Floats) -> Floats:
        one, neither = self._of_two
        symbols, held = (functionals @ self.sizes)[:, np.newaxis], (functionals @ shares)[:, np.newaxis]
        return (
            functionals * self._own(shares) + symbols * (neither * self.sizes + one * shares) + held * one * self.sizes
        )

    def _own(self, shares: Floats) -> Floats:
        """Return what a cell with itself has more than two cells have."""
        one, neither = self._of_two
        return self._means(shares) - neither * self.sizes - 2 * one * shares

    def _means(self, shares: Floats) -> Floats:
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        return self.sizes * q + shares * (p - q)

    @property
    def _of_two(self) -> tuple[float, float]:
        """O - N and N."""
        return float(self.pairs.one - self.pairs.neither), float(self.pairs.neither)


@dataclass(frozen=True)
class PointSupports(SupportLaw):
    """The same from the points that were reported: on the hyperplanes of how many symbols of a cell each lies.

    For large tables it takes as many of the reports as ENTRIES_MAX and POINTS_MIN allow, evenly spread over all: a
    standard error from 512 reports is itself off by 3 %.
    """

    mechanism: PureMechanism
    geometry: tuple[int, int]
    cells: npt.NDArray[np.intp]
    """The cell of each symbol, intp[d]."""
    size: int
    """m."""
    histogram: Counts
    """int64[K], of at least one report."""

    @cached_property
    def means(self) -> Floats:
        """E[g_i]."""
        return self._supported @ self._weights

    @cached_property
    def squares(self) -> Floats:
        """E[g_i^2]."""
        return self._supported**2 @ self._weights

    def with_sums(self, functionals: Floats) -> Floats:
        """Return E[g_i g_f]."""
        return np.asarray((functionals @ self._supported * self._weights) @ self._supported.T)

    def matrix(self, shares: Floats) -> Floats:
        """Return E[g_i g_j] over the points that answers of these shares are expected to be reported as.

        Within a cell its symbols are held equally often. For tables of which all points are looked at.
        """
        inside = points(self.geometry[0], self.geometry[1] - 1)
        p, outside = float(self.mechanism.p), len(self.histogram) - inside
        on = (shares / np.bincount(self.cells, minlength=self.size)) @ self._supported
        expected = on * p / inside + (shares.sum() - on) * (1 - p) / outside
        return np.asarray((self._supported * expected) @ self._supported.T)

    @cached_property
    def _points(self) -> Counts:
        """The points that are looked at: all of them, or those of some reports."""
        most = max(POINTS_MIN, ENTRIES_MAX // len(self.cells))
        if most >= len(self.histogram):
            return np.arange(len(self.histogram))
        upto = np.cumsum(self.histogram)
        return np.asarray(np.searchsorted(upto, (np.arange(most) + 0.5) / most * upto[-1]))

    @property
    def _weights(self) -> Floats:
        """How large a part of the reports each of them stands for."""
        if len(self._points) < len(self.histogram):
            return np.full(len(self._points), 1 / len(self._points))
        return np.asarray(self.histogram / self.histogram.sum())

    @cached_property
    def _supported(self) -> Floats:
        """How many symbols of each cell each point supports, float64[m, points]."""
        supported = np.zeros((self.size, len(self._points)))
        step = max(1, ENTRIES_MAX // len(self._points))
        for first in range(0, len(self.cells), step):
            values = np.arange(first, min(first + step, len(self.cells)))
            folding = csr_array((np.ones(len(values)), (self.cells[values], values - first)), (self.size, len(values)))
            supported += folding @ lies_on(*self.geometry, values, self._points).astype(np.float64)
        return supported
