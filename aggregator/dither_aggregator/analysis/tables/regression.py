"""Regressions of a column's share on groups of other columns: linear by measured moments, logistic by Newton's steps.

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
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.tables.pairs import CellSums

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
