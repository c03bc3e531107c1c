"""All statistics of one set of questions: those of a table's devices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from math import sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc, ndtr

from dither_aggregator.analysis.inference import SURE, SURE_TO_COMPARE, Floats, KnownRatio, Ratios, tell
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.rows import (
    Statistic,
    TableRow,
    TableVerdict,
    association_name,
    cell_name,
    difference_name,
    difference_verdict,
    holm,
    mean_name,
    rate_name,
    share_name,
)
from dither_aggregator.analysis.tables.pairs import CellTable, QuestionTally, norm_sub, precision_weights
from dither_shared.domains import Columns, Range
from dither_shared.domains.columns import HIGH

# The shares of one column's symbols, from all questions that ask for it.
#
# Each question has its own reports, so their noise is independent. They are added with weights that are the inverse of
# a question's mean variance, as it is planned: weights made of the counts would know which of them came out low.


@dataclass(frozen=True)
class Margin:
    """Raw shares of a column's B symbols, and the share of all who are asked about: those with something to say."""

    shares: Floats
    """float64[B]."""
    variances: Floats
    whole: float
    whole_variance: float
    covariances: Floats
    """The covariance of each share with the whole."""
    steepness: float
    third: Floats
    """The third cumulant of each share where nobody has it, float64[B]: that of as many rare counts."""
    third_slope: float
    """How much it grows with the share."""
    planned: float
    """The mean variance of shares, by the plan and the number of reports alone."""

    @property
    def ratios(self) -> Ratios:
        """The symbols' shares of the whole."""
        whole, spread = np.full_like(self.shares, self.whole), np.full_like(self.shares, self.whole_variance)
        return Ratios(self.shares, whole, self.variances, self.covariances, spread, self.steepness)


def margin(table: CellTable, among: npt.NDArray[np.bool_] | None = None) -> Margin:
    """Return what one question says of a column, which `table` is of; the whole may be some symbols, bool[B]."""
    (size,), shares = table.shape, table.shares
    whole, constant = table.everybody
    if among is not None:
        whole, constant = np.append(among.astype(np.float64), np.zeros(table.size - size)), 0.0
    (along,) = table.covariances(whole[np.newaxis]) if whole.any() else np.zeros((1, table.size))
    of_whole, spread = float(constant + whole @ shares), float(along @ whole)
    p, q, n = float(table.question.mechanism.p), float(table.question.mechanism.q), table.question.n
    sizes = np.bincount(table.cells, minlength=table.size)[:size].astype(np.float64)
    third = np.asarray(sizes * (q / (n**2 * (p - q) ** 3)), dtype=np.float64)
    return Margin(
        shares[:size],
        table.variances[:size],
        of_whole,
        spread,
        along[:size],
        table.steepness,
        third,
        1 / (n * (p - q)) ** 2,
        table.law.planned / n,
    )


def pooled(margins: Sequence[Margin]) -> Margin | None:
    """Return what questions say together of a column; None where there is no question."""
    if not margins:
        return None
    weights = precision_weights([each.planned for each in margins])

    def added(parts: Sequence[Floats | float], by: Floats) -> Floats:
        return np.asarray(by @ np.array(parts))

    return Margin(
        added([each.shares for each in margins], weights),
        added([each.variances for each in margins], weights**2),
        float(added([each.whole for each in margins], weights)),
        float(added([each.whole_variance for each in margins], weights**2)),
        added([each.covariances for each in margins], weights**2),
        float(added([each.steepness for each in margins], weights**2)),
        added([each.third for each in margins], weights**3),
        float(added([each.third_slope for each in margins], weights**3)),
        float(added([each.planned for each in margins], weights**2)),
    )


