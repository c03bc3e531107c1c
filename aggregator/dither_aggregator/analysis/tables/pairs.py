"""The measured pairs of columns: raw, unbiased shares, of which a synthesis is made.

If a device reports one pair, drawn publicly and uniformly, each pair has its own reports and its own noise. If it
reports all columns at once, every pair is read from the same reports. The variance of a cell is that of the design, and
of the devices as a sample of all (`questions.CellTable`). Covariances between cells are left out. For GRR of few cells
they are not small.

All pairs with a column measure its shares. The pair v = (a, b) measures column a by its row sums. With s_b values of
b, and Var_v the mean variance of the pair's cells, a row sum has a variance of about s_b Var_v. If each pair has
reports of its own, the mean of their row sums with weights 1 / (s_b Var_v) has about the least variance. These
variances weigh pairs and bound a synthesis: no interval is made of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, chain
from math import prod, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dither_aggregator.analysis.functional import (
    CellLaw,
    Functionals,
    PairedCells,
    PointCells,
    Sums,
    answers_covariance,
    answers_variance,
    raw_shares,
    variance_at,
)
from dither_aggregator.analysis.inference import NORMAL_MIN, NORMAL_SKEWED, ErrorOf, Floats, Z, effective, reach
from dither_aggregator.counting import Counts, places_of_points, support_counts
from dither_shared.errors import DitherError
from dither_shared.mechanisms import PureMechanism
from dither_shared.mechanisms.pgr import points

# The reports of one question, folded to the table of some of its columns: raw shares with their exact covariance.


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
        return raw_shares(self.mechanism, support_counts(self.mechanism, self.counts, self.n), self.n)


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
        """How much a variance grows with the share of a cell, beside (1 - 2 share) of it: see `inference`.

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


SURE = 3.0
"""Standard errors above zero that the share of devices with something to say must be."""


class TooFew(DitherError):
    """Reports that are too few to make records of."""


@dataclass(frozen=True)
class PairTable:
    """The raw shares of the cells of two columns, each with its variance."""

    columns: tuple[int, int]
    """Their places among the columns, the lower one first."""
    shares: Floats
    """float64[A, B], unbiased: they may be negative, and need not sum to one."""
    variance: Floats
    """float64[A, B], each above zero: the noise, and that the pair's devices are a sample of all."""

    def __post_init__(self) -> None:
        first, second = self.columns
        if not 0 <= first < second:
            raise ValueError(f"columns must be two different ones in order, got {self.columns}")
        if self.shares.ndim != 2 or not np.isfinite(self.shares).all():
            raise ValueError(f"shares must be finite and two-dimensional, got {self.shares.ndim} dimensions")
        if self.variance.shape != self.shares.shape:
            raise ValueError(f"variance must have the shape {self.shares.shape}, got {self.variance.shape}")
        if not ((self.variance > 0) & np.isfinite(self.variance)).all():
            raise ValueError(f"variances must be finite and above zero, got {self.variance.min()} as the least")


def pair_table(question: QuestionTally, pair: tuple[int, int]) -> PairTable:
    """Return the raw table of two of its columns, of the devices that have something to say.

    Raises TooFew where presence is hidden and their share is not SURE standard errors above zero.
    """
    table = question.table(pair)
    cells = table.size - question.hidden
    shares, variance = table.shares[:cells], table.variances[:cells]
    if question.hidden:
        spoken = 1 - float(table.shares[-1])
        if spoken <= SURE * float(np.sqrt(table.variances[-1])):
            raise TooFew("too few of these reports say anything")
        shares, variance = shares / spoken, variance / spoken**2
    return PairTable(pair, _shaped(shares, table.shape), _shaped(variance, table.shape))


def _shaped(cells: Floats, shape: tuple[int, ...]) -> Floats:
    return np.asarray(cells.reshape(shape), dtype=np.float64)


def sizes_of(pairs: tuple[PairTable, ...]) -> tuple[int, ...]:
    """Return how many values each column has; raise ValueError where pairs disagree, repeat or leave out a column."""
    sizes: dict[int, int] = {}
    for column, size in chain.from_iterable(zip(pair.columns, pair.shares.shape, strict=True) for pair in pairs):
        if sizes.setdefault(column, size) != size:
            raise ValueError(f"column {column} must have one size in all pairs, got {sizes[column]} and {size}")
    if len({pair.columns for pair in pairs}) != len(pairs):
        raise ValueError("each pair of columns must come once")
    if sorted(sizes) != list(range(len(sizes))) or not sizes:
        raise ValueError(f"pairs must hold the columns 0, 1, 2 and so on, got {sorted(sizes)}")
    return tuple(sizes[column] for column in range(len(sizes)))


