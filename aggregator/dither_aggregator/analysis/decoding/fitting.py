"""Estimates of all candidates with their errors: fitted at once or, where they are too many, by halves of cohorts."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from dither_aggregator.analysis.decoding.equations import Equations, Ints, Mask, reweighted
from dither_aggregator.analysis.decoding.least_squares import Fit, add_each, least_squares
from dither_aggregator.analysis.inference import Floats, Z

PICKED_MAX = 500
"""The most candidates that are picked from a long list, and that have a proportion."""
PICK_SCORE = 3.0
"""How many standard errors a candidate of a long list must stand out to be picked."""


@dataclass(frozen=True)
class Found:
    """Estimates of the G distinct candidates and of what is in none of them, with standard errors."""

    estimate: Floats
    std_error: Floats
    determined: Mask
    unlisted: float
    unlisted_error: float
    chi_square: float
    degrees_of_freedom: int
    split: bool = False

    @property
    def unlisted_interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of what is in none of the candidates."""
        return self.unlisted - Z * self.unlisted_error, self.unlisted + Z * self.unlisted_error


def know_nothing(candidates: int) -> Found:
    """Return what is found where there is no report."""
    unknown = np.zeros(candidates + 1)
    return _settle(unknown, unknown, unknown > 0, 0.0, 0, common=0.0)


def infer_whole(equations: Equations) -> Found:
    """Fit all candidates at once."""
    fit = least_squares(equations, np.arange(equations.patterns.shape[0]))
    variance = fit.scale**2 * fit.variances
    return _settle(
        fit.coefficients, variance, fit.determined, fit.chi_square, fit.degrees_of_freedom, common=equations.common
    )


def _settle(
    coefficients: Floats,
    variance: Floats,
    determined: Mask,
    chi_square: float,
    freedom: int,
    *,
    common: float,
    split: bool = False,
) -> Found:
    """Complete the variances, and call an estimate nothing, 0 with a standard error of 1, where that is what is known.

    How many of a cohort's reports hold a string is by chance, f (1 - f) / N, and all h bits of it share that chance:
    equations that are taken as independent average it out over h bits, so the rest of it is added.
    """
    share = np.clip(coefficients, 0.0, 1.0)
    error = np.sqrt(np.maximum(variance, 0.0) + common * share * (1 - share))
    known = determined & (error < 1)
    estimate, error = np.where(known, coefficients, 0.0), np.where(known, error, 1.0)
    unlisted = float(estimate[-1]), float(error[-1])
    return Found(estimate[:-1], error[:-1], known[:-1], *unlisted, chi_square, freedom, split)


def infer_split(equations: Equations) -> Found:
    """Fit on each half of the cohorts what the other half has picked, and average by reports."""
    odd = equations.cohort % 2 == 1
    halves = [(odd, ~odd), (~odd, odd)] if odd.any() else [(odd, ~odd)]
    total, variance, share = np.zeros((3, equations.patterns.shape[0] + 1))
    chi_square, freedom = 0.0, 0
    for picking, fitting in halves:
        half = equations.of(fitting)
        picked = pick(equations.of(picking)) if picking.any() else np.arange(0)
        half = reweighted(half, picked)
        fit = least_squares(half, picked)
        coefficients, variances, determined = estimate_all(half, fit)
        # A candidate that one half cannot tell has the other half's answer alone.
        part = np.where(determined, float(half.reports.sum()), 0.0)
        total, share = total + part * coefficients, share + part
        variance = variance + part**2 * variances
        chi_square, freedom = chi_square + fit.chi_square, freedom + fit.degrees_of_freedom
    known = share > 0
    share = np.where(known, share, 1.0)
    return _settle(total / share, variance / share**2, known, chi_square, freedom, common=equations.common, split=True)


def estimate_all(equations: Equations, fit: Fit) -> tuple[Floats, Floats, Mask]:
    """Return coefficient, variance and whether it is determined: of all candidates and, last, of unlisted strings.

    A candidate outside the fit has those of the fit with it added. The unlisted coefficient of the fit holds, beside
    what the list misses, the candidates outside the fit; what those are estimated to have is taken off it.
    """
    added, scale2 = add_each(equations, fit), fit.scale**2
    estimate, variance, determined = added.estimate.copy(), added.variance.copy(), added.determined.copy()
    estimate[fit.chosen] = fit.coefficients[:-1]
    variance[fit.chosen] = fit.variances[:-1]
    determined[fit.chosen] = fit.determined[:-1]
    share = np.where(added.determined, added.moved * added.variance, 0.0)
    along = share @ added.projection
    column = equations.patterns.T @ share - along[-1] * equations.unlisted
    column -= csr_array(equations.patterns[fit.chosen]).T @ along[:-1]
    unlisted = fit.coefficients[-1] - (column * equations.weight) @ fit.residual
    unlisted_variance = fit.variances[-1] + (equations.weight * column**2).sum()
    return (
        np.append(estimate, unlisted),
        scale2 * np.append(variance, unlisted_variance),
        np.append(determined, fit.determined[-1]),
    )


def pick(equations: Equations) -> Ints:
    """Return the candidates that stand out of the residual of those picked before, round by round.

    Their variance is taken as if only the unlisted column were in the fit: near enough for picking, and much faster.
    """
    weight, weights = equations.weight, equations.weight.sum()
    norm = equations.patterns @ weight
    left = norm * (1 - norm / weights)
    spread = np.sqrt(np.where(left > 1e-6 * norm, left, np.inf))
    limit = min(PICKED_MAX, len(weight) // 4)
    picked: Ints = np.arange(0)
    while True:
        fit = least_squares(equations, picked)
        scores = (equations.patterns @ (weight * fit.residual)) / (spread * fit.scale)
        scores[picked] = 0.0
        # At most as many as there are: the next round sees what these leave.
        room = min(limit - len(picked), max(5, len(picked)))
        best = np.argsort(-scores, kind="stable")[: max(room, 0)]
        new = best[scores[best] > PICK_SCORE]
        if not len(new):
            return picked[fit.scores > PICK_SCORE - 1]
        picked = np.sort(np.concatenate([picked, new]))
