"""Clusters of a table's number columns: Lloyd's k-means on the fitted joint table, and how stable it is under noise.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.pairs import PairTable, QuestionTally
from dither_aggregator.analysis.tables.regression import NotTold, StepSums
from dither_aggregator.analysis.tables.synthesis import Synthesis, synthesise
from dither_shared.domains import Buckets

STARTS, STEPS_MAX, CELLS_MAX = 10, 60, 3_000
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
    for _ in range(STEPS_MAX):
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
