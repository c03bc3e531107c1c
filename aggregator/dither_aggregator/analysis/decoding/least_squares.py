"""Weighted least squares of shares on candidates and, last, the column of what is in none of them."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.sparse import csr_array

from dither_aggregator.analysis.decoding.equations import TINY, Equations, Ints, Mask
from dither_aggregator.analysis.inference import Floats

_BLOCK = 512


@dataclass(frozen=True)
class Fit:
    """Weighted least squares of the share on some candidates and, last, the column of unlisted strings."""

    chosen: Ints
    coefficients: Floats
    root: Floats
    """root' root is the coefficients' covariance, before it is scaled."""
    determined: Mask
    """False for a coefficient that the equations say nothing about."""
    residual: Floats
    chi_square: float
    degrees_of_freedom: int
    scale: float
    """By how much standard errors are larger than the noise alone would make them."""

    @property
    def variances(self) -> Floats:
        """The coefficients' variances, before they are scaled."""
        variances: Floats = (self.root**2).sum(axis=0)
        return variances


def least_squares(equations: Equations, chosen: Ints) -> Fit:
    """Fit the chosen candidates and the unlisted column, with nothing held back."""
    weight, unlisted = equations.weight, equations.unlisted
    patterns = csr_array(equations.patterns[chosen])
    weighted_share = weight * equations.share
    right = np.append(patterns @ weighted_share, unlisted * weighted_share.sum())
    root, determined, rank = _root_of_inverse(gram_of(patterns, weight, unlisted))
    coefficients = root.T @ (root @ right)
    residual = equations.share - patterns.T @ coefficients[:-1] - unlisted * coefficients[-1]
    chi_square, freedom = float((weight * residual**2).sum()), len(weight) - rank
    scale = _scale(equations, residual, rank) if freedom > 0 else 1.0
    return Fit(chosen, coefficients, root, determined, residual, chi_square, freedom, scale)


def _scale(equations: Equations, residual: Floats, rank: int) -> float:
    """Return the root of the residual chi-square by its degrees of freedom, of differences within cohorts; at least 1.

    A string sets about h bits in every cohort. Unlisted strings that add to one bit take from the others, so residuals
    differ more within a cohort than their sizes say, by k / (k - 1) in variance, and candidates are estimated from such
    differences. The cohorts' sums are left out, and with them all degrees of freedom of theirs but one, which is the
    unlisted column's.
    """
    weight, cohort = equations.weight, equations.cohort
    sums = np.bincount(cohort, weight)
    totals = np.bincount(cohort, weight * residual) / np.where(sums > 0, sums, 1.0)
    freedom = len(weight) - rank - (np.count_nonzero(sums) - 1)
    return sqrt(max(1.0, float((weight * (residual - totals[cohort]) ** 2).sum()) / freedom)) if freedom > 0 else 1.0


def gram_of(patterns: csr_array, weight: Floats, unlisted: float) -> Floats:
    """Return Z' W Z, with Z the candidates' columns and the unlisted one: float64[G + 1, G + 1]."""
    size = patterns.shape[0]
    gram = np.empty((size + 1, size + 1))
    transposed = csr_array(patterns.T)
    # By blocks: a sparse product of them all would take three times the memory of the result.
    for start in range(0, size, _BLOCK):
        block = csr_array(patterns[start : start + _BLOCK]) * weight
        gram[start : start + block.shape[0], :size] = (block @ transposed).toarray()
    gram[:size, size] = gram[size, :size] = unlisted * (patterns @ weight)
    gram[size, size] = unlisted**2 * weight.sum()
    return gram


def _root_of_inverse(gram: Floats) -> tuple[Floats, Mask, int]:
    """Return a root of the inverse of a Gram matrix, which of its coefficients are determined, and its rank.

    When columns depend on each other it is of the pseudo-inverse, and a coefficient is determined when its unit vector
    lies in the space that the columns span. A root is all that is needed: the whole inverse starts threads, for which a
    busy machine makes it wait a thousand times as long as it computes.
    """
    from scipy.linalg import lapack  # late: a process that answers something else need not wait for it

    size = len(gram)
    scale = 1 / np.sqrt(np.maximum(np.diag(gram), TINY**2))
    correlation = gram * scale * scale[:, np.newaxis]
    factor, failed = lapack.dpotrf(correlation, lower=1)
    if not failed and np.diag(factor).min() > 1e-5:
        root, _ = lapack.dtrtri(factor, lower=1)
        return root * scale, np.ones(size, dtype=np.bool_), size
    values, vectors = np.linalg.eigh(correlation)
    kept = values > TINY * values.max()
    spanned = vectors[:, kept]
    determined = (spanned**2).sum(axis=1) > 1 - 1e-6
    return (spanned / np.sqrt(values[kept])).T * scale, determined, int(kept.sum())
