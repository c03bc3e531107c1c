"""The column for looking at: shares of the candidates that anybody seems to have, none below zero. It is biased."""

import numpy as np
from scipy.sparse import csr_array

from dither_aggregator.analysis.decoding.equations import TINY, Equations, Ints
from dither_aggregator.analysis.decoding.fitting import Found
from dither_aggregator.analysis.decoding.least_squares import gram_of, least_squares
from dither_aggregator.analysis.inference import Floats

SELECTED_MAX = 500
"""The most candidates that have a proportion."""
GRID, ITERATIONS = 60, 200
"""Points, and steps, of the fit of the shares' prior."""


def selected_shares(equations: Equations, found: Found) -> Floats:
    """Return the shares of the candidates that anybody seems to have, float64[G]: none below zero, at most 1 in all.

    Half way between two answers, each better somewhere. One takes candidates alone: the median of what a candidate's
    share may be, given its estimate and how the shares of all of them are spread. A candidate is not selected if that
    is zero. The other fits the selected ones together, with the unlisted column and none below zero. If one of them is
    far off, the other pulls it back: over the benchmark's cases neither alone does as well.
    """
    estimate, error, determined = found.estimate, found.std_error, found.determined
    alone = np.zeros(len(estimate))
    usable = determined & (error < 1)
    if usable.any():
        alone[usable] = _medians(estimate[usable], error[usable])
    order = np.argsort(-estimate / error, kind="stable")[: min(SELECTED_MAX, len(equations.share) // 2)]
    selected = np.sort(order[alone[order] > 0])
    kept = np.zeros(len(estimate))
    kept[selected] = alone[selected]
    return (_at_most_one(kept) + _at_most_one(_constrained(equations, selected))) / 2


def _medians(estimate: Floats, error: Floats) -> Floats:
    """Return for each of G estimates the median of its share's posterior, under the prior that explains them all best.

    The prior lies on zero, on a grid and on the largest estimates, so that none of those is moved to its neighbour on
    the grid. It is the one that makes the estimates likeliest, found by expectation maximisation.
    """
    typical = float(np.median(error))
    grid = np.geomspace(typical / 5, max(float(estimate.max()), typical), GRID)
    grid = np.unique(np.concatenate([[0.0], grid, np.maximum(np.sort(estimate)[-GRID:], 0.0)]))
    fit = -(((estimate[:, np.newaxis] - grid) / error[:, np.newaxis]) ** 2) / 2
    likelihood = np.exp(fit - fit.max(axis=1, keepdims=True))
    prior = np.append(0.5, np.full(len(grid) - 1, 0.5 / (len(grid) - 1)))
    for _ in range(ITERATIONS):
        prior *= (1 / (likelihood @ prior)) @ likelihood / len(estimate)
    below = np.cumsum(likelihood * prior, axis=1)
    medians: Floats = grid[(below < below[:, -1:] / 2).sum(axis=1)]
    return medians


def _constrained(equations: Equations, chosen: Ints) -> Floats:
    """Fit the chosen candidates and the unlisted column, with nothing below zero: float64[G], zero for the others."""
    from scipy.optimize import nnls  # late: a process that answers something else need not wait for it

    shares = np.zeros(equations.patterns.shape[0])
    gram = gram_of(csr_array(equations.patterns[chosen]), equations.weight, equations.unlisted)
    # A triangle in place of all rows: the same minimum, in far less time. The ridge is for columns that depend.
    triangle = np.linalg.cholesky(gram + TINY * gram.max() * np.eye(len(gram))).T
    shares[chosen] = nnls(triangle, triangle @ least_squares(equations, chosen).coefficients)[0][:-1]
    return shares


def _at_most_one(shares: Floats) -> Floats:
    return shares / max(1.0, float(shares.sum()))