def combined_margin(pairs: tuple[PairTable, ...], column: int) -> tuple[Floats, float]:
    """Return a column's raw shares, float64[A], and about the variance of one, if pairs have reports of their own."""
    held = [(pair, 1 - pair.columns.index(column)) for pair in pairs if column in pair.columns]
    variances = [pair.shares.shape[other] * float(pair.variance.mean()) for pair, other in held]
    weights = precision_weights(variances)
    shares = np.asarray(weights @ [pair.shares.sum(axis=other) for pair, other in held], dtype=np.float64)
    return shares, float(weights**2 @ variances)


def precision_weights(variances: Sequence[float]) -> Floats:
    """Return the weights of a mean of so noisy measurements, float64: the inverse variances, with sum one."""
    precisions = 1 / np.array(variances)
    return np.asarray(precisions / precisions.sum())


def norm_sub(raw: Floats) -> Floats:
    """Return the nearest shares that are not negative and sum to one: the nearest point of the simplex.

    It subtracts one number from all and cuts at zero (Wang et al. 2020).
    """
    ordered = -np.sort(-raw, axis=None)
    levels = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    shares: Floats = np.maximum(raw - levels[ordered > levels][-1], 0.0)
    return shares


# Weighted sums of the cells of a table, over all of its questions, and the law of their errors.
#
# Weights are float64[1 + symbols of all questions]: a number alone, then one for each symbol of each question.
# Questions have reports of their own, so that their noise is independent, and the variance of a sum is the sum of
# theirs (each by `functional.Functionals`). It is a bound if devices report r times, to questions drawn anew. With
# k_q(x) the weight of an answer in one of m questions, the answers add (r - 1) / n times the variance of the sum of all
# k_q, which is at most m times the sum of their variances.
#
# A condition on some columns is told by each question that asks for all of them. They are added with weights that are
# the inverse of the planned variance, at even shares: weights made of the counts would know which of them came out low.


Columned = Mapping[int, Floats]
"""By column, a number for each of its symbols: a cell has their product."""