# For each group and outcome four shares with their covariance, of which rates, differences and tests are made.
#
#     CELL      of those with the group and the outcome
#     GROUP     of those with the group, whatever the outcome
#     OUTCOME   of those with the outcome, whatever the group
#     ALL       of those with something to say
#
# All four are sums of the cells of one pair of columns. So are their covariances: exact, by the mechanism's design.
# Devices that were asked other questions say the same of a group or an outcome, with independent noise. Least squares
# joins all their answers. With u the four, S their covariance, and c = H u + an error of variance V the share of
# the group, or of the outcome, in all other questions
#
#     u + K (c - H u)        S - K H S        K = S H' (H S H' + V)^-1
#
# If an outcome is one end of a range, to which coins round numbers, the group is of those with a number, and so are
# all: then other questions say nothing of a group.


CELL, GROUP, OUTCOME, ALL = range(4)


@dataclass(frozen=True)
class Fourfold:
    """The four shares of A groups and B outcomes."""

    shares: Floats
    """float64[A, B, 4], raw and unbiased."""
    covariance: Floats
    """float64[A, B, 4, 4]."""
    steepness: float

    def knowing(self, group: Margin | None, outcome: Margin | None) -> "Fourfold":
        """Return it joined with what other questions say of groups, float64[A], and of outcomes, float64[B]."""
        joined = self
        if group is not None:
            joined = joined._joined(GROUP, group.shares[:, np.newaxis], group.variances[:, np.newaxis])
        return joined._joined(OUTCOME, outcome.shares, outcome.variances) if outcome is not None else joined

    def _joined(self, at: int, shares: Floats, variances: Floats) -> "Fourfold":
        along = self.covariance[..., at]
        gain = along / (along[..., at] + variances)[..., np.newaxis]
        missed = shares - self.shares[..., at]
        return replace(
            self,
            shares=self.shares + gain * missed[..., np.newaxis],
            covariance=self.covariance - gain[..., :, np.newaxis] * along[..., np.newaxis, :],
        )

    @property
    def cells(self) -> Ratios:
        """The shares of those with both, float64[A, B]."""
        return self._ratios(np.array([1.0, 0, 0, 0]), np.array([0.0, 0, 0, 1]))

    @property
    def rates(self) -> Ratios:
        """The share of each group that has the outcome, float64[A, B]."""
        return self._ratios(np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 0, 0]))

    @property
    def others(self) -> Ratios:
        """The same of those who are not in the group."""
        return self._ratios(np.array([-1.0, 0, 1, 0]), np.array([0.0, -1, 0, 1]))

    def _ratios(self, part: Floats, whole: Floats) -> Ratios:
        return Ratios(
            self.shares @ part,
            self.shares @ whole,
            self.covariance @ part @ part,
            self.covariance @ part @ whole,
            self.covariance @ whole @ whole,
            self.steepness,
        )


def fourfold(table: CellTable) -> Fourfold:
    """Return the four shares of each group, the table's first column, and each outcome, its second."""
    return _fourfold(table, np.ones(table.shape[1]), np.arange(table.shape[1]), *table.everybody)


def fourfold_of_numbers(table: CellTable, high: int, numbers: npt.NDArray[np.bool_]) -> Fourfold:
    """Return the same of the outcome `high` alone, among those whose second column holds `numbers`, bool[B]."""
    everybody = np.zeros(table.size)
    everybody[: np.prod(table.shape)] = np.tile(numbers, table.shape[0])
    return _fourfold(table, numbers.astype(np.float64), np.array([high]), everybody, 0.0)


