"""Regressions and clusters of a table, of the noisy counts of its pairs of columns.

**Regressions** of a column's share on groups of other columns: linear by measured moments, logistic by Newton's steps.

Let z be 1 and, for each group, whether a device is in it, and y whether it has the outcome.

**Linear.** b^ = M^-1 m of the measured moments M = E[z z'] and m = E[z y], each a sum of cells of a pair of columns, or
of one. No residual is seen, for each moment has other devices. But

    b^ - b = M^-1 ((m^ - m) - (M^ - M) b)  + terms of second order

so each coefficient's error is that of one sum of cells: with a row r of M^-1 its weights are r_j (those of m_j, less
those of M_jk times b_k), and `CellSums` has its law. M is clearly positive where its least eigenvalue, u'M u, is 4
standard errors of that sum above zero; else nothing is told.

**Logistic.** P[y | z] = p(z) = 1 / (1 + exp(-b'z)), where one question asks for all columns. A step of Newton's

    b  <-  b + H^-1 g        g = sum over cells of f z (y - p(z))        H = sum of f p (1 - p) z z'

takes noisy sums of cells alone. Raw shares f may be negative; where H is not positive on the way, nothing is told.
b^ - b is H^-1 g of the error of f, a sum again. If pairs were asked, f is the fitted table (`synthesis`): that is a
model, and has no interval.

**Clusters** of a table's number columns: Lloyd's k-means on the fitted joint table, and how stable it is under noise.

A cell of all columns is a point, the middle of its ranges with its fitted weight (`synthesis`); open ranges lie at
their edge, and each column is scaled so that its outermost edges are 0 and 1. A step of Lloyd's asks for nothing but
noisy sums: the weight of the cells that are nearest to a centre, and the weighted sum of their places.

Starts are those of k-means++ (Arthur, Vassilvitskii 2007), each centre drawn by its squared distance from those before;
the best of STARTS is kept.

**Stability.** The table is drawn anew BOOTSTRAPS times: each question's cells from the normal law with the mechanism's
own covariance around the fitted table. Each is fitted and clustered in the same way, and its centres are matched with
the first ones. A clustering is told where in all but one of these at least SAME of the weight stays in its cluster. It
is a model of the pairs: the spread of centres is how far noise moves them, and no interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.pairs import CellSums, PairTable, QuestionTally
from dither_aggregator.analysis.tables.synthesis import Synthesis, synthesise
from dither_shared.domains import Buckets

CLEARLY = 4.0
"""Standard errors above zero that the least eigenvalue of the moments must be."""
APART = 1e-9
"""The least part of the largest eigenvalue that the least one must be: floats tell a smaller one from none no more."""
RIDGE = 1e-6
"""Is added to the moments of a fitted table, of which some group may have nothing left."""
STEPS_MAX = 50
NEAR = 1e-9
"""A step of Newton's that moves no coefficient further is the last one."""
FAR = 30.0
"""Log odds beyond which a coefficient has no end: the outcome is (nearly) decided by a group."""
INTERCEPT = "intercept"


@dataclass(frozen=True)
class Regressor:
    """A group of a column's values: a regressor, or the outcome."""

    name: str
    column: int
    has: Floats
    """1 for each symbol that is in it, else 0."""


@dataclass(frozen=True)
class Coefficient:
    """A coefficient, and the sum of cells that its error is."""

    name: str
    estimate: float
    weights: Floats | None = None
    """None of a fitted table, which has no interval."""


class NotTold(Exception):
    """A regression cannot be told; the message says why."""


@dataclass(frozen=True)
class StepSums:
    """The sums that a step asked for, by name."""

    step: str
    sums: Mapping[str, float]


@dataclass(frozen=True)
class Regression:
    """The coefficients, the first that of 1, and each noisy sum that was used."""

    coefficients: Sequence[Coefficient]
    queries: Sequence[StepSums] = field(repr=False)


