"""Decoding RAPPOR: how many of the reports hold each candidate string, with intervals that hold.

A report of cohort c whose string sets bit b has that bit with probability q*, another one with p*. Debiased,

    y[c, b] = (tally[c, 1 + b] / N_c - p*) / (q* - p*)

is, up to noise, the share of the cohort's reports whose string sets bit b: the sum of the shares f_v of the strings v
that do. That makes m k linear equations for the candidates' shares. Strings that are not in the list are one more
column, the same in every row: a string sets a bit with probability 1 - (1 - 1/k)^h. Without it the candidates would
swallow what the list misses, and their intervals would be wrong.

Estimates are unbiased over the hash. Few candidates are fitted at once, by weighted least squares, unconstrained; the
rule is `Equations.few`. More than one for 20 equations would take too much from each other: they are fitted on all
cohorts but a 32nd part, none below zero, and each is estimated from what the others leave of that part.

Weights are 1 / variance, r (1 - r) / (N_c (q* - p*)^2) with r the bit's rate, by a first fit: the error is that of the
share in the population of which the reports are a random sample, and a little more than that of the share among the
reports. The residuals show all that the model does not explain, such as frequent strings that the list misses: every
standard error is multiplied by sqrt(max(1, chi-square / degrees of freedom)), taken within cohorts. Intervals hold on
average over the hash, too: what a missing string adds to a candidate's bits is the same in each decoding with the same
cohorts. With few cohorts such a string is no normal noise, so verdicts, and the intervals that are shown, are by a t
law (`Found.freedom`), and a verdict is that strings that nobody has hardly ever get as much, too.

`proportion` is another column, for looking at: only of candidates that somebody seems to have, none below zero. It is
biased; verdicts and intervals are made of the others.

Erlingsson, Pihur, Korolova 2014 (the mechanism, and least squares after selection); Benjamini, Hochberg 1995; Holm
1979; Efron 2008 (how many candidates nobody has); Satterthwaite 1946 (the t law). The prior of `proportion`: Kiefer,
Wolfowitz 1956; Jiang, Zhang 2009.

decoder_equations.py makes the equations, and fits many candidates to them by message passing. Here, in the order in
which they are needed: what strangers get, least squares, estimates of few candidates, the column for looking at,
estimates of many, and the decoder.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb, sqrt

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfft
from scipy.sparse import csr_array
from scipy.special import chdtrc, ndtri, stdtr

from dither_aggregator.analysis.decoder_equations import (
    FOLDS,
    PARTS,
    ROUNDS_OF_ALL,
    TINY,
    Channel,
    Equations,
    Ints,
    Mask,
    Passed,
    gains_of,
    make_equations,
    merge,
    pass_messages,
    reweighted,
    weights_of,
)
from dither_aggregator.analysis.functional import answers_variance
from dither_aggregator.analysis.inference import Floats, Z
from dither_aggregator.analysis.rows import adaptive, holm, selected_z
from dither_aggregator.counting import Counts
from dither_shared.errors import InvalidParameter
from dither_shared.kinds.precision import ALPHA

# Strangers: how often a string that nobody has gets as much as a candidate, by the hash alone.
#
# A stranger sets random bits in each cohort. With g the gains of a cohort's bits, their residuals by weight, its total
# is
#
#     S = sum over cohorts of the sum of g over the distinct bits that its h hashes set
#
# The hash draws anew in each cohort, so the law of S is a convolution: the product over cohorts of the mean of
# exp(i t sum of g). With j distinct bits that is e_j / C(k, j), where e_j is the elementary symmetric polynomial of the
# bits' exp(i t g), by Newton's identities from their power sums. A string that many have and the list misses makes one
# gain of each cohort large, and S is as uneven as the number of cohorts in which a stranger meets it.


CHANCE_MIN = 1e-12
"""Rarer ones are lost in the rounding of the transform."""
STEPS, REACH = 128, 32
"""Steps of a standard deviation, and how many of these to each side the law has beside three of the largest gains."""


def stranger_chances(gains: Floats, hashes: int, totals: Floats) -> Floats:
    """Return how often a stranger's total is at least each of these, float64[G], from CHANCE_MIN to 1.

    `gains` is float64[cohorts, k].
    """
    k, deviation = gains.shape[1], float(np.sqrt(hashes * gains.var(axis=1).sum()))
    if not deviation > 0:
        return np.where(totals > 0, CHANCE_MIN, 1.0)
    scaled = gains * (STEPS / deviation)
    half = int(STEPS * REACH + 3 * np.abs(scaled).max())
    length = next_fast_len(2 * half, real=True)
    law = np.ones(length // 2 + 1, dtype=np.complex128)
    chances = [chance / comb(k, bits) for bits, chance in enumerate(_distinct(k, hashes).tolist())]
    for cohort in scaled:
        powers = [_transform(power * cohort, length) for power in range(1, hashes + 1)]
        symmetric = [np.ones(1, dtype=np.complex128)]
        for bits in range(1, hashes + 1):
            terms = [(-1) ** (i - 1) * symmetric[bits - i] * powers[i - 1] for i in range(1, bits + 1)]
            symmetric.append(sum(terms) / bits)
        law *= sum(chance * each for chance, each in zip(chances, symmetric, strict=True) if chance)
    density = np.roll(irfft(law, length), length // 2)
    passing = np.append(np.cumsum(density[::-1])[::-1], 0.0)
    places = np.clip(np.floor(totals * (STEPS / deviation)) + length // 2, 0, length).astype(np.int64)
    return np.asarray(np.clip(passing[places], CHANCE_MIN, 1.0))


def _transform(values: Floats, length: int) -> npt.NDArray[np.complex128]:
    """Return the sum of exp(-i t value), complex128[length // 2 + 1]; a value lies between two steps by its parts."""
    below = np.floor(values)
    part, place = values - below, below.astype(np.int64)
    at = np.concatenate([place, place + 1]) % length
    counted: npt.NDArray[np.complex128] = rfft(np.bincount(at, np.concatenate([1 - part, part]), minlength=length))
    return counted


def _distinct(k: int, hashes: int) -> Floats:
    """Return the chance of each number of distinct bits, float64[hashes + 1]."""
    chance, number = np.zeros(hashes + 1), np.arange(hashes + 1)
    chance[0] = 1.0
    for _ in range(hashes):
        chance = chance * number / k + np.append(0.0, (chance * (1 - number / k))[:-1])
    return chance


# Weighted least squares of shares on candidates and, last, the column of what is in none of them.


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


# Estimates of all candidates with their errors, and of few candidates by one fit.


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


# The column for looking at: shares of the candidates that anybody seems to have, none below zero. It is biased.


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


# Estimates of many candidates: each from what the others leave, fitted on other cohorts.
#
# The cohorts are split in 32 parts. All but one fit all candidates by message passing, f, and this one has not seen
# the fit. Its residual r, along a candidate's column x, says by how much the fit is off there:
#
#     theta_v = sum over parts of (x' w x f_v + x' w r) / sum over parts of x' w x
#
# Residuals and columns are less their mean. Given the fit, the other candidates' bits in the held-out cohorts are drawn
# by the hash: what the fit gets wrong of them is noise of mean zero, in r, and so is what strings outside the list add.
# So theta is unbiased over the hash, whatever was fitted, its standard error is measured by r, within cohorts, and the
# better the fit, the smaller it is. The fit is multiplied by the number from 0 to 1 that leaves the least of the
# held-out residuals: one that went astray does no harm.
#
# The fits begin where those of eight folds ended, which are fitted first. A fold has four parts, and its fit has seen
# none of them, so that each of their fits goes on from it for a few rounds more.
#
# One more fit sees all cohorts. Message passing takes off what a candidate has added to its own residual, so that its
# theta, too, is as if each candidate were alone, with the noise that its residual shows. It knows the others better
# than a fit of 31 parts does, and ranks candidates better: of 1,090 of which 90 have equal shares, 1.07 times as many
# are named at one share of false ones. Its estimates are taken, with its residual. The parts' fits say whether it can
# be trusted: if it leaves far more or far less than they leave of what they have not seen, it went astray, and theta
# of the parts is taken.
#
# Every report holds one string, so that unlisted ones have 1 less the sum of all theta. Its error is that of a sum.
#
# Chernozhukov et al. 2018 (cross-fitting); Zhang, Zhang 2014 (the one step).


ASTRAY = 0.9, 1.1
"""A fit of all cohorts leaves so much, at least and at most, of the chi-square that fits leave of unseen parts."""


def infer_by_folds(equations: Equations) -> Found:
    """Estimate each candidate from the residuals of fits that have not seen them.

    At least two cohorts of two bits are needed. A candidate that sets all bits or none is not determined.
    """
    held_out = held_out_of(equations, FOLDS)
    coarse = pass_messages(equations, 1 - held_out)
    # Weights by the rates that the fits of the others expect of a cohort: it has no part in its own.
    shares, _ = _kept(equations, coarse, held_out)
    equations = replace(equations, weight=_weights(equations, shares, held_out))
    held_out = held_out_of(equations, PARTS)
    fine = pass_messages(equations, 1 - held_out, coarse.parts(held_out.shape[1]))
    shares, residual = _kept(equations, fine, held_out)
    set_weights = equations.weights_by_cohort()
    unset = 1 - set_weights.sum(axis=1) / equations.weight.sum()
    determined = unset > 1e-6
    total = np.where(determined, set_weights.sum(axis=1) * unset, 1.0)
    held_norms = (set_weights @ held_out[:: equations.channel.k]) * unset[:, np.newaxis]
    gains = gains_of(equations.weight, residual)
    of_parts = (held_norms * shares).sum(axis=1) + equations.patterns @ gains
    chi_square = left = _chi_square(equations, residual)
    freedom = len(residual) - equations.cohorts
    totals = of_parts
    of_all, gains_of_all, left_by_all = _of_all_cohorts(equations, total)
    if ASTRAY[0] * chi_square < left_by_all < ASTRAY[1] * chi_square:
        totals, gains, left = of_all, gains_of_all, left_by_all
    scale2, scale2_of_parts = (max(1.0, each / freedom) for each in (left, chi_square))
    of_sum = gains_of(equations.weight, equations.patterns.T @ np.where(determined, 1 / total, 0.0))
    return settle(
        np.append(totals / total, 1 - (of_parts / total)[determined].sum()),
        np.append(scale2 / total, scale2_of_parts * (of_sum**2 / equations.weight).sum()),
        np.append(determined, determined.all()),
        chi_square,
        freedom,
        common=equations.common,
        cohorts=equations.cohorts,
        strangers=stranger_chances(gains.reshape(equations.cohorts, -1), equations.channel.h, totals),
        split=True,
    )


def _of_all_cohorts(equations: Equations, norm: Floats) -> tuple[Floats, Floats, float]:
    """Return of a fit of all cohorts theta by norm, float64[G], the gains, float64[R], and the chi-square it leaves."""
    passed = pass_messages(equations, np.ones((len(equations.weight), 1)), rounds_min=ROUNDS_OF_ALL)
    residual = passed.residual(equations)[:, 0]
    gains = gains_of(equations.weight, residual)
    return norm * passed.shares[:, 0] + equations.patterns @ gains, gains, _chi_square(equations, residual)


def _chi_square(equations: Equations, residual: Floats) -> float:
    """Return the chi-square of residuals, float64[R], within cohorts."""
    within = equations.within_cohorts(residual[:, np.newaxis])[:, 0]
    return float(equations.weight @ within**2)


def held_out_of(equations: Equations, most: int) -> Floats:
    """Return float64[R, F]: 1 where an equation is held out of a fold."""
    folds = min(most, equations.cohorts)
    held_out: Floats = (equations.cohort[:, np.newaxis] % folds == np.arange(folds)).astype(np.float64)
    return held_out


def _kept(equations: Equations, passed: Passed, held_out: Floats) -> tuple[Floats, Floats]:
    """Return the part of each fold's fit that is kept, float64[G, F], and its residual where held out, float64[R]."""
    shares = passed.shares
    fitted = _fitted(equations, shares, held_out)
    gains = gains_of(equations.weight, fitted)
    kept = min(max(float(gains @ equations.share) / max(float(gains @ fitted), TINY), 0.0), 1.0)
    return kept * shares, equations.share - kept * fitted


def _weights(equations: Equations, shares: Floats, held_out: Floats) -> Floats:
    channel = equations.channel
    rates = channel.p_star + (channel.q_star - channel.p_star) * _fitted(equations, shares, held_out)
    return weights_of(rates, equations.reports, channel)


def _fitted(equations: Equations, shares: Floats, held_out: Floats) -> Floats:
    """Return the bits' shares by the fits that have not seen them, float64[R]; unlisted strings have the rest."""
    by_fold = equations.patterns.T @ shares + equations.unlisted * (1 - shares.sum(axis=0))
    fitted: Floats = (by_fold * held_out).sum(axis=1)
    return fitted


__all__ = ["Candidate", "Channel", "Decoded", "decode"]

_NOT_OF_THE_FIT = ("rows", "error_freedom", "strangers")
MISFIT = 1e-3
"""A chi-square so improbable is said to be a misfit."""
MISFIT_OF_MANY = 1.5
"""So much for each degree of freedom is, of many candidates: their residuals hold the error of the fits, too."""
FEW = 0.1
"""When only a string with a larger share than this can be told from noise, reports are said to be few."""


@dataclass(frozen=True)
class Candidate:
    """One candidate. Shares are of all n reports; `estimate` and its interval are raw, so they may leave [0, 1]."""

    value: str
    estimate: float
    std_error: float
    """How far the estimate may lie from the share in the population that the reports are a random sample of."""
    lower: float
    upper: float
    proportion: float
    """The selected, constrained share: never below zero, zero when not selected. Biased, and no verdict."""
    significant: bool
    """Whether anybody has the string: of all called so at most `Decoded.false_share` are expected to be false."""
    significant_holm: bool
    """The same, stricter: not one false one among all candidates, with 95 %."""
    group: str
    """Empty, or the first of several candidates that set equal bits: the row is then of all of them together."""


@dataclass(frozen=True)
class Decoded:
    """A row for each candidate, in the given order, and what holds for the list as a whole."""

    rows: tuple[Candidate, ...]
    n: int
    unexplained: float
    """The share of reports whose string is not in the list: raw, with the ends of its 95 % interval."""
    unexplained_lower: float
    unexplained_upper: float
    chi_square: float
    degrees_of_freedom: int
    error_freedom: float
    """The degrees of freedom of the t law that says how rarely an estimate is so far from zero."""
    strangers: tuple[float, ...]
    """How often a string that nobody has gets as much as each row, by the hash alone."""
    seconds: float
    sentences: tuple[str, ...]
    false_share: float = ALPHA
    """At most such a share of the strings called significant is expected to be false."""

    def summary(self) -> dict[str, object]:
        """Return what is told of the fit, ready for JSON: every number is finite."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_OF_THE_FIT}

    def named(self, false_share: float) -> "Decoded":
        """Return the same, with those called significant of which at most such a share is expected to be false.

        It is above 0 and at most 1/2. `rows` says what of it is proved, and what measured.
        """
        groups = {row.group or row.value: (row, often) for row, often in zip(self.rows, self.strangers, strict=True)}
        scores = np.array([row.estimate / row.std_error for row, _ in groups.values()])
        strangers = np.array([often for _, often in groups.values()])
        called = adaptive(chances(scores, self.error_freedom, strangers), false_share)
        significant = dict(zip(groups, called.tolist(), strict=True))
        rows = tuple(replace(row, significant=significant[row.group or row.value]) for row in self.rows)
        return replace(self, rows=rows, false_share=false_share)

    @property
    def shown(self) -> tuple[Candidate, ...]:
        """The rows with intervals by the t law, of those found wider: at most 5 % miss on average, although found."""
        apart = [row for row in self.rows if row.group in ("", row.value)]
        found = selected_z(sum(row.significant for row in apart), len(apart), ALPHA, self.error_freedom)
        other = selected_z(1, 1, ALPHA, self.error_freedom)
        reach = [(found if row.significant else other) * row.std_error for row in self.rows]
        return tuple(
            replace(row, lower=row.estimate - below, upper=row.estimate + below)
            for row, below in zip(self.rows, reach, strict=True)
        )

    def to_document(self) -> dict[str, object]:
        """Return what is shown and the summary, ready for JSON."""
        return {"rows": [{**vars(row)} for row in self.shown], "summary": self.summary()}


def decode(tally: Counts, candidates: Sequence[str], bits: Ints, channel: Channel) -> Decoded:
    """Estimate the share of each candidate.

    `tally` is int64[m, k + 1]: of each cohort the number of reports, then the count of each bit. `bits` is
    int64[S, m, h]: the bit that each hash of each candidate sets in each cohort; one that is set twice counts once.
    Deterministic, but for `seconds`. Raises InvalidParameter when shapes or counts cannot be. Not promised: a verdict
    on strings that are not in the list, beyond how much they hold together.
    """
    started = time.perf_counter()
    _check(tally, candidates, bits, channel)
    reported = tally[:, 0] > 0
    patterns, group_of = merge(bits[:, reported] if reported.any() else bits)
    if reported.any():
        equations = make_equations(tally[reported], patterns, channel)
        if equations.few:
            equations = reweighted(equations)
        found = _infer(equations)
        proportion = selected_shares(equations, found)
    else:
        found, proportion = know_nothing(len(patterns)), np.zeros(len(patterns))
    lower, upper = found.unlisted_interval
    return Decoded(
        rows=_rows(candidates, group_of, found, proportion),
        n=int(tally[:, 0].sum()),
        unexplained=found.unlisted,
        unexplained_lower=lower,
        unexplained_upper=upper,
        chi_square=found.chi_square,
        degrees_of_freedom=found.degrees_of_freedom,
        error_freedom=found.freedom,
        strangers=tuple(found.strangers[group_of].tolist()),
        sentences=tuple(_sentences(tally, candidates, group_of, found)),
        seconds=time.perf_counter() - started,
    ).named(ALPHA)


def _check(tally: Counts, candidates: Sequence[str], bits: Ints, channel: Channel) -> None:
    k, h, m = channel.k, channel.h, channel.m
    if tally.shape != (m, k + 1):
        raise InvalidParameter(f"the tally must have {m} rows of {k + 1} counts, got the shape {tally.shape}")
    if not len(candidates):
        raise InvalidParameter("at least one candidate is needed, got none")
    if bits.shape != (len(candidates), m, h):
        raise InvalidParameter(f"bits must have the shape {(len(candidates), m, h)}, got {bits.shape}")
    if tally.dtype.kind not in "iu" or bits.dtype.kind not in "iu":
        raise InvalidParameter(f"counts and bits must be whole numbers, got {tally.dtype} and {bits.dtype}")
    for cohort in np.flatnonzero((tally.min(axis=1) < 0) | (tally.max(axis=1) > tally[:, 0]))[:1]:
        raise InvalidParameter(f"counts must lie between 0 and the cohort's reports, got otherwise in cohort {cohort}")
    if bits.min() < 0 or bits.max() >= k:
        raise InvalidParameter(f"bits must lie in 0..{k - 1}, got {bits.min()}..{bits.max()}")


def _infer(equations: Equations) -> Found:
    if equations.few:
        return infer_whole(equations)
    if min(equations.cohorts, equations.channel.k) > 1:
        return infer_by_folds(equations)
    return know_nothing(equations.patterns.shape[0])


def _rows(candidates: Sequence[str], group_of: Ints, found: Found, proportion: Floats) -> tuple[Candidate, ...]:
    surely = holm(found.chances, ALPHA)
    sizes = np.bincount(group_of)
    _, first = np.unique(group_of, return_index=True)
    rows = []
    for value, group in zip(candidates, group_of.tolist(), strict=True):
        estimate, error = float(found.estimate[group]), float(found.std_error[group])
        rows.append(
            Candidate(
                value=value,
                estimate=estimate,
                std_error=error,
                lower=estimate - Z * error,
                upper=estimate + Z * error,
                proportion=float(proportion[group]),
                significant=False,  # until it is among those that `Decoded.named` names
                significant_holm=bool(surely[group]),
                group=candidates[first[group]] if sizes[group] > 1 else "",
            )
        )
    return tuple(rows)


def _sentences(tally: Counts, candidates: Sequence[str], group_of: Ints, found: Found) -> list[str]:
    """Say in plain words what the numbers cannot be read without."""
    n, equations = int(tally[:, 0].sum()), int(np.count_nonzero(tally[:, 0])) * (tally.shape[1] - 1)
    if n == 0:
        return ["There are no reports: nothing is known."]
    sentences = [*_about_the_fit(found)]
    if found.split:
        sentences.append(
            f"{len(found.estimate):,} candidates are many for {equations:,} equations: each was estimated from what "
            "the others leave, fitted on other cohorts."
        )
    shared = np.bincount(group_of)[group_of] > 1
    if shared.any():
        first = candidates[int(np.flatnonzero(shared)[0])]
        sentences.append(
            f"{shared.sum():,} candidates set the same bits as another one wherever there are reports (the first: "
            f"{first!r}): their rows give what their group has together."
        )
    if not found.determined.all():
        sentences.append(
            f"These reports say nothing of {np.count_nonzero(~found.determined[group_of]):,} candidates: their rows "
            "have a standard error of 1."
        )
    critical = float(ndtri(1 - ALPHA / len(found.estimate)) * np.median(found.std_error))
    if critical > FEW:
        needed = (
            f"only a string that about {critical:.0%} of them hold" if critical < 1 else "not even one that all hold"
        )
        sentences.append(f"These reports are few, {n:,}: {needed} can be told from noise among so many candidates.")
    return sentences


def _about_the_fit(found: Found) -> list[str]:
    sentences = []
    freedom, low, high = found.degrees_of_freedom, *found.unlisted_interval
    least = MISFIT_OF_MANY * freedom if found.split else 0.0
    if freedom > 0 and found.chi_square > least and chdtrc(freedom, found.chi_square) < MISFIT:
        cause = "the list misses strings that many have" + (
            ", or has more than can be told apart" if found.split else ""
        )
        sentences.append(
            f"The candidates do not explain the reports: chi-square is {found.chi_square:,.0f} on {freedom:,} "
            f"degrees of freedom. Most likely {cause}. Standard errors are larger for it."
        )
    if low > 0:
        sentences.append(
            f"Strings that are not in the list hold about {found.unlisted:.1%} of the reports (95 % interval: "
            f"{low:.1%} to {high:.1%})."
        )
    return sentences