def _fourfold(
    table: CellTable, among: Floats, outcomes: npt.NDArray[np.intp], everybody: Floats, constant: float
) -> Fourfold:
    """Return it of groups among some symbols of the second column, float64[B], and of everybody, float64[size]."""
    (a, b), o = table.shape, len(outcomes)
    sums = np.zeros((a + o + 1, table.size))
    sums[:a, : a * b] = np.kron(np.eye(a), among)
    sums[a:-1, : a * b] = np.tile(np.eye(b)[outcomes], a)
    sums[-1] = everybody
    along = table.covariances(sums)
    own = np.arange(a)[:, np.newaxis] * b + outcomes
    at = np.stack(np.broadcast_arrays(np.arange(a)[:, np.newaxis], a + np.arange(o), a + o))  # of GROUP, OUTCOME, ALL
    shares, covariance = np.empty((4, a, o)), np.empty((4, 4, a, o))
    shares[CELL], shares[GROUP:] = table.shares[own], (sums @ table.shares)[at]
    shares[ALL] += constant
    covariance[CELL, CELL] = table.variances[own]
    covariance[CELL, GROUP:] = covariance[GROUP:, CELL] = along[at, own]
    covariance[GROUP:, GROUP:] = (along @ sums.T)[at[:, np.newaxis], at]
    return Fourfold(np.moveaxis(shares, 0, -1), np.moveaxis(covariance, (0, 1), (-2, -1)), table.steepness)


# Each group beside all others: differences of rates, and which of them are no noise.
#
# The difference of a group's rate from that of all others has an interval by Zou 2008 ("MOVER"). It goes as far from
# the difference as both rates' intervals reach from their estimates, squared and added, less what both have in common,
# for the noise of one report is in both. With d, l, u and e, m, v the rates and their ends, and c their correlation
#
#     lower = d - e - sqrt((d - l)^2 + (v - e)^2 - 2 c (d - l)(v - e))             upper likewise
#
# Whether there is a difference is tested without any division. With the four shares of `fourfold`
#
#     R = CELL ALL - GROUP OUTCOME
#
# is (GROUP)(ALL - GROUP) times the difference: zero but for noise where there is none, however few have the group. Its
# variance is by the delta method, and two noisy factors add Var Var + Cov^2 to it. A cell whose share came out low has
# too low a variance: the larger one counts of that at the estimate and that at R = 0. Verdicts are by Holm, over all
# groups and outcomes of two columns, those included of which nothing else is said: none is false with .95.


@dataclass(frozen=True)
class Differences:
    """Rates of groups less those of all others; arrays float64[A, B]."""

    known: npt.NDArray[np.bool_]
    """Whether both the group and all others are SURE_TO_COMPARE."""
    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats


def differences(shares: Fourfold, z: float) -> Differences:
    """Compare each group with all others."""
    ours, theirs = shares.rates, shares.others
    known = ours.surely(SURE_TO_COMPARE) & theirs.surely(SURE_TO_COMPARE)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, other = (np.where(known, each.estimate, 0.0) for each in (ours, theirs))
        errors = [np.where(known, each.std_error, 0.0) for each in (ours, theirs)]
        pulls = [_pulls(rate, ours.whole, (1.0, 0, 0, 0), (0.0, 1, 0, 0))]
        pulls.append(_pulls(other, theirs.whole, (-1.0, 0, 1, 0), (0.0, -1, 0, 1)))
        common = np.where(known, np.einsum("abi,abij,abj->ab", pulls[0], shares.covariance, pulls[1]), 0.0)
    correlation = np.clip(common / np.maximum(errors[0] * errors[1], 1e-300), -1.0, 1.0)
    (lower, upper), (low, high) = ours.ends(z), theirs.ends(z)

    def reach(own: Floats, across: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(own**2 + across**2 - 2 * correlation * own * across, 0.0)))

    moved = rate - other
    return Differences(
        known,
        moved,
        np.sqrt(np.maximum(errors[0] ** 2 + errors[1] ** 2 - 2 * common, 0.0)),
        moved - reach(rate - lower, high - other),
        moved + reach(upper - rate, other - low),
    )


def _pulls(ratio: Floats, whole: Floats, part: tuple[float, ...], of: tuple[float, ...]) -> Floats:
    """Return how a ratio of sums of the four shares moves with each of these, float64[A, B, 4]."""
    clipped = np.clip(ratio, 0.0, 1.0)[..., np.newaxis]
    return np.asarray((np.array(part) - clipped * np.array(of)) / whole[..., np.newaxis])