def linear(sums: CellSums, outcome: Regressor, groups: Sequence[Regressor]) -> Regression:
    """Fit by measured moments. Raises NotTold, also for columns that no question asks for together."""
    named: list[Regressor | None] = [None, *groups]
    moments: dict[str, Floats] = {}

    def moment(one: Regressor | None, other: Regressor | None) -> Floats:
        held = [each for each in (one, other) if each is not None]
        condition = {each.column: np.prod([one.has for one in held if one.column == each.column], 0) for each in held}
        weights = sums.of(condition)
        if weights is None:
            raise NotTold(f"{held[0].name} and {held[1].name} were never asked together")
        moments[" and ".join(dict.fromkeys(each.name for each in held)) or "everybody"] = weights
        return weights

    upper = {(j, k): moment(one, other) for j, one in enumerate(named) for k, other in enumerate(named) if j <= k}
    squares = np.array([[upper[min(j, k), max(j, k)] for k in range(len(named))] for j in range(len(named))])
    along = np.array([moment(each, outcome) for each in named])
    measured, right = squares @ sums.shares, along @ sums.shares
    eigenvalues, vectors = np.linalg.eigh(measured)
    least = np.einsum("j,k,jks->s", vectors[:, 0], vectors[:, 0], squares)
    if eigenvalues[0] <= max(CLEARLY * sqrt(sums.variance(least)), APART * eigenvalues[-1]):
        of = _names(groups)[int(np.argmax(np.abs(vectors[1:, 0]))) + 1]
        raise NotTold(
            f"the moments of {len(groups)} groups are not clearly positive: noise may be all that tells {of} from the "
            "others. Ask for fewer groups, each of more devices"
        )
    inverse = np.linalg.inv(measured)
    fitted = inverse @ right
    errors = inverse @ (along - np.einsum("jks,k->js", squares, fitted))
    queries = [StepSums("moments", {name: sums.estimate(weights) for name, weights in moments.items()})]
    return _regression(groups, fitted, queries, errors)


def logistic(sums: CellSums, outcome: Regressor, groups: Sequence[Regressor]) -> Regression:
    """Fit by Newton's steps on the raw cells of the question that asks for all columns. Raises NotTold."""
    asking = sums.asking([each.column for each in (outcome, *groups)])
    if not asking:
        raise NotTold("these columns were never asked at once")
    question = sums.questions[asking[0]]
    held, of_cells = _combinations((outcome, *groups), question.columns, question.shape)
    weights = np.array([sums.of_cells(asking[0], of_cells == each) for each in range(len(held))])
    fitted, inverse, queries = _newton(weights @ sums.shares, held, groups, 0.0)
    design, outcomes = _design(held)
    residual = design * (outcomes - expit(design @ fitted))[:, np.newaxis]
    return _regression(groups, fitted, queries, inverse @ residual.T @ weights)


def logistic_of_fit(
    weights: Floats, columns: Sequence[int], outcome: Regressor, groups: Sequence[Regressor]
) -> Regression:
    """Fit to a fitted table of these columns, float64[sizes]. Raises NotTold."""
    held, of_cells = _combinations((outcome, *groups), columns, weights.shape)
    fitted, _, queries = _newton(
        np.asarray(np.bincount(of_cells, weights.ravel(), len(held)), np.float64), held, groups, RIDGE
    )
    return _regression(groups, fitted, queries)


def _regression(
    groups: Sequence[Regressor], fitted: Floats, queries: Sequence[StepSums], errors: Floats | None = None
) -> Regression:
    each = [None] * len(fitted) if errors is None else list(errors)
    return Regression(list(map(Coefficient, _names(groups), fitted.tolist(), each)), queries)


def _names(groups: Sequence[Regressor]) -> list[str]:
    return [INTERCEPT, *(group.name for group in groups)]


