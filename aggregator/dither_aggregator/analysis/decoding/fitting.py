"""Estimates of all candidates with their errors, and of few candidates by one fit."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from dither_aggregator.analysis.decoding.equations import TINY, Equations, Mask
from dither_aggregator.analysis.decoding.least_squares import least_squares
from dither_aggregator.analysis.decoding.strangers import stranger_chances
from dither_aggregator.analysis.functional import answers_variance
from dither_aggregator.analysis.inference import Floats, Z

FREEDOM_MAX = 1e6
"""A t law with more is normal."""


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
    cohorts: int
    strangers: Floats
    """How often a string that nobody has gets as much as each candidate, float64[G]."""
    split: bool = False

    @property
    def scale2(self) -> float:
        """By how much the residuals' variance is larger than that of the noise: 1 at least."""
        return max(1.0, self.chi_square / self.degrees_of_freedom) if self.degrees_of_freedom > 0 else 1.0

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the t law that estimates have.

        Noise is normal. The error from strings outside the list is not, with few cohorts: it is one draw of the hash in
        each, and a string that many have may lie in a candidate's bits. So only the noise's part of the variance is
        known for certain, and the other has as many degrees as cohorts less one (Satterthwaite 1946; Welch 1947).
        """
        added = 1 - 1 / self.scale2
        return min(max(self.cohorts - 1, 1) / added**2, FREEDOM_MAX) if added else FREEDOM_MAX

    @property
    def chances(self) -> Floats:
        """The p-values of all candidates, float64[G]: the larger of the t law's and the strangers'."""
        return chances(self.estimate / self.std_error, self.freedom, self.strangers)

    @property
    def unlisted_interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of what is in none of the candidates."""
        return self.unlisted - Z * self.unlisted_error, self.unlisted + Z * self.unlisted_error


def chances(scores: Floats, freedom: float, strangers: Floats) -> Floats:
    """Return how rarely nobody's strings are so many standard errors above zero, float64[G]: at most so."""
    return np.asarray(np.maximum(stdtr(freedom, -scores), strangers))


def know_nothing(candidates: int) -> Found:
    """Return what is found where there is no report."""
    unknown = np.zeros(candidates + 1)
    return settle(unknown, unknown, unknown > 0, 0.0, 0, common=0.0, cohorts=0, strangers=np.ones(candidates))


def infer_whole(equations: Equations) -> Found:
    """Fit all candidates at once."""
    fit = least_squares(equations, np.arange(equations.patterns.shape[0]))
    variance = fit.scale**2 * fit.variances
    gains = (equations.weight * fit.residual).reshape(equations.cohorts, -1)
    totals = fit.coefficients[:-1] / np.maximum(fit.variances[:-1], TINY**2)
    return settle(
        fit.coefficients,
        variance,
        fit.determined,
        fit.chi_square,
        fit.degrees_of_freedom,
        common=equations.common,
        cohorts=equations.cohorts,
        strangers=stranger_chances(gains, equations.channel.h, totals),
    )


def settle(
    coefficients: Floats,
    variance: Floats,
    determined: Mask,
    chi_square: float,
    freedom: int,
    *,
    common: float,
    cohorts: int,
    strangers: Floats,
    split: bool = False,
) -> Found:
    """Complete the variances, and call an estimate nothing, 0 with a standard error of 1, where that is what is known.

    How many of a cohort's reports hold a string is by chance, f (1 - f) / N, and all h bits of it share that chance:
    equations that are taken as independent average it out over h bits, so the rest of it is added.
    """
    error = np.sqrt(np.maximum(variance, 0.0) + common * answers_variance(coefficients))
    known = determined & (error < 1)
    estimate, error = np.where(known, coefficients, 0.0), np.where(known, error, 1.0)
    unlisted = float(estimate[-1]), float(error[-1])
    return Found(estimate[:-1], error[:-1], known[:-1], *unlisted, chi_square, freedom, cohorts, strangers, split)