def chances(shares: Fourfold) -> Floats:
    """Return two-sided p-values of R, float64[A, B]: small where a group's rate differs from all others'."""
    value, variance = residuals(shares)
    return np.asarray(2 * ndtr(-np.abs(value) / np.sqrt(np.maximum(variance, 1e-300))))


def residuals(shares: Fourfold) -> tuple[Floats, Floats]:
    """Return R and the larger of its two variances, float64[A, B] each."""
    cell, group, outcome, everybody = (shares.shares[..., at] for at in (CELL, GROUP, OUTCOME, ALL))
    covariance = shares.covariance
    value = cell * everybody - group * outcome
    slopes = np.stack([everybody, -outcome, -group, cell], axis=-1)
    variance = np.einsum("abi,abij,abj->ab", slopes, covariance, slopes)
    variance += covariance[..., GROUP, GROUP] * covariance[..., OUTCOME, OUTCOME] + covariance[..., GROUP, OUTCOME] ** 2
    at_none = -shares.steepness * (everybody - 2 * group) * (1 - 2 * outcome / everybody) * value
    return value, np.asarray(variance + np.maximum(at_none, 0.0))


# Whether two columns go together at all: a test of independence, and Cramer's V as a size.
#
# With t the share of those with something to say, all cells of two columns have a residual
#
#     R_ab = m_ab t - m_a. m_.b                    zero but for noise where the columns are independent
#
# The test adds up all R_ab^2 over their variances. Were the columns independent, cells would be the products of the
# one-way shares (after Norm-Sub). At these the exact covariance of all cells is known, thus that of residuals, by the
# delta method and with what products of two errors add: for groups a, c and outcomes b, d
#
#     Cov[e_a e_b, e_c e_d] = Cov[e_a, e_c] Cov[e_b, e_d] + Cov[e_a, e_d] Cov[e_b, e_c]
#
# So the sum is one of squares of normal variables with weights, the eigenvalues of S, the covariance of the residuals
# in standard errors. Its cumulants are 2^(r-1) (r-1)! tr S^r, and a gamma law with the first three of them gives the
# p-value (Hall 1983, Buckley and Eagleson 1988). Support counts of a mean c are Poisson's rather than normal: each adds
# 1 / c to the second and 22 / c + 1 / c^2 to the third cumulant (Haldane 1937).
#
# Cramer's V is sqrt(phi^2 / (k - 1)), with phi^2 the sum of R_ab^2 / (t^2 m_a. m_.b) and k the smaller number of
# symbols: 0 where one column tells nothing of the other, 1 where it tells it all. The mean that noise adds to phi^2 is
# taken off, so that it does not grow with the number of cells (as Bergsma 2013 does for samples); a result below zero
# is zero. Its interval is of a sum of squares with the variance 2 tr S^2 + 4 s phi^2, s the mean of S along the
# residuals. It is of symbols whose one-way shares are told (`inference.SURE`): one over a share near zero is mostly
# noise.


Places = npt.NDArray[np.intp]
ASSOCIATION_CELLS_MAX = 1_024
"""The covariance of a question with more symbols takes too long."""


@dataclass(frozen=True)
class Association:
    """The association of two columns."""

    p_value: float
    size: float
    """Cramer's V."""
    lower: float
    upper: float
    sure: bool
    """Whether the interval by which verdicts are given lies above zero."""


def association(table: CellTable, z: float, judging: float = 0.0) -> Association | None:
    """Test two columns, with the interval at z; a verdict is given by the wider one of z and `judging`.

    None where there are too many symbols, or fewer than two symbols of a column are told.
    """
    if table.question.mechanism.d > ASSOCIATION_CELLS_MAX:
        return None
    own = _Residuals(table, table.shares)
    places = [_known_places(own, axis) for axis in (0, 1)]
    if min(len(each) for each in places) < 2:
        return None
    _, least, _ = _size(own, places, max(z, judging))
    return Association(_chance(table, own.unbiased), *_size(own, places, z), sure=least > 0)