def _combinations(
    every: Sequence[Regressor], columns: Sequence[int], shape: Sequence[int]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
    """Return which combinations of outcome and groups there are, bool[C, 1 + groups], and that of each cell."""
    places = np.indices(shape).reshape(len(shape), -1)
    belongs = [each.has[places[columns.index(each.column)]] > 0 for each in every]
    held, of_cells = np.unique(np.array(belongs).T, axis=0, return_inverse=True)
    return held, of_cells.ravel()


def _design(held: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return z and y of each combination."""
    return np.column_stack([np.ones(len(held)), held[:, 1:]]), held[:, 0].astype(np.float64)


def _newton(
    shares: Floats, held: npt.NDArray[np.bool_], groups: Sequence[Regressor], ridge: float
) -> tuple[Floats, Floats, Sequence[StepSums]]:
    """Return the coefficients, the inverse of H there, and the sums of each step."""
    design, outcomes = _design(held)
    fitted, queries = np.zeros(design.shape[1]), list[StepSums]()
    for step in range(1, STEPS_MAX + 1):
        odds = expit(design @ fitted)
        slope = design.T @ (shares * (outcomes - odds)) - ridge * fitted
        bend = design.T @ (design * (shares * odds * (1 - odds))[:, np.newaxis]) + ridge * np.eye(len(fitted))
        queries.append(StepSums(f"step {step}", dict(zip(_names(groups), slope.tolist(), strict=True))))
        eigenvalues = np.linalg.eigvalsh(bend)
        if eigenvalues[0] <= max(0.0, APART * eigenvalues[-1]):
            raise NotTold("noise leaves these cells no fit: rare ones came out below zero. Ask for fewer groups")
        moved = np.linalg.solve(bend, slope)
        fitted = fitted + moved
        if np.abs(fitted).max() > FAR:
            raise NotTold("the outcome seems decided by a group, so that its coefficient has no end")
        if np.abs(moved).max() < NEAR:
            return fitted, np.asarray(np.linalg.inv(bend), np.float64), queries
    raise NotTold(f"{STEPS_MAX} steps did not come to an end")


# Clusters.


STARTS, CLUSTER_STEPS_MAX, CELLS_MAX = 10, 60, 3_000
BOOTSTRAPS, SAME = 20, 0.8
TABLE_MAX = 2_048
"""The most cells of one question whose covariance is drawn from."""
COLUMNS_MAX, K_MAX = 4, 12

Progress = Callable[[int, int], None]
"""Told after each fit: how many are done, of how many."""


@dataclass(frozen=True)
class Clustering:
    """Centres, as they were drawn from a fitted table."""

    centres: Floats
    """float64[k, columns], scaled."""
    shares: Floats
    """float64[k], of the weight: the largest first."""
    within: float
    """The weighted mean of squared distances to the nearest centre."""
    steps: Sequence[tuple[Floats, Floats]] = field(repr=False)
    """The weight and the sums of places of each cluster, step after step, from the best start."""


@dataclass(frozen=True)
class Clusters:
    """The clusters of some columns."""

    names: Sequence[str]
    found: Clustering
    scales: Sequence[tuple[float, float]]
    """The outermost edges of each column, in its unit."""
    spread: Floats
    """float64[k, columns], scaled: the standard deviation of each centre under noise."""
    same: Floats
    """float64[BOOTSTRAPS]: how much of the weight stayed in its cluster."""

    @property
    def is_stable(self) -> bool:
        """Whether noise leaves the clusters what they are."""
        return float(np.sort(self.same)[1]) >= SAME

    def in_unit(self, scaled: Floats, *, difference: bool = False) -> Floats:
        """Return places, float64[..., columns], in the columns' units."""
        low, high = np.array(self.scales).T
        return np.asarray(scaled * (high - low) + (0.0 if difference else low))

    @property
    def queries(self) -> Sequence[StepSums]:
        """The sums of each step."""
        asked = []
        for number, (weights, sums) in enumerate(self.found.steps, 1):
            named = {f"share of cluster {at}": float(weight) for at, weight in enumerate(weights, 1)}
            for at, row in enumerate(sums, 1):
                named |= {
                    f"sum of {name} in cluster {at}": float(each) for name, each in zip(self.names, row, strict=True)
                }
            asked.append(StepSums(f"step {number}", named))
        return asked


def clusters(
    names: Sequence[str],
    domains: Sequence[Buckets],
    questions: Sequence[QuestionTally],
    pairs: tuple[PairTable, ...],
    k: int,
    rng: np.random.Generator,
    progress: Progress = lambda done, of: None,
) -> Clusters:
    """Cluster the columns that `domains` are of, which pairs number from 0 on and the questions' columns are among.

    Raises NotTold where a question has too many cells to draw from.
    """
    from scipy.optimize import linear_sum_assignment  # late: a process that answers something else need not wait for it

    first = synthesise(pairs)
    places = [places_of(domain) for domain in domains]
    found = cluster(first.weights, places, k, rng)
    progress(1, BOOTSTRAPS + 1)
    laws = [_Law.of(question, pairs, first) for question in questions]
    moved, same = [], []
    for done in range(BOOTSTRAPS):
        again = synthesise(tuple(pair for law in laws for pair in law.draw(rng)))
        other = cluster(again.weights, places, k, rng)
        apart = ((found.centres[:, np.newaxis] - other.centres) ** 2).sum(axis=2)
        _, matched = linear_sum_assignment(apart)
        moved.append(other.centres[matched])
        same.append(_same(first.weights, places, found.centres, moved[-1]))
        progress(done + 2, BOOTSTRAPS + 1)
    scales = [(float(each.in_unit(each.edges[0])), float(each.in_unit(each.edges[-1]))) for each in domains]
    return Clusters(names, found, scales, np.std(moved, axis=0), np.array(same))


def cluster(weights: Floats, places: Sequence[Floats], k: int, rng: np.random.Generator) -> Clustering:
    """Return the best of several starts' centres of the heaviest cells."""
    points, heavy = _points(weights, places)
    return min((lloyd(points, heavy, k, rng) for _ in range(STARTS)), key=lambda found: found.within)


def places_of(domain: Buckets) -> Floats:
    """Return where each range lies, scaled: its middle, or the edge of an open one."""
    edges = np.array(domain.edges, dtype=np.float64)
    scaled = (edges - edges[0]) / (edges[-1] - edges[0])
    return np.array([0.0, *((low + high) / 2 for low, high in pairwise(scaled.tolist())), 1.0])


def _points(weights: Floats, places: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the places of the heaviest cells whose columns are all numbers, float64[cells, columns], and weights."""
    numbers = weights[tuple(slice(len(each)) for each in places)]
    points = np.stack([each.ravel() for each in np.meshgrid(*places, indexing="ij")], axis=1)
    heaviest = np.argsort(-numbers.ravel(), kind="stable")[:CELLS_MAX]
    heavy = numbers.ravel()[heaviest]
    return points[heaviest], heavy / heavy.sum()


def lloyd(points: Floats, weights: Floats, k: int, rng: np.random.Generator) -> Clustering:
    """Return the centres of one start, of points with weights of sum one."""
    centres = points[rng.choice(len(points), p=weights)][np.newaxis]
    while len(centres) < k:
        nearest = weights * apart(points, centres).min(axis=1)
        total = nearest.sum()
        centres = np.vstack([centres, points[rng.choice(len(points), p=nearest / total if total > 0 else weights)]])
    steps = []
    for _ in range(CLUSTER_STEPS_MAX):
        own = np.zeros((len(points), k))
        own[np.arange(len(points)), apart(points, centres).argmin(axis=1)] = weights
        held, sums = own.sum(axis=0), own.T @ points
        steps.append((held, sums))
        moved = np.where(held[:, np.newaxis] > 0, sums / np.maximum(held, 1e-300)[:, np.newaxis], centres)
        if np.allclose(moved, centres, atol=1e-12):
            break
        centres = moved
    order = np.argsort(-held, kind="stable")
    within = float(weights @ apart(points, centres).min(axis=1))
    return Clustering(centres[order], held[order], within, [(each[order], row[order]) for each, row in steps])


def apart(points: Floats, centres: Floats) -> Floats:
    """Return squared distances, float64[points, centres]."""
    squares = (points**2).sum(axis=1)[:, np.newaxis] - 2 * points @ centres.T + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(squares, 0.0))


def _same(weights: Floats, places: Sequence[Floats], one: Floats, other: Floats) -> float:
    """Return how much of the weight is nearest to the same centre of both."""
    points, heavy = _points(weights, places)
    alike = apart(points, one).argmin(axis=1) == apart(points, other).argmin(axis=1)
    return float(heavy @ alike)


@dataclass(frozen=True)
class _Law:
    """The normal law of one question's cells of the columns that are clustered, around a fitted table."""

    shape: tuple[int, ...]
    shares: Floats
    """The share of each cell of the fitted table. A hidden presence adds a last one, of devices with nothing to say."""
    root: Floats
    """Its rows times standard normal numbers have the mechanism's covariance."""
    pairs: Sequence[tuple[PairTable, tuple[int, int]]]
    """With the axes of each one's columns."""

    @classmethod
    def of(cls, question: QuestionTally, pairs: Sequence[PairTable], fit: Synthesis) -> "_Law":
        """Return it of a question whose columns are numbered as those of the fitted table."""
        own = [pair for pair in pairs if set(pair.columns) <= set(question.columns)]
        columns = sorted({column for pair in own for column in pair.columns})
        table = question.table(columns)
        if table.size > TABLE_MAX:
            raise NotTold(f"{table.size:,} cells are too many to say how stable clusters are: ask fewer ranges")
        rest = tuple(set(range(fit.weights.ndim)) - set(columns))
        spoken = 1.0 - (max(float(table.shares[-1]), 0.0) if question.hidden else 0.0)
        shares = np.append(fit.weights.sum(axis=rest).ravel() * spoken, [1 - spoken] * question.hidden)
        values, vectors = np.linalg.eigh(table.covariance(shares))
        axes = [(columns.index(pair.columns[0]), columns.index(pair.columns[1])) for pair in own]
        return cls(
            table.shape,
            shares,
            np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))),
            list(zip(own, axes, strict=True)),
        )

    def draw(self, rng: np.random.Generator) -> list[PairTable]:
        """Draw the pair tables anew."""
        drawn = self.shares + self.root @ rng.standard_normal(len(self.shares))
        size = int(np.prod(self.shape))
        cells = (drawn[:size] / max(1.0 - float(drawn[size:].sum()), 1e-9)).reshape(self.shape)
        others = [tuple(set(range(cells.ndim)) - set(axes)) for _, axes in self.pairs]
        return [replace(pair, shares=cells.sum(axis=rest)) for (pair, _), rest in zip(self.pairs, others, strict=True)]


def numbered(questions: Sequence[QuestionTally], columns: Sequence[int]) -> list[QuestionTally]:
    """Return the questions that ask for two of some columns or more, with these numbered from 0 on."""
    wanted = {column: at for at, column in enumerate(columns)}
    return [
        replace(each, columns=tuple(wanted.get(column, -1 - column) for column in each.columns))
        for each in questions
        if any(set(pair) <= wanted.keys() for pair in combinations(each.columns, 2))
    ]