@dataclass(frozen=True)
class CellSums(Sums):
    """All weighted sums of a table's cells."""

    questions: Sequence[QuestionTally]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", sum(question.n for question in self.questions))

    @cached_property
    def _each(self) -> Sequence[Functionals]:
        return [Functionals(each.mechanism, each.counts, each.n, each.repeats) for each in self.questions]

    @cached_property
    def _ends(self) -> Sequence[int]:
        return list(accumulate((each.mechanism.d for each in self.questions), initial=1))

    @cached_property
    def shares(self) -> Floats:
        """One, and the raw share of each symbol of each question."""
        return np.concatenate([[1.0], *(question.raw for question in self.questions)])

    def blocks(self, weights: Floats) -> Sequence[Floats]:
        """Return the weights of each question's symbols."""
        return [weights[first:last] for first, last in zip(self._ends, self._ends[1:], strict=False)]

    # Weights.

    def asking(self, columns: Sequence[int]) -> Sequence[int]:
        """Return the places of the questions that ask for all of some columns."""
        return [at for at, question in enumerate(self.questions) if set(columns) <= set(question.columns)]

    def of(self, condition: Columned, beside: Sequence[int] = ()) -> Floats | None:
        """Return the weights of a condition, by the questions that ask for its columns and some beside them.

        Without a column they are those of everybody with something to say. None where no question asks for all.
        """
        asking = self.asking([*condition, *beside])
        if not condition and not beside:
            return self.everybody
        return self._added({at: self._of_question(at, condition) for at in asking}) if asking else None

    @cached_property
    def everybody(self) -> Floats:
        """The weights of all who have something to say: one, less those who have nothing."""
        hidden = [at for at, question in enumerate(self.questions) if question.hidden]
        weights = self._added({at: self._of_none(at) for at in hidden})
        weights[0] = 1.0
        return weights

    def _of_question(self, at: int, condition: Columned) -> Floats:
        question = self.questions[at]
        sides = [
            np.asarray(condition.get(column, np.ones(size)), dtype=np.float64)
            for column, size in zip(question.columns, question.shape, strict=True)
        ]
        return self._of_cells(at, reduce(np.multiply.outer, sides).ravel())

    def of_cells(self, at: int, cells: npt.NDArray[Any]) -> Floats:
        """Return the weights of a question's cells, the last column fastest."""
        weights = np.zeros(self._ends[-1])
        weights[self._ends[at] : self._ends[at + 1]] = self._of_cells(at, cells)
        return weights

    def _of_cells(self, at: int, cells: npt.NDArray[Any]) -> Floats:
        question = self.questions[at]
        table = question.table(question.columns)
        return np.append(cells, np.zeros(int(question.hidden)))[table.cells].astype(np.float64)

    def _of_none(self, at: int) -> Floats:
        weights = np.zeros(self.questions[at].mechanism.d)
        weights[-1] = -1.0
        return weights

    def _added(self, of_questions: Mapping[int, Floats]) -> Floats:
        """Return the same weights of several questions, as they are pooled."""
        added = np.zeros(self._ends[-1])
        if not of_questions:
            return added
        planned = []
        for at, weights in of_questions.items():
            d = self.questions[at].mechanism.d
            even = variance_at(self.questions[at].mechanism, weights, np.full(d, 1 / d))
            planned.append((even if weights.any() else 1.0) / self.questions[at].n)
        for (at, weights), part in zip(of_questions.items(), precision_weights(planned).tolist(), strict=True):
            added[self._ends[at] : self._ends[at + 1]] += part * weights
        return added

    # The law of errors.

    def estimate(self, weights: Floats) -> float:
        """Return the sum: raw and unbiased."""
        return float(weights @ self.shares)

    def variance(self, weights: Floats, error_of: ErrorOf = "population") -> float:
        """Return its variance; at most, where devices report repeatedly."""
        return sum(each.variance(block, error_of) for each, block in self._held(weights))

    def interval(self, weights: Floats, alpha: float) -> tuple[float, float] | None:
        """Return the ends of its interval; None where devices may be too few to tell it.

        The interval of several questions reaches further for few reports, as far as one device may move the sum.
        """
        held = self._held(weights)
        if len(held) == 1:
            ((each, block),) = held
            ends, rest = each.interval(block, alpha), self.estimate(weights) - each.estimate(block)
            return ends and (ends[0] + rest, ends[1] + rest)
        estimate, repeats = self.estimate(weights), max(question.repeats for question, _ in held) if held else 1
        heaviest = np.zeros(2)
        for each, block in held:
            own = each.estimate(block)
            least, most = each.extremes(block)
            heaviest = np.maximum(heaviest, np.array([own - least, most - own]) * repeats / each.n)
        z, spread = -NormalDist().inv_cdf(alpha / 2), np.array(self.variance(weights))
        below, above = reach(spread, heaviest, self.n / repeats, z).tolist()
        return estimate - below, estimate + above

    def _held(self, weights: Floats) -> Sequence[tuple[Functionals, Floats]]:
        return [(each, block) for each, block in zip(self._each, self.blocks(weights), strict=True) if block.any()]

    def _covariances(self, one: Floats, other: Floats, error_of: ErrorOf) -> Floats:
        return np.array(
            [
                sum(
                    each.covariance(block, another, error_of)
                    for each, block, another in zip(self._each, self.blocks(one), self.blocks(other), strict=True)
                    if block.any() and another.any()
                )
            ]
        )

    def _is_normal(self, *each: Floats, alpha: float) -> bool:
        z = -NormalDist().inv_cdf(alpha / 2)
        return all(self._from_normal(weights) * (z / Z) ** 4 <= 1 for weights in each)

    def _from_normal(self, weights: Floats) -> float:
        """Return how far a sum is from a normal law, beside the farthest that intervals of 95 % bear.

        It is `inference.normal_from` of a sum of means: of the largest part 1 / n, and the squared skewness.
        """
        spread, cubed, least = 0.0, 0.0, 0.0
        for question, block in self._held(weights):
            once, devices = replace(question, repeats=1), effective(float(question.n), question.repeats, permanent=True)
            variance = once.variance(block) * question.n / devices
            spread += variance
            cubed += once.skewness(block) / sqrt(devices) * variance**1.5
            least = max(least, 1 / devices)
        if spread <= 0:  # a number alone is certain
            return 0.0
        return float(NORMAL_MIN * least + NORMAL_SKEWED * (cubed / spread**1.5) ** 2)