def _chance(table: CellTable, residuals: Floats) -> float:
    """Return the p-value of residuals, float64[A, B]."""
    independent = _independent(table)
    law = _Residuals(table, independent)
    spread = np.maximum(np.diag(law.covariance), 1e-300)
    scaled = law.covariance / np.sqrt(np.outer(spread, spread))
    squared = scaled @ scaled
    p, q = float(table.question.mechanism.p), float(table.question.mechanism.q)
    sizes = np.bincount(table.cells, minlength=table.size)
    rare = 1 / (table.question.n * (sizes * q + independent * (p - q)))[: residuals.size]
    total = float((residuals.ravel() ** 2 / spread).sum())
    second = 2 * float(np.trace(squared)) + float(rare.sum())
    third = 8 * float((squared * scaled).sum()) + float((22 * rare + rare**2).sum())
    freedom = 8 * second**3 / third**2
    return float(gammaincc(freedom / 2, max((total - residuals.size) * sqrt(2 * freedom / second) + freedom, 0.0) / 2))


def _independent(table: CellTable) -> Floats:
    """Return the shares of cells with the table's one-way shares and no association, float64[size]."""
    cells = table.shares[: table.size - table.question.hidden].reshape(table.shape)
    rest = np.clip(table.shares[cells.size :], 0.0, 1.0)
    one, other = (norm_sub(cells.sum(axis=axis) / max(cells.sum(), 1e-12)) for axis in (1, 0))
    return np.append((1 - rest.sum()) * np.outer(one, other).ravel(), rest)


def _known_places(own: "_Residuals", axis: int) -> Places:
    """Return the places of the symbols of a column whose shares are told."""
    shares, spread = own.one_way[axis], np.diag(own.one_way_covariance[axis])
    return np.flatnonzero((shares > 0) & (shares**2 >= SURE**2 * spread))


def _size(own: "_Residuals", places: list[Places], z: float) -> tuple[float, float, float]:
    """Return Cramer's V and the ends of its interval."""
    rows, columns = places
    weights = np.zeros(own.value.shape)
    weights[np.ix_(rows, columns)] = 1 / (own.whole**2 * np.outer(own.one_way[0][rows], own.one_way[1][columns]))
    root = np.sqrt(weights.ravel())
    scaled, value = own.covariance * np.outer(root, root), own.unbiased.ravel() * root
    squares = float(value @ value)
    phi = squares - float(np.trace(scaled))
    along = max(float(value @ scaled @ value) / max(squares, 1e-300), 0.0)
    middle = phi + 2 * z**2 * along
    reach = sqrt(max(middle**2 - phi**2 + 2 * z**2 * float((scaled**2).sum()), 0.0))
    most = min(len(rows), len(columns)) - 1
    size, lower, upper = (min(sqrt(max(each, 0.0) / most), 1.0) for each in (phi, middle - reach, middle + reach))
    return size, min(lower, size), upper


class _Residuals:
    """R of a table, and its law where the true shares of cells are `shares`."""

    def __init__(self, table: CellTable, shares: Floats) -> None:
        self.shape = table.shape
        self._cells = table.size - table.question.hidden
        spread = table.covariance(shares)
        self.whole = 1 - float(shares[self._cells :].sum())
        self._table = shares[: self._cells].reshape(self.shape)
        self.one_way = self._table.sum(axis=1), self._table.sum(axis=0)
        self.value = self._table * self.whole - np.outer(*self.one_way)
        fourway = spread[: self._cells, : self._cells].reshape(*self.shape, *self.shape)
        groups, outcomes, across = (fourway.sum(axis=axes) for axes in ((1, 3), (0, 2), (1, 2)))
        self.one_way_covariance = groups, outcomes
        with_whole = -spread[: self._cells, self._cells :].sum(axis=1).reshape(self.shape)
        self.unbiased = self.value - with_whole + across
        products = np.einsum("ac,bd->abcd", groups, outcomes) + np.einsum("ad,cb->abcd", across, across)
        linear = self._moved(self._moved(spread).T)
        self.covariance = linear + products.reshape(self._cells, self._cells)

    def _moved(self, errors: Floats) -> Floats:
        """Return how residuals move with the cells, float64[size, any], to first order: float64[cells, any]."""
        by_cell = errors[: self._cells].reshape(*self.shape, -1)
        one, other = self.one_way
        moved = by_cell * self.whole
        moved = moved - other[:, np.newaxis] * by_cell.sum(axis=1, keepdims=True)
        moved = moved - one[:, np.newaxis, np.newaxis] * by_cell.sum(axis=0, keepdims=True)
        moved = moved - self._table[..., np.newaxis] * errors[self._cells :].sum(axis=0)
        return np.asarray(moved.reshape(self._cells, -1))


ALPHA = 0.05
"""At most so often there is a false verdict: among the groups of two columns, or among all associations."""
CAUTION = 1.25
"""P-values of associations are multiplied by this: their law is a close approximation, not a bound."""
CELLS_MAX = 4_096
"""Two columns with more cells together are told by themselves alone: more would take too long."""
NUMBERS = np.array([True, True, False])
"""Whether each symbol of a column that coins round is a number: its two ends are, and "other" is not."""


@dataclass(frozen=True)
class TableStatistics:
    """The rows of one set of questions."""

    domain: Columns
    questions: Sequence[QuestionTally]
    """Those with enough reports."""
    view: View
    provisional: bool

    def of_columns(self) -> Iterator[TableRow]:
        """Yield the share of each symbol of each column, and the mean of numbers that coins round."""
        for column, found in self._margins.items():
            every = pooled([each for _, each in found])
            if every is None:
                continue
            is_number = column in self._scales
            for ratio in every.ratios.tell(self._z(self._labels)):
                if not is_number:
                    yield self._share(column, ratio)
                elif ratio.place == (HIGH,):
                    name = self.domain.names[column]
                    yield TableRow(mean_name(name), *self._in_unit(column, ratio)[1:], "mean", name)

    def of_pairs(self) -> Iterator[TableRow]:
        """Yield what pairs of columns say: their association, their cells, and each one's rates by the other."""
        yield from self._associations()
        for question, a, b in self._pairs:
            yield from self._of_pair(question, a, b)

    def released(self) -> Iterator[TableRow]:
        """Yield the rows of a release: shares and means of columns, and the cells of each two columns."""
        yield from self.of_columns()
        for question, a, b in self._pairs:
            if a < b and not {a, b} & self._scales.keys():
                yield from self._cells(fourfold(question.table((a, b))), a, b)

    # The questions.

    @cached_property
    def _pairs(self) -> list[tuple[QuestionTally, int, int]]:
        """Each two columns that a question asks for together, in both orders."""
        sizes = [len(self.domain.labels(column)) for column in range(len(self.domain.names))]
        return [
            (question, a, b)
            for question in self.questions
            for a, b in permutations(question.columns, 2)
            if sizes[a] * sizes[b] <= CELLS_MAX
        ]

    @cached_property
    def _scales(self) -> dict[int, tuple[float, float]]:
        """The low end and the width of each range whose numbers coins round: the share of high ends is their mean."""
        scales = {}
        for column, domain in enumerate(self.domain.domains):
            if isinstance(domain, Range):
                low, high = (float(domain.in_unit(edge)) for edge in domain.edges)
                scales[column] = low, high - low
        return scales

    @cached_property
    def _margins(self) -> dict[int, list[tuple[QuestionTally, Margin]]]:
        """The margins of each column, by question: shares of those with an answer or, for a range, with a number."""
        return {
            column: [
                (question, margin(question.table((column,)), NUMBERS if column in self._scales else None))
                for question in self.questions
                if column in question.columns
            ]
            for column in range(len(self.domain.names))
        }

    def telling(self) -> dict[str, float]:
        """Return, by column, how many reports tell its shares: fewer than all, as some weigh more than others."""
        told = {}
        for column, found in self._margins.items():
            if every := pooled([each for _, each in found]):
                weights = precision_weights([float(each.variances.mean()) for _, each in found])
                spread = float(weights**2 @ [1 / question.n for question, _ in found])
                told[self.domain.names[column]] = max(every.whole, 0.0) / spread
        return told

    @cached_property
    def _elsewhere(self) -> dict[tuple[int, tuple[int, ...]], Margin | None]:
        """The margin of all other questions, by a column and the columns of the question that is left out."""
        return {
            (column, question.columns): pooled([found for asked, found in margins if asked is not question])
            for column, margins in self._margins.items()
            for question, _ in margins
        }

    @cached_property
    def _rates(self) -> int:
        """How many rates there may be, of all pairs in both orders."""
        sizes = [dict(zip(question.columns, question.shape, strict=True)) for question, _, _ in self._pairs]
        pairs = zip(sizes, self._pairs, strict=True)
        return sum(size[a] * size[b] for size, (_, a, b) in pairs if a not in self._scales)

    @cached_property
    def _labels(self) -> int:
        """How many symbols all columns have."""
        return sum(len(self.domain.labels(column)) for column in range(len(self.domain.names)))

    def _z(self, together: int) -> float:
        """Return the standard errors of an interval, one of so many: all of one statistic, whichever pair is shown."""
        return -NormalDist().inv_cdf(self.view.alpha(max(together, 1)) / 2)

    @property
    def alpha(self) -> float:
        """How often verdicts may be wrong, whichever intervals are shown."""
        return ALPHA / self.view.together

    def _judging_z(self, together: int) -> float:
        """Return that of the intervals by which verdicts are given: of all together, whichever are shown."""
        return max(self._z(together), -NormalDist().inv_cdf(self.alpha / max(together, 1) / 2))

    # Rows.

    @cached_property
    def _symbols(self) -> list[list[tuple[str, str]]]:
        """The label of each symbol of each column, and the name of its share."""
        return [
            [(label, share_name(name, label)) for label in self.domain.labels(column)]
            for column, name in enumerate(self.domain.names)
        ]

    def _share(self, column: int, ratio: KnownRatio) -> TableRow:
        label, share = self._symbols[column][ratio.place[0]]
        return TableRow(share, *ratio[1:], "share", self.domain.names[column], label)

    def _in_unit(self, column: int, ratio: KnownRatio, *, difference: bool = False) -> KnownRatio:
        """Return the share of high ends, or a difference of two, in a range's unit."""
        low, width = self._scales[column]
        first = 0.0 if difference else low
        estimate, lower, upper = (first + width * number for number in (ratio.estimate, ratio.lower, ratio.upper))
        return KnownRatio(ratio.place, estimate, width * ratio.std_error, lower, upper)

    @cached_property
    def _tested(self) -> list[tuple[int, int, Association, float, bool]]:
        """Each pair of columns: the two, their association, its p-value, and whether it is told."""
        pairs = [(question, a, b) for question, a, b in self._pairs if a < b]
        levels = self._z(len(pairs)), self._judging_z(len(pairs))
        found = [association(question.table((a, b)), *levels) for question, a, b in pairs]
        p_values = np.array([1.0 if each is None else min(1.0, CAUTION * each.p_value) for each in found])
        true = holm(p_values, self.alpha)
        return [
            (a, b, each, p_value, is_true and each.sure)
            for (_, a, b), each, p_value, is_true in zip(pairs, found, p_values.tolist(), true.tolist(), strict=True)
            if each is not None
        ]

    @cached_property
    def _associated(self) -> frozenset[tuple[int, int]]:
        """The pairs of columns that can be told to go together, in both orders."""
        return frozenset(pair for a, b, _, _, is_true in self._tested if is_true for pair in ((a, b), (b, a)))

    def _associations(self) -> Iterator[TableRow]:
        z = self._z(sum(a < b for _, a, b in self._pairs))
        for a, b, each, p_value, is_true in self._tested:
            one, other = self.domain.names[a], self.domain.names[b]
            numbers = (each.size, (each.upper - each.lower) / 2 / z, each.lower, each.upper)
            judged = self._judged("associated" if is_true else "cannot be told", p_value)
            yield TableRow(association_name(one, other), *numbers, "association", one, None, other, None, *judged)

    def _judged(self, verdict: TableVerdict, p_value: float) -> tuple[TableVerdict, float] | tuple[()]:
        """Return the end of a row: its verdict and p-value, if there may be any."""
        return () if self.provisional else (verdict, p_value)

    def _of_pair(self, question: QuestionTally, a: int, b: int) -> Iterator[TableRow]:
        """Yield what is told of the column b by groups of the column a. Coins are no groups."""
        if a in self._scales:
            return
        table = question.table((a, b))
        if b in self._scales:
            found = fourfold_of_numbers(table, HIGH, NUMBERS)
        else:
            own = fourfold(table)
            if a < b:
                yield from self._cells(own, a, b)
            found = own.knowing(self._elsewhere[a, question.columns], self._elsewhere[b, question.columns])
        rates = found.rates
        for ratio in rates.tell(self._z(self._rates)):
            yield self._by_group(a, b, ratio)
        yield from self._differences(found, a, b)

    def _cells(self, found: Fourfold, a: int, b: int) -> Iterator[TableRow]:
        cells = found.cells
        for ratio in cells.tell(self._z(self._rates)):
            (first, one), (second, other) = self._symbols[a][ratio.place[0]], self._symbols[b][ratio.place[1]]
            names = self.domain.names
            yield TableRow(cell_name(one, other), *ratio[1:], "cell", names[a], first, names[b], second)

    def _by_group(
        self, a: int, b: int, ratio: KnownRatio, judged: tuple[TableVerdict, float] | tuple[()] | None = None
    ) -> TableRow:
        """Return the row of a rate or mean of a group, or of its difference from all others', which is judged."""
        (group, share), column, name = self._symbols[a][ratio.place[0]], self.domain.names[a], self.domain.names[b]
        what: str
        label: str | None
        if b in self._scales:
            what, label, ratio = mean_name(name), None, self._in_unit(b, ratio, difference=judged is not None)
        else:
            label, what = self._symbols[b][ratio.place[1]]
        of_group = rate_name(what, share)
        if judged is not None:
            return TableRow(difference_name(of_group), *ratio[1:], "difference", name, label, column, group, *judged)
        statistic: Statistic = "mean" if label is None else "rate"
        return TableRow(of_group, *ratio[1:], statistic, name, label, column, group)

    def _differences(self, found: Fourfold, a: int, b: int) -> Iterator[TableRow]:
        p_values = chances(found)
        true = holm(p_values.ravel(), self.alpha).reshape(p_values.shape)
        against, judging = (differences(found, z(self._rates)) for z in (self._z, self._judging_z))
        for each in tell(against.known, against.estimate, against.std_error, against.lower, against.upper):
            # Readers look at the clearest pair: of many that are noise its groups would often seem to differ.
            told = true[each.place] and (a, b) in self._associated
            verdict = difference_verdict(told, judging.lower[each.place], judging.upper[each.place])
            yield self._by_group(a, b, each, self._judged(verdict, float(p_values[each.place])))
